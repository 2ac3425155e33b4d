//! The system as a whole, over captures from elsewhere and at its limits.
//!
//! Everything here goes through a policy's text: what an operator could write is what is tested.
//! The captures are those of `shared/traces` beside the workspace, or `$RIVULET_SHARED/traces`;
//! without them, or without a tool, a test says `SKIPPED` and passes, except where `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test that cannot go on has failed.

#[path = "../../../applayer/tests/protocols/support/all_cores.rs"]
mod all_cores;
mod captures;
mod collector;
mod command;
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
