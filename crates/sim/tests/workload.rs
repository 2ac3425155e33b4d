//! Made-up traces have the published properties of their originals (S86).

#![allow(clippy::unwrap_used, clippy::panic)]

use sim::scenario::RateCurve;
use sim::scenario::Workload;
use sim::scenario::{BurstSizes, SyntheticTrace, TraceProfile};
use sim::workload::{Arriving, Packets, Shape, Statistics, WorkloadStatistics};
use values::PositiveBitRate;

/// The whole of a trace, at 5 times its natural speed.
fn whole(profile: TraceProfile, bursts: BurstSizes, seed: u64) -> (Statistics, [f64; 2]) {
    let curve = RateCurve::flat(PositiveBitRate(5_000_000_000));
    let until_ns = (Shape::of(profile).fitted(bursts).trace_ns / 5.0) as u64;
    let workload = Workload::Trace(SyntheticTrace { profile, bursts, curve, adversary: None });
    let mut statistics = WorkloadStatistics::new();
    let mut last = std::collections::HashMap::new();
    let mut begun = [0u64; 2];
    for packet in Packets::new(&workload, seed).take_while(|packet| packet.time_ns < until_ns) {
        let Arriving { time_ns, flow, .. } = packet;
        let before = last.insert(flow, time_ns);
        for (begun, gap_ns) in begun.iter_mut().zip([100_000, 500_000]) {
            *begun += u64::from(before.is_none_or(|before| time_ns - before > gap_ns));
        }
        statistics.add(&packet);
    }
    let statistics = statistics.finish(until_ns);
    let bursts_per_flow = begun.map(|begun| begun as f64 / statistics.flows as f64);
    println!("{profile:?} {seed}: {statistics:?} {bursts_per_flow:.2?} bursts per flow");
    (statistics, bursts_per_flow)
}

fn is_within(value: f64, of: f64, share: f64) -> bool {
    (value / of - 1.0).abs() <= share
}

#[test]
fn trace_b_has_its_published_properties() {
    [BurstSizes::Growing, BurstSizes::Windows].into_iter().for_each(trace_b);
}

fn trace_b(bursts: BurstSizes) {
    let (statistics, bursts_per_flow) = whole(TraceProfile::WB, bursts, 1);
    assert!(is_within(statistics.packets as f64, 6.4e6, 0.1));
    assert!(is_within(statistics.flows as f64, 199e3, 0.03));
    assert!(is_within(statistics.packet_median_bytes as f64, 1434.0, 0.001));
    assert!(is_within(statistics.flows_above_10kb, 0.05, 0.1));
    assert!(is_within(statistics.rate_mean_bps, 5e9, 0.1));
    assert!(is_within(bursts_per_flow[1], 4.66, 0.1) && is_within(bursts_per_flow[0], 5.18, 0.1)); // S99
}

#[test]
fn trace_a_has_its_published_properties() {
    let (statistics, _) = whole(TraceProfile::WA, BurstSizes::Growing, 1);
    // A few dozen flows have nearly all packets, so that their number varies with the seed.
    assert!(is_within(statistics.packets as f64, 3.8e6, 0.25));
    assert!(is_within(statistics.flows as f64, 1.7e3, 0.1));
    assert!(is_within(statistics.packet_median_bytes as f64, 368.0, 0.05));
    assert!(is_within(statistics.flows_above_10kb, 0.05, 0.3));
}
