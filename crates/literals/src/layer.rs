//! The literals that are looked for with windows of one width and stride.

use std::collections::{BTreeSet, HashMap};

use crate::literal::{Needle, Word};
use crate::model::Model;
use crate::packed::{MAX_PACKED, Packed};
use crate::sieve::Sieve;
use crate::windows::{Hash, array_at, folded, window_at, word_at};

/// How many hashes are tried for the one that takes the least of the sample for literals.
const HASHES_TRIED: u16 = 4;

// What the search takes, measured, in tenths of processor cycles: for a window, for one that stays in the sieve and for each of its
// entries, for one that only looks like one of those; where few windows are looked for, for a byte, a sixth of a tenth more for
// each of them (less in random bytes, more in text), and for one that is found.
const WINDOW_COST: u64 = 14;
const NOTE_COST: u64 = 150;
const ENTRY_COST: u64 = 50;
const MISTAKE_COST: u64 = 60;
const PACKED_COST: u64 = 4;
const PACKED_FOUND_COST: u64 = 600;

/// The most needles of three bytes that have windows before them: they fill the sieve.
const MAX_LED: usize = 16;

/// Finds literals through windows at every so many bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    stride: Stride,
    /// Finds few windows faster than the sieve does, if this processor can; then they are looked at at every byte.
    packed: Option<Packed>,
    sieve: Sieve,
    hash: Hash,
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
    /// Where the window begins in the literal; -1: a byte before it.
    window: i8,
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

    /// The same for needles of three bytes or more, with windows at every other byte: those that leave no room for a window on an
    /// odd way have one that begins a byte before them, whatever that byte is.
    pub(crate) fn led(needles: &[Needle], numbers: &[u32], model: &Model) -> Option<Self> {
        let is_short = |&&number: &&u32| needles[number as usize].length() == 3;
        if shortest(needles, numbers) != 3 || numbers.iter().filter(is_short).count() > MAX_LED {
            return None;
        }
        Some(Self::with(3, Stride::Two, choose(needles, numbers, 3, 2, model), model))
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
        let sieve = (1..HASHES_TRIED).map(|seed| Sieve::new(&windows, width, seed)).fold(
            Sieve::new(&windows, width, 0),
            |best, next| {
                let kept = |sieve: &Sieve| model.windows().iter().filter(|&&text| sieve.has(text)).count();
                if kept(&next) < kept(&best) { next } else { best }
            },
        );
        let hash = Hash::new(width);

        let bits = (2 * entries.len()).next_power_of_two().trailing_zeros();
        let shift = 32 - bits;
        let bucket = |window: u32| hash.of(window) >> shift;
        // What is found does not depend on what the literal's window was, but for where it begins: once in a bucket is enough.
        let place = |(window, entry): &(u32, Entry)| (bucket(*window), entry.literal, entry.window);
        entries.sort_by_key(place);
        entries.dedup_by_key(|one| place(one));
        let starts = (0..=1 << bits)
            .map(|number: u32| entries.partition_point(|&(window, _)| bucket(window) < number) as u32)
            .collect();
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Self { stride, packed: None, sieve, hash, starts, expected, shift, entries }
    }

    /// Tells of every literal of this layer that is in the text: its number, where it starts and where it ends.
    #[inline]
    pub(crate) fn find(&self, needles: &[Needle], text: &[u8], found: &mut impl FnMut(u32, usize, usize)) {
        if let Some(packed) = &self.packed {
            return packed
                .find(text, |at| decide(self.entries(window_at(text, at)), needles, text, at, found));
        }
        let noted = |at| {
            let entries = self.entries(window_at(text, at));
            if !entries.is_empty() {
                decide(entries, needles, text, at, found);
            }
        };
        match self.stride {
            Stride::Packed | Stride::One => self.sieve.pass::<1>(text, noted),
            Stride::Two => self.sieve.pass::<2>(text, noted),
            Stride::Four => self.sieve.pass::<4>(text, noted),
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
        let mistaken = match self.stride {
            Stride::Packed => 0,
            _ => places * self.entries.len() as u64 / self.sieve.bytes() as u64,
        };
        places * window_cost + noted * (note_cost + ENTRY_COST) + mistaken * MISTAKE_COST
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, Packed::bytes);
        packed + self.sieve.bytes() + size_of_val(&self.starts[..]) + size_of_val(&self.entries[..])
    }

    /// The entries that a window may be.
    #[inline(always)]
    fn entries(&self, window: u32) -> &[Entry] {
        let bucket = (self.hash.of(window) >> self.shift) as usize;
        &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }
}

/// Tells of every literal of these that lies in the text so that its window is at `at`.
#[inline]
fn decide(
    entries: &[Entry],
    needles: &[Needle],
    text: &[u8],
    at: usize,
    found: &mut impl FnMut(u32, usize, usize),
) {
    for entry in entries {
        let Some(start) = at.checked_add_signed(-isize::from(entry.window)) else { continue };
        let end = start + usize::from(entry.length);
        if !entry.word.is(word_at(text, start + usize::from(entry.lead))) || end > text.len() {
            continue;
        }
        if entry.length <= 8 || needles[entry.literal as usize].begins(&array_at(text, start)) {
            found(entry.literal, start, end);
        }
    }
}

fn shortest(needles: &[Needle], numbers: &[u32]) -> usize {
    numbers.iter().map(|&number| needles[number as usize].length()).min().unwrap_or(1)
}

/// For each needle, and each way that it can lie under the windows, the window least expected in other text and least used
/// by other needles; if it has none on its last way, all that begin a byte before it.
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
            let length = needle.length() as u8;
            let Some((at, window)) = best else {
                let entry = Entry { word: needle.word(0), literal, window: -1, lead: 0, length };
                let begin = window_at(needle.bytes(), 0) << 8;
                let before = (0..=u32::from(u8::MAX)).filter(|&byte| folded(byte) & 0xff == byte);
                chosen.extend(before.map(|byte| (begin | byte, entry.clone())));
                continue;
            };
            *used.entry(key(window, width)).or_default() += 1;
            // The window in the middle of the word, as far as the literal allows.
            let lead = at.saturating_sub(2).min(needle.length().saturating_sub(8));
            let entry =
                Entry { word: needle.word(lead), literal, window: at as i8, lead: lead as u8, length };
            chosen.push((window, entry));
        }
    }
    chosen
}

/// What of a window its hash depends on.
fn key(window: u32, width: usize) -> u32 {
    folded(window) << (8 * (4 - width))
}
