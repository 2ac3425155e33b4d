//! Per-flow state of the NAT: the endpoints to write, and the pool items that the flow holds.

use packet::Endpoint;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A flow's state, 96 bytes; fields that every packet needs come first. All zeros: undecided.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Bits: [`State::PLAIN`] and following.
    pub(super) flags: u8,
    /// Row of the timeout table: the [`PortClass`](super::space::PortClass).
    pub(super) class: u8,
    pub(super) spare: u16,
    /// Endpoint of the inside host.
    pub(super) internal: Endpoint,
    /// Its external endpoint, as seen by the outside host or by the peer of a hairpin.
    pub(super) external: Endpoint,
    /// Port of the mapping, held or only used.
    pub(super) item: PoolItem,
    pub(super) permission: PoolItem,
    pub(super) session: PoolItem,
    /// Hairpin: inside endpoint of the peer.
    pub(super) peer_internal: Endpoint,
    /// Hairpin: external endpoint of the peer, as seen by the first host.
    pub(super) peer_external: Endpoint,
    /// Hairpin: port of the peer's mapping.
    pub(super) peer_item: PoolItem,
    pub(super) peer_permission: PoolItem,
}

impl State {
    /// One end is rewritten, depending on the side of entry; there is nothing else to do.
    pub(super) const PLAIN: u8 = 1;
    /// The flow holds a reference to `item`.
    pub(super) const HELD: u8 = 2;
    /// An outside host opened the flow by a mapping. The flow does not keep that mapping alive
    /// until the inside host answers.
    pub(super) const BORROWED: u8 = 4;
    /// Both hosts are inside; both ends are rewritten.
    pub(super) const HAIRPIN: u8 = 8;
    /// The flow holds a reference to `peer_item`.
    pub(super) const PEER_HELD: u8 = 16;
    /// Nothing is rewritten.
    pub(super) const PASS: u8 = 32;

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A pool item, or none (zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct PoolItem(u32);

impl PoolItem {
    pub(super) const NONE: PoolItem = PoolItem(0);

    /// Wraps an item. Pools have fewer items than 32 bits can count.
    pub(super) fn of(item: u32) -> PoolItem {
        PoolItem(item + 1)
    }

    pub(super) fn item(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Takes the item and leaves none.
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
