//! Slow nodes are not dead, on a simulated network. A node that is silent for a while keeps its
//! flows; after a longer silence it is fenced.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use std::collections::BTreeMap;

use cluster::policies::GraphMaker;
use cluster::remote::{NodeInfo, NodeStatus};
use cluster::simulated::{NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults, SimulatedOutcome};
use io::traffic::{Payload, TrafficProfile};
use protocol::dispatcher::Granularity;
use runtime::Runner;
use runtime::elastic::UnitsConfig;

use support::{Arriving, SEED, Sink, assembly_of, by_flow, conversation_with, play, profile, receive};
use texts::FIREWALL;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MODES: [Granularity; 3] = [Granularity::Packet, Granularity::Flowlet, Granularity::Flow];
/// Time at which faults begin.
const FAULT: u64 = SECOND;
/// Stall after which a process may have been given up; packets that have waited longer are dropped
/// at ports.
const STALE: u64 = 2 * SECOND;

/// Packets of seven seconds.
fn traffic() -> (TrafficProfile, Vec<Arriving>) {
    let mut profile = profile(Payload::Http, 2_100, 300.0, SEED);
    profile.protocols.fragments = 0.0; // They wait for the packets before them, even those at suspect units.
    let frames = conversation_with(assembly_of("test.rvl", FIREWALL), &profile);
    (profile, frames)
}

fn start(mode: Granularity, kinds: &[NodeFaultKind], start_ns: u64) -> SimulatedCluster {
    let config = UnitsConfig {
        mode,
        units_min: 3,
        units_max: 30,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    };
    let make = || -> GraphMaker { Box::new(|_| Ok(assembly_of("test.rvl", FIREWALL).graph)) };
    let fault = |&kind| NodeFault { at_ns: FAULT, unit: 0, kind };
    let faults = SimulatedFaults { nodes: kinds.iter().map(fault).collect(), ..SimulatedFaults::NONE };
    let assembly = assembly_of("test.rvl", FIREWALL);
    SimulatedCluster::start(assembly, config, 3, make, faults, (SEED, start_ns)).unwrap()
}

/// Outcome of a run.
struct Seen {
    sink: Sink,
    outcome: SimulatedOutcome,
    /// Time in the run at which each packet has left, in order.
    left_ns: Vec<u64>,
    /// Changes of the state of the first unit's node, with their times.
    states: Vec<(u64, NodeStatus)>,
}

/// Lets the packets arrive. While the dispatcher is paused, they wait at its ports.
fn run(mut cluster: SimulatedCluster, frames: &[Arriving], start_ns: u64) -> Seen {
    let (mut sink, mut left_ns, mut states) = (Sink::default(), Vec::new(), Vec::new());
    let mut waiting: Vec<&Arriving> = Vec::new();
    for frame in frames {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        if cluster.is_paused() {
            left_ns.resize(sink.sent.len(), FAULT); // They left before the pause.
            waiting.push(frame);
            continue;
        }
        let now_ns = frame.timestamp_ns - start_ns;
        let is_stale = waiting.first().is_some_and(|first| now_ns - (first.timestamp_ns - start_ns) >= STALE);
        for waited in waiting.drain(..).filter(|_| !is_stale).chain([frame]) {
            receive(cluster.runner(), waited, &mut sink);
        }
        cluster.runner().flush(&mut sink).unwrap();
        left_ns.resize(sink.sent.len(), now_ns);
        let first = cluster.handle().status().into_iter().find(|node: &NodeInfo| node.name == "unit-0");
        let status = first.unwrap().status;
        if states.last().is_none_or(|(_, last)| *last != status) {
            states.push((now_ns, status));
        }
    }
    let outcome = cluster.finish(&mut sink).unwrap();
    left_ns.resize(sink.sent.len(), u64::MAX);
    Seen { sink, outcome, left_ns, states }
}

