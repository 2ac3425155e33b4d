//! Random graphs with branches against a walk over the policy, packet by packet: which functions
//! each packet visits, and where it ends.

use std::collections::BTreeMap;
use std::net::IpAddr;

use graph::{EdgeChoice, EdgeId, Graph, Observer, Options, Topology};
use nf::record::RecordHeader;
use nf::stage::{Stage, load};
use nf::{Access, PacketView};
use nf::{Attribute, Context, Descriptor, NetworkFunction, Plan, Recording, Setup, StateFunction, Verdict};
use packet::{Addr, Direction, DropReason, Endpoint, Packet, PacketPool, Side};
use policy::{EdgeDirection, Fields, FilterNumberField, Node, PathEnd, Policy, Scalar};
use proptest::prelude::*;
use values::ConfigError;

use super::support::bench::{Arrival, Bench};
use super::support::functions::{BASE, Teller};
use super::support::packets;

/// Says that it was here, by an alert with its place. A state function of it does the same.
struct Footprint;

const HERE: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

impl NetworkFunction for Footprint {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "footprint", consolidates: true, ..BASE };
    type State = [u8; 8];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Footprint)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 8],
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.record_state_function(HERE);
        self.state_function(1, packet, state, context);
        Verdict::Forward
    }

    fn state_function(&self, _: u16, _: &Packet, state: &mut [u8; 8], context: &mut Context<'_>) {
        // Nobody else writes here.
        assert!(state[0] == 0 || state[0] == 1);
        state[0] = 1;
        context.alert(0, "here", "test", 3);
    }

    fn predict(&self, _: &[u8; 8], plan: &mut Plan<'_>) -> bool {
        plan.record_state_function(HERE);
        true
    }
}

/// The same, and gives packets of the original direction a port that is higher by 1,000.
struct Shifter;

const SHIFT: u16 = 1_000;

impl NetworkFunction for Shifter {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "shifter",
        consolidates: true,
        writes: &[nf::Field::DestinationPort, nf::Field::SourcePort],
        ..BASE
    };
    type State = [u8; 40];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Shifter)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 40],
        context: &mut Context<'_>,
    ) -> Verdict {
        packet.record_state_function(HERE);
        self.state_function(1, packet, state, context);
        let (source, destination) = packet.ends();
        let done = match context.direction() {
            Direction::Original => {
                packet.set_destination(Endpoint::new(destination.addr, destination.port + SHIFT))
            }
            Direction::Reply => packet.set_source(Endpoint::new(source.addr, source.port - SHIFT)),
        };
        if done.is_ok() { Verdict::Forward } else { Verdict::Drop(DropReason::Function) }
    }

    fn state_function(&self, _: u16, _: &Packet, state: &mut [u8; 40], context: &mut Context<'_>) {
        assert!(state[39] == 0 || state[39] == 2);
        state[39] = 2;
        context.alert(0, "here", "test", 3);
    }
}

/// The same, and marks flows as the first byte of the payload says.
struct Tagger;

impl NetworkFunction for Tagger {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "tagger",
        attributes: &[Attribute {
            name: "mark",
            bits: 2,
            values: &["", "low", "high"],
            meaning: "the payload",
        }],
        ..BASE
    };
    type State = [u8; 3];
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Tagger)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut [u8; 3],
        context: &mut Context<'_>,
    ) -> Verdict {
        assert!(state[2] == 0 || state[2] == 3);
        state[2] = 3;
        context.alert(0, "here", "test", 3);
        if let [mark @ 0..4, ..] = packet.payload() {
            context.tag_flow(0, u16::from(*mark));
        }
        Verdict::Forward
    }
}

fn stage(type_name: &str) -> Box<dyn Stage> {
    let setup = Setup::new(7, 256);
    match type_name {
        "Footprint" => load::<Footprint>((), setup),
        "Shifter" => load::<Shifter>((), setup),
        _ => load::<Tagger>((), setup),
    }
    .unwrap()
}

const PORTS: u16 = 4;
const TYPES: [&str; 3] = ["Footprint", "Shifter", "Tagger"];
const FILTERS: [&str; 14] = [
    "",
    "",
    "",
    "[dst port 1]",
    "[dst port 1-2]",
    "[port 1002]",
    "[dst port >= 1000]",
    "[src ip 10.0.0.0/31]",
    "[udp]",
    "[tcp flags psh]",
    "[dscp 8]",
    "[Tagger.mark]",
    "[Tagger.mark == high]",
    "[!Tagger.mark == 3]",
];

