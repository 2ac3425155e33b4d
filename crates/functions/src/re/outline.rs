//! The outermost IP header of a packet, and the eligible payload after it.

use packet::Addr;
use packet::wire::IpProtocol;

use super::PAYLOAD_MIN;

/// Maximum bytes of an eligible payload: at the other end, it must fit with its headers into the
/// buffer of a short packet.
pub const PAYLOAD_MAX: usize = packet::SMALL_ROOM - packet::HEADROOM - HEADERS_MAX;

/// Bytes reserved for an IP header and the link layer before it.
const HEADERS_MAX: usize = 120;

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;

/// The outline of an IP packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketOutline {
    /// Source address.
    pub source: Addr,
    /// Destination address.
    pub destination: Addr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// True for a fragment.
    pub is_fragment: bool,
    /// True if both ends may cache and encode the packet, given the right length.
    may_take_part: bool,
    /// Start of the payload.
    at: usize,
    /// End of the payload according to the header.
    end: usize,
}

impl PacketOutline {
    /// Parses the header at the beginning of `packet`; `None` if there is none.
    #[inline]
    pub fn of(packet: &[u8]) -> Option<PacketOutline> {
        match *packet.first()? >> 4 {
            4 => PacketOutline::of_v4(packet.first_chunk()?),
            6 => PacketOutline::of_v6(packet.first_chunk()?),
            _ => None,
        }
    }

    fn of_v4(h: &[u8; V4_LEN]) -> Option<PacketOutline> {
        let is_fragment = u16::from_be_bytes([h[6], h[7]]) & 0x3fff != 0;
        Some(PacketOutline {
            source: Addr::from_v4_bytes([h[12], h[13], h[14], h[15]]),
            destination: Addr::from_v4_bytes([h[16], h[17], h[18], h[19]]),
            protocol: h[9],
            is_fragment,
            // No valid header has this checksum; it would be restored as 0, which is equivalent
            // (RFC 1624 3).
            may_take_part: !is_fragment && h[10..12] != [0xff; 2],
            at: usize::from(h[0] & 0xf) * 4,
            end: usize::from(u16::from_be_bytes([h[2], h[3]])),
        })
    }

    fn of_v6(h: &[u8; V6_LEN]) -> Option<PacketOutline> {
        let addr = |at: usize| Addr::from_bytes(std::array::from_fn(|i| h[at + i]));
        Some(PacketOutline {
            source: addr(8),
            destination: addr(24),
            protocol: h[6],
            is_fragment: false, // A fragment header is an extension header.
            may_take_part: !IpProtocol(h[6]).is_ipv6_extension(),
            at: V6_LEN,
            end: V6_LEN + usize::from(u16::from_be_bytes([h[4], h[5]])),
        })
    }

    /// Returns the payload, if it is complete. A length that a local stack leaves open counts as
    /// none.
    #[inline]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        packet.get(self.at..self.end).filter(|payload| !payload.is_empty())
    }

    /// Returns the payload if both ends cache it and it may be encoded: not a fragment, nothing
    /// that routers must inspect, neither too short nor too long.
    #[inline]
    pub fn content<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let payload = self.payload(packet).filter(|_| self.may_take_part)?;
        (PAYLOAD_MIN..=PAYLOAD_MAX).contains(&payload.len()).then_some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ineligible_packets_are_named() {
        let packet = |len: usize| {
            let mut packet = vec![0; 20 + len];
            packet[..10].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17]);
            packet[2..4].copy_from_slice(&(20 + len as u16).to_be_bytes());
            packet
        };
        let content = |packet: &[u8]| PacketOutline::of(packet).unwrap().content(packet).map(<[u8]>::len);
        assert_eq!(
            [PAYLOAD_MIN - 1, PAYLOAD_MIN, PAYLOAD_MAX, PAYLOAD_MAX + 1].map(|len| content(&packet(len))),
            [None, Some(PAYLOAD_MIN), Some(PAYLOAD_MAX), None]
        );
        let mut padded = packet(100);
        padded.extend([0; 9]);
        assert_eq!(content(&padded), Some(100));
        assert_eq!(content(&padded[..119]), None, "it is cut");
        for (at, value) in [(2, 0xff), (6, 0x20), (7, 1)] {
            let mut changed = packet(100);
            changed[at] = value;
            assert_eq!(content(&changed), None);
        }
        let mut impossible = packet(100);
        impossible[10..12].fill(0xff);
        assert_eq!(content(&impossible), None);
        let mut unsaid = packet(100);
        unsaid[2..4].fill(0);
        assert_eq!(content(&unsaid), None);
        let mut v6 = vec![0; 140];
        v6[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 100, 17, 64]);
        assert_eq!(content(&v6), Some(100));
        v6[6] = 44;
        assert_eq!(content(&v6), None);
        assert!(PacketOutline::of(&[0x45; 19]).is_none() && PacketOutline::of(&[0x60; 39]).is_none());
    }
}
