//! Messages, packets and datagrams that were not accepted.

/// A message that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full. [`LinkEvent::Room`](crate::LinkEvent::Room) announces room.
    #[error("the send buffer is full; wait for room")]
    Full,
    /// It is longer than [`Config::message_max`](crate::Config::message_max).
    #[error("the message has {len} bytes, more than the limit of {max}")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The longest.
        max: usize,
    },
    /// The link has ended.
    #[error("the link has ended")]
    Dead,
}

/// A packet that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// It does not fit a datagram. It can be sent as a message.
    #[error("the packet has {len} bytes, more than the {max} of a datagram; send it as a message")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The longest.
        max: usize,
    },
    /// The packet buffer is full.
    #[error("the packet buffer is full")]
    Full,
    /// The link has ended.
    #[error("the link has ended")]
    Dead,
}

/// A reason to refuse a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramRefusal {
    /// It is shorter than header and tag.
    #[error("the datagram is shorter than header and tag")]
    Truncated,
    /// It is longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX).
    #[error("the datagram is longer than any of UDP")]
    Oversized,
    /// It is of another version.
    #[error("the datagram is of another version")]
    Version,
    /// It is of another connection.
    #[error("the datagram belongs to another connection")]
    Connection,
    /// It was received before, or is too old to know.
    #[error("the datagram was received before, or is too old to know")]
    Replayed,
    /// Its key phase is neither current, next nor previous.
    #[error("the datagram's key is unknown")]
    Phase,
    /// Its tag is wrong.
    #[error("the datagram is not authentic")]
    Forged,
    /// The link has ended.
    #[error("the link has ended")]
    Dead,
}
