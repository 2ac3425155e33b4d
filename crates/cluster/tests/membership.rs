//! The number of units: `units_min` work whenever nodes are there, without any packet, and drained
//! nodes come back. On virtual time.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use std::convert::Infallible;

use cluster::remote::{NodeCommand, NodeStatus};
use cluster::simulated::{LinkFaults, NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults};
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;

use support::{Sink, assembly_of};
use texts::FIREWALL;

const MS: u64 = 1_000_000;

/// A cluster without packets.
struct Quiet {
    cluster: SimulatedCluster,
    sink: Sink,
    now_ns: u64,
}

impl Quiet {
    fn new(units_min: u16, nodes: usize, faults: &[NodeFault]) -> Quiet {
        let config = UnitsConfig {
            mode: Granularity::Flow,
            units_min,
            units_max: 30,
            follow_at: Some(0.8),
            ..UnitsConfig::as_published()
        };
        let links = LinkFaults { latency_ns: 50_000, ..LinkFaults::NONE };
        let faults = SimulatedFaults { links, nodes: faults.to_vec(), ..SimulatedFaults::NONE };
        let make = || -> cluster::policies::GraphMaker {
            Box::new(move |_| Ok(assembly_of("test.rvl", FIREWALL).graph))
        };
        let assembly = assembly_of("test.rvl", FIREWALL);
        let cluster = SimulatedCluster::start(assembly, config, nodes, make, faults, (1, 0)).unwrap();
        Quiet { cluster, sink: Sink::default(), now_ns: 0 }
    }

    /// Lets time pass.
    fn pass(&mut self, ns: u64) -> Result<(), Infallible> {
        self.now_ns += ns;
        self.cluster.run_to(self.now_ns, &mut self.sink)
    }

    /// Lets time pass until these counts of nodes are active, spare and drained, and this one is
    /// in this state.
    fn await_states(&mut self, counts: [usize; 3], node: usize, state: NodeStatus) {
        for _ in 0..1_000 {
            let states = self.states();
            let count = |of| states.iter().filter(|&&state| state == of).count();
            if [Active, Spare, Drained].map(count) == counts && states[node] == state {
                return;
            }
            self.pass(20 * MS).unwrap();
        }
        panic!("expected {counts:?} and {state:?} at {node}, found {:?}", self.states());
    }

    fn states(&self) -> Vec<NodeStatus> {
        self.cluster.handle().status().iter().map(|node| node.status).collect()
    }

    fn drain(&mut self, name: &str) {
        self.cluster.handle().send(NodeCommand::Drain { name: name.to_owned() });
        self.pass(100 * MS).unwrap();
    }

    fn resume(&mut self, name: &str) {
        self.cluster.handle().send(NodeCommand::Resume { name: name.to_owned() });
    }
}

use NodeStatus::{Active, Drained, Spare};

#[test]
fn drained_node_comes_back_without_a_restart() {
    let mut quiet = Quiet::new(2, 3, &[]);
    quiet.await_states([2, 1, 0], 0, Active);
    // Several times, each of them.
    for (node, name) in [(0, "unit-0"), (1, "unit-1"), (2, "unit-2"), (0, "unit-0")] {
        quiet.drain(name);
        quiet.await_states([2, 0, 1], node, Drained);
        quiet.resume(name);
        // One more than needed is drained again as such.
        quiet.pass(3_000 * MS).unwrap();
        let state = quiet.states()[node];
        quiet.await_states([2, 1, 0], node, state);
    }
    // Where it is needed, it is a unit again.
    let mut quiet = Quiet::new(2, 2, &[]);
    quiet.drain("unit-1");
    quiet.await_states([1, 0, 1], 1, Drained);
    quiet.resume("unit-1");
    quiet.await_states([2, 0, 0], 1, Active);
}

#[test]
fn spare_node_takes_the_place_of_a_drained_one() {
    let mut quiet = Quiet::new(2, 3, &[]);
    quiet.drain("unit-1");
    quiet.await_states([2, 0, 1], 1, Drained);
    // Also that of the last one, which works until then.
    let mut quiet = Quiet::new(1, 2, &[]);
    quiet.await_states([1, 1, 0], 0, Active);
    quiet.drain("unit-0");
    quiet.await_states([1, 0, 1], 0, Drained);
}

#[test]
fn units_min_hold_after_losses_without_load() {
    let crash = |at_ms: u64, unit, back_ms: u64| NodeFault {
        at_ns: at_ms * MS,
        unit,
        kind: NodeFaultKind::Crash(back_ms * MS),
    };
    let faults = [crash(100, 1, 2_000), crash(101, 2, 2_500), crash(4_000, 0, 3_000), crash(4_500, 1, 10)];
    let mut quiet = Quiet::new(3, 3, &faults);
    quiet.pass(1_800 * MS).unwrap();
    assert_eq!(quiet.states()[0], Active);
    quiet.pass(18_000 * MS).unwrap();
    quiet.await_states([3, 0, 0], 0, Active);
}

/// A node whose unit the dispatcher has stopped crashes, and comes back.
#[test]
fn spare_node_that_crashes_can_be_employed() {
    let mut quiet = Quiet::new(2, 3, &[]);
    quiet.await_states([2, 1, 0], 0, Active);
    let spare = quiet.states().iter().position(|&state| state == Spare).unwrap();
    let at_ns = 3_000 * MS;
    let mut quiet =
        Quiet::new(2, 3, &[NodeFault { at_ns, unit: spare, kind: NodeFaultKind::Crash(100 * MS) }]);
    quiet.await_states([2, 1, 0], spare, Spare);
    quiet.pass(8_000 * MS).unwrap();
    let state = quiet.states()[spare];
    quiet.await_states([2, 1, 0], spare, state);
    let active = quiet.states().iter().position(|&state| state == Active).unwrap();
    quiet.drain(&format!("unit-{active}"));
    quiet.await_states([2, 0, 1], active, Drained);
}
