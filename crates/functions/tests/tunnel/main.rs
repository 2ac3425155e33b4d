//! The tunnel: encapsulation, decapsulation at the other end, and refused packets.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod behaviour;
mod config;
mod ends;
mod tshark;

#[path = "../meter_support/mod.rs"]
mod meter_support;
#[path = "../tshark_support/mod.rs"]
mod tshark_support;
