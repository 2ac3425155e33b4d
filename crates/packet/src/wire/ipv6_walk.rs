//! The walk over the extension headers of an IPv6 packet to its upper-layer protocol. RFC 8200
//! section 4.

use super::bytes::require;
use super::ipv6_ext::{Fragment, FragmentInfo, Header, header_len};
use super::{IpProtocol, WireError};

const NAME: &str = "IPv6 extension header";

/// Limit on the extension headers that a walk follows.
pub const EXTENSION_HEADERS_MAX: usize = 10;
/// The upper layer after the extension headers of an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpperLayer {
    /// The protocol after the last header walked over. It is not an extension header of
    /// [`IpProtocol::is_ipv6_extension`], except with a `fragment` other than the first: then it is
    /// the fragment header's statement about the first one's payload.
    pub protocol: IpProtocol,
    /// Its offset, in bytes from the first extension header.
    pub offset: usize,
    /// The fragment header, if there was one; of several, the last.
    pub fragment: Option<FragmentInfo>,
}

/// Walks from `next_header`, at the start of `payload`, over all extension headers. The walk ends
/// at the first header that is not one, and after the header of a fragment other than the first,
/// where upper-layer data has no header.
///
/// # Errors
///
/// [`WireError::Truncated`] if an extension header is not all there, [`WireError::Malformed`] for
/// an impossible length and for hop-by-hop options that do not come first, [`WireError::TooMany`]
/// beyond [`EXTENSION_HEADERS_MAX`].
#[inline]
pub fn walk(next_header: IpProtocol, payload: &[u8]) -> Result<UpperLayer, WireError> {
    let mut headers = Headers::new(next_header, payload);
    for header in headers.by_ref() {
        header?;
    }
    Ok(UpperLayer { protocol: headers.next_header, offset: headers.offset, fragment: headers.fragment })
}

/// The walk of [`walk`], header by header.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    payload: &'a [u8],
    next_header: IpProtocol,
    offset: usize,
    seen: usize,
    fragment: Option<FragmentInfo>,
    has_failed: bool,
}

impl<'a> Headers<'a> {
    /// Returns a walk from `next_header`, at the start of `payload`.
    pub const fn new(next_header: IpProtocol, payload: &'a [u8]) -> Self {
        Headers { payload, next_header, offset: 0, seen: 0, fragment: None, has_failed: false }
    }

    fn step(&mut self) -> Result<(IpProtocol, Header<&'a [u8]>), WireError> {
        if self.seen == EXTENSION_HEADERS_MAX {
            return Err(WireError::TooMany { header: NAME, limit: EXTENSION_HEADERS_MAX });
        }
        let kind = self.next_header;
        // RFC 8200 section 4.1: hop-by-hop options come first or not at all.
        require(kind != IpProtocol::HOP_BY_HOP || self.seen == 0, NAME, "hop-by-hop options not first")?;
        let rest = &self.payload[self.offset..];
        let len = header_len(kind, rest)?;
        let bytes = &rest[..len];
        if kind == IpProtocol::FRAGMENT {
            self.fragment = Some(Fragment::new_unchecked(bytes).info());
        }
        let header = Header::new_unchecked(bytes);
        self.next_header = header.next_header();
        self.offset += len;
        self.seen += 1;
        Ok((kind, header))
    }
}

impl<'a> Iterator for Headers<'a> {
    /// The kind of an extension header, and the header. An error is the last item.
    type Item = Result<(IpProtocol, Header<&'a [u8]>), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let is_later_fragment = self.fragment.is_some_and(|fragment| fragment.offset != 0);
        if self.has_failed || is_later_fragment || !self.next_header.is_ipv6_extension() {
            return None;
        }
        let step = self.step();
        self.has_failed = step.is_err();
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(next: IpProtocol, units: u8) -> Vec<u8> {
        let mut bytes = vec![0; (usize::from(units) + 1) * 8];
        bytes[..2].copy_from_slice(&[next.0, units]);
        bytes
    }

    #[test]
    fn walks_to_the_upper_layer() {
        let mut bytes = extension(IpProtocol::ROUTING, 0);
        bytes.extend(extension(IpProtocol::FRAGMENT, 2));
        bytes.extend([IpProtocol::AH.0, 0, 0, 1, 0, 0, 0, 7]);
        bytes.extend([IpProtocol::TCP.0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 0xff]);
        let upper = walk(IpProtocol::HOP_BY_HOP, &bytes).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 8 + 24 + 8 + 16));
        assert_eq!(upper.fragment, Some(FragmentInfo { offset: 0, more_fragments: true, ident: 7 }));
        for len in 0..upper.offset {
            assert!(walk(IpProtocol::HOP_BY_HOP, &bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn stops_behind_a_later_fragment() {
        let bytes = [IpProtocol::DESTINATION_OPTIONS.0, 0, 0x05, 0xa8, 0, 0, 0, 7, 1, 2, 3];
        let upper = walk(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 8));
        assert_eq!(upper.fragment.unwrap().offset, 1448);
    }

    #[test]
    fn is_bounded() {
        let bytes = extension(IpProtocol::DESTINATION_OPTIONS, 0).repeat(EXTENSION_HEADERS_MAX + 1);
        let error = walk(IpProtocol::DESTINATION_OPTIONS, &bytes).unwrap_err();
        assert_eq!(error, WireError::TooMany { header: NAME, limit: EXTENSION_HEADERS_MAX });
    }
}
