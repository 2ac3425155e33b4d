//! The Internet Protocol, version 6. RFC 8200. Jumbograms (RFC 2675) are not supported: they read
//! as empty packets.

use super::bytes::{fits, need, require, room, view, with_bits};
use super::{IpProtocol, WireError};
use core::net::Ipv6Addr;
use core::ops::Range;

const NAME: &str = "IPv6";

/// The fixed header, in bytes.
pub const HEADER_LEN: usize = 40;

view! {
    /// A view of an IPv6 packet; extension headers count as payload, see [`super::ipv6_walk`].
    pub struct Packet;
    /// Bytes after the fixed header, extension headers included.
    payload_len, set_payload_len: u16 = 4..6;
    /// Next header.
    next_header, set_next_header: IpProtocol = 6..7;
    /// Hop limit.
    hop_limit, set_hop_limit: u8 = 7..8;
    /// Source address.
    source, set_source: Ipv6Addr = 8..24;
    /// Destination address (the next one, if there is a routing header).
    destination, set_destination: Ipv6Addr = 24..40;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps a packet that may have been cut off, as ICMP errors and captures hold them: its fixed
    /// header is checked and there, its payload is what is left of it.
    ///
    /// # Errors
    ///
    /// Those of [`Self::check_header_len`].
    #[inline]
    pub fn new_checked_header(buffer: T) -> Result<Self, WireError> {
        let packet = Self::new_unchecked(buffer);
        packet.check_header_len()?;
        Ok(packet)
    }

    /// Checks the version and that the header and the whole payload are there.
    ///
    /// # Errors
    ///
    /// Those of [`Self::check_header_len`]; [`WireError::Truncated`] if a part of the payload is
    /// missing.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        self.check_header_len()?;
        need(NAME, self.bytes(), HEADER_LEN + usize::from(self.payload_len()))
    }

    /// Checks the version and that the fixed header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for another version.
    #[inline]
    pub fn check_header_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(self.version() == 6, NAME, "version")
    }

    /// Returns the version; 6 in a checked packet.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[0] >> 4
    }

    /// Returns the fixed header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Returns the traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        let bytes = self.bytes();
        bytes[0] << 4 | bytes[1] >> 4
    }

    /// Returns the differentiated services code point, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Returns the explicit congestion notification, 0 to 3.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Returns the flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        let bytes = self.bytes();
        u32::from_be_bytes([0, bytes[1] & 0xf, bytes[2], bytes[3]])
    }

    /// Returns the range of the payload in the buffer: no further than the payload length, and no
    /// further than the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        HEADER_LEN..(HEADER_LEN + usize::from(self.payload_len())).min(self.bytes().len())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes version 6.
    #[inline]
    pub fn set_version(&mut self) {
        let byte = &mut self.bytes_mut()[0];
        *byte = with_bits(*byte, 0xf0, 0x60);
    }

    /// Writes [`Self::traffic_class`].
    #[inline]
    pub fn set_traffic_class(&mut self, value: u8) {
        let bytes = self.bytes_mut();
        bytes[0] = with_bits(bytes[0], 0x0f, value >> 4);
        bytes[1] = with_bits(bytes[1], 0xf0, value << 4);
    }

    /// Writes [`Self::flow_label`], its low 20 bits.
    #[inline]
    pub fn set_flow_label(&mut self, value: u32) {
        let [_, high, middle, low] = value.to_be_bytes();
        let bytes = self.bytes_mut();
        bytes[1] = with_bits(bytes[1], 0x0f, high);
        bytes[2] = middle;
        bytes[3] = low;
    }
}

/// A fixed IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Next header.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Bytes after the header.
    pub payload_len: u16,
}

impl Repr {
    /// Parses a checked packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Repr {
        Repr {
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
            payload_len: packet.payload_len(),
        }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for a flow label of more than 20 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.flow_label < 1 << 20, NAME, "flow label")?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, HEADER_LEN)?);
        packet.set_version();
        packet.set_traffic_class(self.traffic_class);
        packet.set_flow_label(self.flow_label);
        packet.set_payload_len(self.payload_len);
        packet.set_next_header(self.next_header);
        packet.set_hop_limit(self.hop_limit);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_share_bytes() {
        let mut packet = Packet::new_unchecked([0xff; 40]);
        packet.set_version();
        packet.set_traffic_class(0x12);
        packet.set_flow_label(0x34567);
        assert_eq!(packet.as_ref()[..4], [0x61, 0x23, 0x45, 0x67]);
        assert_eq!((packet.version(), packet.traffic_class(), packet.flow_label()), (6, 0x12, 0x34567));
        assert_eq!((packet.dscp(), packet.ecn()), (4, 2));
    }
}
