//! What the units did, and are doing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use graph::Chain;
use hdrhistogram::Histogram;
use packet::Packet;
use protocol::message::UnitId;
use protocol::metering::Epoch;

use super::lane::ToUnit;
use super::{IN_FLIGHT_MAX, Threads};
use crate::report::{Report, new_histogram, percentiles};
use crate::units::{UnitsReport, loads};

/// What a unit has counted, as it told last.
#[derive(Clone)]
pub(super) struct Figures {
    report: Report,
    counters: protocol::unit::Counters,
    states_lost: u64,
    pulls: Histogram<u64>,
}

/// Where a unit puts its figures.
pub(super) type FiguresBoard = Arc<Mutex<Option<Box<Figures>>>>;

impl Figures {
    /// Of a unit with this chain. The report's functions have no names.
    pub fn of(
        chain: &Chain,
        counters: &protocol::unit::Counters,
        states_lost: u64,
        pulls: &Histogram<u64>,
    ) -> Box<Figures> {
        let names = vec![String::new(); chain.stages().len()];
        let report = Report::of("", None, chain, &names);
        Box::new(Figures { report, counters: *counters, states_lost, pulls: pulls.clone() })
    }
}

impl Threads {
    /// Asks units that run for their figures. They answer when they come to it, and nobody waits:
    /// [`Threads::add_live`] takes what was told last.
    pub fn ask_for_figures(&mut self) {
        for lane in self.lanes.iter_mut().flatten().filter(|lane| lane.thread.is_some()) {
            lane.push(ToUnit::Figures);
            lane.pump();
        }
    }

    /// Adds to a report what the chains of units that run have counted, as they told last.
    pub fn add_live(&self, report: &mut Report) {
        self.figures().for_each(|figures| report.add(figures.report));
        report.flows.peak = u64::from(self.flows_peak).min(report.flows.started);
    }

    /// The latest figures of each unit that runs.
    fn figures(&self) -> impl Iterator<Item = Figures> {
        let running = self.lanes.iter().flatten().filter(|lane| lane.thread.is_some());
        let last = running.map(|lane| lane.figures.lock().unwrap_or_else(PoisonError::into_inner).clone());
        last.flatten().map(|figures| *figures)
    }

    /// What the units did.
    pub fn report(&self) -> UnitsReport {
        let live: Vec<_> = self.figures().collect();
        let counters = self.left.iter().map(|left| &left.counters);
        let counters = counters.chain(live.iter().map(|figures| &figures.counters));
        let running = self.loads().count();
        let report = UnitsReport::of(&self.config, self.router.counters(), counters, running, &self.epochs);
        let mut starts_ns = self.starts_ns.clone();
        starts_ns.sort_unstable();
        let mut pulls = new_histogram();
        let left = self.left.iter().map(|left| &left.pulls);
        for of_unit in left.chain(live.iter().map(|figures| &figures.pulls)) {
            let added = pulls.add(of_unit);
            debug_assert!(added.is_ok(), "all have the same bounds");
        }
        let pull_ns = (!pulls.is_empty()).then(|| percentiles(&pulls));
        let lost = self.left.iter().map(|left| left.states_lost);
        let states_lost = Some(lost.chain(live.iter().map(|figures| figures.states_lost)).sum());
        UnitsReport { start_ns: starts_ns.get(starts_ns.len() / 2).copied(), pull_ns, states_lost, ..report }
    }

    /// Adds what the units' chains have counted to a report, once the run is over.
    pub fn add_to(&self, report: &mut Report, names: &[String]) {
        let size = report.flows.size;
        for left in &self.left {
            let of_unit = Report::of(&report.policy, report.seed, &left.chain, names);
            report.add(of_unit);
            report.flows.live += left.flows_live;
            report.restarts += left.restarts;
        }
        report.flows.size = size; // That of all of them together, as the router sees to.
        report.flows.peak = u64::from(self.flows_peak).min(report.flows.started);
    }

    /// The epochs that are over.
    pub fn epochs(&self) -> &[Epoch] {
        self.epochs.done()
    }

    /// Each unit that runs: its load, as a share of its capacity, and its flows.
    pub fn loads(&self) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
        loads(&self.router, self.config.capacity_bps)
    }

    /// Time from when packets' batches came until now, when they leave.
    pub fn record(&mut self, out: &[Packet], latency: &mut Histogram<u64>) {
        let now = Instant::now();
        for packet in out {
            let sequence = packet.meta().transit.sequence;
            let batch = self.batches.partition_point(|&(first, _)| first <= sequence);
            if let Some(&(_, came)) = batch.checked_sub(1).and_then(|batch| self.batches.get(batch)) {
                let took_ns = now.duration_since(came).as_nanos().min(u128::from(u64::MAX));
                latency.saturating_record(took_ns as u64);
            }
        }
        // More batches than packets are under way there cannot be.
        let surplus = self.batches.len().saturating_sub(IN_FLIGHT_MAX as usize + 1);
        self.batches.drain(..surplus);
    }
}
