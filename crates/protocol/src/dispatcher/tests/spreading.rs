//! A flow that asks for more than a unit has goes to several in turn.

use std::collections::BTreeSet;

use crate::message::{Handover, Header, History, Message, Stamp, Targets, UnitId};

use super::bench::{Bench, MS, fixed};
use crate::dispatcher::*;

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
    begun_at(bench, 0)
}

/// The same from another time on.
fn begun_at(bench: &mut Bench, from_ns: u64) -> (u64, (UnitId, Stamp, History)) {
    for now in (from_ns..from_ns + 20 * MS).step_by(6_000) {
        let (unit, stamp, history) = packet(bench, now);
        if let Some(history) = history {
            return (now, (unit, stamp, history));
        }
    }
    panic!("nothing is spread");
}

/// How many there are, as the anchor was told: 2 Gbit/s are three units, none of them above 800
/// Mbit/s with headers; but some may be full of what the flow brought before.
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
        let Order::Send { to, message: Message::Told { first, headers, end, .. } } = order else {
            continue;
        };
        assert_eq!((*to, *first, ended), (anchor, clock, 0));
        assert!(headers.iter().map(|header| header.at_ns).eq(clock..clock + headers.len() as u64));
        clock += headers.len() as u64;
        ended += usize::from(end.is_some());
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

/// Those that have got the flow's packets in this time, at this rate.
fn members(bench: &mut Bench, now: &mut u64, time_ns: u64, step_ns: u64) -> BTreeSet<UnitId> {
    let until_ns = *now + time_ns;
    let mut units = BTreeSet::new();
    while *now < until_ns {
        *now += step_ns;
        bench.advance(*now);
        units.insert(packet(bench, *now).0);
    }
    units
}

#[test]
fn units_that_are_loaded_least_are_added() {
    let mut bench =
        Bench::new(Config { spread: Some(Spread { begin_at: 0.9, ..Spread::default() }), ..fixed(6) });
    let (mut now, _) = begun(&mut bench);
    let before = members(&mut bench, &mut now, MS, 6_000);
    let idle: Vec<UnitId> = (0..6).map(UnitId).filter(|unit| !before.contains(unit)).collect();
    assert!(idle.len() > 2, "{before:?}");
    // All others but the last one have something to do.
    let (&last, busy) = idle.split_last().unwrap();
    let mut flow = 2;
    for &unit in busy {
        while bench.packet(now, flow, LEN).0 != unit {
            flow += 1;
        }
        (0..40).for_each(|_| bench.feed(now, flow, 200));
        flow += 1;
    }
    // Half a unit more.
    let after = members(&mut bench, &mut now, 3 * MS, 4_800);
    let added: Vec<&UnitId> = after.difference(&before).collect();
    assert_eq!(added, [&last], "{before:?} {after:?}");
}

#[test]
fn a_flow_that_asks_for_less_gives_units_back() {
    let mut bench = bench(Spread::default());
    let (mut now, (anchor, ..)) = begun(&mut bench);
    let before = members(&mut bench, &mut now, 10 * MS, 4_000);
    assert_eq!(before.len(), 4, "3 Gbit/s");
    bench.take();
    // 1 Gbit/s are two units to less than 600 Mbit/s.
    members(&mut bench, &mut now, 5 * MS, 12_000);
    let told: Vec<UnitId> = bench.take().iter().filter(|order| is_part(order)).map(to).collect();
    let after = members(&mut bench, &mut now, 5 * MS, 12_000);
    assert_eq!((told.len(), after.len(), after.contains(&anchor)), (2, 2, true), "{told:?} {after:?}");
    assert!(told.iter().all(|unit| before.contains(unit) && !after.contains(unit)));
    assert_eq!(bench.router.counters().spreads, 1, "in the same epoch");
}

/// The helpers that are told to part do so.
fn all_part(bench: &mut Bench, now_ns: u64) {
    for order in bench.take() {
        if let Order::Send { to, message: Message::Part { flow, epoch, .. } } = order {
            bench.receive(now_ns, to, Message::Parted { flow, epoch });
        }
    }
}

#[test]
fn units_that_were_let_go_help_again_in_another_epoch() {
    let mut bench = bench(Spread::default());
    let (mut now, _) = begun(&mut bench);
    let all = members(&mut bench, &mut now, 10 * MS, 4_000);
    bench.take();
    let fewer = members(&mut bench, &mut now, 10 * MS, 12_000).len();
    let few = members(&mut bench, &mut now, MS, 12_000);
    assert_eq!((all.len(), fewer, few.len()), (4, 4, 2));
    // Not before they have parted, although the flow asks for them: what they did is not done with.
    assert_eq!(members(&mut bench, &mut now, 10 * MS, 4_000), few);
    assert_eq!(bench.router.counters().spreads, 1);
    // The others have to part as well.
    let until_ns = now + 20 * MS;
    while now < until_ns && bench.router.counters().spreads == 1 {
        all_part(&mut bench, now);
        members(&mut bench, &mut now, MS / 10, 4_000);
    }
    // All of them, once what they had of it before does not count as their load any more.
    members(&mut bench, &mut now, 100 * MS, 4_000);
    assert_eq!(members(&mut bench, &mut now, MS, 4_000), all);
    assert_eq!((bench.router.counters().spreads, bench.router.spreads()), (2, 1));
}

