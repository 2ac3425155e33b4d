//! How long it takes (X12). Run alone, in a release build: `cargo test --release -p router -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use packet::{FlowHasher, FlowKey};

use super::bench::{fixed, key};
use crate::*;

const BATCH: usize = 32;
const SLICE: usize = 8192;

#[test]
#[ignore = "prints times"]
fn a_packet_of_a_current_flowlet() {
    for flows in [1_000, 100_000, 1_000_000] {
        let config = Config { size_max: u64::MAX, gap_ns: u64::MAX, flows_max: flows, ..fixed(10) };
        let ns = per_packet_ns(config, flows, 5_000_000);
        println!("{flows:>8} flows, flowlets that go on: {ns:.1} ns/packet");
    }
}

#[test]
#[ignore = "prints times"]
fn a_packet_that_begins_a_flowlet() {
    for choice in [Choice::MostUtilised, Choice::LowestId] {
        for units in [1, 16, 100, 1000] {
            for (targets, what) in
                [(TargetChoice::None, "no targets"), (TargetChoice::Weighted, "3 targets drawn")]
            {
                let config = Config { size_max: 1, choice, targets, flows_max: 1000, ..fixed(units) };
                let ns = per_packet_ns(config, 1000, 500_000);
                println!("{choice:?}, {units:>4} units, {what}: {ns:.1} ns/packet");
            }
        }
    }
}

/// Nanoseconds for each packet of so many flows, in batches with prefetching: of many short slices of time the one that is
/// slower than a tenth of them, so that what else the machine does hardly counts.
fn per_packet_ns(config: Config, flows: u32, packets: usize) -> f64 {
    let hasher = FlowHasher::new(1);
    let keys: Vec<(FlowKey, u64)> = (0..flows).map(|flow| (key(flow), hasher.hash(&key(flow)))).collect();
    let mut order: Vec<u32> = (0..flows).collect();
    let mut random = 7;
    for i in (1..order.len()).rev() {
        order.swap(i, (packet::split_mix(&mut random) % (i as u64 + 1)) as usize);
    }
    let arrivals: Vec<(FlowKey, u64)> = order.iter().map(|&flow| keys[flow as usize]).collect();
    let (mut router, mut orders, mut now_ns) = (Router::new(config).unwrap(), Vec::new(), 0);
    let mut batches = arrivals.chunks(BATCH).cycle();
    let mut pass = |packets: usize| {
        let start = Instant::now();
        for batch in batches.by_ref().take(packets / BATCH) {
            batch.iter().for_each(|(_, hash)| router.prefetch(*hash));
            batch.iter().for_each(|(_, hash)| router.prefetch_flow(*hash));
            for &(ref key, hash) in batch {
                now_ns += 100;
                let arrival = Arrival { key, hash, reversed: false, len: 500 };
                let _ = black_box(router.route(now_ns, arrival, &mut orders));
            }
            orders.clear();
        }
        start.elapsed().as_nanos() as f64 / packets as f64
    };
    pass(flows as usize + BATCH);
    let mut slices: Vec<f64> = (0..packets / SLICE).map(|_| pass(SLICE)).collect();
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 10]
}
