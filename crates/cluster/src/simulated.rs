//! Nodes on one thread, on virtual time, with faulty links: the code of the processes over a
//! simulated network. The same seed gives the same run.
//!
//! A [`SimulatedCluster`] has a dispatcher, which the caller drives, and units;
//! [`SimulatedDispatchers`] has several. Datagrams take time, and are lost, duplicated and
//! reordered; directions of links fail for a while; units pause, crash and restart; clocks run at
//! different rates. Handshakes are simulated only with their duration and their checks:
//! [`identity`](crate::identity) has tests of its own.

mod dispatchers;
mod faults;
mod messages;
mod timeline;
mod world;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use packet::split_mix;
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Output, Report, Runner};

use self::world::{NodeId, UnitMaker, World};
use crate::addresses::Endpoints;
use crate::identity::Session;
use crate::network::{Handover, Network};
use crate::policies::{AppliedPolicy, FixedPolicy, GraphMaker, KnownPolicies, PolicyReader};
use crate::remote::{HomeTable, NodeCommand, PolicyDesk, RemoteError, RemoteHandle, runner_over};
use crate::unit::UnitProcess;
use crate::wire::UnitFigures;

pub use dispatchers::{SimulatedDispatchers, SimulatedDispatchersOutcome};
pub use faults::{
    LinkFaults, MessageFault, MessageFaultKind, MessageKind, NodeFault, NodeFaultKind, SimulatedFaults,
};
pub use world::SimulatedCounters;

/// Period in which the dispatcher handles deadlines, in nanoseconds.
const TICK_NS: u64 = 1_000_000;

/// A node's end of the simulated network.
pub struct SimulatedNetwork {
    world: Rc<World>,
    node: NodeId,
    policies: KnownPolicies,
}

impl Network for SimulatedNetwork {
    fn policies(&self) -> &KnownPolicies {
        &self.policies
    }

    fn now_ns(&self) -> u64 {
        self.world.clock_ns(self.node)
    }

    fn stopwatch(&self) -> fn() -> u64 {
        || 0 // Durations depend on the machine.
    }

    fn connect(&mut self, scope: &str, name: &str, _address: &str) {
        self.world.connect(self.node, scope, name);
    }

    fn forget(&mut self, scope: &str, name: &str) {
        self.world.forget(self.node, scope, name);
    }

    fn poll_session(&mut self) -> Option<Session> {
        self.world.poll_session(self.node)
    }

    fn receive(&mut self, take: &mut dyn FnMut(Endpoints, &mut [u8])) -> bool {
        self.world.receive(self.node, take)
    }

    fn note_message(&mut self, to: SocketAddr, message: &[u8]) {
        self.world.note_message(self.node, to, message);
    }

    fn send(&mut self, ends: Endpoints, datagrams: &[u8], segment: usize) -> Handover {
        let each = datagrams.chunks(segment.max(1));
        each.for_each(|datagram| self.world.send(self.node, ends.remote, datagram));
        Handover::Taken
    }

    fn wait(&mut self, timeout: Duration) {
        if self.world.is_stuck() {
            // Nothing that the dispatcher waits for can arrive any more: a bug.
            #[allow(clippy::panic)]
            {
                panic!("the dispatcher waits forever for: {:?}", self.world.states());
            }
        }
        self.world.run_until_arrival(self.node, timeout.as_nanos() as u64);
    }
}

/// A dispatcher and its units.
pub struct SimulatedCluster {
    world: Rc<World>,
    runner: Runner,
    handle: RemoteHandle,
    units: usize,
    /// Time of the first packet, when the world begins.
    start_ns: u64,
    ticked_ns: u64,
}

impl SimulatedCluster {
    /// Starts a dispatcher and `units` units with the names `unit-0` and so on. `make` returns a
    /// maker of graphs for each. Packets arrive from `start_ns` on.
    ///
    /// # Errors
    /// As for [`remote_runner`](crate::remote::remote_runner).
    pub fn start(
        assembly: Assembly,
        config: UnitsConfig,
        units: usize,
        make: impl Fn() -> GraphMaker + 'static,
        faults: SimulatedFaults,
        start: (u64, u64),
    ) -> Result<SimulatedCluster, RemoteError> {
        let make = move || -> (GraphMaker, Box<dyn PolicyReader>) { (make(), Box::new(FixedPolicy::new())) };
        SimulatedCluster::start_reading(assembly, config, units, make, faults, start)
    }

    /// As [`start`](SimulatedCluster::start), with units that can change their policy: `make` also
    /// returns a reader for each.
    ///
    /// # Errors
    /// As for [`start`](SimulatedCluster::start).
    pub fn start_reading(
        assembly: Assembly,
        config: UnitsConfig,
        units: usize,
        make: impl Fn() -> (GraphMaker, Box<dyn PolicyReader>) + 'static,
        faults: SimulatedFaults,
        start: (u64, u64),
    ) -> Result<SimulatedCluster, RemoteError> {
        let desk = PolicyDesk::fixed(AppliedPolicy::default());
        SimulatedCluster::start_with(assembly, config, units, (make, desk), faults, start)
    }

