//! `ids` in a graph: each behaviour of its README by a small example of a few rules, a few packets,
//! and the expected reports; random conversations; and all rules, checked by an oracle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod actions;
mod bodies;
mod budgets;
mod ends;
mod fragmented;
mod handover;
mod hidden;
mod ids_oracle_selftest;
mod ids_properties;
mod lenient_bodies;
mod limits;
mod mails;
mod memory;
mod messages;
mod normalized;
mod odd_messages;
mod odd_segments;
mod orientation;
mod packets;
mod stream_memory;
mod streams;
mod trailers;
mod verdicts;

#[path = "../ids_oracle/captures.rs"]
mod captures;
#[path = "../ids_oracle/compare.rs"]
mod compare;
#[path = "../ids_oracle/planted.rs"]
mod planted;
#[path = "../ids_oracle/suricata.rs"]
mod suricata;

#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../ids_oracle/mod.rs"]
mod ids_oracle;
#[path = "../ids_support/mod.rs"]
mod ids_support;
#[path = "../meter_support/mod.rs"]
mod meter_support;
