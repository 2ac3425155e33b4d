//! A trial: a policy over faulty links against a single graph over the same packets.

use std::collections::HashSet;

use packet::{FlowHasher, FlowKey, LinkType, Packet, PacketClass, Parser};
use protocol::message::UnitId;
use protocol::trace::failure::{last_timeline, report, shrink};
use runtime::elastic::{ElasticError, UnitsConfig};
use runtime::report::{FunctionReport, Report};
use runtime::{Assembly, Frame, Ingress, Runner};

use super::observed::{Exempt, Observed};
use super::{FaultCounts, FaultPlan, TrialDifference, runner};

/// A frame of the traffic.
#[derive(Clone, Debug)]
pub struct TrialFrame {
    /// Its arrival, in nanoseconds.
    pub timestamp_ns: u64,
    /// The kind of its first header.
    pub link: LinkType,
    /// Its length on the wire.
    pub wire_len: u32,
    /// Its port or interface.
    pub from: Ingress,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl TrialFrame {
    /// Returns the key with which the frame arrives, if it has ports.
    fn key(&self) -> Option<FlowKey> {
        let mut packet = Packet::from_bytes(&self.data);
        packet.meta_mut().link = self.link;
        Parser::new(FlowHasher::new(0)).parse(&mut packet).ok()?;
        let meta = packet.meta();
        (meta.version != 0 && meta.class != PacketClass::LaterFragment).then_some(meta.key)
    }
}

/// A policy, traffic, and faults.
pub struct FaultTrial<A> {
    /// Makes the policy's assembly, with the same seed each time.
    pub assemble: A,
    /// The policy's name.
    pub name: String,
    /// The traffic, in order of arrival.
    pub frames: Vec<TrialFrame>,
    /// Units, and what is assigned to them.
    pub config: UnitsConfig,
    /// Faults of the links.
    pub plan: FaultPlan,
}

/// A trial's result.
#[derive(Debug)]
pub struct TrialReport {
    /// Counts of faults.
    pub outcome: FaultCounts,
    /// The report of the run on units.
    pub report: Report,
    /// Packets that were released.
    pub released: u64,
    /// Flows that a crash took out of the comparison: their packets before it are compared, as far
    /// as they were processed, and nothing after it.
    pub flows_exempt: usize,
    /// The first fault that was found.
    pub difference: Option<TrialDifference>,
}

impl<A: Fn() -> Result<Assembly, String> + Clone + 'static> FaultTrial<A> {
    /// Runs the trial with a seed for the links.
    ///
    /// # Errors
    /// If the units cannot be set up.
    pub fn run(&self, seed: u64) -> Result<TrialReport, ElasticError> {
        self.run_with(&self.plan, seed)
    }

    /// Runs the trial with other faults.
    ///
    /// # Errors
    /// If the units cannot be set up.
    pub fn run_with(&self, plan: &FaultPlan, seed: u64) -> Result<TrialReport, ElasticError> {
        let assembly = (self.assemble)().map_err(ElasticError::Graph)?;
        let assemble = self.assemble.clone();
        let make = move || assemble().map(|assembly| assembly.graph);
        let (mut faulty, outcome) = runner(assembly, &self.name, self.config, plan.clone(), seed, make)?;
        let mut observed = Observed::default();
        let keys: Vec<Option<FlowKey>> = self.frames.iter().map(TrialFrame::key).collect();
        let translated = self.translated_keys(&keys)?;
        for (frame, key) in self.frames.iter().zip(&keys) {
            // An answer arrives only after a packet that it answers has left, even in a recording.
            if key.is_some_and(|key| translated.contains(&key) && !observed.has_left_with(&key)) {
                let Ok(()) = faulty.settle(&mut observed);
            }
            receive(&mut faulty, frame, &mut observed);
        }
        let Ok(report) = faulty.finish(&mut observed);
        let outcome = outcome.borrow().clone();
        let numbers = 0..self.frames.len() as u64;
        let processed: Vec<u64> = numbers.filter(|number| !outcome.unprocessed.contains(number)).collect();
        let mut single = Runner::new((self.assemble)().map_err(ElasticError::Graph)?, &self.name);
        let mut expected = Observed::over(processed.clone());
        for &number in &processed {
            receive(&mut single, &self.frames[number as usize], &mut expected);
        }
        let Ok(expected_report) = single.finish(&mut expected);
        let exempt = Exempt::of(&outcome, &keys, [&observed, &expected]);
        let difference = match () {
            () if outcome.stuck > 0 => Some(TrialDifference::Stuck(outcome.stuck)),
            () if outcome.stale > 0 && !self.may_give_up(plan) => Some(TrialDifference::Late(outcome.stale)),
            () if !report.adds_up() => Some(TrialDifference::Accounts),
            () => observed.difference(&expected, &exempt).or_else(|| {
                // A flow that begins again after a crash counts twice.
                let is_comparable = exempt.flows == 0;
                is_comparable.then(|| difference_of_counters(&report, &expected_report)).flatten()
            }),
        };
        Ok(TrialReport {
            outcome,
            report,
            released: observed.packets,
            flows_exempt: exempt.flows,
            difference,
        })
    }

