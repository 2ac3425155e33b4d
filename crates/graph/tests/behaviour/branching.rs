//! Random graphs with branches against a walk over the policy, packet by packet: which functions
//! each packet visits, and where it ends.

use std::collections::BTreeMap;

use graph::{EdgeChoice, EdgeId, Graph, Observer, Options, Topology};
use nf::stage::load;
use nf::{Recording, Setup, Verdict};
use packet::{DropReason, Packet, PacketPool, Side};
use policy::Policy;
use proptest::prelude::*;

use super::support::bench::{Arrival, Bench};
use super::support::functions::Teller;
use super::support::packets;

#[path = "../branch_model/mod.rs"]
mod branch_model;

use branch_model::{EdgeText, FILTERS, TYPES, TestPacket, packet_of, policy_text, run, stage};

fn sends() -> impl Strategy<Value = Vec<TestPacket>> {
    let send = (0_u8..12, prop::bool::weighted(0.3), prop::bool::weighted(0.2), 0_u8..8, 0_u8..5, 0_u8..6);
    let send = send.prop_map(|(flow, reply, psh, dscp, mark, last)| TestPacket {
        flow,
        reply,
        psh,
        dscp: if dscp == 0 { 8 } else { 0 },
        mark: if mark == 4 { 3 } else { 0 },
        last: last == 0,
    });
    prop::collection::vec(send, 20..200)
}

fn graphs() -> impl Strategy<Value = String> {
    let edge = (0_usize..60, 0_usize..61, 0..FILTERS.len(), prop::bool::weighted(0.7));
    let edge = edge.prop_map(|(from, to, filter, both)| EdgeText { from, to, filter, both });
    let parts = (prop::collection::vec(0_usize..TYPES.len(), 0..8), prop::collection::vec(edge, 4..30));
    parts.prop_map(|(types, edges)| policy_text(&types, &edges))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// E2, E3: with and without the fast path, in batches, with moves in between.
    #[test]
    fn packets_take_the_path_of_the_walk(text in graphs(), sends in sends(), consolidate: bool) {
        let options = Options { consolidate, flows_max: 64, ..Options::default() };
        run(&text, &sends, true, options).map_err(TestCaseError::fail)?;
    }
}

/// The edges of the observed packet.
#[derive(Default)]
struct EdgeDiary(Vec<EdgeId>);

