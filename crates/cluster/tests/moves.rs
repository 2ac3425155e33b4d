//! One flow moves between units of the simulated cluster, with and without replicas, while a fault
//! hits each message of the move in turn (M3). Nothing is lost, reordered or duplicated except
//! flows of a crashed unit.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;
#[path = "common/texts.rs"]
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;

use cluster::policies::GraphMaker;
use cluster::simulated::{
    MessageFault, MessageFaultKind, MessageKind, SimulatedCluster, SimulatedFaults, SimulatedOutcome,
};
use io::traffic::Payload;
use packet::Packet;
use protocol::dispatcher::{FlowStatus, Granularity, UnitChoice};
use protocol::message::UnitId;
use runtime::elastic::UnitsConfig;
use runtime::operator::{MigrationTarget, OperatorRequest};
use runtime::{Report, Runner};

use common::ask;
use common::support::{
    Arriving, SEED, Sink, assembly_of, conversation_with, generated, play, profile, receive,
};
use texts::{FIREWALL, NAT_ALONE};

const UNITS: u16 = 3;
/// Time after which a crashed process restarts.
const RESTART_NS: u64 = 200_000_000;
/// Silence after which a flow's replicas have its last state.
const REPLICATED_NS: u64 = 1_000_000;

const SENDER_BEFORE: MessageFaultKind = MessageFaultKind::SenderCrashesBefore(RESTART_NS);
const SENDER_AFTER: MessageFaultKind = MessageFaultKind::SenderCrashesAfter(RESTART_NS);
const RECEIVER_BEFORE: MessageFaultKind = MessageFaultKind::ReceiverCrashesBefore(RESTART_NS);
const RECEIVER_AFTER: MessageFaultKind = MessageFaultKind::ReceiverCrashesAfter(RESTART_NS);

/// Faults without a loss.
const HARMLESS: [MessageFaultKind; 3] =
    [MessageFaultKind::Lose, MessageFaultKind::Repeat(300_000), MessageFaultKind::Delay(2_000_000)];

/// Packets of each flow as they left: port, arrival time, bytes.
type Left<'a> = BTreeMap<String, Vec<&'a (u16, u64, Vec<u8>)>>;

/// Traffic, the output of a single machine for it, and the flow that moves.
struct Traffic {
    policy: &'static str,
    frames: Vec<Arriving>,
    /// The flow of each frame, by arrival time.
    keys: BTreeMap<u64, String>,
    sink: Sink,
    report: Report,
    flow: String,
    /// The frame of the flow after which it moves.
    moves_after: usize,
    /// The frame before; its state may be copied then.
    copied_after: usize,
}

impl Traffic {
    fn new(policy: &'static str) -> Traffic {
        let mut profile = profile(Payload::Http, 600, 4_000.0, SEED);
        profile.protocols.fragments = 0.0; // They have no ports.
        let frames = match policy {
            // In a capture, a reply may precede the request's departure.
            NAT_ALONE => generated(&profile),
            _ => conversation_with(assembly_of("test.rvl", policy), &profile),
        };
        let keys: BTreeMap<_, _> =
            frames.iter().map(|frame| (frame.timestamp_ns, key_of(&frame.data))).collect();
        let (sink, report) = play(Runner::new(assembly_of("test.rvl", policy), "test"), &frames);
        let mut at: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, frame) in frames.iter().enumerate() {
            at.entry(keys[&frame.timestamp_ns].clone()).or_default().push(number);
        }
        // A flow that has several packets before and after.
        let middle = |at: &Vec<usize>| at[at.len() / 2];
        let far = |at: &&Vec<usize>| middle(at).abs_diff(frames.len() / 2);
        let (flow, at) = at.iter().filter(|(_, at)| at.len() >= 8).min_by_key(|(_, at)| far(at)).unwrap();
        let (flow, moves_after, copied_after) = (flow.clone(), middle(at), at[at.len() / 2 - 1]);
        Traffic { policy, frames, keys, sink, report, flow, moves_after, copied_after }
    }

    fn by_flow<'a>(&self, sink: &'a Sink) -> Left<'a> {
        let mut left = Left::new();
        for packet in &sink.sent {
            left.entry(self.keys[&packet.1].clone()).or_default().push(packet);
        }
        left
    }
}

fn key_of(frame: &[u8]) -> String {
    let mut packet = Packet::from_bytes(frame);
    packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
    packet.meta().key.to_string()
}

