//! The VPN gateway: encapsulation, decapsulation and refused packets.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod behaviour;
mod config;
mod errors;
mod known;
mod pair;
mod properties;
mod tshark;

#[path = "../meter_support/mod.rs"]
mod meter_support;
#[path = "../tshark_support/mod.rs"]
mod tshark_support;
