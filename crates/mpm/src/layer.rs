//! Layers: the literals that are searched with windows of one width and stride.

use std::collections::BTreeSet;

use crate::literal::{Needle, Word};
use crate::model::{Frequencies, Model};
use crate::packed::{PACKED_MAX, Packed};
use crate::sieve::Sieve;
use crate::windows::{ByKey, Hash, array_at, folded, key, window_at, word_at};

/// Number of hashes tried to find the one with the fewest false positives in the sample.
const HASHES_TRIED: u16 = 4;

// Measured costs of the search, in tenths of processor cycles. For a window; for a window that
// passes the sieve and for each of its entries; for a false match. With the packed search: for a
// byte, plus a sixtieth for each window (less in random bytes, more in text), and for a candidate.
const WINDOW_COST: u64 = 14;
const NOTE_COST: u64 = 150;
const ENTRY_COST: u64 = 50;
const MISTAKE_COST: u64 = 60;
const PACKED_COST: u64 = 4;
const PACKED_FOUND_COST: u64 = 600;

/// Limit on three-byte needles with windows that begin a byte before them: these fill the sieve.
const LED_MAX: usize = 16;

/// Finds literals through windows at a fixed stride.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    stride: Stride,
    /// The packed search, faster than the sieve for few windows if the processor supports it. It
    /// examines windows at every byte.
    packed: Option<Packed>,
    sieve: Sieve,
    hash: Hash,
    /// By the highest bits of a hash, the start of its entries; the last element is the end.
    starts: Vec<u32>,
    /// Shift from a hash to an index of `starts`.
    shift: u32,
    entries: Vec<Entry>,
}

/// Width and stride of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Width of a window in bytes.
    width: usize,
    stride: Stride,
}

/// A candidate for a layer, with its cost. One to three of all candidates for a set are built.
pub(crate) struct Draft {
    form: Form,
    /// The window of each entry, before duplicates in a bucket were removed.
    windows: Vec<u32>,
    /// Expected matches in 2^32 positions of other text.
    expected: u64,
    hash: Hash,
    shift: u32,
    /// In the order of their buckets, each with its window.
    entries: Vec<(u32, Entry)>,
}

/// Distance of the examined windows in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stride {
    /// One, for few windows.
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

/// A window that reveals a literal.
#[derive(Clone, Debug)]
struct Entry {
    /// Eight bytes of the literal around the window.
    word: Word,
    literal: u32,
    /// Start of the window in the literal; -1 for a byte before it.
    window: i8,
    /// Start of the word in the literal.
    lead: u8,
    /// Length of the literal; up to eight bytes, the word is all of it.
    length: u8,
}

impl Form {
    /// Returns the possible forms for the needles of these numbers, the usual one first.
    pub(crate) fn all(needles: &[Needle], numbers: &[u32]) -> impl DoubleEndedIterator<Item = Form> {
        let lengths = numbers.iter().map(|&number| needles[number as usize].length());
        let shortest = lengths.clone().min().unwrap_or(1);
        let usual = match shortest {
            ..=3 => (shortest, Stride::One),
            4 => (3, Stride::Two),
            5..=6 => (4, Stride::Two),
            7.. => (4, Stride::Four),
        };
        // Windows at every other byte: at odd alignment, needles too short for a window use a
        // window that begins a byte before them, for every value of that byte.
        let is_led = shortest == 3 && lengths.filter(|&length| length == 3).count() <= LED_MAX;
        let led = is_led.then_some((3, Stride::Two));
        let packed = (numbers.len() <= PACKED_MAX).then_some((shortest.min(4), Stride::Packed));
        [Some(usual), led, packed].into_iter().flatten().map(|(width, stride)| Form { width, stride })
    }

    /// Returns the least cost of `bytes` of text without matches, for this many entries.
    pub(crate) fn least_cost(self, entries: usize, bytes: u64) -> u64 {
        let window_cost = match self.stride {
            Stride::Packed => PACKED_COST + entries as u64 / 6,
            _ => WINDOW_COST,
        };
        self.places(bytes) * window_cost
    }

    /// Returns the number of windows in `bytes` of text.
    fn places(self, bytes: u64) -> u64 {
        bytes / self.stride.bytes() as u64
    }
}

