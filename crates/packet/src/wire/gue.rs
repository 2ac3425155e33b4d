//! Generic UDP Encapsulation, variant 0. draft-ietf-intarea-gue-09.

use super::bytes::{fits, need, require, room, view, with_bits};
use super::{IpProtocol, WireError};
use core::ops::Range;

const NAME: &str = "GUE";

/// The header without optional fields, in bytes.
pub const HEADER_LEN: usize = 4;
/// The most bytes that optional fields take, a multiple of four.
pub const FIELDS_LEN_MAX: usize = 31 * 4;
/// The UDP port that GUE is sent to.
pub const PORT: u16 = 6080;

view! {
    /// A view of a GUE packet of variant 0.
    pub struct Packet;
    /// Protocol of the payload; the type of a control message if [`Self::is_control`].
    proto_ctype, set_proto_ctype: IpProtocol = 1..2;
    /// Flags of the optional fields.
    flags, set_flags: u16 = 2..4;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the variant and that the header and its optional fields are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for another variant (variant 1 is IP
    /// right after UDP).
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(self.variant() == 0, NAME, "variant")?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the variant; 0 in a checked packet.
    #[inline]
    pub fn variant(&self) -> u8 {
        self.bytes()[0] >> 6
    }

    /// Checks if it is a control message rather than data.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.bytes()[0] & 0x20 != 0
    }

    /// Returns the header's length in bytes, optional fields included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + usize::from(self.bytes()[0] & 0x1f) * 4
    }

    /// Returns the optional fields that the flags announce, and private data after them.
    #[inline]
    pub fn fields(&self) -> &[u8] {
        &self.bytes()[HEADER_LEN..self.header_len()]
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes variant 0 and the header's length, a multiple of four bytes from 4 to 128.
    #[inline]
    pub fn set_header_len(&mut self, len_bytes: usize) {
        let byte = &mut self.bytes_mut()[0];
        *byte = with_bits(*byte, 0xdf, (len_bytes.saturating_sub(HEADER_LEN) / 4) as u8 & 0x1f);
    }

    /// Writes [`Self::is_control`].
    #[inline]
    pub fn set_control(&mut self, value: bool) {
        let byte = &mut self.bytes_mut()[0];
        *byte = with_bits(*byte, 0x20, u8::from(value) << 5);
    }

    /// Returns the optional fields, to be written to.
    #[inline]
    pub fn fields_mut(&mut self) -> &mut [u8] {
        let end = self.header_len();
        &mut self.bytes_mut()[HEADER_LEN..end]
    }
}

/// A GUE header of variant 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr<'a> {
    /// Set if it is a control message rather than data.
    pub is_control: bool,
    /// Protocol of the payload, or the type of a control message.
    pub proto_ctype: IpProtocol,
    /// Flags of the optional fields.
    pub flags: u16,
    /// The optional fields and private data, a multiple of four bytes up to [`FIELDS_LEN_MAX`].
    pub fields: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Returns the header of a data packet without optional fields.
    pub const fn data(protocol: IpProtocol) -> Self {
        Repr { is_control: false, proto_ctype: protocol, flags: 0, fields: &[] }
    }

    /// Parses a checked packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Repr<'a> {
        Repr {
            is_control: packet.is_control(),
            proto_ctype: packet.proto_ctype(),
            flags: packet.flags(),
            fields: packet.fields(),
        }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.fields.len()
    }

    /// Writes the header with its fields to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for fields of another length than a
    /// header can have.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let has_valid_len = self.fields.len().is_multiple_of(4) && self.fields.len() <= FIELDS_LEN_MAX;
        fits(has_valid_len, NAME, "Hlen")?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_header_len(self.buffer_len());
        packet.set_control(self.is_control);
        packet.set_proto_ctype(self.proto_ctype);
        packet.set_flags(self.flags);
        packet.fields_mut().copy_from_slice(self.fields);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_with_fields() {
        let repr =
            Repr { is_control: true, proto_ctype: IpProtocol(1), flags: 0x8000, fields: &[1, 2, 3, 4] };
        let mut bytes = [0xff; 9];
        repr.emit(&mut bytes).unwrap();
        assert_eq!(bytes, [0x21, 1, 0x80, 0, 1, 2, 3, 4, 0xff]);
        assert_eq!(Repr::parse(&Packet::new_checked(&bytes[..]).unwrap()), repr);
    }

    #[test]
    fn variant_1_is_refused() {
        assert!(Packet::new_checked([0x45, 0, 0, 0]).is_err());
    }
}
