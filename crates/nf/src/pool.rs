//! Pools: items that flows take, share and return, such as NAT ports.
//!
//! An instance owns the items of its leased ranges, so no two instances hand out the same one.
//! Items are numbers below the pool's size, with a meaning given by the NF. An item is taken under
//! a *key*, such as a subscriber's endpoint. The key finds the item, and the item leads back to the
//! key.
//!
//! A free item costs one bit. Taken items use entries, one per possible user, reused before new
//! ones are touched: memory follows the users, not the items. Randomly accessed parts are
//! prefaulted.

use packet::memory::{OutOfMemory, Zeroed};
use packet::{FlowHasher, split_mix};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bits::{Bits, Parity};
use crate::index::HashIndex;

/// The key under which an item is taken. All zeros is no key.
pub type PoolKey = [u64; 6];

/// A pool of items.
pub struct SharedPool {
    name: &'static str,
    size: u32,
    taken: Bits,
    entries: Zeroed<PoolEntry>,
    free: Vec<u32>,
    /// Entries below this were used before.
    fresh: u32,
    by_item: HashIndex,
    by_key: HashIndex,
    hasher: FlowHasher,
    seed: u64,
    in_use: u32,
    /// Largest number of items in use at once since the start.
    peak: u32,
    exhausted: u64,
}

/// Data of a taken item. One cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct PoolEntry {
    key: PoolKey,
    /// The NF's note on the item.
    note: u64,
    users: u32,
    item: u32,
}

/// The free items that may be taken, and where the search starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// First item of the range.
    pub first: u32,
    /// Number of items in the range.
    pub count: u32,
    /// Item at which the search starts, within the range. The search wraps around.
    pub from: u32,
    /// Step of the search, at least 1; 2 keeps a port's parity (RFC 4787 REQ-4). It must divide
    /// `count` for the search to reach every item of the same residue. Steps 1 and 2 are fast
    /// however full the pool is.
    pub step: u32,
}

impl SharedPool {
    pub(crate) fn new(
        name: &'static str,
        items: u32,
        users: usize,
        seed: u64,
    ) -> Result<SharedPool, OutOfMemory> {
        let size = items.max(1);
        let users = users.min(size as usize);
        let (by_item, by_key) = (HashIndex::new(users)?, HashIndex::new(users)?);
        Ok(SharedPool {
            name,
            size,
            taken: Bits::new(size)?,
            entries: Zeroed::new(users)?,
            free: Vec::new(),
            fresh: 0,
            by_item,
            by_key,
            hasher: FlowHasher::new(seed ^ 0x706f_6f6c),
            seed: seed ^ 0x6974_656d,
            in_use: 0,
            peak: 0,
            exhausted: 0,
        })
    }

    /// Returns the name in the descriptor.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of items.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of items in use.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Returns the largest number of items in use at once.
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Returns the number of searches that found no free item.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Returns the item taken under this key.
    pub fn item_of(&self, key: &PoolKey) -> Option<u32> {
        self.entry_of(key).map(|entry| self.entries[entry].item)
    }

    /// Returns the key of a taken item.
    pub fn key_of(&self, item: u32) -> Option<&PoolKey> {
        self.entry_at(item).map(|entry| &self.entries[entry].key)
    }

    /// Checks if the item is taken. Items beyond the pool count as taken.
    pub fn is_taken(&self, item: u32) -> bool {
        self.taken.has(item)
    }

