//! The code of a cluster's processes on a simulated network: the output is that of a single
//! machine, whatever the links do. Each seed is another run.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use cluster::policies::{GraphMaker, PolicyReader, PolicyTexts, ReadPolicy};
use cluster::policy_digest;
use cluster::remote::NewPolicy;
use cluster::simulated::{
    LinkFaults, NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults, SimulatedOutcome,
};
use io::traffic::{AddressPrefix, Payload, Protocols, Responder, TrafficProfile};
use packet::split_mix;
use protocol::dispatcher::{Granularity, UnitChoice};
use protocol::trace::failure::check_with;
use runtime::elastic::UnitsConfig;
use runtime::{Report, Runner};

use support::{
    Arriving, SEED, Sink, assembly_of, by_flow, conversation_with, generated, play, profile, receive,
};
use texts::{BALANCER, FIREWALL, NAT_ALONE};

/// A NAT. Its ports are divided among groups of flows that move together.
const NAT: &str = "
    settings { flows: 2k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    NAT n { external: [203.0.113.0/30] };
    Monitor m { report: [] };
    pipelet { inside <-> m <-> n <-> f <-> outside; }";

const MODES: [Granularity; 3] = [Granularity::Packet, Granularity::Flowlet, Granularity::Flow];

/// Links that lose, repeat and reorder.
const BAD_LINKS: LinkFaults = LinkFaults {
    latency_ns: 20_000,
    jitter_ns: 30_000,
    loss: 0.02,
    duplication: 0.02,
    reordering: 0.05,
    reordered_by_ns: 200_000,
};

/// Packets, and the output of a single machine for them.
struct Expected {
    policy: &'static str,
    frames: Vec<Arriving>,
    sink: Sink,
    report: Report,
}

impl Expected {
    fn new(packets: u64, seed: u64) -> Expected {
        let profile = profile(Payload::Http, packets, 20_000.0, seed);
        let frames = conversation_with(assembly_of("test.rvl", FIREWALL), &profile);
        Expected::of(FIREWALL, frames)
    }

    /// As `new`, for a NAT and packets from inside: in a capture, a reply may precede the request's
    /// departure.
    fn of_nat(packets: u64, seed: u64) -> Expected {
        Expected::of(NAT, generated(&profile(Payload::Random, packets, 20_000.0, seed)))
    }

    fn of(policy: &'static str, frames: Vec<Arriving>) -> Expected {
        let (sink, report) = play(Runner::new(assembly_of("test.rvl", policy), "test"), &frames);
        Expected { policy, frames, sink, report }
    }

    fn duration_ns(&self) -> u64 {
        self.frames[self.frames.len() - 1].timestamp_ns - self.frames[0].timestamp_ns
    }
}

/// Three units. Seeds other than those in [`FOUND`] determine how many others have replicas of a
/// flow, and whether these receive deltas.
fn config(mode: Granularity, seed: u64) -> UnitsConfig {
    let bits = if FOUND.contains(&seed) { 0 } else { split_mix(&mut seed.clone()) };
    UnitsConfig {
        mode,
        units_min: 3,
        units_max: 30,
        capacity_bps: 20_000_000,
        copies: (bits % 4) as u8,
        deltas: bits & 4 != 0,
        ..UnitsConfig::as_published()
    }
}

fn start(
    policy: &'static str,
    mode: Granularity,
    faults: SimulatedFaults,
    (seed, start_ns): (u64, u64),
) -> SimulatedCluster {
    let config = config(mode, seed);
    let make = move || -> cluster::policies::GraphMaker {
        Box::new(move |_| Ok(assembly_of("test.rvl", policy).graph))
    };
    SimulatedCluster::start(assembly_of("test.rvl", policy), config, 3, make, faults, (seed, start_ns))
        .unwrap()
}

fn run(
    expected: &Expected,
    mode: Granularity,
    faults: SimulatedFaults,
    seed: u64,
) -> (Sink, SimulatedOutcome) {
    run_on(start(expected.policy, mode, faults, (seed, expected.frames[0].timestamp_ns)), expected)
}

fn run_on(mut cluster: SimulatedCluster, expected: &Expected) -> (Sink, SimulatedOutcome) {
    let mut sink = Sink::default();
    for frame in &expected.frames {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
    }
    let outcome = cluster.finish(&mut sink).unwrap();
    (sink, outcome)
}

/// Asserts that the same packets of each flow have left, in the same order.
fn assert_same(got: &Sink, expected: &Sink, what: &str) {
    let (flows, expected) = (by_flow(got), by_flow(expected));
    for (flow, packets) in &expected {
        let found = flows.get(flow);
        assert!(
            found == Some(packets),
            "{what}: {flow:?} has {} of {} packets, or in another order",
            found.map_or(0, Vec::len),
            packets.len()
        );
    }
    assert_eq!(flows.len(), expected.len(), "{what}");
}

fn assert_nothing_is_lost(expected: &Expected, sink: &Sink, outcome: &SimulatedOutcome, what: &str) {
    let SimulatedOutcome { report, .. } = outcome;
    assert!(report.adds_up(), "{what}: {report:?}");
    assert_eq!(report.drops, expected.report.drops, "{what}");
    assert_same(sink, &expected.sink, what);
}

/// Seeds that have found faults at the end of a run, with replicas.
const FOUND_AT_THE_END: [u64; 4] = [130, 1354, 100_218, 108_549];

/// Later seeds that have found faults, without replicas.
const FOUND: [u64; 9] = [12, 45, 264, 1644, 2862, 3361, 3480, 17_832, 39_187];

/// Time after the last packet during which packets that leave are answered. Some faults last
/// longer, so that flows are still in transfer when the run ends.
const LAST_ANSWERS_NS: u64 = 500_000_000;

/// Seeds of each test. `RIVULET_SEEDS=FIRST..END` sets others.
fn seeds() -> Vec<u64> {
    let Ok(given) = std::env::var("RIVULET_SEEDS") else {
        return (0..8).chain(FOUND).chain(FOUND_AT_THE_END).collect();
    };
    let (first, end) = given.split_once("..").unwrap();
    (first.parse().unwrap()..end.parse().unwrap()).collect()
}

#[test]
fn bad_links_lose_nothing() {
    let expected = Expected::new(1_500, SEED);
    for mode in MODES {
        let faults = SimulatedFaults { links: BAD_LINKS, ..SimulatedFaults::NONE };
        let (sink, outcome) = run(&expected, mode, faults, 0);
        assert_nothing_is_lost(&expected, &sink, &outcome, &format!("{mode}"));
        assert!(outcome.counters.lost > 0 && outcome.counters.overtaken > 0, "{:?}", outcome.counters);
    }
}

/// One unit, and links that only lose datagrams: packets of some flows leave before earlier packets
/// of others.
#[test]
fn a_flow_does_not_wait_for_datagrams_of_another() {
    let expected = Expected::new(1_500, SEED);
    let run_with = |loss: f64| {
        let links = LinkFaults { loss, ..LinkFaults::NONE };
        let faults = SimulatedFaults { links, ..SimulatedFaults::NONE };
        let config = UnitsConfig { units_min: 1, units_max: 1, ..config(Granularity::Flow, 0) };
        let make = || -> GraphMaker { Box::new(|_| Ok(assembly_of("test.rvl", FIREWALL).graph)) };
        let (assembly, start_ns) = (assembly_of("test.rvl", FIREWALL), expected.frames[0].timestamp_ns);
        let cluster = SimulatedCluster::start(assembly, config, 1, make, faults, (SEED, start_ns)).unwrap();
        run_on(cluster, &expected)
    };
    let overtakings = |sink: &Sink| sink.sent.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
    let (sink, outcome) = run_with(0.0);
    assert_nothing_is_lost(&expected, &sink, &outcome, "no loss");
    let without_loss = overtakings(&sink);
    let (sink, outcome) = run_with(0.05);
    assert_nothing_is_lost(&expected, &sink, &outcome, "loss");
    assert!(outcome.counters.lost > 10, "{:?}", outcome.counters);
    let with_loss = overtakings(&sink);
    assert!(with_loss > without_loss, "{with_loss} and {without_loss} times a flow has overtaken another");
}

/// Long datagrams are lost for a while, again and again; the link then sends shorter ones.
#[test]
fn paths_that_become_narrower_lose_nothing() {
    let expected = Expected::new(1_500, SEED);
    let (duration_ns, seconds) = (expected.duration_ns(), 10_000_000);
    for mode in MODES {
        let narrow = |at: u64| NodeFault {
            at_ns: at * duration_ns / 12,
            unit: at as usize % 3,
            kind: NodeFaultKind::Narrow((2 + at % 4) * seconds),
        };
        let nodes = (0..12).map(narrow).collect();
        for links in [LinkFaults::NONE, BAD_LINKS] {
            let faults = SimulatedFaults { links, nodes: Vec::clone(&nodes), ..SimulatedFaults::NONE };
            let (sink, outcome) = run(&expected, mode, faults, 0);
            assert_nothing_is_lost(&expected, &sink, &outcome, &format!("{mode}"));
            let links = outcome.report.links.unwrap();
            assert!(links.mtu_raised > 3 && links.mtu_lowered > 0, "{links:?}");
            assert_eq!(links.dead, 0, "{links:?}");
        }
    }
}

#[test]
fn links_are_counted_with_what_they_refuse() {
    let expected = Expected::new(1_500, SEED);
    let faults = SimulatedFaults { links: BAD_LINKS, ..SimulatedFaults::NONE };
    let (_, outcome) = run(&expected, Granularity::Packet, faults, SEED);
    let links = outcome.report.links.unwrap();
    assert_eq!((links.links, links.started, links.dead), (3, 3, 0));
    assert!(links.datagrams_sent > 0 && links.datagrams_lost > 0, "{links:?}");
    assert!(links.refused["replayed"] > 0, "repeated datagrams are refused: {links:?}");
    assert_eq!(links.refused["forged"], 0, "{links:?}");
    assert_eq!(links.messages_refused, 0);
}

/// A39: one unit of three is superfluous, and is drained. Then packets of a paused unit are
/// dropped, others continue, and the spare unit takes half of its load.
#[test]
fn unit_that_drops_packets_is_relieved() {
    const COUNTS: &str = "
        settings { flows: 8k }
        Port<0> inside; Port<1> outside;
        Monitor m { report: [] };
        pipelet { inside <-> m <-> outside; }";
    for choice in [UnitChoice::LeastLoaded, UnitChoice::RoundRobin] {
        let mut profile = profile(Payload::Random, 40_000, 40_000.0, SEED);
        profile.protocols.fragments = 0.0; // They wait for the packets before them.
        let expected = Expected::of(COUNTS, generated(&profile));
        let config = UnitsConfig {
            units_min: 2,
            units_max: 3,
            capacity_bps: 1_000_000_000,
            is_live: true,
            ..UnitsConfig::nfactor(choice)
        };
        let make =
            || -> cluster::policies::GraphMaker { Box::new(|_| Ok(assembly_of("test.rvl", COUNTS).graph)) };
        let start = (SEED, expected.frames[0].timestamp_ns);
        let run_with_pause = |unit: usize| {
            let pause = NodeFault { at_ns: 700_000_000, unit, kind: NodeFaultKind::Pause(400_000_000) };
            let faults = SimulatedFaults { nodes: vec![pause], ..SimulatedFaults::NONE };
            let assembly = assembly_of("test.rvl", COUNTS);
            run_on(SimulatedCluster::start(assembly, config, 3, make, faults, start).unwrap(), &expected)
        };
        // One of the three nodes is drained before, and has nothing to drop.
        let mut runs = (0..3).map(run_with_pause);
        let (sink, SimulatedOutcome { report, .. }) =
            runs.find(|(_, outcome)| outcome.report.drops.contains_key("unit-behind")).unwrap();
        assert!(report.adds_up(), "{choice}: {report:?}");
        let units = report.units.as_ref().unwrap();
        println!("{choice}: {:?}, {} flows moved", report.drops, units.states_moved);
        assert!(units.units_stopped >= 1 && units.units_relieved >= 1 && units.states_moved > 0, "{choice}");
        assert!(report.drops["unit-behind"] > 100, "{choice}: {:?}", report.drops);
        let of_one_machine: u64 = expected.report.drops.values().sum();
        assert_eq!(report.drops.values().sum::<u64>() - report.drops["unit-behind"], of_one_machine);
        let (flows, all) = (by_flow(&sink), by_flow(&expected.sink));
        for (flow, packets) in &flows {
            let mut left = all[flow].iter();
            assert!(packets.iter().all(|packet| left.any(|other| other == packet)), "{choice}: {flow:?}");
        }
    }
}

/// A policy with another text and the same functions, which nodes read at once.
struct SameReader(&'static str, Option<PolicyTexts>);

impl PolicyReader for SameReader {
    fn begin(&mut self, texts: PolicyTexts) {
        self.1 = Some(texts);
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        let (texts, policy) = (self.1.take()?, self.0);
        let make: GraphMaker = Box::new(move |_| Ok(assembly_of("test.rvl", policy).graph));
        Some(Ok(ReadPolicy { digest: policy_digest([texts.text.as_str()]), make }))
    }
}

/// A policy reaches all nodes although links are bad and nodes pause and restart.
#[test]
fn rollouts_lose_nothing() {
    let expected = Expected::new(4_000, SEED);
    let mut done = 0;
    for seed in seeds() {
        let faults = SimulatedFaults::random(seed, expected.duration_ns(), 3, false);
        done += usize::from(check_with(&faults, |faults| roll_out(&expected, faults, seed)));
    }
    assert!(done > 0, "no node has had a chance");
}

/// Returns true if a node has got the policy.
fn roll_out(expected: &Expected, faults: &SimulatedFaults, seed: u64) -> bool {
    let mode = MODES[(seed % 3) as usize];
    let what = format!("seed {seed}, {mode}, {faults:?}");
    println!("{what}");
    let config = config(mode, seed);
    let policy = expected.policy;
    let make = move || -> (GraphMaker, Box<dyn PolicyReader>) {
        let make: GraphMaker = Box::new(move |_| Ok(assembly_of("test.rvl", policy).graph));
        (make, Box::new(SameReader(policy, None)))
    };
    let start_ns = expected.frames[0].timestamp_ns;
    let mut cluster = SimulatedCluster::start_reading(
        assembly_of("test.rvl", policy),
        config,
        3,
        make,
        faults.clone(),
        (seed, start_ns),
    )
    .unwrap();
    let texts = PolicyTexts { name: "next.rvl".to_owned(), text: what.clone(), files: Vec::new() };
    let digest = policy_digest([texts.text.as_str()]);
    let mut next = Some(NewPolicy { texts, digest, graph: assembly_of("test.rvl", policy).graph });
    let mut sink = Sink::default();
    for (at, frame) in expected.frames.iter().enumerate() {
        if at == expected.frames.len() / 4
            && let Some(next) = next.take()
        {
            cluster.handle().apply(next);
        }
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
    }
    let is_done = cluster.handle().rollout().is_some_and(|status| status.nodes_done > 0);
    let outcome = cluster.finish(&mut sink).unwrap();
    assert_nothing_is_lost(expected, &sink, &outcome, &what);
    is_done
}

/// Runs with these faults, which must cost nothing.
fn run_without_loss(expected: &Expected, faults: &SimulatedFaults, seed: u64) -> SimulatedOutcome {
    check_with(faults, |faults| {
        let mode = MODES[(seed % 3) as usize];
        let what = format!("seed {seed}, {mode}, {faults:?}");
        println!("{what}");
        let (sink, outcome) = run(expected, mode, faults.clone(), seed);
        assert_nothing_is_lost(expected, &sink, &outcome, &what);
        outcome
    })
}

#[test]
fn nat_keeps_its_mappings() {
    let expected = Expected::of_nat(1_000, SEED);
    for seed in seeds() {
        let faults = SimulatedFaults::random(seed, expected.duration_ns(), 3, false);
        run_without_loss(&expected, &faults, seed);
    }
}

/// The reply to a packet that has left finds the packet's flow at once: the dispatcher knew the
/// alias before (design.md 3.8).
#[test]
fn answers_find_their_flows() {
    let nat = profile(Payload::Random, 300, 20_000.0, SEED);
    let mut balancer = nat.clone();
    balancer.protocols = Protocols { tcp: 1.0, udp: 0.0, icmp: 0.0, fragments: 0.0 };
    balancer.addresses.servers_v4 = AddressPrefix { address: [203, 0, 113, 9].into(), length: 32 };
    balancer.addresses.server_ports = vec![80];
    for (policy, profile) in [(NAT_ALONE, nat), (BALANCER, balancer)] {
        let frames = generated(&profile);
        let duration_ns = frames[frames.len() - 1].timestamp_ns - frames[0].timestamp_ns;
        let answers = seeds().into_iter().map(|seed| {
            let faults = SimulatedFaults::random(seed, duration_ns, 3, false);
            check_with(&faults, |faults| find_answers((policy, &profile, &frames), faults, seed))
        });
        let (runs, answers) = answers.fold((0, 0), |(runs, sum), answers| (runs + 1, sum + answers));
        assert!(answers > 100 * runs, "{answers} answers in {runs} runs");
    }
}

/// Returns the number of replies.
fn find_answers(
    (policy, profile, frames): (&'static str, &TrafficProfile, &[Arriving]),
    faults: &SimulatedFaults,
    seed: u64,
) -> usize {
    let (start_ns, end_ns) = (frames[0].timestamp_ns, frames[frames.len() - 1].timestamp_ns);
    let mode = MODES[(seed % 3) as usize];
    let what = format!("seed {seed}, {mode}, {faults:?}");
    println!("{what}");
    let mut cluster = start(policy, mode, faults.clone(), (seed, start_ns));
    let (mut responder, mut sink) = (Responder::new(profile.answer), Sink::default());
    let (mut seen, mut answered) = (0, 0);
    let mut answer_to = |cluster: &mut SimulatedCluster, sink: &mut Sink, timestamp_ns| {
        let from = std::mem::replace(&mut seen, sink.sent.len());
        for at in from..seen {
            let (port, _, sent) = &sink.sent[at];
            if *port == 1
                && let Ok(answer) = responder.respond(sent)
            {
                let frame = Arriving { timestamp_ns, port: 1, data: answer.to_vec() };
                answered += 1;
                receive(cluster.runner(), &frame, sink);
            }
        }
    };
    for frame in frames {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        answer_to(&mut cluster, &mut sink, frame.timestamp_ns);
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
    }
    for at_ns in (end_ns..end_ns + LAST_ANSWERS_NS).step_by(1_000_000) {
        cluster.run_to(at_ns, &mut sink).unwrap();
        answer_to(&mut cluster, &mut sink, at_ns);
        cluster.runner().flush(&mut sink).unwrap();
    }
    let outcome = cluster.finish(&mut sink).unwrap();
    assert!(outcome.report.adds_up() && outcome.report.drops.is_empty(), "{what}: {:?}", outcome.report);
    assert_eq!(sink.sent.iter().filter(|(port, ..)| *port == 0).count(), answered, "{what}");
    answered
}

#[test]
fn same_seed_gives_the_same_run() {
    let expected = Expected::new(500, SEED);
    let play = || {
        let faults = SimulatedFaults::random(5, 40_000_000, 3, true);
        let (sink, outcome) = run(&expected, Granularity::Packet, faults, 3);
        (sink.sent, outcome.counters, outcome.report.drops)
    };
    assert_eq!(play(), play());
}

/// Nothing is lost by nodes that pause, restart in order, or are cut off for less than the timeout.
#[test]
fn pauses_and_restarts_lose_nothing() {
    let expected = Expected::new(1_000, SEED);
    let (mut seamless, mut deltas) = (0, 0);
    for seed in seeds() {
        let faults = SimulatedFaults::random(seed, expected.duration_ns(), 3, false);
        let outcome = run_without_loss(&expected, &faults, seed);
        let units = outcome.report.units.unwrap();
        (seamless, deltas) = (seamless + units.seamless, deltas + units.deltas);
    }
    assert!(seamless > 0 && deltas > 0, "{seamless} moves to replicas, {deltas} deltas");
}

/// Packets lost with a node are counted, everything else adds up, and nothing leaves twice.
#[test]
fn crashes_and_partitions_are_accounted_for() {
    let policies = [Expected::new(1_000, SEED), Expected::of_nat(1_000, SEED)];
    let mut lost = 0;
    for seed in seeds() {
        let faults = SimulatedFaults::random(seed, policies[0].duration_ns(), 3, true);
        for expected in &policies {
            lost += check_with(&faults, |faults| account_for(expected, faults, seed));
        }
    }
    assert!(lost > 0, "no unit was lost");
}

/// Returns the number of packets that were lost with a unit.
fn account_for(expected: &Expected, faults: &SimulatedFaults, seed: u64) -> u64 {
    let mode = MODES[(seed % 3) as usize];
    let what = format!("seed {seed}, {mode}, {faults:?}");
    println!("{what}");
    let (sink, outcome) = run(expected, mode, faults.clone(), seed);
    assert!(outcome.report.adds_up(), "{what}: {:?}", outcome.report);
    assert_eq!(outcome.report.packets_out, sink.sent.len() as u64, "{what}");
    let mut packets: Vec<_> = sink.sent.iter().map(|(port, at_ns, _)| (*port, *at_ns)).collect();
    let sent = packets.len();
    packets.sort_unstable();
    packets.dedup();
    assert_eq!(packets.len(), sent, "{what}: a packet left twice");
    outcome.report.drops.get("unit-lost").copied().unwrap_or(0)
}

/// Two units lose the link between them, but not the dispatcher: flows still move between them,
/// relayed by it, until the two are connected again.
#[test]
fn units_that_lose_each_other_lose_nothing() {
    const SECOND_NS: u64 = 1_000_000_000;
    let profile = profile(Payload::Http, 2_000, 300.0, SEED);
    let expected = Expected::of(FIREWALL, conversation_with(assembly_of("test.rvl", FIREWALL), &profile));
    for mode in [Granularity::Packet, Granularity::Flowlet] {
        let apart = NodeFault { at_ns: SECOND_NS, unit: 0, kind: NodeFaultKind::Apart(2 * SECOND_NS) };
        let faults = SimulatedFaults { nodes: vec![apart], ..SimulatedFaults::NONE };
        let mut cluster = start(FIREWALL, mode, faults, (SEED, profile.start_ns));
        let mut sink = Sink::default();
        let mut relayed = Vec::new();
        for frame in &expected.frames {
            cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
            receive(cluster.runner(), frame, &mut sink);
            cluster.runner().flush(&mut sink).unwrap();
            relayed.push((
                frame.timestamp_ns - profile.start_ns,
                cluster.handle().link_totals().messages_relayed,
            ));
        }
        let outcome = cluster.finish(&mut sink).unwrap();
        assert_nothing_is_lost(&expected, &sink, &outcome, &format!("{mode}"));
        // The loss is detected after a second; a handshake is retried every 200 ms.
        let at = |at_ns: u64| relayed.iter().rfind(|(now_ns, _)| *now_ns <= at_ns).map_or(0, |of| of.1);
        let [before, after, last] = [SECOND_NS, 7 * SECOND_NS / 2, u64::MAX].map(at);
        println!("{mode}: {before}, {after}, {last} messages relayed");
        assert!(before == 0 && after > 0 && last == after, "{mode}: {before}, {after}, {last}");
    }
}

/// Two units never connect.
#[test]
fn units_that_never_meet_lose_nothing() {
    let expected = Expected::new(2_000, SEED);
    for mode in [Granularity::Packet, Granularity::Flowlet] {
        let apart = NodeFault { at_ns: 0, unit: 0, kind: NodeFaultKind::Apart(u64::MAX / 2) };
        let faults = SimulatedFaults { nodes: vec![apart], ..SimulatedFaults::NONE };
        let (sink, outcome) = run(&expected, mode, faults, SEED);
        assert_nothing_is_lost(&expected, &sink, &outcome, &format!("{mode}"));
        assert!(outcome.report.links.unwrap().messages_relayed > 0, "{mode}");
    }
}
