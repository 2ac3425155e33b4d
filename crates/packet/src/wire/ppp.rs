//! The Point-to-Point Protocol (RFC 1661, RFC 1662), and PPP over Ethernet ([`Session`], RFC 2516).

use super::bytes::{need, require, view};
use super::numbers::numbers;
use super::{EtherType, WireError};
use core::ops::Range;

const NAME: &str = "PPP";
const PPPOE: &str = "PPPoE";

/// The header of PPPoE, in bytes; PPP follows it.
pub const PPPOE_HEADER_LEN: usize = 6;

/// The all-stations address and the control byte of HDLC-like framing.
const ADDRESS_AND_CONTROL: [u8; 2] = [0xff, 0x03];

numbers! {
    /// Protocol of a PPP frame's payload.
    pub struct Protocol(u16);
    /// IPv4.
    IPV4 = 0x0021;
    /// IPv6.
    IPV6 = 0x0057;
    /// MPLS, unicast.
    MPLS = 0x0281;
    /// IPv4's control protocol.
    IPCP = 0x8021;
    /// IPv6's control protocol.
    IPV6CP = 0x8057;
    /// Link control.
    LCP = 0xc021;
    /// Password authentication.
    PAP = 0xc023;
    /// Challenge handshake authentication.
    CHAP = 0xc223;
}

impl Protocol {
    /// Returns the EtherType of the same payload, if there is one.
    #[inline]
    pub const fn ethertype(self) -> Option<EtherType> {
        match self {
            Protocol::IPV4 => Some(EtherType::IPV4),
            Protocol::IPV6 => Some(EtherType::IPV6),
            Protocol::MPLS => Some(EtherType::MPLS),
            _ => None,
        }
    }
}

view! {
    /// A view of a PPP frame, with or without address and control bytes, and with or without
    /// protocol field compression.
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
        // The byte that determines the protocol field's length, then the rest of it.
        need(NAME, self.bytes(), self.protocol_start() + 1)?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the header's length in bytes, 1 to 4.
    #[inline]
    pub fn header_len(&self) -> usize {
        let is_compressed = self.bytes()[self.protocol_start()] & 1 != 0;
        self.protocol_start() + if is_compressed { 1 } else { 2 }
    }

    /// Returns the protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        match self.bytes()[self.protocol_start()..self.header_len()] {
            [high, low] => Protocol(u16::from_be_bytes([high, low])),
            [low] => Protocol(u16::from(low)),
            _ => Protocol(0), // the header has one or two bytes here
        }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }

    #[inline]
    fn protocol_start(&self) -> usize {
        if self.bytes().starts_with(&ADDRESS_AND_CONTROL) { 2 } else { 0 }
    }
}

numbers! {
    /// Code of a PPPoE packet.
    pub struct Code(u8);
    /// A session's data.
    SESSION = 0x00;
    /// Active discovery offer.
    PADO = 0x07;
    /// Active discovery initiation.
    PADI = 0x09;
    /// Active discovery request.
    PADR = 0x19;
    /// Active discovery session confirmation.
    PADS = 0x65;
    /// Active discovery termination.
    PADT = 0xa7;
}

view! {
    /// A view of a PPPoE packet: of a session, with a [`Packet`] as payload, or of discovery, with
    /// tags as payload.
    pub struct Session;
    /// Version and type, both 1.
    version_and_type, set_version_and_type: u8 = 0..1;
    /// Message type.
    code, set_code: Code = 1..2;
    /// Identifies the session, together with the Ethernet addresses.
    session_id, set_session_id: u16 = 2..4;
    /// Bytes after the header.
    length, set_length: u16 = 4..6;
}

impl<T: AsRef<[u8]>> Session<T> {
    /// Checks version and type, and that the header and the whole payload are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for another version or type.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(PPPOE, self.bytes(), PPPOE_HEADER_LEN)?;
        require(self.version_and_type() == 0x11, PPPOE, "version or type")?;
        need(PPPOE, self.bytes(), self.payload_range().end)
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        PPPOE_HEADER_LEN
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        PPPOE_HEADER_LEN..PPPOE_HEADER_LEN + usize::from(self.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_a_ppp_header() {
        for header in [&[0xff, 3, 0, 0x21][..], &[0, 0x21], &[0xff, 3, 0x21], &[0x21]] {
            let bytes = [header, &[0x45]].concat();
            let packet = Packet::new_checked(&bytes).unwrap();
            assert_eq!(packet.protocol(), Protocol::IPV4);
            assert_eq!(packet.protocol().ethertype(), Some(EtherType::IPV4));
            assert_eq!(packet.payload(), [0x45]);
            assert!(Packet::new_checked(&header[..header.len() - 1]).is_err());
        }
    }

    #[test]
    fn pppoe_ends_where_its_length_says() {
        let bytes = [0x11, 0, 0, 7, 0, 3, 0, 0x21, 0x45, 0xee];
        let session = Session::new_checked(&bytes[..]).unwrap();
        assert_eq!((session.code(), session.session_id()), (Code::SESSION, 7));
        assert_eq!(session.payload(), [0, 0x21, 0x45]);
        assert!(Session::new_checked(&bytes[..8]).is_err());
        assert!(Session::new_checked([0x12, 0, 0, 7, 0, 0]).is_err());
    }
}
