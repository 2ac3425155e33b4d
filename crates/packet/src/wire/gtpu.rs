//! The GPRS Tunnelling Protocol's user plane, version 1. 3GPP TS 29.281 section 5.

use super::WireError;
use super::bytes::{need, require, view};
use super::numbers::numbers;
use core::ops::Range;

const NAME: &str = "GTP-U";

/// The mandatory part of the header, in bytes.
pub const HEADER_LEN_MIN: usize = 8;
/// Limit on the extension headers that a walk follows.
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// The UDP port that GTP-U is sent to.
pub const PORT: u16 = 2152;

/// With the optional fields, in bytes.
const LONG_HEADER_LEN: usize = 12;

numbers! {
    /// Type of a GTP-U message.
    pub struct MessageType(u8);
    /// Echo request.
    ECHO_REQUEST = 1;
    /// Echo response.
    ECHO_RESPONSE = 2;
    /// The peer does not know the tunnel.
    ERROR_INDICATION = 26;
    /// The last packet on an old path.
    END_MARKER = 254;
    /// A user's packet.
    G_PDU = 255;
}

view! {
    /// A view of a GTP-U message.
    pub struct Packet;
    /// Message type.
    message_type, set_message_type: MessageType = 1..2;
    /// Bytes after the first eight.
    length, set_length: u16 = 2..4;
    /// Tunnel endpoint identifier.
    teid, set_teid: u32 = 4..8;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that header, extension headers and payload are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for another version, for GTP' and for an
    /// extension header without a length; [`WireError::TooMany`] beyond [`EXTENSION_HEADERS_MAX`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        let bytes = self.bytes();
        need(NAME, bytes, HEADER_LEN_MIN)?;
        require(self.version() == 1, NAME, "version")?;
        require(bytes[0] & 0x10 != 0, NAME, "protocol type")?;
        need(NAME, bytes, self.end())?;
        need(NAME, &bytes[..self.end()], self.fixed_len())?;
        self.extension_headers().try_for_each(|extension| extension.map(drop))
    }

    /// Returns the version; 1 in a checked packet.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[0] >> 5
    }

    /// Returns the header's length in bytes, extension headers included.
    #[inline]
    pub fn header_len(&self) -> usize {
        let extensions: usize =
            self.extension_headers().flatten().map(|extension| extension.len_bytes()).sum();
        self.fixed_len() + extensions
    }

    /// Returns the sequence number, if there is one.
    #[inline]
    pub fn sequence_number(&self) -> Option<u16> {
        let bytes = self.bytes();
        (bytes[0] & 2 != 0).then(|| u16::from_be_bytes([bytes[8], bytes[9]]))
    }

    /// Returns the N-PDU number, if there is one.
    #[inline]
    pub fn n_pdu_number(&self) -> Option<u8> {
        (self.bytes()[0] & 1 != 0).then(|| self.bytes()[10])
    }

    /// Returns the extension headers, in order.
    #[inline]
    pub fn extension_headers(&self) -> ExtensionHeaders<'_> {
        let bytes = self.bytes();
        let kind = if bytes[0] & 4 != 0 { bytes[11] } else { 0 };
        ExtensionHeaders { rest: &bytes[self.fixed_len()..self.end()], kind, seen: 0 }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.end()
    }

    /// Returns the length of the header without extension headers, in bytes.
    #[inline]
    fn fixed_len(&self) -> usize {
        if self.bytes()[0] & 7 == 0 { HEADER_LEN_MIN } else { LONG_HEADER_LEN }
    }

    #[inline]
    fn end(&self) -> usize {
        HEADER_LEN_MIN + usize::from(self.length())
    }
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionHeader<'a> {
    /// Type of the header, never 0; 0x85 is the PDU session container.
    pub kind: u8,
    /// Without length and next type: two bytes, or two more than a multiple of four.
    pub content: &'a [u8],
}

impl ExtensionHeader<'_> {
    const fn len_bytes(&self) -> usize {
        self.content.len() + 2
    }
}

/// Walks the extension headers of a message.
#[derive(Clone, Debug)]
pub struct ExtensionHeaders<'a> {
    rest: &'a [u8],
    kind: u8,
    seen: usize,
}

impl<'a> ExtensionHeaders<'a> {
    fn step(&mut self, kind: u8) -> Result<ExtensionHeader<'a>, WireError> {
        if self.seen == EXTENSION_HEADERS_MAX {
            return Err(WireError::TooMany { header: NAME, limit: EXTENSION_HEADERS_MAX });
        }
        need(NAME, self.rest, 4)?;
        let len = usize::from(self.rest[0]) * 4;
        require(len != 0, NAME, "extension header length")?;
        need(NAME, self.rest, len)?;
        let (extension, rest) = self.rest.split_at(len);
        *self = ExtensionHeaders { rest, kind: extension[len - 1], seen: self.seen + 1 };
        Ok(ExtensionHeader { kind, content: &extension[1..len - 1] })
    }
}

impl<'a> Iterator for ExtensionHeaders<'a> {
    /// An error is the last item; the view of a checked message has none.
    type Item = Result<ExtensionHeader<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match core::mem::take(&mut self.kind) {
            0 => None,
            kind => Some(self.step(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_headers() {
        let bytes =
            [0x36, 255, 0, 13, 0, 0, 0, 7, 0, 9, 0, 0x85, 1, 0x10, 5, 0x40, 1, 1, 2, 0, 0x45, 0xee, 0xee];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.message_type(), packet.teid()), (MessageType::G_PDU, 7));
        assert_eq!((packet.sequence_number(), packet.n_pdu_number()), (Some(9), None));
        let extensions: Vec<_> = packet.extension_headers().map(Result::unwrap).collect();
        assert_eq!(
            extensions,
            [
                ExtensionHeader { kind: 0x85, content: &[0x10, 5] },
                ExtensionHeader { kind: 0x40, content: &[1, 2] }
            ]
        );
        assert_eq!((packet.header_len(), packet.payload()), (20, &[0x45][..]));
    }

    #[test]
    fn what_is_refused() {
        let endless = [0x34, 255, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0x85, 0, 0, 0, 0x85];
        assert_eq!(
            Packet::new_checked(endless).unwrap_err(),
            WireError::Malformed { header: NAME, field: "extension header length" }
        );
        assert!(Packet::new_checked([0x50, 255, 0, 0, 0, 0, 0, 7]).is_err());
        assert!(Packet::new_checked([0x20, 255, 0, 0, 0, 0, 0, 7]).is_err());
        let no_room_for_the_optional_fields = [0x32, 255, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0];
        assert!(Packet::new_checked(no_room_for_the_optional_fields).is_err());
        assert!(Packet::new_checked([0x30, 255, 0, 0, 0, 0, 0, 7]).unwrap().payload().is_empty());
    }
}
