//! Virtual eXtensible LAN: Ethernet frames in UDP. RFC 7348.

use super::WireError;
use super::bytes::{fits, need, read_u24, room, view, write_u24};

const NAME: &str = "VXLAN";

/// The header, in bytes.
pub const HEADER_LEN: usize = 8;
/// The UDP port that VXLAN is sent to.
pub const PORT: u16 = 4789;

/// The flag that says the network identifier is valid.
const VNI_VALID: u8 = 0x08;

view! {
    /// A view of a VXLAN packet, which carries an Ethernet frame.
    pub struct Packet;
    /// Flags; all bits but one are reserved.
    flags, set_flags: u8 = 0..1;
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

    /// Returns the VXLAN network identifier, 24 bits; none if the flags say that it is not valid.
    #[inline]
    pub fn vni(&self) -> Option<u32> {
        (self.flags() & VNI_VALID != 0).then(|| read_u24(&self.bytes()[4..7]))
    }

    /// Returns where the frame lies in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..self.bytes().len()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes [`Self::vni`], its low 24 bits, and the flag that makes it valid.
    #[inline]
    pub fn set_vni(&mut self, value: u32) {
        self.set_flags(self.flags() | VNI_VALID);
        write_u24(value, &mut self.bytes_mut()[4..7]);
    }
}

/// A VXLAN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The VXLAN network identifier, 24 bits.
    pub vni: u32,
}

impl Repr {
    /// Parses a checked packet.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] without a valid network identifier.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Repr, WireError> {
        let vni = packet.vni().ok_or(WireError::Malformed { header: NAME, field: "I flag" })?;
        Ok(Repr { vni })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for an identifier of more than 24
    /// bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.vni < 1 << 24, NAME, "VNI")?;
        Packet::new_unchecked(room(NAME, buffer, HEADER_LEN)?).set_vni(self.vni);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header() {
        let mut bytes = [0xff; 9];
        Repr { vni: 0x123456 }.emit(&mut bytes).unwrap();
        assert_eq!(bytes, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xff]);
        bytes[0] = 0xf7;
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((packet.vni(), packet.payload()), (None, &[0xff][..]));
        assert!(Repr::parse(&packet).is_err());
        assert!(Repr { vni: 1 << 24 }.emit(&mut bytes).is_err());
    }
}
