//! What epochs are told of packets: all at once, before one of them may end.

use packet::Packet;
use proto::UnitId;
use usage::Epochs;

use crate::work::Work;

/// Packets since epochs were told of them last.
pub(super) struct Tally {
    came: u64,
    came_bytes: u64,
    given: u64,
    /// By unit.
    given_bytes: Vec<u64>,
}

impl Tally {
    /// Of so many units.
    pub fn new(units: u16) -> Tally {
        Tally { came: 0, came_bytes: 0, given: 0, given_bytes: vec![0; usize::from(units)] }
    }

    /// A packet came.
    #[inline(always)]
    pub fn came(&mut self, packet: &Packet) {
        self.came += 1;
        self.came_bytes += u64::from(packet.meta().wire_len);
    }

    /// A packet comes to this unit.
    #[inline(always)]
    pub fn given(&mut self, unit: UnitId, packet: &Packet) {
        self.given += 1;
        self.given_bytes[unit.index()] += u64::from(packet.meta().wire_len);
    }

    /// The present epoch hears of all of them; units take so long for what they were given.
    pub fn tell(&mut self, epochs: &mut Epochs, work: Work) {
        epochs.came(std::mem::take(&mut self.came), std::mem::take(&mut self.came_bytes));
        epochs.processed(std::mem::take(&mut self.given));
        for (unit, bytes) in (0u16..).map(UnitId).zip(&mut self.given_bytes) {
            epochs.given(unit, work.ns(std::mem::take(bytes)));
        }
    }
}
