//! Starting and draining units.

use crate::message::{FromDispatcher, FromUnit, Handover, RefuseReason, UnitId};

use super::bench::{Bench, MS, fixed, release, send};
use crate::dispatcher::*;

/// One to three units; flows stay as long as their units do.
fn growing() -> Config {
    let config = Config { mode: Granularity::Flow, targets: TargetChoice::None, ..Config::default() };
    Config { units_min: 1, units_max: 3, flows_max: 20_000, ..config }
}

/// A packet to unit 0, big enough that it has no room for a while, and unit 1 started for the next
/// flow.
fn with_two_units() -> Bench {
    let mut bench = Bench::new(growing());
    bench.packet(0, 1, 20_000_000);
    assert_eq!(bench.packet(1, 2, 100).0, UnitId(0), "no room: queued (S44)");
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
    bench.dispatcher.membership().started(2, UnitId(1));
    bench
}

#[test]
fn a_unit_is_started_ahead_when_all_are_nearly_full() {
    // S42
    let mut bench = Bench::new(Config { units_min: 2, ..growing() });
    assert_eq!(bench.packet(0, 1, 63_000).0, UnitId(0));
    assert_eq!(bench.packet(1, 2, 100).0, UnitId(1));
    let mut now = 0;
    while bench.outputs.is_empty() {
        now += MS / 2;
        bench.feed(now, 1, 57_000); // 912 Mbit/s
        bench.feed(now, 2, if now < 200 * MS { 10_000 } else { 57_000 });
        bench.handle_timeout(now);
        assert!(now < 400 * MS);
    }
    assert!(now > 290 * MS, "one of them is not all: {now}");
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(2))]);
    let loads: Vec<f32> = bench.dispatcher.units().map(|unit| unit.load_bps).collect();
    assert!(loads[..2].iter().all(|&load| load > 900e6), "{loads:?}");
}

#[test]
fn a_unit_gets_nothing_before_it_is_ready_and_one_starts_at_a_time() {
    let mut bench = Bench::new(growing());
    bench.packet(0, 1, 20_000_000);
    for i in 1..100 {
        assert_eq!(bench.packet(i, 1 + i as u32, 1500).0, UnitId(0));
    }
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
    bench.dispatcher.membership().started(100, UnitId(2));
    assert_eq!(bench.state(2), UnitState::Off, "it was not ordered");
    bench.dispatcher.membership().started(100, UnitId(1));
    assert_eq!(bench.packet(101, 200, 1500).0, UnitId(1));
    assert_eq!(bench.dispatcher.counters().assignments_without_room, 99);
}

#[test]
fn an_idle_unit_is_drained_and_stopped() {
    // S43
    let mut bench = with_two_units();
    let flow = bench.packet(10, 3, 100).1.flow;
    let packet_ns = MS;
    assert_eq!(bench.packet(packet_ns, 3, 100).0, UnitId(1));
    let mut now = packet_ns;
    while bench.outputs.is_empty() {
        now = bench.dispatcher.next_timeout_ns();
        bench.feed(now, 1, 1000); // Unit 0 is never idle, and not full any more when unit 1 is.
        bench.handle_timeout(now);
        assert!(now < 300 * MS);
    }
    assert!(now >= packet_ns + 200 * MS && now <= packet_ns + 201 * MS, "{now}");
    let release = release((flow, 2), UnitId(0), 2, Handover::None);
    let adopt = FromDispatcher::Adopt { flow, epoch: 2, previous: UnitId(1), last: 2 };
    assert_eq!(bench.take(), [send(1, FromDispatcher::Drain), send(1, release), send(0, adopt)]);
    assert_eq!(bench.dispatcher.counters().flows_moved, 1);
    let (unit, stamp) = bench.packet(now + 1, 3, 100);
    assert_eq!((unit, stamp.seq, stamp.epoch), (UnitId(0), 3, 2));
    assert_eq!(stamp.handover, Handover::From { previous: UnitId(1), last: 2 });
    bench.handle_message(now + 2, UnitId(0), FromUnit::Drained);
    assert!(bench.take().is_empty(), "it was not asked");
    bench.handle_message(now + 2, UnitId(1), FromUnit::Drained);
    assert_eq!(bench.take(), [DispatcherOutput::Stop(UnitId(1))]);
    bench.handle_message(now + 3, UnitId(1), FromUnit::Drained);
    assert!(bench.take().is_empty() && bench.state(1) == UnitState::Off);
}

