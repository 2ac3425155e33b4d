//! Generic Routing Encapsulation, version 0 (RFC 2784, RFC 2890); version 1 (RFC 2637, PPTP) is
//! recognised.

use super::bytes::{Field, need, require, room, view};
use super::{EtherType, WireError};
use crate::checksum;
use core::ops::Range;

const NAME: &str = "GRE";

/// The header without optional fields, in bytes.
pub const HEADER_LEN_MIN: usize = 4;

const CHECKSUM_PRESENT: u16 = 0x8000;
const ROUTING_PRESENT: u16 = 0x4000;
const KEY_PRESENT: u16 = 0x2000;
const SEQUENCE_PRESENT: u16 = 0x1000;
const ACKNOWLEDGMENT_PRESENT: u16 = 0x0080;

view! {
    /// A view of a GRE packet.
    pub struct Packet;
    /// Flags of the optional fields, and the version.
    flags_and_version, set_flags_and_version: u16 = 0..2;
    /// Protocol of the payload; PPP in version 1.
    protocol, set_protocol: EtherType = 2..4;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the version and that all fields are there that the flags announce.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a version above 1 and for the source
    /// routes of RFC 1701, which RFC 2784 has receivers discard.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN_MIN)?;
        require(self.version() <= 1, NAME, "version")?;
        require(!self.has(ROUTING_PRESENT), NAME, "routing present")?;
        require(self.version() == 0 || self.has(KEY_PRESENT), NAME, "key present")?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the version; 1 is PPTP's, with a PPP payload.
    #[inline]
    pub fn version(&self) -> u8 {
        self.flags_and_version() as u8 & 7
    }

    /// Returns the header's length in bytes, with all fields that the flags announce.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.acknowledgment_range().end
    }

    /// Returns the checksum of header and payload. Version 0 only.
    #[inline]
    pub fn checksum(&self) -> Option<u16> {
        let range = self.checksum_range();
        (!range.is_empty()).then(|| u16::read(&self.bytes()[range.start..range.start + 2]))
    }

    /// Returns the key; in version 1, the payload length and the call's number.
    #[inline]
    pub fn key(&self) -> Option<u32> {
        self.word(self.key_range())
    }

    /// Returns the sequence number.
    #[inline]
    pub fn sequence_number(&self) -> Option<u32> {
        self.word(self.sequence_range())
    }

    /// Returns the highest sequence number received. Version 1 only.
    #[inline]
    pub fn acknowledgment_number(&self) -> Option<u32> {
        self.word(self.acknowledgment_range())
    }

    /// Verifies the checksum, if there is one.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        self.checksum().is_none() || checksum::verify(checksum::sum(self.bytes()))
    }

    /// Returns the range of the payload in the buffer, which must end where the IP packet does.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }

    #[inline]
    fn has(&self, flag: u16) -> bool {
        self.flags_and_version() & flag != 0
    }

    #[inline]
    fn word(&self, range: Range<usize>) -> Option<u32> {
        (!range.is_empty()).then(|| u32::read(&self.bytes()[range]))
    }

    #[inline]
    fn checksum_range(&self) -> Range<usize> {
        optional_word(HEADER_LEN_MIN, self.has(CHECKSUM_PRESENT) && self.version() == 0)
    }

    #[inline]
    fn key_range(&self) -> Range<usize> {
        optional_word(self.checksum_range().end, self.has(KEY_PRESENT))
    }

    #[inline]
    fn sequence_range(&self) -> Range<usize> {
        optional_word(self.key_range().end, self.has(SEQUENCE_PRESENT))
    }

    #[inline]
    fn acknowledgment_range(&self) -> Range<usize> {
        optional_word(self.sequence_range().end, self.has(ACKNOWLEDGMENT_PRESENT) && self.version() == 1)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes [`Self::key`], if there is one.
    #[inline]
    pub fn set_key(&mut self, value: u32) {
        let range = self.key_range();
        self.set_word(range, value);
    }

    /// Writes [`Self::sequence_number`], if there is one.
    #[inline]
    pub fn set_sequence_number(&mut self, value: u32) {
        let range = self.sequence_range();
        self.set_word(range, value);
    }

    /// Computes and writes the checksum of header and payload, if there is one.
    pub fn fill_checksum(&mut self) {
        let range = self.checksum_range();
        self.set_word(range.clone(), 0);
        let checksum = checksum::checksum(self.bytes());
        self.set_word(range, u32::from(checksum) << 16);
    }

    #[inline]
    fn set_word(&mut self, range: Range<usize>, value: u32) {
        if !range.is_empty() {
            value.write(&mut self.bytes_mut()[range]);
        }
    }
}

/// Returns the range of four bytes from `start`, or an empty one.
#[inline]
const fn optional_word(start: usize, is_present: bool) -> Range<usize> {
    start..start + if is_present { 4 } else { 0 }
}

/// A GRE header of version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Protocol of the payload.
    pub protocol: EtherType,
    /// Set if there is a checksum.
    pub has_checksum: bool,
    /// The key, if any.
    pub key: Option<u32>,
    /// The sequence number, if any.
    pub sequence_number: Option<u32>,
}

impl Repr {
    /// Parses a checked packet.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] for version 1.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Repr, WireError> {
        require(packet.version() == 0, NAME, "version")?;
        Ok(Repr {
            protocol: packet.protocol(),
            has_checksum: packet.checksum().is_some(),
            key: packet.key(),
            sequence_number: packet.sequence_number(),
        })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        let optional_words = self.has_checksum as usize
            + self.key.is_some() as usize
            + self.sequence_number.is_some() as usize;
        HEADER_LEN_MIN + 4 * optional_words
    }

    /// Writes the header, with space for the checksum, if any, to the start of
    /// `buffer`; [`Packet::fill_checksum`] computes it once the payload is there.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let flag = |is_present: bool, flag: u16| if is_present { flag } else { 0 };
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_flags_and_version(
            flag(self.has_checksum, CHECKSUM_PRESENT)
                | flag(self.key.is_some(), KEY_PRESENT)
                | flag(self.sequence_number.is_some(), SEQUENCE_PRESENT),
        );
        packet.set_protocol(self.protocol);
        packet.set_key(self.key.unwrap_or(0));
        packet.set_sequence_number(self.sequence_number.unwrap_or(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields() {
        let repr = Repr {
            protocol: EtherType::IPV4,
            has_checksum: true,
            key: Some(0x01020304),
            sequence_number: Some(5),
        };
        let mut bytes = [0xff; 19];
        repr.emit(&mut bytes).unwrap();
        assert_eq!(bytes[..16], [0xb0, 0, 8, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 5]);
        let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
        packet.fill_checksum();
        assert!(packet.verify_checksum());
        assert_eq!((Repr::parse(&packet), packet.payload().len()), (Ok(repr), 3));
        packet.payload_mut()[0] = 0;
        assert!(!packet.verify_checksum());
    }

    #[test]
    fn pptp_is_recognised() {
        let bytes = [0x30, 0x81, 0x88, 0x0b, 0, 1, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0xc0];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.version(), packet.protocol()), (1, EtherType::PPP));
        assert_eq!((packet.key(), packet.acknowledgment_number()), (Some(0x0001_0007), Some(2)));
        assert_eq!(packet.payload(), [0xc0]);
        assert!(Repr::parse(&packet).is_err());
    }

    #[test]
    fn source_routes_and_later_versions_are_refused() {
        assert!(Packet::new_checked([0x40, 0, 8, 0, 0, 0, 0, 0]).is_err());
        assert!(Packet::new_checked([0, 2, 8, 0]).is_err());
    }
}
