//! Packets and bytes since the last update of the interval meter.
//!
//! The meter is updated for many packets at once, before an interval may end.

use protocol::dispatcher::Dispatcher;
use protocol::message::UnitId;
use protocol::metering::IntervalMeter;

use super::Work;

/// Packets and bytes not reported to the interval meter yet, and totals that were.
pub(super) struct Tally {
    arrived: u64,
    arrived_bytes: u64,
    /// Reported packets assigned to units.
    assigned: u64,
    /// Reported bytes assigned to each unit.
    assigned_bytes: Vec<u64>,
    work: Work,
}

impl Tally {
    /// Creates an empty tally of units that work at this rate.
    pub fn new(units: u16, work: Work) -> Tally {
        Tally { arrived: 0, arrived_bytes: 0, assigned: 0, assigned_bytes: vec![0; usize::from(units)], work }
    }

    /// Adds packets that arrived, and their bytes on the wire.
    #[inline(always)]
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.arrived += packets;
        self.arrived_bytes += bytes;
    }

    /// Updates the current interval of the meter.
    pub fn report(&mut self, intervals: &mut IntervalMeter, dispatcher: &Dispatcher) {
        intervals.came(std::mem::take(&mut self.arrived), std::mem::take(&mut self.arrived_bytes));
        let new = |total: u64, reported: &mut u64| total - std::mem::replace(reported, total);
        intervals.processed(new(dispatcher.counters().packets, &mut self.assigned));
        for (unit, reported) in (0u16..).map(UnitId).zip(&mut self.assigned_bytes) {
            intervals.given(unit, self.work.ns(new(dispatcher.bytes_of(unit), reported)));
        }
    }
}
