//! A model of text: the expected frequency of windows.

use std::sync::LazyLock;

use crate::windows::{ByKey, folded, key};

/// Typical requests, responses, pages, scripts and prose, in our own words; and common words.
const SAMPLE: &str = include_str!("sample.txt");

/// Counts of single bytes, pairs and windows in the sample, with letters folded as in windows.
pub(crate) struct Model {
    singles: Vec<u32>,
    pairs: Vec<u32>,
    /// In the order of their bytes.
    windows: Vec<u32>,
}

/// Cached frequencies of windows: a set requests the same ones repeatedly.
pub(crate) struct Frequencies<'m> {
    model: &'m Model,
    /// For windows of 1 to 4 bytes.
    known: [ByKey<u64>; 4],
}

impl<'m> Frequencies<'m> {
    pub(crate) fn new(model: &'m Model) -> Self {
        Self { model, known: Default::default() }
    }

    /// As [`Model::frequency`].
    pub(crate) fn of(&mut self, window: u32, width: usize) -> u64 {
        let model = self.model;
        *self.known[width - 1].entry(key(window, width)).or_insert_with(|| model.frequency(window, width))
    }
}

static MODEL: LazyLock<Model> = LazyLock::new(Model::new);

impl Model {
    /// Returns the only model.
    pub(crate) fn get() -> &'static Self {
        &MODEL
    }

    fn new() -> Self {
        let mut sample = SAMPLE.replace('\n', "\r\n").into_bytes();
        // Padding of binary protocols.
        sample.extend([[0; 64], [255; 64]].as_flattened());
        let windows = sample.array_windows().map(|&window| folded(u32::from_le_bytes(window))).collect();
        let mut model = Self { singles: vec![0; 1 << 8], pairs: vec![0; 1 << 16], windows };
        for window in &model.windows {
            model.singles[(window & 0xff) as usize] += 1;
            model.pairs[(window & 0xffff) as usize] += 1;
        }
        model.windows.sort_unstable_by_key(|window| window.swap_bytes());
        model
    }

    /// Returns every window of the sample.
    pub(crate) fn windows(&self) -> &[u32] {
        &self.windows
    }

    /// Returns the expected occurrences of the first `width` bytes of a window in 2^32 positions:
    /// their frequency in the sample, or that derived from pairs of bytes, whichever is higher.
    pub(crate) fn frequency(&self, window: u32, width: usize) -> u64 {
        let window = folded(window);
        let places = self.windows.len() as u64;
        let bytes = window.to_le_bytes();
        let mut guess = (u64::from(self.singles[usize::from(bytes[0])]) * 16 + 1) << 28;
        guess /= places;
        for pair in bytes[..width].array_windows::<2>() {
            let together = u64::from(self.pairs[usize::from(u16::from_le_bytes(*pair))]) * 16 + 1;
            let first = u64::from(self.singles[usize::from(pair[0])]) * 16 + 256;
            // Below 2^33 times below 2^18.
            guess = guess * together / first;
        }
        guess.max((self.seen(window, width) << 32) / places)
    }

    /// Returns the occurrences of the first `width` bytes of the folded window in the sample.
    fn seen(&self, window: u32, width: usize) -> u64 {
        let first = |window: u32| window.swap_bytes() >> (8 * (4 - width));
        let begin = self.windows.partition_point(|&other| first(other) < first(window));
        let end = self.windows.partition_point(|&other| first(other) <= first(window));
        (end - begin) as u64
    }
}
