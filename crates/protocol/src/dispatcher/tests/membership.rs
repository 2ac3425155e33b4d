//! Units that leave or crash on their own account.

use crate::message::{FromDispatcher, FromUnit, RefuseReason, UnitId};

use super::bench::{Bench, MS, fixed, send};
use crate::dispatcher::*;

/// Flows 1 to 4, in turn at units 0 and 1; their first packets' stamps.
fn two_units() -> (Bench, Vec<(UnitId, crate::message::Stamp)>) {
    let config = Config { mode: Granularity::Packet, targets: TargetChoice::None, ..fixed(2) };
    let mut bench = Bench::new(Config { units_max: 3, ..config });
    let packets = (1..=4).map(|flow| bench.packet(1, flow, 100)).collect();
    assert_eq!(bench.take(), []);
    (bench, packets)
}

#[test]
fn a_crash_ends_the_flows_of_its_unit_and_no_others() {
    let (mut bench, before) = two_units();
    bench.dispatcher.membership().lose(2, UnitId(0), &mut bench.outputs);
    assert_eq!(bench.state(0), UnitState::Lost);
    assert_eq!((bench.dispatcher.counters().flows_lost, bench.dispatcher.flows().count()), (2, 2));
    assert!(bench.take().contains(&DispatcherOutput::Start(UnitId(2))), "units_min run");
    for (flow, (unit, stamp)) in (1..).zip(before) {
        let (at, next) = bench.packet(3, flow, 100);
        assert_eq!((at, next.flow == stamp.flow), (UnitId(1), unit == UnitId(1)), "{flow}");
    }
    bench.dispatcher.membership().started(4, UnitId(0));
    bench.dispatcher.membership().lose(5, UnitId(0), &mut bench.outputs);
    assert_eq!((bench.state(0), bench.dispatcher.counters().units_lost), (UnitState::Lost, 1));
}

#[test]
fn a_flow_whose_state_was_on_its_way_from_a_lost_unit_ends_at_its_owner() {
    let (mut bench, before) = two_units();
    let flow = before[0].1.flow;
    assert_eq!(bench.packet(2, 2, 100).0, UnitId(0), "its turn");
    let (owner, stamp) = bench.packet(2, 1, 100);
    assert_eq!((owner, stamp.flow, stamp.epoch), (UnitId(1), flow, 2));
    bench.dispatcher.membership().lose(3, UnitId(0), &mut bench.outputs);
    assert_eq!(bench.dispatcher.flows().at(flow.index), Some(flow), "the state may have arrived");
    bench.take();
    bench.handle_message(4, UnitId(1), FromUnit::Lost { flow, epoch: 1 });
    assert_eq!(bench.take(), [], "an earlier epoch");
    bench.handle_message(4, UnitId(1), FromUnit::Lost { flow, epoch: 2 });
    assert_eq!(bench.take(), [send(1, FromDispatcher::End { flow })]);
    assert_eq!(bench.dispatcher.flows().at(flow.index), None);
}

#[test]
fn a_refused_state_whose_holder_was_lost_is_lost() {
    let (mut bench, _) = two_units();
    bench.packet(2, 2, 100);
    let (_, stamp) = bench.packet(2, 1, 100);
    bench.dispatcher.membership().lose(3, UnitId(0), &mut bench.outputs);
    let (flow, epoch, reason) = (stamp.flow, stamp.epoch, RefuseReason::NoRoom);
    bench.handle_message(4, UnitId(1), FromUnit::Refuse { flow, epoch, reason, holder: UnitId(0) });
    assert_eq!(bench.dispatcher.flows().at(flow.index), None);
}

