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
    /// Packets that do not fit a datagram: refused, or discarded after the path had become
    /// narrower.
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
    /// Datagrams that counted as lost, and had only been overtaken.
    pub datagrams_late: u64,
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
    /// Probes of larger datagrams sent.
    pub mtu_probes_sent: u64,
    /// Times that datagrams became larger because the path carries them.
    pub mtu_raised: u64,
    /// Times that the path no longer carried datagrams as large as before, or seemed not to.
    pub mtu_lowered: u64,
    /// Datagrams that the system refused as too large for the way out. Their messages are sent
    /// again in smaller ones.
    pub datagrams_too_large: u64,
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

impl Counters {
    /// Adds the counters of another link.
    pub fn add(&mut self, other: &Counters) {
        let Counters {
            messages_sent,
            message_bytes_sent,
            messages_full,
            messages_received,
            message_bytes_received,
            packets_sent,
            packets_too_large,
            packets_full,
            packets_received,
            packets_discarded,
            datagrams_sent,
            datagram_bytes_sent,
            datagrams_received,
            datagram_bytes_received,
            datagrams_lost,
            datagrams_late,
            blocks_retransmitted,
            blocks_repeated,
            probe_timeouts,
            acks_sent,
            acks_received,
            mtu_probes_sent,
            mtu_raised,
            mtu_lowered,
            datagrams_too_large,
            keys_rotated,
            peer_keys_rotated,
            frames_unknown,
            refused,
        } = other;
        self.messages_sent += messages_sent;
        self.message_bytes_sent += message_bytes_sent;
        self.messages_full += messages_full;
        self.messages_received += messages_received;
        self.message_bytes_received += message_bytes_received;
        self.packets_sent += packets_sent;
        self.packets_too_large += packets_too_large;
        self.packets_full += packets_full;
        self.packets_received += packets_received;
        self.packets_discarded += packets_discarded;
        self.datagrams_sent += datagrams_sent;
        self.datagram_bytes_sent += datagram_bytes_sent;
        self.datagrams_received += datagrams_received;
        self.datagram_bytes_received += datagram_bytes_received;
        self.datagrams_lost += datagrams_lost;
        self.datagrams_late += datagrams_late;
        self.blocks_retransmitted += blocks_retransmitted;
        self.blocks_repeated += blocks_repeated;
        self.probe_timeouts += probe_timeouts;
        self.acks_sent += acks_sent;
        self.acks_received += acks_received;
        self.mtu_probes_sent += mtu_probes_sent;
        self.mtu_raised += mtu_raised;
        self.mtu_lowered += mtu_lowered;
        self.datagrams_too_large += datagrams_too_large;
        self.keys_rotated += keys_rotated;
        self.peer_keys_rotated += peer_keys_rotated;
        self.frames_unknown += frames_unknown;
        self.refused.add(refused);
    }
}

impl RefusedDatagrams {
    /// Returns the counts by the names of their reasons.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 8] {
        [
            ("truncated", self.truncated),
            ("oversized", self.oversized),
            ("version", self.version),
            ("connection", self.connection),
            ("replayed", self.replayed),
            ("phase", self.phase),
            ("forged", self.forged),
            ("dead", self.dead),
        ]
    }

    fn add(&mut self, other: &RefusedDatagrams) {
        let RefusedDatagrams { truncated, oversized, version, connection, replayed, phase, forged, dead } =
            other;
        self.truncated += truncated;
        self.oversized += oversized;
        self.version += version;
        self.connection += connection;
        self.replayed += replayed;
        self.phase += phase;
        self.forged += forged;
        self.dead += dead;
    }

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
        self.by_reason().iter().map(|(_, count)| count).sum()
    }
}
