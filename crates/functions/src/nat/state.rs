//! What the NAT keeps of each flow: what to write into its packets, and what it holds of the pools.

use packet::Endpoint;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A flow's state, 96 bytes; what each packet needs comes first. All zeros: nothing decided yet.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// See the constants.
    pub(super) flags: u8,
    /// Row of the table of timeouts: the protocol class.
    pub(super) class: u8,
    pub(super) spare: u16,
    /// The inside host's own endpoint.
    pub(super) internal: Endpoint,
    /// What the outside, or the peer of a hairpin, sees of it.
    pub(super) external: Endpoint,
    /// What the flow holds, or uses, of the pools.
    pub(super) item: PoolItem,
    pub(super) permission: PoolItem,
    pub(super) session: PoolItem,
    /// Hairpin: the other inside host's own endpoint.
    pub(super) peer_internal: Endpoint,
    /// Hairpin: what the first host sees of it.
    pub(super) peer_external: Endpoint,
    /// Hairpin: the other host's mapping.
    pub(super) peer_item: PoolItem,
    pub(super) peer_permission: PoolItem,
}

impl State {
    /// One end is rewritten, by the side that a packet enters by; nothing else is to be done.
    pub(super) const PLAIN: u8 = 1;
    /// The flow is a user of `item`.
    pub(super) const HELD: u8 = 2;
    /// An outside host opened the flow by a mapping that the flow does not keep alive, until the
    /// inside host answers.
    pub(super) const BORROWED: u8 = 4;
    /// Both hosts are inside; both ends are rewritten.
    pub(super) const HAIRPIN: u8 = 8;
    /// The flow is a user of `peer_item`.
    pub(super) const PEER_HELD: u8 = 16;
    /// Nothing is rewritten.
    pub(super) const PASS: u8 = 32;

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// An item of a pool, or none (zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct PoolItem(u32);

impl PoolItem {
    pub(super) const NONE: PoolItem = PoolItem(0);

    /// This item. Pools have fewer items than 32 bits can count.
    pub(super) fn of(item: u32) -> PoolItem {
        PoolItem(item + 1)
    }

    pub(super) fn item(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Leaves the slot empty.
    pub(super) fn take(&mut self) -> Option<u32> {
        std::mem::take(self).item()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_and_starts_empty() {
        assert_eq!(size_of::<State>(), 96);
        assert_eq!(std::mem::offset_of!(State, item), 40);
        assert_eq!(State::default().item, PoolItem::NONE);
        assert_eq!(PoolItem::of(0).item(), Some(0));
    }
}
