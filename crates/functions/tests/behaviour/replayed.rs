//! Units that share a flow's packets, each replaying the headers of packets that it does not get,
//! process them as a single unit would.

use crate::flow_support::{BALANCER, FIREWALL, FLOWS, MONITOR, Outcome, SEED, stages};
use graph::{Graph, NoHistory, Options, history_len};
use io::traffic::{
    AddressPrefix, FrameRate, Generator, Payload, Protocols, Responder, TrafficAddresses, TrafficProfile,
};
use nf::stage::Stage;
use packet::{Packet, PacketPool, Parser, Side, split_mix};

const UNITS: usize = 4;

const POLICER: (&str, &str) =
    ("policer", r#"{"rate": "20kbps", "yellow": {"remark": "af12"}, "burst": "2KB", "excess_burst": "2KB"}"#);

/// A graph with its environment.
struct Unit {
    graph: Graph,
    pool: PacketPool,
    out: Vec<Packet>,
    /// Packets of other units since its last packet.
    history: Vec<Header>,
}

/// Information about a packet of another unit.
#[derive(Clone)]
struct Header {
    at_ns: u64,
    side: Side,
    bytes: Vec<u8>,
    wire_len: u32,
}

impl Unit {
    fn new(functions: &[(&str, &str)]) -> Unit {
        let options = Options { flows_max: FLOWS, seed: SEED, ..Options::default() };
        let graph = Graph::new(stages(functions), options).unwrap();
        Unit { graph, pool: PacketPool::new(64), out: vec![], history: vec![] }
    }

    /// Replays other units' packets, and processes this one.
    fn process(&mut self, at_ns: u64, side: Side, frame: &[u8]) -> Outcome {
        self.catch_up();
        let mut packet = self.pool.take(frame).unwrap();
        packet.meta_mut().transit.timestamp_ns = at_ns;
        packet.meta_mut().transit.side = side;
        self.graph.process(&mut vec![packet], &mut self.out, &mut self.pool);
        Outcome::take(&mut self.graph, &mut self.out, &mut self.pool)
    }

    fn catch_up(&mut self) {
        for header in std::mem::take(&mut self.history) {
            let mut packet = self.pool.take(&header.bytes).unwrap();
            packet.meta_mut().transit.timestamp_ns = header.at_ns;
            packet.meta_mut().transit.side = header.side;
            packet.meta_mut().wire_len = header.wire_len;
            self.graph.replay(&mut packet, &mut self.pool).unwrap();
            self.pool.give(packet);
        }
    }

    /// Returns a packet's flow, if it is known here, and its header.
    fn flow_of(&mut self, at_ns: u64, side: Side, frame: &[u8]) -> (Option<u32>, Option<Header>) {
        let mut packet = self.pool.take(frame).unwrap();
        let parsed = Parser::new(packet::FlowHasher::new(SEED)).parse(&mut packet);
        let meta = packet.meta();
        let flow = parsed.ok().and_then(|()| self.graph.flow(meta.hash, &meta.key, meta.reversed));
        let header = history_len(&packet).map(|len| {
            let bytes = frame[..len].to_vec();
            Header { at_ns, side, bytes, wire_len: frame.len() as u32 }
        });
        self.pool.give(packet);
        (flow, header)
    }

    fn saved(&mut self, flow: u32) -> Vec<u8> {
        let mut saved = vec![];
        self.graph.save_flow(flow, &mut saved);
        saved
    }

    /// Returns the counters of flows and of packets.
    fn counters(&self) -> Vec<u64> {
        let of = |stage: &dyn Stage| {
            let shared = stage.shared();
            let groups = shared.groups.iter().flat_map(|group| group.values.clone());
            let own = stage.counters();
            let all = shared.counters.iter().copied().chain(groups);
            all.chain([own.packets, own.bytes, own.drops]).collect::<Vec<_>>()
        };
        let graph = self.graph.counters();
        let all =
            [graph.packets_in, graph.bytes_in, graph.packets_out, graph.bytes_out, graph.packets_generated];
        let functions = self.graph.stages().iter().flat_map(|stage| of(&**stage));
        all.into_iter().chain(graph.drops).chain([graph.flows_started]).chain(functions).collect()
    }
}

/// A few dozen flows of all kinds within seconds, so that none expires. Later fragments do not
/// identify their flow.
fn profile() -> TrafficProfile {
    TrafficProfile {
        seed: SEED,
        start_ns: 1_700_000_000_000_000_000,
        packets: Some(6_000),
        flows: 60,
        rate: FrameRate::PacketsPerSecond(1_000.0),
        protocols: Protocols { fragments: 0.0, ..TrafficProfile::default().protocols },
        addresses: TrafficAddresses {
            servers_v4: AddressPrefix { address: [198, 18, 0, 0].into(), length: 30 },
            ..TrafficAddresses::default()
        },
        payload: Payload::Random,
        replies: false,
        ..TrafficProfile::default()
    }
}

/// Plays traffic to responding servers through one unit, and through several that share the packets
/// of each flow at random. Returns the number of replayed packets.
fn check(functions: &[(&str, &str)]) -> u64 {
    let names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    let mut single = Unit::new(functions);
    let mut units: [Unit; UNITS] = std::array::from_fn(|_| Unit::new(functions));
    assert!(single.graph.recomputes());
    let profile = profile();
    let mut responder = Responder::new(profile.answer);
    let mut generator = Generator::new(&profile).unwrap();
    let (mut number, mut told, mut replayed, mut random) = (0, 0, 0, SEED);
    while let Some(frame) = generator.next() {
        let mut arrivals = vec![(Side::Inside, frame.data.to_vec())];
        while let Some((side, data)) = arrivals.pop() {
            let at_ns = frame.timestamp_ns;
            let (known, header) = single.flow_of(at_ns, side, &data);
            let expected = single.process(at_ns, side, &data);
            // Packets that begin a flow, or may, are the first unit's.
            let turn = known.map_or(0, |_| split_mix(&mut random) as usize % UNITS);
            let outcome = units[turn].process(at_ns, side, &data);
            assert_eq!(outcome, expected, "packet {number} of {names:?}");
            told += expected.told.len();
            let begun = match known {
                Some(_) => None,
                None => units[turn].flow_of(at_ns, side, &data).0.map(|flow| units[turn].saved(flow)),
            };
            for other in units.iter_mut().enumerate().filter(|(i, _)| *i != turn).map(|(_, unit)| unit) {
                if known.is_some() {
                    other.history.push(header.clone().unwrap());
                    replayed += 1;
                } else if let Some(saved) = &begun {
                    other.catch_up(); // Otherwise its aliases of earlier flows would be newer.
                    other.graph.restore_flow(saved, &mut other.pool).unwrap();
                }
            }
            for (_, sent) in expected.sent.iter().filter(|(side, _)| *side == Side::Outside) {
                arrivals.extend(responder.respond(sent).ok().map(|answer| (Side::Outside, answer.to_vec())));
            }
            number += 1;
        }
    }
    units.iter_mut().for_each(Unit::catch_up);
    let sum = |a: Vec<u64>, unit: &Unit| a.iter().zip(unit.counters()).map(|(a, b)| a + b).collect();
    let counted = single.counters();
    assert_eq!(units.iter().fold(vec![0; counted.len()], sum), counted, "counters of {names:?} add up");
    println!("{names:?}: {number} packets, {replayed} replays, {told} alerts and reports");
    replayed
}

#[test]
fn packets_of_a_monitor() {
    assert!(check(&[MONITOR]) > 10_000);
}

#[test]
fn packets_of_a_firewall() {
    assert!(check(&[FIREWALL]) > 10_000);
}

#[test]
fn packets_of_a_policer() {
    assert!(check(&[POLICER]) > 10_000);
}

#[test]
fn packets_of_a_dos_preventer() {
    let config =
        r#"{"protect": "outside", "packets": 50, "flow_rate": "1pps", "flow_burst": 9, "alert_every": 0}"#;
    assert!(check(&[("dos", config)]) > 10_000);
}

#[test]
fn packets_of_a_load_balancer() {
    assert!(check(&[BALANCER]) > 10_000);
}

#[test]
fn packets_of_a_graph() {
    assert!(check(&[MONITOR, POLICER, FIREWALL, BALANCER]) > 10_000);
}

/// Functions declare whether their flows depend on more, by nature or by configuration.
#[test]
fn others_cannot_be_replayed() {
    let cases = [
        ("nat", r#"{"external": ["203.0.113.1"]}"#),
        ("http", "{}"),
        ("ids", r#"{"rules": "alert tcp any any -> any any (msg:\"any\"; sid:1;)"}"#),
        ("whitelist", "{}"),
        ("redundancy", "{}"),
        ("dos", "{}"),
        ("dos", r#"{"connections": 9, "alert_every": 0}"#),
        ("firewall", r#"{"rules": "allow out", "default": "reject"}"#),
        ("policer", r#"{"rate": "1Mbps", "per": "source"}"#),
    ];
    for function in cases {
        assert!(!Unit::new(&[function]).graph.recomputes(), "{function:?}");
        assert!(!Unit::new(&[MONITOR, function]).graph.recomputes(), "{function:?}");
    }
}

#[test]
fn a_packet_of_no_flow_here_is_no_history() {
    let mut unit = Unit::new(&[MONITOR]);
    let mut generator = Generator::new(&profile()).unwrap();
    let mut packet = unit.pool.take(generator.next().unwrap().data).unwrap();
    assert_eq!(unit.graph.replay(&mut packet, &mut unit.pool), Err(NoHistory));
    assert_eq!(unit.graph.counters().flows_started, 0);
}

#[test]
fn a_replayed_packet_ends_no_other_flow() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut unit = Unit::new(&[MONITOR]);
    let mut generator = Generator::new(&profile()).unwrap();
    let mut last = None;
    while unit.graph.counters().flows_started < 2 {
        let packet = generator.next().unwrap();
        let (at_ns, side) = (packet.timestamp_ns, Side::Inside);
        unit.process(at_ns, side, packet.data);
        last = Some(Header {
            at_ns: at_ns + HOUR_NS,
            side,
            bytes: packet.data.to_vec(),
            wire_len: packet.data.len() as u32,
        });
    }
    let ended = |unit: &Unit| unit.graph.counters().flows_ended.iter().sum::<u64>();
    let now_ns = last.as_ref().unwrap().at_ns;
    unit.history.extend(last);
    unit.catch_up();
    assert_eq!(ended(&unit), 0, "only the unit that has the packet ends it");
    unit.graph.handle_timeout(now_ns, &mut unit.pool);
    assert_eq!(ended(&unit), 1, "and the flow itself continues");
}
