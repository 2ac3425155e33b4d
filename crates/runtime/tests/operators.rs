//! Flows that operators migrate while packets flow: what comes out is what a single unit makes of
//! the same packets, flow by flow.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use io::traffic::Payload;
use packet::split_mix;
use protocol::dispatcher::{FlowStatus, Granularity, MigrateError, UnitRefused, UnitState};
use protocol::message::UnitId;
use runtime::Runner;
use runtime::elastic::UnitsConfig;
use runtime::operator::{
    FLOWS_LISTED_MAX, FLOWS_MIGRATED_MAX, MigrationTarget, OperatorError, OperatorHandle, OperatorRequest,
    REQUESTS_PENDING_MAX, Reply,
};
use runtime::transport::Maker;

use support::{Arriving, SEED, Sink, assembly, by_flow, conversation, play, profile, receive};

const POLICY: &str = "cluster.rvl";

fn config() -> UnitsConfig {
    let mode = Granularity::Flow;
    UnitsConfig { mode, units_min: 3, units_max: 3, ..UnitsConfig::as_published() }
}

fn in_memory() -> Runner {
    Runner::on_units(assembly(POLICY), POLICY, config()).unwrap()
}

fn on_threads() -> Runner {
    let make: Maker = Arc::new(|| Ok(assembly(POLICY).graph));
    Runner::on_threads(assembly(POLICY), POLICY, config(), make).unwrap()
}

fn frames(packets: u64) -> Vec<Arriving> {
    conversation(POLICY, &profile(Payload::Random, packets, 20_000.0, SEED))
}

/// Returns a reply, and its answer to come.
fn reply<T: Send + 'static>() -> (Reply<T>, Receiver<Result<T, OperatorError>>) {
    let (sender, receiver) = channel();
    (Box::new(move |answer| sender.send(answer).unwrap()), receiver)
}

/// A run with its operator on the same thread.
struct Operated {
    runner: Runner,
    handle: OperatorHandle,
    sink: Sink,
}

impl Operated {
    fn new(mut runner: Runner) -> Operated {
        let handle = runner.open_to_operators();
        Operated { runner, handle, sink: Sink::default() }
    }

    fn ask<T: Send + 'static>(&mut self, request: impl FnOnce(Reply<T>) -> OperatorRequest) -> T {
        let (reply, answer) = reply();
        self.handle.send(request(reply)).unwrap();
        self.runner.flush(&mut self.sink).unwrap();
        answer.try_recv().unwrap().unwrap()
    }

    fn flows(&mut self) -> Vec<FlowStatus> {
        let (mut from, mut flows) = (0, Vec::new());
        loop {
            let list = self.ask(|reply| OperatorRequest::Flows(from..u32::MAX, reply));
            flows.extend(list.flows);
            match list.next {
                Some(next) => from = next,
                None => return flows,
            }
        }
    }
}

#[test]
fn flows_migrate_to_and_fro_and_nothing_is_lost() {
    let frames = frames(6_000);
    let (expected, single) = play(Runner::new(assembly(POLICY), POLICY), &frames);
    for runner in [in_memory(), on_threads()] {
        let (mut run, mut random, mut migrated) = (Operated::new(runner), SEED, 0);
        for (number, frame) in frames.iter().enumerate() {
            receive(&mut run.runner, frame, &mut run.sink);
            if number % 50 != 0 {
                continue;
            }
            let flows = run.flows();
            let mut to = |_: &FlowStatus| Some(UnitId((split_mix(&mut random) % 3) as u16));
            let targets =
                flows.iter().map(|flow| MigrationTarget { flow: flow.flow, from: None, to: to(flow) });
            let targets: Vec<_> = targets.take(FLOWS_MIGRATED_MAX).collect();
            let results = run.ask(|reply| OperatorRequest::Migrate(targets.clone(), reply));
            assert_eq!(results.len(), targets.len());
            for (MigrationTarget { flow, to, .. }, result) in targets.into_iter().zip(results) {
                let Ok(moved) = result else { continue };
                let now = run.ask(|reply| OperatorRequest::Flow(flow, reply)).unwrap();
                assert_eq!((Some(moved.to), moved.epoch), (to, now.epoch));
                migrated += 1;
            }
        }
        assert!(migrated > 100, "{migrated}");
        let Operated { runner, mut sink, .. } = run;
        let mut runner = runner;
        let report = runner.finish(&mut sink).unwrap();
        assert!(report.adds_up());
        assert_eq!((report.packets_out, &report.drops), (single.packets_out, &single.drops));
        assert_eq!(report.units.unwrap().flows_migrated, migrated);
        assert!(by_flow(&sink) == by_flow(&expected));
    }
}

