//! A policy for all nodes on a simulated network: all of them get it, including nodes that are
//! spare, crash or were away, or nothing changes. Of two concurrent orders, one holds.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use cluster::policies::{
    AppliedPolicy, GraphMaker, KeptPolicy, NoShelf, NumberedDigest, PolicyReader, PolicyShelf, PolicyTexts,
    ReadPolicy,
};
use cluster::policy_digest;
use cluster::remote::{
    NewPolicy, NodeStatus, PolicyBench, PolicyDesk, RemoteHandle, RolloutState, RolloutStatus,
};
use cluster::simulated::{
    LinkFaults, NodeFault, NodeFaultKind, SimulatedCluster, SimulatedDispatchers, SimulatedFaults,
};
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::operator::OperatorRequest;

use support::packets::{frame, udp, v4};
use support::{Arriving, Sink, assembly_of, conversation_with, profile, receive};
use texts::FIREWALL;

const SEED: u64 = 7;
/// Limit on the time until an expected event, in nanoseconds.
const PATIENCE_NS: u64 = 120_000_000_000;
/// Period of packets, and of checks.
const STEP_NS: u64 = 1_000_000;

/// A reader, or a bench, of policies with a name as their text.
#[derive(Default)]
struct Texts {
    texts: Option<PolicyTexts>,
    /// It cannot run policies with this text.
    refuses: &'static str,
}

impl Texts {
    fn take(&mut self) -> Option<Result<PolicyTexts, String>> {
        let texts = self.texts.take()?;
        let is_refused = !self.refuses.is_empty() && texts.text.contains(self.refuses);
        Some(if is_refused { Err(format!("no {} here", self.refuses)) } else { Ok(texts) })
    }
}

impl PolicyReader for Texts {
    fn begin(&mut self, texts: PolicyTexts) {
        self.texts = Some(texts);
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        let make: GraphMaker = Box::new(|_| Ok(assembly_of("test.rvl", FIREWALL).graph));
        Some(self.take()?.map(|texts| ReadPolicy { digest: policy_digest([texts.text.as_str()]), make }))
    }
}

impl PolicyBench for Texts {
    fn begin(&mut self, texts: PolicyTexts) {
        self.texts = Some(texts);
    }

    fn poll(&mut self) -> Option<Result<NewPolicy, String>> {
        Some(self.take()?.map(|texts| policy(&texts.text)))
    }
}

/// A store that dispatchers share.
#[derive(Clone, Default)]
struct Shared {
    present: Arc<Mutex<AppliedPolicy>>,
    kept: Option<KeptPolicy>,
}

impl PolicyShelf for Shared {
    fn keep(&mut self, policy: &AppliedPolicy, is_order: bool) {
        let mut present = self.present.lock().unwrap();
        let outcome = match present.id.number < policy.id.number {
            true => {
                *present = policy.clone();
                Ok(())
            }
            false if is_order => Err(format!("{} was first", present.texts.name)),
            false => Ok(()),
        };
        self.kept = Some(KeptPolicy { policy: policy.id, is_order, outcome });
    }

