//! Affinity groups: flows that share state are of one group, and all flows of a group are at one
//! node of a cluster.
//!
//! Each item of a pool belongs to one group as well, so no two nodes can hand out the same item. An
//! NF names a packet's group from its configuration alone ([`crate::NetworkFunction::group_of`]).
//! Only the groups of further sub-flows of Multipath TCP follow from packets before them: the
//! dispatcher knows those.

use std::num::NonZeroU16;
use std::ops::Range;

use packet::wire::mptcp;
use packet::{Addr, FlowKey, Packet, split_mix};

/// Limit on the affinity groups of a policy.
pub const AFFINITY_GROUPS_MAX: u16 = 1024;

/// Affinity groups of a policy on a cluster, unless it sets their number.
pub const AFFINITY_GROUPS: u16 = 64;

/// TCP flags.
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The number of an affinity group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityGroup(pub u16);

impl AffinityGroup {
    /// Returns the group as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The flow property that decides the affinity group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityKey {
    /// The subscriber, which is a host at the inside, or all of a prefix.
    Subscriber {
        /// Significant bits of an IPv4 address.
        prefix4: u8,
        /// Significant bits of an IPv6 address; `None` if IPv6 flows are in no group.
        prefix6: Option<u8>,
    },
    /// The Multipath TCP connection, if the flow is a sub-flow of one (A38).
    Connection,
}

impl AffinityKey {
    /// Each IPv4 address.
    pub const ADDRESS4: AffinityKey = AffinityKey::Subscriber { prefix4: 32, prefix6: None };

    /// Checks if flows that are in one group by this key are in one group by the other, too.
    pub fn agrees_with(self, other: AffinityKey) -> bool {
        let AffinityKey::Subscriber { prefix4, prefix6 } = self else { return self == other };
        let AffinityKey::Subscriber { prefix4: others4, prefix6: others6 } = other else { return false };
        prefix4 == others4 && (prefix6 == others6 || prefix6.is_none() || others6.is_none())
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

    /// Returns the group of a Multipath TCP connection, by the key of its first sub-flow.
    pub fn of_connection(self, first: &FlowKey) -> AffinityGroup {
        self.of_hashed(&first.words())
    }

    /// Returns the group of the Multipath TCP connection that this packet begins; `None` if it
    /// begins none (RFC 8684 3.1).
    pub fn of_connection_begun_by(self, packet: &Packet) -> Option<AffinityGroup> {
        let begins = |option| matches!(option, mptcp::Repr::Capable(_));
        let is_syn = packet.meta().tcp_flags & (SYN | ACK) == SYN;
        (is_syn && packet.mptcp_options().any(begins)).then(|| self.of_connection(&packet.meta().key))
    }

    fn of_words(self, addr: Addr, rest: u64) -> AffinityGroup {
        let addr = addr.to_u128();
        self.of_hashed(&[(addr >> 64) as u64, addr as u64, rest])
    }

    fn of_hashed(self, words: &[u64]) -> AffinityGroup {
        let hash = words.iter().fold(self.seed, |state, word| split_mix(&mut (state ^ word)));
        AffinityGroup((hash % u64::from(self.count())) as u16)
    }

    /// Returns the share of a group in `count` numbered things; shares of fewer things than groups
    /// may be empty.
    pub fn share(self, group: AffinityGroup, count: u32) -> Range<u32> {
        let begin = |group: u64| (u64::from(count) * group / u64::from(self.count())) as u32;
        begin(u64::from(group.0))..begin(u64::from(group.0) + 1)
    }

    /// Returns the group of one of `count` numbered things; `None` beyond them.
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

    #[test]
    fn keys_agree_if_their_groups_do() {
        let of = |prefix4, prefix6| AffinityKey::Subscriber { prefix4, prefix6 };
        assert!(AffinityKey::ADDRESS4.agrees_with(of(32, Some(64))));
        assert!(!of(32, Some(56)).agrees_with(of(32, Some(64))));
        assert!(!of(24, None).agrees_with(AffinityKey::ADDRESS4));
        let connection = AffinityKey::Connection;
        assert!(connection.agrees_with(connection));
        assert!(!connection.agrees_with(of(32, None)) && !of(32, None).agrees_with(connection));
    }
}
