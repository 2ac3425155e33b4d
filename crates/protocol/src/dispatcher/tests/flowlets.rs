//! Flows, flowlets and the stamps of their packets.

use crate::message::{FlowId, FromDispatcher, FromUnit, Handover, ReplicaTargets, UnitId};

use super::bench::{Bench, MS, fixed, key, release, send};
use crate::dispatcher::*;

#[test]
fn defaults_are_those_of_the_paper() {
    let config = Config::default();
    assert_eq!((config.gap_ns, config.size_max), (500_000, 15_000)); // S30, S31
    assert_eq!((config.lambda, config.targets_count), (0.25, 3)); // S37, S55
    assert_eq!((config.bucket_ns, config.buckets), (500_000, 200)); // S40
    assert_eq!((config.capacity_bps, config.start_at), (1_000_000_000, 0.9)); // S41, S42
}

#[test]
fn a_gap_longer_than_t_cuts() {
    // S29, S30
    let mut bench = Bench::new(fixed(1));
    bench.packet(0, 1, 100);
    bench.packet(500_000, 1, 100);
    assert_eq!(bench.dispatcher.counters().flowlets(), 1);
    bench.packet(1_000_001, 1, 100);
    let counters = bench.dispatcher.counters();
    assert_eq!((counters.flowlets_of_new_flows, counters.flowlets_by_gap, counters.assignments), (1, 1, 2));
}

#[test]
fn a_packet_that_would_make_it_longer_than_b_cuts() {
    // S29, S31
    let mut bench = Bench::new(fixed(1));
    (0..10).for_each(|i| bench.feed(i, 1, 1500));
    assert_eq!(bench.dispatcher.counters().flowlets_by_size, 0, "15,000 bytes are not more than 15,000");
    bench.packet(10, 1, 1);
    assert_eq!(bench.dispatcher.counters().flowlets_by_size, 1);
    bench.packet(11, 1, 14_999);
    assert_eq!(bench.dispatcher.counters().flowlets_by_size, 1, "the new one began with 1 byte");
    bench.packet(12, 1, 1);
    assert_eq!(bench.dispatcher.counters().flowlets_by_size, 2);
    assert_eq!(bench.dispatcher.counters().bytes, 30_001);
    let mut uncut = Bench::new(Config { size_max: u64::MAX, ..fixed(1) });
    (0..100).for_each(|i| uncut.feed(i, 1, u32::MAX));
    assert_eq!(uncut.dispatcher.counters().flowlets(), 1);
}

#[test]
fn packets_are_numbered_and_both_directions_are_one_flow() {
    // S58, S7
    let mut bench = Bench::new(fixed(2));
    for seq in 1..=5 {
        let (_, stamp) = bench.packet(seq, 7, 100);
        assert_eq!((stamp.seq, stamp.epoch, stamp.handover), (seq, 1, Handover::None));
        assert_eq!(stamp.flow, FlowId { index: 0, generation: 0 });
    }
    assert_eq!(bench.packet(6, 8, 100).1.seq, 1);
}