/// A move.
#[derive(Clone, Copy, Debug)]
struct Move {
    copies: u8,
    deltas: bool,
    /// The flow has been silent before, so that replicas have its state.
    at_rest: bool,
    /// Its state is copied in advance, and one more packet arrives before it moves.
    pre_copy: bool,
    fault: Option<(MessageKind, MessageFaultKind)>,
}

impl Move {
    fn has_replica(&self) -> bool {
        self.copies > 0 && self.at_rest
    }

    /// Returns the messages of the move.
    fn messages(&self, policy: &str) -> Vec<MessageKind> {
        let mut messages = match self.pre_copy {
            true => vec![MessageKind::Copy, MessageKind::Replicate],
            false => Vec::new(),
        };
        messages.extend([MessageKind::Release, MessageKind::Adopt]);
        if !self.has_replica() {
            messages.extend([MessageKind::Pull, MessageKind::State]);
        }
        messages.push(MessageKind::StateAck);
        if policy == NAT_ALONE {
            messages.push(MessageKind::Arrived);
        }
        messages
    }
}

/// The outcome of a move.
struct Moved {
    sink: Sink,
    outcome: SimulatedOutcome,
    /// The flow's owner before the move, and now.
    owners: [UnitId; 2],
    /// Flows at the begin of the move.
    began: BTreeSet<String>,
    /// Flows that units had then, or have received since.
    flows: BTreeMap<UnitId, BTreeSet<String>>,
    /// The unit that has crashed.
    crashed: Option<UnitId>,
}

fn run(traffic: &Traffic, case: &Move) -> Moved {
    let Traffic { policy, frames, .. } = traffic;
    let config = UnitsConfig {
        mode: Granularity::Flow,
        choice: UnitChoice::RoundRobin,
        units_min: UNITS,
        units_max: 8,
        copies: case.copies,
        deltas: case.deltas,
        ..UnitsConfig::as_published()
    };
    let policy = *policy;
    let make = move || -> GraphMaker { Box::new(move |_| Ok(assembly_of("test.rvl", policy).graph)) };
    let (start_ns, silent_ns) = (frames[0].timestamp_ns, if case.at_rest { REPLICATED_NS } else { 0 });
    let is_copying = |&(message, _): &_| matches!(message, MessageKind::Copy | MessageKind::Replicate);
    let from_ns = match case.fault.as_ref().is_some_and(is_copying) {
        true => frames[traffic.copied_after].timestamp_ns - start_ns,
        false => frames[traffic.moves_after].timestamp_ns + silent_ns - start_ns,
    };
    let fault = case.fault.map(|(message, kind)| MessageFault { message, from_ns, kind });
    let faults = SimulatedFaults { messages: fault.into_iter().collect(), ..SimulatedFaults::NONE };
    let start = (SEED, start_ns);
    let assembly = assembly_of("test.rvl", policy);
    let mut cluster = SimulatedCluster::start(assembly, config, UNITS.into(), make, faults, start).unwrap();
    let handle = cluster.runner().open_to_operators();
    let (mut sink, mut flows) = (Sink::default(), BTreeMap::<UnitId, BTreeSet<String>>::new());
    let (mut owners, mut names, mut began) = ([UnitId(0); 2], Vec::new(), BTreeSet::new());
    let (sender, copied) = channel();
    for (number, frame) in frames.iter().enumerate() {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
        let list = |reply| OperatorRequest::Flows(0..1_000, reply);
        if number == traffic.copied_after && case.pre_copy {
            let all = ask((cluster.runner(), &handle, &mut sink), list).flows;
            let copied = all.iter().find(|status| status.key.to_string() == traffic.flow).unwrap();
            let to = Some(UnitId((copied.owner.0 + 1) % UNITS));
            let targets = vec![MigrationTarget { flow: copied.flow, from: None, to }];
            let sender = sender.clone();
            let reply = Box::new(move |copied| sender.send(copied).unwrap());
            handle.send(OperatorRequest::Copy(targets, reply)).unwrap();
            cluster.runner().flush(&mut sink).unwrap();
        }
        if number < traffic.moves_after {
            continue;
        }
        if number == traffic.moves_after {
            cluster.run_to(frame.timestamp_ns + silent_ns, &mut sink).unwrap();
            names = cluster.handle().status().into_iter().map(|node| (node.name, node.unit)).collect();
            let all = ask((cluster.runner(), &handle, &mut sink), list).flows;
            let moved = all.iter().find(|status| status.key.to_string() == traffic.flow).unwrap();
            owners = [moved.owner, UnitId((moved.owner.0 + 1) % UNITS)];
            let targets = vec![MigrationTarget { flow: moved.flow, from: None, to: Some(owners[1]) }];
            note(&mut flows, &all);
            began = all.iter().map(|status| status.key.to_string()).collect();
            let migrate = |reply| OperatorRequest::Migrate(targets, reply);
            let results = ask((cluster.runner(), &handle, &mut sink), migrate);
            assert_eq!(results[0].as_ref().map(|moved| moved.to), Ok(owners[1]), "{case:?}");
        }
        note(&mut flows, &ask((cluster.runner(), &handle, &mut sink), list).flows);
    }
    let crashed = cluster.crashed().first().map(|number| format!("unit-{number}"));
    let crashed = crashed.and_then(|name| names.iter().find(|node| node.0 == name).and_then(|node| node.1));
    let outcome = cluster.finish(&mut sink).unwrap();
    if case.pre_copy && case.fault.is_none() {
        assert_eq!(copied.try_recv().unwrap().unwrap().late, 0);
    }
    Moved { sink, outcome, owners, began, flows, crashed }
}