#[test]
fn the_first_units_stay_and_time_alone_then_brings_nothing() {
    let mut bench = Bench::new(fixed(2));
    bench.packet(0, 1, 100);
    let mut now = 0;
    while bench.dispatcher.next_timeout_ns() < u64::MAX {
        now = bench.dispatcher.next_timeout_ns();
        bench.handle_timeout(now);
    }
    assert!(now > 90 * MS && now < 110 * MS, "{now}");
    bench.handle_timeout(10_000 * MS);
    assert!(bench.take().is_empty());
    assert!([0, 1].iter().all(|&unit| bench.state(unit) == UnitState::Active));
    bench.packet(20_000 * MS, 1, 100);
    assert!(bench.dispatcher.next_timeout_ns() < u64::MAX);
}

#[test]
fn no_unit_is_drained_that_would_be_started_again() {
    let mut bench = with_two_units();
    // Unit 0 continues with 760 Mbit/s: more than 0.8 * 0.9 of its capacity.
    let mut now = MS;
    let mut run = |bench: &mut Bench, until: u64, len: u32| {
        while now < until {
            now += MS / 2;
            bench.feed(now, 1, len);
            bench.handle_timeout(now);
        }
    };
    run(&mut bench, 150 * MS, 47_500);
    run(&mut bench, 600 * MS, 47_500);
    assert_eq!(bench.state(1), UnitState::Active);
    run(&mut bench, 800 * MS, 40_000);
    assert_eq!(bench.state(1), UnitState::Draining, "640 Mbit/s");
}

#[test]
fn many_flows_move_a_part_at_a_time() {
    let mut bench = with_two_units();
    for flow in 0..10_000 {
        assert_eq!(bench.packet(3, 10 + flow, 100).0, UnitId(1));
    }
    bench.take();
    let (mut now, mut moved) = (3, Vec::new());
    while bench.dispatcher.units().nth(1).unwrap().flows > 0 {
        now = bench.dispatcher.next_timeout_ns();
        bench.handle_timeout(now);
        let adopted = |o: &DispatcherOutput| {
            matches!(o, DispatcherOutput::Send { message: FromDispatcher::Adopt { .. }, .. })
        };
        moved.push(bench.outputs.iter().filter(|order| adopted(order)).count());
        if moved.last() > Some(&0) && bench.dispatcher.counters().flowlets_by_drain == 0 {
            // A packet does not wait for its flow's turn: the unit gets nothing more.
            bench.take();
            let (unit, stamp) = bench.packet(now, 10 + 9_999, 100);
            assert_eq!((unit, stamp.epoch), (UnitId(0), 2));
            // Too early: it does not know of all that it owns.
            bench.handle_message(now, UnitId(1), FromUnit::Drained);
        }
        bench.outputs.retain(|order| *order == send(1, FromDispatcher::Drain));
    }
    moved.retain(|&moved| moved > 0);
    assert_eq!(moved.len(), 3);
    assert!(moved.iter().all(|&moved| moved <= MOVES_PER_BUCKET as usize), "{moved:?}");
    assert_eq!(moved.iter().sum::<usize>(), 9_999);
    assert_eq!(bench.outputs.last(), Some(&send(1, FromDispatcher::Drain)), "it is asked again");
    bench.handle_message(now + 1, UnitId(1), FromUnit::Drained);
    assert_eq!(bench.outputs.pop(), Some(DispatcherOutput::Stop(UnitId(1))));
}