    /// As [`start_reading`](SimulatedCluster::start_reading), with a dispatcher that can adopt
    /// policies of others.
    ///
    /// # Errors
    /// As for [`start`](SimulatedCluster::start).
    pub fn start_with(
        assembly: Assembly,
        config: UnitsConfig,
        units: usize,
        (make, desk): (impl Fn() -> (GraphMaker, Box<dyn PolicyReader>) + 'static, PolicyDesk),
        faults: SimulatedFaults,
        (seed, start_ns): (u64, u64),
    ) -> Result<SimulatedCluster, RemoteError> {
        let world = World::new(faults, seed);
        world.add("dispatcher", None);
        let make: UnitMaker = Rc::new(make);
        for number in 0..units {
            world.add(&format!("unit-{number}"), Some(Rc::clone(&make)));
        }
        world.begin();
        let (runner, handle) = start_dispatcher(&world, assembly, (config, desk), units)?;
        world.begin_faults();
        Ok(SimulatedCluster { world, runner, handle, units, start_ns, ticked_ns: 0 })
    }

    /// Crashes the dispatcher, and starts another process of it at once. It knows no flows, and the
    /// former [`handle`](SimulatedCluster::handle) is dead.
    ///
    /// # Errors
    /// As for [`start`](SimulatedCluster::start).
    pub fn restart_dispatcher(&mut self, assembly: Assembly, config: UnitsConfig) -> Result<(), RemoteError> {
        self.restart_dispatcher_with(assembly, config, PolicyDesk::fixed(AppliedPolicy::default()))
    }

    /// As [`restart_dispatcher`](SimulatedCluster::restart_dispatcher), with a dispatcher that can
    /// adopt policies of others.
    ///
    /// # Errors
    /// As for [`start`](SimulatedCluster::start).
    pub fn restart_dispatcher_with(
        &mut self,
        assembly: Assembly,
        config: UnitsConfig,
        desk: PolicyDesk,
    ) -> Result<(), RemoteError> {
        self.world.restart_dispatcher();
        (self.runner, self.handle) = start_dispatcher(&self.world, assembly, (config, desk), self.units)?;
        Ok(())
    }

    /// Returns true if the dispatcher is paused: arriving packets wait at its ports.
    pub fn is_paused(&self) -> bool {
        self.world.paused_until_ns(self.world.dispatcher()).is_some()
    }

    /// Returns the runner of the dispatcher.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Returns the operators' handle of the dispatcher.
    pub fn handle(&self) -> &RemoteHandle {
        &self.handle
    }

    /// Returns the number of flows in the tables of units.
    pub fn flows_at_units(&self) -> u64 {
        self.world.flows_at_units()
    }

    /// Returns the counters of the network so far.
    pub fn counters(&self) -> SimulatedCounters {
        self.world.counters()
    }

    /// Returns the units that have crashed so far, by number.
    pub fn crashed(&self) -> Vec<usize> {
        self.world.crashed()
    }

    /// Runs up to a packet's arrival. The dispatcher works as soon as anything arrives.
    ///
    /// # Errors
    /// The errors of `output`.
    pub fn run_to<O: Output>(&mut self, at_ns: u64, output: &mut O) -> Result<(), O::Error> {
        let until_ns = at_ns.saturating_sub(self.start_ns);
        loop {
            if let Some(paused_ns) = self.world.paused_until_ns(self.world.dispatcher()) {
                self.world.run_to(self.world.dispatcher(), paused_ns.min(until_ns));
                if paused_ns > until_ns {
                    return Ok(());
                }
            }
            let next_ns = (self.ticked_ns + TICK_NS).min(until_ns);
            let has_arrived = self.world.run_to(self.world.dispatcher(), next_ns);
            let now_ns = self.world.run_time_ns();
            if now_ns >= self.ticked_ns + TICK_NS {
                self.ticked_ns = now_ns;
                self.runner.handle_timeout(self.start_ns + now_ns, output)?;
            } else if has_arrived {
                self.runner.flush(output)?;
            } else if now_ns >= until_ns {
                return Ok(());
            }
        }
    }

    /// Ends the run. Faults of nodes and links end before, so that everything settles.
    ///
    /// # Errors
    /// The errors of `output`.
    pub fn finish<O: Output>(mut self, output: &mut O) -> Result<SimulatedOutcome, O::Error> {
        self.world.end_faults();
        let report = self.runner.finish(output)?;
        let counters = self.world.counters();
        Ok(SimulatedOutcome { report, counters, units: self.world.figures() })
    }
}

fn start_dispatcher(
    world: &Rc<World>,
    assembly: Assembly,
    (config, desk): (UnitsConfig, PolicyDesk),
    units: usize,
) -> Result<(Runner, RemoteHandle), RemoteError> {
    let config = UnitsConfig { is_live: true, ..config };
    let network = world.network(world.dispatcher());
    let (handle, control) = RemoteHandle::new();
    for number in 0..units {
        handle.send(NodeCommand::Add { name: format!("unit-{number}"), address: String::new() });
    }
    let control = (control, HomeTable::default(), desk);
    let start = || runner_over(assembly, "simulated", config, || Ok(network), control, Some(&|_| false));
    let runner = world.recorded(world.dispatcher(), start)?;
    Ok((runner, handle))
}

impl Drop for SimulatedCluster {
    fn drop(&mut self) {
        self.world.clear();
    }
}

/// The outcome of a simulated run.
pub struct SimulatedOutcome {
    /// The dispatcher's report.
    pub report: Report,
    /// Counters of the network.
    pub counters: SimulatedCounters,
    /// Figures of units.
    pub units: Vec<UnitFigures>,
}

/// A unit on the simulated network.
type SimulatedUnit = UnitProcess<SimulatedNetwork>;

/// A stream of random numbers.
struct Random(RefCell<u64>);

impl Random {
    fn bits(&self) -> u64 {
        split_mix(&mut self.0.borrow_mut())
    }

    fn below(&self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    fn happens(&self, share: f64) -> bool {
        share > 0.0 && ((self.bits() >> 11) as f64) < share * (1_u64 << 53) as f64
    }
}