    /// Returns text about a run that differs: the faults that it needs, and the last lines of its
    /// timeline.
    ///
    /// # Errors
    /// If the units cannot be set up.
    pub fn explain(&self, seed: u64) -> Result<String, ElasticError> {
        let differs = |plan: &FaultPlan| {
            let report = self.run_with(plan, seed);
            report.is_ok_and(|report| report.difference.is_some())
        };
        let (plan, runs) = shrink(&self.plan, differs);
        self.run_with(&plan, seed)?;
        let timeline = last_timeline().map(|timeline| report(&timeline)).unwrap_or_default();
        Ok(format!("faults that are needed, after {runs} runs: {plan:#?}\n{timeline}"))
    }

    /// Returns whether links may delay a packet until its unit has given it up.
    fn may_give_up(&self, plan: &FaultPlan) -> bool {
        let link = plan.packets;
        let reorder_ns = if link.reorder.0 > 0.0 { link.reorder_by.0 } else { 0 };
        link.jitter.0 + reorder_ns >= self.config.unit(UnitId(0)).reorder_timeout_ns
    }

    /// Returns the keys with which packets leave a single graph, and others arrive, but not those
    /// packets: functions translate them.
    fn translated_keys(&self, arriving: &[Option<FlowKey>]) -> Result<HashSet<FlowKey>, ElasticError> {
        let mut single = Runner::new((self.assemble)().map_err(ElasticError::Graph)?, &self.name);
        let mut observed = Observed::default();
        self.frames.iter().for_each(|frame| receive(&mut single, frame, &mut observed));
        let Ok(_) = single.finish(&mut observed);
        let is_translated =
            |&(number, key): &(u64, FlowKey)| arriving.get(number as usize) != Some(&Some(key));
        Ok(observed.keys().iter().copied().filter(is_translated).map(|(_, key)| key).collect())
    }
}

fn receive(runner: &mut Runner, frame: &TrialFrame, observed: &mut Observed) {
    let TrialFrame { timestamp_ns, link, wire_len, from, ref data } = *frame;
    let Ok(()) = runner.receive(Frame { timestamp_ns, link, wire_len, data }, from, observed);
}

/// Counters that depend on the order in which packets of different flows are processed, on units'
/// memory, or on how flows are shared out.
const UNORDERED: &[&str] = &["search_memory_bytes"];

/// Returns the first counter of a function that differs from a single graph's.
fn difference_of_counters(report: &Report, expected: &Report) -> Option<TrialDifference> {
    report.functions.iter().zip(&expected.functions).find_map(|(function, expected)| {
        let all = |function: &FunctionReport| {
            let common =
                [("packets", function.packets), ("bytes", function.bytes), ("drops", function.drops)];
            let own = function.counters.iter().map(|(name, of)| (name.clone(), of.count));
            common.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(own).collect::<Vec<_>>()
        };
        let pairs = all(function).into_iter().zip(all(expected));
        pairs.into_iter().find_map(|((name, counted), (_, expected))| {
            let is_ordered = !UNORDERED.contains(&name.as_str());
            let name = format!("{}, {name}", function.name);
            (is_ordered && counted != expected).then_some(TrialDifference::Counter {
                name,
                counted,
                expected,
            })
        })
    })
}
