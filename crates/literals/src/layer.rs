//! The literals that are looked for with windows of one width and stride.

use std::collections::{BTreeSet, HashMap};

use crate::bitmap::{Bitmap, ROOM};
use crate::literal::{Needle, Word};
use crate::model::Model;
use crate::packed::{MAX_PACKED, Packed};
use crate::windows::{Hash, array_at, folded, window_at, word_at};

/// How many hashes are tried for the one that takes the least of the sample for literals.
const HASHES_TRIED: u32 = 4;

// What the search takes, measured, in tenths of processor cycles: for a window, for one that is noted, and for each of its
// entries; where few windows are looked for, for a byte, a sixth of a tenth more for each of them (less in random bytes, more in
// text), and for one that is found.
const WINDOW_COST: u64 = 30;
const NOTE_COST: u64 = 150;
const ENTRY_COST: u64 = 50;
const PACKED_COST: u64 = 4;
const PACKED_FOUND_COST: u64 = 600;

/// Finds literals through windows at every so many bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    width: usize,
    stride: Stride,
    /// Finds few windows faster than the bitmap does, if this processor can; then they are looked at at every byte.
    packed: Option<Packed>,
    hash: Hash,
    bitmap: Bitmap,
    /// By the highest bits of a hash, where its entries begin; behind the last one, where they end.
    starts: Vec<u32>,
    /// Of 2^32 places in other text, how many are expected to be noted.
    expected: u64,
    /// By how much a hash is shifted to be an index of `starts`.
    shift: u32,
    entries: Vec<Entry>,
}

/// The distance of the windows that are looked at, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stride {
    /// One, where there are few windows.
    Packed,
    One,
    Two,
    Four,
}