#[test]
fn a_flow_that_grows_starts_a_unit_if_none_has_room() {
    let mut bench = Bench::new(Config {
        units_min: 3,
        units_max: 4,
        spread: Some(Spread { begin_at: 0.9, ..Spread::default() }),
        ..fixed(3)
    });
    // 1.2 Gbit/s are two units.
    let mut now = 0;
    while packet(&mut bench, now).2.is_none() {
        now += 10_000;
        assert!(now < 20 * MS);
    }
    let starts = |bench: &mut Bench| {
        bench.take().into_iter().filter(|order| matches!(order, Order::Start(_))).collect::<Vec<_>>()
    };
    assert_eq!(starts(&mut bench), []);
    for _ in 0..2_000 {
        now += 4_000;
        packet(&mut bench, now);
    }
    assert_eq!(starts(&mut bench), [Order::Start(UnitId(3))]);
    bench.router.started(now, UnitId(3));
    let members = members(&mut bench, &mut now, 10 * MS, 4_000);
    assert_eq!((members.len(), bench.router.counters().spreads), (4, 1), "{members:?}");
}

#[test]
fn a_helper_that_drains_is_not_stopped_before_it_has_parted() {
    let mut bench = Bench::new(Config {
        units_min: 1,
        units_max: 3,
        follow_at: Some(0.8),
        spread: Some(Spread::default()),
        flows_max: 1_000,
        ..Config::default()
    });
    let mut now = 0;
    let mut all = BTreeSet::new();
    while all.len() < 3 {
        all = members(&mut bench, &mut now, 5 * MS, 5_200);
        for order in bench.take() {
            if let Order::Start(unit) = order {
                bench.router.started(now, unit);
            }
        }
        assert!(now < 1_000 * MS, "{all:?}");
    }
    let mut drained = None;
    while drained.is_none() {
        now += 9_200; // 1.3 Gbit/s
        bench.advance(now);
        drained = bench.orders.iter().find_map(|order| match order {
            Order::Send { to, message: Message::Drain } => Some(*to),
            _ => None,
        });
        packet(&mut bench, now);
        assert!(now < 2_000 * MS, "nothing is drained");
    }
    let drained = drained.unwrap();
    let rest = members(&mut bench, &mut now, 5 * MS, 9_200);
    assert!(rest.len() == 2 && !rest.contains(&drained), "the others go on: {rest:?}");
    let (flow, epoch) = bench
        .take()
        .iter()
        .find_map(|order| match order {
            Order::Send { to, message: Message::Part { flow, epoch, last: Some(_) } } if *to == drained => {
                Some((*flow, *epoch))
            }
            _ => None,
        })
        .unwrap();
    // It has not heard of the packets that are on their way to it.
    bench.receive(now, drained, Message::Drained);
    members(&mut bench, &mut now, 5 * MS, 9_200);
    let asked = |orders: Vec<Order>| orders.contains(&Order::Send { to: drained, message: Message::Drain });
    assert_eq!((bench.state(drained.0), asked(bench.take())), (UnitState::Draining, false));
    bench.receive(now, drained, Message::Parted { flow, epoch });
    members(&mut bench, &mut now, MS, 9_200);
    assert!(asked(bench.take()), "now it may have nothing left");
    bench.receive(now, drained, Message::Drained);
    assert_eq!((bench.state(drained.0), bench.take()), (UnitState::Off, vec![Order::Stop(drained)]));
    assert_eq!(bench.router.counters().spreads, 1, "one epoch, all the time");
}

#[test]
fn what_a_flow_brought_while_it_was_spread_tells_what_to_expect() {
    let mut bench = bench(Spread::default());
    let (mut now, _) = begun(&mut bench);
    let mean_bps = bench.router.demand.of_new_flow_bps();
    assert!((2.3e8..2.5e8).contains(&mean_bps), "15 KB, as if in 500 us, whatever more comes: {mean_bps}");
    members(&mut bench, &mut now, 10 * MS, 6_000);
    // It falls silent, and begins again.
    now += 20 * MS;
    bench.advance(now);
    for order in bench.take() {
        if let Order::Send { to, message: Message::Part { flow, epoch, .. } } = order {
            bench.receive(now, to, Message::Parted { flow, epoch });
        }
    }
    packet(&mut bench, now);
    let [mean_after_bps, expected_bps] =
        [bench.router.demand.of_new_flow_bps(), bench.router.flows.get(0).estimate_bps];
    assert!((2.3e8..2.5e8).contains(&mean_after_bps), "{mean_after_bps}");
    assert!((2.3e8..2.5e8).contains(&expected_bps), "{expected_bps}");
    // Its rate falls in the midst of it all: that is what it is about to bring.
    let (mut now, _) = begun_at(&mut bench, now);
    members(&mut bench, &mut now, 10 * MS, 60_000);
    let expected_bps = bench.router.flows.get(0).estimate_bps;
    assert!((1.9e8..2.3e8).contains(&expected_bps), "{expected_bps}");
}

#[test]
fn provision_that_follows_demand_counts_headers() {
    let wanted = |replay_share: f32| {
        let spread = Spread { replay_share, ..Spread::default() };
        let config = Config {
            follow_at: Some(0.8),
            units_min: 4,
            units_max: 10,
            flows_max: 1_000,
            ..Config::default()
        };
        let mut bench = Bench::new(Config { spread: Some(spread), ..config });
        let mut now = 0;
        members(&mut bench, &mut now, 100 * MS, 4_600);
        bench.take().iter().filter(|order| matches!(order, Order::Start(_))).count()
    };
    // 2.6 Gbit/s are four units to 800 Mbit/s, but for what headers take.
    assert_eq!((wanted(0.0), wanted(0.2)), (0, 1));
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
    assert!(matches!(orders[0], Order::Send { message: Message::Told { end: Some(_), .. }, .. }));
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
