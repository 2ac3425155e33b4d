//! Figures of functions on a simulated network: the dispatcher's report has those of all units, and
//! they equal those of a single machine for the same packets.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use cluster::policies::GraphMaker;
use cluster::simulated::{NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults, SimulatedOutcome};
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::report::FunctionReport;
use runtime::{Report, Runner};

use support::{Arriving, SEED, Sink, assembly_of, conversation_with, play, profile, receive};

/// Rules, edges, events and a function with counters of its own.
const BRANCHES: &str = "
    settings { flows: 2k }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out tcp to any port 80\\nallow out udp from any\\ndeny out from any\", default: deny };
    Monitor m { report: [] };
    HTTP h;
    pipelet { inside <-> f [tcp] <-> h <-> outside; f <-> m <-> outside; }";

const LINE: &str = "
    settings { flows: 2k }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out tcp to any port 80\\nallow out udp from any\\ndeny out from any\", default: deny };
    HTTP h;
    pipelet { inside <-> f <-> h <-> outside; }";

const NAT: &str = "
    settings { flows: 2k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    NAT n { external: [203.0.113.0/30] };
    pipelet { inside <-> n <-> outside; }";

fn run(policy: &'static str, frames: &[Arriving], faults: SimulatedFaults, end: bool) -> (Report, Report) {
    let config = UnitsConfig {
        mode: Granularity::Flow,
        units_min: 3,
        units_max: 30,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    };
    let make = move || -> GraphMaker { Box::new(move |_| Ok(assembly_of("test.rvl", policy).graph)) };
    let start = (SEED, frames[0].timestamp_ns);
    let assembly = assembly_of("test.rvl", policy);
    let mut cluster = SimulatedCluster::start(assembly, config, 3, make, faults, start).unwrap();
    let mut sink = Sink::default();
    for frame in frames {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
    }
    let last_ns = frames[frames.len() - 1].timestamp_ns;
    let mut during = Report::default();
    if end {
        // As for metrics: once a second, and the answers arrive a little later.
        for at_ns in [1, 2] {
            cluster.runner().ask_for_figures();
            cluster.run_to(last_ns + at_ns * 1_000_000_000, &mut sink).unwrap();
        }
        during = cluster.runner().report();
    }
    let SimulatedOutcome { report, .. } = cluster.finish(&mut sink).unwrap();
    (during, report)
}

fn frames(policy: &str) -> Vec<Arriving> {
    conversation_with(assembly_of("test.rvl", policy), &profile(Payload::Http, 1_500, 20_000.0, SEED))
}

/// Returns the counts of packets, without values that depend on the number of tables.
fn counted(functions: &[FunctionReport]) -> Vec<String> {
    let of = |function: &FunctionReport| {
        let FunctionReport { name, packets, bytes, drops, counters, rules, pools, .. } = function;
        let counters: Vec<_> = counters.iter().map(|(name, counter)| (name, counter.count)).collect();
        let rules: Vec<_> =
            rules.iter().map(|rule| (&rule.name, rule.flows, rule.packets, rule.bytes)).collect();
        let pools: Vec<_> = pools.iter().map(|(name, pool)| (name, pool.size, pool.exhausted)).collect();
        format!("{name}: {packets} {bytes} {drops} {counters:?} {rules:?} {pools:?}")
    };
    functions.iter().map(of).collect()
}

#[test]
fn figures_of_all_units_are_those_of_one_machine() {
    for policy in [LINE, BRANCHES] {
        let frames = frames(policy);
        let (_, one) = play(Runner::new(assembly_of("test.rvl", policy), "test"), &frames);
        let (during, all) = run(policy, &frames, SimulatedFaults::NONE, true);
        assert!(one.functions.iter().all(|function| function.packets > 0), "{one:?}");
        assert_eq!(counted(&all.functions), counted(&one.functions));
        // Packets of a rule are counted once their flow has ended.
        let packets = |functions: &[FunctionReport]| -> Vec<_> {
            functions.iter().map(|function| (function.packets, function.bytes, function.drops)).collect()
        };
        assert_eq!(packets(&during.functions), packets(&one.functions), "while packets flow");
        let edges = |report: &Report| format!("{:?}", report.edges);
        assert_eq!(edges(&all), edges(&one));
        assert_eq!((all.alerts, all.events), (one.alerts, one.events));
        assert!(one.events > 0);
        assert_eq!(all.streams.map(|s| s.bytes), one.streams.map(|s| s.bytes));
    }
}

/// Ports in use are those of live flows; the pool is one.
#[test]
fn pools_show_what_all_units_have_taken() {
    let frames = frames(NAT);
    let (during, end) = run(NAT, &frames, SimulatedFaults::NONE, true);
    let pool = |report: &Report| report.functions[0].pools["ports"].clone();
    let (_, one) = play(Runner::new(assembly_of("test.rvl", NAT), "test"), &frames);
    assert!(pool(&during).in_use > 0, "{during:?}");
    assert_eq!(pool(&end).size, pool(&one).size);
    assert_eq!(pool(&end).in_use, 0, "all flows have ended");
}

/// Counters of a lost unit stay, and its gauges do not.
#[test]
fn figures_of_a_lost_unit_stay() {
    let frames = frames(NAT);
    let duration_ns = frames[frames.len() - 1].timestamp_ns - frames[0].timestamp_ns;
    let kind = NodeFaultKind::Crash(u64::MAX / 2);
    let crash = NodeFault { at_ns: duration_ns + 1_500_000_000, unit: 1, kind };
    let (_, whole) = run(NAT, &frames, SimulatedFaults::NONE, true);
    let (_, end) = run(NAT, &frames, SimulatedFaults { nodes: vec![crash], ..SimulatedFaults::NONE }, true);
    assert_eq!(end.functions[0].packets, whole.functions[0].packets);
    assert_eq!(end.functions[0].pools["ports"].in_use, 0);
}
