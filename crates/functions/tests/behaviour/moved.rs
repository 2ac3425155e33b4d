//! A flow that moves from graph to graph again and again is processed as if it had stayed.
//!
//! State shared by flows does not move with them. The tests therefore use functions, or
//! configurations of them, with flows that share only counters.

use crate::flow_support::{BALANCER, FIREWALL, FLOWS, MONITOR, Outcome, SEED, stages};
use graph::{Graph, Options};
use io::traffic::{
    AddressPrefix, FrameRate, Generator, Payload, Protocols, Responder, TrafficAddresses, TrafficProfile,
};
use nf::record::RecordHeader;
use nf::stage::Stage;
use packet::{Packet, PacketPool, Side};

/// Number of packets from inside after which all flows move: fewer than a flow has, and no divisor
/// of anything.
const MOVE_EVERY: usize = 37;

/// Nothing is shared but counters.
const DOS: (&str, &str) = (
    "dos",
    r#"{"protect": "outside", "packets": 30, "flow_rate": "1pps", "flow_burst": 3, "alert_every": 0}"#,
);
const POLICER: (&str, &str) =
    ("policer", r#"{"rate": "100bps", "yellow": {"remark": "af12"}, "burst": "2KB", "excess_burst": "2KB"}"#);
const HTTP: (&str, &str) = ("http", r#"{"methods": ["GET", "POST"], "anomalies": "alert"}"#);

const IDS_RULES: &str = r#"
alert tcp any any -> any any (msg:"across segments"; content:"GET /"; content:"Host"; distance:0; sid:1;)
alert tcp any any -> any any (msg:"expression"; content:"HTTP"; pcre:"/[Uu]ser-[Aa]gent: [a-z]+/"; sid:2;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/"; sid:3;)
alert http any any -> any any (msg:"header"; http.header; content:"Host"; sid:4;)
alert http any any -> any any (msg:"method and mark"; http.method; content:"GET"; flowbits:set,got; sid:5;)
alert tcp any any -> any any (msg:"marked"; flowbits:isset,got; dsize:>0; sid:6;)
alert udp any any -> any any (msg:"datagram"; content:"GET"; sid:7;)
"#;

/// A graph with its environment.
struct Unit {
    graph: Graph,
    pool: PacketPool,
    out: Vec<Packet>,
}

impl Unit {
    fn new(functions: &[(&str, &str)]) -> Unit {
        let options = Options { flows_max: FLOWS, seed: SEED, ..Options::default() };
        Unit {
            graph: Graph::new(stages(functions), options).unwrap(),
            pool: PacketPool::new(64),
            out: vec![],
        }
    }

    fn process(&mut self, at_ns: u64, side: Side, frame: &[u8]) -> Outcome {
        let mut packet = self.pool.take(frame).unwrap();
        packet.meta_mut().transit.timestamp_ns = at_ns;
        packet.meta_mut().transit.side = side;
        self.graph.process(&mut vec![packet], &mut self.out, &mut self.pool);
        let mut outcome = Outcome::take(&mut self.graph, &mut self.out, &mut self.pool);
        // The order in which simultaneous flows expire is each graph's own.
        outcome.told.sort();
        self.graph.effects_mut().events.clear();
        outcome
    }

    /// Takes over all flows of another unit.
    fn take_over(&mut self, from: &mut Unit, now_ns: u64) {
        self.graph.handle_timeout(now_ns, &mut self.pool);
        let records = from.graph.flows().records();
        let live: Vec<u32> =
            records.used().filter(|&r| records.header(r).has(RecordHeader::FLAG_LIVE)).collect();
        let mut saved = vec![];
        for record in live {
            saved.clear();
            from.graph.flows_mut().save(record, &mut saved);
            self.graph.flows_mut().restore(&saved, &mut self.pool).unwrap();
            from.graph.flows_mut().release(record);
        }
        assert_eq!(from.graph.counters().flows_live, 0);
    }
}

/// Returns a few hundred flows of all kinds within more than half an hour, so that flows idle and
/// end. Held fragments belong to no flow yet, so there are none.
fn profile(payload: Payload) -> TrafficProfile {
    TrafficProfile {
        seed: SEED,
        start_ns: 1_700_000_000_000_000_000,
        packets: Some(6_000),
        flows: 60,
        rate: FrameRate::PacketsPerSecond(4.0),
        protocols: Protocols { fragments: 0.0, ..TrafficProfile::default().protocols },
        addresses: TrafficAddresses {
            servers_v4: AddressPrefix { address: [198, 18, 0, 0].into(), length: 30 },
            ..TrafficAddresses::default()
        },
        payload,
        replies: false,
        ..TrafficProfile::default()
    }
}

/// Counters of flows; pattern searches are excluded, because they depend on the unit.
fn counters(unit: &Unit) -> Vec<u64> {
    let of_flows = |stage: &dyn Stage| {
        let counted = stage.shared().counters.iter();
        let counted = counted.filter(|counter| counter.declared.name != "search_memory_bytes");
        counted.map(|counter| counter.count).collect::<Vec<_>>()
    };
    unit.graph.stages().iter().flat_map(|stage| of_flows(&**stage)).collect()
}

/// Plays traffic to responding servers once without and once with moves of its flows. Returns the
/// number of dropped packets.
fn check(functions: &[(&str, &str)], payload: Payload) -> u64 {
    let names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    let mut stays = Unit::new(functions);
    let mut moving = [Unit::new(functions), Unit::new(functions)];
    let profile = profile(payload);
    let mut responder = Responder::new(profile.answer);
    let mut generator = Generator::new(&profile).unwrap();
    let (mut number, mut told) = (0, 0);
    while let Some(frame) = generator.next() {
        let mut arrivals = vec![(Side::Inside, frame.data.to_vec())];
        while let Some((side, data)) = arrivals.pop() {
            let stayed = stays.process(frame.timestamp_ns, side, &data);
            let moved = moving[0].process(frame.timestamp_ns, side, &data);
            assert_eq!(moved, stayed, "packet {number} of {names:?}");
            told += stayed.told.len();
            for (_, sent) in stayed.sent.iter().filter(|(side, _)| *side == Side::Outside) {
                arrivals.extend(responder.respond(sent).ok().map(|answer| (Side::Outside, answer.to_vec())));
            }
        }
        number += 1;
        if number % MOVE_EVERY == 0 {
            let [from, to] = &mut moving;
            to.take_over(from, frame.timestamp_ns);
            moving.swap(0, 1);
        }
    }
    let [one, other] = &moving;
    let both: Vec<u64> = counters(one).iter().zip(counters(other)).map(|(a, b)| a + b).collect();
    assert_eq!(both, counters(&stays), "counters of {names:?} add up");
    let dropped = stays.graph.counters().dropped();
    let ended: u64 = stays.graph.counters().flows_ended.iter().sum();
    let moves = moving.iter().map(|unit| unit.graph.counters().flows_moved_in).sum::<u64>();
    assert!(ended > 50 && moves > 1_000, "{ended} flows ended, {moves} moved: too few to show anything");
    println!(
        "{names:?}: {number} packets, {dropped} dropped, {ended} flows ended, {moves} moves, {told} alerts and reports"
    );
    dropped
}

#[test]
fn flows_of_a_firewall() {
    check(&[FIREWALL], Payload::Random);
}

#[test]
fn flows_of_a_monitor() {
    check(&[MONITOR], Payload::Random);
}

#[test]
fn blocked_flows_stay_so() {
    assert!(check(&[DOS], Payload::Random) > 100);
}

#[test]
fn flows_of_a_policer() {
    assert!(check(&[POLICER], Payload::Random) > 100);
}

#[test]
fn flows_of_a_load_balancer() {
    check(&[BALANCER], Payload::Random);
}

#[test]
fn flows_of_http() {
    check(&[HTTP], Payload::Http);
}

#[test]
fn flows_of_an_ids() {
    let config = serde_json::json!({ "rules": IDS_RULES, "unsupported": "refuse" }).to_string();
    check(&[("ids", &config)], Payload::Http);
}

#[test]
fn flows_of_a_graph() {
    let config = serde_json::json!({ "rules": IDS_RULES, "unsupported": "refuse" }).to_string();
    check(&[MONITOR, POLICER, FIREWALL, ("ids", &config), HTTP, BALANCER], Payload::Http);
}