#[test]
fn no_owner_is_its_own_target_when_its_flow_was_moved() {
    // S62. A long flowlet of unit 1 continues at unit 0, its target.
    let config = Config {
        mode: Granularity::Flowlet,
        gap_ns: 1_000 * MS,
        push_at: Some(0.5),
        size_max: 1_000_000,
        ..growing()
    };
    let mut bench = Bench::new(Config { targets: TargetChoice::First, targets_count: 1, ..config });
    bench.packet(0, 1, 20_000_000);
    bench.packet(1, 2, 100);
    bench.dispatcher.membership().started(2, UnitId(1));
    let (unit, stamp) = bench.packet(3, 3, 100);
    assert_eq!((unit, stamp.targets.unwrap().units()), (UnitId(1), &[UnitId(0)][..]));
    bench.handle_timeout(300 * MS);
    bench.take();
    let (unit, stamp) = bench.packet(300 * MS, 3, 600_000);
    assert_eq!((unit, stamp.epoch, stamp.targets), (UnitId(0), 2, None));
}

#[test]
fn flows_of_a_unit_that_drains_are_found_a_part_of_the_table_at_a_time() {
    let mut bench = Bench::new(Config { flows_max: 70_000, ..growing() });
    (0..FLOWS_SCANNED_PER_BUCKET).for_each(|flow| assert_eq!(bench.packet(0, flow, 100).0, UnitId(0)));
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
    bench.dispatcher.membership().started(1, UnitId(1));
    (0..10).for_each(|flow| assert_eq!(bench.packet(2, FLOWS_SCANNED_PER_BUCKET + flow, 100).0, UnitId(1)));
    let flows = |bench: &Bench| bench.dispatcher.units().nth(1).unwrap().flows;
    bench.handle_timeout(300 * MS);
    assert_eq!(
        (bench.state(1), flows(&bench)),
        (UnitState::Draining, 10),
        "all before them were looked through"
    );
    let deadline_ns = bench.dispatcher.next_timeout_ns();
    bench.handle_timeout(deadline_ns);
    assert_eq!(flows(&bench), 0);
}

#[test]
fn one_that_does_not_answer_is_asked_again() {
    let mut bench = with_two_units();
    bench.handle_timeout(300 * MS);
    assert_eq!(bench.take(), [send(1, FromDispatcher::Drain)]);
    bench.handle_timeout(499 * MS);
    assert!(bench.take().is_empty());
    bench.handle_timeout(500 * MS);
    assert_eq!(bench.take(), [send(1, FromDispatcher::Drain)]);
}

#[test]
fn buckets_are_balanced_over_units_that_come_and_go() {
    let mode = Granularity::Rss { buckets: 64, every_ns: Some(10 * MS) };
    let mut bench = Bench::new(Config { mode, units_min: 2, ..growing() });
    let mut now = 0;
    let mut run = |bench: &mut Bench, until: u64, len: u32| {
        while now < until {
            now += MS / 2;
            (0..200).for_each(|flow| bench.feed(now, flow, len));
            bench.handle_timeout(now);
            for order in bench.take() {
                match order {
                    DispatcherOutput::Start(unit) => bench.dispatcher.membership().started(now, unit),
                    DispatcherOutput::Send { to, message: FromDispatcher::Drain } => {
                        bench.handle_message(now, to, FromUnit::Drained);
                    }
                    _ => {}
                }
            }
        }
    };
    run(&mut bench, 200 * MS, 600); // 1.92 Gbit/s over two units
    run(&mut bench, 400 * MS, 600);
    let loads: Vec<f32> = bench.dispatcher.units().map(|unit| unit.load_bps / 1e6).collect();
    assert_eq!(bench.dispatcher.counters().units_started, 1);
    assert!(loads.iter().all(|&load| (600.0..680.0).contains(&load)), "{loads:?}");
    assert!(bench.dispatcher.counters().buckets_moved > 5);
    let fixed_mode = Granularity::Rss { buckets: 64, every_ns: None };
    let mut bench = Bench::new(Config { mode: fixed_mode, units_min: 2, ..growing() });
    run(&mut bench, 600 * MS, 600);
    let counters = bench.dispatcher.counters();
    assert_eq!((counters.units_started, counters.buckets_moved, counters.assignments_moved), (0, 0, 0));
}