#[test]
fn a_unit_that_leaves_hands_its_flows_over_and_the_last_one_stays() {
    let (mut bench, _) = two_units();
    bench.dispatcher.membership().remove(2, UnitId(0), &mut bench.outputs);
    assert_eq!(bench.take(), [send(0, FromDispatcher::Drain), DispatcherOutput::Start(UnitId(2))]);
    bench.handle_timeout(2 + MS);
    let adopted = |output: &DispatcherOutput| {
        matches!(output, DispatcherOutput::Send { to: UnitId(1), message: FromDispatcher::Adopt { .. } })
    };
    assert_eq!(bench.take().iter().filter(|&output| adopted(output)).count(), 2);
    bench.handle_message(3 + MS, UnitId(0), FromUnit::Drained);
    assert_eq!(bench.take(), [DispatcherOutput::Stop(UnitId(0))]);
    bench.dispatcher.membership().remove(4 + MS, UnitId(1), &mut bench.outputs);
    assert_eq!(bench.state(1), UnitState::Active, "no other one can take its flows");
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(0))], "it does not count any more");
    bench.dispatcher.membership().started(5 + MS, UnitId(0));
    bench.handle_timeout(5 + 2 * MS);
    assert_eq!(bench.state(1), UnitState::Draining, "it goes as soon as one can");
}

/// Units that run from the beginning, whatever the load: here without any.
#[test]
fn units_min_run_whatever_happens_to_units() {
    let mut bench = Bench::new(Config { units_min: 3, units_max: 12, replaces_drained: true, ..fixed(3) });
    let starts = |bench: &mut Bench| {
        let started = bench.take().into_iter().filter_map(|output| match output {
            DispatcherOutput::Start(unit) => Some(unit.0),
            _ => None,
        });
        started.collect::<Vec<_>>()
    };
    // Several at once; one of them is lost before it has started.
    bench.dispatcher.membership().lose(1, UnitId(0), &mut bench.outputs);
    bench.dispatcher.membership().lose(1, UnitId(1), &mut bench.outputs);
    assert_eq!(starts(&mut bench), [3, 4]);
    bench.dispatcher.membership().lose(2, UnitId(3), &mut bench.outputs);
    assert_eq!(starts(&mut bench), [5]);
    bench.dispatcher.membership().started(3, UnitId(4));
    bench.dispatcher.membership().started(3, UnitId(5));
    // An operator drains a unit, and resumes it while its replacement starts.
    bench.dispatcher.membership().drain(4, UnitId(2), &mut bench.outputs).unwrap();
    assert_eq!(starts(&mut bench), [6]);
    bench.dispatcher.membership().resume(5, UnitId(2)).unwrap();
    bench.dispatcher.membership().started(6, UnitId(6));
    bench.handle_timeout(6 + MS);
    assert!(starts(&mut bench).is_empty());
    assert_eq!([2, 4, 5, 6].map(|unit| bench.state(unit)), [UnitState::Active; 4]);
}

#[test]
fn a_unit_that_crashes_while_it_is_off_never_starts() {
    let mut bench = Bench::new(Config { units_max: 4, ..fixed(2) });
    bench.dispatcher.membership().add(&mut bench.outputs);
    bench.dispatcher.membership().started(1, UnitId(2));
    bench.dispatcher.membership().drain(2, UnitId(2), &mut bench.outputs).unwrap();
    bench.handle_message(3, UnitId(2), FromUnit::Drained);
    assert_eq!(bench.state(2), UnitState::Off);
    bench.take();
    bench.dispatcher.membership().lose(4, UnitId(2), &mut bench.outputs);
    bench.dispatcher.membership().add(&mut bench.outputs);
    assert_eq!(bench.take(), [DispatcherOutput::Start(UnitId(3))]);
}

#[test]
fn buckets_of_units_that_are_all_lost_go_to_the_next_one() {
    let mode = Granularity::Rss { buckets: 8, every_ns: None };
    let mut bench = Bench::new(Config { mode, targets: TargetChoice::None, units_max: 4, ..fixed(2) });
    bench.dispatcher.membership().lose(1, UnitId(0), &mut bench.outputs);
    assert_eq!(bench.take(), [], "nothing would reach another one");
    bench.dispatcher.membership().lose(2, UnitId(1), &mut bench.outputs);
    assert!(bench.take().contains(&DispatcherOutput::Start(UnitId(2))));
    bench.dispatcher.membership().started(3, UnitId(2));
    assert!((1..9).all(|flow| bench.packet(4, flow, 100).0 == UnitId(2)));
}

