//! An IP header as the parser finds it.

use super::protocol;
use crate::{Addr, DropReason, PacketClass};

/// An IP header found on the way down.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub l3: usize,
    pub l4: usize,
    /// End of the captured IP payload.
    pub end: usize,
    pub source: Addr,
    pub destination: Addr,
    pub protocol: u8,
    pub version: u8,
    pub class: PacketClass,
    /// Completeness of the capture.
    pub whole: Whole,
}

/// Completeness of the capture: of the whole frame, or at least of the current IP packet.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub complete: bool,
    /// If set, a total length of 0 means the available bytes: the sending host captured the packet
    /// before its card segmented it.
    pub offloaded: bool,
}

impl Whole {
    /// Returns an error if a header is missing, unless the capture was truncated.
    #[inline]
    pub fn check(self, there: bool, reason: DropReason) -> Result<(), DropReason> {
        if there || !self.complete { Ok(()) } else { Err(reason) }
    }

    /// Marks the IP packet as complete if its end was captured, whatever is missing after it.
    #[inline]
    pub fn at_least(self, there: bool, reason: DropReason) -> Result<Whole, DropReason> {
        self.check(there, reason)?;
        Ok(Whole { complete: there, ..self })
    }
}

/// Classifies a fragment. Refuses a fragment that would overwrite a TCP header's flags (RFC 1858
/// 3.2.1).
#[inline]
pub(super) fn fragment_class(offset: u16, more: bool, protocol: u8) -> Result<PacketClass, DropReason> {
    match (offset, more) {
        (0, false) => Ok(PacketClass::Whole),
        (0, true) => Ok(PacketClass::FirstFragment),
        (1, _) if protocol == protocol::TCP => Err(DropReason::FragmentIllegal),
        _ => Ok(PacketClass::LaterFragment),
    }
}