/// Nodes of an edge: numbers of ports below [`PORTS`], then functions, then `Drop`.
#[derive(Clone, Debug)]
struct EdgeText {
    from: usize,
    to: usize,
    filter: usize,
    both: bool,
}

#[derive(Clone, Debug)]
struct TestPacket {
    flow: u8,
    /// The other direction, if a packet of the flow has left.
    reply: bool,
    psh: bool,
    dscp: u8,
    mark: u8,
    /// The batch ends behind it.
    last: bool,
}

fn policy_text(types: &[usize], edges: &[EdgeText]) -> String {
    let ports = (0..PORTS).map(|port| format!("Port<{port}> p{port};\n"));
    let nfs = types.iter().enumerate().map(|(nf, &of)| format!("{} f{nf};\n", TYPES[of]));
    let node = |node: usize| match node.checked_sub(PORTS.into()) {
        None => format!("p{node}"),
        Some(nf) if nf < types.len() => format!("f{nf}"),
        Some(_) => "Drop".to_owned(),
    };
    let edges = edges.iter().filter_map(|edge| {
        let (ports, nfs) = (usize::from(PORTS), types.len());
        // Functions have an order, so that there is no loop.
        let (from, to) = (edge.from % (ports + nfs), edge.to % (ports + nfs + 1));
        let is_drop = to == ports + nfs;
        if from == to || !is_drop && from >= ports && to >= ports && from > to {
            return None;
        }
        let mut filter = FILTERS[edge.filter % FILTERS.len()];
        if filter.contains("Tagger") && !types.contains(&2) {
            filter = "";
        }
        let arrow = if edge.both && !is_drop { "<->" } else { "->" };
        Some(format!("  {} {filter} {arrow} {};\n", node(from), node(to)))
    });
    let edges: String = edges.collect();
    format!("{}{}pipelet {{\n{edges}}}\n", ports.collect::<String>(), nfs.collect::<String>())
}

/// A packet's fate: the functions that it visits, and the port that it leaves by.
#[derive(Debug, PartialEq, Eq)]
struct Fate {
    nfs: Vec<usize>,
    left: Result<u16, DropReason>,
}

/// A flow as the walk sees it.
#[derive(Clone, Debug, Default)]
struct ModelFlow {
    /// Attributes of functions that it has visited.
    marks: BTreeMap<usize, u8>,
    /// The path of the last packet of the original direction that left: functions, direction and
    /// port.
    path: Option<(Vec<usize>, EdgeDirection, u16)>,
    from: u16,
}

/// The walk, over policies with these functions.
struct Model<'p> {
    policy: &'p Policy,
    flows: BTreeMap<u8, ModelFlow>,
}

fn port_of(flow: u8) -> (u16, u16) {
    (10_000 + u16::from(flow), 1 + u16::from(flow % 3))
}

fn is_udp(flow: u8) -> bool {
    flow % 4 == 3
}

