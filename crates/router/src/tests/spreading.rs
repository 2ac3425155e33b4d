//! A flow that asks for more than a unit has goes to several in turn.

use proto::{Handover, Header, History, Message, Stamp, Targets, UnitId};

use super::bench::{Bench, MS, fixed};
use crate::*;

const LEN: u32 = 1_500;

/// Four units of 1 Gbit/s.
fn bench(spread: Spread) -> Bench {
    Bench::new(Config {
        spread: Some(spread),
        stay_below: Some(1.0),
        targets: TargetChoice::None,
        ..fixed(4)
    })
}

fn header(clock: u64) -> Header {
    Header { at_ns: clock, len: LEN, bytes: Vec::new() }
}

/// A packet of the elephant, and what goes with it if the flow is spread.
fn packet(bench: &mut Bench, now_ns: u64) -> (UnitId, Stamp, Option<History>) {
    let before = bench.router.counters().spread_packets;
    let (unit, stamp) = bench.packet(now_ns, 1, LEN);
    let is_spread = bench.router.counters().spread_packets > before;
    let history = is_spread.then(|| bench.router.history(unit, &stamp, header(stamp.clock)));
    (unit, stamp, history)
}

/// 2 Gbit/s from time 0 on until the first packet that is spread, and when that was.
fn begun(bench: &mut Bench) -> (u64, (UnitId, Stamp, History)) {
    for now in (0..20 * MS).step_by(6_000) {
        let (unit, stamp, history) = packet(bench, now);
        if let Some(history) = history {
            return (now, (unit, stamp, history));
        }
    }
    panic!("nothing is spread");
}

/// How many there are, as the anchor was told: 2 Gbit/s are three units, none of them above 800 Mbit/s with headers; but some may be full of what the
/// flow brought before.
fn helpers(bench: &mut Bench, anchor: UnitId, (begun, base): (u32, u64)) -> usize {
    let orders = bench.take();
    let Some(Order::Send { to, message: Message::Spread { epoch, last, helpers, .. } }) = orders.last()
    else {
        panic!("the anchor is told of its helpers");
    };
    assert_eq!((*to, *epoch, *last), (anchor, begun, base));
    assert!((1..=2).contains(&helpers.units().len()) && !helpers.contains(anchor));
    helpers.units().len()
}

#[test]
fn units_take_turns_and_each_gets_what_the_others_had() {
    for repeats in [0, 1, 2] {
        let mut bench = bench(Spread { repeats, ..Spread::default() });
        let (mut now, (anchor, first, history)) = begun(&mut bench);
        assert!((2 * MS..4 * MS).contains(&now), "{now}");
        let base = first.clock - 1;
        assert_eq!(first.handover, Handover::From { previous: anchor, last: base });
        assert_eq!(history, History { previous: base, first: base + 1, headers: vec![] });
        let helpers = helpers(&mut bench, anchor, (first.epoch, base));
        let mut sent = vec![(anchor, first.clock)];
        for _ in 0..100 {
            now += 6_000;
            let (unit, stamp, history) = packet(&mut bench, now);
            let (history, clock) = (history.unwrap(), stamp.clock);
            let same: Vec<u64> =
                sent.iter().rev().filter(|(of, _)| *of == unit).map(|(_, clock)| *clock).collect();
            assert_eq!(history.previous, same.first().copied().unwrap_or(base));
            let behind = same.get(usize::from(repeats)).copied().unwrap_or(base);
            assert_eq!(history.first, behind + 1);
            assert!(history.headers.iter().map(|header| header.at_ns).eq(behind + 1..clock));
            assert!(!sent.iter().rev().take(helpers).any(|(of, _)| *of == unit), "each in turn");
            sent.push((unit, clock));
        }
    }
}

