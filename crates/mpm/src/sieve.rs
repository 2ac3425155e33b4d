//! The sieve: a table of hashes, and the pass over text that looks up each window.

use crate::windows::array_at;

/// Bytes of text that are tested at once for windows that pass the sieve.
const BLOCK: usize = 128;
/// Windows of a block at even positions, or at odd ones.
const PAIRS: usize = BLOCK / 2;
/// Number of these that the compiler unrolls.
const PART: usize = 16;
/// Bytes of text covered by a block's windows.
const SPAN: usize = BLOCK + 4;
/// The same for a short text, or a short rest of one.
const SHORT_BLOCK: usize = 32;
const SHORT_PAIRS: usize = SHORT_BLOCK / 2;
const SHORT_SPAN: usize = SHORT_BLOCK + 4;
/// Case folding: letters become lower case, and some other bytes collide with them.
const FOLD: u16 = 0x2020;

/// A set of windows of one width, with false positives: a byte per hash, 1 if a window has it. Each
/// size is a type, so that lookups need no bounds check.
#[derive(Clone, Debug)]
pub(crate) struct Sieve {
    hash: Hash,
    table: Table,
}

#[derive(Clone, Debug)]
enum Table {
    KiB4(Box<[u8; KIB_4]>),
    KiB16(Box<[u8; KIB_16]>),
    KiB64(Box<[u8; KIB_64]>),
}

const KIB_4: usize = 1 << 12;
const KIB_16: usize = 1 << 14;
const KIB_64: usize = 1 << 16;

/// A hash of windows: of their first two bytes as one number, and of their last two as another.
#[derive(Clone, Copy, Debug)]
struct Hash {
    multipliers: [u16; 2],
    /// Offset of the last two bytes in the window.
    last: usize,
}

impl Sieve {
    /// Returns the sieve of the first `width` bytes, 1 to 4, of these windows; each seed gives
    /// another one. At most one hash in sixteen is set, unless there are more than 4,096 windows.
    pub(crate) fn new(windows: &[u32], width: usize, seed: u16) -> Self {
        let table = match Self::bytes_for(windows.len()) {
            KIB_4 => Table::KiB4(Box::new([0; _])),
            KIB_16 => Table::KiB16(Box::new([0; _])),
            _ => Table::KiB64(Box::new([0; _])),
        };
        let mut sieve = Self { hash: Hash::new(width, seed), table };
        windows.iter().for_each(|&window| sieve.insert(window));
        sieve
    }

    /// Returns the bytes of a sieve for this many windows.
    pub(crate) fn bytes_for(windows: usize) -> usize {
        match windows {
            0..=256 => KIB_4,
            257..=1024 => KIB_16,
            _ => KIB_64,
        }
    }

    fn insert(&mut self, window: u32) {
        let hash = self.hash.of(window);
        match &mut self.table {
            Table::KiB4(table) => *byte_mut(table, hash) = 1,
            Table::KiB16(table) => *byte_mut(table, hash) = 1,
            Table::KiB64(table) => *byte_mut(table, hash) = 1,
        }
    }

    /// Checks for a window, with false positives.
    pub(crate) fn has(&self, window: u32) -> bool {
        let hash = self.hash.of(window);
        let byte = match &self.table {
            Table::KiB4(table) => byte(table, hash),
            Table::KiB16(table) => byte(table, hash),
            Table::KiB64(table) => byte(table, hash),
        };
        byte == 1
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.table {
            Table::KiB4(table) => size_of_val(&**table),
            Table::KiB16(table) => size_of_val(&**table),
            Table::KiB64(table) => size_of_val(&**table),
        }
    }

    /// Reports the positions in the text, in steps of `STRIDE` (1, 2 or 4), of probable windows.
    /// Zeros follow the text.
    #[inline]
    pub(crate) fn pass<const STRIDE: usize>(&self, text: &[u8], found: impl FnMut(usize)) {
        match &self.table {
            Table::KiB4(table) => pass::<STRIDE, _>(table, self.hash, text, found),
            Table::KiB16(table) => pass::<STRIDE, _>(table, self.hash, text, found),
            Table::KiB64(table) => pass::<STRIDE, _>(table, self.hash, text, found),
        }
    }
}