impl Model<'_> {
    fn original(&mut self, send: &TestPacket) -> Fate {
        let known = self.flows.get(&send.flow).cloned();
        let ingress = u16::from(send.flow) % PORTS;
        let mut flow = known.clone().unwrap_or(ModelFlow { from: ingress, ..ModelFlow::default() });
        let (source, destination) = port_of(send.flow);
        let flags = 16 | if send.psh { 8 } else { 0 };
        let mut fields = Fields {
            src_ip: Some(IpAddr::from([10, 0, 0, send.flow])),
            dst_ip: Some(IpAddr::from([192, 0, 2, 1])),
            tcp_flags: (!is_udp(send.flow)).then_some(flags),
            ..Fields::default()
        };
        let numbers = [
            (FilterNumberField::SrcPort, u64::from(source)),
            (FilterNumberField::DstPort, destination.into()),
            (FilterNumberField::Proto, if is_udp(send.flow) { 17 } else { 6 }),
            (FilterNumberField::Tenant, 0),
            (FilterNumberField::Dscp, send.dscp.into()),
        ];
        fields.numbers.extend(numbers);
        let set = |fields: &mut Fields, marks: &BTreeMap<usize, u8>| {
            for (&nf, &mark) in marks {
                let value = match mark {
                    1 => Scalar::Text("low".to_owned()),
                    2 => Scalar::Text("high".to_owned()),
                    3 => Scalar::Number(3),
                    _ => Scalar::Text(String::new()),
                };
                fields.attributes.insert((nf, "mark".to_owned()), value);
            }
        };
        set(&mut fields, &flow.marks);
        let (graph, policy) = (self.policy.graph(), self.policy);
        let of_flow = flow.path.as_ref().map(|path| path.1);
        let mut entries = graph.edges(Node::Port(ingress.into()), of_flow);
        let entry = entries.find(|edge| edge.filter.matches(&fields));
        let direction = entry.map_or(EdgeDirection::Forward, |edge| edge.direction);
        let path = graph.walk((ingress.into(), of_flow), &mut fields, |nf, fields| {
            match policy.nfs[nf].type_name.as_str() {
                "Shifter" => {
                    let port = fields.numbers.entry(FilterNumberField::DstPort).or_default();
                    *port += u64::from(SHIFT);
                }
                "Tagger" => {
                    flow.marks.insert(nf, send.mark);
                    set(fields, &flow.marks);
                }
                _ => {}
            }
            true
        });
        // A known flow keeps the side that it began with.
        let left = match path.end {
            PathEnd::Port(port) => Ok(port as u16),
            PathEnd::Drop => Err(DropReason::Policy),
            PathEnd::Unmatched(_) => Err(DropReason::PolicyUnmatched),
        };
        if let Ok(port) = left {
            flow.path = Some((path.nfs.clone(), direction, port));
        }
        if left.is_ok() || known.is_some() {
            self.flows.insert(send.flow, flow);
        }
        Fate { nfs: path.nfs, left }
    }

    /// The path back, if all of its edges are there.
    fn reply(&mut self, flow: u8, mark: u8) -> Fate {
        let unmatched = Fate { nfs: Vec::new(), left: Err(DropReason::PolicyUnmatched) };
        let Some(flow) = self.flows.get_mut(&flow) else { return unmatched };
        let Some((nfs, direction, port)) = &flow.path else { return unmatched };
        let back = match direction {
            EdgeDirection::Forward => EdgeDirection::Reverse,
            EdgeDirection::Reverse => EdgeDirection::Forward,
        };
        let nodes = [Node::Port((*port).into())].into_iter();
        let nodes = nodes.chain(nfs.iter().rev().map(|&nf| Node::Nf(nf)));
        let nodes: Vec<Node> = nodes.chain([Node::Port(flow.from.into())]).collect();
        let graph = self.policy.graph();
        let has_edge = |pair: &[Node]| graph.edges(pair[0], Some(back)).any(|edge| edge.to == pair[1]);
        if !nodes.windows(2).all(has_edge) {
            return unmatched;
        }
        let nfs: Vec<usize> = nfs.iter().rev().copied().collect();
        for &nf in nfs.iter().filter(|&&nf| self.policy.nfs[nf].type_name == "Tagger") {
            flow.marks.insert(nf, mark);
        }
        Fate { nfs, left: Ok(flow.from) }
    }
}

/// The packet, and the port that it comes in by.
fn packet_of(send: &TestPacket, reply_to: Option<(u16, u16)>) -> (u16, Vec<u8>) {
    let (source, destination) = port_of(send.flow);
    let host = Endpoint::new(Addr::from_v4_bytes([10, 0, 0, send.flow]), source);
    let server = |port| Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), port);
    let (ingress, from, to) = match reply_to {
        Some((ingress, port)) => (ingress, server(port), host),
        None => (u16::from(send.flow) % PORTS, host, server(destination)),
    };
    let flags = 16 | if send.psh { 8 } else { 0 };
    let mut network = match is_udp(send.flow) {
        true => packets::udp(from, to, &[send.mark; 4]),
        false => packets::tcp(from, to, flags, &[send.mark; 4]),
    };
    network[1] = send.dscp << 2;
    (ingress, network)
}