/// A1: pauses and cuts shorter than two seconds end no flow: the output is that of a single
/// machine.
#[test]
fn short_silences_lose_nothing() {
    let (profile, frames) = traffic();
    let (expected, report) = play(Runner::new(assembly_of("test.rvl", FIREWALL), "test"), &frames);
    let kinds: [&[NodeFaultKind]; 6] = [
        &[NodeFaultKind::Pause(1_500 * MS)],
        &[NodeFaultKind::Mute(900 * MS), NodeFaultKind::Deaf(900 * MS)],
        &[NodeFaultKind::Mute(1_500 * MS)],
        &[NodeFaultKind::Deaf(1_500 * MS)],
        &[NodeFaultKind::PauseDispatcher(1_500 * MS)],
        &[NodeFaultKind::PauseDispatcher(1_400 * MS), NodeFaultKind::Pause(1_500 * MS)],
    ];
    for (mode, kinds) in MODES.into_iter().cycle().zip(kinds) {
        let what = format!("{mode}, {kinds:?}");
        let seen = run(start(mode, kinds, profile.start_ns), &frames, profile.start_ns);
        let got = &seen.outcome.report;
        assert!(got.adds_up(), "{what}: {got:?}");
        assert_eq!(got.drops, report.drops, "{what}");
        assert_eq!(by_flow(&seen.sink), by_flow(&expected), "{what}");
        let links = got.links.as_ref().unwrap();
        assert_eq!((links.dead, links.started), (0, 3), "{what}");
        // A dispatcher that only fails to reach others does not notice that.
        let is_noticed = links.suspected > 0 || links.stalls > 0;
        assert!(is_noticed || matches!(kinds, [NodeFaultKind::Deaf(_)]), "{what}");
        if !matches!(kinds[0], NodeFaultKind::PauseDispatcher(_) | NodeFaultKind::Deaf(_)) {
            let states: Vec<_> = seen.states.iter().map(|(_, status)| *status).collect();
            assert_eq!(states, [NodeStatus::Active, NodeStatus::Suspect, NodeStatus::Active], "{what}");
        }
    }
}

/// A node is given up after a long silence: everything adds up, nothing leaves twice or out of
/// order, and nothing from before its silence is released after it. It is back at once.
#[test]
fn long_silences_are_fenced() {
    let (profile, frames) = traffic();
    let (expected, _) = play(Runner::new(assembly_of("test.rvl", FIREWALL), "test"), &frames);
    const LONG: u64 = 3 * SECOND;
    let kinds: [&[NodeFaultKind]; 5] = [
        &[NodeFaultKind::Pause(LONG)],
        &[NodeFaultKind::Mute(LONG), NodeFaultKind::Deaf(LONG)],
        &[NodeFaultKind::Mute(LONG)],
        &[NodeFaultKind::Deaf(LONG)],
        &[NodeFaultKind::PauseDispatcher(LONG)],
    ];
    for (mode, kinds) in MODES.into_iter().cycle().zip(kinds) {
        let what = format!("{mode}, {kinds:?}");
        let seen = run(start(mode, kinds, profile.start_ns), &frames, profile.start_ns);
        let report = &seen.outcome.report;
        assert!(report.adds_up(), "{what}: {report:?}");
        assert_eq!(report.packets_out, seen.sink.sent.len() as u64, "{what}");
        let links = report.links.as_ref().unwrap();
        assert!(links.dead >= 1 && links.started > 3, "{what}: {links:?}");
        assert_in_order(&seen.sink, &expected, &what);
        if matches!(kinds[0], NodeFaultKind::PauseDispatcher(_)) {
            let after = seen.left_ns.iter().zip(&seen.sink.sent).filter(|(at_ns, _)| **at_ns > FAULT);
            let oldest_ns = after.map(|(_, (_, sent_ns, _))| *sent_ns - profile.start_ns).min();
            assert!(oldest_ns.unwrap() >= FAULT + LONG, "{what}: {oldest_ns:?} was released");
        }
        // It works again as soon as both run: a handshake is retried each 200 ms.
        let (at_ns, last) = seen.states.last().unwrap();
        assert!(*last == NodeStatus::Active && *at_ns < FAULT + LONG + 500 * MS, "{what}: {:?}", seen.states);
    }
}

/// The restart of a unit is detected by its next process, before its silence is long.
#[test]
fn restarted_units_are_found_by_their_next_process() {
    let (profile, frames) = traffic();
    let kinds = [NodeFaultKind::Crash(100 * MS)];
    let seen = run(start(Granularity::Flow, &kinds, profile.start_ns), &frames, profile.start_ns);
    assert!(seen.outcome.report.adds_up());
    let links = seen.outcome.report.links.unwrap();
    assert_eq!((links.started, links.dead), (4, 0), "it was not given up for its silence");
    assert!(links.suspected >= 1);
    assert_eq!(seen.states.last().unwrap().1, NodeStatus::Active, "{:?}", seen.states);
}

/// Asserts that each flow's packets are some of the expected ones, in their order.
fn assert_in_order(got: &Sink, expected: &Sink, what: &str) {
    let expected: BTreeMap<_, _> = by_flow(expected).into_iter().collect();
    for (flow, packets) in by_flow(got) {
        let mut left = expected.get(&flow).unwrap_or_else(|| panic!("{what}: {flow:?} is unknown")).iter();
        assert!(packets.iter().all(|packet| left.any(|other| other == packet)), "{what}: {flow:?}");
    }
}
