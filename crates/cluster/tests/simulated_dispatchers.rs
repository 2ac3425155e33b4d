//! Several dispatchers on a simulated network: whatever links and units do, a packet finds its flow
//! at any of them. Each seed is another run.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use cluster::policies::GraphMaker;
use cluster::simulated::{
    NodeFault, NodeFaultKind, SimulatedDispatchers, SimulatedDispatchersOutcome, SimulatedFaults,
};
use io::traffic::{AddressPrefix, Payload, Protocols, Responder, TrafficProfile};
use packet::Packet;
use protocol::dispatcher::Granularity;
use protocol::trace::failure::check_with;
use runtime::Report;
use runtime::elastic::{UnitsConfig, UnitsReport};

use support::{Arriving, SEED, Sink, assembly_of, generated, profile, receive};
use texts::{BALANCER, NAT_ALONE};

const DISPATCHERS: usize = 2;
const UNITS: usize = 3;
/// Time for dispatchers to connect, before the first packet, in nanoseconds.
const BEFORE_NS: u64 = 50_000_000;
/// Time after the last packet during which packets that leave are answered: no fault lasts longer.
const LAST_ANSWERS_NS: u64 = 6_000_000_000;

fn seeds() -> std::ops::Range<u64> {
    let Ok(given) = std::env::var("RIVULET_SEEDS") else { return 0..5 };
    let (first, end) = given.split_once("..").unwrap();
    first.parse().unwrap()..end.parse().unwrap()
}

/// Returns the dispatcher at which a client's packet arrives: the same for all packets of a flow,
/// so that they arrive in order.
fn arrives_at(frame: &[u8]) -> usize {
    let mut packet = Packet::from_bytes(frame);
    let hasher = packet::FlowHasher::new(0);
    packet::Parser::new(hasher).parse(&mut packet).unwrap();
    packet.meta().hash as usize % DISPATCHERS
}

struct Answers {
    responder: Responder,
    /// Number of answered packets of each dispatcher.
    seen: [usize; DISPATCHERS],
    count: usize,
}

impl Answers {
    /// Answers all packets that have left: the replies arrive at another dispatcher.
    fn arrive(&mut self, cluster: &mut SimulatedDispatchers<Sink>, timestamp_ns: u64) {
        for at in 0..DISPATCHERS {
            let seen = &mut self.seen[at];
            let sent = cluster.at(at, |_, sink| sink.sent[*seen..].to_vec());
            *seen += sent.len();
            for (_, _, sent) in sent.iter().filter(|(port, ..)| *port == 1) {
                if let Ok(answer) = self.responder.respond(sent) {
                    let frame = Arriving { timestamp_ns, port: 1, data: answer.to_vec() };
                    self.count += 1;
                    cluster.at((at + 1) % DISPATCHERS, |runner, sink| receive(runner, &frame, sink));
                }
            }
        }
    }
}

/// Lets the packets arrive, and answers all packets that leave.
fn run(
    policy: &'static str,
    (frames, profile): (&[Arriving], &TrafficProfile),
    mode: Granularity,
    faults: SimulatedFaults,
    seed: u64,
) -> (SimulatedDispatchersOutcome<Sink>, usize) {
    let (first_ns, end_ns) = (frames[0].timestamp_ns, frames[frames.len() - 1].timestamp_ns);
    let config = UnitsConfig {
        mode,
        units_min: UNITS as u16,
        units_max: 30,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    };
    let assemble = move || assembly_of("test.rvl", policy);
    let make = move || -> GraphMaker { Box::new(move |_| Ok(assemble().graph)) };
    let start = (seed, first_ns - BEFORE_NS);
    let size = (DISPATCHERS, UNITS);
    let mut cluster =
        SimulatedDispatchers::<Sink>::start(size, assemble, config, make, faults, start).unwrap();
    let responder = Responder::new(profile.answer);
    let mut answers = Answers { responder, seen: [0; DISPATCHERS], count: 0 };
    for frame in frames {
        cluster.run_to(frame.timestamp_ns);
        answers.arrive(&mut cluster, frame.timestamp_ns);
        cluster.at(arrives_at(&frame.data), |runner, sink| {
            receive(runner, frame, sink);
            runner.flush(sink).unwrap();
        });
    }
    for at_ns in (end_ns..end_ns + LAST_ANSWERS_NS).step_by(5_000_000) {
        cluster.run_to(at_ns);
        answers.arrive(&mut cluster, at_ns);
    }
    (cluster.finish(), answers.count)
}

