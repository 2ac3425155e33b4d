//! However packets are batched, the result is that of one packet after the other.

use graph::streams::StreamOptions;
use graph::{Options, Timeouts, WhenFull};
use nf::stage::Stage;
use packet::Side;
use proptest::prelude::*;

use crate::support::bench::{Arrival, Bench, Outcome, run};
use crate::support::functions::*;
use crate::support::packets::{tcp, udp, v4};
use crate::support::traffic::traffic;

const FLOWS: u32 = 1024;
const BATCHES: [usize; 5] = [2, 7, 32, 33, 256];

/// Functions that rewrite, drop, count, turn and answer, with the graph's own timeouts.
fn everything() -> Vec<Box<dyn Stage>> {
    vec![
        stage::<Tally>(FLOWS),
        stage::<Rejecter>(FLOWS),
        stage::<Masquerade>(FLOWS),
        stage::<Listener>(FLOWS),
        stage::<Gate>(FLOWS),
        stage::<Balancer>(FLOWS),
        stage::<Hairpin>(FLOWS),
        stage::<Tally>(FLOWS),
        stage::<Listener>(FLOWS),
        stage::<Teller>(FLOWS),
        stage::<Witness>(FLOWS),
    ]
}

/// Functions that keep flows and share a set.
fn keepers() -> Vec<Box<dyn Stage>> {
    vec![
        stage::<Tally>(FLOWS),
        stage::<Knock>(FLOWS),
        stage::<Keeper>(FLOWS),
        stage::<OneToOne>(FLOWS),
        stage::<Gate>(FLOWS),
        stage::<Teller>(FLOWS),
        stage::<Witness>(FLOWS),
    ]
}

type Stages = fn() -> Vec<Box<dyn Stage>>;

/// Any of these, with options that make trouble.
fn graphs() -> impl Strategy<Value = (Stages, Options)> {
    let stages = prop_oneof![Just(everything as Stages), Just(keepers as Stages)];
    // What waits in a stream: plenty, little, nothing.
    let waits = prop_oneof![Just(1 << 20), 0u32..50];
    let full = prop_oneof![Just(WhenFull::RefuseNew), Just(WhenFull::EvictOldest)];
    (stages, prop_oneof![Just(FLOWS), 1u32..8], full, 1usize..4, waits).prop_map(
        |(stages, flows_max, when_full, fragments_max, waits)| {
            let streams = StreamOptions { memory_per_stream: waits, ..StreamOptions::default() };
            (stages, Options { flows_max, when_full, fragments_max, streams, seed: 11, ..Options::default() })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A line sends and drops the same packets if they follow routes, hairpins and answers among
    /// them. Functions see only flows that reach them.
    #[test]
    fn routed_lines_do_what_lines_do((stages, options) in graphs(), traffic in traffic(200)) {
        let run = |bench: Bench| {
            let mut bench = bench;
            traffic.chunks(1).for_each(|one| bench.batch(one));
            let Outcome { sent, counters, .. } = bench.outcome();
            (sent, counters)
        };
        for consolidate in [false, true] {
            let options = Options { consolidate, ..options };
            let (line, routed) = (run(Bench::new(stages(), options)), run(Bench::routed(stages(), options)));
            prop_assert_eq!(routed, line);
        }
    }
}

/// A packet shortens its flow's timeout; the next one in the batch arrives after it.
#[test]
fn a_flow_may_end_within_a_batch() {
    let request = |at_ms: u64, byte: u8| Arrival {
        at_ns: 1_700_000_000_000_000_000 + at_ms * 1_000_000,
        side: Side::Inside,
        network: udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[byte]),
    };
    let five_ms = 0x20;
    let (known, then) = (request(0, 0), [request(1, five_ms), request(7, 0), request(7, 0)]);
    let outcome = |batch: usize| {
        let mut bench = Bench::new(keepers(), Options::default());
        bench.batch(std::slice::from_ref(&known));
        then.chunks(batch).for_each(|part| bench.batch(part));
        bench.outcome()
    };
    assert_eq!(outcome(1).counters.flows_started, 2);
    assert_eq!(outcome(3), outcome(1));
}

/// A packet after a reset in the batch does not bring back the time that an open connection is
/// kept.
#[test]
fn a_reset_within_a_batch_shortens_the_flows_time() {
    const RST: u8 = 4;
    let (client, server) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 80));
    let from = |side: Side, at_ms: u64, flags: u8| Arrival {
        at_ns: 1_700_000_000_000_000_000 + at_ms * 1_000_000,
        side,
        network: match side {
            Side::Inside => tcp(client, server, flags, &[0]),
            Side::Outside => tcp(server, client, flags, &[0]),
        },
    };
    let open = [from(Side::Inside, 0, 2), from(Side::Outside, 1, 0x12), from(Side::Inside, 2, 0x10)];
    let close = [from(Side::Inside, 3, RST), from(Side::Inside, 4, 0x10), from(Side::Inside, 5, 0x10)];
    let five_minutes_later = from(Side::Inside, 300_000, 0x10);
    for batch in [1, 3] {
        let mut bench = Bench::new(vec![stage::<Tally>(FLOWS)], Options::default());
        open.chunks(1).chain(close.chunks(batch)).for_each(|part| bench.batch(part));
        bench.batch(std::slice::from_ref(&five_minutes_later));
        assert_eq!(bench.outcome().counters.flows_started, 2, "in batches of {batch}");
    }
}

