//! The number of units: `units_min` work whenever nodes are connected, even without packets, and
//! drained nodes become available again. On virtual time.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;
#[path = "common/texts.rs"]
mod texts;

use std::convert::Infallible;

use cluster::remote::{NodeCommand, NodeStatus};
use cluster::simulated::{LinkFaults, NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults};
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;

use support::packets::{frame, udp, v4};
use support::{Arriving, Sink, assembly_of, receive};
use texts::FIREWALL;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Capacity of a unit, in bits per second.
const CAPACITY_BPS: u64 = 1_000_000;

/// A cluster without packets, unless a test sends some.
struct Quiet {
    cluster: SimulatedCluster,
    sink: Sink,
    now_ns: u64,
}

impl Quiet {
    fn new(units_min: u16, nodes: usize, faults: &[NodeFault]) -> Quiet {
        Quiet::with_max((units_min, 30), nodes, faults)
    }

    fn with_max((units_min, units_max): (u16, u16), nodes: usize, faults: &[NodeFault]) -> Quiet {
        let config = UnitsConfig {
            mode: Granularity::Flow,
            units_min,
            units_max,
            capacity_bps: CAPACITY_BPS,
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

    /// Sends packets of many flows for this time, as many as this number of units can process.
    fn load(&mut self, units: u64, ns: u64) {
        let until_ns = self.now_ns + ns;
        for number in 0.. {
            self.pass(8_000 * SECOND / (units * CAPACITY_BPS)).unwrap();
            if self.now_ns >= until_ns {
                return;
            }
            let from = v4(10, 0, 0, (number % 50) as u8 + 1, 5000);
            let data = frame(&udp(from, v4(198, 51, 100, 7, 53), &[0; 958]));
            let frame = Arriving { timestamp_ns: self.now_ns, port: 0, data };
            receive(self.cluster.runner(), &frame, &mut self.sink);
        }
    }

    /// Lets time pass until these counts of nodes are active, spare and drained, and this node is
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
    // Each of them, several times.
    for (node, name) in [(0, "unit-0"), (1, "unit-1"), (2, "unit-2"), (0, "unit-0")] {
        quiet.drain(name);
        quiet.await_states([2, 0, 1], node, Drained);
        quiet.resume(name);
        // A superfluous unit is drained again.
        quiet.pass(3_000 * MS).unwrap();
        let state = quiet.states()[node];
        quiet.await_states([2, 1, 0], node, state);
    }
    // Where it is needed, it becomes a unit again.
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
    // The same for the only unit, which works until then.
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

/// A node with a stopped unit crashes, and reconnects.
#[test]
fn spare_node_that_crashes_can_be_activated() {
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

/// The load requires more units than there are nodes. The unit without a node does not replace a
/// working unit once fewer are needed.
#[test]
fn unit_without_a_node_does_not_keep_others_from_starting() {
    let mut quiet = Quiet::new(1, 2, &[]);
    quiet.load(4, 5 * SECOND);
    assert_eq!(quiet.states(), [Active, Active]);
    quiet.pass(10 * SECOND).unwrap();
    let active = quiet.states().iter().position(|&state| state == Active).unwrap();
    quiet.await_states([1, 1, 0], active, Active);
    quiet.drain(&format!("unit-{active}"));
    quiet.await_states([1, 0, 1], active, Drained);
}

#[test]
fn load_that_comes_and_goes_uses_no_units_up() {
    let mut quiet = Quiet::with_max((1, 12), 2, &[]);
    for cycle in 0..16 {
        quiet.load(4, 5 * SECOND);
        assert_eq!(quiet.states(), [Active, Active], "{cycle}");
        quiet.pass(10 * SECOND).unwrap();
    }
}

/// An operator drains a node that is about to become another unit.
#[test]
fn node_that_is_drained_while_it_changes_its_unit_stays_drained() {
    let mut quiet = Quiet::new(1, 2, &[]);
    quiet.load(4, 5 * SECOND);
    let changing = |quiet: &Quiet| quiet.states().iter().position(|&state| state == Drained);
    let node = (0..5_000).find_map(|_| {
        quiet.pass(MS).unwrap();
        changing(&quiet)
    });
    let node = node.unwrap();
    assert_eq!(quiet.cluster.handle().status()[node].reason, "it becomes another unit");
    quiet.drain(&format!("unit-{node}"));
    quiet.pass(20 * SECOND).unwrap();
    let status = quiet.cluster.handle().status()[node].clone();
    assert_eq!((status.status, &*status.reason), (Drained, "drained by an operator, until it is resumed"));
    quiet.resume(&format!("unit-{node}"));
    let state = |quiet: &Quiet| quiet.states()[node];
    quiet.pass(5 * SECOND).unwrap();
    assert!(matches!(state(&quiet), Active | Spare), "{:?}", quiet.states());
}
