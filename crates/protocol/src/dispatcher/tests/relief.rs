//! NFActor's assignment: units in turn, or the least loaded one, and relief of those that drop
//! packets.

use crate::message::{FromDispatcher, FromUnit, UnitId};

use super::bench::{Bench, MS};
use crate::dispatcher::*;

const RULE: DropRule = DropRule { drops_max: 100, step: 500, period_ns: 100 * MS };

fn nfactor(choice: UnitChoice) -> Config {
    Config {
        mode: Granularity::Flow,
        choice,
        lambda: 0.0,
        scaling: ScalingRule::Drops(RULE),
        targets: TargetChoice::None,
        units_max: 3,
        flows_max: 20_000,
        ..Config::default()
    }
}

/// Every flow sends a packet every half millisecond.
fn run(bench: &mut Bench, now: &mut u64, buckets: u64, (flows, len): (u32, u32)) {
    for _ in 0..buckets {
        *now += MS / 2;
        (0..flows).for_each(|flow| bench.feed(*now, flow, len));
        bench.handle_timeout(*now);
    }
}

fn flows_of(bench: &Bench) -> Vec<u32> {
    bench.dispatcher.units().map(|unit| unit.flows).collect()
}

#[test]
fn flows_go_to_units_in_turn() {
    // A13, A15
    let mut bench = Bench::new(Config { units_min: 2, ..nfactor(UnitChoice::RoundRobin) });
    let units: Vec<u16> = (0..6).map(|flow| bench.packet(0, flow, 100 + 1_000 * flow).0.0).collect();
    assert_eq!(units, [0, 1, 0, 1, 0, 1], "whatever their load");
    assert!((0..6).all(|flow| bench.packet(1, flow, 100).0.0 == units[flow as usize]), "flows stay");
    bench.dispatcher.membership().add(&mut bench.outputs);
    assert_eq!(bench.packet(2, 10, 100).0, UnitId(0), "the new one is not ready");
    bench.dispatcher.membership().started(3, UnitId(2));
    let units: Vec<u16> = (20..26).map(|flow| bench.packet(4, flow, 100).0.0).collect();
    assert_eq!(units, [1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_unit_that_drops_packets_gives_half_its_load_to_a_new_one() {
    // A39: more than 100 drops within a period, 500 flows at a time.
    let (mut bench, mut now) = (Bench::new(nfactor(UnitChoice::LeastLoaded)), 0);
    run(&mut bench, &mut now, 400, (4_000, 10));
    bench.dispatcher.count_drops(now, UnitId(0), 100);
    run(&mut bench, &mut now, 400, (4_000, 10));
    assert_eq!(bench.take(), [], "a hundred are not too many");
    bench.dispatcher.count_drops(now, UnitId(0), 101);
    run(&mut bench, &mut now, 200, (4_000, 10));
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
    run(&mut bench, &mut now, 400, (4_000, 10));
    assert_eq!(flows_of(&bench), [4_000, 0, 0], "the new one is not ready");
    bench.dispatcher.membership().started(now, UnitId(1));
    let mut moved = Vec::new();
    for _ in 0..6 {
        run(&mut bench, &mut now, 1, (4_000, 10));
        moved.push(flows_of(&bench)[1]);
    }
    assert_eq!(moved[..4], [500, 1_000, 1_500, 2_000]);
    // The load is measured over a window that ends with the last packet.
    assert!(moved[4] == moved[5] && moved[5] < 2_020, "{moved:?}");
    let counters = bench.dispatcher.counters();
    let counts = (counters.flows_moved, counters.units_relieved, counters.drops);
    assert_eq!(counts, (moved[5].into(), 1, 201));
    let adopted = bench.take().iter().filter(|output| is_adopt(output)).count();
    assert_eq!(adopted, moved[5] as usize, "states move without waiting for packets");
}

fn is_adopt(output: &DispatcherOutput) -> bool {
    matches!(output, DispatcherOutput::Send { to: UnitId(1), message: FromDispatcher::Adopt { .. } })
}

#[test]
fn half_the_load_is_not_half_the_flows() {
    let (mut bench, mut now) = (Bench::new(nfactor(UnitChoice::LeastLoaded)), 0);
    // The first 100 flows have as much as all 1,000 others.
    let run = |bench: &mut Bench, now: &mut u64, buckets: u64| {
        for _ in 0..buckets {
            *now += MS / 2;
            (0..1_100).for_each(|flow| bench.feed(*now, flow, if flow < 100 { 400 } else { 40 }));
            bench.handle_timeout(*now);
        }
    };
    run(&mut bench, &mut now, 400);
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 200);
    bench.dispatcher.membership().started(now, UnitId(1));
    run(&mut bench, &mut now, 600);
    let flows = flows_of(&bench);
    assert!((95..=105).contains(&flows[1]), "{flows:?}");
    let loads: Vec<f32> = bench.dispatcher.units().map(|unit| unit.load_bps).collect();
    assert!((loads[0] / loads[1] - 1.0).abs() < 0.1, "{loads:?}");
}

#[test]
fn without_another_unit_the_least_loaded_one_takes_load() {
    let config = Config { units_min: 3, choice: UnitChoice::RoundRobin, ..nfactor(UnitChoice::RoundRobin) };
    let (mut bench, mut now) = (Bench::new(config), 0);
    let run = |bench: &mut Bench, now: &mut u64, buckets: u64| {
        for _ in 0..buckets {
            *now += MS / 2;
            (0..300).for_each(|flow| bench.feed(*now, flow, if flow % 3 == 0 { 300 } else { 60 }));
            bench.handle_timeout(*now);
        }
    };
    run(&mut bench, &mut now, 400);
    assert_eq!(flows_of(&bench), [100, 100, 100]);
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 800);
    // A hundred flows of 300 bytes, against as many of 60: two fifths of them move.
    let flows = flows_of(&bench);
    assert!((58..=62).contains(&flows[0]) && flows[2] == 100, "{flows:?}");
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 800);
    assert_eq!(flows_of(&bench)[1], flows[1], "then to the other one");
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 800);
    let counters = *bench.dispatcher.counters();
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 800);
    assert_eq!(bench.dispatcher.counters().flows_moved, counters.flows_moved, "no one has half as much");
}