/// Notes the flows of units.
fn note(flows: &mut BTreeMap<UnitId, BTreeSet<String>>, all: &[FlowStatus]) {
    for status in all {
        flows.entry(status.owner).or_default().insert(status.key.to_string());
    }
}

/// Returns the flows with packets that did not leave as from a single machine: all of them, in
/// order, once. With `any_bytes`, a NAT may have mapped them to other ports.
fn wrong_flows(traffic: &Traffic, sink: &Sink, any_bytes: bool) -> BTreeSet<String> {
    let (got, expected) = (traffic.by_flow(sink), traffic.by_flow(&traffic.sink));
    let is_same = |one: &(u16, u64, Vec<u8>), other: &(u16, u64, Vec<u8>)| {
        (one.0, one.1) == (other.0, other.1) && (any_bytes || one.2 == other.2)
    };
    let none = Vec::new();
    let is_wrong = |key: &&String| {
        let [got, expected] = [&got, &expected].map(|left| left.get(*key).unwrap_or(&none));
        got.len() != expected.len() || !got.iter().zip(expected).all(|(one, other)| is_same(one, other))
    };
    got.keys().chain(expected.keys()).filter(is_wrong).cloned().collect()
}

/// Asserts that no packet leaves twice, or after a later one of its flow.
fn assert_in_order(traffic: &Traffic, sink: &Sink, case: &Move) {
    for (key, packets) in traffic.by_flow(sink) {
        for port in 0..2 {
            let times: Vec<_> = packets.iter().filter(|left| left.0 == port).map(|left| left.1).collect();
            assert!(times.is_sorted_by(|one, other| one < other), "{case:?}: {key} {times:?}");
        }
    }
}

fn cases(policy: &str) -> Vec<Move> {
    let replicas = [(0, false), (2, false), (2, true)];
    let cases = replicas.into_iter().flat_map(|(copies, deltas)| {
        [false, true].map(|at_rest| Move { copies, deltas, at_rest, pre_copy: false, fault: None })
    });
    let pre_copy = Move { copies: 0, deltas: false, at_rest: true, pre_copy: true, fault: None };
    let cases = cases.chain([pre_copy, Move { at_rest: false, ..pre_copy }]);
    cases.filter(|case| policy == FIREWALL || case.at_rest).collect()
}

#[test]
fn faults_of_links_at_a_message_cost_nothing() {
    for policy in [FIREWALL, NAT_ALONE] {
        let traffic = Traffic::new(policy);
        for case in cases(policy) {
            for message in case.messages(policy) {
                for kind in HARMLESS {
                    let case = Move { fault: Some((message, kind)), ..case };
                    let Moved { sink, outcome, .. } = run(&traffic, &case);
                    assert_eq!(outcome.counters.message_faults, 1, "{case:?}");
                    assert!(outcome.report.adds_up(), "{case:?}: {:?}", outcome.report);
                    assert_eq!(outcome.report.drops, traffic.report.drops, "{case:?}");
                    assert_eq!(wrong_flows(&traffic, &sink, false), BTreeSet::new(), "{case:?}");
                    let seamless = outcome.report.units.unwrap().seamless;
                    // A copy may arrive so late that nothing has changed since.
                    assert!(case.pre_copy || (seamless > 0) == case.has_replica(), "{case:?}");
                }
            }
        }
    }
}