/// Plays packets to a graph, and checks what becomes of each against the walk. Returns the packets
/// that left, those on the fast path, and the predictions.
fn run(text: &str, sends: &[TestPacket], moves: bool, options: Options) -> Result<[u64; 3], TestCaseError> {
    let policy = Policy::read("random", text, &mut |_: &str| Err(String::new()));
    let policy = policy.map_err(|error| TestCaseError::fail(format!("{text}\n{error:?}")))?;
    let Ok(topology) = Topology::new(&policy) else { return Ok([0; 3]) };
    let order = topology.nfs().to_vec();
    let stages = || order.iter().map(|&nf| stage(&policy.nfs[nf].type_name)).collect();
    let graph = || Graph::branching(stages(), topology.clone(), options).unwrap();
    let (mut graph, mut other) = (graph(), graph());
    let mut model = Model { policy: &policy, flows: BTreeMap::new() };
    let mut pool = PacketPool::new(256);
    let (mut batch, mut expected) = (Vec::new(), Vec::new());
    // What the last packet of each flow that left was at its port: port and destination port.
    let mut answers: BTreeMap<u8, (u16, u16)> = BTreeMap::new();
    let (mut left_count, mut at_ns) = (0, 0);
    for (number, send) in sends.iter().enumerate() {
        at_ns += 1_000;
        let reply_to = send.reply.then(|| answers.get(&send.flow).copied()).flatten();
        let fate = match reply_to {
            Some(_) => model.reply(send.flow, send.mark),
            None => model.original(send),
        };
        if let (None, Ok(port)) = (reply_to, fate.left) {
            let shifts = fate.nfs.iter().filter(|&&nf| policy.nfs[nf].type_name == "Shifter").count() as u16;
            answers.insert(send.flow, (port, port_of(send.flow).1 + SHIFT * shifts));
        }
        let (ingress, network) = packet_of(send, reply_to);
        let mut packet = packets::packet(at_ns, Side::Inside, &network);
        packet.meta_mut().transit.ingress = ingress;
        batch.push(packet);
        expected.push((number, fate));
        if !send.last && number + 1 < sends.len() && batch.len() < 48 {
            continue;
        }
        let (before, first) = (graph.counters().drops, graph.counters().packets_in);
        let mut out = Vec::new();
        graph.process(&mut batch, &mut out, &mut pool);
        let mut visited: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for alert in graph.effects_mut().alerts.drain(..) {
            visited.entry(alert.sequence).or_default().push(order[usize::from(alert.stage)]);
        }
        let drops = graph.counters().drops;
        let dropped = |reason: DropReason| drops[reason.index()] - before[reason.index()];
        for reason in [DropReason::Policy, DropReason::PolicyUnmatched] {
            let count = expected.iter().filter(|(_, fate)| fate.left == Err(reason)).count() as u64;
            prop_assert_eq!(dropped(reason), count, "{} {:?}\n{:?}", text, reason, &expected);
        }
        let mut leaving = out.iter();
        for (sequence, (number, fate)) in (first..).zip(expected.drain(..)) {
            let mut nfs = visited.remove(&sequence).unwrap_or_default();
            let mut its = fate.nfs.clone();
            nfs.sort_unstable();
            its.sort_unstable();
            prop_assert_eq!(&nfs, &its, "{} packet {} {:?}", text, number, &sends[number]);
            if let Ok(port) = fate.left {
                let packet = leaving.next();
                let sent =
                    packet.map(|packet| (packet.meta().transit.sequence, packet.meta().transit.egress));
                prop_assert_eq!(sent, Some((sequence, port)), "{} {:?}", text, &sends[number]);
                left_count += 1;
            }
        }
        prop_assert!(leaving.next().is_none());
        out.into_iter().for_each(|packet| pool.give(packet));
        // Now and then all flows move to a new graph.
        if moves && number % 7 == 6 {
            let is_live = |record: &u32| graph.records().header(*record).has(RecordHeader::FLAG_LIVE);
            let live: Vec<u32> = graph.records().used().filter(is_live).collect();
            let mut saved = Vec::new();
            for record in live {
                saved.clear();
                graph.save_flow(record, &mut saved);
                other.restore_flow(&saved, &mut pool).unwrap();
                graph.release_flow(record);
            }
            std::mem::swap(&mut graph, &mut other);
        }
    }
    graph.finish(&mut pool);
    prop_assert!(graph.effects().alerts.is_empty());
    let fast = graph.fast_path();
    Ok([left_count, fast.packets, fast.predicted])
}

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
        run(&text, &sends, true, Options { consolidate, flows_max: 64, ..Options::default() })?;
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
        let counters = graph.topology().map(|(_, counters)| counters.iter().map(|edge| edge.packets));
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
        Graph::branching(stages, topology, Options::default()).unwrap().record_len()
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
    graph.save_flow(0, &mut saved);
    let route = 12 + size_of::<nf::record::RecordHeader>();
    for byte in 0..16 {
        let mut damaged = saved.clone();
        damaged[route + byte] |= 0x80;
        assert!(other.restore_flow(&damaged, &mut pool).is_err(), "byte {byte}");
    }
    assert!(other.restore_flow(&saved, &mut pool).is_ok());
}
