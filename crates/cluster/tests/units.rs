//! Units as processes, here on threads: what comes out is what a single machine makes of the same
//! packets, flow by flow, whatever moves.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::identity::{Authority, Identity};
use cluster::remote::{
    NodeCommand, NodeInfo, NodeStatus, RemoteError, RemoteHandle, RemoteOptions, remote_runner,
};
use cluster::unit::{UnitOptions, UnitOrder, UnitProcess};
use cluster::wire::UnitFigures;
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::{Report, Runner};
use tempfile::TempDir;

use support::{Arriving, SEED, Sink, assembly_of, by_flow, conversation_with, play, profile, receive};

/// Functions without state that flows of several units would share.
const POLICY: &str = "
    settings { flows: 20k }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    HTTP h;
    pipelet { inside <-> f <-> m <-> h <-> outside; }";

/// The digest of that policy.
const DIGEST: [u8; 32] = [5; 32];

/// The files of a cluster.
struct Cluster {
    folder: TempDir,
    authority: Authority,
}

/// A unit on a thread.
struct Unit {
    name: String,
    address: String,
    order: Arc<UnitOrder>,
    thread: JoinHandle<Option<UnitFigures>>,
}

impl Cluster {
    fn new() -> Cluster {
        let folder = TempDir::new().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        Cluster { folder, authority }
    }

    fn identity(&self, name: &str) -> Identity {
        self.authority.issue_to(self.folder.path(), name).unwrap();
        let file = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        Identity::read(name, &file("pem"), &file("key"), &self.folder.path().join("ca.pem")).unwrap()
    }

    fn unit(&self, name: &str) -> Unit {
        self.unit_with(name, || {})
    }

    /// A unit that does this when its functions raise something.
    fn unit_with(&self, name: &str, mut raised: impl FnMut() + Send + 'static) -> Unit {
        let (identity, order) = (self.identity(name), Arc::new(UnitOrder::default()));
        let (sender, address) = channel();
        let ordered = Arc::clone(&order);
        let thread = std::thread::spawn(move || {
            let mut unit = UnitProcess::start(UnitOptions {
                listen: ([127, 0, 0, 1], 0).into(),
                identity,
                policy: DIGEST,
                incarnation: 1,
                make: Box::new(|_| Ok(assembly_of("test.rvl", POLICY).graph)),
                effects: Box::new(move |_, _| raised()),
            })
            .unwrap();
            sender.send(unit.address().to_string()).unwrap();
            unit.run(&ordered)
        });
        Unit { name: name.to_owned(), address: address.recv().unwrap(), order, thread }
    }

    fn units(&self, count: usize) -> Vec<Unit> {
        (0..count).map(|number| self.unit(&format!("unit-{number}"))).collect()
    }

    fn runner(&self, config: UnitsConfig, units: &[Unit]) -> (Runner, RemoteHandle) {
        self.runner_after(0, config, units)
    }

    /// A runner whose process was restarted so often.
    fn runner_after(&self, restarts: u64, config: UnitsConfig, units: &[Unit]) -> (Runner, RemoteHandle) {
        let options = RemoteOptions {
            identity: self.identity("dispatcher"),
            policy: DIGEST,
            incarnation: 1 + restarts,
            nodes: units.iter().map(|unit| (unit.name.clone(), unit.address.clone())).collect(),
        };
        remote_runner(assembly_of("test.rvl", POLICY), "test", config, options).unwrap()
    }
}

fn config(mode: Granularity, units: u16) -> UnitsConfig {
    UnitsConfig {
        mode,
        units_min: units,
        units_max: 8,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    }
}

fn frames(packets: u64) -> Vec<Arriving> {
    conversation_with(assembly_of("test.rvl", POLICY), &profile(Payload::Random, packets, 20_000.0, SEED))
}

