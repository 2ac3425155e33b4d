//! The Internet Protocol, version 4. RFC 791, RFC 2474 (DSCP), RFC 3168 (ECN); for its options see
//! [`super::ipv4_option`].

use super::bytes::{fits, need, require, room, view, with_bits};
use super::ipv4_option::Options;
use super::{IpProtocol, WireError};
use crate::checksum;
use core::net::Ipv4Addr;
use core::ops::Range;

const NAME: &str = "IPv4";

/// The header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// The longest header, in bytes.
pub const HEADER_LEN_MAX: usize = 60;

view! {
    /// A view of an IPv4 packet.
    pub struct Packet;
    /// The length of header and payload in bytes.
    total_len, set_total_len: u16 = 2..4;
    /// Identification, common to the fragments of a packet.
    ident, set_ident: u16 = 4..6;
    /// Time to live, in hops.
    ttl, set_ttl: u8 = 8..9;
    /// Protocol of the payload.
    protocol, set_protocol: IpProtocol = 9..10;
    /// The header checksum.
    checksum, set_checksum: u16 = 10..12;
    /// Source address.
    source, set_source: Ipv4Addr = 12..16;
    /// Destination address.
    destination, set_destination: Ipv4Addr = 16..20;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps a packet that may have been cut off, as ICMP errors and captures hold them: its header
    /// is checked and there, its payload is what is left of it.
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
        need(NAME, self.bytes(), usize::from(self.total_len()))
    }

    /// Checks the version and that the whole header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for another version, or for a header
    /// length that is too small or beyond the total length.
    #[inline]
    pub fn check_header_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(self.version() == 4, NAME, "version")?;
        require(self.header_len() >= HEADER_LEN, NAME, "IHL")?;
        require(self.header_len() <= usize::from(self.total_len()), NAME, "total length")?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the version; 4 in a checked packet.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[0] >> 4
    }

    /// Returns the header's length in bytes, options included (the IHL field times four).
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[0] & 0xf) * 4
    }

    /// Returns the differentiated services code point, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.bytes()[1] >> 2
    }

    /// Returns the explicit congestion notification, 0 to 3.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.bytes()[1] & 3
    }

    /// Returns the flag "don't fragment".
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.bytes()[6] & 0x40 != 0
    }

    /// Returns the flag "more fragments".
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.bytes()[6] & 0x20 != 0
    }

    /// Returns where this fragment's payload starts in the whole payload, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        let bytes = self.bytes();
        u16::from_be_bytes([bytes[6], bytes[7]]) << 3
    }

    /// Checks if it is a fragment of a packet rather than a whole one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Returns the options, in order.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(&self.bytes()[HEADER_LEN..self.header_len()])
    }

    /// Returns the range of the payload in the buffer: no further than the total length, and no
    /// further than the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..usize::from(self.total_len()).min(self.bytes().len())
    }

    /// Verifies the header checksum.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        checksum::verify(checksum::sum(&self.bytes()[..self.header_len()]))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes version 4 and the header's length, a multiple of four bytes up to 60.
    #[inline]
    pub fn set_header_len(&mut self, len_bytes: usize) {
        self.bytes_mut()[0] = 0x40 | (len_bytes / 4) as u8 & 0xf;
    }

    /// Writes [`Self::dscp`], its low 6 bits.
    #[inline]
    pub fn set_dscp(&mut self, value: u8) {
        let byte = &mut self.bytes_mut()[1];
        *byte = with_bits(*byte, 0xfc, value << 2);
    }

    /// Writes [`Self::ecn`], its low 2 bits.
    #[inline]
    pub fn set_ecn(&mut self, value: u8) {
        let byte = &mut self.bytes_mut()[1];
        *byte = with_bits(*byte, 3, value);
    }

    /// Writes [`Self::dont_fragment`].
    #[inline]
    pub fn set_dont_fragment(&mut self, value: bool) {
        let byte = &mut self.bytes_mut()[6];
        *byte = with_bits(*byte, 0x40, u8::from(value) << 6);
    }

    /// Writes [`Self::more_fragments`].
    #[inline]
    pub fn set_more_fragments(&mut self, value: bool) {
        let byte = &mut self.bytes_mut()[6];
        *byte = with_bits(*byte, 0x20, u8::from(value) << 5);
    }

    /// Writes [`Self::fragment_offset`], a multiple of eight bytes.
    #[inline]
    pub fn set_fragment_offset(&mut self, value_bytes: u16) {
        let [high, low] = (value_bytes >> 3).to_be_bytes();
        let bytes = self.bytes_mut();
        bytes[6] = with_bits(bytes[6], 0x1f, high);
        bytes[7] = low;
    }

    /// Computes and writes the header checksum.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = checksum::checksum(&self.bytes()[..self.header_len()]);
        self.set_checksum(checksum);
    }
}

/// An IPv4 header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// Identification.
    pub ident: u16,
    /// The flag "don't fragment".
    pub dont_fragment: bool,
    /// The flag "more fragments".
    pub more_fragments: bool,
    /// Offset of the fragment in bytes, a multiple of eight.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Bytes after the header.
    pub payload_len: u16,
}

impl Repr {
    /// Parses a checked packet; its options are left out.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Repr {
        Repr {
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            ident: packet.ident(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            ttl: packet.ttl(),
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
            // A checked packet is no shorter than its header, at most 60 bytes.
            payload_len: packet.total_len() - packet.header_len() as u16,
        }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header with its checksum to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for values with too many bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.dscp < 64, NAME, "DSCP")?;
        fits(self.ecn < 4, NAME, "ECN")?;
        fits(self.fragment_offset.is_multiple_of(8), NAME, "fragment offset")?;
        let total_len = (HEADER_LEN as u16)
            .checked_add(self.payload_len)
            .ok_or(WireError::Unrepresentable { header: NAME, field: "total length" })?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, HEADER_LEN)?);
        packet.set_header_len(HEADER_LEN);
        packet.set_dscp(self.dscp);
        packet.set_ecn(self.ecn);
        packet.set_total_len(total_len);
        packet.set_ident(self.ident);
        packet.set_dont_fragment(self.dont_fragment);
        packet.set_more_fragments(self.more_fragments);
        packet.set_fragment_offset(self.fragment_offset);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.fill_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_packet_keeps_its_header() {
        let mut bytes = [0; 24];
        bytes[0] = 0x45;
        bytes[3] = 40;
        assert!(Packet::new_checked(&bytes[..]).is_err());
        assert_eq!(Packet::new_checked_header(&bytes[..]).unwrap().payload().len(), 4);
        bytes[3] = 22; // two bytes of padding
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().payload().len(), 2);
        bytes[3] = 19;
        assert!(Packet::new_checked_header(&bytes[..]).is_err());
    }
}
