//! A cluster with units as processes, here on threads.
#![allow(dead_code)] // Not every test needs all of it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::identity::{Authority, Identity, IdentityFiles};
use cluster::policies::{
    AppliedPolicy, Digest, NoShelf, NumberedDigest, PolicyReader, PolicyTexts, ReadPolicy,
};
use cluster::policy_digest;
use cluster::remote::{
    NewPolicy, NodeCommand, NodeInfo, PolicyDesk, RemoteError, RemoteHandle, RemoteOptions, StartStatus,
    remote_runner,
};
use cluster::unit::{UnitOptions, UnitOrder, UnitProcess};
use cluster::wire::UnitFigures;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::operator::{OperatorHandle, OperatorRequest, Reply};
use runtime::{Report, Runner};
use tempfile::TempDir;

#[path = "../../../runtime/tests/support/mod.rs"]
pub mod support;

use support::{Arriving, Sink, assembly_of, by_flow, receive};

/// The digest of a test's policy.
pub const DIGEST: [u8; 32] = [5; 32];

/// Returns the digest of a test's policy that follows [`DIGEST`].
pub fn digest_of(text: &str) -> Digest {
    policy_digest([text])
}

/// Reads policies at once.
#[derive(Default)]
pub struct TextReader(Option<PolicyTexts>);

impl PolicyReader for TextReader {
    fn begin(&mut self, texts: PolicyTexts) {
        self.0 = Some(texts);
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        let PolicyTexts { name, text, .. } = self.0.take()?;
        if text.contains("unreadable") {
            return Some(Err("it is unreadable".to_owned()));
        }
        let digest = digest_of(&text);
        Some(Ok(ReadPolicy { digest, make: Box::new(move |_| Ok(assembly_of(&name, &text).graph)) }))
    }
}

/// Returns the policy that a test's nodes begin with.
pub fn first_policy() -> AppliedPolicy {
    AppliedPolicy { id: NumberedDigest { number: 0, digest: DIGEST }, ..AppliedPolicy::default() }
}

/// Returns the policy of a dispatcher that adopts no policy of others.
pub fn fixed_desk() -> PolicyDesk {
    PolicyDesk::fixed(first_policy())
}

/// Returns a policy for a dispatcher.
pub fn new_policy(text: &str) -> NewPolicy {
    let (name, text) = ("next.rvl".to_owned(), text.to_owned());
    let graph = assembly_of(&name, &text).graph;
    NewPolicy { digest: digest_of(&text), texts: PolicyTexts { name, text, files: Vec::new() }, graph }
}

/// The files of a cluster, and its policy.
pub struct Cluster {
    policy: String,
    folder: TempDir,
    authority: Authority,
}

/// A unit on a thread.
pub struct Unit {
    pub name: String,
    pub address: String,
    pub order: Arc<UnitOrder>,
    pub thread: JoinHandle<Vec<UnitFigures>>,
}

impl Cluster {
    pub fn new(policy: &str) -> Cluster {
        let folder = TempDir::new().unwrap();
        let authority = Authority::open(folder.path(), None).unwrap();
        Cluster { policy: policy.to_owned(), folder, authority }
    }

    pub fn identity(&self, name: &str) -> Identity {
        self.authority.issue_named(self.folder.path(), name).unwrap();
        Identity::read(name, &IdentityFiles::in_folder(self.folder.path(), name)).unwrap()
    }

    /// Revokes the certificate of a node, for all nodes.
    pub fn revoke(&self, name: &str) {
        let certificate = self.folder.path().join(format!("{name}.pem"));
        self.authority.revoke(self.folder.path(), &[certificate], &[]).unwrap();
    }

    pub fn unit(&self, name: &str) -> Unit {
        self.unit_with(name, || {})
    }

    /// Starts a unit that calls `raised` when its functions raise something.
    pub fn unit_with(&self, name: &str, raised: impl FnMut() + Send + 'static) -> Unit {
        self.unit_on(name, TcpListener::bind("127.0.0.1:0").unwrap(), raised)
    }

    /// Starts a unit that accepts handshakes at this socket.
    pub fn unit_on(
        &self,
        name: &str,
        listening: TcpListener,
        mut raised: impl FnMut() + Send + 'static,
    ) -> Unit {
        let (identity, order) = (self.identity(name), Arc::new(UnitOrder::default()));
        let (sender, address) = channel();
        let (ordered, policy) = (Arc::clone(&order), self.policy.clone());
        let thread = std::thread::spawn(move || {
            let mut unit = UnitProcess::start(UnitOptions {
                listening,
                identity,
                policy: first_policy(),
                shelf: Box::<NoShelf>::default(),
                incarnation: 1,
                make: Box::new(move |_| Ok(assembly_of("test.rvl", &policy).graph)),
                reader: Box::<TextReader>::default(),
                effects: Box::new(move |_, _| raised()),
            })
            .unwrap();
            sender.send(unit.address().to_string()).unwrap();
            unit.run(&ordered)
        });
        Unit { name: name.to_owned(), address: address.recv().unwrap(), order, thread }
    }

