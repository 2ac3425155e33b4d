//! The bitmap of hashes, and the sweep over text that tests it at every window.

use crate::windows::{Hash, array_at, folded, window_at};

/// The most positions that one sweep notes.
pub(crate) const ROOM: usize = 256;

/// The positions that a sweep has noted, relative to where it began.
pub(crate) type Notes = [u16; ROOM];

/// The bytes of text that are looked at before it is asked again whether there is room.
const BLOCK: usize = 64;
/// The bytes of a block whose windows the compiler writes out one after the other.
const GROUP: usize = 32;
/// What of the text a block's windows reach.
const SPAN: usize = BLOCK + 3;
/// The furthest that a sweep goes, so that its notes hold the position.
const REACH: usize = 1 << 16;

/// A set of windows, in words of 32 bits; each size is a type, so that no look needs a check.
#[derive(Clone, Debug)]
pub(crate) enum Bitmap {
    KiB4(Box<[u32; 1 << 10]>),
    KiB16(Box<[u32; 1 << 12]>),
    KiB32(Box<[u32; 1 << 13]>),
    KiB128(Box<[u32; 1 << 15]>),
}

impl Bitmap {
    /// An empty one for so many windows: of its bits, few will be set, but the processor's fastest cache should hold it.
    pub(crate) fn new(windows: usize) -> Self {
        match windows {
            0..=1024 => Self::KiB4(Box::new([0; _])),
            1025..=4096 => Self::KiB16(Box::new([0; _])),
            4097..=16384 => Self::KiB32(Box::new([0; _])),
            _ => Self::KiB128(Box::new([0; _])),
        }
    }

    /// Adds a window.
    pub(crate) fn insert(&mut self, hash: Hash, window: u32) {
        let words: &mut [u32] = match self {
            Self::KiB4(words) => &mut words[..],
            Self::KiB16(words) => &mut words[..],
            Self::KiB32(words) => &mut words[..],
            Self::KiB128(words) => &mut words[..],
        };
        let word = hash.of(window) >> (32 - words.len().trailing_zeros());
        words[word as usize] |= 1 << (folded(window) % 32);
    }

    /// Whether the window was added, or one that looks like it.
    pub(crate) fn has(&self, hash: Hash, window: u32) -> bool {
        match self {
            Self::KiB4(words) => bit(words, hash, window) == 1,
            Self::KiB16(words) => bit(words, hash, window) == 1,
            Self::KiB32(words) => bit(words, hash, window) == 1,
            Self::KiB128(words) => bit(words, hash, window) == 1,
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

    /// Notes where, from `at` on in steps of `STRIDE`, windows of the text seem to be in this set, and moves `at`
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
    const { assert!(GROUP.is_multiple_of(STRIDE) && BLOCK.is_multiple_of(GROUP) && BLOCK <= ROOM) };
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
        for group in (0..BLOCK).step_by(GROUP) {
            for offset in (group..group + GROUP).step_by(STRIDE) {
                let window = window_at(block, offset);
                notes[noted % ROOM] = (ahead + offset) as u16;
                noted += bit(words, hash, window) as usize;
            }
        }
        ahead += BLOCK;
    }
    *at += ahead;
    noted
}

/// The bit of a window. Its word is that of the highest bits of the hash; in it, the lowest bits of the first byte, which
/// say which letter it is, are as good as any and need no work.
#[inline(always)]
fn bit<const WORDS: usize>(words: &[u32; WORDS], hash: Hash, window: u32) -> u32 {
    const { assert!(WORDS.is_power_of_two() && WORDS > 1) };
    let window = folded(window);
    words[(hash.of_folded(window) >> (32 - WORDS.trailing_zeros())) as usize % WORDS] >> (window % 32) & 1
}
