//! A bounded hash index from hashes to item numbers.
//!
//! The index stores no keys: it names candidates, and the caller compares. A bucket is one cache
//! line with seven entries. Entries that do not fit go to another bucket, at a distance given by
//! other bits of their hash. A bucket counts the entries that overflowed past it, so a lookup reads
//! one line unless that count is non-zero. All memory is flat, prefetchable and never grows.
//!
//! A flooded bucket costs others that share it one more read, as its overflow spreads over all
//! buckets. No entry is more than [`PROBES_MAX`] buckets away. An entry that would be is refused,
//! which takes chosen hashes or very bad luck.

use packet::memory::{OutOfMemory, Zeroed, equal_mask, prefetch};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SLOTS: usize = 7;

/// Entries per bucket that the index is sized for. The spare slots keep overflow rare.
const FILL: usize = 4;

/// Limit on the buckets probed for an entry.
pub const PROBES_MAX: usize = 8;

/// Tag of an empty slot.
const EMPTY: u32 = 0;

/// Seven tags and seven numbers. The eighth tag word counts the entries
/// that overflowed to a later bucket.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u32; SLOTS + 1],
    numbers: [u32; SLOTS + 1],
}

impl Bucket {
    /// Returns the slots with this tag.
    #[inline(always)]
    fn slots_with(&self, tag: u32) -> Matches {
        Matches(equal_mask(&self.tags, tag) & ((1 << (2 * SLOTS)) - 1))
    }

    /// Stores an entry in an empty slot. Returns false if there is none.
    #[inline(always)]
    fn enter(&mut self, tag: u32, number: u32) -> bool {
        let Some(slot) = self.slots_with(EMPTY).next() else { return false };
        (self.tags[slot], self.numbers[slot]) = (tag, number);
        true
    }

    /// Empties the slot of an entry. Returns false if it is not here.
    #[inline(always)]
    fn leave(&mut self, tag: u32, number: u32) -> bool {
        let found = self.slots_with(tag).find(|&slot| self.numbers[slot] == number);
        found.map(|slot| self.tags[slot] = EMPTY).is_some()
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

/// An index with a fixed capacity.
pub struct HashIndex {
    buckets: Zeroed<Bucket>,
    mask: usize,
    capacity: usize,
    len: usize,
}

/// The index is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the index is full")]
pub struct IndexFull;

impl HashIndex {
    /// Returns an index for up to `capacity` entries. Its memory is accessed at random and
    /// therefore prefaulted, see [`Zeroed::prefault`]; otherwise first packets of flows would wait
    /// for page faults.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(capacity: usize) -> Result<HashIndex, OutOfMemory> {
        let count = capacity.div_ceil(FILL).max(1).next_power_of_two();
        let mut buckets = Zeroed::new(count)?;
        buckets.prefault();
        Ok(HashIndex { buckets, mask: count - 1, capacity, len: 0 })
    }

    /// Returns the bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Checks if the index is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prefetches the bucket of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.buckets.as_ptr().wrapping_add(self.home(hash)));
    }

    /// Returns the first number under `hash` that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut at = self.home(hash);
        for _ in 0..PROBES_MAX {
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
            at = self.next(at, hash);
        }
        None
    }

    /// Returns the number of buckets that an unsuccessful lookup reads.
    pub fn probes(&self, hash: u64) -> usize {
        let mut at = self.home(hash);
        for probes in 1..PROBES_MAX {
            if self.buckets[at].passed() == 0 {
                return probes;
            }
            at = self.next(at, hash);
        }
        PROBES_MAX
    }

    /// Returns the first number under `hash` without comparing keys: right for nearly all hashes in
    /// the index.
    #[inline(always)]
    pub fn guess(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.home(hash)];
        if let Some(slot) = bucket.slots_with(tag(hash)).next() {
            return Some(bucket.numbers[slot]);
        }
        if bucket.passed() == 0 { None } else { self.guess_farther(hash) }
    }

    /// Searches the buckets after the first one.
    #[cold]
    #[inline(never)]
    fn guess_farther(&self, hash: u64) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// Inserts `number` under `hash`. A number may be in the index only once.
    ///
    /// # Errors
    /// The index is full, or all buckets that would be probed are.
    pub fn insert(&mut self, hash: u64, number: u32) -> Result<(), IndexFull> {
        if self.len >= self.capacity {
            return Err(IndexFull);
        }
        let home = self.home(hash);
        if self.buckets[home].enter(tag(hash), number) {
            self.len += 1;
            return Ok(());
        }
        self.insert_farther(hash, number)
    }

    /// Inserts into a bucket after the first one.
    #[cold]
    #[inline(never)]
    fn insert_farther(&mut self, hash: u64, number: u32) -> Result<(), IndexFull> {
        let mut at = self.home(hash);
        for passed in 1..PROBES_MAX {
            at = self.next(at, hash);
            if self.buckets[at].enter(tag(hash), number) {
                self.len += 1;
                self.pass(hash, passed, 1);
                return Ok(());
            }
        }
        Err(IndexFull)
    }

    /// Updates the overflow counts of the first `passed` buckets by `by`; `u32::MAX` decrements.
    fn pass(&mut self, hash: u64, passed: usize, by: u32) {
        let mut at = self.home(hash);
        for _ in 0..passed {
            let count = self.buckets[at].passed_mut();
            *count = count.wrapping_add(by);
            at = self.next(at, hash);
        }
    }

    /// Removes `number`, inserted under `hash`. Returns false if it was absent.
    pub fn remove(&mut self, hash: u64, number: u32) -> bool {
        let home = self.home(hash);
        let bucket = &mut self.buckets[home];
        if bucket.leave(tag(hash), number) {
            self.len -= 1;
            return true;
        }
        bucket.passed() != 0 && self.remove_farther(hash, number)
    }

    /// Removes from a bucket after the first one.
    #[cold]
    #[inline(never)]
    fn remove_farther(&mut self, hash: u64, number: u32) -> bool {
        let mut at = self.home(hash);
        for passed in 1..PROBES_MAX {
            at = self.next(at, hash);
            let bucket = &mut self.buckets[at];
            if bucket.leave(tag(hash), number) {
                self.len -= 1;
                self.pass(hash, passed, u32::MAX);
                return true;
            }
            if bucket.passed() == 0 {
                return false;
            }
        }
        false
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// Returns the next bucket: an odd step, so that it takes long to come round. The step depends
    /// on bits of the hash that do not select the home bucket.
    #[inline]
    fn next(&self, at: usize, hash: u64) -> usize {
        (at + ((hash >> 40) as usize | 1)) & self.mask
    }
}

