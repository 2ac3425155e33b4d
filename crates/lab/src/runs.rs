//! Runs of scenarios with seeds: on all cores, each only once.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use sim::scenario::RecordedPackets;
use sim::{Report, Scenario, Simulation};

use crate::recording;
use crate::setup::ScenarioText;

/// Length of simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// So short that it only shows that everything works.
    Smoke,
    /// Short runs of few seeds: less than a minute for an experiment, on two cores.
    Quick,
    /// The workload in its full length, with 20 seeds (R6).
    Full,
}

impl RunLength {
    /// Seeds, unless something else is wanted.
    pub fn seeds(self) -> u32 {
        match self {
            RunLength::Smoke => 1,
            RunLength::Quick => 3,
            RunLength::Full => 20,
        }
    }

    /// Of two, the one for short runs or the one for full ones.
    pub(crate) fn pick<T>(self, short: T, full: T) -> T {
        match self {
            RunLength::Smoke | RunLength::Quick => short,
            RunLength::Full => full,
        }
    }
}

/// Result of a run: a report, or the reason for its absence.
pub type RunResult = Result<Arc<Report>, String>;

/// Progress of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProgress {
    /// Mode of the run that has ended.
    pub mode: String,
    /// Its seed.
    pub seed: u64,
    /// Runs of this batch that are over.
    pub done: usize,
    /// Runs of this batch.
    pub all: usize,
}

/// Rules of intrusion detection in files, in Suricata's language, and what they refer to.
#[derive(Clone, Debug, Default)]
pub struct RuleFiles {
    /// Rules. If there are none, detection has the few of an example.
    pub rules: Vec<PathBuf>,
    /// Definitions of variables; without, `HOME_NET` and `EXTERNAL_NET` are any.
    pub variables: Option<PathBuf>,
    /// Class types.
    pub classification: Option<PathBuf>,
}

/// Runs scenarios, and remembers what came of them: experiments share runs.
pub struct Lab<'a> {
    length: RunLength,
    seeds: u32,
    runs: HashMap<(String, u64), RunResult>,
    captures: Vec<PathBuf>,
    rules: RuleFiles,
    recordings: Recordings,
    progress: Box<dyn FnMut(&RunProgress) + 'a>,
}

impl<'a> Lab<'a> {
    /// A lab for runs of this length with the seeds from 1 to `seeds`, that says which runs are
    /// over.
    pub fn new(length: RunLength, seeds: u32, progress: impl FnMut(&RunProgress) + 'a) -> Lab<'a> {
        Lab {
            length,
            seeds: seeds.max(1),
            runs: HashMap::new(),
            captures: Vec::new(),
            rules: RuleFiles::default(),
            recordings: Recordings::default(),
            progress: Box::new(progress),
        }
    }

    /// Adds captures, for experiments on real traffic.
    pub fn with_captures(self, captures: Vec<PathBuf>) -> Lab<'a> {
        Lab { captures, ..self }
    }

    /// Captures of real traffic, if there are some.
    pub fn captures(&self) -> &[PathBuf] {
        &self.captures
    }