/// The same packets of each flow have left, in the same order.
fn assert_same(got: &Sink, expected: &Sink) {
    let (flows, expected) = (by_flow(got), by_flow(expected));
    for (flow, packets) in &expected {
        let found = flows.get(flow);
        let counts = (found.map(Vec::len), packets.len());
        assert!(
            found == Some(packets),
            "{flow:?} has {} of {} packets, or in another order",
            counts.0.unwrap_or(0),
            counts.1
        );
    }
    assert_eq!(flows.len(), expected.len());
}

fn assert_same_counts(report: &Report, single: &Report) {
    assert_eq!(report.drops, single.drops);
    assert_eq!(
        (report.packets_in, report.packets_out, report.flows.started),
        (single.packets_in, single.packets_out, single.flows.started)
    );
    assert!(report.adds_up());
}

fn end(units: Vec<Unit>) -> Vec<UnitFigures> {
    units.into_iter().map(|unit| unit.thread.join().unwrap().unwrap()).collect()
}

#[test]
fn output_is_that_of_one_machine() {
    let (cluster, frames) = (Cluster::new(), frames(3_000));
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

/// First packets wait for nothing, and a unit that stalls has more packets than buffers: it gets
/// others.
#[test]
fn unit_that_stalls_loses_nothing() {
    let mut profile = profile(Payload::Http, 30_000, 20_000.0, SEED);
    profile.protocols.fragments = 0.0; // They wait for the packets before them.
    let frames = conversation_with(assembly_of("test.rvl", POLICY), &profile);
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let cluster = Cluster::new();
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
    assert_same_counts(&report, &single);
    assert_same(&got, &expected);
    end(units);
}

/// Waits until a node is as expected, while packets arrive.
fn play_until(
    runner: &mut Runner,
    frames: &mut impl Iterator<Item = Arriving>,
    sink: &mut Sink,
    handle: &RemoteHandle,
    (name, is_expected): (&str, fn(&NodeInfo) -> bool),
) {
    let began = Instant::now();
    while !handle.status().iter().any(|node| node.name == name && is_expected(node)) {
        assert!(began.elapsed() < Duration::from_secs(60), "{name}: {:?}", handle.status());
        match frames.next() {
            Some(frame) => receive(runner, &frame, sink),
            None => runner.settle(sink).unwrap(),
        }
    }
}

#[test]
fn units_leave_and_join_without_loss() {
    let (cluster, frames) = (Cluster::new(), frames(6_000));
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
    let (cluster, frames) = (Cluster::new(), frames(4_000));
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
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up(), "{report:?}");
    assert!(report.packets_out > 1_000);
    for unit in units {
        unit.thread.join().unwrap();
    }
}

#[test]
fn unit_that_ends_gives_its_flows_away_before_and_may_come_back() {
    let (cluster, frames) = (Cluster::new(), frames(6_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    units[0].order.leaves.store(true, Ordering::Relaxed);
    // It is gone, and the dispatcher waits for it to come back.
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
fn restarted_dispatcher_gets_its_units_back() {
    let (cluster, frames) = (Cluster::new(), frames(2_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    let units = cluster.units(2);
    let (mut runner, _) = cluster.runner(config(Granularity::Packet, 2), &units);
    let mut sink = Sink::default();
    for frame in &frames[..500] {
        receive(&mut runner, frame, &mut sink);
    }
    drop(runner); // As in a crash: nobody says anything to the units.
    let (runner, _) = cluster.runner_after(1, config(Granularity::Packet, 2), &units);
    let (got, report) = play(runner, &frames);
    assert_same(&got, &expected);
    assert_same_counts(&report, &single);
    end(units);
}

#[test]
fn missing_units_are_an_error() {
    let cluster = Cluster::new();
    let options = RemoteOptions {
        identity: cluster.identity("dispatcher"),
        policy: DIGEST,
        incarnation: 1,
        nodes: Vec::new(),
    };
    let config = UnitsConfig { units_min: 0, ..config(Granularity::Flow, 1) };
    let error = remote_runner(assembly_of("test.rvl", POLICY), "test", config, options).err();
    assert!(matches!(error, Some(RemoteError::Units(_))), "{error:?}");
}
