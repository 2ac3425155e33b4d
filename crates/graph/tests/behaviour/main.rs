//! The behaviour of a graph, seen from outside: packets in, packets out, counters, state.
#![allow(clippy::unwrap_used)] // A test that panics fails.

#[path = "../support/mod.rs"]
mod support;

mod aliases;
mod answers;
mod batching;
mod branching;
mod classifier;
mod copies;
mod errors;
mod fragments;
mod limits;
mod model;
mod moving;
mod observing;
mod panicking;
mod time;
mod turning;
mod upgrading;
mod vlans;
