//! Packets that turn back within the graph (hairpins).

use graph::Options;
use packet::Side;

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn packets_at(bench: &Bench, stage: usize) -> u64 {
    bench.graph.stages()[stage].counters().packets
}

/// A turned packet visits the functions before the turning one twice, that one once, and those
/// behind never.
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
    assert_eq!(bench.graph.counters().flows_started, 1);
    assert_eq!(bench.alerts.iter().map(|a| a.signature_id).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3]);
}

/// A function on the way back may drop it, too; the flow then is rejected like any other.
#[test]
fn a_turned_packet_can_be_dropped() {
    let stages = vec![stage::<Rejecter>(8), stage::<Masquerade>(8), stage::<Gate>(8), stage::<Hairpin>(8)];
    let mut bench = Bench::new(stages, Options::default());
    bench.one(T, Side::Inside, &udp(v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53), &[command::DROP]));
    assert_eq!(bench.drops(), [("policy", 1)]);
    assert_eq!(bench.graph.counters().flows_live, 0);
    assert_eq!(bench.graph.stages()[1].shared().pools[0].in_use(), 0);
}

/// Each pass is a flow of its own to the functions that have both, wherever the flow goes in
/// between.
#[test]
fn both_passes_move_with_their_flow() {
    let make = |flows| {
        let stages = vec![stage::<Witness>(8), stage::<Tally>(8), stage::<Hairpin>(8)];
        Bench::new(stages, Options { flows_max: flows, ..Options::default() })
    };
    let (a, b) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53));
    let traffic = [(a, b), (a, b), (b, a), (a, b), (b, a), (b, a), (a, b)];
    let say = |bench: &mut Bench, number: usize| {
        let (source, destination) = traffic[number];
        bench.one(T + number as u64, Side::Inside, &udp(source, destination, &[0]))
    };
    let mut stays = make(4);
    let expected: Vec<_> = (0..traffic.len()).map(|number| say(&mut stays, number)).collect();
    let tallies: Vec<u8> = expected.iter().map(|sent| sent[0].1[1] >> 4).collect();
    assert_eq!(tallies, [1, 2, 3, 4, 5, 6, 7], "the last pass is the second record's, or the flow's");
    let mut here = make(4);
    let mut got = vec![];
    for number in 0..traffic.len() {
        got.push(say(&mut here, number));
        let mut there = make(4);
        let mut saved = vec![];
        here.graph.flows_mut().save(0, &mut saved);
        for cut in 0..saved.len() {
            assert!(there.graph.flows_mut().restore(&saved[..cut], &mut there.pool).is_err(), "{cut}");
            assert_eq!(there.graph.flows().records().live(), 0, "{cut}");
        }
        let mut full = make(1);
        assert!(full.graph.flows_mut().restore(&saved, &mut full.pool).is_err());
        assert_eq!(full.graph.flows().records().live(), 0);
        assert_eq!(there.graph.flows_mut().restore(&saved, &mut there.pool), Ok(0));
        here.graph.flows_mut().release(0);
        assert_eq!(here.graph.flows().records().live(), 0);
        there.alerts = std::mem::take(&mut here.alerts);
        here = there;
    }
    assert_eq!(got, expected);
    let told = |bench: &Bench| bench.alerts.iter().map(|a| (a.stage, a.signature_id)).collect::<Vec<_>>();
    assert_eq!(told(&here), told(&stays));
}

/// A flow that turns back takes two records: if there is no room for the second, another flow has
/// to go, or the packet.
#[test]
fn a_second_pass_needs_room() {
    use graph::WhenFull::{EvictOldest, RefuseNew};
    let (a, b) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 53));
    for (flows_max, when_full, passes) in
        [(1, EvictOldest, false), (1, RefuseNew, false), (2, EvictOldest, true), (2, RefuseNew, false)]
    {
        let stages = vec![stage::<Tally>(8), stage::<Hairpin>(8)];
        let mut bench = Bench::new(stages, Options { flows_max, when_full, ..Options::default() });
        if flows_max == 2 {
            bench.through(T, Side::Inside, &udp(a, v4(192, 0, 2, 1, 53), &[0]));
        }
        assert_eq!(bench.one(T + 1, Side::Inside, &udp(a, b, &[0])).len(), usize::from(passes));
        assert_eq!(bench.drops(), if passes { vec![] } else { vec![("flow-table-full", 1)] });
        let evicted = bench.graph.counters().ended(nf::EndReason::Evicted);
        assert_eq!(evicted, u64::from(passes), "{flows_max} {when_full:?}");
    }
}
