//! `ids` in a chain, each behaviour of its README by a small example: a few rules, a few packets, and which rule is told of on
//! which packet. `ids_planted` and `ids_captures` hold it to an oracle with all rules.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod ids_support;

#[path = "ids/actions.rs"]
mod actions;
#[path = "ids/bodies.rs"]
mod bodies;
#[path = "ids/limits.rs"]
mod limits;
#[path = "ids/memory.rs"]
mod memory;
#[path = "ids/messages.rs"]
mod messages;
#[path = "ids/packets.rs"]
mod packets;
#[path = "ids/streams.rs"]
mod streams;
#[path = "ids_oracle/plant/tls.rs"]
mod tls;
