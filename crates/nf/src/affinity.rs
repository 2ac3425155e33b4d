//! Affinity groups: flows that share items of pools or meters are of one group, and all flows of a
//! group are at one node of a cluster.
//!
//! Each item of a pool belongs to one group as well, so no two nodes can hand out the same item. An
//! NF names a packet's group from its configuration alone ([`crate::NetworkFunction::group_of`]).

use std::num::NonZeroU16;
use std::ops::Range;

use packet::{Addr, FlowKey, split_mix};

/// Limit on the affinity groups of a policy.
pub const AFFINITY_GROUPS_MAX: u16 = 1024;

/// Affinity groups of a policy on a cluster, unless it sets their number.
pub const AFFINITY_GROUPS: u16 = 64;

/// The number of an affinity group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityGroup(pub u16);

impl AffinityGroup {
    /// Returns the group as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The addresses by which an NF deals flows to affinity groups: subscribers, which are hosts at the
/// inside, or all of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffinityKey {
    /// Significant bits of an IPv4 address.
    pub prefix4: u8,
    /// Significant bits of an IPv6 address; `None` if IPv6 flows are in no group.
    pub prefix6: Option<u8>,
}

impl AffinityKey {
    /// Each IPv4 address.
    pub const ADDRESS4: AffinityKey = AffinityKey { prefix4: 32, prefix6: None };

    /// Checks if flows that are in one group by this key are in one group by the other, too.
    pub fn agrees_with(self, other: AffinityKey) -> bool {
        let (own, others) = (self.prefix6, other.prefix6);
        self.prefix4 == other.prefix4 && (own == others || own.is_none() || others.is_none())
    }
}

/// The affinity groups of a policy: their number, and the seed of the hash that deals flows to
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffinityGroups {
    count: NonZeroU16,
    seed: u64,
}

impl AffinityGroups {
    /// Creates this many groups; `None` unless there are 1 to [`AFFINITY_GROUPS_MAX`].
    pub fn new(count: u16, seed: u64) -> Option<AffinityGroups> {
        let count = NonZeroU16::new(count).filter(|count| count.get() <= AFFINITY_GROUPS_MAX)?;
        Some(AffinityGroups { count, seed: seed ^ 0x6166_6669_6e69_7479 })
    }

    /// Returns their number.
    pub fn count(self) -> u16 {
        self.count.get()
    }

    /// Returns the group of a subscriber: an inside address, in the key's tenant.
    pub fn of_subscriber(self, subscriber: Addr, key: &FlowKey) -> AffinityGroup {
        self.of_words(subscriber, u64::from(key.tenant()))
    }

    /// Returns the group of everything that this protocol exchanges with an outside host, for
    /// protocols without ports.
    pub fn of_remote(self, remote: Addr, key: &FlowKey) -> AffinityGroup {
        self.of_words(remote, u64::from(key.tenant()) | u64::from(key.protocol) << 32 | 1 << 63)
    }

    fn of_words(self, addr: Addr, rest: u64) -> AffinityGroup {
        let bytes = addr.as_bytes();
        let (high, low) = bytes.split_at(8);
        let mut state = self.seed;
        for part in [high, low, &rest.to_be_bytes()] {
            let word = part.iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
            state = split_mix(&mut (state ^ word));
        }
        AffinityGroup((state % u64::from(self.count())) as u16)
    }

    /// Returns the share of a group in `count` numbered things; shares of fewer things than groups
    /// may be empty.
    pub fn share(self, group: AffinityGroup, count: u32) -> Range<u32> {
        let begin = |group: u64| (u64::from(count) * group / u64::from(self.count())) as u32;
        begin(u64::from(group.0))..begin(u64::from(group.0) + 1)
    }

    /// Returns the group to which one of `count` numbered things belongs; `None` beyond them.
    pub fn of_numbered(self, number: u32, count: u32) -> Option<AffinityGroup> {
        let groups = u64::from(self.count());
        let group = ((u64::from(number) + 1) * groups - 1) / u64::from(count.max(1));
        (number < count).then_some(AffinityGroup(group as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Endpoint, Scope};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_numbered_thing_is_in_the_share_of_its_group_alone(count in 1u32..70_000, groups in 1u16..=1024) {
            let groups = AffinityGroups::new(groups, 1).unwrap();
            let mut next = 0;
            for group in (0..groups.count()).map(AffinityGroup) {
                let share = groups.share(group, count);
                prop_assert_eq!(share.start, next);
                next = share.end;
                for number in share.clone().take(3).chain(share.last()) {
                    prop_assert_eq!(groups.of_numbered(number, count), Some(group));
                }
            }
            prop_assert_eq!(next, count);
            prop_assert_eq!(groups.of_numbered(count, count), None);
        }
    }

    #[test]
    fn subscribers_are_dealt_evenly() {
        let groups = AffinityGroups::new(64, 7).unwrap();
        let mut sizes = [0; 64];
        for host in 0..64_000u32 {
            let addr = Addr::from_v4_bytes((0x0a00_0000 + host).to_be_bytes());
            let end = Endpoint::new(addr, 1);
            let (key, _) = FlowKey::new(end, end, 6, 4, Scope::default(), 0);
            sizes[groups.of_subscriber(addr, &key).index()] += 1;
        }
        assert!(sizes.iter().all(|size| (850..1150).contains(size)), "{sizes:?}");
        assert!(AffinityGroups::new(0, 1).is_none() && AffinityGroups::new(1025, 1).is_none());
    }
}
