//! Search for few windows, comparing many positions at once: the packed search of `aho-corasick`.

use aho_corasick::Span;
use aho_corasick::packed::Searcher;

use crate::windows::folded;

/// Limit on the windows of a packed search.
pub(crate) const PACKED_MAX: usize = 64;

/// Bytes of text folded at once; most packets fit.
const CHUNK: usize = 1536;
/// Texts up to these sizes are too small to clear a whole chunk for.
const LITTLE: usize = 64;
const MEDIUM: usize = 320;

/// Finds windows of one width.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    searcher: Searcher,
    width: usize,
}

impl Packed {
    /// Returns the search for the first `width` bytes of these windows, if the processor supports
    /// it.
    pub(crate) fn new(windows: impl IntoIterator<Item = u32>, width: usize) -> Option<Self> {
        let mut patterns: Vec<_> =
            windows.into_iter().map(|window| folded(window).to_le_bytes()[..width].to_vec()).collect();
        patterns.sort_unstable();
        patterns.dedup();
        Some(Self { searcher: Searcher::new(patterns)?, width })
    }

    /// Reports the positions of probable windows in the text, in ascending order.
    #[inline]
    pub(crate) fn find(&self, text: &[u8], mut found: impl FnMut(usize)) {
        if text.len() <= LITTLE {
            return self.find_in(&mut [0; LITTLE], text, &mut found);
        }
        if text.len() <= MEDIUM {
            return self.find_in(&mut [0; MEDIUM], text, &mut found);
        }
        let mut chunk = [0; CHUNK];
        let mut start = 0;
        while start + self.width <= text.len() {
            let part = &text[start..text.len().min(start + CHUNK)];
            self.find_in(&mut chunk, part, &mut |at| found(start + at));
            // A window may begin in this chunk and end in the next.
            start += part.len() + 1 - self.width;
        }
    }

    /// Same, with a buffer for the folded text.
    #[inline]
    fn find_in(&self, room: &mut [u8], text: &[u8], found: &mut impl FnMut(usize)) {
        let folded = &mut room[..text.len()];
        folded.iter_mut().zip(text).for_each(|(folded, byte)| *folded = byte | 0x20);
        let mut at = 0;
        while let Some(window) = self.searcher.find_in(&*folded, Span { start: at, end: text.len() }) {
            found(window.start());
            at = window.start() + 1;
        }
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.searcher.memory_usage()
    }
}
