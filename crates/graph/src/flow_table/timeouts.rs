//! Timeouts of flows by protocol and connection.

use nf::{Connection, KEEP_MS_MAX};
use packet::parse::protocol;

/// Timeouts of flows after their last packet, unless a function of the graph sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Established TCP connections (RFC 5382 REQ-5: 2 h 4 min).
    pub tcp_established_ms: u32,
    /// TCP connections that are opening or closing (RFC 5382 REQ-5: 4 min).
    pub tcp_transitory_ms: u32,
    /// UDP, once both sides have sent packets (RFC 4787 REQ-5: 5 min).
    pub udp_ms: u32,
    /// UDP, while only one side has.
    pub udp_unreplied_ms: u32,
    /// ICMP queries (RFC 5508 REQ-2: 60 s).
    pub icmp_ms: u32,
    /// Anything else.
    pub other_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            tcp_established_ms: 7_440_000,
            tcp_transitory_ms: 240_000,
            udp_ms: 300_000,
            udp_unreplied_ms: 120_000,
            icmp_ms: 60_000,
            other_ms: 600_000,
        }
    }
}

impl Timeouts {
    /// Returns the shortest timeout.
    pub(crate) fn shortest_ms(&self) -> u32 {
        let Timeouts { tcp_established_ms, tcp_transitory_ms, udp_ms, udp_unreplied_ms, icmp_ms, other_ms } =
            *self;
        let all = [tcp_established_ms, tcp_transitory_ms, udp_ms, udp_unreplied_ms, icmp_ms, other_ms];
        all.into_iter().fold(u32::MAX, u32::min)
    }

    /// Returns the timeout of a flow of this protocol in this phase of its connection.
    #[inline(never)]
    pub(crate) fn of(&self, protocol: u8, connection: Connection) -> u32 {
        let ms = match protocol {
            protocol::TCP if connection.is_established() => self.tcp_established_ms,
            protocol::TCP => self.tcp_transitory_ms,
            protocol::UDP if connection.is_established() => self.udp_ms,
            protocol::UDP => self.udp_unreplied_ms,
            protocol::ICMP | protocol::ICMPV6 => self.icmp_ms,
            _ => self.other_ms,
        };
        ms.min(KEEP_MS_MAX)
    }
}
