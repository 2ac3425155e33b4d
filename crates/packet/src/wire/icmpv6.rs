//! The Internet Control Message Protocol for IPv6. RFC 4443, RFC 4884 (length of the original
//! datagram).

use super::bytes::{need, room, view};
use super::numbers::numbers;
use super::{IpAddresses, IpProtocol, WireError};
use crate::checksum;

const NAME: &str = "ICMPv6";

/// The length of the header in bytes; its second half depends on the type.
pub const HEADER_LEN: usize = 8;

numbers! {
    /// Type of an ICMPv6 message.
    pub struct Type(u8);
    /// The original packet did not reach its destination.
    DESTINATION_UNREACHABLE = 1;
    /// The original packet is longer than the MTU of a link.
    PACKET_TOO_BIG = 2;
    /// The original packet's hop limit expired.
    TIME_EXCEEDED = 3;
    /// The original packet's header is wrong.
    PARAMETER_PROBLEM = 4;
    /// Echo request.
    ECHO_REQUEST = 128;
    /// Echo reply.
    ECHO_REPLY = 129;
    /// RFC 2710.
    MULTICAST_LISTENER_QUERY = 130;
    /// RFC 2710.
    MULTICAST_LISTENER_REPORT = 131;
    /// RFC 2710.
    MULTICAST_LISTENER_DONE = 132;
    /// RFC 4861.
    ROUTER_SOLICITATION = 133;
    /// RFC 4861.
    ROUTER_ADVERTISEMENT = 134;
    /// RFC 4861.
    NEIGHBOR_SOLICITATION = 135;
    /// RFC 4861.
    NEIGHBOR_ADVERTISEMENT = 136;
    /// RFC 4861.
    REDIRECT = 137;
    /// RFC 3810.
    MULTICAST_LISTENER_REPORT_V2 = 143;
}

impl Type {
    /// Checks if the message reports on an original packet and carries its start. RFC 4443 section
    /// 2.1.
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }

    /// Checks if the message has an identifier and a sequence number.
    #[inline]
    pub const fn is_query(self) -> bool {
        matches!(self, Type::ECHO_REQUEST | Type::ECHO_REPLY)
    }
}

