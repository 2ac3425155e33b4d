//! Counters of a link.

use crate::errors::DatagramRefusal;

/// Counters of a link, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages accepted from the caller.
    pub messages_sent: u64,
    /// Bytes of them.
    pub message_bytes_sent: u64,
    /// Messages that the caller offered while the send buffer was full.
    pub messages_full: u64,
    /// Messages handed to the caller.
    pub messages_received: u64,
    /// Bytes of them.
    pub message_bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that the caller offered and that do not fit a datagram.
    pub packets_too_large: u64,
    /// Packets that the caller offered while the packet buffer was full.
    pub packets_full: u64,
    /// Packets handed to the caller.
    pub packets_received: u64,
    /// Received packets discarded because the caller had not taken earlier ones.
    pub packets_discarded: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of them.
    pub datagram_bytes_sent: u64,
    /// Authentic datagrams received.
    pub datagrams_received: u64,
    /// Bytes of them.
    pub datagram_bytes_received: u64,
    /// Datagrams that the peer should have acknowledged and that count as lost.
    pub datagrams_lost: u64,
    /// Blocks of messages sent again.
    pub blocks_retransmitted: u64,
    /// Blocks of messages received again, and ignored.
    pub blocks_repeated: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
    /// Acknowledgements sent, heartbeats among them.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Rotations of the send key.
    pub keys_rotated: u64,
    /// Rotations of the peer's key.
    pub peer_keys_rotated: u64,
    /// Received frames of unknown types, skipped.
    pub frames_unknown: u64,
    /// Datagrams refused, by reason.
    pub refused: RefusedDatagrams,
}

/// Received datagrams that were refused, without effect, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedDatagrams {
    /// Shorter than header and tag.
    pub truncated: u64,
    /// Longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX).
    pub oversized: u64,
    /// Of another version.
    pub version: u64,
    /// Of another connection.
    pub connection: u64,
    /// Received before, or too old to know.
    pub replayed: u64,
    /// Of a key phase that is neither current, next nor previous.
    pub phase: u64,
    /// With a wrong tag.
    pub forged: u64,
    /// After the link's end.
    pub dead: u64,
}

impl RefusedDatagrams {
    /// Counts a refusal.
    pub(crate) fn count(&mut self, reason: DatagramRefusal) {
        let counter = match reason {
            DatagramRefusal::Truncated => &mut self.truncated,
            DatagramRefusal::Oversized => &mut self.oversized,
            DatagramRefusal::Version => &mut self.version,
            DatagramRefusal::Connection => &mut self.connection,
            DatagramRefusal::Replayed => &mut self.replayed,
            DatagramRefusal::Phase => &mut self.phase,
            DatagramRefusal::Forged => &mut self.forged,
            DatagramRefusal::Dead => &mut self.dead,
        };
        *counter += 1;
    }

    /// Returns all of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.truncated
            + self.oversized
            + self.version
            + self.connection
            + self.replayed
            + self.phase
            + self.forged
            + self.dead
    }
}