    /// The same with rules of intrusion detection, in place of the few of an example.
    pub fn with_rules(self, rules: RuleFiles) -> Lab<'a> {
        Lab { rules, ..self }
    }

    /// Rules of intrusion detection.
    pub fn rules(&self) -> &RuleFiles {
        &self.rules
    }

    /// Returns the packets of this capture, as a workload.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or has no packets.
    pub fn recording(&self, file: &Path) -> Result<Arc<RecordedPackets>, String> {
        self.recordings.read(file)
    }

    /// Returns the length of simulations.
    pub fn length(&self) -> RunLength {
        self.length
    }

    /// Returns the number of seeds.
    pub fn seeds(&self) -> u32 {
        self.seeds
    }

    /// Runs each of these with each seed of the lab, unless that was done before.
    pub fn run(&mut self, setups: &[&ScenarioText]) -> Vec<Vec<RunResult>> {
        self.run_on(&(1..=u64::from(self.seeds)), setups)
    }

    /// The same with seeds that are not those of the lab.
    pub fn run_on(&mut self, seeds: &RangeInclusive<u64>, setups: &[&ScenarioText]) -> Vec<Vec<RunResult>> {
        let jobs_of = |setup: &&ScenarioText| {
            let text = setup.to_string();
            seeds.clone().map(move |seed| (text.clone(), seed)).collect::<Vec<_>>()
        };
        let jobs: Vec<Vec<(String, u64)>> = setups.iter().map(jobs_of).collect();
        self.run_missing(&jobs.concat());
        jobs.iter().map(|jobs| jobs.iter().map(|job| self.result(job)).collect()).collect()
    }

    /// Runs this with one seed that is not among those of the lab, perhaps.
    ///
    /// # Errors
    /// The fault of the run.
    pub fn run_seed(&mut self, setup: &ScenarioText, seed: u64) -> RunResult {
        let job = (setup.to_string(), seed);
        self.run_missing(std::slice::from_ref(&job));
        self.result(&job)
    }

    fn result(&self, job: &(String, u64)) -> RunResult {
        let run = self.runs.get(job).cloned();
        run.unwrap_or_else(|| Err("the run has ended without a result".to_owned()))
    }

    fn run_missing(&mut self, wanted: &[(String, u64)]) {
        let mut jobs: Vec<(String, u64)> = Vec::new();
        for job in wanted {
            if !self.runs.contains_key(job) && !jobs.contains(job) {
                jobs.push(job.clone());
            }
        }
        self.run_jobs(&jobs);
    }

    fn run_jobs(&mut self, jobs: &[(String, u64)]) {
        let next = AtomicUsize::new(0);
        let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(jobs.len());
        let (over, runs) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (over, next, recordings) = (over.clone(), &next, &self.recordings);
                scope.spawn(move || {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The receiver leaves only when all runs have ended.
                        let _ = over.send((job.clone(), simulate(&job.0, job.1, recordings)));
                    }
                });
            }
            drop(over);
            for (done, (job, run)) in (1..).zip(&runs) {
                let mode = run.as_ref().map_or_else(|_| "a run that failed".to_owned(), |r| r.mode.clone());
                (self.progress)(&RunProgress { mode, seed: job.1, done, all: jobs.len() });
                self.runs.insert(job, run);
            }
        });
    }
}

/// Captures that were read as workloads, each once.
#[derive(Default)]
struct Recordings(Mutex<HashMap<PathBuf, Arc<RecordedPackets>>>);

impl Recordings {
    fn read(&self, file: &Path) -> Result<Arc<RecordedPackets>, String> {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(file) {
            return Ok(Arc::clone(known));
        }
        let recording = recording::read(file)?;
        read.insert(file.to_owned(), Arc::clone(&recording));
        Ok(recording)
    }
}

fn simulate(text: &str, seed: u64, recordings: &Recordings) -> RunResult {
    let mut scenario = Scenario::parse(text).map_err(|error| error.to_string())?;
    scenario.workload.supply(|file| recordings.read(file))?;
    let simulation = Simulation::new(scenario, seed).map_err(|error| error.to_string())?;
    simulation.run().map(Arc::new).map_err(|failed| failed.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(mode: &str) -> ScenarioText {
        ScenarioText::new()
            .with("workload.steady.rate", "100Mbps")
            .with("dispatcher.mode", mode)
            .with("run.time", "5ms")
            .with("run.warm_up", "1ms")
    }

    #[test]
    fn a_run_is_done_once() {
        let mut steps = Vec::new();
        let mut lab = Lab::new(RunLength::Smoke, 3, |step| steps.push(step.done));
        let (flow, flowlet) = (steady("flow"), steady("flowlet"));
        let first = lab.run(&[&flow, &flowlet, &flow]);
        let again = lab.run(&[&flowlet]);
        assert_eq!(first[1], again[0]);
        assert_eq!(first[0], first[2]);
        let seeds: Vec<u64> = again[0].iter().map(|run| run.as_ref().unwrap().seed).collect();
        assert_eq!(seeds, [1, 2, 3]);
        drop(lab);
        assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let mut lab = Lab::new(RunLength::Smoke, 1, |_| {});
        let runs = lab.run(&[&ScenarioText::new().with("dispatcher.lamda", 0.5)]);
        assert!(runs[0][0].as_ref().unwrap_err().contains("lamda"));
    }
}
