//! Another policy for a running cluster: every flow has one policy at a time, and none is lost.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::time::{Duration, Instant};

use cluster::remote::{NodeCommand, RemoteHandle, RolloutState, RolloutStatus};
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::{Report, Runner};

use common::support::{Arriving, SEED, Sink, assembly_of, conversation_with, play, profile, receive};
use common::{Cluster, assert_same, assert_same_counts, config, digest_of, end, new_policy};

/// The first policy, with a comment, so that its text can differ.
fn policy(rules: &str, comment: &str) -> String {
    format!(
        "# {comment}
        settings {{ flows: 20k }}
        Port<0> inside; Port<1> outside;
        Firewall f {{ rules: \"{rules}\", default: deny, tcp: strict }};
        Monitor m {{ report: [] }};
        pipelet {{ inside <-> f <-> m <-> outside; }}"
    )
}

fn open(comment: &str) -> String {
    policy("allow out from any", comment)
}

fn frames(policy: &str, packets: u64) -> Vec<Arriving> {
    conversation_with(assembly_of("test.rvl", policy), &profile(Payload::Random, packets, 2_000.0, SEED))
}

/// Packets that arrive at their times.
struct Live {
    frames: std::iter::Peekable<std::vec::IntoIter<Arriving>>,
    start_ns: u64,
    began: Instant,
}

impl Live {
    fn new(frames: Vec<Arriving>) -> Live {
        let start_ns = frames[0].timestamp_ns;
        Live { frames: frames.into_iter().peekable(), start_ns, began: Instant::now() }
    }

    /// Lets time pass and packets arrive until a condition holds.
    fn play_until(
        &mut self,
        runner: &mut Runner,
        sink: &mut Sink,
        handle: &RemoteHandle,
        is_so: impl Fn(Option<RolloutStatus>) -> bool,
    ) {
        let began = Instant::now();
        while !is_so(handle.rollout()) {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", handle.rollout());
            let now_ns = self.start_ns + self.began.elapsed().as_nanos() as u64;
            while let Some(frame) = self.frames.next_if(|frame| frame.timestamp_ns <= now_ns) {
                receive(runner, &frame, sink);
            }
            runner.flush(sink).unwrap();
            runner.handle_timeout(now_ns, sink).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn play_until_done(
        &mut self,
        runner: &mut Runner,
        sink: &mut Sink,
        handle: &RemoteHandle,
    ) -> RolloutStatus {
        let is_done = |status: Option<RolloutStatus>| {
            status.is_some_and(|status| matches!(status.state, RolloutState::Done | RolloutState::Failed(_)))
        };
        self.play_until(runner, sink, handle, is_done);
        handle.rollout().unwrap()
    }

    /// Lets the rest arrive at once.
    fn finish(self, mut runner: Runner, sink: &mut Sink) -> Report {
        let now_ns = self.start_ns + self.began.elapsed().as_nanos() as u64;
        for frame in self.frames {
            receive(&mut runner, &Arriving { timestamp_ns: frame.timestamp_ns.max(now_ns), ..frame }, sink);
        }
        runner.finish(sink).unwrap()
    }
}

#[test]
fn all_nodes_get_a_policy_and_no_flow_is_lost() {
    let (before, after) = (open("first"), open("second"));
    let (cluster, frames) = (Cluster::new(&before), frames(&before, 12_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", &before), "test"), &frames);
    let units = cluster.units(3);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 3), &units);
    let (mut sink, mut live) = (Sink::default(), Live::new(frames));
    assert!(handle.apply(new_policy(&after)).is_some());
    let status = live.play_until_done(&mut runner, &mut sink, &handle);
    assert_eq!(status.state, RolloutState::Done, "{status:?}");
    assert_eq!((status.digest, status.nodes_done, status.nodes), (digest_of(&after), 3, 3));
    let report = live.finish(runner, &mut sink);
    assert_same(&sink, &expected);
    assert_same_counts(&report, &single);
    assert!(report.units.unwrap().states_moved > 0);
    end(units);
}

/// Returns true for frames of UDP without VLAN tags.
fn is_udp(frame: &[u8]) -> bool {
    let protocol = if frame[12..14] == [0x86, 0xdd] { frame[20] } else { frame[23] };
    protocol == 17
}

#[test]
fn flows_are_judged_by_the_new_policy_and_others_go_on() {
    let (before, after) = (open("first"), policy("deny any_direction udp\\nallow out from any", "no UDP"));
    let (cluster, mut all) = (Cluster::new(&before), frames(&before, 8_000));
    let later = all.split_off(4_000);
    let units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut live) = (Sink::default(), Live::new(all));
    for frame in live.frames.by_ref().take(1_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    assert!(handle.apply(new_policy(&after)).is_some());
    let status = live.play_until_done(&mut runner, &mut sink, &handle);
    assert_eq!(status.state, RolloutState::Done, "{status:?}");
    let (flows, left) = (runner.report().flows.started, sink.sent.len());
    let live = Live { frames: live.frames.chain(later).collect::<Vec<_>>().into_iter().peekable(), ..live };
    let report = live.finish(runner, &mut sink);
    assert!(report.adds_up(), "{report:?}");
    let (before, after) = sink.sent.split_at(left);
    assert!(before.iter().any(|sent| is_udp(&sent.2)) && !after.iter().any(|sent| is_udp(&sent.2)));
    assert!(after.len() > 100, "other flows go on");
    assert!(report.flows.started > flows && report.drops["firewall-denied"] > 0, "{report:?}");
    end(units);
}

#[test]
fn policy_that_cannot_be_run_changes_nothing() {
    let before = open("first");
    let (cluster, all) = (Cluster::new(&before), frames(&before, 1_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", &before), "test"), &all);
    let units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut live) = (Sink::default(), Live::new(all));
    assert!(handle.apply(new_policy(&open("unreadable"))).is_some());
    let status = live.play_until_done(&mut runner, &mut sink, &handle);
    let RolloutState::Failed(reason) = &status.state else { panic!("{status:?}") };
    assert!(reason.contains("cannot run the policy: it is unreadable"), "{reason}");
    assert_eq!(status.nodes_done, 0);
    let report = live.finish(runner, &mut sink);
    assert_same(&sink, &expected);
    assert_same_counts(&report, &single);
    end(units);
}

#[test]
fn the_only_unit_keeps_its_policy() {
    let before = open("first");
    let cluster = Cluster::new(&before);
    let units = cluster.units(1);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 1), &units);
    let (mut sink, mut live) = (Sink::default(), Live::new(frames(&before, 100)));
    assert!(handle.apply(new_policy(&open("second"))).is_some());
    let status = live.play_until_done(&mut runner, &mut sink, &handle);
    let RolloutState::Failed(reason) = &status.state else { panic!("{status:?}") };
    assert!(reason.contains("unit-0 is the only unit"), "{reason}");
    live.finish(runner, &mut sink);
    end(units);
}

#[test]
fn node_with_the_policy_before_gets_the_latest() {
    let (before, after) = (open("first"), open("second"));
    let (cluster, all) = (Cluster::new(&before), frames(&before, 4_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", &before), "test"), &all);
    let mut units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut live) = (Sink::default(), Live::new(all));
    assert!(handle.apply(new_policy(&after)).is_some());
    live.play_until_done(&mut runner, &mut sink, &handle);
    let late = cluster.unit("unit-late");
    handle.send(NodeCommand::Add { name: late.name.clone(), address: late.address.clone() });
    units.push(late);
    let is_there = |status: Option<RolloutStatus>| status.is_some_and(|status| status.nodes_done == 3);
    live.play_until(&mut runner, &mut sink, &handle, is_there);
    let report = live.finish(runner, &mut sink);
    assert_same(&sink, &expected);
    assert_same_counts(&report, &single);
    end(units);
}
