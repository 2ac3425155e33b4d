//! What the units did, and are doing.

use std::time::Instant;

use hdrhistogram::Histogram;
use packet::Packet;
use proto::UnitId;
use usage::Epoch;

use super::{IN_FLIGHT_MAX, Threads};
use crate::report::{Report, new_histogram, percentiles};
use crate::units::{UnitsReport, loads};

impl Threads {
    /// What the units did.
    pub fn report(&self) -> UnitsReport {
        let counters = self.left.iter().map(|left| &left.counters);
        let report = UnitsReport::of(&self.config, self.router.counters(), counters, &self.epochs);
        let mut starts_ns = self.starts_ns.clone();
        starts_ns.sort_unstable();
        let mut pulls = new_histogram();
        for left in &self.left {
            let added = pulls.add(&left.pulls);
            debug_assert!(added.is_ok(), "all have the same bounds");
        }
        let pull_ns = (!pulls.is_empty()).then(|| percentiles(&pulls));
        let states_lost = Some(self.left.iter().map(|left| left.states_lost).sum());
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
