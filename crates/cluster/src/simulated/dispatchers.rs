//! Several dispatchers of a simulated cluster.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Output, Report, Runner};

use super::faults::SimulatedFaults;
use super::world::{NodeId, UnitMaker, World};
use super::{SimulatedCounters, TICK_NS};
use crate::policies::{AppliedPolicy, FixedPolicy, GraphMaker, PolicyReader};
use crate::remote::{HomeTable, NodeCommand, PolicyDesk, RemoteError, RemoteHandle, runner_over};

/// Time at the end for packets in flight between dispatchers to arrive, in nanoseconds.
const SETTLE_NS: u64 = 5_000_000_000;

/// Several dispatchers, and the units that they share. All of them run as time passes.
pub struct SimulatedDispatchers<O> {
    world: Rc<World>,
    hosts: Vec<Rc<RefCell<Host<O>>>>,
    start_ns: u64,
}

/// A dispatcher.
struct Host<O> {
    runner: Runner,
    handle: RemoteHandle,
    /// Sent packets and records.
    output: O,
    ticked_ns: u64,
}

impl<O: Output<Error = Infallible> + Default + 'static> SimulatedDispatchers<O> {
    /// Starts dispatchers named `dispatcher-0` and so on, and units named `unit-0` and so on.
    /// `assemble` makes the policy of each dispatcher, `make` returns a maker of graphs for each
    /// unit. Packets arrive from `start_ns` on.
    ///
    /// # Errors
    /// As for [`remote_runner`](crate::remote::remote_runner).
    pub fn start(
        (dispatchers, units): (usize, usize),
        assemble: impl Fn() -> Assembly,
        config: UnitsConfig,
        make: impl Fn() -> GraphMaker + 'static,
        faults: SimulatedFaults,
        start: (u64, u64),
    ) -> Result<SimulatedDispatchers<O>, RemoteError> {
        let make = move || -> (GraphMaker, Box<dyn PolicyReader>) { (make(), Box::new(FixedPolicy::new())) };
        let desk = |_| PolicyDesk::fixed(AppliedPolicy::default());
        SimulatedDispatchers::start_with((dispatchers, units), assemble, config, (make, desk), faults, start)
    }

    /// As [`start`](SimulatedDispatchers::start), with nodes that can change their policy: `make`
    /// also returns a reader for each unit, `desk` makes the policy desk of each dispatcher.
    ///
    /// # Errors
    /// As for [`remote_runner`](crate::remote::remote_runner).
    pub fn start_with(
        (dispatchers, units): (usize, usize),
        assemble: impl Fn() -> Assembly,
        config: UnitsConfig,
        (make, desk): (
            impl Fn() -> (GraphMaker, Box<dyn PolicyReader>) + 'static,
            impl Fn(usize) -> PolicyDesk,
        ),
        faults: SimulatedFaults,
        (seed, start_ns): (u64, u64),
    ) -> Result<SimulatedDispatchers<O>, RemoteError> {
        let world = World::new(faults, seed);
        let names: Vec<_> = (0..dispatchers).map(|number| format!("dispatcher-{number}")).collect();
        let nodes: Vec<NodeId> = names.iter().map(|name| world.add(name, None)).collect();
        let make: UnitMaker = Rc::new(make);
        for number in 0..units {
            world.add(&format!("unit-{number}"), Some(Rc::clone(&make)));
        }
        world.begin();
        let all: Vec<_> = names.iter().map(|name| (name.clone(), String::new())).collect();
        let config = UnitsConfig { is_live: true, ..config };
        let start = |(number, (name, &node)): (usize, (&String, &NodeId))| {
            let desk = desk(number);
            let (handle, control) = RemoteHandle::new();
            for number in 0..units {
                handle.send(NodeCommand::Add { name: format!("unit-{number}"), address: String::new() });
            }
            let network = world.network(node);
            let homes = HomeTable::new(name, &all);
            let control = (control, homes, desk);
            let start = || runner_over(assemble(), name, config, || Ok(network), control, Some(&|_| false));
            Ok((world.recorded(node, start)?, handle))
        };
        let runners = names.iter().zip(&nodes).enumerate().map(start);
        let runners = runners.collect::<Result<Vec<_>, RemoteError>>()?;
        world.begin_faults();
        let hosts: Vec<_> = runners
            .into_iter()
            .map(|(runner, handle)| Host { runner, handle, output: O::default(), ticked_ns: 0 })
            .map(|host| Rc::new(RefCell::new(host)))
            .collect();
        for (&node, host) in nodes.iter().zip(&hosts) {
            let host = Rc::clone(host);
            let work = move |run_ns| {
                // A dispatcher that waits for an answer, or takes a packet, is running already.
                if let Ok(mut host) = host.try_borrow_mut() {
                    host.work(start_ns, run_ns);
                }
            };
            world.drive(node, Box::new(work));
        }
        Ok(SimulatedDispatchers { world, hosts, start_ns })
    }

    /// Returns true if a dispatcher is paused: arriving packets wait at its ports.
    pub fn is_paused(&self, number: usize) -> bool {
        self.world.paused_until_ns(self.world.place(number)).is_some()
    }

    /// Calls `work` with a dispatcher and its output so far.
    pub fn at<R>(&mut self, number: usize, work: impl FnOnce(&mut Runner, &mut O) -> R) -> R {
        let Host { runner, output, .. } = &mut *self.hosts[number].borrow_mut();
        work(runner, output)
    }

    /// Returns the number of dispatchers.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the operators' handle of a dispatcher.
    pub fn handle(&self, number: usize) -> RemoteHandle {
        self.hosts[number].borrow().handle.clone()
    }

    /// Runs up to a packet's arrival.
    pub fn run_to(&mut self, at_ns: u64) {
        self.world.run_on(at_ns.saturating_sub(self.start_ns));
    }

    /// Ends the run. Faults end before, and packets in flight between dispatchers arrive.
    pub fn finish(mut self) -> SimulatedDispatchersOutcome<O> {
        self.world.end_faults();
        self.world.run_on(self.world.run_time_ns() + SETTLE_NS);
        let mut ended = Vec::new();
        for (number, host) in std::mem::take(&mut self.hosts).into_iter().enumerate() {
            self.world.drive_no_longer(number);
            let Some(Host { mut runner, mut output, .. }) = Rc::into_inner(host).map(RefCell::into_inner)
            else {
                continue; // There is no other reference to it.
            };
            let Ok(report) = runner.finish(&mut output);
            ended.push((report, output));
        }
        SimulatedDispatchersOutcome { dispatchers: ended, counters: self.world.counters() }
    }
}

impl<O: Output<Error = Infallible>> Host<O> {
    fn work(&mut self, start_ns: u64, run_ns: u64) {
        let Ok(()) = if run_ns >= self.ticked_ns + TICK_NS {
            self.ticked_ns = run_ns;
            self.runner.handle_timeout(start_ns + run_ns, &mut self.output)
        } else {
            self.runner.flush(&mut self.output)
        };
    }
}

impl<O> Drop for SimulatedDispatchers<O> {
    fn drop(&mut self) {
        self.world.clear();
    }
}

/// The outcome of a run with several dispatchers.
pub struct SimulatedDispatchersOutcome<O> {
    /// Report and output of each dispatcher.
    pub dispatchers: Vec<(Report, O)>,
    /// Counters of the network.
    pub counters: SimulatedCounters,
}
