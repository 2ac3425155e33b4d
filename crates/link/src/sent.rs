//! A datagram in flight.

use crate::sending::Piece;

/// A datagram in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) at_ns: u64,
    pub(crate) piece: Option<Piece>,
    /// Its size; 0 when it is decided.
    pub(crate) size: u32,
}

impl Sent {
    pub(crate) fn lost_at_ns(&self, delay_ns: u64) -> u64 {
        self.at_ns.saturating_add(delay_ns)
    }
}