/// All headers, one after the other, whether the flow goes on or not.
#[test]
fn the_anchor_is_told_everything() {
    let mut bench = bench(Spread { history_max: 48, ..Spread::default() });
    let (mut now, (anchor, first, _)) = begun(&mut bench);
    for _ in 0..500 {
        now += 6_000;
        packet(&mut bench, now);
    }
    let last = first.clock + 500;
    // The flow falls silent: it is the anchor's alone.
    while bench.router.spreads() > 0 && bench.orders.iter().all(|order| !is_part(order)) {
        now += MS / 2;
        bench.advance(now);
    }
    let (mut clock, mut ended) = (first.clock, 0);
    let orders = bench.take();
    for order in &orders {
        let Order::Send { to, message: Message::Told { first, headers, is_last, .. } } = order else {
            continue;
        };
        assert_eq!((*to, *first, ended), (anchor, clock, 0));
        assert!(headers.iter().map(|header| header.at_ns).eq(clock..clock + headers.len() as u64));
        clock += headers.len() as u64;
        ended += usize::from(*is_last);
    }
    assert_eq!((clock, ended), (last + 1, 1));
    let helpers: Vec<UnitId> = orders.iter().filter(|order| is_part(order)).map(to).collect();
    let told = orders.iter().filter_map(|order| match order {
        Order::Send { message: Message::Spread { helpers, .. }, .. } => Some(helpers.units().len()),
        _ => None,
    });
    assert_eq!(helpers.len(), told.sum::<usize>());
    let (&last_helper, others) = helpers.split_last().unwrap();
    let (unit, stamp, history) = packet(&mut bench, now);
    assert_eq!((unit, stamp.epoch, history), (anchor, first.epoch + 1, None));
    assert_eq!(stamp.handover, Handover::From { previous: anchor, last });
    // Helpers that do not say that they have done are told again.
    let parted = Message::Parted { flow: stamp.flow, epoch: first.epoch };
    others.iter().for_each(|&helper| bench.receive(now, helper, parted.clone()));
    now += 101 * MS;
    bench.advance(now);
    assert_eq!(bench.take().iter().filter(|order| is_part(order)).map(to).collect::<Vec<_>>(), [last_helper]);
    bench.receive(now, last_helper, parted);
    assert_eq!(bench.router.spreads(), 0);
}

fn is_part(order: &Order) -> bool {
    matches!(order, Order::Send { message: Message::Part { .. }, .. })
}

fn to(order: &Order) -> UnitId {
    match order {
        Order::Send { to, .. } | Order::Start(to) | Order::Stop(to) => *to,
    }
}

#[test]
fn a_flow_that_asks_for_more_gets_more_units() {
    let mut bench = bench(Spread { begin_at: 0.9, ..Spread::default() });
    let (mut now, (anchor, ..)) = begun(&mut bench);
    bench.take();
    // 3 Gbit/s instead of 2: a fourth unit, in the same epoch.
    let mut added = Targets::NONE;
    for _ in 0..2_000 {
        now += 4_000;
        packet(&mut bench, now);
        if let Some(Order::Send { to, message: Message::Spread { helpers, .. } }) = bench.take().pop() {
            assert_eq!(to, anchor);
            added = helpers;
        }
    }
    assert_eq!((added.units().len(), bench.router.counters().spreads), (1, 1));
}

#[test]
fn a_flow_ends_when_no_helper_has_its_packets_any_more() {
    let mut bench = bench(Spread::default());
    let (now, (anchor, stamp, _)) = begun(&mut bench);
    let helpers = helpers(&mut bench, anchor, (stamp.epoch, stamp.clock - 1));
    let expire = |epoch| Message::Expire { flow: stamp.flow, epoch, clock: stamp.clock };
    bench.receive(now, anchor, expire(stamp.epoch));
    assert_eq!((bench.take(), bench.router.counters().expiries_refused), (vec![], 1), "it has seen headers");
    bench.advance(now + 50 * MS);
    let orders = bench.take();
    assert!(matches!(orders[0], Order::Send { message: Message::Told { is_last: true, .. }, .. }));
    let parting: Vec<UnitId> = orders.iter().filter(|order| is_part(order)).map(to).collect();
    assert_eq!(parting.len(), helpers);
    bench.receive(now + 50 * MS, anchor, expire(stamp.epoch + 1));
    assert_eq!(bench.take(), [], "helpers have not done");
    for unit in parting {
        bench.receive(now + 51 * MS, unit, Message::Parted { flow: stamp.flow, epoch: stamp.epoch });
    }
    bench.receive(now + 52 * MS, anchor, expire(stamp.epoch + 1));
    assert!(matches!(bench.take().last(), Some(Order::Send { message: Message::End { .. }, .. })));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let wrong = [
        Spread { units_max: 1, ..Spread::default() },
        Spread { end_at: 0.9, ..Spread::default() },
        Spread { begin_at: 1.1, ..Spread::default() },
        Spread { window_ns: 0, ..Spread::default() },
        Spread { history_max: 23, ..Spread::default() },
    ];
    for spread in wrong {
        assert!(Router::new(Config { spread: Some(spread), ..fixed(4) }).is_err(), "{spread:?}");
    }
    // Nothing would be cut of a flow without silence, so that nobody would see how big it is.
    let uncut = Config { spread: Some(Spread::default()), size_max: u64::MAX, ..fixed(4) };
    assert!(matches!(Router::new(uncut.clone()), Err(RouterError::SpreadUncut)));
    assert!(Router::new(Config { mode: Mode::Flow, ..uncut }).is_ok(), "flows are not spread in other modes");
}
