//! Figures of units for reports.

use hdrhistogram::Histogram;
use packet::Packet;
use protocol::unit::Counters;

use crate::report::Report;
use crate::units_report::UnitsReport;

/// Reports of what units did. What a transport leaves out is missing in the report of the run, and
/// nowhere else.
pub trait UnitReports {
    /// Returns whether packets may leave during a later call. Flows are in the units' own tables
    /// then.
    fn is_deferred(&self) -> bool;

    /// Returns the counters of each unit.
    fn unit_counters(&self) -> Vec<Counters>;

    /// Requests the units' counters.
    fn ask_for_figures(&mut self) {}

    /// Adds what the transport has measured.
    fn add_to_units_report(&self, _report: &mut UnitsReport) {}

    /// Adds what the units' graphs have counted.
    fn add_to_report(&self, _report: &mut Report, _names: &[String]) {}

    /// Notes when packets of a batch arrived, to measure their latency.
    fn note_arrivals(&mut self, _batch: &[Packet]) {}

    /// Records the latency of packets that leave now.
    fn record_latency(&mut self, _out: &[Packet], _latency: &mut Histogram<u64>) {}
}