    pub fn units(&self, count: usize) -> Vec<Unit> {
        (0..count).map(|number| self.unit(&format!("unit-{number}"))).collect()
    }

    pub fn runner(&self, config: UnitsConfig, units: &[Unit]) -> (Runner, RemoteHandle) {
        self.runner_after(0, config, units)
    }

    /// Creates a runner in a process with this number of restarts.
    pub fn runner_after(&self, restarts: u64, config: UnitsConfig, units: &[Unit]) -> (Runner, RemoteHandle) {
        self.try_runner(restarts, config, units).unwrap()
    }

    pub fn try_runner(
        &self,
        restarts: u64,
        config: UnitsConfig,
        units: &[Unit],
    ) -> Result<(Runner, RemoteHandle), RemoteError> {
        let (handle, control) = RemoteHandle::new();
        name_units(&handle, units);
        let identity = self.identity("dispatcher");
        let options = RemoteOptions {
            identity,
            policy: fixed_desk(),
            incarnation: 1 + restarts,
            control,
            dispatchers: Vec::new(),
            listening: None,
        };
        let began = Instant::now();
        let is_late = |_: &StartStatus| began.elapsed() > Duration::from_secs(30);
        let assembly = assembly_of("test.rvl", &self.policy);
        let runner = remote_runner(assembly, "test", config, options, Some(&is_late))?;
        Ok((runner, handle))
    }

    /// Returns a function that starts one of several dispatchers, on any thread.
    pub fn dispatcher(
        &self,
        name: &str,
        all: &[(String, String)],
        listening: Option<TcpListener>,
        config: UnitsConfig,
        units: &[Unit],
    ) -> impl FnOnce() -> Runner + Send + use<> {
        let (handle, control) = RemoteHandle::new();
        name_units(&handle, units);
        let (identity, dispatchers, policy) = (self.identity(name), all.to_vec(), self.policy.clone());
        let options =
            RemoteOptions { identity, policy: fixed_desk(), incarnation: 1, control, dispatchers, listening };
        let is_stopped = |_: &StartStatus| false;
        move || {
            let assembly = assembly_of("test.rvl", &policy);
            remote_runner(assembly, "test", config, options, Some(&is_stopped)).unwrap()
        }
    }
}

fn name_units(handle: &RemoteHandle, units: &[Unit]) {
    for unit in units {
        handle.send(NodeCommand::Add { name: unit.name.clone(), address: unit.address.clone() });
    }
}

pub fn config(mode: Granularity, units: u16) -> UnitsConfig {
    UnitsConfig {
        mode,
        units_min: units,
        units_max: 8,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    }
}

/// Sends a request to the dispatcher, as an operator does.
pub fn ask<T: Send + 'static>(
    (runner, handle, sink): (&mut Runner, &OperatorHandle, &mut Sink),
    request: impl FnOnce(Reply<T>) -> OperatorRequest,
) -> T {
    let (sender, answer) = channel();
    handle.send(request(Box::new(move |reply| sender.send(reply).unwrap()))).unwrap();
    runner.flush(sink).unwrap();
    answer.try_recv().unwrap().unwrap()
}

/// Waits until a node is as expected, while packets arrive.
pub fn play_until(
    runner: &mut Runner,
    frames: &mut impl Iterator<Item = Arriving>,
    sink: &mut Sink,
    handle: &RemoteHandle,
    (name, is_expected): (&str, fn(&NodeInfo) -> bool),
) {
    let is_reached = |nodes: &[NodeInfo]| nodes.iter().any(|node| node.name == name && is_expected(node));
    play_until_nodes(runner, frames, sink, handle, is_reached);
}

/// Waits until the nodes are as expected, while packets arrive.
pub fn play_until_nodes(
    runner: &mut Runner,
    frames: &mut impl Iterator<Item = Arriving>,
    sink: &mut Sink,
    handle: &RemoteHandle,
    is_expected: impl Fn(&[NodeInfo]) -> bool,
) {
    let began = Instant::now();
    while !is_expected(&handle.status()) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", handle.status());
        match frames.next() {
            Some(frame) => receive(runner, &frame, sink),
            None => runner.settle(sink).unwrap(),
        }
    }
}

/// Asserts that the same packets of each flow have left, in the same order.
pub fn assert_same(got: &Sink, expected: &Sink) {
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

pub fn assert_same_counts(report: &Report, single: &Report) {
    assert_eq!(report.drops, single.drops);
    assert_eq!(
        (report.packets_in, report.packets_out, report.flows.started),
        (single.packets_in, single.packets_out, single.flows.started)
    );
    assert!(report.adds_up());
}

pub fn end(units: Vec<Unit>) -> Vec<UnitFigures> {
    units.into_iter().map(|unit| unit.thread.join().unwrap().remove(0)).collect()
}
