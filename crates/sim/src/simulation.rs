//! A run, from scenario to report.

use crate::checks::Violation;
use crate::error::{INTERVALS_MAX, STATE_MAX, SimulationError};
use crate::report::Report;
use crate::scenario::{CaptureSource, CapturedTraffic, Scenario, Workload};
use crate::world::World;

/// A run of a scenario.
pub struct Simulation {
    scenario: Scenario,
    seed: u64,
    world: World,
}

/// A run with a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, at {at_ns} ns: {violation}")]
pub struct FailedSimulation {
    /// The seed that repeats it.
    pub seed: u64,
    /// Virtual time.
    pub at_ns: u64,
    /// The violation.
    pub violation: Violation,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationProgress {
    /// Virtual time.
    pub now_ns: u64,
    /// Packets that have arrived.
    pub packets: u64,
}

impl Simulation {
    /// Creates a run of this scenario with this seed.
    ///
    /// # Errors
    /// If the scenario cannot be simulated.
    pub fn new(scenario: Scenario, seed: u64) -> Result<Simulation, SimulationError> {
        let (time_ns, interval_ns) = (scenario.run.time.0, scenario.run.interval.0);
        if time_ns == 0 || interval_ns == 0 || time_ns / interval_ns >= INTERVALS_MAX {
            return Err(SimulationError::Time);
        }
        let (wanted, most) = (scenario.dispatcher.flows_max.get(), protocol::unit::FLOWS_MAX);
        if wanted > most {
            return Err(SimulationError::Flows { wanted, most });
        }
        if scenario.units.state.0 > STATE_MAX {
            return Err(SimulationError::State(scenario.units.state.0));
        }
        if let Workload::Steady(steady) = &scenario.workload
            && steady.flows.get() > most
        {
            return Err(SimulationError::Workload { wanted: steady.flows.get(), most });
        }
        if let Workload::Capture(CapturedTraffic { file: CaptureSource::File(path), .. }) = &scenario.workload
        {
            return Err(SimulationError::Unread(path.clone()));
        }
        let world = World::new(&scenario, seed)?;
        Ok(Simulation { scenario, seed, world })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The first violation of an invariant.
    pub fn run(self) -> Result<Report, FailedSimulation> {
        self.run_with(|_| {})
    }

    /// Runs it to its end, and reports its progress after each interval.
    ///
    /// # Errors
    /// The first violation of an invariant.
    pub fn run_with(
        mut self,
        mut progress: impl FnMut(SimulationProgress),
    ) -> Result<Report, FailedSimulation> {
        let run = &self.scenario.run;
        let last_ns = run.time.0.saturating_add(run.patience.0);
        let mut until_ns = 0;
        let (seed, mut at_ns) = (self.seed, 0);
        let fail = |at_ns| move |violation| FailedSimulation { seed, at_ns, violation };
        let mut is_warm = false;
        loop {
            until_ns = last_ns.min(until_ns + run.interval.0);
            if !is_warm && run.warm_up.0 <= until_ns {
                let is_over = self.world.advance_to(run.warm_up.0);
                is_over.map_err(fail(self.world.now_ns()))?;
                self.world.end_warm_up();
                is_warm = true;
            }
            let is_over = self.world.advance_to(until_ns);
            at_ns = self.world.now_ns().max(at_ns);
            let is_over = is_over.map_err(fail(at_ns))?;
            progress(SimulationProgress { now_ns: at_ns, packets: self.world.packets() });
            if is_over || until_ns == last_ns {
                break;
            }
        }
        if !is_warm {
            self.world.end_warm_up();
        }
        let outcome = self.world.finish().map_err(fail(at_ns))?;
        Ok(Report::new(&self.scenario, self.seed, outcome))
    }
}
