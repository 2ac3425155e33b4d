//! The pair of addresses of an IP packet, which transport checksums cover.

use super::{IpProtocol, ipv4, ipv6};
use crate::checksum;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Source and destination of an IP packet: what transport checksums need to know of the network
/// layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpAddresses {
    /// Of an IPv4 packet.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// Of an IPv6 packet.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address; with a routing header, the final one.
        destination: Ipv6Addr,
    },
}

impl IpAddresses {
    /// Returns the partial checksum of the pseudo-header for an upper-layer packet of `len_bytes`,
    /// at most 65,535.
    #[inline]
    pub fn pseudo_header(self, protocol: IpProtocol, len_bytes: usize) -> u32 {
        match self {
            // A longer packet does not fit into IPv4 or IPv6 without jumbograms, so the low 16 bits
            // are the length.
            IpAddresses::V4 { source, destination } => {
                checksum::pseudo_header_v4(source, destination, protocol.0, len_bytes as u16)
            }
            IpAddresses::V6 { source, destination } => {
                checksum::pseudo_header_v6(source, destination, protocol.0, len_bytes as u32)
            }
        }
    }
}

impl<T: AsRef<[u8]>> From<&ipv4::Packet<T>> for IpAddresses {
    #[inline]
    fn from(packet: &ipv4::Packet<T>) -> Self {
        IpAddresses::V4 { source: packet.source(), destination: packet.destination() }
    }
}

impl<T: AsRef<[u8]>> From<&ipv6::Packet<T>> for IpAddresses {
    #[inline]
    fn from(packet: &ipv6::Packet<T>) -> Self {
        IpAddresses::V6 { source: packet.source(), destination: packet.destination() }
    }
}
