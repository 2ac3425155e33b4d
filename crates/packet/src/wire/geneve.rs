//! Generic Network Virtualization Encapsulation. RFC 8926.

use super::bytes::{fits, need, read_u24, require, room, view, with_bits, write_u24};
use super::{EtherType, WireError};
use core::ops::Range;

const NAME: &str = "Geneve";

/// The header without options, in bytes.
pub const HEADER_LEN: usize = 8;
/// The most bytes that the options of a header take, a multiple of four.
pub const OPTIONS_LEN_MAX: usize = 63 * 4;
/// The most bytes that one option's data takes, a multiple of four.
pub const OPTION_DATA_LEN_MAX: usize = 31 * 4;
/// The UDP port that Geneve is sent to.
pub const PORT: u16 = 6081;

/// Class, type and length of an option, in bytes.
const OPTION_HEADER_LEN: usize = 4;
/// The bit of an option's type that forbids to ignore it.
const CRITICAL: u8 = 0x80;

view! {
    /// A view of a Geneve packet.
    pub struct Packet;
    /// Protocol of the payload.
    protocol, set_protocol: EtherType = 2..4;
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the version and that the header and all of its options are there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a version other than 0.
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        require(self.version() == 0, NAME, "version")?;
        need(NAME, self.bytes(), self.header_len())
    }

    /// Returns the version; 0 in a checked packet.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[0] >> 6
    }

    /// Returns the header's length in bytes, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + usize::from(self.bytes()[0] & 0x3f) * 4
    }

    /// Checks if it is a control packet of the tunnel's endpoints (the O bit).
    #[inline]
    pub fn is_control(&self) -> bool {
        self.bytes()[1] & 0x80 != 0
    }

    /// Checks if an option is critical, so that who does not know it must drop the packet (the C
    /// bit).
    #[inline]
    pub fn has_critical_options(&self) -> bool {
        self.bytes()[1] & 0x40 != 0
    }

    /// Returns the virtual network identifier, 24 bits.
    #[inline]
    pub fn vni(&self) -> u32 {
        read_u24(&self.bytes()[4..7])
    }

    /// Returns the options, in order.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(self.options_bytes())
    }

    /// Returns the options, as bytes.
    #[inline]
    pub fn options_bytes(&self) -> &[u8] {
        &self.bytes()[HEADER_LEN..self.header_len()]
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.header_len()..self.bytes().len()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes version 0 and the header's length, a multiple of four bytes from 8 to 260.
    #[inline]
    pub fn set_header_len(&mut self, len_bytes: usize) {
        self.bytes_mut()[0] = (len_bytes.saturating_sub(HEADER_LEN) / 4) as u8 & 0x3f;
    }

    /// Writes [`Self::is_control`].
    #[inline]
    pub fn set_control(&mut self, value: bool) {
        let byte = &mut self.bytes_mut()[1];
        *byte = with_bits(*byte, 0x80, u8::from(value) << 7);
    }

    /// Writes [`Self::has_critical_options`].
    #[inline]
    pub fn set_critical_options(&mut self, value: bool) {
        let byte = &mut self.bytes_mut()[1];
        *byte = with_bits(*byte, 0x40, u8::from(value) << 6);
    }

    /// Writes [`Self::vni`], its low 24 bits.
    #[inline]
    pub fn set_vni(&mut self, value: u32) {
        write_u24(value, &mut self.bytes_mut()[4..7]);
    }

    /// Returns the bytes of the options, to be written to.
    #[inline]
    pub fn options_mut(&mut self) -> &mut [u8] {
        let end = self.header_len();
        &mut self.bytes_mut()[HEADER_LEN..end]
    }
}

