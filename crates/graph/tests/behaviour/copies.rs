//! Packets that functions emit in addition to the packet at hand.

use graph::{Graph, Options, Topology};
use nf::{Context, Descriptor, NetworkFunction, PacketView, Setup, Verdict};
use packet::{PacketPool, Side};
use policy::Policy;
use values::ConfigError;

use crate::support::bench::{Arrival, Bench};
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

/// Bits of the first payload byte: the sides that a copy leaves by.
const OUT: u8 = 0x40;
const BACK: u8 = 0x80;

/// The port that copies are for.
const COLLECTOR: u16 = 4789;

/// Emits copies, as the payload says.
struct Copier;

impl NetworkFunction for Copier {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { name: "copier", consolidates: true, ..BASE };
    type State = ();
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Copier, ConfigError> {
        Ok(Copier)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut (), context: &mut Context<'_>) -> Verdict {
        packet.mark_per_packet();
        let command = packet.payload().first().copied().unwrap_or(0);
        for (bit, side) in [(OUT, Side::Outside), (BACK, Side::Inside)] {
            if command & bit != 0 {
                let (from, to) = (v4(203, 0, 113, 1, 9), v4(192, 0, 2, 9, COLLECTOR));
                context.emit(packet, side, &[&udp(from, to, packet.payload())]).unwrap();
            }
        }
        Verdict::Forward
    }
}

/// Copies leave right after their packet, also if it is dropped, and visit no function.
#[test]
fn copies_follow_their_packets() {
    let stages = || vec![stage::<Tally>(8), stage::<Copier>(8), stage::<Gate>(8), stage::<Tally>(8)];
    let options = |consolidate| Options { consolidate, ..Options::default() };
    let benches = [Bench::new(stages(), options(false)), Bench::new(stages(), options(true))];
    let routed = [Bench::routed(stages(), options(false)), Bench::routed(stages(), options(true))];
    for mut bench in benches.into_iter().chain(routed) {
        let (host, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
        let arrival = |(at_ns, byte): (u64, u8)| {
            let network = udp(host, peer, &[byte]);
            Arrival { at_ns: T + at_ns, side: Side::Inside, network }
        };
        bench.batch(&[arrival((0, 0))]);
        let bytes = [OUT, 0, OUT | command::DROP, BACK, OUT | BACK];
        bench.batch(&(1..).zip(bytes).map(arrival).collect::<Vec<_>>());
        let sent: Vec<_> = bench
            .sent
            .iter()
            .map(|(sequence, side, frame)| {
                let is_copy = frame[36..38] == COLLECTOR.to_be_bytes();
                (*sequence, *side, is_copy)
            })
            .collect();
        let (i, o) = (Side::Inside, Side::Outside);
        let expected = [
            (0, o, false),
            (1, o, false),
            (1, o, true),
            (2, o, false),
            (3, o, true),
            (4, o, false),
            (4, i, true),
            (5, o, false),
            (5, o, true),
            (5, i, true),
        ];
        assert_eq!(sent, expected);
        // A copy has its packet's payload at that function; a copy that turns back has a reversed
        // link header.
        let frames = |at: usize| &bench.sent[at].2;
        assert_eq!(frames(2)[42..], [OUT]);
        assert_eq!(frames(6)[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        let counters = bench.graph.counters();
        assert_eq!((counters.packets_generated, counters.flows_live), (5, 1));
        assert!(counters.add_up());
        assert_eq!(bench.drops(), [("policy", 1)]);
        let visits = |stage: usize| bench.graph.stages()[stage].counters().packets;
        assert_eq!([0, 1, 2, 3].map(visits), [6, 6, 6, 5]);
    }
}

/// On branches, copies take edges as other packets do, but visit no function.
#[test]
fn copies_take_edges_of_their_own() {
    let text = "Port<0> in; Port<1> out; Port<2> collector; Copier c; Tally a; Tally b;
        pipelet { in <-> c; c [dst port 4789] <-> a <-> collector; c <-> b <-> out; }";
    let policy = Policy::read("test", text, &mut |_: &str| Err(String::new())).unwrap();
    let topology = Topology::new(&policy).unwrap();
    let names: Vec<_> = topology.nfs().iter().map(|&nf| policy.nfs[nf].name.clone()).collect();
    let of = |name: &String| if name == "c" { stage::<Copier>(8) } else { stage::<Tally>(8) };
    let stages = names.iter().map(of).collect();
    let mut graph = Graph::branching(stages, topology, Options::default()).unwrap();
    let (mut pool, host, peer) = (PacketPool::new(16), v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let mut left = |at_ns: u64, ingress: u16, network: &[u8]| {
        let mut packet = packet(T + at_ns, Side::Inside, network);
        packet.meta_mut().transit.ingress = ingress;
        let mut out = Vec::new();
        graph.process(&mut vec![packet], &mut out, &mut pool);
        out.iter().map(|packet| packet.meta().transit.egress).collect::<Vec<_>>()
    };
    assert_eq!(left(0, 0, &udp(host, peer, &[OUT])), [1, 2]);
    assert_eq!(left(1, 0, &udp(host, peer, &[BACK])), [1, 0]);
    // Copies of a reply: on towards the host, or back to the reply's ingress.
    assert_eq!(left(2, 1, &udp(peer, host, &[BACK])), [0, 0]);
    assert_eq!(left(3, 1, &udp(peer, host, &[OUT])), [0, 1]);
    assert_eq!(left(4, 0, &udp(host, peer, &[0])), [1]);
    let visits = |of: &str| {
        let at = names.iter().position(|name| name == of).unwrap();
        graph.stages()[at].counters().packets
    };
    assert_eq!(["a", "b", "c"].map(visits), [0, 5, 5]);
    let counters = graph.counters();
    assert_eq!((counters.packets_generated, counters.flows_live), (4, 1));
    assert!(counters.add_up());
}
