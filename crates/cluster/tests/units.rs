//! Units as processes, here on threads: the output is that of a single machine for the same
//! packets, flow by flow, whatever moves.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::remote::{NodeCommand, NodeInfo, NodeStatus, RemoteError};
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::Runner;
use runtime::elastic::UnitsConfig;

use common::support::{Arriving, SEED, Sink, assembly_of, conversation_with, play, profile, receive};
use common::{Cluster, assert_same, assert_same_counts, config, end, play_until, play_until_nodes};

/// Functions without state that flows of several units would share.
const POLICY: &str = "
    settings { flows: 20k }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    HTTP h;
    pipelet { inside <-> f <-> m <-> h <-> outside; }";

fn frames(packets: u64) -> Vec<Arriving> {
    conversation_with(assembly_of("test.rvl", POLICY), &profile(Payload::Random, packets, 20_000.0, SEED))
}

#[test]
fn output_is_that_of_one_machine() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(3_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    for mode in [Granularity::Packet, Granularity::Flowlet, Granularity::Flow] {
        let units = cluster.units(3);
        let (runner, _) = cluster.runner(config(mode, 3), &units);
        let (got, report) = play(runner, &frames);
        assert_same_counts(&report, &single);
        assert_same(&got, &expected);
        let of_units = report.units.unwrap();
        println!("{mode}: {} moves, {} states", of_units.moved, of_units.states_moved);
        assert!(mode != Granularity::Packet || of_units.states_moved > 100);
        let processed: u64 = end(units).iter().map(|unit| unit.counters.processed).sum();
        assert!(processed > 0);
    }
}

/// A stalled unit has more packets than buffers: it allocates others, and nothing is lost where the
/// dispatcher waits.
#[test]
fn unit_that_stalls_loses_nothing_of_a_capture() {
    let frames = frames(30_000);
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let cluster = Cluster::new(POLICY);
    let mut raised = 0;
    let stalls = move || {
        raised += 1;
        if raised % 40 == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let units = vec![cluster.unit_with("unit-0", stalls)];
    let (runner, _) = cluster.runner(config(Granularity::Flow, 1), &units);
    let (got, report) = play(runner, &frames);
    assert_same_counts(&report, &single);
    assert_same(&got, &expected);
    end(units);
}

/// First packets do not wait, and further packets of a stalled unit's flows are dropped.
#[test]
fn unit_that_stalls_gets_as_many_packets_as_it_may() {
    let mut profile = profile(Payload::Http, 30_000, 20_000.0, SEED);
    profile.protocols.fragments = 0.0; // They wait for the packets before them.
    let frames = conversation_with(assembly_of("test.rvl", POLICY), &profile);
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let cluster = Cluster::new(POLICY);
    let mut raised = 0;
    let stalls = move || {
        raised += 1;
        if raised % 40 == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let units = vec![cluster.unit_with("unit-0", stalls)];
    let config = UnitsConfig { is_live: true, ..config(Granularity::Flow, 1) };
    let (runner, _) = cluster.runner(config, &units);
    let (got, report) = play(runner, &frames);
    assert!(report.adds_up(), "{report:?}");
    assert_eq!((report.packets_in, report.flows.started), (single.packets_in, single.flows.started));
    let behind = report.drops.get("unit-behind").copied().unwrap_or(0);
    assert!(report.packets_out + behind <= single.packets_in, "{report:?}");
    match behind {
        0 => assert_same(&got, &expected),
        _ => assert!(report.packets_out < single.packets_out),
    }
    end(units);
}

#[test]
fn units_leave_and_join_without_loss() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(6_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let mut units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    let late = cluster.unit("unit-late");
    handle.send(NodeCommand::Add { name: late.name.clone(), address: late.address.clone() });
    units.push(late);
    play_until(
        &mut runner,
        &mut frames,
        &mut sink,
        &handle,
        ("unit-late", |node| node.status == NodeStatus::Active),
    );
    handle.send(NodeCommand::Drain { name: "unit-0".to_owned() });
    play_until(
        &mut runner,
        &mut frames,
        &mut sink,
        &handle,
        ("unit-0", |node| node.status == NodeStatus::Drained),
    );
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    assert_same(&sink, &expected);
    assert_same_counts(&report, &single);
    let figures = end(units);
    assert_eq!(figures[0].flows[1], 0, "a drained unit has no flows");
    assert!(report.units.unwrap().states_moved > 0);
}

#[test]
fn lost_unit_takes_its_flows_and_no_others() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(4_000));
    let units = cluster.units(3);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 3), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(1_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    runner.settle(&mut sink).unwrap();
    units[1].order.aborts.store(true, Ordering::Relaxed);
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", |node| node.unit.is_none()));
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let names: Vec<_> = handle.links().into_iter().map(|link| link.peer).collect();
    assert_eq!(names, ["unit-0", "unit-2"]);
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up(), "{report:?}");
    assert!(report.packets_out > 1_000);
    let links = report.links.unwrap();
    assert_eq!((links.started, links.dead, links.handshakes["connected"]), (3, 1, 3), "{links:?}");
    let now: u64 = handle.links().iter().map(|link| link.counters.datagrams_sent).sum();
    assert!(links.datagrams_sent > now, "those of the lost link stay: {links:?}");
    for unit in units {
        unit.thread.join().unwrap();
    }
}

