//! A walk over a policy's graph, packet by packet: which functions each packet visits, and where it
//! ends; and a player that compares a compiled graph with it. The module above has `packets` of the
//! tests' support.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;

use graph::{Graph, Options, Topology};
use nf::record::RecordHeader;
use packet::{Addr, DropReason, Endpoint, PacketPool, Side};
use policy::{EdgeDirection, Fields, FilterNumberField, Node, PathEnd, Policy, Scalar};

use super::packets;

mod functions;

pub use functions::stage;

/// Added to a port by a shifter.
const SHIFT: u16 = 1_000;

/// Ports of every policy.
pub const PORTS: u16 = 4;
/// Types of functions.
pub const TYPES: [&str; 3] = ["Footprint", "Shifter", "Tagger"];
/// Filters of edges; those over attributes need a [`TYPES`]`[2]`.
pub const FILTERS: [&str; 14] = [
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
pub struct EdgeText {
    pub from: usize,
    pub to: usize,
    /// A place in [`FILTERS`].
    pub filter: usize,
    pub both: bool,
}

/// A packet of a test.
#[derive(Clone, Debug)]
pub struct TestPacket {
    pub flow: u8,
    /// The other direction, if a packet of the flow has left.
    pub reply: bool,
    pub psh: bool,
    pub dscp: u8,
    pub mark: u8,
    /// The batch ends behind it.
    pub last: bool,
}

/// A policy with functions of these types, as f0 and so on, and those of the edges that make no
/// loop.
pub fn policy_text(types: &[usize], edges: &[EdgeText]) -> String {
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
pub fn packet_of(send: &TestPacket, reply_to: Option<(u16, u16)>) -> (u16, Vec<u8>) {
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
///
/// # Errors
/// The first difference.
pub fn run(text: &str, sends: &[TestPacket], moves: bool, options: Options) -> Result<[u64; 3], String> {
    let policy = Policy::read("random", text, &mut |_: &str| Err(String::new()));
    let policy = policy.map_err(|error| format!("{text}\n{error:?}"))?;
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
            equal(dropped(reason), count, || format!("{text} {reason:?}\n{expected:?}"))?;
        }
        let mut leaving = out.iter();
        for (sequence, (number, fate)) in (first..).zip(expected.drain(..)) {
            let mut nfs = visited.remove(&sequence).unwrap_or_default();
            let mut its = fate.nfs.clone();
            nfs.sort_unstable();
            its.sort_unstable();
            equal(nfs, its, || format!("{text} packet {number} {:?}", sends[number]))?;
            if let Ok(port) = fate.left {
                let packet = leaving.next();
                let sent =
                    packet.map(|packet| (packet.meta().transit.sequence, packet.meta().transit.egress));
                equal(sent, Some((sequence, port)), || format!("{text} {:?}", sends[number]))?;
                left_count += 1;
            }
        }
        equal(leaving.next().is_none(), true, || format!("{text} more packets left"))?;
        out.into_iter().for_each(|packet| pool.give(packet));
        // Now and then all flows move to a new graph.
        if moves && number % 7 == 6 {
            let is_live = |record: &u32| graph.flows().records().header(*record).has(RecordHeader::FLAG_LIVE);
            let live: Vec<u32> = graph.flows().records().used().filter(is_live).collect();
            let mut saved = Vec::new();
            for record in live {
                saved.clear();
                graph.flows_mut().save(record, &mut saved);
                other.flows_mut().restore(&saved, &mut pool).unwrap();
                graph.flows_mut().release(record);
            }
            std::mem::swap(&mut graph, &mut other);
        }
    }
    graph.finish(&mut pool);
    equal(graph.effects().alerts.is_empty(), true, || format!("{text} alerts of ends"))?;
    let fast = graph.report().fast_path();
    Ok([left_count, fast.packets, fast.predicted])
}

/// The error of two values that differ, with what led there.
fn equal<T: PartialEq + Debug>(is: T, expected: T, about: impl FnOnce() -> String) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{}\nis {is:?}, expected {expected:?}", about())) }
}
