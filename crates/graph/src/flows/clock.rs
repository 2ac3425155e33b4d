//! The time of a graph: the latest timestamp of any packet.

/// The time of packets. It never goes back.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    now_ns: u64,
    settled_ns: u64,
}

impl Clock {
    /// Returns the latest time of any packet.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the latest time of any settled packet.
    #[inline(always)]
    pub fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    /// Advances the time to that of a packet.
    #[inline(always)]
    pub fn advance(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Advances the time of settled packets.
    #[inline(always)]
    pub fn settle(&mut self, at_ns: u64) {
        self.settled_ns = self.settled_ns.max(at_ns);
    }

    /// All packets are settled.
    pub fn settle_now(&mut self) {
        self.settled_ns = self.now_ns;
    }
}