    /// Returns the taken items of a range, in order.
    pub fn taken_in(&self, first: u32, count: u32) -> impl Iterator<Item = u32> + '_ {
        self.taken.ones(first, first.saturating_add(count))
    }

    /// Checks if the range has a free item.
    pub fn has_free(&self, choice: PoolRange) -> bool {
        self.in_use < self.entries.len() as u32 && self.search(choice).is_some()
    }

    /// Adds a user to the item taken under this key, if any.
    pub fn join(&mut self, key: &PoolKey) -> Option<u32> {
        let entry = self.entry_of(key)?;
        let entry = &mut self.entries[entry];
        entry.users += 1;
        Some(entry.item)
    }

    /// Takes a free item under this key, with one user. The key must not have an item yet.
    pub fn take(&mut self, key: &PoolKey, choice: PoolRange) -> Option<u32> {
        let taken = self.search(choice).and_then(|item| Some((item, self.enter(key, item)?)));
        let Some((item, entry)) = taken else {
            self.exhausted += 1;
            return None;
        };
        self.entries[entry as usize] = PoolEntry { key: *key, note: 0, users: 1, item };
        self.taken.set(item);
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
        Some(item)
    }

    /// Takes this very item under the key, if it is free, with one user. The key must not have an
    /// item yet.
    pub fn take_item(&mut self, key: &PoolKey, item: u32) -> Option<u32> {
        self.take(key, PoolRange { first: item, count: 1, from: item, step: 1 })
    }

    /// Removes a user of the item; the last one frees it. Returns true if it was freed.
    pub fn leave(&mut self, item: u32) -> bool {
        let Some(at) = self.entry_at(item) else { return false };
        let entry = &mut self.entries[at];
        entry.users = entry.users.saturating_sub(1);
        if entry.users > 0 {
            return false;
        }
        let by_key = self.hasher.hash_words(&entry.key);
        self.by_key.remove(by_key, at as u32);
        self.by_item.remove(self.hash(item), at as u32);
        self.free.push(at as u32);
        self.taken.clear(item);
        self.in_use -= 1;
        true
    }

    /// Returns the number of users of a taken item.
    pub fn users(&self, item: u32) -> u32 {
        self.entry_at(item).map_or(0, |entry| self.entries[entry].users)
    }

    /// Returns the NF's note on a taken item, initially 0.
    pub fn note(&self, item: u32) -> u64 {
        self.entry_at(item).map_or(0, |entry| self.entries[entry].note)
    }

    /// Sets the NF's note on a taken item.
    pub fn set_note(&mut self, item: u32, note: u64) {
        if let Some(entry) = self.entry_at(item) {
            self.entries[entry].note = note;
        }
    }

    /// Returns the bytes of memory with all items in use, without the allocator's overhead.
    pub fn memory_max(&self) -> usize {
        let (bits, entries) = (self.size as usize / 8, self.entries.len());
        bits + entries * size_of::<PoolEntry>() + self.by_item.memory() + self.by_key.memory()
    }

    fn entry_of(&self, key: &PoolKey) -> Option<usize> {
        let found = self
            .by_key
            .find(self.hasher.hash_words(key), |entry| self.entries[entry as usize].key == *key)?;
        Some(found as usize)
    }

    fn entry_at(&self, item: u32) -> Option<usize> {
        if item >= self.size || !self.taken.has(item) {
            return None;
        }
        let found = self.by_item.find(self.hash(item), |entry| self.entries[entry as usize].item == item)?;
        Some(found as usize)
    }

    /// Creates an entry for an item taken under this key. `None` if all entries are in use.
    fn enter(&mut self, key: &PoolKey, item: u32) -> Option<u32> {
        let entry = match self.free.pop() {
            Some(entry) => entry,
            None if (self.fresh as usize) < self.entries.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        // Both indexes have room for all entries.
        self.by_key.insert(self.hasher.hash_words(key), entry).ok()?;
        self.by_item.insert(self.hash(item), entry).ok()?;
        Some(entry)
    }

    fn hash(&self, item: u32) -> u64 {
        split_mix(&mut (self.seed ^ u64::from(item)))
    }

    /// Returns the first free item in search order.
    fn search(&self, choice: PoolRange) -> Option<u32> {
        let step = choice.step.max(1);
        let end = choice.first.checked_add(choice.count).filter(|&end| end <= self.size)?;
        if choice.from < choice.first || choice.from >= end {
            return None;
        }
        let residue = (choice.from - choice.first) % step;
        self.scan(choice.from, end, step).or_else(|| self.scan(choice.first + residue, choice.from, step))
    }

    /// Returns the first free item of `from, from + step, ...` below `end`.
    fn scan(&self, from: u32, end: u32, step: u32) -> Option<u32> {
        let parity = match step {
            1 => Parity::Any,
            2 if from.is_multiple_of(2) => Parity::Even,
            2 => Parity::Odd,
            _ => return (from..end).step_by(step as usize).find(|&item| !self.taken.has(item)),
        };
        self.taken.next_zero(from, end, parity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(from: u32) -> PoolRange {
        PoolRange { first: 0, count: 200, from, step: 1 }
    }

    #[test]
    fn item_is_shared_by_key_and_freed_by_its_last_user() {
        let mut pool = SharedPool::new("ports", 200, 200, 1).unwrap();
        let (a, b) = ([1; 6], [2; 6]);
        assert_eq!(pool.take(&a, all(7)), Some(7));
        assert_eq!(pool.join(&a), Some(7));
        assert_eq!(pool.join(&b), None);
        assert_eq!(pool.take(&b, all(7)), Some(8));
        assert_eq!(pool.key_of(7), Some(&a));
        pool.set_note(7, 99);
        assert_eq!((pool.note(7), pool.users(7)), (99, 2));
        assert!(!pool.leave(7) && pool.leave(7) && !pool.leave(7));
        assert_eq!(pool.item_of(&a), None);
        assert_eq!(pool.in_use(), 1);
    }

    #[test]
    fn search_keeps_parity_and_stays_in_range() {
        let mut pool = SharedPool::new("ports", 200, 200, 1).unwrap();
        let odd = PoolRange { first: 100, count: 4, from: 101, step: 2 };
        assert_eq!(pool.take(&[1; 6], odd), Some(101));
        assert_eq!(pool.take(&[2; 6], odd), Some(103));
        assert_eq!(pool.take(&[3; 6], odd), None);
        assert_eq!(pool.exhausted(), 1);
        assert_eq!(pool.take(&[4; 6], PoolRange { from: 99, ..odd }), None);
        assert_eq!(pool.take(&[4; 6], PoolRange { first: 198, count: 10, from: 198, step: 1 }), None);
    }

    #[test]
    fn memory_follows_users_not_items() {
        // A /24 of external addresses, with TCP, UDP and ICMP, for 65,536 flows.
        let mut pool = SharedPool::new("ports", 3 * 256 * 65_535, 65_536, 1).unwrap();
        assert!(pool.memory_max() < 16 << 20, "{}", pool.memory_max());
        for i in 0..65_536u32 {
            let from = i * 700;
            let choice = PoolRange { first: 0, count: pool.size(), from, step: 1 };
            assert_eq!(pool.take(&[u64::from(i) + 1; 6], choice), Some(from));
        }
        assert_eq!(pool.fresh, 65_536);
        // No further user fits, and no entry leaks.
        let choice = PoolRange { first: 1, count: 10, from: 1, step: 1 };
        assert!(!pool.has_free(choice) && pool.take(&[99_999; 6], choice).is_none());
        assert!(pool.leave(700) && pool.take(&[99_999; 6], choice) == Some(1));
        assert_eq!((pool.in_use(), pool.fresh), (65_536, 65_536));
    }

    proptest! {
        #[test]
        fn each_item_is_handed_out_once(starts in prop::collection::vec(0u32..200, 1..260)) {
            let mut pool = SharedPool::new("ports", 200, 200, 1).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for (i, from) in starts.iter().enumerate() {
                let item = pool.take(&[i as u64 + 1; 6], all(*from));
                prop_assert_eq!(item.is_some(), seen.len() < 200);
                if let Some(item) = item {
                    prop_assert!(seen.insert(item));
                    if !pool.is_taken((from + 1) % 200) || item == *from { prop_assert!(pool.is_taken(*from)); }
                }
            }
        }
    }
}
