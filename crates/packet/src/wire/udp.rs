//! The User Datagram Protocol. RFC 768.

use super::bytes::{fits, need, require, room, view};
use super::{IpAddresses, IpProtocol, WireError};
use crate::checksum;

const NAME: &str = "UDP";

/// The header, in bytes.
pub const HEADER_LEN: usize = 8;

view! {
    /// A view of a UDP datagram.
    pub struct Packet;
    /// The port it was sent from.
    source_port, set_source_port: u16 = 0..2;
    /// The port it is sent to.
    destination_port, set_destination_port: u16 = 2..4;
    /// The length of header and payload in bytes.
    length, set_length: u16 = 4..6;
    /// The checksum; zero if the sender computed none.
    checksum, set_checksum: u16 = 6..8;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps a datagram that may have been cut off, as ICMP errors and fragments hold them: its
    /// header is there, its payload is what is left of it.
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

    /// Checks that the header and the whole payload are there.
    ///
    /// # Errors
    ///
    /// Those of [`Self::check_header_len`]; [`WireError::Truncated`] if a part of the payload is
    /// missing.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        self.check_header_len()?;
        need(NAME, self.bytes(), usize::from(self.length()))
    }

    /// Checks that the header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a length below the header's.
    #[inline]
    pub fn check_header_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(usize::from(self.length()) >= HEADER_LEN, NAME, "length")
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Returns the range of the payload in the buffer: no further than the length field, and no
    /// further than the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..usize::from(self.length()).min(self.bytes().len())
    }

    /// Checks if the checksum of a whole datagram is right. None (zero) is right in IPv4, and wrong
    /// in IPv6 (RFC 8200 section 8.1) but for the tunnels of RFC 6935, which the caller must know.
    #[inline]
    pub fn verify_checksum(&self, addresses: IpAddresses) -> bool {
        match (self.checksum(), addresses) {
            (0, IpAddresses::V4 { .. }) => true,
            (0, IpAddresses::V6 { .. }) => false,
            _ => checksum::verify(self.partial_sum(addresses)),
        }
    }

    fn partial_sum(&self, addresses: IpAddresses) -> u32 {
        let datagram = &self.bytes()[..self.payload_range().end];
        addresses.pseudo_header(IpProtocol::UDP, datagram.len()) + checksum::sum(datagram)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes and writes the checksum of a whole datagram.
    #[inline]
    pub fn fill_checksum(&mut self, addresses: IpAddresses) {
        self.set_checksum(0);
        let checksum = checksum::finish_udp(self.partial_sum(addresses));
        self.set_checksum(checksum);
    }
}

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The port it is sent from.
    pub source_port: u16,
    /// The port it is sent to.
    pub destination_port: u16,
    /// Bytes after the header.
    pub payload_len: u16,
}

impl Repr {
    /// Parses a checked datagram.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Repr {
        Repr {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            // A checked datagram is no shorter than its header.
            payload_len: packet.length() - HEADER_LEN as u16,
        }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, without a checksum, to the start of `buffer`; [`Packet::fill_checksum`]
    /// adds one once the payload is there.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for a payload of more than 65,527
    /// bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.payload_len <= u16::MAX - HEADER_LEN as u16, NAME, "length")?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, HEADER_LEN)?);
        packet.set_source_port(self.source_port);
        packet.set_destination_port(self.destination_port);
        packet.set_length(HEADER_LEN as u16 + self.payload_len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    const V4: IpAddresses =
        IpAddresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::new(10, 0, 0, 1) };
    const V6: IpAddresses = IpAddresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };

    #[test]
    fn no_checksum_is_right_in_ipv4_only() {
        let packet = Packet::new_checked([0, 1, 0, 2, 0, 8, 0, 0]).unwrap();
        assert!(packet.verify_checksum(V4));
        assert!(!packet.verify_checksum(V6));
    }

    #[test]
    fn padding_is_not_payload() {
        let mut bytes = [0, 1, 0, 2, 0, 9, 0, 0, 0xaa, 0xff];
        let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
        packet.fill_checksum(V6);
        assert!(packet.verify_checksum(V6));
        packet.payload_mut()[0] ^= 1;
        assert!(!packet.verify_checksum(V6));
        bytes[9] ^= 0x55;
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().payload(), [0xab]);
        assert!(Packet::new_checked(&bytes[..8]).is_err());
        assert!(Packet::new_checked_header(&bytes[..8]).unwrap().payload().is_empty());
    }
}
