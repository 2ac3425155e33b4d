//! What epochs are told of packets: all at once, before one of them may end.

use protocol::dispatcher::Dispatcher;
use protocol::message::UnitId;
use protocol::metering::IntervalMeter;

use super::Work;

/// Packets since epochs were told of them last, and what they were told of those that the router
/// gave to units.
pub(super) struct Tally {
    came: u64,
    came_bytes: u64,
    given: u64,
    /// By unit.
    given_bytes: Vec<u64>,
    work: Work,
}

impl Tally {
    /// Creates an empty tally of units that work at this rate.
    pub fn new(units: u16, work: Work) -> Tally {
        Tally { came: 0, came_bytes: 0, given: 0, given_bytes: vec![0; usize::from(units)], work }
    }

    /// So many packets came, with so many bytes on the wire.
    #[inline(always)]
    pub fn came(&mut self, packets: u64, bytes: u64) {
        self.came += packets;
        self.came_bytes += bytes;
    }

    /// The present epoch hears of all of them; units take so long for what they were given.
    pub fn tell(&mut self, epochs: &mut IntervalMeter, router: &Dispatcher) {
        epochs.came(std::mem::take(&mut self.came), std::mem::take(&mut self.came_bytes));
        let new = |so_far: u64, told: &mut u64| so_far - std::mem::replace(told, so_far);
        epochs.processed(new(router.counters().packets, &mut self.given));
        for (unit, told) in (0u16..).map(UnitId).zip(&mut self.given_bytes) {
            epochs.given(unit, self.work.ns(new(router.bytes_of(unit), told)));
        }
    }
}