#[test]
fn units_are_drained_and_resumed() {
    let frames = frames(2_000);
    let mut run = Operated::new(in_memory());
    frames[..1_000].iter().for_each(|frame| receive(&mut run.runner, frame, &mut run.sink));
    let mut units = run.ask(OperatorRequest::Units);
    units.sort_by_key(|unit| unit.flows);
    let [last, other, first] = [0, 1, 2].map(|at| units[at].unit);
    let state = |run: &mut Operated, of: UnitId| {
        run.ask(OperatorRequest::Units).iter().find(|unit| unit.unit == of).map(|unit| unit.state)
    };
    assert_eq!(run.ask(|reply| OperatorRequest::Drain(first, reply)), Ok(()));
    assert_eq!(state(&mut run, first), Some(UnitState::Draining));
    assert_eq!(run.ask(|reply| OperatorRequest::Resume(first, reply)), Ok(()));
    assert_eq!(state(&mut run, first), Some(UnitState::Active));
    for unit in [first, other] {
        assert_eq!(run.ask(|reply| OperatorRequest::Drain(unit, reply)), Ok(()));
    }
    assert_eq!(run.ask(|reply| OperatorRequest::Drain(last, reply)), Err(UnitRefused::Last(last)));
    frames[1_000..].iter().for_each(|frame| receive(&mut run.runner, frame, &mut run.sink));
    assert_eq!(run.ask(OperatorRequest::Units).len(), 1, "the others have stopped");
    let flows = run.flows();
    assert!(!flows.is_empty() && flows.iter().all(|flow| flow.owner == last));
    let status = run.ask(OperatorRequest::Status);
    let dispatcher = status.dispatcher.unwrap();
    assert_eq!((dispatcher.flows as usize, dispatcher.mode.as_str()), (flows.len(), "flow"));
    assert!(status.packets_out > 0 && status.packets_in >= status.packets_out);
}

#[test]
fn requests_are_bounded() {
    let mut run = Operated::new(Runner::new(assembly(POLICY), POLICY));
    let (inline, answer) = reply();
    run.handle.send(OperatorRequest::Units(inline)).unwrap();
    run.runner.flush(&mut run.sink).unwrap();
    assert_eq!(answer.recv().unwrap(), Err(OperatorError::NoUnits));
    assert_eq!(run.ask(OperatorRequest::Status).dispatcher, None);
    for _ in 0..REQUESTS_PENDING_MAX {
        run.handle.send(OperatorRequest::Units(Box::new(drop))).unwrap();
    }
    let refused = run.handle.send(OperatorRequest::Units(Box::new(drop)));
    assert_eq!(refused, Err(OperatorError::Busy));
    let Operated { runner, handle, .. } = run;
    drop(runner);
    assert_eq!(handle.send(OperatorRequest::Units(Box::new(drop))), Err(OperatorError::Ended));

    let mut run = Operated::new(in_memory());
    frames(200).iter().for_each(|frame| receive(&mut run.runner, frame, &mut run.sink));
    let list = run.ask(|reply| OperatorRequest::Flows(5..u32::MAX, reply));
    assert!(
        list.flows.iter().all(|flow| flow.flow.index >= 5) && list.flows.len() < FLOWS_LISTED_MAX as usize
    );
    let FlowStatus { flow, owner, .. } = list.flows[0];
    let elsewhere = MigrationTarget { flow, from: Some(UnitId(owner.0 + 1)), to: None };
    let answer = run.ask(|reply| OperatorRequest::Migrate(vec![elsewhere], reply));
    assert_eq!(answer, [Err(MigrateError::Elsewhere(owner))]);
    let many = vec![MigrationTarget { from: None, ..elsewhere }; FLOWS_MIGRATED_MAX + 1];
    assert_eq!(run.ask(|reply| OperatorRequest::Migrate(many, reply)).len(), FLOWS_MIGRATED_MAX);
}
