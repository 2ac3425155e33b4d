//! Two links over a faulty network.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bench;
mod dead;
mod determinism;
mod limits;
mod mtu;
mod packets;
mod refusals;
mod reliable;
mod reordering;
