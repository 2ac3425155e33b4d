//! The Internet Control Message Protocol. RFC 792, RFC 1191 (next-hop MTU), RFC 4884 (length of the
//! original datagram).

use super::WireError;
use super::bytes::{need, room, view};
use super::numbers::numbers;
use crate::checksum;

const NAME: &str = "ICMPv4";

/// The length of the header in bytes; its second half depends on the type.
pub const HEADER_LEN: usize = 8;

numbers! {
    /// Type of an ICMP message.
    pub struct Type(u8);
    /// Echo reply.
    ECHO_REPLY = 0;
    /// The original datagram did not reach its destination.
    DESTINATION_UNREACHABLE = 3;
    /// Deprecated by RFC 6633.
    SOURCE_QUENCH = 4;
    /// There is a better first hop.
    REDIRECT = 5;
    /// Echo request.
    ECHO_REQUEST = 8;
    /// RFC 1256.
    ROUTER_ADVERTISEMENT = 9;
    /// RFC 1256.
    ROUTER_SOLICITATION = 10;
    /// The original datagram's time to live expired.
    TIME_EXCEEDED = 11;
    /// The original datagram's header is wrong.
    PARAMETER_PROBLEM = 12;
    /// Timestamp request.
    TIMESTAMP_REQUEST = 13;
    /// Reply to a timestamp request.
    TIMESTAMP_REPLY = 14;
}

impl Type {
    /// Checks if the message reports on an original datagram and carries its start. RFC 1122
    /// section 3.2.2.
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Type::DESTINATION_UNREACHABLE
                | Type::SOURCE_QUENCH
                | Type::REDIRECT
                | Type::TIME_EXCEEDED
                | Type::PARAMETER_PROBLEM
        )
    }

    /// Checks if the message has an identifier and a sequence number, and belongs to a query and
    /// its replies.
    #[inline]
    pub const fn is_query(self) -> bool {
        matches!(
            self,
            Type::ECHO_REQUEST | Type::ECHO_REPLY | Type::TIMESTAMP_REQUEST | Type::TIMESTAMP_REPLY
        )
    }
}

/// The code of "destination unreachable" that says the original datagram needs fragmentation that
/// it forbids.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;

view! {
    /// A view of an ICMP message.
    pub struct Packet;
    /// Message type.
    message_type, set_message_type: Type = 0..1;
    /// Code, which refines the type.
    code, set_code: u8 = 1..2;
    /// The checksum.
    checksum, set_checksum: u16 = 2..4;
    /// The second half of the header, whatever the type.
    rest_of_header, set_rest_of_header: u32 = 4..8;
    /// The identifier of a query.
    ident, set_ident: u16 = 4..6;
    /// The sequence number of a query.
    sequence_number, set_sequence_number: u16 = 6..8;
    /// The pointer of a parameter problem: the offset of the byte in question, in bytes.
    pointer, set_pointer: u8 = 4..5;
    /// The MTU of the hop that needs fragmentation, in bytes; 0 if the router does not say. RFC
    /// 1191.
    next_hop_mtu, set_next_hop_mtu: u16 = 6..8;
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

    /// Returns, of an error, the start of the datagram that it reports on, without any extensions
    /// after it. Usually cut off: read it with [`super::ipv4::Packet::new_checked_header`].
    #[inline]
    pub fn original_datagram(&self) -> Option<&[u8]> {
        let payload = self.message_type().is_error().then(|| self.payload())?;
        let has_length = matches!(
            self.message_type(),
            Type::DESTINATION_UNREACHABLE | Type::TIME_EXCEEDED | Type::PARAMETER_PROBLEM
        );
        // RFC 4884 section 4: in 32-bit words; zero if there is nothing but the datagram.
        match usize::from(self.bytes()[5]) * 4 {
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
    pub fn verify_checksum(&self) -> bool {
        checksum::verify(checksum::sum(self.bytes()))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes and writes the checksum of a whole message.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = checksum::checksum(self.bytes());
        self.set_checksum(checksum);
    }
}

/// An ICMP echo or error message.
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
    /// The original datagram did not reach its destination.
    DestinationUnreachable {
        /// Code, the reason.
        code: u8,
        /// The MTU, in bytes, for [`CODE_FRAGMENTATION_NEEDED`]; otherwise 0.
        next_hop_mtu: u16,
        /// The start of the datagram.
        original: &'a [u8],
    },
    /// The original datagram's time to live expired (code 0), or its reassembly timed out (1).
    TimeExceeded {
        /// Code, which of both.
        code: u8,
        /// The start of the datagram.
        original: &'a [u8],
    },
    /// The original datagram's header is wrong.
    ParameterProblem {
        /// Code, the kind of fault.
        code: u8,
        /// Offset of the fault, in bytes.
        pointer: u8,
        /// The start of the datagram.
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
        let original = packet.original_datagram().unwrap_or(&[]);
        Ok(match packet.message_type() {
            Type::ECHO_REQUEST => Repr::EchoRequest { ident, sequence_number, data },
            Type::ECHO_REPLY => Repr::EchoReply { ident, sequence_number, data },
            Type::DESTINATION_UNREACHABLE => {
                Repr::DestinationUnreachable { code, next_hop_mtu: packet.next_hop_mtu(), original }
            }
            Type::TIME_EXCEEDED => Repr::TimeExceeded { code, original },
            Type::PARAMETER_PROBLEM => Repr::ParameterProblem { code, pointer: packet.pointer(), original },
            _ => return Err(WireError::Malformed { header: NAME, field: "type" }),
        })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes: the whole message.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.data().len()
    }

    /// Writes the whole message with its checksum to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let (message_type, code, rest_of_header) = match *self {
            Repr::EchoRequest { ident, sequence_number, .. } => {
                (Type::ECHO_REQUEST, 0, echo_header(ident, sequence_number))
            }
            Repr::EchoReply { ident, sequence_number, .. } => {
                (Type::ECHO_REPLY, 0, echo_header(ident, sequence_number))
            }
            Repr::DestinationUnreachable { code, next_hop_mtu, .. } => {
                (Type::DESTINATION_UNREACHABLE, code, u32::from(next_hop_mtu))
            }
            Repr::TimeExceeded { code, .. } => (Type::TIME_EXCEEDED, code, 0),
            Repr::ParameterProblem { code, pointer, .. } => {
                (Type::PARAMETER_PROBLEM, code, u32::from(pointer) << 24)
            }
        };
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_message_type(message_type);
        packet.set_code(code);
        packet.set_rest_of_header(rest_of_header);
        packet.payload_mut().copy_from_slice(self.data());
        packet.fill_checksum();
        Ok(())
    }

    const fn data(&self) -> &'a [u8] {
        match *self {
            Repr::EchoRequest { data, .. } | Repr::EchoReply { data, .. } => data,
            Repr::DestinationUnreachable { original, .. }
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

    #[test]
    fn an_error_shows_the_original_datagram() {
        let mut bytes = [3, 4, 0, 0, 0, 0, 5, 0, 0x45, 1, 2, 3, 9, 9];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.next_hop_mtu(), packet.original_datagram()), (1280, Some(&bytes[8..])));
        bytes[5] = 1;
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!(packet.original_datagram(), Some(&bytes[8..12]));
        bytes[5] = 255;
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!(packet.original_datagram(), Some(&bytes[8..]));
        bytes[0] = 8;
        assert_eq!(Packet::new_checked(&bytes[..]).unwrap().original_datagram(), None);
    }
}
