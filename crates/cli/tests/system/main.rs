//! The whole system, over foreign captures and at its limits.
//!
//! Everything goes through the text of a policy, as an operator would write it. The captures are in
//! `shared/traces` next to the workspace, or in `$RIVULET_SHARED/traces`. Without them, or without
//! a tool, a test prints `SKIPPED` and passes, except where `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

#[path = "../../../applayer/tests/protocols/support/all_cores.rs"]
mod all_cores;
mod captures;
mod collector;
mod command;
mod eve;
mod http;
mod limits;
mod messages;
#[path = "../../../functions/tests/nat_oracle/mod.rs"]
mod nat_oracle;
#[path = "../../../functions/tests/nat_support/mod.rs"]
mod nat_support;
#[path = "../../../io/tests/nfcapd/mod.rs"]
mod nfcapd;
mod policies;
mod recorder;
mod replay;
mod run;
mod streams;
mod sums;
mod traces;
mod tshark;
