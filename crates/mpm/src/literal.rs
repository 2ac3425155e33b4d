//! The literals to search for.

use crate::windows::word_at;

/// Limit on the bytes of a literal.
pub const LITERAL_MAX: usize = 32;

/// A byte string to search for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// 1 to [`LITERAL_MAX`] bytes.
    pub bytes: Vec<u8>,
    /// If set, ASCII letters match in either case.
    pub nocase: bool,
}

impl Literal {
    /// Returns a literal that matches exactly.
    pub fn exact(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), nocase: false }
    }

    /// Returns a literal with ASCII letters that match in either case.
    pub fn nocase(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), nocase: true }
    }
}

/// A literal in the form for comparisons: text matches if it equals `bytes` under `mask`.
#[derive(Clone, Debug)]
pub(crate) struct Needle {
    bits: [u8; LITERAL_MAX],
    mask: [u8; LITERAL_MAX],
    length: u8,
}

/// Eight bytes of a [`Needle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    bits: u64,
    mask: u64,
}

impl Needle {
    /// Returns the needle of a literal; `None` if it is empty or too long.
    pub(crate) fn new(literal: &Literal) -> Option<Self> {
        let length = literal.bytes.len();
        if length == 0 || length > LITERAL_MAX {
            return None;
        }
        let mut needle = Self { bits: [0; LITERAL_MAX], mask: [0; LITERAL_MAX], length: length as u8 };
        for (at, &byte) in literal.bytes.iter().enumerate() {
            // The two cases of a letter differ in this bit, and only letters become letters by this
            // bit.
            let either = literal.nocase && byte.is_ascii_alphabetic();
            needle.mask[at] = if either { !0x20 } else { !0 };
            needle.bits[at] = byte & needle.mask[at];
        }
        Some(needle)
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Returns the bytes; bytes that match in either case are in upper case.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bits[..self.length()]
    }

    /// Returns eight bytes from `at`; beyond the end, anything matches.
    pub(crate) fn word(&self, at: usize) -> Word {
        Word { bits: word_at(&self.bits, at), mask: word_at(&self.mask, at) }
    }

    /// Checks if the text begins with the needle. Comparing all bytes is faster than counting.
    #[inline(always)]
    pub(crate) fn begins(&self, text: &[u8; LITERAL_MAX]) -> bool {
        let differ = |at: usize| text[at] & self.mask[at] ^ self.bits[at];
        (0..LITERAL_MAX).fold(0, |any, at| any | differ(at)) == 0
    }
}

impl Word {
    /// Checks if these eight bytes of text match.
    #[inline(always)]
    pub(crate) fn is(self, text: u64) -> bool {
        text & self.mask == self.bits
    }
}
