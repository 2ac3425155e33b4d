//! The Transmission Control Protocol. RFC 9293; for its options see [`super::tcp_option`].

use super::bytes::{need, require, room, view, with_bits};
use super::tcp_option::{Options, TcpOption};
use super::{IpAddresses, IpProtocol, WireError};
use crate::checksum;
use core::fmt;
use core::ops::{BitOr, Range};

const NAME: &str = "TCP";

/// The header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// The longest header, in bytes.
pub const HEADER_LEN_MAX: usize = 60;
/// The option that announces a maximum segment size, in bytes.
const MSS_OPTION_LEN: usize = 4;

/// The control bits of a segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(
    /// The bits as in the header's fourth 16-bit word from byte 12; nine are in use.
    pub u16,
);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x002);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x004);
    /// Push.
    pub const PSH: Flags = Flags(0x008);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(0x010);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(0x020);
    /// Explicit congestion notification echo. RFC 3168.
    pub const ECE: Flags = Flags(0x040);
    /// Congestion window reduced. RFC 3168.
    pub const CWR: Flags = Flags(0x080);
    /// Accurate ECN (formerly NS). RFC 9768.
    pub const AE: Flags = Flags(0x100);

    /// All bits in use.
    const MASK: u16 = 0x1ff;
    const NAMES: [(Flags, &'static str); 9] = [
        (Flags::FIN, "FIN"),
        (Flags::SYN, "SYN"),
        (Flags::RST, "RST"),
        (Flags::PSH, "PSH"),
        (Flags::ACK, "ACK"),
        (Flags::URG, "URG"),
        (Flags::ECE, "ECE"),
        (Flags::CWR, "CWR"),
        (Flags::AE, "AE"),
    ];

    /// Checks if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Checks if any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flags(")?;
        let mut separator = "";
        for (_, name) in Flags::NAMES.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        f.write_str(")")
    }
}

view! {
    /// A view of a TCP segment.
    pub struct Packet;
    /// The port it was sent from.
    source_port, set_source_port: u16 = 0..2;
    /// The port it is sent to.
    destination_port, set_destination_port: u16 = 2..4;
    /// The number of the first byte of the payload, or of SYN.
    sequence_number, set_sequence_number: u32 = 4..8;
    /// The number of the next byte that the sender expects; without meaning unless ACK is set.
    acknowledgment_number, set_acknowledgment_number: u32 = 8..12;
    /// The receive window, before scaling.
    window, set_window: u16 = 14..16;
    /// The checksum.
    checksum, set_checksum: u16 = 16..18;
    /// End of the urgent data, relative to the sequence number; undefined unless URG is set.
    urgent_pointer, set_urgent_pointer: u16 = 18..20;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the whole header is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a data offset that leaves no room for
    /// the fixed fields.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(self.header_len() >= HEADER_LEN, NAME, "data offset")?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the header's length in bytes, options included (the data offset field times four).
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[12] >> 4) * 4
    }

    /// Returns the control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        let bytes = self.bytes();
        Flags(u16::from_be_bytes([bytes[12], bytes[13]]) & Flags::MASK)
    }

    /// Returns the options, in order.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(&self.bytes()[HEADER_LEN..self.header_len()])
    }

    /// Returns the number of sequence numbers the segment takes: one per payload byte, one for SYN,
    /// one for FIN. RFC 9293 section 3.4.
    #[inline]
    pub fn segment_len(&self) -> usize {
        let flags = self.flags();
        self.payload_range().len()
            + usize::from(flags.contains(Flags::SYN))
            + usize::from(flags.contains(Flags::FIN))
    }

    /// Returns the range of the payload in the buffer, which must end where the IP packet does.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }

    /// Checks if the checksum of a whole segment is right.
    #[inline]
    pub fn verify_checksum(&self, addresses: IpAddresses) -> bool {
        checksum::verify(self.partial_sum(addresses))
    }

    fn partial_sum(&self, addresses: IpAddresses) -> u32 {
        addresses.pseudo_header(IpProtocol::TCP, self.bytes().len()) + checksum::sum(self.bytes())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the header's length, a multiple of four bytes from 20 to 60.
    #[inline]
    pub fn set_header_len(&mut self, len_bytes: usize) {
        let byte = &mut self.bytes_mut()[12];
        *byte = with_bits(*byte, 0xf0, ((len_bytes / 4) as u8) << 4);
    }

    /// Writes [`Self::flags`].
    #[inline]
    pub fn set_flags(&mut self, value: Flags) {
        let [high, low] = value.0.to_be_bytes();
        let bytes = self.bytes_mut();
        bytes[12] = with_bits(bytes[12], 1, high);
        bytes[13] = low;
    }

    /// Returns the bytes of the options, to be written to.
    #[inline]
    pub fn options_mut(&mut self) -> &mut [u8] {
        let end = self.header_len();
        &mut self.bytes_mut()[HEADER_LEN..end]
    }

    /// Computes and writes the checksum of a whole segment.
    #[inline]
    pub fn fill_checksum(&mut self, addresses: IpAddresses) {
        self.set_checksum(0);
        let checksum = checksum::finish(self.partial_sum(addresses));
        self.set_checksum(checksum);
    }
}