#[test]
fn a_suspect_unit_keeps_its_flows_and_gets_no_new_ones() {
    let (mut bench, before) = two_units();
    bench.dispatcher.membership().suspect(UnitId(0), true);
    assert_eq!(bench.state(0), UnitState::Active);
    for (flow, (unit, _)) in (1..).zip(&before) {
        let (at, stamp) = bench.packet(2, flow, 100);
        assert!(*unit != UnitId(0) || at == UnitId(0), "{flow}");
        assert!(*unit != UnitId(0) || stamp.epoch == 1, "{flow} stays, although others move at each packet");
    }
    assert!((10..14).all(|flow| bench.packet(3, flow, 100).0 == UnitId(1)), "new ones go elsewhere");
    // If all are suspect, none is worse than another one.
    bench.dispatcher.membership().suspect(UnitId(1), true);
    let at = |bench: &mut Bench, flow| bench.packet(4, flow, 100).0;
    assert_ne!(at(&mut bench, 20), at(&mut bench, 21));
    bench.dispatcher.membership().suspect(UnitId(1), false);
    bench.dispatcher.membership().lose(5, UnitId(1), &mut bench.outputs);
    assert_eq!(at(&mut bench, 22), UnitId(0), "the only one");
    bench.dispatcher.membership().suspect(UnitId(0), false);
    assert_eq!(at(&mut bench, 23), UnitId(0));
}

#[test]
fn replicas_go_to_other_units_after_a_crash_a_move_and_a_start() {
    let config = Config { mode: Granularity::Flow, targets_count: 2, lambda: 0.0, ..fixed(3) };
    let config = Config { choice: UnitChoice::RoundRobin, units_max: 4, ..config };
    let mut bench = Bench::new(config);
    let targets = |bench: &mut Bench, now_ns, flow| {
        let (unit, stamp) = bench.packet(now_ns, flow, 100);
        (unit.0, stamp.targets.map(|targets| targets.units().iter().map(|unit| unit.0).collect::<Vec<_>>()))
    };
    assert_eq!(targets(&mut bench, 1, 1), (0, Some(vec![1, 2])));
    assert_eq!(targets(&mut bench, 1, 2), (1, Some(vec![0, 2])));
    assert_eq!(targets(&mut bench, 2, 2), (1, None), "it lasts");
    bench.dispatcher.membership().lose(3, UnitId(0), &mut bench.outputs);
    assert_eq!(bench.dispatcher.counters().recoveries, 1);
    assert_eq!(targets(&mut bench, 4, 1), (2, Some(vec![1])), "the new owner has not heard of any");
    assert_eq!(targets(&mut bench, 4, 2), (1, Some(vec![2])), "one is lost");
    bench.dispatcher.membership().started(5, UnitId(3));
    assert_eq!(targets(&mut bench, 6, 1), (2, Some(vec![1, 3])), "another one has come");
    bench.dispatcher.membership().drain(7, UnitId(2), &mut bench.outputs).unwrap();
    bench.handle_timeout(7 + 1_000 * MS);
    let (owner, named) = targets(&mut bench, 8 + 1_000 * MS, 1);
    assert!(owner != 2 && named.is_some(), "it has moved: {owner}, {named:?}");
    bench.dispatcher.membership().lose(9 + 1_000 * MS, UnitId(1), &mut bench.outputs);
    assert_eq!(bench.dispatcher.counters().flows_lost, 0);
}

#[test]
fn the_last_unit_continues_a_sheltered_flow_with_its_own_replica() {
    let config = Config { mode: Granularity::Flow, targets_count: 1, ..fixed(2) };
    let mut bench = Bench::new(Config { choice: UnitChoice::RoundRobin, ..config });
    let (_, stamp) = bench.packet(1, 1, 100);
    bench.dispatcher.membership().suspect(UnitId(0), true);
    let (unit, next) = bench.packet(2, 1, 100);
    assert_eq!((unit, next.epoch), (UnitId(1), 2));
    bench.dispatcher.membership().lose(3, UnitId(0), &mut bench.outputs);
    bench.take();
    let (flow, epoch) = (stamp.flow, next.epoch);
    bench.handle_message(4, UnitId(1), FromUnit::Lost { flow, epoch });
    let recover = FromDispatcher::Recover { flow, epoch, last: 1, holders: vec![], targets: vec![] };
    assert_eq!(bench.take(), [send(1, recover)]);
    bench.handle_message(5, UnitId(1), FromUnit::Recovered { flow, epoch, lacks: None });
    assert_eq!(bench.take(), [send(1, FromDispatcher::End { flow })], "it had none");
}