#[test]
fn state_that_was_copied_ahead_moves_as_what_has_changed() {
    let traffic = Traffic::new(FIREWALL);
    let bytes = [false, true].map(|pre_copy| {
        let case = Move { copies: 0, deltas: false, at_rest: true, pre_copy, fault: None };
        let Moved { sink, outcome, .. } = run(&traffic, &case);
        assert_eq!(wrong_flows(&traffic, &sink, false), BTreeSet::new());
        let of_units = outcome.report.units.unwrap();
        assert_eq!(of_units.states_moved, 1);
        of_units.state_bytes
    });
    assert!(bytes[1] > 0 && 2 * bytes[1] < bytes[0], "{bytes:?}");
}

/// Returns the crashes at this message, and whether the flow survives if it is at rest. It survives
/// the source's crash if the target has the state, or if the state is in flight. Otherwise the
/// flow's last packet may be lost with the source.
fn crashes(case: &Move, message: MessageKind) -> Vec<(MessageFaultKind, Crashes, bool)> {
    use Crashes::{Source, Target};
    let has_replica = case.has_replica();
    match message {
        MessageKind::Release => {
            vec![(RECEIVER_BEFORE, Source, has_replica), (RECEIVER_AFTER, Source, has_replica)]
        }
        MessageKind::Adopt => vec![(RECEIVER_BEFORE, Target, false), (RECEIVER_AFTER, Target, false)],
        MessageKind::Pull => vec![
            (SENDER_BEFORE, Target, false),
            (SENDER_AFTER, Target, false),
            (RECEIVER_BEFORE, Source, false),
            (RECEIVER_AFTER, Source, true),
        ],
        MessageKind::State => vec![
            (SENDER_BEFORE, Source, false),
            (SENDER_AFTER, Source, true),
            (RECEIVER_BEFORE, Target, false),
            (RECEIVER_AFTER, Target, false),
        ],
        MessageKind::StateAck => vec![
            (SENDER_BEFORE, Target, false),
            (SENDER_AFTER, Target, false),
            (RECEIVER_BEFORE, Source, true),
            (RECEIVER_AFTER, Source, true),
        ],
        MessageKind::Arrived => vec![(SENDER_BEFORE, Target, false), (SENDER_AFTER, Target, false)],
        MessageKind::FirstPacket | MessageKind::Copy | MessageKind::Replicate | MessageKind::Delta => {
            Vec::new()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Crashes {
    Source,
    Target,
}

#[test]
fn crash_at_a_message_costs_flows_of_the_crashed_unit() {
    for policy in [FIREWALL, NAT_ALONE] {
        let traffic = Traffic::new(policy);
        let mut survived = 0;
        for case in cases(policy) {
            for message in case.messages(policy) {
                for (kind, unit, survives) in crashes(&case, message) {
                    let case = Move { fault: Some((message, kind)), ..case };
                    let Moved { sink, outcome, owners, began, mut flows, crashed } = run(&traffic, &case);
                    assert_eq!(outcome.counters.message_faults, 1, "{case:?}");
                    let expected = if unit == Crashes::Source { owners[0] } else { owners[1] };
                    assert_eq!(crashed, Some(expected), "{case:?}");
                    assert!(outcome.report.adds_up(), "{case:?}: {:?}", outcome.report);
                    assert_in_order(&traffic, &sink, &case);
                    let mut of_unit = flows.remove(&expected).unwrap_or_default();
                    let is_certain = policy == FIREWALL && case.at_rest;
                    if is_certain && survives {
                        of_unit.remove(&traffic.flow);
                        survived += 1;
                    }
                    let wrong = wrong_flows(&traffic, &sink, policy == NAT_ALONE);
                    // A flow that begins in a group of the unit waits for the group.
                    let counts = |key: &&String| policy == FIREWALL || began.contains(*key);
                    let others: Vec<_> = wrong.difference(&of_unit).filter(counts).collect();
                    assert!(others.is_empty(), "{case:?}: {others:?}, {} moves", traffic.flow);
                    assert!(!wrong.is_empty(), "{case:?}: the unit had no flows");
                    if is_certain {
                        assert_eq!(wrong.contains(&traffic.flow), !survives, "{case:?}");
                    }
                }
            }
        }
        assert!(policy == NAT_ALONE || survived > 10, "{survived}");
    }
}