/// Returns the part of the hash kept in the bucket; never [`EMPTY`].
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hashes of a good hash function.
    fn random(seed: &mut u64) -> u64 {
        packet::split_mix(seed)
    }

    #[test]
    fn memory_is_prefaulted() {
        use std::os::unix::fs::FileExt;
        const PAGE: usize = 4096;
        let index = HashIndex::new(1 << 20).unwrap();
        let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        let first = index.buckets.as_ptr().addr() / PAGE;
        let is_here = |page: usize| {
            let mut entry = [0; 8];
            pages.read_exact_at(&mut entry, (page * size_of::<u64>()) as u64).unwrap();
            u64::from_ne_bytes(entry) >> 63 == 1
        };
        assert!((first..first + index.memory() / PAGE).all(is_here));
    }

    #[test]
    fn full_index_refuses_none_and_reads_little() {
        let (mut index, mut seed) = (HashIndex::new(1 << 20).unwrap(), 7);
        let hashes: Vec<u64> = (0..1 << 20).map(|_| random(&mut seed)).collect();
        for (&hash, number) in hashes.iter().zip(0..) {
            assert_eq!(index.insert(hash, number), Ok(()), "{number}");
        }
        let read: usize = (0..1 << 16).map(|_| index.probes(random(&mut seed))).sum();
        assert!(read < (1 << 16) * 5 / 4, "{read} buckets for 65,536 lookups");
        for (&hash, number) in hashes.iter().zip(0..) {
            assert_eq!(index.find(hash, |found| found == number), Some(number));
            assert!(index.remove(hash, number));
        }
        assert!(index.is_empty() && index.buckets.iter().all(|bucket| bucket.passed() == 0));
    }

    /// An attacker sends only flows of one bucket: flows that share it read few more buckets, and
    /// others are not affected.
    #[test]
    fn flooded_bucket_costs_at_most_three_reads() {
        const FLOWS: usize = 1 << 16;
        const FLOOD: u32 = 4_000;
        let (mut index, mut seed) = (HashIndex::new(FLOWS).unwrap(), 7);
        let home = 5;
        let in_home = |hash: u64| hash & !0x3fff | home;
        let mut read = Vec::new();
        for number in 0..FLOOD {
            assert_eq!(index.insert(in_home(random(&mut seed)), number), Ok(()));
            read.push(index.probes(in_home(random(&mut seed))));
        }
        // One bucket each is the cost without a flood.
        let (most, all) = (*read.iter().max().unwrap(), read.iter().sum::<usize>());
        assert!(most <= 3 && all <= 3 * read.len(), "{most} at most, {all} in {}", read.len());
        let others: usize = (0..1_000).map(|_| index.probes(random(&mut seed))).sum();
        assert!(others < 1_050, "{others} buckets for 1,000 other lookups");
    }

    /// An attacker who knows the secret and chooses all bits: probing is bounded, the rest is
    /// refused.
    #[test]
    fn equal_hashes_are_bounded() {
        let mut index = HashIndex::new(1 << 16).unwrap();
        let entered =
            (0..1_000).filter(|&number| index.insert(0x1234_5678_9abc_def0, number).is_ok()).count();
        assert_eq!(entered, PROBES_MAX * SLOTS);
        assert_eq!(index.probes(0x1234_5678_9abc_def0), PROBES_MAX);
        (0..1_000).for_each(|number| assert_eq!(index.remove(0x1234_5678_9abc_def0, number), number < 56));
        assert_eq!(index.probes(0x1234_5678_9abc_def0), 1);
    }

    proptest! {
        /// Compared with a plain list, with hashes that collide in buckets and in tags.
        #[test]
        fn index_behaves_like_a_list(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u32..40), 1..400)) {
            let mut index = HashIndex::new(64).unwrap();
            let mut list: Vec<(u64, u32)> = Vec::new();
            for (insert, hash, number) in steps {
                let hash = (hash & 3) | (hash >> 2 & 7) << 33;
                if insert {
                    if list.iter().any(|&(_, there)| there == number) {
                        continue;
                    }
                    let entered = index.insert(hash, number).is_ok();
                    // Refused if there are too many entries, or too many of the same hash.
                    let alike = list.iter().filter(|&&(other, _)| other == hash).count();
                    prop_assert!(entered || list.len() >= 64 || alike >= 2 * SLOTS);
                    if entered {
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
