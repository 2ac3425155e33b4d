//! Flow control: a receiver grants cost, and a sender never exceeds it.
//!
//! Each message and each fragment costs its bytes and [`PART_COST`]. The receiver holds messages
//! until the caller takes them; the sum of their cost never exceeds the receive window. Packets
//! cost nothing; they are discarded when the receiver has no room.

/// Cost of a message or a fragment beyond its bytes: what a receiver needs to hold it.
pub const PART_COST: u64 = 64;

/// Cost that a receiver grants before its first acknowledgement.
pub const INITIAL_GRANT: u64 = 65_536;

/// The sending side.
#[derive(Debug)]
pub(crate) struct SendCredit {
    granted: u64,
    spent: u64,
}

impl SendCredit {
    pub(crate) fn new() -> SendCredit {
        SendCredit { granted: INITIAL_GRANT, spent: 0 }
    }

    /// Notes a grant. Grants of reordered datagrams may be older.
    #[inline]
    pub(crate) fn note_grant(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
    }

    #[inline]
    pub(crate) fn covers(&self, cost: u64) -> bool {
        self.spent + cost <= self.granted
    }

    #[inline]
    pub(crate) fn spend(&mut self, cost: u64) {
        self.spent += cost;
    }
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    window: u64,
    granted: u64,
    received: u64,
    consumed: u64,
}

impl ReceiveCredit {
    pub(crate) fn new(window: u64) -> ReceiveCredit {
        ReceiveCredit { window, granted: INITIAL_GRANT, received: 0, consumed: 0 }
    }

    /// Notes received cost; false if it was not granted.
    #[inline]
    #[must_use]
    pub(crate) fn receive(&mut self, cost: u64) -> bool {
        self.received += cost;
        self.received <= self.granted
    }

    #[inline]
    pub(crate) fn consume(&mut self, cost: u64) {
        self.consumed += cost;
    }

    /// Returns the cost of everything held.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// Returns whether the peer should learn of a greater grant soon.
    #[inline]
    pub(crate) fn is_grant_stale(&self) -> bool {
        self.consumed + self.window > self.granted + self.window / 4
    }

    /// Returns the grant to announce, in all.
    #[inline]
    pub(crate) fn announce(&mut self) -> u64 {
        self.granted = self.granted.max(self.consumed + self.window);
        self.granted
    }
}
