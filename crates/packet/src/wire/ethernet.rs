//! Ethernet: II frames (RFC 894) and 802.3 frames, with a payload that starts with an LLC header
//! (IEEE 802.3 clause 3).

use super::bytes::{need, room, view};
use super::{EtherType, MacAddress, WireError};

const NAME: &str = "Ethernet";

/// Both addresses and the EtherType or length, in bytes.
pub const HEADER_LEN: usize = 14;

view! {
    /// A view of an Ethernet frame without preamble and frame check sequence.
    pub struct Frame;
    /// Destination address.
    destination, set_destination: MacAddress = 0..6;
    /// Source address.
    source, set_source: MacAddress = 6..12;
    /// Protocol of the payload or, if [`EtherType::is_length`], its length in bytes, with an LLC
    /// header first.
    ethertype_or_length, set_ethertype_or_length: EtherType = 12..14;
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Checks that the header is complete, and an 802.3 frame's payload by its length field.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)?;
        if self.is_802_3() {
            need(NAME, self.bytes(), self.payload_range().end)?;
        }
        Ok(())
    }

    /// Returns the header's length in bytes; an LLC header counts as payload.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Checks if it is an 802.3 frame: the payload is an [`super::llc::Packet`], and padding after
    /// it is cut off.
    #[inline]
    pub fn is_802_3(&self) -> bool {
        self.ethertype_or_length().is_length()
    }

    /// Returns the payload's protocol in an Ethernet II frame; `None` for an 802.3 frame.
    #[inline]
    pub fn ethertype(&self) -> Option<EtherType> {
        Some(self.ethertype_or_length()).filter(|ethertype| !ethertype.is_length())
    }

    /// Returns the range of the payload in the buffer. An Ethernet II frame's includes any padding.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        match self.ethertype_or_length() {
            length if length.is_length() => HEADER_LEN..HEADER_LEN + usize::from(length.0),
            _ => HEADER_LEN..self.bytes().len(),
        }
    }
}

/// The header of an Ethernet II frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Protocol of the payload.
    pub ethertype: EtherType,
}

impl Repr {
    /// Parses the header of a checked frame.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] for an 802.3 frame.
    pub fn parse<T: AsRef<[u8]>>(frame: &Frame<T>) -> Result<Repr, WireError> {
        let ethertype = frame.ethertype().ok_or(WireError::Malformed { header: NAME, field: "EtherType" })?;
        Ok(Repr { destination: frame.destination(), source: frame.source(), ethertype })
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for an EtherType that would read as a
    /// length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        super::bytes::fits(!self.ethertype.is_length(), NAME, "EtherType")?;
        let mut frame = Frame::new_unchecked(room(NAME, buffer, HEADER_LEN)?);
        frame.set_destination(self.destination);
        frame.set_source(self.source);
        frame.set_ethertype_or_length(self.ethertype);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_ii() {
        let bytes = [2, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x08, 0x00, 0x45];
        let frame = Frame::new_checked(&bytes[..]).unwrap();
        assert_eq!(frame.destination().to_string(), "02:00:00:00:00:01");
        assert!(frame.source().is_broadcast());
        assert_eq!(frame.ethertype(), Some(EtherType::IPV4));
        assert_eq!(frame.payload(), [0x45]);
    }

    #[test]
    fn an_802_3_frame_ends_where_its_length_says() {
        let mut bytes = [0; 20];
        bytes[13] = 3;
        let frame = Frame::new_checked(&bytes[..]).unwrap();
        assert_eq!((frame.ethertype(), frame.payload().len()), (None, 3));
        bytes[13] = 7;
        let error = Frame::new_checked(&bytes[..]).unwrap_err();
        assert_eq!(error, WireError::Truncated { header: NAME, needed_bytes: 21, available_bytes: 20 });
    }
}
