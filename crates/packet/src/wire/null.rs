//! BSD loopback captures: LINKTYPE_NULL, in the byte order of the capturing host, and
//! LINKTYPE_LOOP, in network order.

use super::bytes::{Field, need, view};
use super::{EtherType, WireError};

const NAME: &str = "BSD loopback";

/// The header, in bytes.
pub const HEADER_LEN: usize = 4;

view! {
    /// A view of a loopback packet in either byte order.
    pub struct Packet;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Returns the address family, as the capturing host numbers them. All are small, which reveals
    /// the byte order.
    #[inline]
    pub fn family(&self) -> u32 {
        let family = u32::read(&self.bytes()[..HEADER_LEN]);
        family.min(family.swap_bytes())
    }

    /// Returns the payload's protocol, if it is IP: AF_INET is 2 everywhere, AF_INET6 is 10
    /// (Linux), 24 (NetBSD, OpenBSD), 28 (FreeBSD) or 30 (macOS).
    #[inline]
    pub fn ethertype(&self) -> Option<EtherType> {
        match self.family() {
            2 => Some(EtherType::IPV4),
            10 | 24 | 28 | 30 => Some(EtherType::IPV6),
            _ => None,
        }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..self.bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_byte_order() {
        for bytes in [[2, 0, 0, 0, 0x45], [0, 0, 0, 2, 0x45]] {
            let packet = Packet::new_checked(&bytes[..]).unwrap();
            assert_eq!((packet.ethertype(), packet.payload()), (Some(EtherType::IPV4), &[0x45][..]));
        }
        assert_eq!(Packet::new_checked([30, 0, 0, 0]).unwrap().ethertype(), Some(EtherType::IPV6));
        assert_eq!(Packet::new_checked([9, 9, 9, 9]).unwrap().ethertype(), None);
    }
}
