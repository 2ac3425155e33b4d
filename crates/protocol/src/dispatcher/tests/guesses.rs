//! Packets that continue flowlets, dispatched by a guess: the outcome is the same as without.

use crate::message::{FlowId, UnitId};
use packet::{FlowHasher, FlowKey};
use proptest::prelude::*;

use super::bench::{Bench, fixed, key};
use crate::dispatcher::*;

/// Flows, and their aliases.
const FLOWS: u32 = 6;
const ALIASES: u32 = 100;

/// Dispatches a packet as in a batch: by its guess, which may be that of another flow.
fn routed(bench: &mut Bench, now_ns: u64, key: &FlowKey, guess: FlowGuess, len: u32) -> (Dispatched, bool) {
    let arrival = PacketArrival { key, hash: FlowHasher::new(1).hash(key), len };
    match bench.dispatcher.stamp_next(now_ns, arrival, guess) {
        Some((unit, stamp)) => (Dispatched::To { unit, stamp }, true),
        None => (bench.dispatcher.handle_packet(now_ns, arrival, &mut bench.outputs), false),
    }
}

proptest! {
    /// Any guess of any age, in all modes, with aliases that come and go, flows that end and leave
    /// their indexes to others, and units that come and go.
    #[test]
    fn by_a_guess_it_is_the_same(
        mode in prop_oneof![
            4 => Just(Granularity::Flowlet),
            1 => Just(Granularity::Flow),
            1 => Just(Granularity::Packet),
            1 => Just(Granularity::Rss { buckets: 4, every_ns: Some(1_000_000) }),
        ],
        push_at in prop_oneof![Just(None), Just(Some(0.7f32))],
        stay_below in prop_oneof![Just(None), Just(Some(0.5f32))],
        age in 0usize..12,
        steps in prop::collection::vec(
            (0..FLOWS, any::<bool>(), 0..2 * FLOWS, prop_oneof![0u64..50_000, 0u64..1_500_000], 40u32..1515, 0u8..20),
            1..300,
        ),
    ) {
        let config = Config {
            mode, push_at, stay_below, size_max: 6000, capacity_bps: 50_000_000, units_max: 4, idle_ns: 2_000_000, buckets: 5, ..fixed(1)
        };
        let (mut one, mut other) = (Bench::new(config.clone()), Bench::new(config));
        let of = |flow: u32, by_alias: bool| key(if by_alias { ALIASES + flow } else { flow });
        let (mut now_ns, mut ids) = (12_345, [None::<FlowId>; FLOWS as usize]);
        let mut guesses = Vec::new();
        for (flow, by_alias, guessed, pause_ns, len, what) in steps {
            now_ns += pause_ns;
            // Only flows with an alias get packets by alias; otherwise these would be other flows.
            let by_alias = by_alias && ids[flow as usize].is_some();
            let (key, guessed) = (of(flow, by_alias), if guessed < FLOWS { of(guessed, false) } else { of(flow, by_alias) });
            let expected = routed_without(&mut one, now_ns, &key, len);
            guesses.push(other.dispatcher.guess(FlowHasher::new(1).hash(&guessed)));
            // A guess for one of the same packets, made `age` packets ago.
            let guess = guesses[guesses.len().saturating_sub(age + 1)];
            let (routed, _) = routed(&mut other, now_ns, &key, guess, len);
            prop_assert_eq!(&routed, &expected);
            let Dispatched::To { unit, stamp } = routed else { continue };
            for bench in [&mut one, &mut other] {
                match what {
                    0 => _ = bench.alias(stamp.flow, &of(flow, true)),
                    1 => {
                        let message = crate::message::FromUnit::Expire { flow: stamp.flow, epoch: stamp.epoch, seq: stamp.seq };
                        bench.handle_message(now_ns, unit, message);
                    }
                    2 => bench.handle_message(now_ns, UnitId(guesses.len() as u16 % 4), crate::message::FromUnit::Drained),
                    _ => bench.handle_timeout(now_ns),
                }
            }
            match what {
                0 => ids[flow as usize] = Some(stamp.flow),
                1 => ids[flow as usize] = None,
                _ => {}
            }
            let outputs = one.take();
            for order in &outputs {
                if let DispatcherOutput::Start(unit) = order {
                    one.dispatcher.membership().started(now_ns, *unit);
                    other.dispatcher.membership().started(now_ns, *unit);
                }
            }
            prop_assert_eq!(other.take(), outputs);
            prop_assert_eq!(one.dispatcher.next_timeout_ns(), other.dispatcher.next_timeout_ns());
        }
        prop_assert_eq!(one.dispatcher.counters(), other.dispatcher.counters());
        prop_assert!(one.dispatcher.units().eq(other.dispatcher.units()));
    }
}

fn routed_without(bench: &mut Bench, now_ns: u64, key: &FlowKey, len: u32) -> Dispatched {
    let arrival = PacketArrival { key, hash: FlowHasher::new(1).hash(key), len };
    bench.dispatcher.handle_packet(now_ns, arrival, &mut bench.outputs)
}

#[test]
fn it_is_for_packets_in_the_midst_of_flowlets() {
    let mut bench = Bench::new(Config { size_max: 1000, push_at: Some(0.7), ..fixed(1) });
    let (a, b) = (key(1), key(2));
    let mut is_on = |now_ns, key: &FlowKey, guessed: &FlowKey| {
        let guess = bench.dispatcher.guess(FlowHasher::new(1).hash(guessed));
        routed(&mut bench, now_ns, key, guess, 200).1
    };
    assert!(!is_on(0, &a, &a), "it begins a flow");
    assert!(is_on(1, &a, &a));
    assert!(!is_on(2, &b, &a), "that is another flow");
    assert!(!is_on(3, &b, &key(3)), "no flow was guessed");
    assert!(is_on(4, &b, &b));
    assert!(is_on(5, &a, &a));
    assert!(!is_on(6, &a, &a), "its flowlet is near its end");
    assert!(!is_on(600_000, &b, &b), "it begins a flowlet, and a bucket of the load meter");
    assert!(is_on(600_001, &b, &b));
    let flow = bench.dispatcher.flows().find(FlowHasher::new(1).hash(&b), &b).unwrap();
    bench.alias(flow, &key(100)).unwrap();
    let by_alias = bench.dispatcher.guess(FlowHasher::new(1).hash(&key(100)));
    assert!(routed(&mut bench, 600_002, &key(100), by_alias, 200).1);
}

#[test]
fn it_is_for_all_packets_of_a_flow_that_is_never_cut() {
    let mut bench = Bench::new(Config { mode: Granularity::Flow, size_max: 1000, ..fixed(1) });
    let a = key(1);
    let mut is_on = |now_ns| {
        bench.handle_timeout(now_ns); // Buckets of the load meter.
        let guess = bench.dispatcher.guess(FlowHasher::new(1).hash(&a));
        routed(&mut bench, now_ns, &a, guess, 800).1
    };
    assert!(!is_on(0), "it begins the flow");
    assert!(is_on(1) && is_on(2), "behind the limit on a flowlet's size");
    assert!(is_on(60_000_000), "behind a gap");
}
