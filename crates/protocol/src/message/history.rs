//! What is told of packets that other units have, so that a flow's state can be recomputed from it.

/// What is told of a packet that another unit has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// When it came to the router, ns.
    pub at_ns: u64,
    /// Its bytes on the wire.
    pub len: u32,
    /// Its first bytes, as far as a state may depend on them: what that is only those know who
    /// drive router and units.
    pub bytes: Vec<u8>,
}

/// What goes with a packet of a flow that several units have in turn: what those packets before it
/// were like that its unit may not have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The clock of the packet that went to the same unit before; of a unit's first one, the last
    /// clock before the unit joined.
    pub previous: u64,
    /// The clock of the first header. The last one's is that of the packet less 1.
    pub first: u64,
    /// The headers, in the order of clocks.
    pub headers: Vec<Header>,
}

impl History {
    /// Whether it can be that of the packet with this clock: its headers reach that, and the packet
    /// before comes before.
    #[inline]
    pub fn is_of(&self, clock: u64) -> bool {
        let next = self.first.checked_add(self.headers.len() as u64);
        self.first > 0 && next == Some(clock) && self.previous < clock
    }

    /// The header with this clock, if it is there.
    #[inline]
    pub fn get(&self, clock: u64) -> Option<&Header> {
        self.headers.get(usize::try_from(clock.checked_sub(self.first)?).ok()?)
    }
}
