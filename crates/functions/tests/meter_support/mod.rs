//! Common parts of the tests of `policer`, `whitelist`, `dos` and `vpn`: a bench with functions
//! configured in JSON.
#![allow(dead_code, unused_imports)] // Each test file uses a part of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../graph/tests/support/mod.rs"]
pub mod support;

use graph::{Options, Timeouts};
use nf::stage::Stage;
use nf::{Registry, Setup};
use serde_json::Value;

pub use support::bench::{Arrival, Bench, run};
pub use support::multipath::*;
pub use support::packets::*;
pub use support::traffic::traffic;

pub const SECOND_NS: u64 = 1_000_000_000;
pub const MS_NS: u64 = 1_000_000;

/// Returns options with flow timeouts beyond the run, so that only the function under test forgets.
pub fn options() -> Options {
    let forever = u32::MAX;
    let timeouts = Timeouts {
        tcp_established_ms: forever,
        tcp_transitory_ms: forever,
        udp_ms: forever,
        udp_unreplied_ms: forever,
        icmp_ms: forever,
        other_ms: forever,
    };
    Options { timeouts, flows_max: 4_096, ..Options::default() }
}

pub fn stage(function: &str, config: &Value) -> Box<dyn Stage> {
    let registry: Registry<Value> = functions::registry();
    let entry = registry.find(function).unwrap();
    let mut setup = Setup::new(7, 4_096);
    setup.inner = true; // Only tunnels need it.
    entry.make(config, setup).unwrap_or_else(|error| panic!("{config}: {error}"))
}

/// Creates a graph with one function.
pub fn bench(function: &str, config: &Value) -> Bench {
    Bench::new(vec![stage(function, config)], options())
}

/// Returns a counter of a bench's only function.
pub fn counter(bench: &Bench, name: &str) -> u64 {
    counter_of(bench, 0, name)
}

/// Returns a counter of the function at this index of a bench's graph.
pub fn counter_of(bench: &Bench, stage: usize, name: &str) -> u64 {
    let counters = &bench.graph.stages()[stage].shared().counters;
    counters.get(name).unwrap_or_else(|| panic!("no counter {name}"))
}

/// Checks that the output of random traffic does not depend on batches.
pub fn batches_change_nothing(function: &str, config: &Value, traffic: &[Arrival]) {
    let alone = run(vec![stage(function, config)], Options::default(), traffic, 1);
    for batch in [2, 7, 32, 256] {
        let together = run(vec![stage(function, config)], Options::default(), traffic, batch);
        assert!(alone == together, "{config}, batches of {batch}:\n{alone:?}\n{together:?}");
    }
}
