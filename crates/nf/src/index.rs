//! A bounded hash index: from a hash to the numbers of the things that have it.
//!
//! The index holds no keys: it names candidates, and the caller compares. A bucket is one cache line with seven entries;
//! entries that do not fit go to the next bucket, and a bucket counts those that passed it by, so that a look-up
//! reads one line unless that count says otherwise. Everything is a flat array, prefetchable, and never grows.

use packet::memory::{OutOfMemory, Zeroed, equal_mask, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SLOTS: usize = 7;

/// Entries per bucket that the index is sized for; the rest keeps overflow rare.
const FILL: usize = 4;

/// Seven tags and seven numbers; a tag of 0 is an empty slot. The eighth word of the first half counts the entries whose
/// home is this bucket or one before, and that stand in a later one.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u32; SLOTS + 1],
    numbers: [u32; SLOTS + 1],
}

impl Bucket {
    /// The slots with this tag.
    #[inline(always)]
    fn slots_with(&self, tag: u32) -> Matches {
        Matches(equal_mask(&self.tags, tag) & ((1 << (2 * SLOTS)) - 1))
    }

    #[inline(always)]
    fn passed(&self) -> u32 {
        self.tags[SLOTS]
    }

    #[inline(always)]
    fn passed_mut(&mut self) -> &mut u32 {
        &mut self.tags[SLOTS]
    }
}

/// Slots of a bucket, two bits each.
struct Matches(u32);

impl Iterator for Matches {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize / 2 % (SLOTS + 1);
        self.0 &= !(3 << (2 * slot));
        Some(slot)
    }
}

/// An index of up to a fixed number of entries.
pub struct Index {
    buckets: Zeroed<Bucket>,
    mask: usize,
    capacity: usize,
    len: usize,
}

/// The index is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the index is full")]
pub struct IndexFull;

impl Index {
    /// An index for up to `capacity` entries.
    pub fn new(capacity: usize) -> Result<Index, OutOfMemory> {
        let count = capacity.div_ceil(FILL).max(1).next_power_of_two();
        Ok(Index { buckets: Zeroed::new(count)?, mask: count - 1, capacity, len: 0 })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Asks for the bucket of `hash` to be brought into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.buckets.as_ptr().wrapping_add(self.home(hash)));
    }

    /// The first number under `hash` that the caller says is the one.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut at = self.home(hash);
        loop {
            let bucket = &self.buckets[at];
            for slot in bucket.slots_with(tag) {
                let number = bucket.numbers[slot];
                if is_it(number) {
                    return Some(number);
                }
            }
            if bucket.passed() == 0 {
                return None;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The first number under `hash`, without a comparison: a guess, right for nearly all hashes that are there.
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<u32> {
        let tag = tag(hash);
        let bucket = &self.buckets[self.home(hash)];
        if let Some(slot) = bucket.slots_with(tag).next() {
            return Some(bucket.numbers[slot]);
        }
        if bucket.passed() == 0 { None } else { self.find(hash, |_| true) }
    }

    /// Enters `number` under `hash`. A number may stand in the index only once.
    pub fn insert(&mut self, hash: u64, number: u32) -> Result<(), IndexFull> {
        if self.len >= self.capacity {
            return Err(IndexFull);
        }
        let mut at = self.home(hash);
        // There is a free slot: slots outnumber the capacity (FILL < SLOTS).
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.tags[..SLOTS].iter().position(|&tag| tag == 0) {
                bucket.tags[slot] = tag(hash);
                bucket.numbers[slot] = number;
                self.len += 1;
                return Ok(());
            }
            *bucket.passed_mut() += 1;
            at = (at + 1) & self.mask;
        }
    }

    /// Takes `number`, entered under `hash`, away; whether it was there.
    pub fn remove(&mut self, hash: u64, number: u32) -> bool {
        let tag = tag(hash);
        let home = self.home(hash);
        let mut at = home;
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = (0..SLOTS).find(|&s| bucket.tags[s] == tag && bucket.numbers[s] == number) {
                bucket.tags[slot] = 0;
                break;
            }
            if bucket.passed() == 0 {
                return false;
            }
            at = (at + 1) & self.mask;
        }
        let mut passed = home;
        while passed != at {
            *self.buckets[passed].passed_mut() -= 1;
            passed = (passed + 1) & self.mask;
        }
        self.len -= 1;
        true
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }
}

/// The part of the hash that is kept in the bucket; never 0.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list, with hashes that collide in buckets and in tags.
        #[test]
        fn is_like_a_list(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u32..40), 1..400)) {
            let mut index = Index::new(64).unwrap();
            let mut list: Vec<(u64, u32)> = Vec::new();
            for (insert, hash, number) in steps {
                let hash = (hash & 3) | (hash >> 2 & 7) << 33;
                if insert {
                    if list.iter().any(|&(_, there)| there == number) {
                        continue;
                    }
                    prop_assert_eq!(index.insert(hash, number).is_ok(), list.len() < 64);
                    if list.len() < 64 {
                        list.push((hash, number));
                    }
                } else {
                    let there = list.iter().position(|&(_, there)| there == number);
                    let hash = there.map_or(hash, |i| list[i].0);
                    prop_assert_eq!(index.remove(hash, number), there.is_some());
                    there.map(|i| list.swap_remove(i));
                }
                prop_assert_eq!(index.len(), list.len());
                for &(h, n) in &list {
                    prop_assert_eq!(index.find(h, |found| found == n), Some(n));
                    prop_assert!(index.guess(h).is_some());
                }
            }
        }
    }
}
