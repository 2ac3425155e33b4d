//! Packets of known flows pass a graph without a single allocation (design.md 5.5).

#[path = "support/allocations.rs"]
mod allocations;
#[path = "support/mod.rs"]
mod support;

use graph::{Graph, Options, Topology};
use nf::stage::{Stage, load};
use nf::{Attribute, Context, Descriptor, NetworkFunction, PacketView, Setup, Verdict};
use packet::{Addr, Endpoint, Side};
use policy::Policy;
use values::ConfigError;

use support::functions::*;
use support::packets::*;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const FLOWS: u32 = 4096;

/// The graphs, each with a name for the message.
fn graphs() -> Vec<(&'static str, Vec<Box<dyn Stage>>)> {
    vec![
        ("nothing", vec![]),
        ("a counter with a map", vec![stage::<Tally>(FLOWS)]),
        ("a source rewriter", vec![stage::<Masquerade>(FLOWS)]),
        ("a destination rewriter", vec![stage::<Balancer>(FLOWS)]),
        ("a shared set", vec![stage::<Knock>(FLOWS)]),
        ("a listener to streams", vec![stage::<Listener>(FLOWS)]),
        ("a function that turns packets back", vec![stage::<Tally>(FLOWS), stage::<Hairpin>(FLOWS)]),
        (
            "all together",
            vec![
                stage::<Tally>(FLOWS),
                stage::<OneToOne>(FLOWS),
                stage::<Gate>(FLOWS),
                stage::<Keeper>(FLOWS),
                stage::<Balancer>(FLOWS),
                stage::<Listener>(FLOWS),
                stage::<Telltale>(FLOWS),
            ],
        ),
    ]
}

/// Both directions of many flows: UDP and TCP, IPv4 and IPv6, passing, dropped now and then,
/// turning, rewritten.
fn frames() -> Vec<(Side, Vec<u8>)> {
    let virtual_end = Endpoint::new(Addr::from_v4_bytes(VIRTUAL), 53);
    let mut frames = vec![];
    for host in 1..=50u8 {
        let (inside, peer) = (v4(10, 0, 0, host, 1000), v4(192, 0, 2, 1, 53));
        let (inside6, peer6) = (v6(u16::from(host), 1000), v6(999, 53));
        let drop_now_and_then = if host % 7 == 0 { command::DROP } else { 0 };
        let dropped = udp(inside, peer, &[drop_now_and_then]);
        frames.extend([
            (Side::Inside, udp(inside, peer, &[0])),
            (Side::Inside, dropped),
            (Side::Outside, udp(peer, inside, &[0])),
            (Side::Inside, tcp(inside, virtual_end, 0x10, &[0])),
            (Side::Inside, udp(inside, v4(10, 0, 0, 200, 53), &[0])),
            (Side::Inside, tcp(inside6, peer6, 0x10, &[0])),
            (Side::Outside, tcp(peer6, inside6, 0x10, &[0])),
        ]);
    }
    frames.into_iter().map(|(side, network)| (side, frame(&network))).collect()
}

#[test]
fn known_flows_allocate_nothing() {
    let frames = frames();
    for (name, stages) in graphs() {
        assert_eq!(allocations::of_known_flows(stages, &frames, 20), 0, "{name}");
    }
}

/// Names flows by the number of their packets.
struct Namer;

impl NetworkFunction for Namer {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "namer",
        attributes: &[Attribute { name: "kind", bits: 1, values: &["even", "odd"], meaning: "the clock" }],
        ..BASE
    };
    type State = ();
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Namer)
    }

    fn process(&self, _: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        context.tag_flow(0, (context.flow().seq % 2) as u16);
        Verdict::Forward
    }
}

/// Filters that packets of known flows pass as well: names of attributes, flags, and headers.
#[test]
fn branches_allocate_nothing() {
    let text = "Port<0> in; Port<1> out; Namer n; Namer a; Namer b; Namer c;
        pipelet { in <-> n; n [n.kind == \"odd\"] <-> a <-> out; n [tcp flags psh] <-> b <-> out;
        n [dst port 53] <-> c <-> out; n <-> out; }";
    let policy = Policy::read("branches", text, &mut |_: &str| Err(String::new())).unwrap();
    for consolidate in [false, true] {
        let options = Options { flows_max: FLOWS, consolidate, ..Options::default() };
        let stages = (0..4).map(|_| load::<Namer>((), Setup::new(7, FLOWS)).unwrap()).collect();
        let mut graph = Graph::branching(stages, Topology::new(&policy).unwrap(), options).unwrap();
        assert_eq!(allocations::through(&mut graph, &frames(), 20), 0, "consolidate: {consolidate}");
    }
}

/// The counter counts: else the test above would prove nothing.
#[test]
fn allocations_are_seen() {
    let mut flows: Vec<_> = frames();
    flows.truncate(1);
    let alerts = allocations::of_known_flows(vec![stage::<Allocator>(FLOWS)], &flows, 20);
    assert_eq!(alerts, 20);
}
