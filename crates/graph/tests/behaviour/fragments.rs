//! Fragments follow the flow of their datagram's first one.

use graph::streams::{DATAGRAM_TIMEOUT_NS, DATAGRAMS_MAX};
use graph::{Options, fragments::WAITING_MAX};
use packet::Side;
use proptest::prelude::*;

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A datagram to rewrite, in pieces of 24 bytes.
fn pieces(first: u8, id: u16) -> Vec<Vec<u8>> {
    let mut payload: Vec<u8> = (0..100).collect();
    payload[0] = first;
    fragments(&udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &payload), id, 24)
}

fn bench(options: Options) -> Bench {
    Bench::new(vec![stage::<Masquerade>(8), stage::<Gate>(8), stage::<Tally>(8)], options)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// In whatever order they come, all leave, with one source, and together they are the rewritten
    /// datagram.
    #[test]
    fn any_order_is_followed(order in Just((0usize..5).collect::<Vec<_>>()).prop_shuffle(), batch in 1usize..6) {
        let pieces = pieces(0, 9);
        prop_assert_eq!(pieces.len(), 5);
        let mut bench = bench(Options::default());
        let arrivals: Vec<_> = order
            .iter()
            .map(|&i| crate::support::bench::Arrival { at_ns: T, side: Side::Inside, network: pieces[i].clone() })
            .collect();
        for part in arrivals.chunks(batch) {
            bench.batch(part);
        }
        let mut datagram = vec![0u8; 108];
        for (_, side, frame) in &bench.sent {
            prop_assert_eq!(*side, Side::Outside);
            let network = &frame[14..];
            prop_assert!(checksums_are_right(network));
            prop_assert_eq!(&network[12..16], masquerade_end(0).addr.v4_bytes());
            let at = usize::from(u16::from_be_bytes([network[6], network[7]]) & 0x1fff) * 8;
            datagram[at..at + network.len() - 20].copy_from_slice(&network[20..]);
        }
        prop_assert_eq!(bench.sent.len(), 5);
        let mut expected: Vec<u8> = (0..100).collect();
        expected[0] = 0;
        let whole = udp(masquerade_end(0), v4(192, 0, 2, 1, 53), &expected);
        prop_assert_eq!(&datagram, &whole[20..]);
        prop_assert_eq!(bench.graph.counters().packets_pending, 0);
        prop_assert_eq!(bench.graph.counters().flows_started, 1);
    }
}

#[test]
fn what_belongs_to_a_dropped_first_fragment_is_dropped() {
    let mut bench = bench(Options::default());
    let pieces = pieces(command::DROP, 9);
    bench.one(T, Side::Inside, &pieces[2]);
    assert_eq!(bench.graph.counters().packets_pending, 1);
    bench.one(T, Side::Inside, &pieces[0]);
    bench.one(T, Side::Inside, &pieces[1]);
    assert_eq!(bench.drops(), [("fragment-of-dropped", 2), ("policy", 1)]);
    assert_eq!((bench.sent.len(), bench.graph.counters().flows_live), (0, 0));
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 0);
}

#[test]
fn fragments_wait_so_long_and_no_longer() {
    let mut bench = bench(Options::default());
    bench.one(T, Side::Inside, &pieces(0, 1)[1]);
    bench.one(T + SECOND, Side::Inside, &pieces(0, 2)[1]);
    bench.advance(T + 30 * SECOND - 1);
    assert_eq!(bench.drops(), []);
    bench.advance(T + 30 * SECOND);
    assert_eq!(bench.drops(), [("fragment-timeout", 1)]);
    bench.advance(T + 31 * SECOND);
    assert_eq!(bench.drops(), [("fragment-timeout", 2)]);
    assert_eq!(bench.graph.counters().packets_pending, 0);
}

#[test]
fn tables_of_fragments_are_bounded() {
    // A source has a quarter of the table: the third datagram displaces the first.
    let mut bench = bench(Options { fragments_max: 8, ..Options::default() });
    for id in 1..=3 {
        bench.one(T, Side::Inside, &pieces(0, id)[1]);
    }
    assert_eq!(bench.drops(), [("fragment-table-full", 1)]);
    for _ in 1..WAITING_MAX + 3 {
        bench.one(T, Side::Inside, &pieces(0, 3)[1]);
    }
    assert_eq!(bench.drops(), [("fragment-table-full", 1), ("fragment-too-many", 3)]);
    let counters = bench.graph.counters();
    assert_eq!(counters.packets_pending, WAITING_MAX as u64 + 1);
    assert_eq!((counters.fragments_displaced, counters.fragments_displaced_by_source), (0, 1));
    bench.one(T, Side::Inside, &pieces(0, 3)[0]);
    assert_eq!(bench.graph.counters().packets_pending, 1);
    assert_eq!(bench.sent.len(), WAITING_MAX + 1);
}

