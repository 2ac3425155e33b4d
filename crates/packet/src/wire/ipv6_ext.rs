//! IPv6 extension headers, one by one. RFC 8200 section 4, RFC 4302; for the walk over all of them
//! see [`super::ipv6_walk`].

use super::bytes::{need, require, view};
use super::{IpProtocol, WireError};
use core::ops::Range;

const NAME: &str = "IPv6 extension header";

/// The length of a fragment header in bytes.
pub const FRAGMENT_LEN: usize = 8;

view! {
    /// A view of a hop-by-hop options, destination options or routing header: the headers with a
    /// length in units of eight bytes. As an item of [`super::ipv6_walk::Headers`] it is any
    /// extension header, and the buffer that header only.
    pub struct Header;
    /// Next header.
    next_header, set_next_header: IpProtocol = 0..1;
    /// The header's length in units of eight bytes, without the first; a fragment header has zero
    /// here, an authentication header its length in units of four, minus two.
    header_ext_len, set_header_ext_len: u8 = 1..2;
    /// The type of a routing header.
    routing_type, set_routing_type: u8 = 2..3;
    /// Number of of a routing header's nodes are still to be visited.
    segments_left, set_segments_left: u8 = 3..4;
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Checks that the whole header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), 8)?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the header's length in bytes, by [`Self::header_ext_len`] in units of eight.
    #[inline]
    pub fn header_len(&self) -> usize {
        (usize::from(self.header_ext_len()) + 1) * 8
    }

    /// Returns the header's options, or a routing header's type, count and data: all after the
    /// first two bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let bytes = self.bytes();
        &bytes[2..self.header_len().min(bytes.len())]
    }

    /// Returns the options of a hop-by-hop or destination options header.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options { rest: self.data() }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        let len = self.bytes().len();
        self.header_len().min(len)..len
    }
}

/// Walks the options of a hop-by-hop or destination options header, padding left out. RFC 8200
/// section 4.2.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    /// Type and data. An error, for a length that cannot be, is the last item.
    type Item = Result<(u8, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = core::mem::take(&mut self.rest);
            match *rest {
                [] => return None,
                [0, ref after @ ..] => self.rest = after,
                [kind, len, ref after @ ..] if usize::from(len) <= after.len() => {
                    let (data, after) = after.split_at(usize::from(len));
                    self.rest = after;
                    if kind != 1 {
                        return Some(Ok((kind, data)));
                    }
                }
                _ => return Some(Err(WireError::Malformed { header: NAME, field: "option length" })),
            }
        }
    }
}

view! {
    /// A view of a fragment header.
    pub struct Fragment;
    /// Next header of the fragmentable part.
    next_header, set_next_header: IpProtocol = 0..1;
    /// Identification, common to the fragments of a packet.
    ident, set_ident: u32 = 4..8;
}

impl<T: AsRef<[u8]>> Fragment<T> {
    /// Checks that the header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), FRAGMENT_LEN)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        FRAGMENT_LEN
    }

    /// Returns the offset in the fragmentable part, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        let bytes = self.bytes();
        u16::from_be_bytes([bytes[2], bytes[3]]) & !7
    }

    /// Checks if more fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.bytes()[3] & 1 != 0
    }

    /// Returns the header's contents except the next header.
    #[inline]
    pub fn info(&self) -> FragmentInfo {
        FragmentInfo {
            offset: self.fragment_offset(),
            more_fragments: self.more_fragments(),
            ident: self.ident(),
        }
    }

    /// Returns the range of the fragment's data in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        FRAGMENT_LEN..self.bytes().len()
    }
}

/// Contents of a fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentInfo {
    /// Offset in the fragmentable part, in bytes.
    pub offset: u16,
    /// Set if more fragments follow it.
    pub more_fragments: bool,
    /// Identification, common to the fragments of a packet.
    pub ident: u32,
}

impl FragmentInfo {
    /// Checks if the packet is whole despite its fragment header. RFC 6946.
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more_fragments
    }
}

view! {
    /// A view of an authentication header. RFC 4302.
    pub struct Authentication;
    /// Next header.
    next_header, set_next_header: IpProtocol = 0..1;
    /// The header's length in units of four bytes, minus two.
    payload_len, set_payload_len: u8 = 1..2;
    /// Security parameters index.
    spi, set_spi: u32 = 4..8;
    /// Sequence number.
    sequence_number, set_sequence_number: u32 = 8..12;
}

impl<T: AsRef<[u8]>> Authentication<T> {
    /// Checks that the whole header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a length that leaves no room for the
    /// fixed fields.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        header_len(IpProtocol::AH, self.bytes()).map(drop)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        (usize::from(self.payload_len()) + 2) * 4
    }

    /// Returns the integrity check value.
    #[inline]
    pub fn icv(&self) -> &[u8] {
        &self.bytes()[12..self.header_len()]
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }
}

/// Returns the length in bytes of the extension header that `bytes` starts with. `kind` must
/// satisfy [`IpProtocol::is_ipv6_extension`]. Fails unless `bytes` has the whole header.
pub(super) fn header_len(kind: IpProtocol, bytes: &[u8]) -> Result<usize, WireError> {
    need(NAME, bytes, 8)?;
    let len = match kind {
        IpProtocol::FRAGMENT => FRAGMENT_LEN,
        // RFC 4302 section 2.2: in 4-byte words, minus two; twelve bytes are fixed.
        IpProtocol::AH => {
            require(bytes[1] >= 1, NAME, "AH payload length")?;
            (usize::from(bytes[1]) + 2) * 4
        }
        _ => (usize::from(bytes[1]) + 1) * 8,
    };
    need(NAME, bytes, len)?;
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_padding() {
        let header = Header::new_checked([6, 0, 0, 5, 2, 0, 7, 0]).unwrap();
        let options: Vec<_> = header.options().map(Result::unwrap).collect();
        assert_eq!(options, [(5, &[0, 7][..])]);
        let bad = Header::new_checked([6, 0, 1, 9, 2, 0, 7, 0]).unwrap();
        assert!(bad.options().next().unwrap().is_err());
    }
}
