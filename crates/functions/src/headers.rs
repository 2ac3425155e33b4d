//! IP headers at tunnel endpoints: fields of the inner header and their changes (RFC 4301 5.1.2),
//! and the payload of the outer header.

use packet::checksum::Delta;
use packet::wire::IpProtocol;
use packet::{Addr, parse};

/// Fields of an inner IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerHeader {
    /// 4 or 6.
    pub version: u8,
    /// Length of the packet in bytes, from the header. If the header does not have it (a jumbogram,
    /// RFC 2675, or an aggregate of packets), more than any tunnel carries.
    pub len: usize,
    /// Type of service or traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// If set, the packet must not be fragmented.
    pub dont_fragment: bool,
    pub source: Addr,
    pub destination: Addr,
}

impl InnerHeader {
    /// Reads the header at the beginning of `packet`, if there is one.
    #[inline]
    pub fn of(packet: &[u8]) -> Option<InnerHeader> {
        let mut found = match *packet.first()? >> 4 {
            4 => InnerHeader::of_v4(packet.first_chunk()?),
            6 => InnerHeader::of_v6(packet.first_chunk()?),
            _ => return None,
        };
        // An aggregate of a local stack's segments has no length; nor does a jumbogram: its length
        // is in a hop-by-hop option (RFC 2675).
        let is_unsaid = match found.version {
            4 => found.len == 0,
            _ => {
                found.len == V6_LEN
                    && (packet.get(6) == Some(&0) || packet.len() > V6_LEN + usize::from(u16::MAX))
            }
        };
        if is_unsaid {
            found.len = packet.len().max(LEN_UNSAID);
        }
        Some(found)
    }

    fn of_v4(h: &[u8; V4_LEN]) -> InnerHeader {
        InnerHeader {
            version: 4,
            len: usize::from(u16::from_be_bytes([h[2], h[3]])),
            traffic_class: h[1],
            ttl: h[8],
            dont_fragment: h[6] & 0x40 != 0,
            source: Addr::from_v4_bytes([h[12], h[13], h[14], h[15]]),
            destination: Addr::from_v4_bytes([h[16], h[17], h[18], h[19]]),
        }
    }

    fn of_v6(h: &[u8; V6_LEN]) -> InnerHeader {
        let addr = |at: usize| Addr::from_bytes(std::array::from_fn(|i| h[at + i]));
        InnerHeader {
            version: 6,
            len: V6_LEN + usize::from(u16::from_be_bytes([h[4], h[5]])),
            traffic_class: h[0] << 4 | h[1] >> 4,
            ttl: h[7],
            dont_fragment: true,
            source: addr(8),
            destination: addr(24),
        }
    }
}

/// Decrements the TTL of the header at the beginning of `packet`, sets its traffic class, and
/// updates the checksum.
#[inline]
pub fn decrement_ttl(packet: &mut [u8], traffic_class: u8) {
    match packet {
        [first, class, _, _, _, _, _, _, ttl, next, high, low, ..] if *first >> 4 == 4 => {
            let before = [u16::from_be_bytes([*first, *class]), u16::from_be_bytes([*ttl, *next])];
            (*class, *ttl) = (traffic_class, ttl.saturating_sub(1));
            let delta = Delta::of16(before[0], u16::from_be_bytes([*first, *class]))
                + Delta::of16(before[1], u16::from_be_bytes([*ttl, *next]));
            [*high, *low] = delta.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
        }
        [first, second, _, _, _, _, _, hop_limit, ..] => {
            *first = *first & 0xf0 | traffic_class >> 4;
            *second = *second & 0x0f | traffic_class << 4;
            *hop_limit = hop_limit.saturating_sub(1);
        }
        _ => {}
    }
}

/// Payload of an outer IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterPayload {
    /// Protocol number.
    pub protocol: u8,
    /// Offset from the outer header.
    pub at: usize,
    /// True if the outer packet is a fragment.
    pub is_fragment: bool,
}

impl OuterPayload {
    /// Finds the payload after the IP header at the beginning of `packet` and after its extension
    /// headers, except AH. Returns none if the headers are truncated.
    pub fn of(packet: &[u8]) -> Option<OuterPayload> {
        match packet {
            &[first, _, _, _, _, _, high, low, _, protocol, ..] if first >> 4 == 4 => {
                let is_fragment = u16::from_be_bytes([high, low]) & 0x3fff != 0;
                Some(OuterPayload { protocol, at: usize::from(first & 0xf) * 4, is_fragment })
            }
            _ => OuterPayload::after_extensions(packet),
        }
    }

    fn after_extensions(packet: &[u8]) -> Option<OuterPayload> {
        let mut found = OuterPayload { protocol: *packet.get(6)?, at: V6_LEN, is_fragment: false };
        // The parser refuses packets with more extension headers.
        for _ in 0..parse::EXTENSION_MAX {
            let kind = IpProtocol(found.protocol);
            if !kind.is_ipv6_extension() || found.protocol == AH {
                break;
            }
            let &[next, units, high, low] = packet.get(found.at..)?.first_chunk()?;
            let is_fragment_header = kind == IpProtocol::FRAGMENT;
            found.is_fragment |= is_fragment_header && u16::from_be_bytes([high, low]) & 0xfff9 != 0;
            found.at += if is_fragment_header { 8 } else { (usize::from(units) + 1) * 8 };
            found.protocol = next;
        }
        Some(found)
    }
}

/// Protocol number of AH (IANA).
const AH: u8 = 51;

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;

/// Above the maximum of a length field.
const LEN_UNSAID: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_header_has_a_valid_checksum() {
        let mut header = [0x45, 0xb8, 0, 20, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        let sum = packet::checksum::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        decrement_ttl(&mut header, 0x03);
        assert_eq!((header[1], header[8]), (3, 63));
        assert!(packet::checksum::verify(packet::checksum::sum(&header)));
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x60, 0x0a, 0xbc, 0xde, 0, 0, 17, 2]);
        decrement_ttl(&mut header, 0xb9);
        assert_eq!(header[..8], [0x6b, 0x9a, 0xbc, 0xde, 0, 0, 17, 1]);
    }
}