/// Units follow total demand, at nine tenths of their capacity.
fn following() -> Config {
    Config {
        units_max: 3,
        targets: TargetChoice::None,
        scaling: ScalingRule::Demand { load: 0.9 },
        ..Config::default()
    }
}

#[test]
fn a_flowlet_without_room_starts_no_unit_that_demand_does_not_ask_for() {
    // S35, S42: 14 KB within T count as 224 Mbit/s, and add 1.12 Mbit/s to a load over 100 ms.
    let started = |config: Config| {
        let mut bench = Bench::new(config);
        for bucket in 0..400u64 {
            let now = bucket * MS / 2;
            (0..2).for_each(|flow| bench.feed(now, 10 * flow + bucket as u32 % 10, 14_000));
            (0..3).for_each(|flow| bench.feed(now, 100 + flow, 8_000));
            bench.handle_timeout(now);
        }
        bench.dispatcher.counters().units_started
    };
    assert_eq!(
        started(Config { scaling: ScalingRule::Room, ..following() }),
        1,
        "832 Mbit/s do not fit, as published"
    );
    assert_eq!(started(following()), 0);
}

#[test]
fn a_unit_that_leaves_is_drained_and_not_the_one_in_its_place() {
    for scaling in [ScalingRule::Room, following().scaling] {
        let mut bench = Bench::new(Config { scaling, units_min: 1, idle_ns: MS, ..following() });
        bench.feed(MS, 1, 100);
        bench.dispatcher.membership().remove(MS, UnitId(0), &mut bench.outputs);
        assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
        bench.dispatcher.membership().started(10 * MS, UnitId(1));
        for bucket in 20..60 {
            bench.handle_timeout(bucket * MS);
        }
        assert_eq!((bench.state(0), bench.state(1)), (UnitState::Draining, UnitState::Active), "{scaling:?}");
        let orders = bench.take();
        assert!(!orders.iter().any(|order| matches!(order, DispatcherOutput::Start(_))), "{orders:?}");
    }
}

#[test]
fn units_come_and_go_with_all_that_comes() {
    let mut bench = Bench::new(following());
    let mut now = 0;
    let mut run = |bench: &mut Bench, buckets: u64, len: u32| {
        let mut outputs = Vec::new();
        for _ in 0..buckets {
            now += MS / 2;
            (0..20).for_each(|flow| bench.feed(now, flow, len));
            bench.handle_timeout(now);
            for order in bench.take() {
                match order {
                    DispatcherOutput::Start(unit) => bench.dispatcher.membership().started(now, unit),
                    DispatcherOutput::Send { to, message: FromDispatcher::Drain } => {
                        bench.handle_message(now, to, FromUnit::Drained)
                    }
                    _ => {}
                }
                outputs.push(order);
            }
        }
        outputs
    };
    // 1.28 Gbit/s.
    assert!(run(&mut bench, 100, 4_000).contains(&DispatcherOutput::Start(UnitId(1))));
    assert_eq!([bench.state(1), bench.state(2)], [UnitState::Active, UnitState::Off]);
    // 640 Mbit/s, of which each unit has its share: none is idle.
    let outputs = run(&mut bench, 140, 2_000);
    assert!(outputs.contains(&send(1, FromDispatcher::Drain)), "{outputs:?}");
    run(&mut bench, 20, 2_000);
    assert_eq!(bench.state(1), UnitState::Off);
    assert_eq!(bench.packet(200 * MS, 3, 100).0, UnitId(0));
}

