//! Flows of a draining unit: which are copied before they move.

use crate::message::{FlowId, FromDispatcher, FromUnit, UnitId};

use super::bench::{Bench, MS};
use crate::dispatcher::*;

/// Two units, the second of which drains, now. Returns its flows: of these, recent ones have just
/// had a packet, and others are silent.
fn draining(flows: u32, is_recent: impl Fn(usize) -> bool) -> (Bench, u64, Vec<FlowId>) {
    let config = Config {
        mode: Granularity::Flow,
        targets: TargetChoice::None,
        choice: UnitChoice::RoundRobin,
        units_min: 2,
        units_max: 3,
        flows_max: 20_000,
        pre_copy: true,
        idle_ns: u64::MAX,
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    let mut of_second = Vec::new();
    for number in 0..2 * flows {
        let (unit, stamp) = bench.packet(MS, number, 100);
        of_second.extend((unit == UnitId(1)).then_some((number, stamp.flow)));
    }
    assert_eq!(of_second.len(), flows as usize);
    let now_ns = 1_000 * MS;
    for &(number, _) in of_second.iter().enumerate().filter(|&(at, _)| is_recent(at)).map(|(_, flow)| flow) {
        bench.packet(now_ns, number, 100);
    }
    bench.dispatcher.membership().drain(now_ns, UnitId(1), &mut bench.outputs).unwrap();
    bench.take();
    (bench, now_ns, of_second.into_iter().map(|(_, flow)| flow).collect())
}

/// The flows that the outputs copy, and those that they move.
fn copied_and_moved(outputs: &[DispatcherOutput]) -> [Vec<FlowId>; 2] {
    let of = |copied: bool| {
        let flows = outputs.iter().filter_map(|output| match *output {
            DispatcherOutput::Send { message: FromDispatcher::Replicate { flow, .. }, .. } if copied => {
                Some(flow)
            }
            DispatcherOutput::Send { message: FromDispatcher::Adopt { flow, .. }, .. } if !copied => {
                Some(flow)
            }
            _ => None,
        });
        flows.collect()
    };
    [of(true), of(false)]
}

#[test]
fn flows_with_packets_of_late_are_copied_and_silent_ones_move_at_once() {
    let (mut bench, now_ns, ids) = draining(40, |at| at % 4 == 3);
    bench.handle_timeout(now_ns + MS);
    let [copied, moved] = copied_and_moved(&bench.take());
    let is_copied = |at: &usize| *at == 0 || at % 4 == 3;
    assert_eq!(copied, (0..40).filter(is_copied).map(|at| ids[at]).collect::<Vec<_>>(), "and a sample");
    assert_eq!(moved, (0..40).filter(|at| !is_copied(at)).map(|at| ids[at]).collect::<Vec<_>>());
    // They move once their replicas are there.
    for flow in copied.iter().copied() {
        bench.handle_timeout(bench.dispatcher.next_timeout_ns());
        assert!(copied_and_moved(&bench.take())[1].is_empty());
        bench.handle_message(now_ns + 2 * MS, UnitId(0), FromUnit::Replicated { flow, epoch: 1 });
    }
    bench.take();
    bench.handle_timeout(bench.dispatcher.next_timeout_ns());
    assert_eq!(copied_and_moved(&bench.take()), [Vec::new(), copied]);
    assert_eq!(bench.dispatcher.units().nth(1).unwrap().flows, 0);
}

#[test]
fn more_silent_flows_move_at_a_time_as_long_as_samples_arrive_soon() {
    for (waits, expected) in [
        ([1; 4], [64, 128, 256, 512]),
        ([20, 25, 20, 50], [64, 128, 128, 256]),
        ([20, 20, 50, 50], [64, 128, 256, 128]),
    ] {
        let (mut bench, ..) = draining(2_000, |_| false);
        let mut batches = Vec::new();
        let mut samples: Vec<FlowId> = Vec::new();
        while batches.len() < 4 {
            let mut now_ns = bench.dispatcher.next_timeout_ns();
            bench.handle_timeout(now_ns);
            let [copied, moved] = copied_and_moved(&bench.take());
            let begun = copied.len() + moved.len() - samples.len();
            samples = copied;
            assert_eq!(samples.len(), begun / 64, "one of 64 is a sample");
            batches.push(begun);
            for _ in 1..waits[batches.len() - 1] {
                now_ns = bench.dispatcher.next_timeout_ns();
                bench.handle_timeout(now_ns);
                assert!(bench.take().is_empty(), "samples are on their way");
            }
            for &flow in &samples {
                bench.handle_message(now_ns, UnitId(0), FromUnit::Replicated { flow, epoch: 1 });
            }
            bench.take();
        }
        assert_eq!(batches, expected);
    }
}