#[test]
fn an_owner_that_changes_is_told_first() {
    // design.md 3.1. Unit 0 is filled by a flow, so that the next flowlet of another one goes
    // elsewhere.
    let mut bench = Bench::new(Config { targets: TargetChoice::None, lambda: 0.0, ..fixed(2) });
    let (unit, _) = bench.packet(0, 1, 1000);
    assert_eq!(unit, UnitId(0));
    bench.packet(0, 2, 200_000);
    bench.take();
    let (unit, stamp) = bench.packet(600_000, 1, 1000);
    assert_eq!((unit, stamp.seq, stamp.epoch), (UnitId(1), 2, 2));
    assert_eq!(stamp.handover, Handover::From { previous: UnitId(0), last: 1 });
    let release = release((stamp.flow, 2), UnitId(1), 1, Handover::None);
    assert_eq!(bench.take(), [send(0, release)]);
    let (unit, again) = bench.packet(700_000, 1, 1000);
    assert_eq!((unit, again.seq), (UnitId(1), 3));
    assert_eq!(again.handover, stamp.handover, "the same on every packet of the epoch");
    assert!(bench.take().is_empty());
    assert_eq!(bench.dispatcher.counters().assignments_moved, 1);
    assert_eq!(bench.dispatcher.units().map(|unit| unit.flows).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_spike_counts_at_once() {
    // S45: a flow's first 15,000 bytes come at once. Its next flowlet is expected to bring half of
    // 240 Mbit/s.
    let config = Config { alpha: 0.5, lambda: 1.0, targets: TargetChoice::None, ..fixed(2) };
    let mut bench = Bench::new(Config { capacity_bps: 300_000_000, ..config });
    (0..10).for_each(|i| bench.feed(i, 1, 1500));
    let (unit, stamp) = bench.packet(10, 1, 1500);
    assert_eq!((unit, stamp.epoch), (UnitId(1), 2), "240 Mbit/s and half as much are more than 300");
}

#[test]
fn a_burst_keeps_flowlets_away_where_there_is_an_alarm() {
    // S105: 2 Gbit/s for 2 ms, of a unit that was silent for 200 ms.
    let unit_of_next = |alarm_buckets| {
        let config =
            Config { mode: Granularity::Flow, targets: TargetChoice::None, alarm_buckets, ..fixed(2) };
        let mut bench = Bench::new(config);
        bench.feed(0, 1, 100);
        for i in 0..20 {
            bench.feed(200 * MS + i * MS / 10, 1, 25_000);
        }
        let burst_ns = 202 * MS;
        let at_once = bench.packet(burst_ns, 2, 100).0.0;
        bench.packet(burst_ns + 3 * MS, 3, 100);
        (at_once, bench.packet(burst_ns + 3 * MS, 4, 100).0.0)
    };
    assert_eq!(unit_of_next(0), (0, 0), "40 Mbit/s over 100 ms");
    assert_eq!(unit_of_next(4), (1, 0), "the burst has passed then");
    let mut bench =
        Bench::new(Config { mode: Granularity::Flow, units_max: 2, alarm_buckets: 4, ..fixed(1) });
    bench.feed(0, 1, 100);
    (0..20).for_each(|i| bench.feed(200 * MS + i * MS / 10, 1, 25_000));
    bench.handle_timeout(202 * MS);
    assert!(bench.take().is_empty(), "a unit is not started ahead for a burst");
    bench.packet(202 * MS, 2, 100);
    assert_eq!(
        bench.take(),
        [DispatcherOutput::Start(UnitId(1))],
        "but for a flow that there is no room for (S44)"
    );
}

#[test]
fn a_flowlet_stays_where_it_is_if_it_is_to_as_long_as_its_unit_is_not_full() {
    // Unit 0 is full when the flow begins at unit 1, which has 12 Mbit/s. It is empty, and so
    // chosen, when the flow's next flowlet begins.
    let second = |stay_below: Option<f32>, after_ns: u64| {
        let config = Config { stay_below, choice: UnitChoice::LowestId, lambda: 0.0, ..fixed(2) };
        let mut bench = Bench::new(config);
        bench.feed(0, 2, 13_000_000);
        assert_eq!(bench.packet(1, 1, 50).0, UnitId(1));
        (1..=255).for_each(|i| bench.feed(i * 400_000, 1, 600));
        bench.packet(255 * 400_000 + after_ns, 1, 15_000).0
    };
    let behind_gap = [None, Some(0.5), Some(0.01)].map(|share| second(share, 600_000));
    assert_eq!(behind_gap, [UnitId(0), UnitId(1), UnitId(0)]);
    let behind_size = [None, Some(0.5), Some(0.01)].map(|share| second(share, 1_000));
    assert_eq!(
        behind_size,
        [UnitId(0), UnitId(1), UnitId(1)],
        "its state could not be elsewhere in time (S62)"
    );
}

/// Four units; the first has flow 1, whose state is replicated to the next two. By `now_ns`, other
/// flows have loaded the units to these Mbit/s.
fn with_copies(config: Config, now_ns: u64, mbps: [u64; 4]) -> Bench {
    let mut bench = Bench::new(Config { targets: TargetChoice::First, targets_count: 2, ..config });
    let (unit, stamp) = bench.packet(0, 1, 1_000);
    assert_eq!((unit, stamp.targets.unwrap().units()), (UnitId(0), &[UnitId(1), UnitId(2)][..]));
    bench.handle_timeout(now_ns);
    for (unit, mbps) in (0..).zip(mbps) {
        let sent = if unit == 0 { 1_000 } else { 0 };
        let len = (mbps * now_ns / 8_000 - sent) as u32;
        bench.dispatcher.refuse_packet(now_ns, UnitId(unit), len);
    }
    bench
}

#[test]
fn what_leaves_a_full_unit_goes_where_its_state_is() {
    let next = |stay_below, mbps| {
        let config = Config { stay_below: Some(stay_below), ..fixed(4) };
        with_copies(config, 600_000, mbps).packet(600_000, 1, 100).0
    };
    assert_eq!(next(0.95, [940, 300, 200, 100]), UnitId(0), "it is not full");
    assert_eq!(next(0.95, [960, 300, 200, 100]), UnitId(2), "of the two the less loaded one");
    assert_eq!(next(0.2, [1_000, 300, 200, 100]), UnitId(1), "both are loaded to that: the published choice");
}

#[test]
fn what_leaves_a_full_unit_goes_to_the_least_loaded_one_if_all_have_its_state() {
    let mut bench = Bench::new(Config { stay_below: Some(0.95), targets: TargetChoice::All, ..fixed(4) });
    assert_eq!(bench.packet(0, 1, 100).0, UnitId(0));
    bench.handle_timeout(600_000);
    for (unit, mbps) in [(0, 990), (1, 300), (2, 200), (3, 100)] {
        bench.dispatcher.refuse_packet(600_000, UnitId(unit), mbps * 75);
    }
    assert_eq!(bench.packet(600_000, 1, 100).0, UnitId(3));
}

#[test]
fn behind_a_cut_by_size_it_goes_where_its_state_was_pushed() {
    // S62
    let config = Config { stay_below: Some(0.5), push_at: Some(0.9), ..fixed(4) };
    let mut bench = with_copies(config, 500_000, [600, 300, 200, 100]);
    assert_eq!(bench.packet(500_000, 1, 14_500).0, UnitId(2));
}

#[test]
fn copies_of_few_need_flows_that_stay() {
    let with = |stay_below, copy_from| Dispatcher::new(Config { stay_below, copy_from, ..fixed(1) }).is_ok();
    assert!(with(Some(0.9), Some(0.9)) && with(None, None));
    assert!(!with(None, Some(0.5)) && !with(Some(0.5), Some(0.6)) && !with(Some(0.5), Some(f32::NAN)));
    let packets =
        Config { mode: Granularity::Packet, stay_below: Some(0.9), copy_from: Some(0.8), ..fixed(6) };
    let targets = Bench::new(packets).packet(0, 1, 100).1.targets.unwrap();
    assert_eq!(targets.units().len(), 3, "these leave whatever their units' loads are");
}

#[test]
fn behind_a_cut_by_size_it_leaves_a_unit_that_has_more_than_it_can_take() {
    // S62
    let next = |mbps| {
        let config = Config { stay_below: Some(0.5), ..fixed(4) };
        with_copies(config, 500_000, [mbps, 300, 200, 100]).packet(500_000, 1, 14_500).0
    };
    assert_eq!([next(600), next(1_000), next(1_001)], [UnitId(0), UnitId(0), UnitId(1)]);
}

#[test]
fn states_are_not_copied_from_units_with_room_enough() {
    let targets = |copy_from, mbps: u32| {
        let config = Config { stay_below: Some(0.95), copy_from: Some(copy_from), ..fixed(4) };
        let mut bench = Bench::new(config);
        bench.dispatcher.refuse_packet(0, UnitId(0), mbps * 125 / 2);
        bench.packet(0, 1, 100).1.targets.unwrap().units().len()
    };
    assert_eq!(targets(0.8, 700), 0, "the next flowlet stays");
    assert_eq!(targets(0.8, 850), 3);
}

#[test]
fn a_flow_stays_where_it_is_in_flow_mode() {
    // S6
    let mut bench = Bench::new(Config { mode: Granularity::Flow, ..fixed(3) });
    for i in 0..200 {
        assert_eq!(bench.packet(i * MS / 10, 1, 15_000).0, UnitId(0));
    }
    assert_eq!(bench.packet(20 * MS, 2, 100).0, UnitId(1), "the first unit is full");
    assert_eq!(bench.dispatcher.counters().flowlets(), 2);
}

#[test]
fn an_overloaded_unit_loses_a_flow_when_a_period_is_over() {
    // S88
    let mut bench = Bench::new(Config { mode: Granularity::SmartFlow { every_ns: 50 * MS }, ..fixed(2) });
    for i in 0..49 {
        assert_eq!(bench.packet(i * MS, 1, 200_000).0, UnitId(0), "1.6 Gbit/s");
    }
    let (unit, stamp) = bench.packet(50 * MS, 1, 200_000);
    assert_eq!((unit, stamp.epoch), (UnitId(1), 2));
}

#[test]
fn packets_are_sprayed_round_robin() {
    // S5
    let mut bench = Bench::new(Config { mode: Granularity::Packet, ..fixed(3) });
    let units: Vec<u16> = (0..6).map(|i| bench.packet(i, 1, 100).0.0).collect();
    assert_eq!(units, [0, 1, 2, 0, 1, 2]);
    let (_, stamp) = bench.packet(6, 1, 100);
    assert_eq!((stamp.seq, stamp.epoch), (7, 7));
    assert_eq!(bench.take().len(), 6, "a release each time");
}

#[test]
fn targets_last_as_long_as_their_flowlet() {
    // S54, S55
    let mut bench = Bench::new(Config { lambda: 1.0, ..fixed(6) });
    let first = bench.packet(0, 1, 100).1.targets.unwrap();
    assert_eq!(first.units().len(), 3);
    assert!((1..5).all(|i| bench.packet(i, 1, 100).1.targets.is_none()), "they are said once");
    let all: std::collections::BTreeSet<Vec<UnitId>> =
        (1..50).map(|i| bench.packet(i * MS, 1, 100).1.targets.unwrap().units().to_vec()).collect();
    assert!(all.len() > 5, "other flowlets have others");
    let mut bench = Bench::new(Config { targets: TargetChoice::All, ..fixed(6) });
    assert_eq!(bench.packet(0, 1, 100).1.targets, Some(ReplicaTargets::ALL));
}

#[test]
fn the_last_packets_before_a_cut_by_size_ask_for_copies_at_once() {
    // S62
    let config = Config { push_at: Some(0.9), targets: TargetChoice::First, ..fixed(6) };
    let mut bench = Bench::new(config.clone());
    for round in 0..3 {
        for i in 0..10 {
            let (unit, stamp) = bench.packet(round * 10 + i, 1, 1500);
            let said = stamp.targets.map(|targets| (targets.units().len(), targets.are_at_once()));
            assert_eq!(said, [(0, (3, false)), (9, (3, true))].into_iter().find(|s| s.0 == i).map(|s| s.1));
            assert!(stamp.targets.is_none_or(|targets| !targets.contains(unit)));
        }
    }
    let counters = bench.dispatcher.counters();
    assert_eq!((counters.flowlets_by_size, counters.pushes), (2, 3));
    let said = |targets: Option<ReplicaTargets>| targets.map(|targets| targets.are_at_once());
    assert_eq!(said(bench.packet(30, 2, 14_000).1.targets), Some(true), "the first one may be the last one");
    let mut small = Bench::new(config.clone());
    let marked = (0..150).filter(|&i| said(small.packet(i, 1, 100).1.targets) == Some(true)).count();
    assert_eq!(marked, 15, "which one is the last is not known");
    for change in [
        |c: &mut Config| c.push_at = None,
        |c: &mut Config| c.mode = Granularity::Flow,
        |c: &mut Config| c.targets = TargetChoice::None,
        |c: &mut Config| c.size_max = u64::MAX,
    ] {
        let mut config = config.clone();
        change(&mut config);
        let mut bench = Bench::new(config);
        assert!((0..30).all(|i| said(bench.packet(i, 1, 1500).1.targets) != Some(true)));
    }
}

#[test]
fn a_flow_ends_if_its_owner_has_seen_all_of_it() {
    // design.md 3.9
    let mut bench = Bench::new(Config { targets: TargetChoice::First, ..fixed(3) });
    let (_, stamp) = bench.packet(0, 1, 100);
    let flow = stamp.flow;
    bench.packet(1, 1, 100);
    let expire = |epoch, seq| FromUnit::Expire { flow, epoch, seq };
    for (from, epoch, seq) in [(0, 1, 1), (0, 1, 3), (0, 2, 2), (1, 1, 2)] {
        bench.handle_message(2, UnitId(from), expire(epoch, seq));
    }
    assert!(bench.take().is_empty(), "it hears nothing, and goes on");
    assert_eq!(bench.dispatcher.counters().expiries_refused, 4);
    bench.handle_message(3, UnitId(0), expire(1, 2));
    let end = FromDispatcher::End { flow };
    assert_eq!(bench.take(), [0, 1, 2].map(|to| send(to, end.clone())));
    assert_eq!((bench.dispatcher.flows().count(), bench.dispatcher.units().map(|u| u.flows).sum()), (0, 0));
    bench.handle_message(4, UnitId(0), expire(1, 2));
    assert_eq!(bench.take(), [send(0, end)], "it has not heard of it");
    let (_, stamp) = bench.packet(5, 2, 100);
    assert_eq!(stamp.flow, FlowId { index: 0, generation: 1 });
}

#[test]
fn a_full_table_refuses_or_makes_room() {
    let mut bench = Bench::new(Config { flows_max: 2, ..fixed(1) });
    (1..=2).for_each(|flow| bench.feed(flow.into(), flow, 100));
    assert_eq!(bench.try_packet(3, 3, 100), None);
    assert_eq!(bench.dispatcher.counters().refused, 1);
    assert_eq!(bench.packet(4, 1, 100).1.seq, 2);
    let mut bench = Bench::new(Config { flows_max: 2, when_full: WhenFlowsFull::EndOldest, ..fixed(1) });
    (1..=2).for_each(|flow| bench.feed(flow.into(), flow, 100));
    bench.packet(3, 1, 100);
    assert_eq!(bench.try_packet(DISPLACED_AFTER_NS + 1, 3, 100), None, "something of it may be under way");
    let (_, stamp) = bench.packet(DISPLACED_AFTER_NS + 2, 3, 100);
    assert_eq!(stamp.flow, FlowId { index: 1, generation: 1 });
    assert_eq!(bench.take(), [send(0, FromDispatcher::End { flow: FlowId { index: 1, generation: 0 } })]);
    assert_eq!(bench.dispatcher.counters().flows_displaced, 1);
}

#[test]
fn a_flow_that_nobody_ends_is_forgotten() {
    // design.md 3.9
    let limit = 2 * DISPLACED_AFTER_NS;
    let config = Config { forget_after_ns: Some(limit), targets: TargetChoice::First, ..fixed(2) };
    let mut bench = Bench::new(config.clone());
    let flow = bench.packet(0, 1, 100).1.flow;
    let mut steps = 0;
    while bench.dispatcher.flows().count() > 0 {
        let now_ns = bench.dispatcher.next_timeout_ns();
        bench.handle_timeout(now_ns);
        if now_ns < limit {
            bench.feed(now_ns, 2, 100);
        }
        assert!(
            bench
                .take()
                .iter()
                .all(|order| now_ns >= limit && matches!(order, DispatcherOutput::Send { .. }))
        );
        assert!(now_ns < 4 * limit, "a second packet a bucket keeps the other one alive until it stops");
        steps += 1;
    }
    assert!(steps < 5000, "{steps}: not more often than there are buckets");
    assert_eq!(bench.dispatcher.counters().flows_forgotten, 2);
    assert_eq!(
        (bench.dispatcher.units().map(|unit| unit.flows).sum::<u32>(), bench.dispatcher.next_timeout_ns()),
        (0, u64::MAX)
    );
    bench.handle_message(4 * limit, UnitId(0), FromUnit::Expire { flow, epoch: 1, seq: 1 });
    assert_eq!(bench.take(), [send(0, FromDispatcher::End { flow })], "its owner is notified");

    let mut full = Bench::new(Config { flows_max: 1, ..config.clone() });
    full.packet(0, 1, 100);
    assert_eq!(full.try_packet(limit - 1, 2, 100), None);
    assert!(full.try_packet(limit, 2, 100).is_some(), "there is room for another one before its turn comes");
    let counters = full.dispatcher.counters();
    assert_eq!((counters.flows_displaced, counters.flows_forgotten), (1, 0));
    let mut never = Bench::new(Config { forget_after_ns: None, ..config });
    never.packet(0, 1, 100);
    while never.dispatcher.next_timeout_ns() < u64::MAX {
        never.handle_timeout(never.dispatcher.next_timeout_ns());
    }
    assert_eq!(never.dispatcher.flows().count(), 1);
}

#[test]
fn a_flow_of_one_packet_is_forgotten_without_another() {
    let mut bench = Bench::new(Config { forget_after_ns: Some(DISPLACED_AFTER_NS), ..fixed(1) });
    bench.handle_timeout(0);
    assert_eq!(bench.dispatcher.next_timeout_ns(), u64::MAX, "there is nothing to do");
    bench.feed(1, 1, 100);
    while bench.dispatcher.flows().count() > 0 {
        let now_ns = bench.dispatcher.next_timeout_ns();
        assert!(now_ns < 2 * DISPLACED_AFTER_NS);
        bench.handle_timeout(now_ns);
    }
}

#[test]
fn a_table_of_flows_is_forgotten_a_part_at_a_time() {
    let config = Config { forget_after_ns: Some(DISPLACED_AFTER_NS), flows_max: 10_000, ..fixed(1) };
    let mut bench = Bench::new(config);
    (0..10_000).for_each(|flow| bench.feed(1, flow, 100));
    let mut first_ns = None;
    while bench.dispatcher.flows().count() > 0 {
        let now_ns = bench.dispatcher.next_timeout_ns();
        bench.handle_timeout(now_ns);
        assert!(bench.take().len() <= FORGOTTEN_PER_BUCKET as usize);
        if bench.dispatcher.flows().count() < 10_000 {
            assert!(now_ns - *first_ns.get_or_insert(now_ns) < 60 * MS);
        }
    }
    assert!(first_ns.unwrap() < DISPLACED_AFTER_NS * 5 / 4 + 2 * MS);
}

#[test]
fn what_was_rewritten_reaches_the_same_flow() {
    // design.md 3.8
    let mut bench = Bench::new(fixed(1));
    let one = bench.packet(0, 1, 100).1.flow;
    let other = bench.packet(0, 2, 100).1.flow;
    bench.alias(one, &key(100)).unwrap();
    let (_, stamp) = bench.packet_with(1, &key(100), 100).unwrap();
    assert_eq!((stamp.flow, stamp.seq), (one, 2));
    assert_eq!(bench.alias(other, &key(100)), Err(AliasConflict { by: one }));
    assert_eq!(bench.alias(other, &key(1)), Err(AliasConflict { by: one }));
    bench.alias(one, &key(101)).unwrap();
    bench.alias(other, &key(100)).unwrap();
    assert_eq!(bench.packet_with(2, &key(100), 100).unwrap().1.flow, other);
    assert_eq!(bench.packet_with(2, &key(101), 100).unwrap().1.flow, one);
    bench.alias(one, &Default::default()).unwrap();
    bench.alias(one, &key(101)).unwrap();
    bench.alias(one, &key(1)).unwrap();
    assert_ne!(bench.packet_with(3, &key(101), 100).unwrap().1.flow, one, "its own key needs no alias");
    bench.handle_message(4, UnitId(0), FromUnit::Expire { flow: other, epoch: 1, seq: 2 });
    assert_ne!(bench.packet_with(5, &key(100), 100).unwrap().1.flow, other);
    bench.alias(other, &key(102)).unwrap();
    assert_eq!((bench.dispatcher.counters().aliases_late, bench.dispatcher.counters().aliases_taken), (1, 2));
}

#[test]
fn nonsense_is_refused() {
    let check = |change: fn(&mut Config)| {
        let mut config = Config { flows_max: 10, ..Config::default() };
        change(&mut config);
        Dispatcher::new(config).err().map(|error| error.to_string())
    };
    assert_eq!(check(|_| ()), None);
    assert_eq!(check(|c| c.gap_ns = 0).unwrap(), "gap_ns must not be 0");
    assert_eq!(check(|c| c.units_min = 0).unwrap(), "units_min must not be 0");
    assert!(check(|c| c.units_min = 11).unwrap().contains("units_max (10)"));
    assert!(check(|c| c.alpha = f32::NAN).unwrap().contains("alpha"));
    assert!(check(|c| c.lambda = 1.1).unwrap().contains("lambda must be 0 to 1"));
    assert!(check(|c| c.targets_count = 12).is_some());
    assert!(check(|c| c.mode = Granularity::SmartFlow { every_ns: 0 }).is_some());
    assert!(check(|c| c.mode = Granularity::Rss { buckets: 0, every_ns: None }).is_some());
    assert!(check(|c| c.buckets = 0).is_some());
    assert!(check(|c| c.flows_max = 0).is_some());
    assert!(check(|c| c.push_at = Some(1.0)).unwrap().contains("push_at must be above 0, below 1"));
    assert!(check(|c| c.forget_after_ns = Some(999_999_999)).unwrap().contains("at least 10^9"));
    assert!(check(|c| c.alarm_buckets = 201).unwrap().contains("alarm_buckets must be 0 to buckets"));
}

#[test]
fn a_flow_whose_last_packets_were_lost_ends_when_it_is_silent() {
    // design.md 3.9
    let mut bench = Bench::new(fixed(1));
    let flow = bench.packet(0, 1, 100).1.flow;
    bench.packet(1, 1, 100);
    let first_only = FromUnit::Expire { flow, epoch: 1, seq: 1 };
    bench.handle_message(DISPLACED_AFTER_NS, UnitId(0), first_only.clone());
    assert_eq!(bench.dispatcher.flows().count(), 1, "the second may be under way");
    bench.handle_message(DISPLACED_AFTER_NS + 1, UnitId(0), first_only);
    assert_eq!((bench.dispatcher.flows().count(), bench.dispatcher.counters().flows_expired), (0, 1));
}
