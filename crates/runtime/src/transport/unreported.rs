//! Packets that their units were not notified of.
//!
//! Within a flowlet, with the state at its unit and no handover, the engine processes a packet
//! without its unit looking at the flow. The unit is notified of all such packets at once, before
//! anything else happens to the flow.

use packet::memory::prefetch;
use protocol::dispatcher::NumberedPacket;

/// Flows with packets that their units were not notified of.
#[derive(Default)]
pub(super) struct Unreported {
    /// By the flow's index: the seq of its last packet; 0: its unit is notified of the next one.
    seqs: Vec<u64>,
}

impl Unreported {
    /// Prefetches the entry of the flow with this index.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        prefetch(self.seqs.as_ptr().wrapping_add(index as usize));
    }

    /// Begins after this packet, which its unit knows: the unit need not be notified of the rest of
    /// the flowlet.
    #[cold]
    pub fn begin(&mut self, packet: &NumberedPacket) {
        let index = packet.flow.index as usize;
        if index >= self.seqs.len() {
            self.seqs.resize(index + 1, 0); // Not more than the dispatcher has indexes.
        }
        self.seqs[index] = packet.seq;
    }

    /// Adds a packet within a flowlet. Returns false, and changes nothing, if its unit must be
    /// notified.
    #[inline(always)]
    pub fn add(&mut self, packet: &NumberedPacket) -> bool {
        match self.seqs.get_mut(packet.flow.index as usize) {
            Some(seq) if *seq > 0 => {
                *seq = packet.seq;
                true
            }
            _ => false,
        }
    }

    /// Notifies the unit of the flow's packets: `notify` gets the last seq and returns whether the
    /// unit has the state. Then the unit is notified of the next packet, too.
    #[inline]
    pub fn notify(&mut self, index: u32, notify: impl FnOnce(u64) -> bool) {
        if let Some(seq) = self.seqs.get_mut(index as usize).filter(|seq| **seq > 0)
            && notify(*seq)
        {
            *seq = 0;
        }
    }
}
