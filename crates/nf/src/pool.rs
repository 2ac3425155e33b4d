//! Pools: items that flows take, share and return, such as NAT ports.
//!
//! An instance owns the items of its leased ranges, so no two instances hand out the same one.
//! Items are numbers below the pool's size, with a meaning given by the NF. An item is taken under
//! a *key*, such as a subscriber's endpoint. The key finds the item, and the item leads back to the
//! key.
//!
//! An item may be *held* after its last user has left: until the hold ends, only its last key gets
//! it. Other keys get it before that only if the NF finds no free item and accepts held ones.
//!
//! A free item costs one bit, or two in a pool with holds. Taken and held items use entries, one
//! per possible user, reused before new ones are touched: memory follows the users, not the items.
//! Randomly accessed parts are prefaulted.

use std::collections::VecDeque;

use packet::memory::{OutOfMemory, Zeroed};
use packet::{FlowHasher, split_mix};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bits::{Bits, Parity};
use crate::index::HashIndex;

/// The key under which an item is taken. All zeros is no key.
pub type PoolKey = [u64; 6];

/// A key that was looked up in a pool, so that the steps of one decision search for it once. The
/// result is valid until the pool gives the item to another key.
#[derive(Clone, Copy)]
pub struct KeyLookup<'k> {
    key: &'k PoolKey,
    hash: u64,
    /// Number of the entry with this key.
    entry: Option<u32>,
    note: u64,
}

impl KeyLookup<'_> {
    /// Sets the note that an item gets when it is taken, see [`SharedPool::note`].
    pub fn with_note(self, note: u64) -> Self {
        KeyLookup { note, ..self }
    }
}

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
    holds: Option<Holds>,
}

/// Time and number of the items that a pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// Length of a hold in nanoseconds; 0: none are held.
    pub ns: u64,
    /// Limit on the held items; beyond it, the oldest hold ends. 0: none are held.
    pub max: u32,
}

/// Held items.
struct Holds {
    ns: u64,
    /// The latest time that the pool knows.
    now_ns: u64,
    /// Items in use or held.
    unavailable: Bits,
    /// The holds in the order of their begin and end, with some that have ended early.
    queue: VecDeque<Hold>,
    /// Limit on the active holds.
    max: usize,
    /// When the latest hold ends. No two end at the same time, so that this identifies them.
    last_ns: u64,
    held: u32,
    cut: u64,
}

/// A hold that lasts until this time. It has ended early if its entry says otherwise.
#[derive(Clone, Copy)]
struct Hold {
    until_ns: u64,
    entry: u32,
}

impl Hold {
    /// Returns false if it has ended early.
    fn goes_on(self, entries: &Zeroed<PoolEntry>) -> bool {
        let PoolEntry { users, item, note, .. } = entries[self.entry as usize];
        users == 0 && item != NO_ITEM && note == self.until_ns
    }
}

/// Data of a taken or held item. One cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct PoolEntry {
    key: PoolKey,
    /// The NF's note on the item; of a held one, the time in nanoseconds when its hold ends.
    note: u64,
    /// 0: the item is held.
    users: u32,
    /// [`NO_ITEM`] if the entry is free.
    item: u32,
}

/// No item: pools are smaller.
const NO_ITEM: u32 = u32::MAX;