/// Packets that cannot be parsed go in their turn, each for its own reason, and leave the others
/// alone.
#[test]
fn what_cannot_be_parsed_is_dropped_in_its_turn() {
    let whole = udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[0; 8]);
    let cut = whole[..10].to_vec();
    let mut too_long = whole.clone();
    too_long[0] = 0x4f;
    let networks = [&whole, &cut, &too_long, &whole, &too_long, &whole, &cut];
    let traffic: Vec<Arrival> = networks
        .map(|network| Arrival { at_ns: 1_700_000_000, side: Side::Inside, network: network.clone() })
        .into();
    for stages in [Vec::new, || vec![stage::<Tally>(FLOWS)]] as [fn() -> Vec<Box<dyn Stage>>; 2] {
        let mut bench = Bench::new(stages(), Options::default());
        bench.batch(&traffic);
        let mut drops = bench.drops();
        drops.sort_unstable_by_key(|&(_, count)| count);
        assert!(matches!(drops[..], [(one, 2), (other, 2)] if one != other), "{drops:?}");
        let together = bench.outcome();
        let numbers: Vec<u64> = together.sent.iter().map(|&(sequence, ..)| sequence).collect();
        assert_eq!(numbers, [0, 3, 5]);
        for batch in [1, 2, 3] {
            assert_eq!(run(stages(), Options::default(), &traffic, batch), together, "in batches of {batch}");
        }
    }
}

/// The longest timeout that a function can request does not overflow.
#[test]
fn a_flow_may_be_kept_for_ever() {
    let mut bench = Bench::new(
        vec![stage::<Tally>(FLOWS)],
        Options {
            timeouts: Timeouts { udp_unreplied_ms: u32::MAX, ..Timeouts::default() },
            ..Options::default()
        },
    );
    let request = |at_s: u64| Arrival {
        at_ns: (1_700_000_000 + at_s) * 1_000_000_000,
        side: Side::Inside,
        network: udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[0]),
    };
    bench.batch(&[request(0)]);
    bench.batch(&[request(3_000_000)]);
    assert_eq!(bench.outcome().counters.flows_started, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_change_nothing((stages, options) in graphs(), traffic in traffic(120)) {
        let alone = run(stages(), options, &traffic, 1);
        for batch in BATCHES {
            let together = run(stages(), options, &traffic, batch);
            prop_assert_eq!(&together.sent, &alone.sent, "sent, in batches of {}", batch);
            prop_assert_eq!(&together.alerts, &alone.alerts, "alerts, in batches of {}", batch);
            prop_assert_eq!(&together.told, &alone.told, "alerts and events, in batches of {}", batch);
            prop_assert_eq!(&together, &alone, "in batches of {}", batch);
        }
    }
}