impl Observer for EdgeDiary {
    fn arrived(&mut self, _: &Packet) {}
    fn edge(&mut self, edge: EdgeId, _: EdgeChoice, _: &Packet) {
        self.0.push(edge);
    }
    fn before(&mut self, _: usize, _: &Packet) {}
    fn after(&mut self, _: usize, _: &Packet, _: Verdict, _: &Recording) {}
    fn sent(&mut self, _: &Packet) {}
    fn dropped(&mut self, _: &Packet, _: DropReason) {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An observer hears of the edges that are counted, in the order of the path.
    #[test]
    fn observed_edges_are_those_counted(text in graphs(), sends in sends()) {
        let policy = Policy::read("random", &text, &mut |_: &str| Err(String::new())).unwrap();
        let Ok(topology) = Topology::new(&policy) else { return Ok(()) };
        let stages = topology.nfs().iter().map(|&nf| stage(&policy.nfs[nf].type_name)).collect();
        let mut graph = Graph::branching(stages, topology.clone(), Options::default()).unwrap();
        let mut pool = PacketPool::new(256);
        let mut answers: BTreeMap<u8, (u16, u16)> = BTreeMap::new();
        let mut counted = vec![0; topology.edges().len()];
        for (number, send) in (1..).zip(&sends) {
            let reply_to = send.reply.then(|| answers.get(&send.flow).copied()).flatten();
            let (ingress, network) = packet_of(send, reply_to);
            let mut packet = packets::packet(1_000 * number, Side::Inside, &network);
            packet.meta_mut().transit.ingress = ingress;
            let (mut diary, mut out) = (EdgeDiary::default(), Vec::new());
            graph.observe(packet, &mut out, &mut pool, &mut diary);
            diary.0.iter().for_each(|edge| counted[usize::from(*edge)] += 1);
            let edges = || diary.0.iter().map(|edge| &topology.edges()[usize::from(*edge)]);
            for (edge, next) in edges().zip(edges().skip(1)) {
                prop_assert_eq!(edge.to.as_ref(), Some(&next.from), "{}", text);
            }
            if let (None, Some(left)) = (reply_to, out.first()) {
                answers.insert(send.flow, (left.meta().transit.egress, packet::parse::ends(left).1.port));
            }
            out.into_iter().for_each(|packet| pool.give(packet));
            graph.effects_mut().alerts.drain(..).for_each(drop);
        }
        let counters = graph.branches().map(|it| it.counters().iter().map(|edge| edge.packets));
        prop_assert_eq!(counters.map(Iterator::collect), Some(counted), "{}", text);
    }
}

const SITE: &str = "Port<0> p0; Port<1> p1; Port<2> p2; Port<3> p3;
    Footprint a; Shifter b; Footprint c; Tagger t; Footprint d;
    pipelet {
      p0 [dst port 1] <-> a <-> c <-> p1;
      p0 <-> b <-> c;
      p2 <-> t [t.mark == 3] -> Drop;
      t <-> d <-> p3;
    }";

/// A line of traffic takes the fast path, of both kinds.
#[test]
fn known_flows_take_the_fast_path() {
    let send = |number: u32| TestPacket {
        flow: (number % 12) as u8,
        reply: number / 12 % 2 == 1,
        psh: false,
        dscp: 0,
        mark: 0,
        last: number % 24 == 23,
    };
    let sends: Vec<TestPacket> = (0..2_000).map(send).collect();
    let options = Options { consolidate: true, flows_max: 64, ..Options::default() };
    let [left, fast, predicted] = run(SITE, &sends, false, options).unwrap();
    assert!(left > 1_200 && fast > 400 && predicted > 0, "{left} {fast} {predicted}");
}

/// Records have the bytes of the longest path, not of all functions.
#[test]
fn functions_that_exclude_each_other_share_bytes() {
    let len = |text: &str| {
        let policy = Policy::read("test", text, &mut |_: &str| Err(String::new())).unwrap();
        let topology = Topology::new(&policy).unwrap();
        let stages = topology.nfs().iter().map(|&nf| stage(&policy.nfs[nf].type_name)).collect();
        Graph::branching(stages, topology, Options::default()).unwrap().flows().record_len()
    };
    let ports = "Port<0> p0; Port<1> p1; Shifter a; Shifter b; Shifter c; Shifter d;";
    let one = len(&format!("{ports} pipelet {{ p0 [udp] -> a -> p1; p0 -> p1; }}"));
    let four = len(&format!(
        "{ports} pipelet {{ p0 [dst port 1] -> a -> p1; p0 [dst port 2] -> b -> p1; p0 [udp] -> c -> p1; p0 -> d -> p1; }}"
    ));
    let by_flags = len(&format!("{ports} pipelet {{ p0 [tcp flags psh] -> a -> p1; p0 -> b -> p1; }}"));
    assert_eq!(one, four);
    assert!(by_flags > one, "a flow may visit both: {by_flags} {one}");
}

/// So do their attributes: of forty functions with two bits each, those of the longest path count.
#[test]
fn attributes_of_functions_that_exclude_each_other_share_bits() {
    let taggers: String = (0..40).map(|nf| format!("Tagger t{nf};\n")).collect();
    let fork: String = (0..40).map(|nf| format!("p0 [dst port {nf}] -> t{nf} -> p1;\n")).collect();
    let line: String = (0..40).map(|nf| format!("t{nf} -> ")).collect();
    let graph = |edges: &str| {
        let text = format!("Port<0> p0; Port<1> p1; {taggers} pipelet {{ {edges} p0 -> p1; }}");
        let policy = Policy::read("test", &text, &mut |_: &str| Err(String::new())).unwrap();
        let topology = Topology::new(&policy).unwrap();
        let stages = topology.nfs().iter().map(|&nf| stage(&policy.nfs[nf].type_name)).collect();
        Graph::branching(stages, topology, Options::default())
    };
    assert!(graph(&fork).is_ok());
    assert!(graph(&format!("p0 [dst port 1] -> {line} p1;")).is_err());
}

/// Each function that listens to streams gets those of the flows that come to it, wherever they
/// come to another one before.
#[test]
fn streams_reach_listeners_on_every_branch() {
    let text = "Port<0> in; Port<1> out; Teller a; Teller b; Teller c;
        pipelet { in [dst port 1] <-> a; a <-> c; in [dst port 2] <-> b; b <-> c; in <-> c <-> out; }";
    let server = |port: u16| packets::v4(10, 0, 1, 1, port);
    let arrival = |at_ns: u64, side: Side, network: Vec<u8>| Arrival { at_ns, side, network };
    let both = |flags: u8, [out, back]: [[u32; 2]; 2], payload: &[u8]| {
        let segments = [1, 2, 3].into_iter().flat_map(|port| {
            let (client, server) = (packets::v4(10, 0, 0, 1, 1000 + port), server(port));
            let sent = packets::tcp_segment(client, server, flags, out, payload);
            let answer = packets::tcp_segment(server, client, flags | 0x10, back, payload);
            [arrival(1, Side::Inside, sent), arrival(2, Side::Outside, answer)]
        });
        segments.collect::<Vec<Arrival>>()
    };
    let mut traffic = both(0x02, [[100, 0], [700, 101]], b"");
    traffic.extend(both(0x18, [[101, 701], [701, 105]], b"said"));
    traffic.extend(both(0x18, [[105, 705], [705, 109]], b"more"));
    let told = |batch: usize| {
        let stages = (0..3).map(|_| load::<Teller>((), Setup::new(7, 16)).unwrap()).collect();
        let mut bench = Bench::branching(stages, text, Options { flows_max: 16, ..Options::default() });
        traffic.chunks(batch).for_each(|arrivals| bench.batch(arrivals));
        bench.told
    };
    let all = told(1);
    assert_eq!(all, told(traffic.len()));
    let heard = |stage: usize| {
        let is_its = |line: &&String| line.contains("data=said") && line.contains(&format!(" by {stage} "));
        all.iter().filter(is_its).count()
    };
    assert_eq!([0, 1, 2].map(heard), [2, 2, 6], "{all:#?}");
}

/// A saved route of functions that the graph does not have is damaged.
#[test]
fn routes_of_other_functions_are_refused() {
    let policy = Policy::read("site", SITE, &mut |_: &str| Err(String::new())).unwrap();
    let topology = Topology::new(&policy).unwrap();
    let stages = || topology.nfs().iter().map(|&nf| stage(&policy.nfs[nf].type_name)).collect();
    let graph = || Graph::branching(stages(), topology.clone(), Options::default()).unwrap();
    let (mut graph, mut other, mut pool) = (graph(), graph(), PacketPool::new(16));
    let send = TestPacket { flow: 0, reply: false, psh: false, dscp: 0, mark: 0, last: true };
    let (ingress, network) = packet_of(&send, None);
    let mut packet = packets::packet(1, Side::Inside, &network);
    packet.meta_mut().transit.ingress = ingress;
    graph.process(&mut vec![packet], &mut Vec::new(), &mut pool);
    let mut saved = Vec::new();
    graph.flows_mut().save(0, &mut saved);
    let route = 12 + 4 * graph.stages().len() + size_of::<nf::record::RecordHeader>();
    for byte in 0..16 {
        let mut damaged = saved.clone();
        damaged[route + byte] |= 0x80;
        assert!(other.flows_mut().restore(&damaged, &mut pool).is_err(), "byte {byte}");
    }
    assert!(other.flows_mut().restore(&saved, &mut pool).is_ok());
}
