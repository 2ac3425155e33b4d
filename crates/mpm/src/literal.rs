//! What is searched for.

use crate::windows::word_at;

/// The most bytes a literal can have.
pub const LITERAL_MAX: usize = 32;

/// A string of bytes to be searched for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// The bytes: 1 to [`LITERAL_MAX`].
    pub bytes: Vec<u8>,
    /// Whether the letters A to Z stand for a to z as well, and the other way round.
    pub nocase: bool,
}

impl Literal {
    /// Bytes that are found as they are written.
    pub fn exact(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), nocase: false }
    }

    /// Bytes whose ASCII letters are found in either case.
    pub fn nocase(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), nocase: true }
    }
}

/// A literal as it is compared: a text is the literal if its bits under the mask are these.
#[derive(Clone, Debug)]
pub(crate) struct Needle {
    bits: [u8; LITERAL_MAX],
    mask: [u8; LITERAL_MAX],
    length: u8,
}

/// What [`Needle`] has in eight of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    bits: u64,
    mask: u64,
}

impl Needle {
    /// The needle of these bytes, if they are neither none nor too many.
    pub(crate) fn new(literal: &Literal) -> Option<Self> {
        let length = literal.bytes.len();
        if length == 0 || length > LITERAL_MAX {
            return None;
        }
        let mut needle = Self { bits: [0; LITERAL_MAX], mask: [0; LITERAL_MAX], length: length as u8 };
        for (at, &byte) in literal.bytes.iter().enumerate() {
            // The two cases of a letter differ in this bit, and no other byte is a letter but for
            // this bit.
            let either = literal.nocase && byte.is_ascii_alphabetic();
            needle.mask[at] = if either { !0x20 } else { !0 };
            needle.bits[at] = byte & needle.mask[at];
        }
        Some(needle)
    }

    /// The number of its bytes.
    pub(crate) fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Its bytes, of which those whose case does not matter are in upper case.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bits[..self.length()]
    }

    /// Its eight bytes from `at`; where it ends sooner, the rest matches anything.
    pub(crate) fn word(&self, at: usize) -> Word {
        Word { bits: word_at(&self.bits, at), mask: word_at(&self.mask, at) }
    }

    /// Whether the text begins with the needle. All of its bytes are looked at: that is faster than
    /// to count.
    #[inline(always)]
    pub(crate) fn begins(&self, text: &[u8; LITERAL_MAX]) -> bool {
        let differ = |at: usize| text[at] & self.mask[at] ^ self.bits[at];
        (0..LITERAL_MAX).fold(0, |any, at| any | differ(at)) == 0
    }
}

impl Word {
    /// Whether these eight bytes of text are the needle's.
    #[inline(always)]
    pub(crate) fn is(self, text: u64) -> bool {
        text & self.mask == self.bits
    }
}