/// An option of a Geneve header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneveOption<'a> {
    /// Namespace of the type. RFC 8926 section 7.
    pub class: u16,
    /// Type of the option; the highest bit marks it as critical.
    pub kind: u8,
    /// A multiple of four bytes, up to [`OPTION_DATA_LEN_MAX`].
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// Checks if receivers that do not know the option must drop the packet.
    pub const fn is_critical(&self) -> bool {
        self.kind & CRITICAL != 0
    }

    /// Returns the number of bytes that [`GeneveOption::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        OPTION_HEADER_LEN + self.data.len()
    }

    /// Writes the option to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for data of another length than an
    /// option can have.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let has_valid_len = self.data.len().is_multiple_of(4) && self.data.len() <= OPTION_DATA_LEN_MAX;
        fits(has_valid_len, NAME, "option length")?;
        let bytes = room(NAME, buffer, self.buffer_len())?;
        bytes[..2].copy_from_slice(&self.class.to_be_bytes());
        bytes[2] = self.kind;
        bytes[3] = (self.data.len() / 4) as u8;
        bytes[OPTION_HEADER_LEN..].copy_from_slice(self.data);
        Ok(())
    }
}

/// Walks the options of a header.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// Returns the options in `bytes`, those between the fixed fields and the payload.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Options { rest: bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    /// An error, for a length beyond the header, is the last item.
    type Item = Result<GeneveOption<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        match *rest {
            [] => None,
            [high, low, kind, len, ref after @ ..] if usize::from(len & 0x1f) * 4 <= after.len() => {
                let (data, after) = after.split_at(usize::from(len & 0x1f) * 4);
                self.rest = after;
                Some(Ok(GeneveOption { class: u16::from_be_bytes([high, low]), kind, data }))
            }
            _ => Some(Err(WireError::Malformed { header: NAME, field: "option length" })),
        }
    }
}

/// A Geneve header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr<'a> {
    /// Set if it is a control packet of the tunnel's endpoints.
    pub is_control: bool,
    /// Protocol of the payload.
    pub protocol: EtherType,
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
    /// The options as [`GeneveOption::emit`] writes them one after the other, up to
    /// [`OPTIONS_LEN_MAX`].
    pub options: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Parses a checked packet.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] for options that end beyond the header, or a C bit that contradicts
    /// them.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Repr<'a>, WireError> {
        let options = packet.options_bytes();
        require(any_critical(options)? == packet.has_critical_options(), NAME, "C bit")?;
        Ok(Repr { is_control: packet.is_control(), protocol: packet.protocol(), vni: packet.vni(), options })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header with its options to the start of `buffer`; the C bit is made from the
    /// options.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Malformed`] for options that are none;
    /// [`WireError::Unrepresentable`] for too many of them or an identifier of more than 24 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.vni < 1 << 24, NAME, "VNI")?;
        fits(self.options.len() <= OPTIONS_LEN_MAX, NAME, "option length")?;
        let has_critical_options = any_critical(self.options)?;
        let mut packet = Packet::new_unchecked(room(NAME, buffer, self.buffer_len())?);
        packet.set_header_len(self.buffer_len());
        packet.set_control(self.is_control);
        packet.set_critical_options(has_critical_options);
        packet.set_protocol(self.protocol);
        packet.set_vni(self.vni);
        packet.options_mut().copy_from_slice(self.options);
        Ok(())
    }
}

/// Checks if one of the options is critical.
fn any_critical(options: &[u8]) -> Result<bool, WireError> {
    Options::new(options).try_fold(false, |critical, option| Ok(critical | option?.is_critical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        let first = GeneveOption { class: 0x0102, kind: 3, data: &[] };
        let second = GeneveOption { class: 0xffff, kind: 0x84, data: &[1, 2, 3, 4, 5, 6, 7, 8] };
        let mut options = [0; 16];
        first.emit(&mut options).unwrap();
        second.emit(&mut options[first.buffer_len()..]).unwrap();
        let repr =
            Repr { is_control: false, protocol: EtherType::ETHERNET, vni: 0xabcdef, options: &options };
        let mut bytes = [0xff; 25];
        repr.emit(&mut bytes).unwrap();
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert!(packet.has_critical_options());
        assert_eq!(Repr::parse(&packet), Ok(repr));
        assert_eq!(packet.options().collect::<Result<Vec<_>, _>>(), Ok(vec![first, second]));
        assert_eq!(packet.payload(), [0xff]);
    }

    #[test]
    fn options_end_with_the_header() {
        let bytes = [1, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9];
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert!(packet.options().next().unwrap().is_err());
        assert!(Repr::parse(&packet).is_err());
        assert!(GeneveOption { class: 0, kind: 0, data: &[1] }.emit(&mut [0; 8]).is_err());
    }
}
