//! Pools: items that flows take, share and give back, such as NAT ports.
//!
//! An instance owns the items of the ranges that it leased, so that no two instances hand out the same one. Items are
//! numbers below the pool's size; what a number stands for is the function's affair. Whoever takes an item does so in the
//! name of a *key* (a subscriber's endpoint, say), under which it is found again and which the item leads back to.

use packet::FlowHasher;
use packet::memory::{OutOfMemory, Zeroed};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::Index;

/// In whose name an item is taken. All zeros is no key.
pub type PoolKey = [u64; 6];

/// A pool of items.
pub struct Pool {
    name: &'static str,
    slots: Zeroed<Slot>,
    /// One bit per item: taken.
    taken: Vec<u64>,
    by_key: Index,
    hasher: FlowHasher,
    in_use: u32,
    /// Items taken at once, at most, since the start.
    peak: u32,
    exhausted: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Slot {
    key: PoolKey,
    /// What the function notes beside the item.
    note: u64,
    users: u32,
    spare: u32,
}

/// Which free item to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The first item that may be taken.
    pub first: u32,
    /// How many items from there may be taken.
    pub count: u32,
    /// Where the search starts: this one if it is free, else the next free one, round and round. Within the range.
    pub from: u32,
    /// The search goes in steps of this, so that 2 keeps a port's parity (RFC 4787 REQ-4). At least 1; it divides `count`
    /// wherever the search is to reach every item of its residue.
    pub step: u32,
}

impl Pool {
    pub(crate) fn new(name: &'static str, items: u32, users: usize, seed: u64) -> Result<Pool, OutOfMemory> {
        Ok(Pool {
            name,
            slots: Zeroed::new(items as usize)?,
            taken: vec![0; (items as usize).div_ceil(64)],
            by_key: Index::new(users.min(items as usize))?,
            hasher: FlowHasher::new(seed ^ 0x706f_6f6c),
            in_use: 0,
            peak: 0,
            exhausted: 0,
        })
    }

    /// Its name in the descriptor.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many items there are.
    pub fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    /// How many are taken.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// How many were taken at once, at most.
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// How many times nothing free was found.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// The item that is taken in this name.
    pub fn item_of(&self, key: &PoolKey) -> Option<u32> {
        self.by_key.find(self.hasher.hash_words(key), |item| self.slots[item as usize].key == *key)
    }

    /// In whose name the item is taken, if it is.
    pub fn key_of(&self, item: u32) -> Option<&PoolKey> {
        self.is_taken(item).then(|| &self.slots[item as usize].key)
    }

    /// Whether the item is taken. One beyond the pool is, in effect.
    pub fn is_taken(&self, item: u32) -> bool {
        match self.taken.get(item as usize / 64) {
            Some(word) if item < self.size() => word >> (item % 64) & 1 == 1,
            _ => true,
        }
    }

    /// One more user of the item that is taken in this name, if one is.
    pub fn join(&mut self, key: &PoolKey) -> Option<u32> {
        let item = self.item_of(key)?;
        self.slots[item as usize].users += 1;
        Some(item)
    }

    /// Takes a free item in this name, with one user. The name must not have one yet.
    pub fn take(&mut self, key: &PoolKey, choice: Choice) -> Option<u32> {
        let Some(item) = self.search(choice) else {
            self.exhausted += 1;
            return None;
        };
        if self.by_key.insert(self.hasher.hash_words(key), item).is_err() {
            self.exhausted += 1;
            return None;
        }
        self.taken[item as usize / 64] |= 1 << (item % 64);
        self.slots[item as usize] = Slot { key: *key, note: 0, users: 1, spare: 0 };
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
        Some(item)
    }

    /// One user fewer; the last one frees the item. Whether it was freed.
    pub fn leave(&mut self, item: u32) -> bool {
        if !self.is_taken(item) {
            return false;
        }
        let slot = &mut self.slots[item as usize];
        slot.users = slot.users.saturating_sub(1);
        if slot.users > 0 {
            return false;
        }
        let hash = self.hasher.hash_words(&slot.key);
        self.by_key.remove(hash, item);
        self.taken[item as usize / 64] &= !(1 << (item % 64));
        self.in_use -= 1;
        true
    }

    /// How many users a taken item has.
    pub fn users(&self, item: u32) -> u32 {
        if self.is_taken(item) { self.slots.get(item as usize).map_or(0, |slot| slot.users) } else { 0 }
    }

    /// What the function noted beside a taken item; 0 at first.
    pub fn note(&self, item: u32) -> u64 {
        if self.is_taken(item) { self.slots.get(item as usize).map_or(0, |slot| slot.note) } else { 0 }
    }

    /// Notes something beside a taken item.
    pub fn set_note(&mut self, item: u32, note: u64) {
        if self.is_taken(item) && item < self.size() {
            self.slots[item as usize].note = note;
        }
    }

    /// The first free item in the order that the choice says.
    fn search(&self, choice: Choice) -> Option<u32> {
        let step = choice.step.max(1);
        let end = choice.first.checked_add(choice.count).filter(|&end| end <= self.size())?;
        if choice.from < choice.first || choice.from >= end {
            return None;
        }
        let residue = (choice.from - choice.first) % step;
        self.scan(choice.from, end, step).or_else(|| self.scan(choice.first + residue, choice.from, step))
    }

    /// The first free item of `from, from + step, ...` below `end`; whole words of taken items are skipped at once.
    fn scan(&self, from: u32, end: u32, step: u32) -> Option<u32> {
        let mut item = from;
        while item < end {
            let word = self.taken[item as usize / 64];
            if word == u64::MAX {
                let next = (item / 64 + 1) * 64;
                item += (next - item).next_multiple_of(step);
                continue;
            }
            if word >> (item % 64) & 1 == 0 {
                return Some(item);
            }
            item += step;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(from: u32) -> Choice {
        Choice { first: 0, count: 200, from, step: 1 }
    }

    #[test]
    fn an_item_is_shared_by_name_and_freed_by_its_last_user() {
        let mut pool = Pool::new("ports", 200, 200, 1).unwrap();
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
    fn parity_is_kept_and_ranges_are_not_left() {
        let mut pool = Pool::new("ports", 200, 200, 1).unwrap();
        let odd = Choice { first: 100, count: 4, from: 101, step: 2 };
        assert_eq!(pool.take(&[1; 6], odd), Some(101));
        assert_eq!(pool.take(&[2; 6], odd), Some(103));
        assert_eq!(pool.take(&[3; 6], odd), None);
        assert_eq!(pool.exhausted(), 1);
        assert_eq!(pool.take(&[4; 6], Choice { from: 99, ..odd }), None);
        assert_eq!(pool.take(&[4; 6], Choice { first: 198, count: 10, from: 198, step: 1 }), None);
    }

    proptest! {
        #[test]
        fn hands_out_each_item_once(starts in prop::collection::vec(0u32..200, 1..260)) {
            let mut pool = Pool::new("ports", 200, 200, 1).unwrap();
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