view! {
    /// A view of an ICMPv6 message.
    pub struct Packet;
    /// Message type.
    message_type, set_message_type: Type = 0..1;
    /// Code, which refines the type.
    code, set_code: u8 = 1..2;
    /// The checksum.
    checksum, set_checksum: u16 = 2..4;
    /// The second half of the header, whatever the type.
    rest_of_header, set_rest_of_header: u32 = 4..8;
    /// The identifier of an echo.
    ident, set_ident: u16 = 4..6;
    /// The sequence number of an echo.
    sequence_number, set_sequence_number: u16 = 6..8;
    /// The MTU of "packet too big", in bytes.
    mtu, set_mtu: u32 = 4..8;
    /// The pointer of a parameter problem: the offset of the byte in question, in bytes.
    pointer, set_pointer: u32 = 4..8;
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

    /// Returns, of an error, the start of the packet that it reports on, without any extensions
    /// after it. Usually cut off: read it with [`super::ipv6::Packet::new_checked_header`].
    #[inline]
    pub fn original_packet(&self) -> Option<&[u8]> {
        let payload = self.message_type().is_error().then(|| self.payload())?;
        let has_length = matches!(self.message_type(), Type::DESTINATION_UNREACHABLE | Type::TIME_EXCEEDED);
        // RFC 4884 section 4: in 64-bit words; zero if there is nothing but the packet.
        match usize::from(self.bytes()[4]) * 8 {
            len if has_length && len != 0 => Some(&payload[..len.min(payload.len())]),
            _ => Some(payload),
        }
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..self.bytes().len()
    }

    /// Verifies the checksum of a whole message.
    #[inline]
    pub fn verify_checksum(&self, addresses: IpAddresses) -> bool {
        checksum::verify(self.partial_sum(addresses))
    }

    fn partial_sum(&self, addresses: IpAddresses) -> u32 {
        addresses.pseudo_header(IpProtocol::ICMPV6, self.bytes().len()) + checksum::sum(self.bytes())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes and writes the checksum of a whole message.
    #[inline]
    pub fn fill_checksum(&mut self, addresses: IpAddresses) {
        self.set_checksum(0);
        let checksum = checksum::finish(self.partial_sum(addresses));
        self.set_checksum(checksum);
    }
}

/// An ICMPv6 echo or error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repr<'a> {
    /// Echo request.
    EchoRequest {
        /// Identifier of the sender.
        ident: u16,
        /// Sequence number.
        sequence_number: u16,
        /// Data that the reply returns.
        data: &'a [u8],
    },
    /// Echo reply.
    EchoReply {
        /// As in the request.
        ident: u16,
        /// As in the request.
        sequence_number: u16,
        /// As in the request.
        data: &'a [u8],
    },
    /// The original packet did not reach its destination.
    DestinationUnreachable {
        /// Code, the reason.
        code: u8,
        /// The start of the packet.
        original: &'a [u8],
    },
    /// The original packet is longer than the MTU of a link.
    PacketTooBig {
        /// The MTU, in bytes.
        mtu: u32,
        /// The start of the packet.
        original: &'a [u8],
    },
    /// The original packet's hop limit expired (code 0), or its reassembly timed out (1).
    TimeExceeded {
        /// Code, which of both.
        code: u8,
        /// The start of the packet.
        original: &'a [u8],
    },
    /// The original packet's header is wrong.
    ParameterProblem {
        /// Code, the kind of fault.
        code: u8,
        /// Offset of the fault, in bytes.
        pointer: u32,
        /// The start of the packet.
        original: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Parses a checked message; the extensions of RFC 4884 are left out.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] for a message of another type.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Repr<'a>, WireError> {
        let (ident, sequence_number) = (packet.ident(), packet.sequence_number());
        let (code, data) = (packet.code(), packet.payload());
        let original = packet.original_packet().unwrap_or(&[]);
        Ok(match packet.message_type() {
            Type::ECHO_REQUEST => Repr::EchoRequest { ident, sequence_number, data },
            Type::ECHO_REPLY => Repr::EchoReply { ident, sequence_number, data },
            Type::DESTINATION_UNREACHABLE => Repr::DestinationUnreachable { code, original },
            Type::PACKET_TOO_BIG => Repr::PacketTooBig { mtu: packet.mtu(), original },
            Type::TIME_EXCEEDED => Repr::TimeExceeded { code, original },
            Type::PARAMETER_PROBLEM => Repr::ParameterProblem { code, pointer: packet.pointer(), original },
            _ => return Err(WireError::Malformed { header: NAME, field: "type" }),
        })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes: the whole message.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.data().len()
    }

    /// Writes the whole message with its checksum, which covers the `addresses` too, to the start
    /// of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`].
    pub fn emit(&self, addresses: IpAddresses, buffer: &mut [u8]) -> Result<(), WireError> {
        let (message_type, code, rest_of_header) = match *self {
            Repr::EchoRequest { ident, sequence_number, .. } => {
                (Type::ECHO_REQUEST, 0, echo_header(ident, sequence_number))
            }
            Repr::EchoReply { ident, sequence_number, .. } => {
                (Type::ECHO_REPLY, 0, echo_header(ident, sequence_number))
            }
            Repr::DestinationUnreachable { code, .. } => (Type::DESTINATION_UNREACHABLE, code, 0),
            Repr::PacketTooBig { mtu, .. } => (Type::PACKET_TOO_BIG, 0, mtu),
            Repr::TimeExceeded { code, .. } => (Type::TIME_EXCEEDED, code, 0),
            Repr::ParameterProblem { code, pointer, .. } => (Type::PARAMETER_PROBLEM, code, pointer),
        };
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_message_type(message_type);
        packet.set_code(code);
        packet.set_rest_of_header(rest_of_header);
        packet.payload_mut().copy_from_slice(self.data());
        packet.fill_checksum(addresses);
        Ok(())
    }

    const fn data(&self) -> &'a [u8] {
        match *self {
            Repr::EchoRequest { data, .. } | Repr::EchoReply { data, .. } => data,
            Repr::DestinationUnreachable { original, .. }
            | Repr::PacketTooBig { original, .. }
            | Repr::TimeExceeded { original, .. }
            | Repr::ParameterProblem { original, .. } => original,
        }
    }
}

const fn echo_header(ident: u16, sequence_number: u16) -> u32 {
    (ident as u32) << 16 | sequence_number as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    #[test]
    fn an_error_shows_the_original_packet() {
        let mut bytes = [1, 0, 0, 0, 0, 0, 0, 0, 0x60, 1, 2, 3, 4, 5, 6, 7, 9, 9];
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().original_packet(), Some(&bytes[8..]));
        bytes[4] = 1;
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().original_packet(), Some(&bytes[8..16]));
        bytes[0] = 2; // the byte belongs to the MTU
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().original_packet(), Some(&bytes[8..]));
        bytes[0] = 128;
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().original_packet(), None);
    }

    #[test]
    fn the_checksum_covers_the_addresses() {
        let addresses = IpAddresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
        let repr = Repr::EchoRequest { ident: 1, sequence_number: 2, data: b"abc" };
        let mut bytes = [0; 11];
        repr.emit(addresses, &mut bytes).unwrap();
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert!(packet.verify_checksum(addresses));
        let other = IpAddresses::V6 { source: Ipv6Addr::UNSPECIFIED, destination: Ipv6Addr::LOCALHOST };
        assert!(!packet.verify_checksum(other));
    }
}