    fn poll_kept(&mut self) -> Option<KeptPolicy> {
        self.kept.take()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Returns a policy with this text.
fn policy(text: &str) -> NewPolicy {
    let texts = PolicyTexts { name: format!("{text}.rvl"), text: text.to_owned(), files: Vec::new() };
    let graph = assembly_of("test.rvl", FIREWALL).graph;
    NewPolicy { digest: policy_digest([text]), texts, graph }
}

fn numbered(number: u64, text: &str) -> NumberedDigest {
    NumberedDigest { number, digest: policy_digest([text]) }
}

fn config(units_min: u16) -> UnitsConfig {
    UnitsConfig {
        mode: Granularity::Flow,
        units_min,
        units_max: 30,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    }
}

fn desk() -> PolicyDesk {
    PolicyDesk::new(AppliedPolicy::default(), Box::<Texts>::default(), Box::<NoShelf>::default())
}

fn make_unit(refuses: &'static str) -> impl Fn() -> (GraphMaker, Box<dyn PolicyReader>) {
    move || {
        let make: GraphMaker = Box::new(|_| Ok(assembly_of("test.rvl", FIREWALL).graph));
        (make, Box::new(Texts { refuses, ..Texts::default() }))
    }
}

fn with_nodes(faults: &[NodeFault]) -> SimulatedFaults {
    SimulatedFaults { nodes: faults.to_vec(), ..SimulatedFaults::NONE }
}

/// A cluster, and packets that arrive all the time.
struct Rig {
    cluster: SimulatedCluster,
    frames: Vec<Arriving>,
    sink: Sink,
    at_ns: u64,
    next: usize,
}

impl Rig {
    fn start((units, units_min): (usize, u16), faults: SimulatedFaults) -> Rig {
        Rig::start_refusing((units, units_min), faults, "")
    }

    fn start_refusing(
        (units, units_min): (usize, u16),
        faults: SimulatedFaults,
        refuses: &'static str,
    ) -> Rig {
        let frames = conversation_with(
            assembly_of("test.rvl", FIREWALL),
            &profile(Payload::Random, 2_000, 5_000.0, SEED),
        );
        let at_ns = frames[0].timestamp_ns;
        let nodes = (make_unit(refuses), desk());
        let assembly = assembly_of("test.rvl", FIREWALL);
        let cluster =
            SimulatedCluster::start_with(assembly, config(units_min), units, nodes, faults, (SEED, at_ns))
                .unwrap();
        Rig { cluster, frames, sink: Sink::default(), at_ns, next: 0 }
    }

    fn handle(&self) -> RemoteHandle {
        self.cluster.handle().clone()
    }

    /// Lets time pass and packets arrive for a step.
    fn step(&mut self) {
        self.at_ns += STEP_NS;
        self.cluster.run_to(self.at_ns, &mut self.sink).unwrap();
        while let Some(frame) = self.frames.get(self.next).filter(|frame| frame.timestamp_ns <= self.at_ns) {
            receive(self.cluster.runner(), frame, &mut self.sink);
            self.next += 1;
        }
        self.cluster.runner().flush(&mut self.sink).unwrap();
    }

    fn run_for(&mut self, ns: u64) {
        (0..ns / STEP_NS).for_each(|_| self.step());
    }

    fn run_until(&mut self, what: &str, is_so: impl Fn(&RemoteHandle) -> bool) {
        let began_ns = self.at_ns;
        while !is_so(&self.handle()) {
            let (rollout, nodes) = (self.handle().rollout(), self.handle().status());
            assert!(self.at_ns - began_ns < PATIENCE_NS, "{what}: {rollout:?}, {nodes:?}");
            self.step();
        }
    }

    /// Sends the order, and returns its outcome.
    fn apply(&mut self, text: &str) -> Result<RolloutStatus, String> {
        let order = self.handle().apply(policy(text)).unwrap();
        let failure = |handle: &RemoteHandle| {
            handle.failed().into_iter().find(|failed| failed.number == order).map(|failed| failed.reason)
        };
        let is_done = |handle: &RemoteHandle| {
            let rollout = handle.rollout().filter(|rollout| rollout.number == order);
            rollout.is_some_and(|rollout| rollout.state == RolloutState::Done)
        };
        self.run_until(text, |handle| is_done(handle) || failure(handle).is_some());
        match failure(&self.handle()) {
            Some(reason) => Err(reason),
            None => Ok(self.handle().rollout().unwrap()),
        }
    }

    fn count(&self, status: NodeStatus) -> usize {
        self.handle().status().iter().filter(|node| node.status == status).count()
    }

    /// Asserts that all connected nodes and the dispatcher run this policy.
    fn assert_all_run(&self, expected: NumberedDigest) {
        let nodes = self.handle().status();
        assert!(nodes.iter().all(|node| node.policy == Some(expected)), "{expected:?}: {nodes:?}");
        assert_eq!(self.handle().policy().0, expected);
    }

    /// Ends the run. Every packet is accounted for.
    fn finish(mut self) {
        let report = self.cluster.finish(&mut self.sink).unwrap().report;
        assert!(report.adds_up(), "{report:?}");
    }
}

#[test]
fn spare_nodes_are_done_when_they_run_it() {
    for (units, units_min) in [(3, 2), (4, 1), (2, 1), (3, 3)] {
        let mut rig = Rig::start((units, units_min), SimulatedFaults::NONE);
        rig.run_until("all are there", |handle| handle.status().iter().all(|node| node.policy.is_some()));
        let status = rig.apply("one").unwrap();
        assert_eq!((status.nodes_done, status.nodes, status.policy_number), (units, units, 1));
        rig.assert_all_run(numbered(1, "one"));
        let status = rig.apply("two").unwrap();
        assert_eq!((status.nodes_done, status.policy_number), (units, 2));
        rig.assert_all_run(numbered(2, "two"));
        assert_eq!(rig.handle().policy().1, "two.rvl");
        assert!(rig.count(NodeStatus::Active) >= usize::from(units_min).min(2) - 1);
        rig.finish();
    }
}

/// A unit that crashes at any time and restarts with its file gets the policy.
#[test]
fn units_that_restart_meanwhile_do_not_fail_it() {
    for at_ms in [10, 60, 120, 200, 300, 450, 600, 900, 1_300] {
        for kind in [NodeFaultKind::Crash(1_000_000_000), NodeFaultKind::Restart(500_000_000)] {
            let faults = with_nodes(&[NodeFault { at_ns: at_ms * 1_000_000, unit: 1, kind }]);
            let mut rig = Rig::start((3, 2), faults);
            rig.run_for(50_000_000);
            let status = rig.apply("one").unwrap();
            assert_eq!(status.state, RolloutState::Done, "{at_ms} ms, {kind:?}");
            rig.run_until("all are back", |handle| {
                handle.status().iter().all(|node| node.policy == Some(numbered(1, "one")))
            });
            rig.assert_all_run(numbered(1, "one"));
            rig.finish();
        }
    }
}

/// Returns packets of fifty flows, one each millisecond, for this time.
fn steady(from_ns: u64, seconds: u64) -> Vec<Arriving> {
    let arriving = |number: u64| {
        let from = v4(10, 0, 0, (number % 50) as u8 + 1, 5000);
        let data = frame(&udp(from, v4(198, 51, 100, 7, 53), &[7; 20]));
        Arriving { timestamp_ns: from_ns + number * 1_000_000, port: 0, data }
    };
    (0..seconds * 1_000).map(arriving).collect()
}

/// Nodes that have reconnected once leave in order every time.
#[test]
fn second_rollouts_and_restarts_after_one_lose_no_flow() {
    const SECOND_NS: u64 = 1_000_000_000;
    for (pause_s, restart_s) in [(1, None), (15, None), (20, Some(12))] {
        let restart = restart_s.map(|at_s| NodeFault {
            at_ns: at_s * SECOND_NS,
            unit: 0,
            kind: NodeFaultKind::Restart(SECOND_NS / 2),
        });
        let mut rig = Rig::start((3, 3), with_nodes(restart.as_slice()));
        rig.frames = steady(rig.at_ns, 40);
        let operators = rig.cluster.runner().open_to_operators();
        rig.run_for(SECOND_NS / 2);
        for text in ["one", "two"] {
            rig.apply(text).unwrap();
            rig.run_for(pause_s * SECOND_NS);
        }
        let (sender, answer) = channel();
        let reply = Box::new(move |status| sender.send(status).unwrap());
        operators.send(OperatorRequest::Status(reply)).unwrap();
        rig.step();
        let status = answer.try_recv().unwrap().unwrap().dispatcher.unwrap();
        let report = rig.cluster.finish(&mut rig.sink).unwrap().report;
        assert!(report.adds_up());
        let lost = (report.drops.get("unit-lost"), status.flows_lost);
        assert_eq!(lost, (None, 0), "{pause_s}, {restart_s:?}");
    }
}

/// The load has required more units than there are nodes. Now one is enough, and the other node is
/// about to become the waiting unit.
#[test]
fn policy_can_be_applied_while_a_node_changes_its_unit() {
    let at_ns = 1_000_000_000;
    let config = UnitsConfig { capacity_bps: 1_000_000, follow_at: Some(0.8), ..config(1) };
    let (assembly, nodes) = (assembly_of("test.rvl", FIREWALL), (make_unit(""), desk()));
    let faults = SimulatedFaults::NONE;
    let cluster = SimulatedCluster::start_with(assembly, config, 2, nodes, faults, (SEED, at_ns)).unwrap();
    let arriving = |number: u64| {
        let from = v4(10, 0, 0, (number % 50) as u8 + 1, 5000);
        let data = frame(&udp(from, v4(198, 51, 100, 7, 53), &[0; 958]));
        Arriving { timestamp_ns: at_ns + number * 2_000_000, port: 0, data }
    };
    let frames = (0..2_500).map(arriving).collect();
    let mut rig = Rig { cluster, frames, sink: Sink::default(), at_ns, next: 0 };
    rig.run_for(5_000_000_000);
    assert_eq!(rig.count(NodeStatus::Active), 2);
    rig.run_until("a node is on its way to another unit", |handle| {
        handle.status().iter().any(|node| node.status == NodeStatus::Drained)
    });
    rig.apply("one").unwrap();
    rig.finish();
}

#[test]
fn the_only_unit_keeps_its_policy_and_nothing_changes() {
    let mut rig = Rig::start((1, 1), SimulatedFaults::NONE);
    rig.run_for(50_000_000);
    let reason = rig.apply("one").unwrap_err();
    assert!(reason.contains("unit-0 is the only unit"), "{reason}");
    assert_eq!(rig.handle().policy().0, NumberedDigest::default());
    rig.assert_all_run(NumberedDigest::default());
    rig.finish();
}

#[test]
fn policy_that_one_node_cannot_run_changes_nothing() {
    let mut rig = Rig::start_refusing((3, 2), SimulatedFaults::NONE, "two");
    rig.run_for(50_000_000);
    rig.apply("one").unwrap();
    let reason = rig.apply("two").unwrap_err();
    assert!(reason.contains("cannot run the policy: no two here"), "{reason}");
    rig.run_for(200_000_000);
    rig.assert_all_run(numbered(1, "one"));
    assert_eq!(rig.handle().policy().1, "one.rvl");
    assert_eq!(rig.apply("three").unwrap().policy_number, 2);
    rig.finish();
}

/// A dry run checks on all nodes what the rollout would, and nothing changes.
#[test]
fn dry_run_says_what_the_order_would() {
    for (units, text) in [(3, "one"), (3, "two"), (1, "one")] {
        let mut rig = Rig::start_refusing((units, 1), SimulatedFaults::NONE, "two");
        rig.run_for(50_000_000);
        let (sender, answer) = channel();
        let reply = Box::new(move |outcome: Result<u64, String>| sender.send(outcome).unwrap());
        rig.handle().order(policy(text), true, reply).unwrap();
        let checked = (0..PATIENCE_NS / STEP_NS)
            .find_map(|_| {
                rig.step();
                answer.try_recv().ok()
            })
            .unwrap();
        rig.run_for(100_000_000);
        assert_eq!((rig.handle().rollout(), rig.handle().failed()), (None, Vec::new()));
        rig.assert_all_run(NumberedDigest::default());
        let done = rig.apply(text);
        // Nodes answer in any order.
        let of_any = |reason: String| reason.split_once(' ').map(|(_, reason)| reason.to_owned());
        assert_eq!(checked.err().map(of_any), done.err().map(of_any), "{units} units, {text}");
        rig.finish();
    }
}

#[test]
fn policy_without_nodes_takes_effect_when_they_come() {
    let crash = |unit| NodeFault { at_ns: 10_000_000, unit, kind: NodeFaultKind::Crash(20_000_000_000) };
    let mut rig = Rig::start((2, 2), with_nodes(&[crash(0), crash(1)]));
    rig.run_until("all are lost", |handle| handle.status().iter().all(|node| node.policy.is_none()));
    let status = rig.apply("one").unwrap();
    assert_eq!((status.nodes_done, status.nodes), (0, 0));
    rig.run_until("all are back", |handle| {
        handle.status().iter().all(|node| node.status == NodeStatus::Active && node.policy.is_some())
    });
    rig.assert_all_run(numbered(1, "one"));
    rig.finish();
}

/// A dispatcher that starts with an older policy gets the present one from units, wherever the one
/// before it was lost.
#[test]
fn dispatcher_with_an_older_policy_gets_the_present_one() {
    for lost_after_ms in [0, 5, 40, 100, 200, 400, 700, 1_000, 3_000] {
        let mut rig = Rig::start((3, 3), SimulatedFaults::NONE);
        rig.run_for(50_000_000);
        rig.handle().apply(policy("one")).unwrap();
        rig.run_for(lost_after_ms * 1_000_000);
        let has_any = rig.handle().status().iter().any(|node| node.policy == Some(numbered(1, "one")));
        let assembly = assembly_of("test.rvl", FIREWALL);
        let restarted = rig.cluster.restart_dispatcher_with(assembly, config(3), desk());
        assert!(restarted.is_ok(), "lost after {lost_after_ms} ms: {:?}", restarted.err());
        rig.run_until("all are the same", |handle| {
            let nodes = handle.status();
            let runs = nodes.first().and_then(|node| node.policy);
            nodes.iter().all(|node| node.policy == runs && runs.is_some())
        });
        let expected = if has_any { numbered(1, "one") } else { rig.handle().policy().0 };
        rig.assert_all_run(expected);
        assert_eq!(rig.apply("two").unwrap().policy_number, expected.number + 1, "{lost_after_ms} ms");
        rig.finish();
    }
}

/// A node drained by operators gets the policy, and stays drained.
#[test]
fn drained_nodes_get_it_too() {
    let mut rig = Rig::start((4, 2), SimulatedFaults::NONE);
    rig.run_until("all are there", |handle| handle.status().iter().all(|node| node.policy.is_some()));
    rig.handle().send(cluster::remote::NodeCommand::Drain { name: "unit-3".to_owned() });
    rig.handle().send(cluster::remote::NodeCommand::Drain { name: "unit-0".to_owned() });
    rig.run_until("both are drained", |handle| {
        handle.status().iter().filter(|node| node.status == NodeStatus::Drained).count() == 2
    });
    let status = rig.apply("one").unwrap();
    assert_eq!(status.nodes_done, 4, "{status:?}");
    rig.assert_all_run(numbered(1, "one"));
    assert_eq!(rig.count(NodeStatus::Drained), 2);
    rig.finish();
}

/// Several dispatchers.
struct Rigs {
    cluster: SimulatedDispatchers<Sink>,
    at_ns: u64,
}

type Answer = Receiver<Result<u64, String>>;

impl Rigs {
    fn start(dispatchers: usize, shelf: impl Fn(usize) -> Box<dyn PolicyShelf>) -> Rigs {
        Rigs::start_with(dispatchers, shelf, LinkFaults::NONE)
    }

    fn start_with(
        dispatchers: usize,
        shelf: impl Fn(usize) -> Box<dyn PolicyShelf>,
        links: LinkFaults,
    ) -> Rigs {
        let desk = |number: usize| {
            let refuses = if number == 1 { "two" } else { "" };
            let bench = Texts { refuses, ..Texts::default() };
            PolicyDesk::new(AppliedPolicy::default(), Box::new(bench), shelf(number))
        };
        let assemble = || assembly_of("test.rvl", FIREWALL);
        let nodes = (make_unit("four"), desk);
        let faults = SimulatedFaults { links, ..SimulatedFaults::NONE };
        let cluster =
            SimulatedDispatchers::start_with((dispatchers, 3), assemble, config(2), nodes, faults, (SEED, 0));
        let mut rigs = Rigs { cluster: cluster.unwrap(), at_ns: 0 };
        let all = dispatchers - 1;
        rigs.run_until("all have met", |of| {
            let others = of.iter().map(RemoteHandle::others);
            others.into_iter().all(|others| others.iter().filter(|other| other.is_connected).count() == all)
        });
        rigs
    }

    fn handles(&self) -> Vec<RemoteHandle> {
        let mut number = 0;
        std::iter::from_fn(|| {
            number += 1;
            (number <= self.dispatchers()).then(|| self.cluster.handle(number - 1))
        })
        .collect()
    }

    fn dispatchers(&self) -> usize {
        self.cluster.len()
    }

    fn run_until(&mut self, what: &str, is_so: impl Fn(&[RemoteHandle]) -> bool) {
        let (handles, began_ns) = (self.handles(), self.at_ns);
        while !is_so(&handles) {
            let states: Vec<_> = handles.iter().map(|handle| (handle.rollout(), handle.failed())).collect();
            assert!(self.at_ns - began_ns < PATIENCE_NS, "{what}: {states:?}");
            self.at_ns += STEP_NS;
            self.cluster.run_to(self.at_ns);
        }
    }

    fn order(&self, number: usize, text: &str) -> (u64, Answer) {
        let (sender, answer) = channel();
        let reply = Box::new(move |outcome| {
            // Some tests do not wait for it.
            let _ = sender.send(outcome);
        });
        (self.cluster.handle(number).order(policy(text), false, reply).unwrap(), answer)
    }

    /// Waits for the end of orders, one of each dispatcher. Returns the error of each, if it
    /// failed.
    fn outcomes(&mut self, orders: &[(usize, u64)]) -> Vec<Option<String>> {
        let failure = |handle: &RemoteHandle, order: u64| {
            handle.failed().into_iter().find(|failed| failed.number == order).map(|failed| failed.reason)
        };
        let has_ended = |handle: &RemoteHandle, order: u64| {
            let rollout = handle.rollout().filter(|rollout| rollout.number == order);
            let is_done = rollout.is_some_and(|rollout| rollout.state == RolloutState::Done);
            is_done || failure(handle, order).is_some()
        };
        self.run_until("orders end", |of| orders.iter().all(|&(at, order)| has_ended(&of[at], order)));
        let handles = self.handles();
        orders.iter().map(|&(at, order)| failure(&handles[at], order)).collect()
    }

    /// Waits until all dispatchers and units run this policy.
    fn assert_all_come_to_run(&mut self, expected: NumberedDigest) {
        self.run_until("all run it", |of| {
            of.iter().all(|handle| {
                let others = handle.others().into_iter().map(|other| other.policy);
                let all = handle.status().into_iter().map(|node| node.policy).chain(others);
                handle.policy().0 == expected && all.into_iter().all(|policy| policy == Some(expected))
            })
        });
    }
}

fn shared() -> impl Fn(usize) -> Box<dyn PolicyShelf> {
    let shared = Shared::default();
    move |_| Box::new(shared.clone())
}

fn not_shared(_: usize) -> Box<dyn PolicyShelf> {
    Box::<NoShelf>::default()
}

#[test]
fn one_order_is_for_all_dispatchers() {
    let links = LinkFaults { loss: 0.02, latency_ns: 200_000, ..LinkFaults::NONE };
    for links in [LinkFaults::NONE, links] {
        let mut rigs = Rigs::start_with(3, not_shared, links);
        let (order, _) = rigs.order(0, "one");
        assert_eq!(rigs.outcomes(&[(0, order)]), [None]);
        rigs.assert_all_come_to_run(numbered(1, "one"));
        // Another dispatcher, or one of the units, cannot run it.
        for (text, expected) in [("two", "dispatcher-1: no two here"), ("four", "no four here")] {
            let (order, _) = rigs.order(0, text);
            let outcomes = rigs.outcomes(&[(0, order)]);
            assert!(outcomes[0].as_ref().is_some_and(|reason| reason.contains(expected)), "{outcomes:?}");
            rigs.assert_all_come_to_run(numbered(1, "one"));
        }
        let (order, _) = rigs.order(0, "three");
        assert_eq!(rigs.outcomes(&[(0, order)]), [None]);
        rigs.assert_all_come_to_run(numbered(2, "three"));
    }
}

#[test]
fn first_dispatcher_orders_where_there_is_no_store() {
    let mut rigs = Rigs::start(2, not_shared);
    let (order, answer) = rigs.order(1, "one");
    let outcomes = rigs.outcomes(&[(1, order)]);
    let said = outcomes[0].clone().unwrap();
    assert!(said.contains("dispatcher-0 orders policies") && said.contains("[store]"), "{said}");
    assert_eq!(answer.try_recv(), Ok(Err(said)));
    rigs.assert_all_come_to_run(NumberedDigest::default());
}

/// Two orders at two dispatchers, at once or in short succession: one holds, and the other fails
/// with a reason that names it.
#[test]
fn of_two_orders_at_once_one_holds() {
    for (number, after_us) in [0, 50, 100, 200, 400, 1_000, 20_000, 300_000].into_iter().enumerate() {
        for (first, second) in [[(0, 1), (2, 1)], [(1, 0), (1, 2)]][number % 2] {
            let mut rigs = Rigs::start(3, shared());
            let (earlier, _) = rigs.order(first, "one");
            rigs.at_ns += after_us * 1_000;
            rigs.cluster.run_to(rigs.at_ns);
            let (later, _) = rigs.order(second, "three");
            let outcomes = rigs.outcomes(&[(first, earlier), (second, later)]);
            let (winner, loser) = match &outcomes[..] {
                [None, Some(reason)] => (("one", first), reason),
                [Some(reason), None] => (("three", second), reason),
                other => panic!("{after_us} us, {first} and {second}: {other:?}"),
            };
            let is_named = loser.contains(&format!("{}.rvl", winner.0));
            assert!(is_named, "{after_us} us, {first} and {second}: {loser}, {winner:?} won");
            rigs.assert_all_come_to_run(numbered(1, winner.0));
        }
    }
}

#[test]
fn order_while_another_one_runs_is_refused() {
    let mut rig = Rig::start((3, 2), SimulatedFaults::NONE);
    rig.run_for(50_000_000);
    let first = rig.handle().apply(policy("one")).unwrap();
    rig.run_for(3_000_000);
    let reason = rig.apply("two").unwrap_err();
    assert!(reason.contains("one.rvl is being applied"), "{reason}");
    rig.run_until("the first is done", |handle| {
        handle.rollout().is_some_and(|rollout| rollout.number == first && rollout.state == RolloutState::Done)
    });
    rig.assert_all_run(numbered(1, "one"));
    rig.finish();
}
