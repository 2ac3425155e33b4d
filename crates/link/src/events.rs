//! Changes of a link's state.

use crate::mtu::MtuChange;

/// A change of a link's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The first authentic datagram has arrived.
    Up,
    /// There is room for messages, after [`SendError::Full`](crate::SendError::Full).
    Room,
    /// The path carries datagrams of this length, and not larger ones.
    Mtu {
        /// Length of datagrams, at most.
        size: usize,
        /// The change since the last such event.
        change: MtuChange,
    },
    /// The system refuses datagrams of [`Config::mtu_base`](crate::Config::mtu_base) as too large.
    /// Nothing but heartbeats can pass.
    TooNarrow,
    /// The link has ended, for good. Messages without acknowledgement may have arrived or not.
    Dead(DeadReason),
}

/// The reason for a link's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// The peer was silent for [`PeerLink::silence_ns`](crate::PeerLink::silence_ns).
    Silent,
    /// The peer has ended the link.
    Closed,
    /// The peer violated the protocol.
    Violation,
    /// The peer did not confirm the current key before its last use.
    KeyExhausted,
    /// Forged datagrams reached [`FORGED_MAX`](crate::FORGED_MAX).
    Forgeries,
}
