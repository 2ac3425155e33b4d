//! The numbers of received datagrams: refuses replays, and reports ranges to acknowledge.

/// Numbers below the greatest received one that can still be new (RFC 4303 3.4.3). Older datagrams
/// are refused.
pub const REPLAY_WINDOW: u64 = (WORDS - 1) * 64;

/// Words of the ring: the window, and the word that is being filled.
const WORDS: u64 = 128;

/// A sliding window of received numbers. Numbers begin with 1.
///
/// Its bits are in a ring of words indexed by the numbers themselves, so the window advances
/// without shifting (RFC 6479).
#[derive(Debug)]
pub(crate) struct NumberWindow {
    top: u64,
    /// The first number of the range that ends with `top`, or a number below the window.
    newest: u64,
    words: Box<[u64; WORDS as usize]>,
}

impl NumberWindow {
    pub(crate) fn new() -> NumberWindow {
        NumberWindow { top: 0, newest: 1, words: Box::new([0; WORDS as usize]) }
    }

    /// Returns the greatest number received; 0 before the first.
    #[inline]
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    /// Returns whether this number may be new, and its datagram is worth decrypting.
    #[inline]
    pub(crate) fn is_new(&self, number: u64) -> bool {
        match self.top.checked_sub(number) {
            _ if number == 0 => false,
            None => true,
            Some(age) => age < REPLAY_WINDOW && self.word(number) & bit(number) == 0,
        }
    }

    /// Records the number of an authentic datagram that is new by [`NumberWindow::is_new`].
    #[inline]
    pub(crate) fn note(&mut self, number: u64) {
        if number > self.top {
            let begun = (number / 64 - self.top / 64).min(WORDS);
            for age in 0..begun {
                *self.word_mut(number - 64 * age) = 0;
            }
            if number > self.top + 1 {
                self.newest = number;
            }
            self.top = number;
        }
        *self.word_mut(number) |= bit(number);
        if number.checked_add(1) == Some(self.newest) {
            self.newest = self.first_to(number);
        }
    }

    /// Returns the ranges of received numbers in the window, first and last of each, newest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let floor = self.floor();
        // Usually the only one: it is known without a search.
        let mut range = (self.top > 0).then(|| (self.newest.max(floor), self.top));
        std::iter::from_fn(move || {
            let (first, last) = range?;
            range = self.find(first - 1, floor, true).map(|last| (self.first_to(last), last));
            Some((first, last))
        })
    }

    /// Returns the least number of the window.
    fn floor(&self) -> u64 {
        self.top.saturating_sub(REPLAY_WINDOW - 1).max(1)
    }

    /// Returns the first number of the range that ends with `last`, within the window.
    fn first_to(&self, last: u64) -> u64 {
        let floor = self.floor();
        self.find(last, floor, false).map_or(floor, |gap| gap + 1)
    }

    /// Returns the greatest number from `from` down to `floor` that was received, or was not.
    fn find(&self, from: u64, floor: u64, received: bool) -> Option<u64> {
        let mut from = from;
        while from >= floor && from > 0 {
            let word = if received { self.word(from) } else { !self.word(from) };
            let candidates = word & (u64::MAX >> (63 - from % 64));
            if candidates != 0 {
                let found = from - from % 64 + u64::from(63 - candidates.leading_zeros());
                return (found >= floor).then_some(found);
            }
            from = (from - from % 64).checked_sub(1)?;
        }
        None
    }

    #[inline]
    fn word(&self, number: u64) -> u64 {
        self.words[(number / 64 % WORDS) as usize]
    }

    #[inline]
    fn word_mut(&mut self, number: u64) -> &mut u64 {
        &mut self.words[(number / 64 % WORDS) as usize]
    }
}

#[inline]
fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_greatest_number_is_noted_as_others_are() {
        let mut window = NumberWindow::new();
        for number in [u64::MAX, u64::MAX - 2, u64::MAX - 1] {
            assert!(window.is_new(number));
            window.note(number);
            assert!(!window.is_new(number));
        }
        assert!(window.ranges().eq([(u64::MAX - 2, u64::MAX)]));
    }

    /// Numbers that advance by small steps, jump, and step back.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            8 => -70i64..80,
            1 => -9_000i64..9_000,
            1 => Just(REPLAY_WINDOW as i64),
            1 => Just(-(REPLAY_WINDOW as i64)),
        ];
        prop::collection::vec(step, 0..300).prop_map(|steps| {
            let mut at = 100i64;
            let mut go = |step: i64| {
                at = (at + step).max(0);
                at as u64
            };
            steps.into_iter().map(&mut go).collect()
        })
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_set(numbers in numbers()) {
            let mut window = NumberWindow::new();
            let mut set = BTreeSet::new();
            for number in numbers {
                let top = set.last().copied().unwrap_or(0);
                let is_new = number > 0 && number + REPLAY_WINDOW > top && !set.contains(&number);
                prop_assert_eq!(window.is_new(number), is_new);
                if is_new {
                    window.note(number);
                    set.insert(number);
                }
                let top = set.last().copied().unwrap_or(0);
                let covered: Vec<u64> = window.ranges().flat_map(|(first, last)| (first..=last).rev()).collect();
                let expected: Vec<u64> =
                    set.iter().rev().copied().take_while(|number| number + REPLAY_WINDOW > top).collect();
                prop_assert_eq!(covered, expected);
            }
        }
    }

    #[test]
    fn ranges_do_not_touch() {
        let mut window = NumberWindow::new();
        [1, 2, 3, 63, 64, 65, 200].into_iter().for_each(|number| window.note(number));
        assert_eq!(Vec::from_iter(window.ranges()), [(200, 200), (63, 65), (1, 3)]);
    }
}