/// Passes block by block, and over a short rest by a short block.
#[inline]
fn pass<const STRIDE: usize, const SIZE: usize>(
    table: &[u8; SIZE],
    hash: Hash,
    text: &[u8],
    mut found: impl FnMut(usize),
) {
    const { assert!(STRIDE == 1 || STRIDE == 2 || STRIDE == 4) };
    let (mut hashes, mut few) = ([0; PAIRS], [0; SHORT_PAIRS]);
    for from in (0..text.len()).step_by(BLOCK) {
        let pairs = (text.len() - from).div_ceil(2).min(PAIRS);
        let mut found = |at| found(from + at);
        match text[from..].first_chunk::<SPAN>() {
            Some(block) => look::<STRIDE, _, _, _>(table, hash, block, (&mut hashes, pairs), &mut found),
            None if pairs <= SHORT_PAIRS => {
                let block = array_at::<SHORT_SPAN>(text, from);
                look::<STRIDE, _, _, _>(table, hash, &block, (&mut few, pairs), &mut found);
            }
            None => {
                let block = array_at::<SPAN>(text, from);
                look::<STRIDE, _, _, _>(table, hash, &block, (&mut hashes, pairs), &mut found);
            }
        }
    }
}

/// Looks up the first `pairs` windows of a block, in steps of `STRIDE` bytes, and reports those in
/// the table. `hashes` is memory for it.
///
/// Gathers the lookups as bits of one number, the first in the lowest, and tests that: a branch per
/// window would be mispredicted too often.
#[inline(always)]
fn look<const STRIDE: usize, const SIZE: usize, const SPAN: usize, const PAIRS: usize>(
    table: &[u8; SIZE],
    hash: Hash,
    block: &[u8; SPAN],
    (hashes, pairs): (&mut [u16; PAIRS], usize),
    found: &mut impl FnMut(usize),
) {
    let step = if STRIDE == 4 { 2 } else { 1 };
    for odd in 0..if STRIDE == 1 { 2 } else { 1 } {
        hash.of_block(block, odd, hashes);
        let (parts, _) = hashes.as_chunks::<PART>();
        let mut seen: u64 = 0;
        for (number, part) in parts.iter().take(pairs.div_ceil(PART)).enumerate() {
            let mut here = 0;
            for window in (0..PART / step).rev() {
                here = 2 * here + u64::from(byte(table, part[window * step]));
            }
            seen |= here << (number * PART / step);
        }
        while seen != 0 {
            found(odd + seen.trailing_zeros() as usize * STRIDE.max(2));
            seen &= seen - 1;
        }
    }
}

impl Hash {
    fn new(width: usize, seed: u16) -> Self {
        let [first, second] =
            [0x9e37, 0x85eb].map(|odd: u16| odd.wrapping_add(seed.wrapping_mul(0x3c6e)) | 1);
        // For a single byte, the following one is ignored: bits of a product from 16 on are lost.
        let multipliers = if width == 1 { [first << 8, 0] } else { [first, second] };
        Self { multipliers, last: width.saturating_sub(2) }
    }

    fn of(self, window: u32) -> u16 {
        let bytes = window.to_le_bytes();
        let last = [bytes[self.last], bytes[self.last + 1]];
        self.of_pairs(u16::from_le_bytes([bytes[0], bytes[1]]), u16::from_le_bytes(last))
    }

    /// Hashes the windows of the block at even or at odd positions.
    #[inline(never)]
    fn of_block<const SPAN: usize, const PAIRS: usize>(
        self,
        block: &[u8; SPAN],
        odd: usize,
        hashes: &mut [u16; PAIRS],
    ) {
        // `odd` is 0 or 1, and `last` at most 2.
        let pairs = |at: usize| block[at..][..2 * PAIRS].as_chunks::<2>().0;
        let both = pairs(odd).iter().zip(pairs(odd + self.last));
        for ((first, last), hash) in both.zip(hashes) {
            *hash = self.of_pairs(u16::from_le_bytes(*first), u16::from_le_bytes(*last));
        }
    }

    /// Combines the lower half of one product and the upper half of the other, so that each byte
    /// affects nearly all bits of the hash.
    #[inline(always)]
    fn of_pairs(self, first: u16, last: u16) -> u16 {
        let upper = (u32::from(last | FOLD) * u32::from(self.multipliers[1])) >> 16;
        (first | FOLD).wrapping_mul(self.multipliers[0]).wrapping_add(upper as u16)
    }
}

/// The highest bits of a hash are the best.
#[inline(always)]
fn byte<const SIZE: usize>(table: &[u8; SIZE], hash: u16) -> u8 {
    table[index::<SIZE>(hash)]
}

fn byte_mut<const SIZE: usize>(table: &mut [u8; SIZE], hash: u16) -> &mut u8 {
    &mut table[index::<SIZE>(hash)]
}

#[inline(always)]
fn index<const SIZE: usize>(hash: u16) -> usize {
    const { assert!(SIZE.is_power_of_two() && SIZE <= 1 << 16) };
    usize::from(hash >> (16 - SIZE.trailing_zeros()))
}
