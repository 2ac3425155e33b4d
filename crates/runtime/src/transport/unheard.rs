//! Packets of which their units have not heard.
//!
//! In the midst of a flowlet, with the state at its unit and nothing under way, what the router
//! says of a packet is all there is to say: the engine gets it, and the unit need not look at the
//! flow. It hears of all such packets at once, when something else is about to happen to the flow.

use packet::memory::prefetch;
use protocol::dispatcher::NumberedPacket;

/// Flows of which units have not heard all.
#[derive(Default)]
pub(super) struct Unheard {
    /// By the flow's slot: the clock of its last packet; 0: its unit hears of the next one.
    clocks: Vec<u64>,
}

impl Unheard {
    /// What is known of the flow in this slot is on its way to the cache.
    #[inline(always)]
    pub fn prefetch(&self, slot: u32) {
        prefetch(self.clocks.as_ptr().wrapping_add(slot as usize));
    }

    /// From this packet on, of which its unit has heard, it need not hear of those of the same
    /// flowlet.
    #[cold]
    pub fn begin(&mut self, packet: &NumberedPacket) {
        let slot = packet.flow.index as usize;
        if slot >= self.clocks.len() {
            self.clocks.resize(slot + 1, 0); // Not more than the router has slots.
        }
        self.clocks[slot] = packet.seq;
    }

    /// Adds a packet in the midst of a flowlet; false, and nothing has changed, if its unit is to
    /// hear of it.
    #[inline(always)]
    pub fn add(&mut self, packet: &NumberedPacket) -> bool {
        match self.clocks.get_mut(packet.flow.index as usize) {
            Some(clock) if *clock > 0 => {
                *clock = packet.seq;
                true
            }
            _ => false,
        }
    }

    /// The unit that has the flow's state hears of its packets, up to this clock, says `tell`; then
    /// it hears of the next one, too.
    #[inline]
    pub fn tell(&mut self, slot: u32, tell: impl FnOnce(u64) -> bool) {
        if let Some(clock) = self.clocks.get_mut(slot as usize).filter(|clock| **clock > 0)
            && tell(*clock)
        {
            *clock = 0;
        }
    }
}
