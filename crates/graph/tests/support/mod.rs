//! Support for the tests of the graph: packets made by slow and obvious code, small
//! functions that do one thing each, and a bench that runs a graph over traffic and writes down
//! everything that can be seen from outside.
#![allow(dead_code)] // Every test binary uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that panics fails.

pub mod bench;
pub mod functions;
pub mod multipath;
pub mod packets;
pub mod traffic;
