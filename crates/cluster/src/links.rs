//! Counts of a node's links and handshakes, for reports and operators.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use link::Counters;
use runtime::report::LinksReport;

use crate::identity::ListenerCounters;

/// A link to another node, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name of the other node.
    pub peer: String,
    /// Address of its latest authentic datagram.
    pub address: SocketAddr,
    /// Smoothed round-trip time, in nanoseconds.
    pub rtt_ns: u64,
    /// Longest IP packet that the path is known to carry, in bytes.
    pub mtu: usize,
    /// Counts since the link began.
    pub counters: Counters,
}

/// Counters of a node's handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounters {
    /// Handshakes that this node began, and that succeeded.
    pub connected: u64,
    /// Failed attempts of this node; it tries again.
    pub failed: u64,
    /// Nodes that this node has not tried to reach, because the limit was exceeded.
    pub no_room: u64,
    /// Successful handshakes of other nodes.
    pub accepted: u64,
    /// Failed handshakes of other nodes.
    pub refused: u64,
    /// Connections closed because there were too many at a time.
    pub too_many: u64,
    /// Failures to accept a connection, as for want of descriptors.
    pub not_taken: u64,
}

/// Link counters that outlive their links.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkTotals {
    /// Sums over links that have ended.
    pub ended: Counters,
    /// Links that began.
    pub started: u64,
    /// Links that died.
    pub dead: u64,
    /// Transitions of a link to suspect.
    pub suspected: u64,
    /// Datagrams of no link.
    pub strange: u64,
}

/// Returns the length of the IP packet that carries a datagram of `size` bytes to this address.
pub(crate) fn mtu_of(address: SocketAddr, size: usize) -> usize {
    const UDP_HEADER: usize = 8;
    let ip_header = match address.ip() {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    size + ip_header + UDP_HEADER
}

impl HandshakeCounters {
    /// Adds the counters of a listener.
    pub(crate) fn with_listener(self, listener: &ListenerCounters) -> HandshakeCounters {
        HandshakeCounters {
            accepted: listener.accepted.load(Ordering::Relaxed),
            refused: listener.refused.load(Ordering::Relaxed),
            too_many: listener.too_many.load(Ordering::Relaxed),
            not_taken: listener.not_taken.load(Ordering::Relaxed),
            ..self
        }
    }
}

impl LinkTotals {
    /// Returns the report of all links, present and ended, and of handshakes.
    pub fn report(&self, now: &[LinkInfo], handshakes: HandshakeCounters) -> LinksReport {
        let mut sum = self.ended;
        now.iter().for_each(|link| sum.add(&link.counters));
        let HandshakeCounters { connected, failed, no_room, accepted, refused, .. } = handshakes;
        let HandshakeCounters { too_many, not_taken, .. } = handshakes;
        let reasons = sum.refused.by_reason().into_iter().chain([("unknown_peer", self.strange)]);
        LinksReport {
            links: now.len() as u64,
            started: self.started,
            dead: self.dead,
            suspected: self.suspected,
            stalls: 0,
            stalled_ms: 0,
            datagrams_sent: sum.datagrams_sent,
            datagrams_received: sum.datagrams_received,
            datagrams_lost: sum.datagrams_lost,
            bytes_sent: sum.datagram_bytes_sent,
            bytes_received: sum.datagram_bytes_received,
            blocks_retransmitted: sum.blocks_retransmitted,
            mtu_least: now.iter().map(|link| link.mtu as u64).min().unwrap_or(0),
            mtu_raised: sum.mtu_raised,
            mtu_lowered: sum.mtu_lowered,
            datagrams_too_large: sum.datagrams_too_large,
            refused: reasons.collect(),
            messages_refused: 0,
            messages_relayed: 0,
            store_entries_refused: 0,
            certificate_expiry_seconds: None,
            handshakes: [
                ("connected", connected),
                ("failed", failed),
                ("no_room", no_room),
                ("accepted", accepted),
                ("refused", refused),
                ("too_many", too_many),
                ("not_taken", not_taken),
            ]
            .into(),
        }
    }
}