/// Policies, and packets of clients for each.
fn policies() -> [(&'static str, TrafficProfile); 2] {
    let mut nat = profile(Payload::Random, 300, 20_000.0, SEED);
    // A dispatcher blocks until the packets before a fragment are done; the simulation can run only
    // one blocked dispatcher at a time.
    nat.protocols.fragments = 0.0;
    let mut balancer = nat.clone();
    balancer.protocols = Protocols { tcp: 1.0, udp: 0.0, icmp: 0.0, fragments: 0.0 };
    balancer.addresses.servers_v4 = AddressPrefix { address: [203, 0, 113, 9].into(), length: 32 };
    balancer.addresses.server_ports = vec![80];
    [(NAT_ALONE, nat), (BALANCER, balancer)]
}

/// Runs each policy with random faults, and checks the outcome, with the numbers of packets and
/// replies.
fn run_each(may_lose: bool, check: impl Fn(&[(Report, Sink)], (usize, usize), &str)) {
    for (policy, profile) in policies() {
        let frames = generated(&profile);
        let duration_ns = BEFORE_NS + frames[frames.len() - 1].timestamp_ns - frames[0].timestamp_ns;
        for seed in seeds() {
            let mode = [Granularity::Packet, Granularity::Flowlet, Granularity::Flow][(seed % 3) as usize];
            let faults = SimulatedFaults::random(seed, duration_ns, UNITS, may_lose);
            check_with(&faults, |faults| {
                let what = format!("seed {seed}, {mode}, {faults:?}");
                println!("{what}");
                let (outcome, answers) = run(policy, (&frames, &profile), mode, faults.clone(), seed);
                check(&outcome.dispatchers, (frames.len(), answers), &what);
            });
        }
    }
}

fn counted(dispatchers: &[(Report, Sink)], of: fn(&UnitsReport) -> u64) -> u64 {
    dispatchers.iter().map(|(report, _)| of(report.units.as_ref().unwrap())).sum()
}

/// NAT and load balancer: a reply arrives at another dispatcher than the request's.
#[test]
fn answers_find_their_flows_at_another_dispatcher() {
    run_each(false, |dispatchers, (packets, answers), what| {
        for (report, _) in dispatchers {
            assert!(report.adds_up() && report.drops.is_empty(), "{what}: {report:?}");
        }
        let sent = dispatchers.iter().flat_map(|(_, sink)| &sink.sent);
        let (inside, outside): (Vec<_>, Vec<_>) = sent.partition(|(port, ..)| *port == 0);
        assert_eq!((outside.len(), inside.len()), (packets, answers), "{what}");
        assert!(answers > packets / 2, "{what}: {answers} answers");
        let passed_on = counted(dispatchers, |units| units.packets_passed_on);
        assert!(passed_on > 0, "{what}");
        assert_eq!(passed_on, counted(dispatchers, |units| units.packets_taken_over), "{what}");
    });
}

/// Packets lost with a unit are counted by the dispatcher that had sent them.
#[test]
fn crashes_and_partitions_are_accounted_for_at_each_dispatcher() {
    run_each(true, |dispatchers, _, what| {
        for (report, sink) in dispatchers {
            assert!(report.adds_up(), "{what}: {report:?}");
            assert_eq!(report.packets_out, sink.sent.len() as u64, "{what}");
        }
        assert_eq!(
            counted(dispatchers, |units| units.packets_passed_on),
            counted(dispatchers, |units| units.packets_taken_over),
            "{what}"
        );
    });
}

/// The link between dispatchers dies, and is restored once: packets on it are dropped by one of
/// them, and known to both.
#[test]
fn packets_of_lost_links_between_dispatchers_are_accounted_for() {
    let mut lost = 0;
    for (policy, profile) in policies() {
        let frames = generated(&profile);
        let duration_ns = BEFORE_NS + frames[frames.len() - 1].timestamp_ns - frames[0].timestamp_ns;
        for seed in seeds() {
            let mut faults = SimulatedFaults::random(seed, duration_ns, UNITS, true);
            for cut in 0..3 {
                let kind = NodeFaultKind::DispatchersApart(2_600_000_000);
                faults.nodes.push(NodeFault { at_ns: duration_ns / 2 + cut * 3_200_000_000, unit: 0, kind });
            }
            lost += check_with(&faults, |faults| {
                let (outcome, _) = run(policy, (&frames, &profile), Granularity::Flow, faults.clone(), seed);
                let dispatchers = &outcome.dispatchers;
                let reports: Vec<_> = dispatchers.iter().map(|(report, _)| report).collect();
                let what = format!("seed {seed}, {faults:?}: {reports:?}");
                for (report, sink) in dispatchers {
                    assert!(report.adds_up(), "{what}");
                    assert_eq!(report.packets_out, sink.sent.len() as u64, "{what}");
                }
                let sum = |of: fn(&UnitsReport) -> u64| counted(dispatchers, of);
                let [passed_on, taken_over] =
                    [sum(|units| units.packets_passed_on), sum(|units| units.packets_taken_over)];
                assert_eq!(passed_on, taken_over, "{what}");
                assert_eq!(sum(|units| units.packets_unaccounted), 0, "{what}");
                let drops = dispatchers.iter().filter_map(|(report, _)| report.drops.get("dispatcher-lost"));
                drops.sum::<u64>()
            });
        }
    }
    assert!(lost > 0, "no packet was on a lost link");
}