impl Draft {
    /// Returns the draft of this form for the needles of these numbers.
    pub(crate) fn new(
        needles: &[Needle],
        numbers: &[u32],
        form: Form,
        frequencies: &mut Frequencies<'_>,
    ) -> Self {
        let mut entries = choose(needles, numbers, form, frequencies);
        let windows: Vec<u32> = entries.iter().map(|&(window, _)| window).collect();
        let width = form.width;
        let distinct: BTreeSet<u32> = windows.iter().map(|&window| key(window, width)).collect();
        let expected = distinct.iter().map(|key| frequencies.of(key >> (8 * (4 - width)), width)).sum();
        let hash = Hash::new(width);
        let bits = (2 * entries.len()).next_power_of_two().trailing_zeros();
        let shift = 32 - bits;
        let bucket = |window: u32| hash.of(window) >> shift;
        // The result depends on the literal's window only through its start: one entry per bucket
        // suffices.
        let place = |(window, entry): &(u32, Entry)| (bucket(*window), entry.literal, entry.window);
        entries.sort_by_key(place);
        entries.dedup_by_key(|one| place(one));
        Self { form, windows, expected, hash, shift, entries }
    }

    /// Returns the approximate time to search `bytes` of text, independent of the processor.
    pub(crate) fn cost(&self, bytes: u64) -> u64 {
        let is_packed = self.form.stride == Stride::Packed;
        let (note_cost, mistake_cost) =
            if is_packed { (PACKED_FOUND_COST, 0) } else { (NOTE_COST, MISTAKE_COST) };
        let places = self.form.places(bytes);
        let noted = (places * self.expected).div_ceil(1 << 32);
        let mistaken = places * self.entries.len() as u64 / Sieve::bytes_for(self.windows.len()) as u64;
        self.form.least_cost(self.entries.len(), bytes)
            + noted * (note_cost + ENTRY_COST)
            + mistaken * mistake_cost
    }

    /// Builds the layer.
    pub(crate) fn finish(self, model: &Model) -> Layer {
        let Self { form: Form { width, stride }, windows, hash, shift, entries, .. } = self;
        let packed = match stride {
            Stride::Packed => Packed::new(windows.iter().copied(), width),
            _ => None,
        };
        let kept = |sieve: &Sieve| model.windows().iter().filter(|&&text| sieve.has(text)).count();
        let sieves = (0..HASHES_TRIED).map(|seed| Sieve::new(&windows, width, seed));
        let sieve = sieves.min_by_key(kept).unwrap_or_else(|| Sieve::new(&windows, width, 0));
        let bucket = |window: u32| hash.of(window) >> shift;
        let starts = (0..=1_u32 << (32 - shift))
            .map(|number| entries.partition_point(|&(window, _)| bucket(window) < number) as u32)
            .collect();
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Layer { stride, packed, sieve, hash, starts, shift, entries }
    }
}

impl Layer {
    /// Reports every literal of this layer in the text: number, start and end.
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

    /// Returns the memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, Packed::bytes);
        packed + self.sieve.bytes() + size_of_val(&self.starts[..]) + size_of_val(&self.entries[..])
    }

    /// Returns the candidate entries of a window.
    #[inline(always)]
    fn entries(&self, window: u32) -> &[Entry] {
        let bucket = (self.hash.of(window) >> self.shift) as usize;
        &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }
}

/// Reports each candidate that is in the text with its window at `at`.
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

/// Selects, for each needle and alignment, the window least expected in other text and least used
/// by other needles. If the last alignment has none, selects all windows that begin a byte before
/// it.
fn choose(
    needles: &[Needle],
    numbers: &[u32],
    form: Form,
    frequencies: &mut Frequencies<'_>,
) -> Vec<(u32, Entry)> {
    let (width, stride) = (form.width, form.stride.bytes());
    let mut used: ByKey<u64> = ByKey::default();
    let mut chosen = Vec::new();
    for &literal in numbers {
        let needle = &needles[literal as usize];
        for way in 0..stride {
            let best = (way..=needle.length() - width)
                .step_by(stride)
                .map(|at| (at, window_at(needle.bytes(), at)))
                .min_by_key(|&(_, window)| {
                    let users = used.get(&key(window, width)).copied().unwrap_or(0);
                    (frequencies.of(window, width) + 1).saturating_mul(users + 1)
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
            // The window is in the middle of the word, if the literal is long enough.
            let lead = at.saturating_sub(2).min(needle.length().saturating_sub(8));
            let entry =
                Entry { word: needle.word(lead), literal, window: at as i8, lead: lead as u8, length };
            chosen.push((window, entry));
        }
    }
    chosen
}
