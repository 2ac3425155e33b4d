//! The bitmap of hashes, and the sweep over text that tests it at every window.

use crate::windows::{Hash, array_at};

/// The most positions that one sweep notes.
pub(crate) const ROOM: usize = 256;

/// The positions that a sweep has noted, relative to where it began.
pub(crate) type Notes = [u16; ROOM];

/// The bytes of text that are looked at before it is asked again whether there is room.
const BLOCK: usize = 64;
/// What of the text a block's windows reach.
const SPAN: usize = BLOCK + 3;
/// The furthest that a sweep goes, so that its notes hold the position.
const REACH: usize = 1 << 16;

/// A set of hashes, by their highest bits, in words of 32; each size is a type, so that no look needs a check.
#[derive(Clone, Debug)]
pub(crate) enum Bitmap {
    KiB4(Box<[u32; 1 << 10]>),
    KiB16(Box<[u32; 1 << 12]>),
    KiB32(Box<[u32; 1 << 13]>),
    KiB128(Box<[u32; 1 << 15]>),
}

impl Bitmap {
    /// An empty one for so many hashes: of its bits, few will be set, but the processor's fastest cache should hold it.
    pub(crate) fn new(hashes: usize) -> Self {
        match hashes {
            0..=1024 => Self::KiB4(Box::new([0; _])),
            1025..=4096 => Self::KiB16(Box::new([0; _])),
            4097..=16384 => Self::KiB32(Box::new([0; _])),
            _ => Self::KiB128(Box::new([0; _])),
        }
    }

    /// Adds a hash.
    pub(crate) fn insert(&mut self, hash: u32) {
        let words: &mut [u32] = match self {
            Self::KiB4(words) => &mut words[..],
            Self::KiB16(words) => &mut words[..],
            Self::KiB32(words) => &mut words[..],
            Self::KiB128(words) => &mut words[..],
        };
        let bit = hash >> (27 - words.len().trailing_zeros());
        words[(bit / 32) as usize] |= 1 << (bit % 32);
    }

    /// Whether the hash was added, or one that has the same highest bits.
    pub(crate) fn has(&self, hash: u32) -> bool {
        match self {
            Self::KiB4(words) => bit(words, hash) == 1,
            Self::KiB16(words) => bit(words, hash) == 1,
            Self::KiB32(words) => bit(words, hash) == 1,
            Self::KiB128(words) => bit(words, hash) == 1,
        }
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::KiB4(words) => size_of_val(&**words),
            Self::KiB16(words) => size_of_val(&**words),
            Self::KiB32(words) => size_of_val(&**words),
            Self::KiB128(words) => size_of_val(&**words),
        }
    }

    /// Notes where, from `at` on in steps of `STRIDE`, windows of the text have a hash of this set, and moves `at`
    /// behind the last one looked at: the end, unless there may be no room for more. Returns how many it noted.
    pub(crate) fn sweep<const STRIDE: usize>(
        &self,
        hash: Hash,
        text: &[u8],
        at: &mut usize,
        notes: &mut Notes,
    ) -> usize {
        match self {
            Self::KiB4(words) => sweep::<STRIDE, _>(words, hash, text, at, notes),
            Self::KiB16(words) => sweep::<STRIDE, _>(words, hash, text, at, notes),
            Self::KiB32(words) => sweep::<STRIDE, _>(words, hash, text, at, notes),
            Self::KiB128(words) => sweep::<STRIDE, _>(words, hash, text, at, notes),
        }
    }
}

/// Notes are written at every window and kept if the bit is set: there is no branch to be guessed wrong.
fn sweep<const STRIDE: usize, const WORDS: usize>(
    words: &[u32; WORDS],
    hash: Hash,
    text: &[u8],
    at: &mut usize,
    notes: &mut Notes,
) -> usize {
    const { assert!(BLOCK.is_multiple_of(STRIDE) && BLOCK <= ROOM) };
    let mut noted = 0;
    let mut ahead = 0;
    while *at + ahead < text.len() && noted <= ROOM - BLOCK && ahead < REACH {
        let block: [u8; SPAN];
        let block = match text[*at + ahead..].first_chunk::<SPAN>() {
            Some(block) => block,
            None => {
                block = array_at(text, *at + ahead);
                &block
            }
        };
        for offset in (0..BLOCK).step_by(STRIDE) {
            let window = [block[offset], block[offset + 1], block[offset + 2], block[offset + 3]];
            notes[noted % ROOM] = (ahead + offset) as u16;
            noted += bit(words, hash.of(u32::from_le_bytes(window))) as usize;
        }
        ahead += BLOCK;
    }
    *at += ahead;
    noted
}

/// The bit of the hash's highest bits.
#[inline(always)]
fn bit<const WORDS: usize>(words: &[u32; WORDS], hash: u32) -> u32 {
    const { assert!(WORDS.is_power_of_two() && WORDS <= 1 << 27) };
    let bit = hash >> (27 - WORDS.trailing_zeros());
    words[(bit / 32) as usize % WORDS] >> (bit % 32) & 1
}