/// Fragments without a first one, of many sources, displace each other and not datagrams that come
/// whole.
#[test]
fn bogus_fragments_do_not_keep_datagrams_out() {
    let mut bench = bench(Options { fragments_max: 64, ..Options::default() });
    let (mut whole, mut bogus) = (0, 0u32);
    for id in 1..=50 {
        let [first, second] = [0, 1].map(|piece| pieces(0, id)[piece].clone());
        whole += bench.one(T, Side::Inside, &first).len();
        for _ in 0..100 {
            bogus += 1;
            let [_, b, c, d] = bogus.to_be_bytes();
            let mut fragment = second.clone();
            fragment[12..16].copy_from_slice(&[11, b, c, d]);
            bench.one(T, Side::Inside, &fragment);
        }
        whole += bench.one(T, Side::Inside, &second).len();
    }
    assert_eq!(whole, 100);
    let counters = bench.graph.counters();
    assert!(counters.packets_pending <= 64 && counters.add_up());
    // The datagrams' own source has but its share, a quarter.
    assert_eq!((counters.fragments_displaced, counters.fragments_displaced_by_source), (5000 - 48, 34));
}

/// A segment to listen to, in pieces of 24 bytes.
fn segment_in_pieces(id: u16) -> Vec<Vec<u8>> {
    let ends = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 80));
    fragments(&tcp_segment(ends.0, ends.1, 0x10, [100 * u32::from(id), 1], &[7; 60]), id, 24)
}

#[test]
fn segments_in_fragments_are_put_together_within_bounds() {
    let listener = || {
        Bench::new(
            vec![stage::<Listener>(8)],
            Options {
                fragment_timeout_ns: 60 * SECOND,
                fragments_max: 4 * DATAGRAMS_MAX,
                ..Options::default()
            },
        )
    };
    let streams = |bench: &Bench| {
        let counters = bench.graph.counters().streams;
        (counters.bytes, counters.fragments, counters.fragments_lost)
    };
    // All at once.
    let mut bench = listener();
    for id in 0..=DATAGRAMS_MAX as u16 {
        let pieces = segment_in_pieces(id);
        pieces[..pieces.len() - 1]
            .iter()
            .for_each(|piece| drop(bench.one(T + u64::from(id), Side::Inside, piece)));
    }
    // Their source has a quarter of the table: its oldest give way.
    let (before, given_way) = (3 * DATAGRAMS_MAX as u64 + 3, 3 * DATAGRAMS_MAX as u64 / 4 + 1);
    assert_eq!((streams(&bench), bench.drops()), ((0, before, given_way), vec![]));
    // The table of passed first fragments has room for four times as many: one of them gives way,
    // too.
    assert_eq!(bench.graph.counters().fragments_displaced_by_source, given_way + 1);
    let last_of = |id: u64| segment_in_pieces(id as u16).last().unwrap().clone();
    bench.one(T + SECOND, Side::Inside, &last_of(given_way));
    assert_eq!(streams(&bench), (60, before + 1, given_way));
    // A last fragment of a displaced datagram begins another one, which is incomplete.
    bench.one(T + SECOND, Side::Inside, &last_of(given_way - 1));
    assert_eq!(streams(&bench), (60, before + 2, given_way));
    // They expire without another fragment.
    bench.advance(T + SECOND + DATAGRAM_TIMEOUT_NS);
    assert_eq!(streams(&bench), (60, before + 2, before / 3));

    // The timeout is the same if the graph still knows the fragments' flow.
    for (late, outcome) in [(0, (60, 4, 0)), (1, (0, 4, 1))] {
        let mut bench = listener();
        let pieces = segment_in_pieces(1);
        bench.one(T, Side::Inside, &pieces[0]);
        let at_ns = T + DATAGRAM_TIMEOUT_NS - 1 + late;
        pieces[1..].iter().for_each(|piece| drop(bench.one(at_ns, Side::Inside, piece)));
        assert_eq!(streams(&bench), outcome);
    }
}

/// The same identification in the other direction, or between other hosts, is another datagram.
#[test]
fn datagrams_are_told_apart() {
    let mut bench = bench(Options::default());
    let back = fragments(&udp(v4(192, 0, 2, 1, 53), v4(10, 0, 0, 1, 1000), &[0; 60]), 9, 24);
    bench.one(T, Side::Inside, &pieces(0, 9)[0]);
    bench.one(T, Side::Outside, &back[1]);
    assert_eq!((bench.sent.len(), bench.graph.counters().packets_pending), (1, 1));
}

/// A later fragment never begins a flow, not even when its flow's time ran out a moment before.
#[test]
fn a_later_fragment_after_its_flow_is_dropped() {
    for late in [1, SECOND] {
        let stages = vec![stage::<Keeper>(8), stage::<Witness>(8)];
        let mut bench = Bench::new(stages, Options::default());
        let keep_5_ms = 0x20;
        assert_eq!(keep_ms(keep_5_ms), 5);
        bench.one(T, Side::Inside, &pieces(keep_5_ms, 9)[0]);
        bench.one(T + 5_000_000 + late, Side::Inside, &pieces(keep_5_ms, 9)[1]);
        assert_eq!(bench.drops(), [("fragment-of-dropped", 1)], "{late} ns late");
        assert_eq!(bench.graph.counters().flows_started, 1);
    }
}
