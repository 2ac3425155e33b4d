//! Meters: small values by key that flows share, such as a subscriber's token bucket.
//!
//! Meters belong to an instance, or are shared by instances on several threads (see
//! [`crate::SharedHandle`]), as a pool's items are. Across machines, each instance must hold a
//! share of the allowance (design.md 3.7).
//!
//! A meter starts zeroed when its key is first used. The NF gives the idle time after which a meter
//! is as good as new. Only such meters are evicted, so evictions change nothing.

use packet::FlowHasher;
use packet::memory::{OutOfMemory, Zeroed};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::HashIndex;

/// Identifies a meter, such as by a subscriber's address. Must be unique within the table.
pub type MeterKey = [u64; 4];

/// A meter's value, with a meaning given by the NF. Starts as zeros.
pub type MeterValue = [u64; 3];

/// Meters scanned for an idle one to evict when a new key arrives and all are in use.
pub const METERS_SCANNED_MAX: usize = 16;

/// A fixed-size table of meters.
pub struct Meters {
    name: &'static str,
    slots: Zeroed<Slot>,
    index: HashIndex,
    hasher: FlowHasher,
    capacity: usize,
    in_use: usize,
    /// The next meter to scan once all are in use.
    hand: usize,
    forgotten: u64,
    refused: u64,
}

/// One cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Slot {
    key: MeterKey,
    value: MeterValue,
    used_ns: u64,
}

