//! Packets that turn back within the chain (hairpins).

use chain::Options;
use packet::Side;

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn packets_at(bench: &Bench, stage: usize) -> u64 {
    bench.chain.stages()[stage].counters().packets
}

/// A turned packet visits the functions before the turning one twice, that one once, and those behind never.
#[test]
fn a_packet_from_inside_turns_once() {
    let stages = vec![stage::<Tally>(8), stage::<OneToOne>(8), stage::<Hairpin>(8), stage::<Tally>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let (a, b) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53));
    let sent = bench.one(T, Side::Inside, &udp(a, b, &[0]));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, Side::Inside);
    assert!(checksums_are_right(&sent[0].1));
    let visits: Vec<u64> = (0..4).map(|stage| packets_at(&bench, stage)).collect();
    assert_eq!(visits, [2, 2, 1, 0]);
    assert_eq!(sent[0].1[12..16], one_to_one(a.addr).v4_bytes());
}

#[test]
fn a_packet_from_outside_turns_once() {
    let stages = vec![stage::<Tally>(8), stage::<Hairpin>(8), stage::<Gate>(8), stage::<Tally>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let sent = bench.one(T, Side::Outside, &udp(v4(192, 0, 2, 1, 1000), v4(192, 0, 2, 9, 53), &[0]));
    assert_eq!(sent.iter().map(|(side, _)| *side).collect::<Vec<_>>(), [Side::Outside]);
    let visits: Vec<u64> = (0..4).map(|stage| packets_at(&bench, stage)).collect();
    assert_eq!(visits, [0, 1, 2, 2]);
}

/// Both ends are inside: the flow is one, and its replies turn back too.
#[test]
fn replies_of_a_turned_flow_reach_its_record() {
    let mut bench = Bench::new(vec![stage::<Witness>(8), stage::<Hairpin>(8)], Options::default());
    let (a, b) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53));
    for (source, destination) in [(a, b), (b, a), (a, b)] {
        let sent = bench.one(T, Side::Inside, &udp(source, destination, &[0]));
        assert_eq!(sent, [(Side::Inside, udp(source, destination, &[0]))]);
    }
    assert_eq!(bench.chain.counters().flows_started, 1);
    assert_eq!(bench.alerts.iter().map(|a| a.signature_id).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3]);
}

/// A function on the way back may drop it, too; the flow then is rejected like any other.
#[test]
fn a_turned_packet_can_be_dropped() {
    let stages = vec![stage::<Rejecter>(8), stage::<Masquerade>(8), stage::<Gate>(8), stage::<Hairpin>(8)];
    let mut bench = Bench::new(stages, Options::default());
    bench.one(T, Side::Inside, &udp(v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53), &[command::DROP]));
    assert_eq!(bench.drops(), [("policy", 1)]);
    assert_eq!(bench.chain.counters().flows_live, 0);
    assert_eq!(bench.chain.stages()[1].shared().pools[0].in_use(), 0);
}
