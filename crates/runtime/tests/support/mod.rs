//! Traffic through policies, and what comes out.
#![allow(dead_code)] // Not every test needs all of it.

use std::collections::BTreeMap;
use std::path::Path;

use io::traffic::{
    AddressPrefix, FrameRate, Generator, Payload, Protocols, Responder, TrafficAddresses, TrafficProfile,
};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use policy::Policy;
use runtime::{Assembly, Frame, Ingress, Output, Report, Runner};

#[path = "../../../graph/tests/support/multipath.rs"]
pub mod multipath;
#[path = "../../../graph/tests/support/packets.rs"]
pub mod packets;

pub const SEED: u64 = 7;

/// A received frame.
pub struct Arriving {
    pub timestamp_ns: u64,
    pub port: u16,
    pub data: Vec<u8>,
}

/// Collected output.
#[derive(Default)]
pub struct Sink {
    pub sent: Vec<(u16, u64, Vec<u8>)>,
    pub told: Vec<String>,
    /// Effects of the ends of flows.
    pub ends: Vec<String>,
}

impl Output for Sink {
    type Error = std::convert::Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Self::Error> {
        self.sent.push((port, packet.meta().transit.timestamp_ns, packet.data().to_vec()));
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Self::Error> {
        // An alert at a flow's end has no packet.
        let told = if alert.sequence == 0 { &mut self.ends } else { &mut self.told };
        told.push(format!("{function} {alert:?}"));
        Ok(())
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), Self::Error> {
        let told = if event.sequence.is_none() { &mut self.ends } else { &mut self.told };
        told.push(format!("{function} {:?} {} {:?}", event.sequence, event.kind, event.key));
        Ok(())
    }

    fn flow(&mut self, report: &FlowReport, _now_ns: u64) -> Result<(), Self::Error> {
        self.ends.push(format!("{report:?}"));
        Ok(())
    }
}

pub fn assembly(name: &str) -> Assembly {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    assembly_of(name, &text)
}

pub fn assembly_of(name: &str, text: &str) -> Assembly {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files = |file: &str| match std::fs::read_to_string(folder.join(file)) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(error.to_string()),
    };
    let policy = Policy::read(name, text, &mut files).map_err(|report| report.render(policy::Colour::Off));
    runtime::assemble(&policy.unwrap(), &functions::registry(), SEED, None)
        .map_err(|wrong| format!("{wrong:?}"))
        .unwrap()
}