impl Meters {
    /// Returns a table of `capacity` meters.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(name: &'static str, capacity: usize, seed: u64) -> Result<Meters, OutOfMemory> {
        Ok(Meters {
            name,
            slots: Zeroed::new(capacity)?,
            index: HashIndex::new(capacity)?,
            hasher: FlowHasher::new(seed ^ 0x6d65_7465_7273),
            capacity,
            in_use: 0,
            hand: 0,
            forgotten: 0,
            refused: 0,
        })
    }

    /// Returns the name in the descriptor.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the limit on the number of meters.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of meters in use. It never falls: evicted meters are replaced at once.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Returns the number of idle meters evicted for others.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the number of times that no meter was available for a key.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the value of a meter without counting as a use.
    pub fn get(&self, key: &MeterKey) -> Option<&MeterValue> {
        let at = self.find(self.hash(key), key)?;
        Some(&self.slots[at].value)
    }

    /// Returns the meter of this key, marked as used at `now_ns`, creating it if needed. If all are
    /// in use, evicts the first of the next [`METERS_SCANNED_MAX`] that was idle for `as_new_ns`.
    /// `None` if none was.
    #[inline]
    pub fn of(&mut self, key: &MeterKey, now_ns: u64, as_new_ns: u64) -> Option<&mut MeterValue> {
        let hash = self.hash(key);
        let at = match self.find(hash, key) {
            Some(at) => at,
            None => self.begin(key, hash, now_ns, as_new_ns)?,
        };
        let slot = &mut self.slots[at];
        slot.used_ns = slot.used_ns.max(now_ns);
        Some(&mut slot.value)
    }

    #[cold]
    fn begin(&mut self, key: &MeterKey, hash: u64, now_ns: u64, as_new_ns: u64) -> Option<usize> {
        let Some(at) = self.unused().or_else(|| self.forget(now_ns, as_new_ns)) else {
            self.refused += 1;
            return None;
        };
        self.slots[at] = Slot { key: *key, value: [0; 3], used_ns: now_ns };
        // The index has room for all meters, but perhaps not for this many similar hashes. The slot
        // then stays unused until it is evicted.
        if self.index.insert(hash, at as u32).is_err() {
            self.refused += 1;
            return None;
        }
        Some(at)
    }

    fn unused(&mut self) -> Option<usize> {
        (self.in_use < self.capacity).then(|| {
            self.in_use += 1;
            self.in_use - 1
        })
    }

    /// Evicts an idle meter and returns its slot.
    fn forget(&mut self, now_ns: u64, as_new_ns: u64) -> Option<usize> {
        for _ in 0..METERS_SCANNED_MAX.min(self.capacity) {
            let at = self.hand;
            self.hand = (at + 1) % self.capacity;
            let slot = &self.slots[at];
            if now_ns.saturating_sub(slot.used_ns) >= as_new_ns {
                let hash = self.hash(&slot.key);
                self.index.remove(hash, at as u32);
                self.forgotten += 1;
                return Some(at);
            }
        }
        None
    }

    #[inline]
    fn find(&self, hash: u64, key: &MeterKey) -> Option<usize> {
        self.index.find(hash, |at| self.slots[at as usize].key == *key).map(|at| at as usize)
    }

    #[inline]
    fn hash(&self, &[a, b, c, d]: &MeterKey) -> u64 {
        self.hasher.hash_words(&[a, b, c, d, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u64) -> MeterKey {
        [number, 0, 0, 1]
    }

    #[test]
    fn only_idle_meters_are_evicted() {
        let mut meters = Meters::new("buckets", 2, 1).unwrap();
        *meters.of(&key(1), 0, 100).unwrap() = [1; 3];
        *meters.of(&key(2), 10, 100).unwrap() = [2; 3];
        assert!(meters.of(&key(3), 99, 100).is_none());
        assert_eq!(meters.of(&key(1), 99, 100), Some(&mut [1; 3]), "which keeps it");
        assert!(meters.of(&key(3), 109, 100).is_none());
        assert_eq!(meters.of(&key(3), 110, 100), Some(&mut [0; 3]));
        assert_eq!((meters.get(&key(1)), meters.get(&key(2))), (Some(&[1; 3]), None));
        assert_eq!((meters.in_use(), meters.forgotten(), meters.refused()), (2, 1, 2));
    }

    #[test]
    fn table_of_capacity_zero_refuses_all() {
        let mut meters = Meters::new("none", 0, 1).unwrap();
        assert!(meters.of(&key(1), 0, 0).is_none());
        assert_eq!((meters.capacity(), meters.in_use(), meters.refused()), (0, 0, 1));
    }

    proptest! {
        /// Compared with a map: present meters hold what was stored, absent ones were idle, and the
        /// table is bounded.
        #[test]
        fn table_behaves_like_a_map(steps in prop::collection::vec((0u64..40, 0u64..30), 1..400), capacity in 1usize..40) {
            const AS_NEW_NS: u64 = 100;
            let mut meters = Meters::new("buckets", capacity, 7).unwrap();
            let mut map: HashMap<u64, (u64, u64)> = HashMap::new();
            let mut now_ns = 0;
            for (i, (number, step_ns)) in steps.into_iter().enumerate() {
                now_ns += step_ns;
                let stamp = i as u64 + 1;
                match (meters.of(&key(number), now_ns, AS_NEW_NS), map.get(&number)) {
                    (Some(value), Some(&(known, used_ns))) => {
                        let forgotten = *value == [0; 3] && now_ns - used_ns >= AS_NEW_NS;
                        prop_assert!(*value == [known; 3] || forgotten);
                        *value = [stamp; 3];
                        map.insert(number, (stamp, now_ns));
                    }
                    (Some(value), None) => {
                        prop_assert_eq!(*value, [0; 3]);
                        *value = [stamp; 3];
                        map.insert(number, (stamp, now_ns));
                    }
                    (None, known) => {
                        prop_assert!(known.is_none_or(|&(_, used_ns)| now_ns - used_ns >= AS_NEW_NS));
                        prop_assert_eq!(meters.in_use(), capacity);
                    }
                }
                prop_assert!(meters.in_use() <= capacity);
                for (&number, &(stamp, used_ns)) in &map {
                    let held = meters.get(&key(number));
                    prop_assert!(held == Some(&[stamp; 3]) || now_ns - used_ns >= AS_NEW_NS);
                }
            }
        }
    }
}
