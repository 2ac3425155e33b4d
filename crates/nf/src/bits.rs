//! A bit set with summaries: finds the next zero in a few steps, however full it is.

use packet::memory::{OutOfMemory, Zeroed};

/// Bits of a word for even and for odd items.
const EVEN: u64 = 0x5555_5555_5555_5555;
const ODD: u64 = !EVEN;

/// Items to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    Even,
    Odd,
    Any,
}

impl Parity {
    fn mask(self) -> u64 {
        match self {
            Parity::Even => EVEN,
            Parity::Odd => ODD,
            Parity::Any => u64::MAX,
        }
    }
}

/// One bit per item, initially zero. Each level above summarises 64 words below it: all even bits
/// set, all odd bits set.
pub(crate) struct Bits {
    words: Zeroed<u64>,
    /// From the lowest level to the one of a single word; summaries of even bits first.
    levels: Vec<[Zeroed<u64>; 2]>,
    len: u32,
}

impl Bits {
    /// Returns zeroed bits for `len` items, in prefaulted memory.
    pub fn new(len: u32) -> Result<Bits, OutOfMemory> {
        let level = |bits: usize| {
            let mut words = Zeroed::new(bits.div_ceil(64))?;
            words.prefault();
            Ok::<_, OutOfMemory>(words)
        };
        let words = level(len as usize)?;
        let (mut levels, mut below) = (Vec::new(), words.len());
        while below > 1 {
            levels.push([level(below)?, level(below)?]);
            below = below.div_ceil(64);
        }
        Ok(Bits { words, levels, len })
    }

    /// Returns the number of items.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Checks if the item's bit is set. Items beyond the end count as set.
    pub fn has(&self, item: u32) -> bool {
        item >= self.len || self.words[item as usize / 64] >> (item % 64) & 1 == 1
    }

    /// Sets the bit of an existing item.
    pub fn set(&mut self, item: u32) {
        self.change(item, |word, bit| word | bit);
    }

    /// Clears the bit of an existing item.
    pub fn clear(&mut self, item: u32) {
        self.change(item, |word, bit| word & !bit);
    }

    #[inline(always)]
    fn change(&mut self, item: u32, change: impl FnOnce(u64, u64) -> u64) {
        let at = item as usize / 64;
        let word = &mut self.words[at];
        let before = std::mem::replace(word, change(*word, 1 << (item % 64)));
        let full = halves_full(*word);
        if full != halves_full(before) {
            self.summarize(at, full);
        }
    }

    /// Returns the first item in `from..end` with a zero bit.
    pub fn next_zero(&self, from: u32, end: u32, parity: Parity) -> Option<u32> {
        let (mut at, mut level) = (from as usize, 0);
        loop {
            let zeros = self.zeros(level, at / 64, parity)? & u64::MAX << (at % 64);
            if zeros != 0 {
                at = at / 64 * 64 + zeros.trailing_zeros() as usize;
                break;
            }
            (at, level) = (at / 64 + 1, level + 1);
            if level > self.levels.len() {
                return None;
            }
        }
        while level > 0 {
            level -= 1;
            let zeros = self.zeros(level, at, parity)?;
            at = at * 64 + zeros.trailing_zeros() as usize;
        }
        u32::try_from(at).ok().filter(|&item| item < end.min(self.len))
    }

    /// Returns the items in `from..end` with set bits.
    pub fn ones(&self, from: u32, end: u32) -> impl Iterator<Item = u32> + '_ {
        let end = end.min(self.len).max(from);
        let words = from / 64..end.div_ceil(64);
        words.flat_map(move |word| {
            let mut ones = self.words[word as usize];
            std::iter::from_fn(move || {
                let bit = (ones != 0).then(|| ones.trailing_zeros())?;
                ones &= ones - 1;
                Some(word * 64 + bit)
            })
            .filter(move |item| (from..end).contains(item))
        })
    }

    /// Returns the zeros of a word, or `None` beyond the last word.
    fn zeros(&self, level: usize, word: usize, parity: Parity) -> Option<u64> {
        let Some(level) = level.checked_sub(1) else {
            return Some(!self.words.get(word)? & parity.mask());
        };
        let [even, odd] = self.levels.get(level)?;
        let (even, odd) = (even.get(word)?, odd.get(word)?);
        Some(match parity {
            Parity::Even => !even,
            Parity::Odd => !odd,
            Parity::Any => !(even & odd),
        })
    }

    /// Updates the summaries above a word after its even or odd half became full or ceased to be
    /// full.
    fn summarize(&mut self, mut at: usize, mut full: [bool; 2]) {
        for level in &mut self.levels {
            let before = level.each_ref().map(|words| words[at / 64]);
            for (words, full) in level.iter_mut().zip(full) {
                let bit = 1 << (at % 64);
                words[at / 64] = if full { words[at / 64] | bit } else { words[at / 64] & !bit };
            }
            let after = level.each_ref().map(|words| words[at / 64]);
            if after == before {
                return;
            }
            full = after.map(|word| word == u64::MAX);
            at /= 64;
        }
    }
}

/// Checks if all even bits of a word are set, and all odd ones.
#[inline(always)]
fn halves_full(word: u64) -> [bool; 2] {
    [word & EVEN == EVEN, word & ODD == ODD]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a plain list.
        #[test]
        fn search_agrees_with_a_scan(
            len in prop_oneof![1u32..200, 4000u32..9000],
            changes in prop::collection::vec((any::<bool>(), any::<u32>(), 0u32..3000), 1..40),
            searches in prop::collection::vec((any::<u32>(), any::<u32>(), 0u32..3), 40),
        ) {
            let mut bits = Bits::new(len).unwrap();
            let mut list = vec![false; len as usize];
            for (set, from, count) in changes {
                let from = from % len;
                for item in from..from.saturating_add(count).min(len) {
                    if set { bits.set(item) } else { bits.clear(item) }
                    list[item as usize] = set;
                }
            }
            for (from, end, parity) in searches {
                let (from, end) = (from % len, end % (len + 1));
                let (parity, step) =
                    [(Parity::Even, 2), (Parity::Odd, 2), (Parity::Any, 1)][parity as usize];
                let first = if parity == Parity::Even { 0 } else { u32::from(parity == Parity::Odd) };
                let expected =
                    (first..end).step_by(step).find(|&item| item >= from && !list[item as usize]);
                prop_assert_eq!(bits.next_zero(from, end, parity), expected);
            }
            for (from, end, _) in [(0, len, 0), (len / 3, len / 2, 0), (len, 0, 0)] {
                let ones: Vec<u32> = (from..end).filter(|&item| list[item as usize]).collect();
                prop_assert_eq!(bits.ones(from, end).collect::<Vec<_>>(), ones);
            }
            prop_assert!(bits.has(len) && (0..len).all(|item| bits.has(item) == list[item as usize]));
        }
    }

    /// A search reads one word per level, up and down, however full the set is.
    #[test]
    fn search_takes_a_few_steps() {
        let mut bits = Bits::new(3 * 256 * 64_512).unwrap();
        assert_eq!(bits.levels.len(), 4);
        (0..1 << 20).for_each(|item| bits.set(item));
        assert_eq!(bits.next_zero(0, u32::MAX, Parity::Odd), Some((1 << 20) + 1));
    }
}
