//! An index of units by load: units of similar load share a shelf, so that few of a thousand units
//! are looked at.

use crate::message::UnitId;

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// One bit for each fits into a word of words.
const SHELVES: usize = WORD * WORD;

/// Number of shelves for loads up to a unit's capacity: three of four. The others are for overload;
/// the last one has all higher loads.
const SHELVES_TO_CAPACITY: usize = SHELVES / 4 * 3;

/// Units on shelves by load: a unit on a higher shelf has a higher load. The caller knows each
/// unit's load, and whether it is on a shelf.
pub(crate) struct LoadIndex {
    /// Number of shelves per bit per second.
    per_bps: f32,
    /// The first unit of each shelf plus 1; 0 if the shelf is empty.
    first: Box<[u16; SHELVES]>,
    /// Each unit's neighbours on its shelf, likewise.
    next: Vec<u16>,
    previous: Vec<u16>,
    /// One bit per shelf; set if it is not empty.
    held: [u64; WORD],
    /// One bit per word of these; set if it is not 0.
    words: u64,
}

impl LoadIndex {
    /// Creates empty shelves for this many units of this capacity, which must not be 0.
    pub fn new(units: usize, capacity_bps: f32) -> LoadIndex {
        LoadIndex {
            per_bps: SHELVES_TO_CAPACITY as f32 / capacity_bps,
            first: Box::new([0; SHELVES]),
            next: vec![0; units],
            previous: vec![0; units],
            held: [0; WORD],
            words: 0,
        }
    }

    /// Returns the shelf of a load, which must not be negative.
    #[inline(always)]
    pub fn of(&self, load_bps: f32) -> usize {
        // A small signed number converts faster.
        (load_bps * self.per_bps).min((SHELVES - 1) as f32) as i32 as usize
    }

    /// Puts a unit, which is on no shelf, on a shelf.
    #[inline]
    pub fn put(&mut self, unit: UnitId, shelf: usize) {
        let first = std::mem::replace(&mut self.first[shelf], unit.0 + 1);
        (self.next[unit.index()], self.previous[unit.index()]) = (first, 0);
        if let Some(first) = first.checked_sub(1) {
            self.previous[usize::from(first)] = unit.0 + 1;
        }
        self.held[shelf / WORD] |= 1 << (shelf % WORD);
        self.words |= 1 << (shelf / WORD);
    }

    /// Takes a unit off its shelf.
    #[inline]
    pub fn take(&mut self, unit: UnitId, shelf: usize) {
        let (next, previous) = (self.next[unit.index()], self.previous[unit.index()]);
        if let Some(next) = next.checked_sub(1) {
            self.previous[usize::from(next)] = previous;
        }
        match previous.checked_sub(1) {
            Some(previous) => self.next[usize::from(previous)] = next,
            None => self.first[shelf] = next,
        }
        if self.first[shelf] == 0 {
            self.held[shelf / WORD] &= !(1 << (shelf % WORD));
            self.words &= !(u64::from(self.held[shelf / WORD] == 0) << (shelf / WORD));
        }
    }

    /// Returns the highest nonempty shelf up to this one.
    #[inline]
    pub fn highest(&self, up_to: usize) -> Option<usize> {
        let (word, bit) = (up_to / WORD, up_to % WORD);
        if let Some(bit) = last_bit(self.held[word], bit) {
            return Some(word * WORD + bit);
        }
        let word = last_bit(self.words, word.checked_sub(1)?)?;
        Some(word * WORD + last_bit(self.held[word], WORD - 1)?)
    }

    /// Returns the lowest shelf from this one on that is not empty.
    #[inline]
    pub fn lowest(&self, from: usize) -> Option<usize> {
        let (word, bit) = (from / WORD, from % WORD);
        if let Some(bit) = first_bit(*self.held.get(word)?, bit) {
            return Some(word * WORD + bit);
        }
        let word = first_bit(self.words, word + 1)?;
        Some(word * WORD + first_bit(self.held[word], 0)?)
    }

    /// Returns the units of a shelf, in no order.
    #[inline]
    pub fn units(&self, shelf: usize) -> impl Iterator<Item = UnitId> + '_ {
        let unit = |number: u16| number.checked_sub(1).map(UnitId);
        std::iter::successors(unit(self.first[shelf]), move |at| unit(self.next[at.index()]))
    }
}

/// Returns the last set bit, up to this one.
#[inline(always)]
fn last_bit(bits: u64, up_to: usize) -> Option<usize> {
    up_to.checked_sub((bits << (WORD - 1 - up_to)).leading_zeros() as usize)
}

/// Returns the first set bit, from this one on.
#[inline(always)]
fn first_bit(bits: u64, from: usize) -> Option<usize> {
    let bits = bits & u64::MAX.checked_shl(from as u32)?;
    (bits != 0).then(|| bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Shelves of units with a capacity of 3072 are 1 wide.
    fn shelves(units: usize) -> LoadIndex {
        LoadIndex::new(units, SHELVES_TO_CAPACITY as f32)
    }

    #[test]
    fn shelves_are_in_the_order_of_loads() {
        let shelves = shelves(1);
        let loads = [0.0, 0.9, 1.0, 3071.9, 3072.0, 4094.9, 4095.0, 1e9, f32::INFINITY];
        assert_eq!(loads.map(|load| shelves.of(load)), [0, 0, 1, 3071, 3072, 4094, 4095, 4095, 4095]);
    }

    proptest! {
        /// Against a list of each unit's shelf.
        #[test]
        fn units_stand_where_they_were_put(
            moves in prop::collection::vec((0u16..40, prop::option::weighted(0.8, prop_oneof![0..9usize, 0..SHELVES])), 0..200),
            limit in prop_oneof![0..9usize, 0..SHELVES],
        ) {
            let mut shelves = shelves(40);
            let mut at = [None; 40];
            for (unit, to) in moves {
                if let Some(from) = std::mem::replace(&mut at[usize::from(unit)], to) {
                    shelves.take(UnitId(unit), from);
                }
                if let Some(to) = to {
                    shelves.put(UnitId(unit), to);
                }
            }
            let used = || at.iter().flatten().copied();
            prop_assert_eq!(shelves.highest(limit), used().filter(|&shelf| shelf <= limit).max());
            prop_assert_eq!(shelves.lowest(limit), used().filter(|&shelf| shelf >= limit).min());
            for shelf in used().chain([limit]) {
                let mut units: Vec<_> = shelves.units(shelf).map(|unit| unit.index()).collect();
                units.sort_unstable();
                let there = (0..at.len()).filter(|&unit| at[unit] == Some(shelf));
                prop_assert!(units.into_iter().eq(there));
            }
        }
    }
}
