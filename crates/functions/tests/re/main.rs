//! Redundancy elimination: two ends of a link, the packets on it, and the packets that come out.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // A test fails by panicking.

mod behaviour;
mod captures;
mod config;
mod loss;
mod oracle;
mod pair;
mod properties;

#[path = "../meter_support/mod.rs"]
mod meter_support;
