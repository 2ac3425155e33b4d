//! The LLC header that starts the payload of an 802.3 frame (IEEE 802.2), and its SNAP extension
//! (RFC 1042).

use super::bytes::{need, read_u24, view};
use super::{EtherType, WireError};

const NAME: &str = "LLC";

/// The service access point, source and destination, that announces a SNAP header.
pub const SNAP_SAP: u8 = 0xaa;

/// DSAP, SSAP and control, in bytes, where the control field has one byte.
const LEN_MIN: usize = 3;
/// With the SNAP header's organisation and protocol.
const SNAP_LEN: usize = 8;

view! {
    /// A view of an LLC header and what follows it.
    pub struct Packet;
    /// Destination service access point.
    dsap, set_dsap: u8 = 0..1;
    /// Source service access point.
    ssap, set_ssap: u8 = 1..2;
    /// The (first byte of the) control field; 3 is unnumbered information.
    control, set_control: u8 = 2..3;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the LLC header and, if it announces one, the SNAP header are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), LEN_MIN)?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the length of the LLC and SNAP headers in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        let is_unnumbered = self.control() & 3 == 3;
        match self.is_snap() {
            true => SNAP_LEN,
            false if is_unnumbered => LEN_MIN,
            false => LEN_MIN + 1,
        }
    }

    /// Checks if a SNAP header follows.
    #[inline]
    pub fn is_snap(&self) -> bool {
        self.dsap() == SNAP_SAP && self.ssap() == SNAP_SAP && self.control() == 3
    }

    /// Returns the SNAP header's organisation (24 bits) and the protocol that it assigned.
    #[inline]
    pub fn snap(&self) -> Option<(u32, u16)> {
        let bytes = self.bytes();
        self.is_snap().then(|| (read_u24(&bytes[3..6]), u16::from_be_bytes([bytes[6], bytes[7]])))
    }

    /// Returns the payload's protocol from the SNAP header as an EtherType: organisation 0 (RFC
    /// 1042) or 0xf8 (IEEE 802.1H).
    #[inline]
    pub fn ethertype(&self) -> Option<EtherType> {
        match self.snap()? {
            (0 | 0xf8, protocol) => Some(EtherType(protocol)),
            _ => None,
        }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        self.header_len()..self.bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snap_gives_an_ethertype() {
        let packet = Packet::new_checked([0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x06, 9]).unwrap();
        assert_eq!((packet.ethertype(), packet.payload()), (Some(EtherType::ARP), &[9][..]));
        let cisco = Packet::new_checked([0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0x00]).unwrap();
        assert_eq!((cisco.snap(), cisco.ethertype()), (Some((0xc, 0x2000)), None));
        assert!(Packet::new_checked([0xaa, 0xaa, 3, 0, 0, 0, 8]).is_err());
    }

    #[test]
    fn control_is_one_byte_or_two() {
        assert_eq!(Packet::new_checked([0x42, 0x42, 3, 7]).unwrap().payload(), [7]);
        assert_eq!(Packet::new_checked([0x42, 0x42, 0, 0, 7]).unwrap().payload(), [7]);
    }
}