#[test]
fn an_idle_unit_is_drained_while_others_are_full_if_one_of_them_has_room() {
    let state_after = |drain_when| {
        let config = Config { units_min: 3, units_max: 4, drain_when, idle_ns: 50 * MS, ..growing() };
        let mut bench = Bench::new(config);
        // Each flow fills a unit for a moment; for the last one, another is started.
        (0..3)
            .for_each(|flow| assert_eq!(bench.packet(flow, flow as u32, 20_000_000).0, UnitId(flow as u16)));
        bench.packet(3, 3, 100);
        bench.dispatcher.membership().started(4, UnitId(3));
        let mut now = MS;
        while now < 400 * MS {
            now += MS / 2;
            for (flow, len) in [(0, 61_000), (1, 61_000), (2, 31_000)] {
                bench.feed(now, flow, len); // 976, 976 and 496 Mbit/s: 816 in the mean
            }
            bench.handle_timeout(now);
        }
        bench.state(3)
    };
    assert_eq!(state_after(DrainCondition::MeanIsBelow), UnitState::Active);
    assert_eq!(state_after(DrainCondition::OneIsBelow), UnitState::Draining);
}

#[test]
fn a_flow_whose_state_is_refused_goes_back() {
    let mut bench = Bench::new(Config { units_min: 2, mode: Granularity::Packet, ..Config::default() });
    let (first, stamp) = bench.packet(0, 1, 100);
    let (second, moved) = bench.packet(1, 1, 100);
    assert_eq!((first, second, moved.epoch), (UnitId(0), UnitId(1), 2));
    bench.take();
    let refuse = |epoch| {
        let (flow, reason, holder) = (stamp.flow, RefuseReason::NoRoom, UnitId(0));
        FromUnit::Refuse { flow, epoch, reason, holder }
    };
    bench.handle_message(2, UnitId(0), refuse(2));
    bench.handle_message(2, UnitId(1), refuse(1));
    assert_eq!(bench.take(), [], "not the owner, or not its epoch");
    bench.handle_message(2, UnitId(1), refuse(2));
    let start = Handover::From { previous: UnitId(0), last: 1 };
    let release = release((stamp.flow, 3), UnitId(0), 2, start);
    let adopt = FromDispatcher::Adopt { flow: stamp.flow, epoch: 3, previous: UnitId(1), last: 2 };
    assert_eq!(bench.take(), [send(1, release), send(0, adopt)]);
    bench.handle_message(3, UnitId(1), refuse(2));
    assert_eq!((bench.take(), bench.dispatcher.counters().states_refused), (vec![], 1));
}

#[test]
fn a_flow_does_not_return_to_a_unit_that_refused_its_state() {
    let config = Config { units_min: 2, units_max: 3, mode: Granularity::Packet, ..Config::default() };
    let mut bench = Bench::new(config);
    let (_, stamp) = bench.packet(0, 1, 100);
    assert_eq!(bench.packet(1, 1, 100).0, UnitId(1));
    let (flow, reason, holder) = (stamp.flow, RefuseReason::NoRoom, UnitId(0));
    let refusal = FromUnit::Refuse { flow, epoch: 2, reason, holder };
    bench.handle_message(2, UnitId(1), refusal);
    let next = |bench: &mut Bench, count| -> Vec<u16> {
        (0..count).map(|i| bench.packet(3 + i, 1, 100).0.0).collect()
    };
    assert_eq!(next(&mut bench, 4), [0, 0, 0, 0], "nothing else is active");
    bench.take();
    bench.dispatcher.membership().add(&mut bench.outputs);
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(2))]);
    bench.dispatcher.membership().started(10, UnitId(2));
    let units = next(&mut bench, 9);
    assert!(units.contains(&2) && !units.contains(&1), "{units:?}");
}