/// A TCP header with no option but a maximum segment size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The port it is sent from.
    pub source_port: u16,
    /// The port it is sent to.
    pub destination_port: u16,
    /// The number of the first byte of the payload, or of SYN.
    pub sequence_number: u32,
    /// The number of the next byte that the sender expects; without meaning unless ACK is set.
    pub acknowledgment_number: u32,
    /// The control bits.
    pub flags: Flags,
    /// The receive window, before scaling.
    pub window: u16,
    /// End of the urgent data; undefined unless URG is set.
    pub urgent_pointer: u16,
    /// The maximum segment size in bytes, if announced.
    pub max_segment_size: Option<u16>,
}

impl Repr {
    /// Parses a checked segment; options other than the maximum segment size are left out,
    /// and so is one after a malformed option.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Repr {
        let max_segment_size = packet.options().find_map(|option| match option {
            Ok(TcpOption::MaximumSegmentSize(bytes)) => Some(bytes),
            _ => None,
        });
        Repr {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            sequence_number: packet.sequence_number(),
            acknowledgment_number: packet.acknowledgment_number(),
            flags: packet.flags(),
            window: packet.window(),
            urgent_pointer: packet.urgent_pointer(),
            max_segment_size,
        }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        match self.max_segment_size {
            Some(_) => HEADER_LEN + MSS_OPTION_LEN,
            None => HEADER_LEN,
        }
    }

    /// Writes the header, without a checksum, to the start of `buffer`; [`Packet::fill_checksum`]
    /// adds one once the payload is there.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for flags that are none.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        super::bytes::fits(self.flags.0 <= Flags::MASK, NAME, "flags")?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_source_port(self.source_port);
        packet.set_destination_port(self.destination_port);
        packet.set_sequence_number(self.sequence_number);
        packet.set_acknowledgment_number(self.acknowledgment_number);
        packet.set_header_len(self.buffer_len());
        packet.set_flags(self.flags);
        packet.set_window(self.window);
        packet.set_urgent_pointer(self.urgent_pointer);
        if let Some(max_segment_size) = self.max_segment_size {
            let [high, low] = max_segment_size.to_be_bytes();
            packet.options_mut().copy_from_slice(&[2, MSS_OPTION_LEN as u8, high, low]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_offset_and_flags_share_a_byte() {
        let mut packet = Packet::new_unchecked([0; 24]);
        packet.set_header_len(24);
        packet.set_flags(Flags::AE | Flags::SYN | Flags::CWR);
        assert_eq!((packet.header_len(), packet.flags().0), (24, 0x182));
        assert_eq!(format!("{:?}", packet.flags()), "Flags(SYN|CWR|AE)");
        packet.set_flags(Flags::FIN);
        assert_eq!((packet.header_len(), packet.flags(), packet.segment_len()), (24, Flags::FIN, 1));
    }

    #[test]
    fn a_short_data_offset_is_malformed() {
        let mut bytes = [0; 24];
        bytes[12] = 0x40;
        assert_eq!(
            Packet::new_checked(&bytes[..]).unwrap_err(),
            WireError::Malformed { header: NAME, field: "data offset" }
        );
        bytes[12] = 0x70;
        assert!(matches!(Packet::new_checked(&bytes[..]), Err(WireError::Truncated { .. })));
    }
}
