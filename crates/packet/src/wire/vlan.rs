//! VLAN tags: IEEE 802.1Q, and 802.1ad ("QinQ") stacks of them.

use super::bytes::{fits, need, room, view};
use super::{EtherType, WireError};

const NAME: &str = "VLAN tag";

/// Tag control information and the EtherType of what follows, in bytes.
pub const HEADER_LEN: usize = 4;
/// The most tags that [`Tags`] looks through.
pub const TAGS_MAX: usize = 8;

view! {
    /// A view of the bytes after an EtherType that satisfies [`EtherType::is_vlan`].
    pub struct Tag;
    /// Priority, drop eligibility and VLAN identifier in one number.
    tci, set_tci: u16 = 0..2;
    /// Protocol after the tag.
    ethertype, set_ethertype: EtherType = 2..4;
}

impl<T: AsRef<[u8]>> Tag<T> {
    /// Checks that the tag is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), HEADER_LEN)
    }

    /// Returns the tag's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    pub fn pcp(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    #[inline]
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// Returns the VLAN identifier, 0 to 4095; 0 tags the priority only.
    #[inline]
    pub fn vid(&self) -> u16 {
        self.tci() & 0xfff
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        HEADER_LEN..self.bytes().len()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tag<T> {
    /// Writes [`Self::pcp`], its low 3 bits.
    #[inline]
    pub fn set_pcp(&mut self, value: u8) {
        self.set_tci(self.tci() & 0x1fff | u16::from(value) << 13);
    }

    /// Writes [`Self::dei`].
    #[inline]
    pub fn set_dei(&mut self, value: bool) {
        self.set_tci(self.tci() & 0xefff | u16::from(value) << 12);
    }

    /// Writes [`Self::vid`], its low 12 bits.
    #[inline]
    pub fn set_vid(&mut self, value: u16) {
        self.set_tci(self.tci() & 0xf000 | value & 0xfff);
    }
}

/// Walks a stack of tags, outermost first. When it is through, [`Tags::ethertype`] and
/// [`Tags::payload`] are those after the last tag; there are none without tags too.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    ethertype: EtherType,
    payload: &'a [u8],
    seen: usize,
    has_failed: bool,
}

impl<'a> Tags<'a> {
    /// Returns the tags at the start of `payload`, which `ethertype` announces.
    pub const fn new(ethertype: EtherType, payload: &'a [u8]) -> Self {
        Tags { ethertype, payload, seen: 0, has_failed: false }
    }

    /// Returns the payload's protocol, from the last tag seen.
    pub const fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// Returns the bytes after the last tag seen.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn step(&mut self) -> Result<(EtherType, Tag<&'a [u8]>), WireError> {
        if self.seen == TAGS_MAX {
            return Err(WireError::TooMany { header: NAME, limit: TAGS_MAX });
        }
        let tag = Tag::new_checked(self.payload)?;
        let announced_by = core::mem::replace(&mut self.ethertype, tag.ethertype());
        self.payload = &self.payload[HEADER_LEN..];
        self.seen += 1;
        Ok((announced_by, tag))
    }
}

impl<'a> Iterator for Tags<'a> {
    /// The EtherType that announced the tag, and the tag. An error is the last item.
    type Item = Result<(EtherType, Tag<&'a [u8]>), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || !self.ethertype.is_vlan() {
            return None;
        }
        let step = self.step();
        self.has_failed = step.is_err();
        Some(step)
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0 to 4095.
    pub vid: u16,
    /// Protocol after the tag.
    pub ethertype: EtherType,
}

impl Repr {
    /// Parses a checked tag.
    pub fn parse<T: AsRef<[u8]>>(tag: &Tag<T>) -> Repr {
        Repr { pcp: tag.pcp(), dei: tag.dei(), vid: tag.vid(), ethertype: tag.ethertype() }
    }

    /// Returns the number of bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the tag to the start of `buffer`.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for a priority or identifier with too
    /// many bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        fits(self.pcp < 8, NAME, "PCP")?;
        fits(self.vid < 0x1000, NAME, "VID")?;
        let mut tag = Tag::new_unchecked(room(NAME, buffer, HEADER_LEN)?);
        tag.set_pcp(self.pcp);
        tag.set_dei(self.dei);
        tag.set_vid(self.vid);
        tag.set_ethertype(self.ethertype);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_a_stack() {
        let bytes = [0xb0, 0x64, 0x81, 0x00, 0x00, 0x07, 0x08, 0x00, 0x45];
        let mut tags = Tags::new(EtherType::QINQ, &bytes);
        let (outer, tag) = tags.next().unwrap().unwrap();
        assert_eq!((outer, tag.pcp(), tag.dei(), tag.vid()), (EtherType::QINQ, 5, true, 100));
        let (inner, tag) = tags.next().unwrap().unwrap();
        assert_eq!((inner, tag.pcp(), tag.dei(), tag.vid()), (EtherType::VLAN, 0, false, 7));
        assert!(tags.next().is_none());
        assert_eq!((tags.ethertype(), tags.payload()), (EtherType::IPV4, &[0x45][..]));
    }

    #[test]
    fn a_stack_is_bounded() {
        let bytes = [0, 1, 0x81, 0].repeat(TAGS_MAX + 1);
        let mut tags = Tags::new(EtherType::VLAN, &bytes);
        assert_eq!(tags.by_ref().take(TAGS_MAX).filter(|tag| tag.is_ok()).count(), TAGS_MAX);
        let too_many = WireError::TooMany { header: NAME, limit: TAGS_MAX };
        assert_eq!(tags.next().unwrap().unwrap_err(), too_many);
        assert!(tags.next().is_none());
    }
}
