//! Fields of frames: the IP header, priority tags, link-local addresses.

use std::net::{IpAddr, Ipv6Addr};

use packet::wire::{EtherType, MacAddress, ethernet, ipv4, ipv6};
use packet::{Addr, checksum};

/// Removes priority tags, which name no VLAN (IEEE 802.1Q 9.6), and writes the result to
/// `untagged`. Returns false if there are none. Such a frame belongs to the untagged network.
pub fn untag(frame: &[u8], untagged: &mut Vec<u8>) -> bool {
    const ADDRESSES_LEN: usize = 12;
    let mut at = ADDRESSES_LEN;
    while let Some([0x81, 0x00, high, low] | [0x88, 0xa8, high, low]) = frame.get(at..at + 4)
        && high & 0xf == 0
        && *low == 0
        && at < ADDRESSES_LEN + 4 * PRIORITY_TAGS_MAX
    {
        at += 4;
    }
    if at == ADDRESSES_LEN {
        return false;
    }
    untagged.clear();
    untagged.extend_from_slice(&frame[..ADDRESSES_LEN]);
    untagged.extend_from_slice(&frame[at..]);
    true
}

/// Limit on the priority tags removed from a frame.
const PRIORITY_TAGS_MAX: usize = 2;

/// The fields of a frame's IP header that a router needs.
pub(crate) struct Ip {
    pub source: Addr,
    pub destination: Addr,
    pub ttl: u8,
    /// Length of the IP packet.
    pub len: usize,
    pub is_v6: bool,
}

impl Ip {
    /// Returns `None` unless an IP packet follows the Ethernet header directly.
    pub fn of(frame: &[u8]) -> Option<Ip> {
        let link = ethernet::Frame::new_checked(frame).ok()?;
        let packet = &frame[ethernet::HEADER_LEN..];
        let of = |source: IpAddr, destination: IpAddr| (Addr::from(source), Addr::from(destination));
        let ((source, destination), ttl, len) = match link.ethertype()? {
            EtherType::IPV4 => {
                let header = ipv4::Packet::new_checked(packet).ok()?;
                let ends = of(header.source().into(), header.destination().into());
                (ends, header.ttl(), usize::from(header.total_len()))
            }
            EtherType::IPV6 => {
                let header = ipv6::Packet::new_checked(packet).ok()?;
                let ends = of(header.source().into(), header.destination().into());
                (ends, header.hop_limit(), ipv6::HEADER_LEN + usize::from(header.payload_len()))
            }
            _ => return None,
        };
        Some(Ip { source, destination, ttl, len, is_v6: packet[0] >> 4 == 6 })
    }
}

/// Decrements the time to live, which must be above 1, of the packet in a frame.
pub(crate) fn decrement_ttl(frame: &mut [u8]) {
    let packet = &mut frame[ethernet::HEADER_LEN..];
    if packet[0] >> 4 == 6 {
        let mut header = ipv6::Packet::new_unchecked(packet);
        header.set_hop_limit(header.hop_limit().saturating_sub(1));
        return;
    }
    let mut header = ipv4::Packet::new_unchecked(packet);
    let word = |ttl: u8, next: u8| u16::from_be_bytes([ttl, next]);
    let (ttl, next) = (header.ttl(), header.protocol().0);
    let left = ttl.saturating_sub(1);
    let sum = checksum::update16(header.checksum(), word(ttl, next), word(left, next));
    header.set_ttl(left);
    header.set_checksum(sum);
}

/// Returns the link-local address of an Ethernet address (RFC 4291 2.5.6, appendix A).
pub(crate) fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Addr {
    let v6 = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Addr::from(IpAddr::V6(v6))
}
