//! MPLS label stacks. RFC 3032, RFC 5462.

use super::WireError;
use super::bytes::{need, view};

const NAME: &str = "MPLS label stack entry";

/// One entry of a label stack, in bytes.
pub const ENTRY_LEN: usize = 4;
/// Limit on the entries that [`Stack`] walks.
pub const ENTRIES_MAX: usize = 16;

view! {
    /// A view of the first entry of a label stack.
    pub struct Entry;
    /// Label, traffic class and end of the stack in one number, with the time to live.
    word, set_word: u32 = 0..4;
    /// Time to live, in hops.
    ttl, set_ttl: u8 = 3..4;
}

impl<T: AsRef<[u8]>> Entry<T> {
    /// Checks that the entry is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        need(NAME, self.bytes(), ENTRY_LEN)
    }

    /// Returns the entry's length in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        ENTRY_LEN
    }

    /// Returns the label, 20 bits.
    #[inline]
    pub fn label(&self) -> u32 {
        self.word() >> 12
    }

    /// Returns the traffic class, 0 to 7.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.word() >> 9) as u8 & 7
    }

    /// Checks if it is the last entry of the stack.
    #[inline]
    pub fn is_bottom(&self) -> bool {
        self.word() & 0x100 != 0
    }

    /// Returns the range of the payload in the buffer.
    #[inline]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        ENTRY_LEN..self.bytes().len()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Entry<T> {
    /// Writes [`Self::label`], its low 20 bits.
    #[inline]
    pub fn set_label(&mut self, value: u32) {
        self.set_word(self.word() & 0xfff | value << 12);
    }

    /// Writes [`Self::traffic_class`], its low 3 bits.
    #[inline]
    pub fn set_traffic_class(&mut self, value: u8) {
        self.set_word(self.word() & !0xe00 | u32::from(value & 7) << 9);
    }

    /// Writes [`Self::is_bottom`].
    #[inline]
    pub fn set_bottom(&mut self, value: bool) {
        self.set_word(self.word() & !0x100 | u32::from(value) << 8);
    }
}

/// Walks a label stack, top first. When it is through, [`Stack::payload`] is what the last label's
/// owner knows the kind of.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    payload: &'a [u8],
    seen: usize,
    is_done: bool,
}

impl<'a> Stack<'a> {
    /// Returns the stack at the start of `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        Stack { payload, seen: 0, is_done: false }
    }

    /// Returns the bytes after the last entry seen. The stack does not give their protocol; a first
    /// nibble of 4 or 6 is most likely IP.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn step(&mut self) -> Result<Entry<&'a [u8]>, WireError> {
        if self.seen == ENTRIES_MAX {
            return Err(WireError::TooMany { header: NAME, limit: ENTRIES_MAX });
        }
        let entry = Entry::new_checked(self.payload)?;
        self.payload = &self.payload[ENTRY_LEN..];
        self.seen += 1;
        Ok(entry)
    }
}

impl<'a> Iterator for Stack<'a> {
    /// An error is the last item.
    type Item = Result<Entry<&'a [u8]>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let step = self.step();
        self.is_done = step.as_ref().map_or(true, |entry| entry.is_bottom());
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_to_the_bottom() {
        let mut bytes = [0; 9];
        let mut entry = Entry::new_checked(&mut bytes[..]).unwrap();
        entry.set_label(0xabcde);
        entry.set_traffic_class(5);
        entry.set_ttl(64);
        let mut entry = Entry::new_checked(&mut bytes[4..]).unwrap();
        entry.set_label(16);
        entry.set_bottom(true);
        bytes[8] = 0x45;
        let mut stack = Stack::new(&bytes);
        let top = stack.next().unwrap().unwrap();
        assert_eq!((top.label(), top.traffic_class(), top.ttl()), (0xabcde, 5, 64));
        assert_eq!(stack.next().unwrap().unwrap().label(), 16);
        assert!(stack.next().is_none());
        assert_eq!(stack.payload(), [0x45]);
    }

    #[test]
    fn is_bounded() {
        let mut stack = Stack::new(&[0; (ENTRIES_MAX + 1) * ENTRY_LEN]);
        assert!(stack.by_ref().take(ENTRIES_MAX).all(|entry| entry.is_ok()));
        assert!(stack.next().unwrap().is_err());
        assert!(stack.next().is_none());
    }
}