#[test]
fn the_unit_with_the_least_load_goes_when_the_others_have_room() {
    let config = Config { units_min: 1, ..nfactor(UnitChoice::RoundRobin) };
    let (mut bench, mut now) = (Bench::new(config), 0);
    bench.packet(0, 0, 100);
    bench.dispatcher.membership().add(&mut bench.outputs);
    bench.dispatcher.membership().started(0, UnitId(1));
    // 800 Mbit/s each: more than one may have.
    run(&mut bench, &mut now, 1_000, (1_000, 100));
    assert_eq!(bench.dispatcher.counters().units_drained, 0);
    bench.take();
    // 320 Mbit/s in all; but as long as packets are dropped, none goes.
    for _ in 0..10 {
        run(&mut bench, &mut now, 200, (1_000, 20));
        bench.dispatcher.count_drops(now, UnitId(0), 1);
    }
    assert_eq!(bench.dispatcher.counters().units_drained, 0);
    run(&mut bench, &mut now, 500, (1_000, 20));
    assert_eq!(bench.dispatcher.counters().units_drained, 1);
    let drained = bench.take().into_iter().find_map(|output| match output {
        DispatcherOutput::Send { to, message: FromDispatcher::Drain } => Some(to),
        _ => None,
    });
    let drained = drained.unwrap();
    bench.handle_message(now, drained, FromUnit::Drained);
    assert_eq!(bench.state(drained.0), UnitState::Off);
    assert_eq!(flows_of(&bench).iter().sum::<u32>(), 1_000);
}

#[test]
fn refused_packets_are_demand() {
    let config = Config {
        units_max: 3,
        targets: TargetChoice::None,
        scaling: ScalingRule::Demand { load: 0.9 },
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    // 800 Mbit/s are dispatched, and as much is refused.
    for bucket in 1..=200 {
        let now = bucket * MS / 2;
        (0..10).for_each(|flow| bench.feed(now, flow, 5_000));
        (0..10).for_each(|_| bench.dispatcher.refuse_packet(now, UnitId(0), 5_000));
        bench.handle_timeout(now);
    }
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(1))]);
    let load_bps = bench.dispatcher.units().next().unwrap().load_bps;
    assert!((1.5e9..1.7e9).contains(&load_bps), "{load_bps}");
    assert_eq!(bench.dispatcher.counters().drops, 2_000);
}

#[test]
fn a_lost_unit_is_not_relieved() {
    let (mut bench, mut now) = (Bench::new(nfactor(UnitChoice::LeastLoaded)), 0);
    run(&mut bench, &mut now, 400, (4_000, 10));
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 200, (4_000, 10));
    bench.dispatcher.membership().lose(now, UnitId(1), &mut bench.outputs);
    bench.take();
    run(&mut bench, &mut now, 400, (4_000, 10));
    assert_eq!((flows_of(&bench), bench.take()), (vec![4_000, 0, 0], vec![]));
    bench.dispatcher.count_drops(now, UnitId(0), 1_000);
    run(&mut bench, &mut now, 400, (4_000, 10));
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(2))], "the next one takes its place");
}

#[test]
fn modes_that_assign_units_by_themselves_are_refused() {
    let config = Config { mode: Granularity::Packet, ..nfactor(UnitChoice::RoundRobin) };
    let error = Dispatcher::new(config).err().unwrap();
    assert!(error.to_string().contains("scaling by drops needs mode flow"), "{error}");
    let rule = DropRule { step: 0, ..RULE };
    let config = Config { scaling: ScalingRule::Drops(rule), ..nfactor(UnitChoice::RoundRobin) };
    assert_eq!(Dispatcher::new(config).err().unwrap().to_string(), "scaling.step must not be 0");
}