/// Holds that one call of [`SharedPool::end_holds`] ends at most. Each taken item leaves one.
const ENDED_MAX: usize = 16;

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
        hold: HoldDown,
        seed: u64,
    ) -> Result<SharedPool, OutOfMemory> {
        let size = items.max(1);
        let users = users.min(size as usize);
        let (by_item, by_key) = (HashIndex::new(users)?, HashIndex::new(users)?);
        let holds = match hold {
            HoldDown { ns: 0, .. } | HoldDown { max: 0, .. } => None,
            HoldDown { ns, max } => Some(Holds {
                ns,
                now_ns: 0,
                unavailable: Bits::new(size)?,
                queue: VecDeque::with_capacity(2 * users.min(max as usize)),
                max: users.min(max as usize),
                last_ns: 0,
                held: 0,
                cut: 0,
            }),
        };
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
            holds,
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

    /// Returns the number of held items.
    pub fn held(&self) -> u32 {
        self.holds.as_ref().map_or(0, |holds| holds.held)
    }

    /// Returns the number of holds that ended early, since no other item was free.
    pub fn holds_cut(&self) -> u64 {
        self.holds.as_ref().map_or(0, |holds| holds.cut)
    }

    /// Looks a key up.
    pub fn look_up<'k>(&self, key: &'k PoolKey) -> KeyLookup<'k> {
        let hash = self.hasher.hash_words(key);
        let entry = self.by_key.find(hash, |entry| self.entries[entry as usize].key == *key);
        KeyLookup { key, hash, entry, note: 0 }
    }

    /// Returns the item taken under this key.
    pub fn item_of(&self, key: &PoolKey) -> Option<u32> {
        self.item_under(self.look_up(key))
    }

    /// Returns the item taken under a key that was looked up.
    pub fn item_under(&self, found: KeyLookup<'_>) -> Option<u32> {
        let entry = self.entry_under(found)?;
        (entry.users > 0).then_some(entry.item)
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

    /// Returns the item held for this key.
    pub fn held_for(&self, found: KeyLookup<'_>) -> Option<u32> {
        let entry = self.entry_under(found)?;
        (entry.users == 0).then_some(entry.item)
    }

    /// Checks if the item is in use or held. Items beyond the pool are in use.
    pub fn is_unavailable(&self, item: u32) -> bool {
        let is_held = |holds: &Holds| {
            let entry = holds.unavailable.has(item).then(|| self.any_entry_at(item)).flatten();
            entry.is_some_and(|entry| self.entries[entry].note > holds.now_ns)
        };
        self.taken.has(item) || self.holds.as_ref().is_some_and(is_held)
    }

    /// Checks if the range has an item that is not in use; it may be held.
    pub fn has_free(&self, choice: PoolRange) -> bool {
        self.in_use < self.entries.len() as u32 && search(&self.taken, choice).is_some()
    }

    /// Adds a user to the item taken under this key, if any.
    pub fn join(&mut self, found: KeyLookup<'_>) -> Option<u32> {
        self.item_under(found)?;
        let entry = &mut self.entries[found.entry? as usize];
        entry.users += 1;
        Some(entry.item)
    }

    /// Takes an item of the range that is neither in use nor held, under this key, with one user.
    /// The key must not have an item yet.
    pub fn take(&mut self, key: KeyLookup<'_>, choice: PoolRange) -> Option<u32> {
        let unavailable = self.holds.as_ref().map_or(&self.taken, |holds| &holds.unavailable);
        let item = search(unavailable, choice);
        self.take_found(key, item)
    }

    /// Takes an item like [`SharedPool::take`], also one held for another key.
    pub fn take_any(&mut self, key: KeyLookup<'_>, choice: PoolRange) -> Option<u32> {
        let item = search(&self.taken, choice);
        self.take_found(key, item)
    }

    /// Takes this very item under the key, if it is not in use, with one user. The key must not
    /// have an item yet.
    pub fn take_item(&mut self, key: KeyLookup<'_>, item: u32) -> Option<u32> {
        self.take_any(key, PoolRange { first: item, count: 1, from: item, step: 1 })
    }

    /// Removes a user of the item; the last one frees it. Returns true if it was freed.
    pub fn leave(&mut self, item: u32) -> bool {
        self.remove_user(item).is_some_and(|entry| {
            self.free_entry(entry);
            true
        })
    }

    /// Removes a user like [`SharedPool::leave`], but holds the item of the last user, if the pool
    /// has holds. Beyond the limit on held items, the oldest hold ends.
    pub fn leave_held(&mut self, item: u32, now_ns: u64) -> bool {
        let Some(entry) = self.remove_user(item) else { return false };
        if self.holds.as_ref().is_some_and(|holds| holds.held as usize == holds.max) {
            self.end_oldest_hold();
        }
        match &mut self.holds {
            None => self.free_entry(entry),
            Some(holds) => {
                holds.now_ns = holds.now_ns.max(now_ns);
                let until_ns = (holds.now_ns + holds.ns).max(holds.last_ns + 1);
                if holds.queue.len() == 2 * holds.max {
                    // At least half of them have ended early.
                    holds.queue.retain(|hold| hold.goes_on(&self.entries));
                }
                holds.queue.push_back(Hold { until_ns, entry });
                (holds.last_ns, holds.held) = (until_ns, holds.held + 1);
                self.entries[entry as usize].note = until_ns;
            }
        }
        true
    }

    /// Ends expired holds, the oldest first. Called before each item is taken, it ends more holds
    /// than begin.
    pub fn end_holds(&mut self, now_ns: u64) {
        let Some(holds) = &mut self.holds else { return };
        holds.now_ns = holds.now_ns.max(now_ns);
        for _ in 0..ENDED_MAX {
            let oldest = self.holds.as_ref().and_then(|holds| holds.queue.front());
            if oldest.is_none_or(|hold| hold.until_ns > now_ns) {
                return;
            }
            self.pop_hold();
        }
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
        let holds = self.holds.as_ref().map_or(0, |holds| bits + 2 * holds.max * size_of::<Hold>());
        bits + holds + entries * size_of::<PoolEntry>() + self.by_item.memory() + self.by_key.memory()
    }

    /// Returns the entry of a key, taken or held, if it still is that key's.
    fn entry_under(&self, found: KeyLookup<'_>) -> Option<&PoolEntry> {
        let entry = &self.entries[found.entry? as usize];
        (entry.item != NO_ITEM && entry.key == *found.key).then_some(entry)
    }

    fn entry_at(&self, item: u32) -> Option<usize> {
        if item >= self.size || !self.taken.has(item) {
            return None;
        }
        self.any_entry_at(item)
    }

    /// Returns the entry of an item that is in use or held.
    fn any_entry_at(&self, item: u32) -> Option<usize> {
        let found = self.by_item.find(self.hash(item), |entry| self.entries[entry as usize].item == item)?;
        Some(found as usize)
    }

    /// Takes an item that is not in use.
    fn take_found(&mut self, key: KeyLookup<'_>, item: Option<u32>) -> Option<u32> {
        let taken = item.and_then(|item| Some((item, self.enter(key, item)?)));
        let Some((item, entry)) = taken else {
            self.exhausted += 1;
            return None;
        };
        self.entries[entry as usize] = PoolEntry { key: *key.key, note: key.note, users: 1, item };
        self.taken.set(item);
        if let Some(holds) = &mut self.holds {
            holds.unavailable.set(item);
        }
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
        Some(item)
    }

    /// Creates an entry for an item taken under this key. `None` if all entries are in use.
    fn enter(&mut self, key: KeyLookup<'_>, item: u32) -> Option<u32> {
        self.leave_hold(key, item);
        let entry = match self.free.pop() {
            Some(entry) => entry,
            None if (self.fresh as usize) < self.entries.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => {
                self.end_oldest_hold();
                self.free.pop()?
            }
        };
        // Both indexes have room for all entries.
        self.by_key.insert(key.hash, entry).ok()?;
        self.by_item.insert(self.hash(item), entry).ok()?;
        Some(entry)
    }

    /// Ends the item's hold. A hold of another item for the new key continues without that key.
    fn leave_hold(&mut self, key: KeyLookup<'_>, item: u32) {
        if self.holds.as_ref().is_some_and(|holds| holds.unavailable.has(item))
            && let Some(entry) = self.any_entry_at(item)
        {
            self.end_hold(entry as u32, self.entries[entry].key != *key.key);
        }
        if self.entry_under(key).is_some()
            && let Some(entry) = key.entry
        {
            self.by_key.remove(key.hash, entry);
        }
    }

    /// Removes a user of the item. Returns its entry if that was the last one: it has no item in
    /// use any more.
    fn remove_user(&mut self, item: u32) -> Option<u32> {
        let at = self.entry_at(item)?;
        let entry = &mut self.entries[at];
        entry.users = entry.users.saturating_sub(1);
        if entry.users > 0 {
            return None;
        }
        self.taken.clear(item);
        self.in_use -= 1;
        Some(at as u32)
    }

    /// Ends the oldest active hold.
    fn end_oldest_hold(&mut self) {
        while self.pop_hold() == Some(false) {}
    }

    /// Removes the first hold of the queue, if there is one, and ends it. Returns false if it has
    /// ended early.
    fn pop_hold(&mut self) -> Option<bool> {
        let hold = self.holds.as_mut()?.queue.pop_front()?;
        let goes_on = hold.goes_on(&self.entries);
        if goes_on {
            self.end_hold(hold.entry, true);
        }
        Some(goes_on)
    }

    /// Ends a hold. `is_cut`: count it as cut short if it is active now.
    fn end_hold(&mut self, entry: u32, is_cut: bool) {
        if let Some(holds) = &mut self.holds {
            holds.held -= 1;
            holds.cut += u64::from(is_cut && self.entries[entry as usize].note > holds.now_ns);
        }
        self.free_entry(entry);
    }

    /// Frees the entry of an item without users, and the item.
    fn free_entry(&mut self, entry: u32) {
        let PoolEntry { key, item, .. } = self.entries[entry as usize];
        self.by_key.remove(self.hasher.hash_words(&key), entry);
        self.by_item.remove(self.hash(item), entry);
        self.entries[entry as usize].item = NO_ITEM;
        self.free.push(entry);
        if let Some(holds) = &mut self.holds {
            holds.unavailable.clear(item);
        }
    }

    fn hash(&self, item: u32) -> u64 {
        split_mix(&mut (self.seed ^ u64::from(item)))
    }
}

