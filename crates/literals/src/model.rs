//! What text is like: how often a window is to be expected in it.

use crate::windows::folded;

/// Requests, responses, pages and scripts as they are common, in our own words.
const SAMPLE: &str = include_str!("sample.txt");

/// Counts of single bytes, pairs and windows in the sample, in which letters are folded like windows.
pub(crate) struct Model {
    sample: Vec<u8>,
    singles: Vec<u32>,
    pairs: Vec<u32>,
    windows: Vec<u32>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let mut sample = SAMPLE.replace('\n', "\r\n").into_bytes();
        // What binary protocols pad with.
        sample.extend([[0; 64], [255; 64]].as_flattened());
        let mut model =
            Self { sample, singles: vec![0; 1 << 8], pairs: vec![0; 1 << 16], windows: Vec::new() };
        model.windows =
            model.sample.array_windows().map(|&window| folded(u32::from_le_bytes(window))).collect();
        for window in &model.windows {
            model.singles[(window & 0xff) as usize] += 1;
            model.pairs[(window & 0xffff) as usize] += 1;
        }
        model.windows.sort_unstable();
        model
    }

    /// Every window of the sample.
    pub(crate) fn windows(&self) -> &[u32] {
        &self.windows
    }

    /// How often the first `width` bytes of a window are to be expected in 2^32 places: as often as in the sample or
    /// as its pairs of bytes follow upon each other there, whichever is more.
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

    /// How often the sample has the first `width` bytes of the folded window.
    fn seen(&self, window: u32, width: usize) -> u64 {
        if width < 4 {
            // The guess is good enough for so few bytes.
            return 0;
        }
        let from = self.windows.partition_point(|&other| other < window);
        self.windows[from..].iter().take_while(|&&other| other == window).count() as u64
    }
}