/// A unit with a revoked certificate loses its link while packets flow; with another certificate it
/// is accepted again. No process restarts.
#[test]
fn revoked_unit_is_given_up_until_it_has_another_certificate() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(4_000));
    let units = cluster.units(3);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 3), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(1_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    cluster.revoke("unit-1");
    let is_refused = |node: &NodeInfo| node.unit.is_none() && node.reason.contains("Revoked");
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", is_refused));
    let names: Vec<_> = handle.links().into_iter().map(|link| link.peer).collect();
    assert_eq!(names, ["unit-0", "unit-2"]);
    let _ = cluster.identity("unit-1");
    let is_active = |node: &NodeInfo| node.status == NodeStatus::Active;
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", is_active));
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up(), "{report:?}");
    let links = report.links.unwrap();
    assert_eq!((links.started, links.dead), (4, 1), "{links:?}");
    assert!(links.certificate_expiry_seconds > Some(1_700_000_000), "{links:?}");
    end(units);
}

#[test]
fn unit_that_ends_gives_its_flows_away_before_and_may_come_back() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(6_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    units[0].order.leaves.store(true, Ordering::Relaxed);
    // It has ended, and the dispatcher waits for it.
    let is_awaited = |node: &NodeInfo| node.status == NodeStatus::Connecting;
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-0", is_awaited));
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    assert_same(&sink, &expected);
    assert_same_counts(&report, &single);
    assert_eq!(end(units)[0].flows[1], 0);
}

#[test]
fn removed_node_works_on_and_may_come_back_elsewhere() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(6_000));
    let mut units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    handle.send(NodeCommand::Remove { name: "unit-1".to_owned() });
    // Its link stays: it is a unit as before.
    let works = |node: &NodeInfo| node.status == NodeStatus::Active && node.packets > 100;
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", works));
    let gone = units.pop().unwrap();
    gone.order.leaves.store(true, Ordering::Relaxed);
    let is_gone = |nodes: &[NodeInfo]| nodes.iter().all(|node| node.name != "unit-1");
    play_until_nodes(&mut runner, &mut frames, &mut sink, &handle, is_gone);
    end(vec![gone]);
    let successor = cluster.unit("unit-1");
    // The first address is not in use any more.
    handle.send(NodeCommand::Add { name: "unit-1".to_owned(), address: "127.0.0.1:1".to_owned() });
    handle.send(NodeCommand::Add { name: "unit-1".to_owned(), address: successor.address.clone() });
    units.push(successor);
    let is_active = |node: &NodeInfo| node.status == NodeStatus::Active;
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", is_active));
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up(), "{report:?}");
    assert_eq!(report.drops.get("unit-lost"), None, "{report:?}");
    end(units);
}

#[test]
fn restarted_dispatcher_gets_its_units_back() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(2_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    // By its clock, the second process is the later one, or the earlier one.
    for [first, second] in [[0, 1], [1, 0]] {
        let units = cluster.units(2);
        let (mut runner, _) = cluster.runner_after(first, config(Granularity::Packet, 2), &units);
        let mut sink = Sink::default();
        for frame in &frames[..500] {
            receive(&mut runner, frame, &mut sink);
        }
        drop(runner); // As in a crash: the units receive no message.
        let (runner, _) = cluster.runner_after(second, config(Granularity::Packet, 2), &units);
        let (got, report) = play(runner, &frames);
        assert_same(&got, &expected);
        assert_same_counts(&report, &single);
        end(units);
    }
}

#[test]
fn unit_that_stays_outlives_runs_of_dispatchers() {
    let (cluster, frames) = (Cluster::new(POLICY), frames(1_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let units = cluster.units(2);
    units.iter().for_each(|unit| unit.order.stays.store(true, Ordering::Relaxed));
    for restarts in 0..3 {
        let (runner, _) = cluster.runner_after(restarts, config(Granularity::Flow, 2), &units);
        let (got, report) = play(runner, &frames);
        assert_same(&got, &expected);
        assert_same_counts(&report, &single);
        assert!(units.iter().all(|unit| !unit.thread.is_finished()));
    }
    units.iter().for_each(|unit| unit.order.leaves.store(true, Ordering::Relaxed));
    end(units);
}

#[test]
fn missing_units_are_an_error() {
    let cluster = Cluster::new(POLICY);
    let config = UnitsConfig { units_min: 0, ..config(Granularity::Flow, 1) };
    let error = cluster.try_runner(0, config, &[]).err();
    assert!(matches!(error, Some(RemoteError::Units(_))), "{error:?}");
}