/// Plays frames; each full batch is processed.
pub fn play(mut runner: Runner, frames: &[Arriving]) -> (Sink, Report) {
    let mut sink = Sink::default();
    for frame in frames {
        receive(&mut runner, frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    // Each table has its own order of flows that expire together.
    sink.ends.sort();
    (sink, report)
}

pub fn receive(runner: &mut Runner, frame: &Arriving, sink: &mut Sink) {
    let Arriving { timestamp_ns, port, ref data } = *frame;
    let frame = Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data };
    runner.receive(frame, Ingress::Port(port), sink).unwrap();
}

/// Traffic through this policy, and what servers answer to what comes of it.
pub fn conversation(name: &str, profile: &TrafficProfile) -> Vec<Arriving> {
    conversation_with(assembly(name), profile)
}

/// Traffic through this graph, and what servers at its port 1 answer to what comes of it.
pub fn conversation_with(assembly: Assembly, profile: &TrafficProfile) -> Vec<Arriving> {
    let mut runner = Runner::new(assembly, "conversation");
    let mut responder = Responder::new(profile.answer);
    let mut generator = Generator::new(profile).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = generator.next() {
        let mut arrivals =
            vec![Arriving { timestamp_ns: frame.timestamp_ns, port: 0, data: frame.data.to_vec() }];
        while let Some(arriving) = arrivals.pop() {
            let mut sink = Sink::default();
            receive(&mut runner, &arriving, &mut sink);
            runner.flush(&mut sink).unwrap();
            for (_, at_ns, sent) in sink.sent.iter().filter(|(port, ..)| *port == 1) {
                if let Ok(answer) = responder.respond(sent) {
                    arrivals.push(Arriving { timestamp_ns: *at_ns, port: 1, data: answer.to_vec() });
                }
            }
            frames.push(arriving);
        }
    }
    frames
}

/// The frames of a profile, all from inside.
pub fn generated(profile: &TrafficProfile) -> Vec<Arriving> {
    let mut generator = Generator::new(profile).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = generator.next() {
        frames.push(Arriving { timestamp_ns: frame.timestamp_ns, port: 0, data: frame.data.to_vec() });
    }
    frames
}

pub fn profile(payload: Payload, packets: u64, rate: f64, seed: u64) -> TrafficProfile {
    TrafficProfile {
        seed,
        start_ns: 1_700_000_000_000_000_000,
        packets: Some(packets),
        flows: 80,
        rate: FrameRate::PacketsPerSecond(rate),
        protocols: Protocols { fragments: 0.05, ..TrafficProfile::default().protocols },
        addresses: TrafficAddresses {
            servers_v4: AddressPrefix { address: [198, 18, 0, 0].into(), length: 30 },
            ..TrafficAddresses::default()
        },
        payload,
        replies: false,
        ..TrafficProfile::default()
    }
}

/// Returns the counters of NFs and of the graph, except for the counters that depend on the
/// backend.
pub fn counted(report: &Report) -> String {
    let functions: Vec<_> = report
        .functions
        .iter()
        .map(|function| {
            let counters: Vec<_> =
                function.counters.iter().filter(|(name, _)| *name != "search_memory_bytes").collect();
            format!(
                "{} {} {} {counters:?} {:?} {:?}",
                function.name, function.packets, function.drops, function.pools, function.contents
            )
        })
        .collect();
    let (drops, flows) = (&report.drops, (report.flows.started, report.flows.live, &report.flows.ended));
    format!("{} {} {drops:?} {flows:?} {functions:#?}", report.packets_in, report.packets_out)
}

/// Graphs with branches, and without functions: paths by protocol, and a program between ports.
pub const WITHOUT_FUNCTIONS: [&str; 2] = [
    "Port<0> a; Port<1> b; Port<2> c; Port<3> d;
     pipelet { a [tcp] <-> b; a <-> c; d -> a; }",
    "Port<0> a; Port<1> b;
     Native x { ports: { inside: \"memif:/x.in\", outside: \"memif:/x.out\" } };
     pipelet { a <-> x <-> b; }",
];

/// Frames that enter at ports of such a graph, and each one's egress port according to the edges.
/// At ports 2 and 3 the program sends them, if there is one.
pub fn frames_without_functions(graph: usize) -> (Vec<Arriving>, Vec<u16>) {
    let ways: &[(u16, u16)] = [&[(1, 0), (2, 0), (3, 0)][..], &[(2, 0), (3, 1)]][graph];
    let (mut arriving, mut left_by) = (Vec::new(), Vec::new());
    for number in 0..60u8 {
        let (from, to) = (packets::v4(10, 0, 0, number, 1_000), packets::v4(192, 0, 2, 1, 53));
        let (port, exit) = ways[usize::from(number) % ways.len()];
        let data = match number / 3 % 4 {
            0 => packets::tcp(from, to, 2, &[]),
            1 => packets::udp(from, to, &[number; 20]),
            // As a bridge's own reports: the same one by both ports.
            2 => {
                packets::ip(packets::v4(10, 0, 0, 1, 0).addr, packets::v4(224, 0, 0, 22, 0).addr, 2, &[0; 8])
            }
            _ => packets::ip(from.addr, to.addr, 47, &[0; 8]),
        };
        let timestamp_ns = 1_700_000_000_000_000_000 + u64::from(number) * 10_000;
        arriving.push(Arriving { timestamp_ns, port, data: packets::frame(&data) });
        left_by.push(exit);
    }
    (arriving, left_by)
}

/// Returns sent packets by port, addresses and protocol: those of one direction of a connection, in
/// order.
pub fn by_flow(sink: &Sink) -> BTreeMap<(u16, Vec<u8>), Vec<&Vec<u8>>> {
    let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (port, _, data) in &sink.sent {
        let mut packet = Packet::from_bytes(data);
        packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
        let meta = packet.meta();
        // A later fragment has no ports: its flow is unknown.
        let key = match meta.class {
            packet::PacketClass::LaterFragment => data.clone(),
            _ => format!("{:?} {}", meta.key, meta.reversed).into_bytes(),
        };
        flows.entry((*port, key)).or_default().push(data);
    }
    flows
}

pub fn sorted(mut told: Vec<String>) -> Vec<String> {
    told.sort();
    told
}
