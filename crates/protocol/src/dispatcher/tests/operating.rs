//! Flows that an operator migrates, and units that an operator drains and resumes.

use crate::message::{FromDispatcher, FromUnit, Handover, RefuseReason, UnitId};

use super::bench::{Bench, MS, fixed, key, release, send};
use crate::dispatcher::*;

/// Three units in this mode; flow 1 has sent 3 packets to unit 0.
fn three_units(mode: Granularity) -> (Bench, crate::message::FlowId) {
    let config = Config { mode, targets: TargetChoice::None, ..fixed(3) };
    let mut bench = Bench::new(config);
    let stamps: Vec<_> = (1..=3).map(|at| bench.packet(at, 1, 100)).collect();
    assert!(stamps.iter().all(|(unit, _)| *unit == UnitId(0)));
    assert_eq!(bench.take(), []);
    (bench, stamps[0].1.flow)
}

fn migrate(
    bench: &mut Bench,
    flow: crate::message::FlowId,
    to: Option<u16>,
) -> Result<MigratedFlow, MigrateError> {
    bench.dispatcher.migrations().migrate(5, flow, to.map(UnitId), &mut bench.outputs)
}

#[test]
fn a_flow_migrates_and_stays() {
    let (mut bench, flow) = three_units(Granularity::Flow);
    let moved = migrate(&mut bench, flow, Some(2)).unwrap();
    assert_eq!(moved, MigratedFlow { from: UnitId(0), to: UnitId(2), epoch: 2 });
    let adopt = FromDispatcher::Adopt { flow, epoch: 2, previous: UnitId(0), last: 3 };
    assert_eq!(
        bench.take(),
        [send(0, release((flow, 2), UnitId(2), 3, Handover::None)), send(2, adopt)],
        "the owner is released first"
    );
    let (unit, stamp) = bench.packet(6, 1, 100);
    assert_eq!((unit, stamp.epoch, stamp.seq), (UnitId(2), 2, 4));
    assert_eq!(stamp.handover, Handover::From { previous: UnitId(0), last: 3 });
    let status = bench.dispatcher.flows().status(flow).unwrap();
    let expected = FlowStatus { flow, key: key(1), owner: UnitId(2), epoch: 2, packets: 4, last_seen_ns: 6 };
    assert_eq!(status, expected);
    assert_eq!(bench.dispatcher.flows().statuses(0..10).collect::<Vec<_>>(), [expected]);
    assert_eq!(bench.dispatcher.counters().flows_migrated, 1);
}

#[test]
fn without_a_unit_it_goes_to_the_one_with_the_fewest_flows() {
    let (mut bench, flow) = three_units(Granularity::Flow);
    bench.feed(4, 2, 100);
    let other = bench.dispatcher.flows().statuses(1..2).next().unwrap().flow;
    migrate(&mut bench, other, Some(1)).unwrap();
    assert_eq!(migrate(&mut bench, flow, None).unwrap().to, UnitId(2));
}

#[test]
fn what_cannot_be_moved_stays_without_an_output() {
    let (mut bench, flow) = three_units(Granularity::Flow);
    let unknown = crate::message::FlowId { index: 999, generation: 0 };
    let beyond = crate::message::FlowId { index: u32::MAX, generation: 0 };
    for (flow, to, expected) in [
        (flow, Some(0), MigrateError::Owned(UnitId(0))),
        (flow, Some(7), MigrateError::NotActive(UnitId(7))),
        (unknown, Some(1), MigrateError::Ended),
        (beyond, None, MigrateError::Ended),
    ] {
        assert_eq!(migrate(&mut bench, flow, to), Err(expected));
    }
    assert_eq!(bench.take(), []);
    let mode = Granularity::Packet;
    let mut sprayed = Bench::new(Config { mode, targets: TargetChoice::None, ..fixed(2) });
    let flow = sprayed.packet(1, 1, 100).1.flow;
    assert_eq!(migrate(&mut sprayed, flow, Some(1)), Err(MigrateError::Mode(mode)));
    let mut alone = Bench::new(Config { mode: Granularity::Flow, ..fixed(1) });
    let flow = alone.packet(1, 1, 100).1.flow;
    assert_eq!(migrate(&mut alone, flow, None), Err(MigrateError::NoOther));
}

#[test]
fn a_refusal_is_known_until_the_flow_migrates_there_again() {
    let (mut bench, flow) = three_units(Granularity::Flow);
    migrate(&mut bench, flow, Some(1)).unwrap();
    let reason = RefuseReason::NoRoom;
    bench.handle_message(6, UnitId(1), FromUnit::Refuse { flow, epoch: 2, reason, holder: UnitId(0) });
    assert!(bench.dispatcher.flows().has_refused(flow, UnitId(1)));
    assert_eq!(bench.dispatcher.flows().status(flow).unwrap().owner, UnitId(0));
    assert_eq!(migrate(&mut bench, flow, None).unwrap().to, UnitId(2), "not to that one");
    migrate(&mut bench, flow, Some(1)).unwrap();
    assert!(!bench.dispatcher.flows().has_refused(flow, UnitId(1)), "the operator has asked for it");
}

#[test]
fn a_resumed_unit_gets_flows_and_is_not_stopped_by_a_late_report() {
    let (mut bench, _) = three_units(Granularity::Flow);
    let drain =
        |bench: &mut Bench, at| bench.dispatcher.membership().drain(at, UnitId(1), &mut bench.outputs);
    assert_eq!(bench.dispatcher.membership().resume(4, UnitId(1)), Err(UnitRefused::NotDraining(UnitId(1))));
    drain(&mut bench, 5).unwrap();
    assert_eq!(drain(&mut bench, 5), Err(UnitRefused::NotActive(UnitId(1))));
    assert_eq!(bench.take(), [send(1, FromDispatcher::Drain)]);
    bench.dispatcher.membership().resume(6, UnitId(1)).unwrap();
    assert_eq!(bench.state(1), UnitState::Active);
    // Its report comes now, or after the next drain.
    drain(&mut bench, 7).unwrap();
    bench.take();
    bench.handle_message(8, UnitId(1), FromUnit::Drained);
    assert_eq!((bench.take(), bench.state(1)), (vec![], UnitState::Draining));
    bench.handle_timeout(8 + MS);
    assert_eq!(bench.take(), [send(1, FromDispatcher::Drain)], "it is asked again");
    bench.handle_message(9 + MS, UnitId(1), FromUnit::Drained);
    assert_eq!(bench.take(), [DispatcherOutput::Stop(UnitId(1))]);
    assert_eq!(bench.dispatcher.counters().units_resumed, 1);
    assert_eq!(drain(&mut bench, 5), Err(UnitRefused::NotActive(UnitId(1))));
    let unknown = bench.dispatcher.membership().resume(4, UnitId(9));
    assert_eq!(unknown, Err(UnitRefused::Unknown(UnitId(9))));
}
