//! The route of a flow.

use packet::Side;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::topology::{Hop, NfSet, RouteEnd};

/// The route of a flow: a part of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Route {
    /// Functions of the path that the last packet of the original direction which left has taken.
    pub(super) path: u64,
    /// Functions that have state of the flow.
    pub started: u64,
    /// The port that the flow's first packet came in by.
    pub from: u16,
    /// The port that packets of the original direction leave by.
    pub(super) to: u16,
    pub(super) flags: u32,
}

impl Route {
    /// A packet of the original direction has left: path and `to` are known.
    pub(super) const KNOWN: u32 = 1;
    /// There are no edges back.
    pub(super) const ONE_WAY: u32 = 2;

    /// Returns the functions of the path; none if no packet has left yet.
    #[inline]
    pub fn path(&self) -> Option<NfSet> {
        (self.flags & Route::KNOWN != 0).then_some(NfSet(self.path))
    }

    pub(super) fn is_one_way(&self) -> bool {
        self.flags & Route::ONE_WAY != 0
    }

    /// Returns the next stop of a packet of this side that has these functions before it.
    pub(super) fn hop(&self, rest: NfSet, side: Side, origin: Side) -> Hop {
        let port = if side == origin { self.to } else { self.from };
        rest.first(side).map_or(Hop::End(RouteEnd::Port(port)), Hop::Stage)
    }
}
