//! Packets that functions make.

use graph::{Graph, Options};
use packet::{Packet, PacketPool, Side};

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

/// The answer goes back through the function before, which undoes its rewriting with the state of
/// the same flow.
#[test]
fn an_answer_passes_back_through_earlier_functions() {
    let stages = vec![stage::<Masquerade>(8), stage::<Rejecter>(8), stage::<Gate>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let (other, inside, peer) = (v4(10, 0, 0, 2, 999), v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    bench.through(T, Side::Inside, &udp(other, peer, &[0])); // Another flow, with the first record.
    let answers = bench.one(T, Side::Inside, &udp(inside, peer, &[command::REJECT]));
    assert_eq!(answers, [(Side::Inside, udp(peer, inside, b"\0no"))]);
    assert_eq!(bench.drops(), [("firewall-rejected", 1)]);
    let counters = bench.graph.counters();
    assert_eq!((counters.packets_generated, counters.flows_live), (1, 1));
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 1, "the rejected flow's port is free");
    assert_eq!(bench.graph.stages()[2].counters().packets, 1, "what stands behind does not see the answer");
}

#[test]
fn an_answer_to_outside_passes_functions_on_that_side() {
    let stages = vec![stage::<Gate>(8), stage::<Rejecter>(8), stage::<OneToOne>(8), stage::<Tally>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let answers = bench.one(T, Side::Outside, &udp(peer, inside, &[command::REJECT]));
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].0, Side::Outside);
    assert_eq!(bench.graph.stages()[3].counters().packets, 2, "the packet, and the answer to it");
    assert_eq!(bench.graph.stages()[0].counters().packets, 0);
}

/// With PPPoE the answer's link header has the answer's length (RFC 2516 4).
#[test]
fn an_answer_behind_pppoe_has_its_own_length() {
    let network = udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[command::REJECT; 40]);
    let length = |network: &[u8]| (network.len() as u16 + 2).to_be_bytes();
    let head = [&[6; 12][..], &[0x88, 0x64, 0x11, 0, 0, 1], &length(&network), &[0, 0x21]].concat();
    let mut packet = Packet::from_bytes(&[&head[..], &network].concat());
    packet.meta_mut().transit.timestamp_ns = T;
    let mut graph = Graph::new(vec![stage::<Rejecter>(8)], Options::default()).unwrap();
    let (mut pool, mut out) = (PacketPool::new(4), Vec::new());
    graph.process(&mut vec![packet], &mut out, &mut pool);
    let answer = out[0].data();
    assert_ne!(answer.len(), head.len() + network.len());
    assert_eq!(answer[18..20], length(&answer[22..]));
}

/// Answers leave in the place of the packet that they answer, also amid a batch, and have its link
/// header turned round.
#[test]
fn answers_keep_their_place() {
    let mut bench = Bench::new(vec![stage::<Tally>(8), stage::<Interrupter>(8)], Options::default());
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let bytes = [0, 0, command::REJECT, 0, command::REJECT, 0];
    for (i, byte) in bytes.iter().enumerate().take(1) {
        bench.through(T + i as u64, Side::Inside, &udp(inside, peer, &[*byte]));
    }
    let rest: Vec<_> = bytes[1..]
        .iter()
        .map(|byte| crate::support::bench::Arrival {
            at_ns: T,
            side: Side::Inside,
            network: udp(inside, peer, &[*byte]),
        })
        .collect();
    bench.batch(&rest);
    let sides: Vec<(u64, Side)> = bench.sent.iter().map(|(sequence, side, _)| (*sequence, *side)).collect();
    let (i, o) = (Side::Inside, Side::Outside);
    assert_eq!(sides, [(0, o), (1, o), (2, i), (3, o), (4, i), (5, o)]);
    let frame = &bench.sent[2].2;
    assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
}
