//! Bounded sets of 64-bit members that many flows add to: merged by union, evicted by age.

use packet::memory::{OutOfMemory, Zeroed};
use packet::split_mix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::HashIndex;

/// A set that remembers when each member was last added. When full, it evicts the member inserted
/// first.
pub struct SharedSet {
    name: &'static str,
    members: Zeroed<Member>,
    index: HashIndex,
    seed: u64,
    len: usize,
    /// The next slot to write once all are in use.
    next: usize,
    displaced: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Member {
    value: u64,
    added_ns: u64,
}

impl SharedSet {
    pub(crate) fn new(name: &'static str, capacity: usize, seed: u64) -> Result<SharedSet, OutOfMemory> {
        let capacity = capacity.max(1);
        Ok(SharedSet {
            name,
            members: Zeroed::new(capacity)?,
            index: HashIndex::new(capacity)?,
            seed,
            len: 0,
            next: 0,
            displaced: 0,
        })
    }

    /// Returns the name in the descriptor.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Checks if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of members evicted because the set was full.
    pub fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Returns the time at which a member was last added.
    pub fn added_ns(&self, value: u64) -> Option<u64> {
        self.find(value).map(|at| self.members[at as usize].added_ns)
    }

    /// Adds the value or refreshes its time. Returns true if it is new.
    pub fn add(&mut self, value: u64, now_ns: u64) -> bool {
        self.add_at(value, now_ns).1
    }

    /// Same as [`SharedSet::add`], and also returns the member's slot for [`SharedSet::renew`].
    pub fn add_at(&mut self, value: u64, now_ns: u64) -> (u32, bool) {
        match self.find(value) {
            Some(at) => {
                self.renew(at, value, now_ns);
                (at, false)
            }
            None => (self.enter(value, now_ns), true),
        }
    }

    /// Refreshes the member in slot `at` if it is `value`; returns false otherwise. An NF that
    /// keeps the slot in a flow's state saves the lookup.
    #[inline]
    pub fn renew(&mut self, at: u32, value: u64, now_ns: u64) -> bool {
        match self.members.get_mut(at as usize) {
            Some(member) if member.value == value && (at as usize) < self.len => {
                member.added_ns = member.added_ns.max(now_ns);
                true
            }
            _ => false,
        }
    }

    fn enter(&mut self, value: u64, now_ns: u64) -> u32 {
        let at = self.next;
        self.next = (at + 1) % self.members.len();
        if self.len == self.members.len() {
            let old = self.members[at].value;
            self.index.remove(self.hash(old), at as u32);
            self.displaced += 1;
        } else {
            self.len += 1;
        }
        self.members[at] = Member { value, added_ns: now_ns };
        // The index has room for all members, but perhaps not for this many similar hashes. This
        // member is then not found again.
        let _ = self.index.insert(self.hash(value), at as u32);
        at as u32
    }

    fn find(&self, value: u64) -> Option<u32> {
        self.index.find(self.hash(value), |at| self.members[at as usize].value == value)
    }

    fn hash(&self, value: u64) -> u64 {
        split_mix(&mut (self.seed ^ value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_set_evicts_the_oldest_member() {
        let mut set = SharedSet::new("clients", 3, 1).unwrap();
        for value in [10, 11, 12] {
            assert!(set.add(value, value));
        }
        assert!(!set.add(10, 99));
        assert_eq!(set.added_ns(10), Some(99));
        assert!(set.add(13, 13));
        assert_eq!(set.added_ns(10), None);
        assert_eq!((set.len(), set.displaced()), (3, 1));
        assert_eq!(set.added_ns(13), Some(13));
    }

    #[test]
    fn members_are_renewed_only_in_their_slot() {
        let mut set = SharedSet::new("clients", 2, 1).unwrap();
        assert!(!set.renew(0, 0, 5), "there is none");
        assert_eq!(
            [set.add_at(10, 1), set.add_at(0, 2), set.add_at(10, 3)],
            [(0, true), (1, true), (0, false)]
        );
        assert!(set.renew(1, 0, 9) && !set.renew(1, 10, 9) && !set.renew(2, 10, 9));
        assert!(set.renew(1, 0, 4));
        assert_eq!((set.added_ns(10), set.added_ns(0)), (Some(3), Some(9)));
        assert_eq!(set.add_at(11, 10), (0, true));
        assert!(!set.renew(0, 10, 11), "it is gone");
    }
}