impl Stride {
    fn bytes(self) -> usize {
        match self {
            Self::Packed | Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// A window that gives a literal away.
#[derive(Clone, Debug)]
struct Entry {
    /// Eight bytes of the literal around the window.
    word: Word,
    literal: u32,
    /// Where the window begins in the literal.
    window: u8,
    /// Where the word begins in the literal.
    lead: u8,
    /// The length of the literal; the word is all of it, up to eight.
    length: u8,
}

impl Layer {
    /// The layer for those of the needles that have these numbers.
    pub(crate) fn new(needles: &[Needle], numbers: &[u32], model: &Model) -> Self {
        let shortest = shortest(needles, numbers);
        let (width, stride) = match shortest {
            ..=3 => (shortest, Stride::One),
            4 => (3, Stride::Two),
            5..=6 => (4, Stride::Two),
            7.. => (4, Stride::Four),
        };
        Self::with(width, stride, choose(needles, numbers, width, stride.bytes(), model), model)
    }

    /// The same for few needles, if these are.
    pub(crate) fn packed(needles: &[Needle], numbers: &[u32], model: &Model) -> Option<Self> {
        if numbers.len() > MAX_PACKED {
            return None;
        }
        let width = shortest(needles, numbers).min(4);
        let entries = choose(needles, numbers, width, 1, model);
        let packed = Packed::new(entries.iter().map(|&(window, _)| window), width);
        Some(Self { packed, ..Self::with(width, Stride::Packed, entries, model) })
    }

    fn with(width: usize, stride: Stride, mut entries: Vec<(u32, Entry)>, model: &Model) -> Self {
        let windows: Vec<u32> = entries.iter().map(|&(window, _)| window).collect();
        let distinct: BTreeSet<u32> = windows.iter().map(|&window| key(window, width)).collect();
        let expected = distinct.iter().map(|key| model.frequency(key >> (8 * (4 - width)), width)).sum();
        let (hash, bitmap) = (0..HASHES_TRIED)
            .map(|seed| hashed(&windows, Hash::new(width, seed)))
            .min_by_key(|(hash, bitmap)| {
                model.windows().iter().filter(|&&text| bitmap.has(*hash, text)).count()
            })
            .unwrap_or_else(|| hashed(&windows, Hash::new(width, 0)));

        let bits = (2 * entries.len()).next_power_of_two().trailing_zeros();
        let shift = 32 - bits;
        entries.sort_by_key(|&(window, _)| hash.of(window));
        let starts = (0..=1 << bits)
            .map(|bucket: u32| {
                entries
                    .partition_point(|&(window, _)| u64::from(hash.of(window)) < u64::from(bucket) << shift)
                    as u32
            })
            .collect();
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Self { width, stride, packed: None, hash, bitmap, starts, expected, shift, entries }
    }

    /// Tells of every literal of this layer that is in the text: its number, where it starts and where it ends.
    #[inline]
    pub(crate) fn find(&self, needles: &[Needle], text: &[u8], found: &mut impl FnMut(u32, usize, usize)) {
        if let Some(packed) = &self.packed {
            return packed.find(text, |at| self.decide(needles, text, at, found));
        }
        let mut notes = [0; ROOM];
        let mut at = 0;
        while at < text.len() {
            let from = at;
            let noted = match self.stride {
                Stride::Packed | Stride::One => self.bitmap.sweep::<1>(self.hash, text, &mut at, &mut notes),
                Stride::Two => self.bitmap.sweep::<2>(self.hash, text, &mut at, &mut notes),
                Stride::Four => self.bitmap.sweep::<4>(self.hash, text, &mut at, &mut notes),
            };
            for at in notes[..noted].iter().map(|&ahead| from + usize::from(ahead)) {
                // Behind the text there is what fills its last block up.
                if at + self.width <= text.len() {
                    self.decide(needles, text, at, found);
                }
            }
        }
    }

    /// About how long it takes to search so many bytes of text. It does not depend on what this processor can.
    pub(crate) fn cost(&self, bytes: u64) -> u64 {
        let (window_cost, note_cost) = match self.stride {
            Stride::Packed => (PACKED_COST + self.entries.len() as u64 / 6, PACKED_FOUND_COST),
            _ => (WINDOW_COST, NOTE_COST),
        };
        let places = bytes / self.stride.bytes() as u64;
        let noted = (places * self.expected).div_ceil(1 << 32);
        places * window_cost + noted * (note_cost + ENTRY_COST)
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, Packed::bytes);
        packed + self.bitmap.bytes() + size_of_val(&self.starts[..]) + size_of_val(&self.entries[..])
    }

    /// The entries that a window may be.
    #[inline(always)]
    fn entries(&self, window: u32) -> &[Entry] {
        let bucket = (self.hash.of(window) >> self.shift) as usize;
        &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }

    /// Tells of every literal that lies in the text so that its window is at `at`.
    #[inline]
    fn decide(&self, needles: &[Needle], text: &[u8], at: usize, found: &mut impl FnMut(u32, usize, usize)) {
        for entry in self.entries(window_at(text, at)) {
            let Some(start) = at.checked_sub(usize::from(entry.window)) else { continue };
            let end = start + usize::from(entry.length);
            if !entry.word.is(word_at(text, start + usize::from(entry.lead))) || end > text.len() {
                continue;
            }
            if entry.length <= 8 || needles[entry.literal as usize].begins(&array_at(text, start)) {
                found(entry.literal, start, end);
            }
        }
    }
}

fn shortest(needles: &[Needle], numbers: &[u32]) -> usize {
    numbers.iter().map(|&number| needles[number as usize].length()).min().unwrap_or(1)
}

/// For each needle, and each way that it can lie under the windows, the window least expected in other text and least used
/// by other needles.
fn choose(
    needles: &[Needle],
    numbers: &[u32],
    width: usize,
    stride: usize,
    model: &Model,
) -> Vec<(u32, Entry)> {
    let mut used: HashMap<u32, u64> = HashMap::new();
    let mut chosen = Vec::new();
    for &literal in numbers {
        let needle = &needles[literal as usize];
        for way in 0..stride {
            let best = (way..=needle.length() - width)
                .step_by(stride)
                .map(|at| (at, window_at(needle.bytes(), at)))
                .min_by_key(|&(_, window)| {
                    let users = used.get(&key(window, width)).copied().unwrap_or(0);
                    (model.frequency(window, width) + 1).saturating_mul(users + 1)
                });
            let Some((at, window)) = best else { continue };
            *used.entry(key(window, width)).or_default() += 1;
            // The window in the middle of the word, as far as the literal allows.
            let lead = at.saturating_sub(2).min(needle.length().saturating_sub(8));
            let (word, length) = (needle.word(lead), needle.length() as u8);
            chosen.push((window, Entry { word, literal, window: at as u8, lead: lead as u8, length }));
        }
    }
    chosen
}

/// What of a window its hash depends on.
fn key(window: u32, width: usize) -> u32 {
    folded(window) << (8 * (4 - width))
}

fn hashed(windows: &[u32], hash: Hash) -> (Hash, Bitmap) {
    let mut bitmap = Bitmap::new(windows.len());
    windows.iter().for_each(|&window| bitmap.insert(hash, window));
    (hash, bitmap)
}