/// Returns the first item in search order with a zero bit.
fn search(bits: &Bits, choice: PoolRange) -> Option<u32> {
    let step = choice.step.max(1);
    let end = choice.first.checked_add(choice.count).filter(|&end| end <= bits.len())?;
    if choice.from < choice.first || choice.from >= end {
        return None;
    }
    let residue = (choice.from - choice.first) % step;
    let rest = || scan(bits, choice.first + residue, choice.from, step);
    scan(bits, choice.from, end, step).or_else(rest)
}

/// Returns the first item of `from, from + step, ...` below `end` with a zero bit.
fn scan(bits: &Bits, from: u32, end: u32, step: u32) -> Option<u32> {
    let parity = match step {
        1 => Parity::Any,
        2 if from.is_multiple_of(2) => Parity::Even,
        2 => Parity::Odd,
        _ => return (from..end).step_by(step as usize).find(|&item| !bits.has(item)),
    };
    bits.next_zero(from, end, parity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: HoldDown = HoldDown { ns: 0, max: 0 };

    fn all(from: u32) -> PoolRange {
        PoolRange { first: 0, count: 200, from, step: 1 }
    }

    #[test]
    fn item_is_shared_by_key_and_freed_by_its_last_user() {
        let mut pool = SharedPool::new("ports", 200, 200, NONE, 1).unwrap();
        let (a, b) = ([1; 6], [2; 6]);
        assert_eq!(pool.take(pool.look_up(&a), all(7)), Some(7));
        assert_eq!(pool.join(pool.look_up(&a)), Some(7));
        assert_eq!(pool.join(pool.look_up(&b)), None);
        assert_eq!(pool.take(pool.look_up(&b), all(7)), Some(8));
        assert_eq!(pool.key_of(7), Some(&a));
        pool.set_note(7, 99);
        assert_eq!((pool.note(7), pool.users(7)), (99, 2));
        assert!(!pool.leave(7) && pool.leave(7) && !pool.leave(7));
        assert_eq!(pool.item_of(&a), None);
        assert_eq!(pool.in_use(), 1);
    }

    #[test]
    fn search_keeps_parity_and_stays_in_range() {
        let mut pool = SharedPool::new("ports", 200, 200, NONE, 1).unwrap();
        let odd = PoolRange { first: 100, count: 4, from: 101, step: 2 };
        assert_eq!(pool.take(pool.look_up(&[1; 6]), odd), Some(101));
        assert_eq!(pool.take(pool.look_up(&[2; 6]), odd), Some(103));
        assert_eq!(pool.take(pool.look_up(&[3; 6]), odd), None);
        assert_eq!(pool.exhausted(), 1);
        assert_eq!(pool.take(pool.look_up(&[4; 6]), PoolRange { from: 99, ..odd }), None);
        assert_eq!(
            pool.take(pool.look_up(&[4; 6]), PoolRange { first: 198, count: 10, from: 198, step: 1 }),
            None
        );
    }

    #[test]
    fn memory_follows_users_not_items() {
        // A /24 of external addresses, with TCP, UDP and ICMP, for 65,536 flows.
        let mut pool = SharedPool::new("ports", 3 * 256 * 65_535, 65_536, NONE, 1).unwrap();
        assert!(pool.memory_max() < 16 << 20, "{}", pool.memory_max());
        for i in 0..65_536u32 {
            let from = i * 700;
            let choice = PoolRange { first: 0, count: pool.size(), from, step: 1 };
            assert_eq!(pool.take(pool.look_up(&[u64::from(i) + 1; 6]), choice), Some(from));
        }
        assert_eq!(pool.fresh, 65_536);
        // No further user fits, and no entry leaks.
        let choice = PoolRange { first: 1, count: 10, from: 1, step: 1 };
        assert!(!pool.has_free(choice) && pool.take(pool.look_up(&[99_999; 6]), choice).is_none());
        assert!(pool.leave(700) && pool.take(pool.look_up(&[99_999; 6]), choice) == Some(1));
        assert_eq!((pool.in_use(), pool.fresh), (65_536, 65_536));
    }

    /// Returns a pool of ten items for this many users that holds up to three items for 100 ns.
    fn holding(users: usize) -> SharedPool {
        SharedPool::new("ports", 10, users, HoldDown { ns: 100, max: 3 }, 1).unwrap()
    }

    const TEN: PoolRange = PoolRange { first: 0, count: 10, from: 4, step: 1 };

    #[test]
    fn held_item_goes_to_its_last_key_alone() {
        let mut pool = holding(8);
        let (a, b) = ([1; 6], [2; 6]);
        assert_eq!(pool.take(pool.look_up(&a), TEN), Some(4));
        assert!(pool.leave_held(4, 1_000));
        assert_eq!((pool.in_use(), pool.held(), pool.held_for(pool.look_up(&a))), (0, 1, Some(4)));
        // It has no user.
        assert_eq!((pool.item_of(&a), pool.join(pool.look_up(&a)), pool.users(4)), (None, None, 0));
        assert!(pool.key_of(4).is_none());
        assert!(!pool.leave(4) && !pool.leave_held(4, 1_000) && pool.is_unavailable(4));
        assert_eq!(pool.take(pool.look_up(&b), TEN), Some(5));
        // Its key has it again, or another one.
        assert_eq!(pool.take_item(pool.look_up(&a), 4), Some(4));
        assert_eq!((pool.held(), pool.in_use(), pool.holds_cut()), (0, 2, 0));
        assert!(pool.leave_held(4, 1_010));
        assert_eq!(pool.take(pool.look_up(&a), TEN), Some(6));
        assert_eq!((pool.held(), pool.item_of(&a), pool.held_for(pool.look_up(&a))), (1, Some(6), None));
        // The first hold ended at 1,100; the second one lasts until 1,110.
        pool.end_holds(1_109);
        assert!(pool.is_unavailable(4) && pool.held() == 1);
        pool.end_holds(1_110);
        assert!(!pool.is_unavailable(4) && pool.held() == 0);
        assert_eq!((pool.take(pool.look_up(&[3; 6]), TEN), pool.item_of(&a)), (Some(4), Some(6)));
        assert_eq!(pool.holds_cut(), 0);
    }

    #[test]
    fn holds_give_way() {
        let mut pool = holding(8);
        let key = |i: u64| [i + 1; 6];
        for i in 0..4 {
            assert!(pool.take(pool.look_up(&key(i)), TEN).is_some());
        }
        for item in 4..8 {
            pool.leave_held(item, 1_000 + u64::from(item));
        }
        assert_eq!((pool.held(), pool.holds_cut()), (3, 1), "at most three");
        assert_eq!(pool.take(pool.look_up(&key(20)), TEN), Some(4), "the oldest");
        // Six more can be taken, but no entry is left for the last.
        for i in 21..25 {
            assert!(pool.take(pool.look_up(&key(i)), TEN).is_some());
        }
        assert_eq!((pool.in_use(), pool.held(), pool.holds_cut()), (5, 3, 1));
        assert_eq!(pool.take(pool.look_up(&key(25)), TEN), Some(2));
        assert_eq!((pool.in_use(), pool.held(), pool.holds_cut()), (6, 2, 2), "an entry was needed");
        assert!(pool.has_free(TEN), "items that are held are free");
        let held = PoolRange { first: 6, count: 2, from: 6, step: 1 };
        assert_eq!(pool.take(pool.look_up(&key(26)), held), None);
        assert_eq!(pool.take_any(pool.look_up(&key(26)), held), Some(6));
        assert_eq!((pool.held(), pool.holds_cut()), (1, 3));
        // An expired hold is not cut.
        pool.end_holds(1_000);
        assert_eq!(pool.held(), 1);
        pool.end_holds(2_000);
        assert_eq!((pool.held(), pool.holds_cut()), (0, 3));
        assert_eq!(pool.take(pool.look_up(&key(27)), TEN), Some(5));
    }

    proptest! {
        /// Compared with lists of used items, and of held ones with their ends.
        #[test]
        fn holds_agree_with_lists(
            entries in 7usize..11,
            steps in prop::collection::vec((0u8..5, 0u64..12, 0u64..60), 1..120),
        ) {
            let mut pool = holding(entries);
            let (mut used, mut held) = (Vec::<(u32, u64)>::new(), Vec::<(u32, u64, u64)>::new());
            let mut last_ns = 0;
            let mut now_ns = 1_000;
            for (what, key, passed_ns) in steps {
                now_ns += passed_ns;
                let name = [key + 1; 6];
                pool.end_holds(now_ns);
                held.retain(|&(_, _, until_ns)| until_ns > now_ns);
                match used.iter().position(|&(_, of)| of == key) {
                    Some(at) => {
                        let (item, _) = used.remove(at);
                        if what == 0 {
                            prop_assert!(pool.leave(item));
                        } else {
                            prop_assert!(pool.leave_held(item, now_ns));
                            last_ns = (now_ns + 100).max(last_ns + 1);
                            held.push((item, key, last_ns));
                            if held.len() > 3 {
                                held.remove(0);
                            }
                        }
                    }
                    None if used.len() < entries => {
                        let own = held.iter().find(|&&(_, of, _)| of == key).map(|&(item, ..)| item);
                        prop_assert_eq!(pool.held_for(pool.look_up(&name)), own);
                        let taken = match own {
                            Some(item) if what > 2 => pool.take_item(pool.look_up(&name), item),
                            _ => pool.take(pool.look_up(&name), TEN).or_else(|| pool.take_any(pool.look_up(&name), TEN)),
                        };
                        let item = taken.unwrap();
                        prop_assert!(used.iter().all(|&(of, _)| of != item));
                        let was_held = held.iter().any(|&(of, ..)| of == item);
                        prop_assert!(!was_held || own == Some(item) && what > 2 || used.len() + held.len() == 10);
                        held.retain(|&(of, ..)| of != item);
                        // An entry for each.
                        if used.len() + 1 + held.len() > entries {
                            held.remove(0);
                        }
                        held.iter_mut().filter(|(_, of, _)| *of == key).for_each(|(_, of, _)| *of = 99);
                        used.push((item, key));
                    }
                    None => {}
                }
                prop_assert_eq!((pool.in_use() as usize, pool.held() as usize), (used.len(), held.len()));
                for item in 0..10 {
                    let of = used.iter().find(|&&(of, _)| of == item).map(|&(_, key)| [key + 1; 6]);
                    prop_assert_eq!(pool.key_of(item), of.as_ref());
                    let is_held = held.iter().any(|&(of, ..)| of == item);
                    prop_assert_eq!(pool.is_unavailable(item), of.is_some() || is_held);
                }
            }
        }

        #[test]
        fn each_item_is_handed_out_once(starts in prop::collection::vec(0u32..200, 1..260)) {
            let mut pool = SharedPool::new("ports", 200, 200, NONE, 1).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for (i, from) in starts.iter().enumerate() {
                let item = pool.take(pool.look_up(&[i as u64 + 1; 6]), all(*from));
                prop_assert_eq!(item.is_some(), seen.len() < 200);
                if let Some(item) = item {
                    prop_assert!(seen.insert(item));
                    if !pool.is_taken((from + 1) % 200) || item == *from { prop_assert!(pool.is_taken(*from)); }
                }
            }
        }
    }
}
