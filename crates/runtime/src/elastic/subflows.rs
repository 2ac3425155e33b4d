//! Sub-flows of Multipath TCP connections (A38): each belongs to the affinity group of its
//! connection, so that all are at one unit and move together.
//!
//! Sub-flows have nothing in common but the connection's two tokens, which are hashes of the keys
//! that both hosts sent when they began the connection (RFC 8684 3.1). A SYN that joins it carries
//! the token of its receiver (3.2). So the dispatcher remembers tokens. Nothing proves a token
//! here: a host that guesses one gets its own flow into another group, and no more.

use std::collections::HashMap;

use nf::{AffinityGroup, AffinityGroups};
use packet::mptcp::MptcpVersion;
use packet::wire::mptcp::{CapableKeys, MptcpCapable, MptcpJoin, Repr};
use packet::{FlowKey, Packet};

use crate::units_report::UnitsReport;

/// Limit on remembered tokens. A connection has two.
pub const TOKENS_MAX: usize = 131_072;

/// Limit on tokens that are examined, when all are in use, to find one of a connection without
/// flows.
pub const TOKENS_SCANNED_MAX: usize = 16;

/// The tokens of connections. A token is kept as long as there is room: a connection may live
/// longer than its sub-flows (RFC 8684 3.3.3). Tokens are evicted first if their latest known
/// sub-flow has ended.
pub(super) struct ConnectionTokens {
    groups: AffinityGroups,
    slots: Vec<TokenSlot>,
    /// The slot of each token.
    index: HashMap<TenantToken, usize>,
    /// The next slot to be looked at once all are in use.
    hand: usize,
    capacity: usize,
    counters: TokenCounters,
}

/// A token in a tenant.
type TenantToken = (u16, u32);

struct TokenSlot {
    token: TenantToken,
    group: AffinityGroup,
    /// The key of the latest sub-flow, and its hash.
    latest: (FlowKey, u64),
}

/// Counters of tokens and sub-flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenCounters {
    /// Sub-flows that joined a known connection.
    pub joined: u64,
    /// Sub-flows with an unknown token.
    pub unknown: u64,
    /// Tokens forgotten while their connections had flows.
    pub displaced: u64,
}

impl ConnectionTokens {
    pub fn new(groups: AffinityGroups) -> ConnectionTokens {
        ConnectionTokens::with_capacity(groups, TOKENS_MAX)
    }

    fn with_capacity(groups: AffinityGroups, capacity: usize) -> ConnectionTokens {
        let (slots, index) = (Vec::new(), HashMap::new());
        ConnectionTokens { groups, slots, index, hand: 0, capacity, counters: TokenCounters::default() }
    }

    pub fn add_to_report(&self, report: &mut UnitsReport) {
        let TokenCounters { joined, unknown, displaced } = self.counters;
        (report.subflows_joined, report.subflows_unknown) = (joined, unknown);
        (report.tokens, report.tokens_displaced) = (self.slots.len() as u64, displaced);
    }

    /// Remembers the tokens of the keys in a classified packet. `is_live` returns true if the flow
    /// with this key and hash lives.
    #[inline]
    pub fn learn(&mut self, packet: &Packet, is_live: impl Fn(&FlowKey, u64) -> bool) {
        for option in packet.mptcp_options() {
            if let Repr::Capable(capable) = option {
                self.learn_keys(&capable, packet, &is_live);
            }
        }
    }

    #[cold]
    fn learn_keys(
        &mut self,
        capable: &MptcpCapable,
        packet: &Packet,
        is_live: &impl Fn(&FlowKey, u64) -> bool,
    ) {
        let Some(version) = MptcpVersion::of(capable.version).filter(|_| capable.uses_hmac) else { return };
        let meta = packet.meta();
        let (sender, receiver) = match capable.keys {
            CapableKeys::None => (None, None),
            CapableKeys::Sender(sender) => (Some(sender), None),
            CapableKeys::Both { sender, receiver, .. } => (Some(sender), Some(receiver)),
        };
        let group = self.groups.of_connection(&meta.key);
        for key in [sender, receiver].into_iter().flatten() {
            let token = (meta.key.tenant(), version.token(key));
            self.remember(TokenSlot { token, group, latest: (meta.key, meta.hash) }, is_live);
        }
    }

    /// Returns the group of the sub-flow that a packet begins; `None` if it joins no known
    /// connection.
    pub fn group_of(&self, packet: &Packet) -> Option<AffinityGroup> {
        let slot = self.index.get(&joined_token(packet)?)?;
        Some(self.slots[*slot].group)
    }

    /// Counts a flow that this packet has begun, if it joins a connection.
    pub fn begun(&mut self, packet: &Packet) {
        let Some(token) = joined_token(packet) else { return };
        match self.index.get(&token) {
            Some(&slot) => {
                self.slots[slot].latest = (packet.meta().key, packet.meta().hash);
                self.counters.joined += 1;
            }
            None => self.counters.unknown += 1,
        }
    }

    fn remember(&mut self, slot: TokenSlot, is_live: &impl Fn(&FlowKey, u64) -> bool) {
        if let Some(&known) = self.index.get(&slot.token) {
            // Repeated, or another connection's: hosts draw keys until no token of theirs repeats.
            self.slots[known] = slot;
            return;
        }
        if self.slots.len() < self.capacity {
            self.index.insert(slot.token, self.slots.len());
            return self.slots.push(slot);
        }
        let scanned =
            (0..TOKENS_SCANNED_MAX.min(self.capacity)).map(|more| (self.hand + more) % self.capacity);
        let ended = scanned.into_iter().find(|&at| {
            let (key, hash) = &self.slots[at].latest;
            !is_live(key, *hash)
        });
        self.counters.displaced += u64::from(ended.is_none());
        let at = ended.unwrap_or(self.hand);
        self.hand = (at + 1) % self.capacity;
        self.index.remove(&self.slots[at].token);
        self.index.insert(slot.token, at);
        self.slots[at] = slot;
    }
}

/// Returns the token of a SYN that joins a connection.
fn joined_token(packet: &Packet) -> Option<TenantToken> {
    packet.mptcp_options().find_map(|option| match option {
        Repr::Join(MptcpJoin::Syn { token, .. }) => Some((packet.meta().key.tenant(), token)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{FlowHasher, Parser};

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    /// Returns a packet from a host, with this option.
    fn packet(host: u16, flags: u8, option: Repr) -> Packet {
        let len = option.buffer_len();
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0];
        let tcp_len = (20 + 2 + len).next_multiple_of(4);
        bytes[17] = 20 + tcp_len as u8;
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0]);
        bytes.extend(host.to_be_bytes());
        bytes.extend([192, 0, 2, 1, 0, 99, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]);
        bytes.extend([(tcp_len * 4) as u8, flags, 1, 0, 0, 0, 0, 0, 30, 2 + len as u8]);
        let start = bytes.len();
        bytes.resize(34 + tcp_len, 1);
        option.emit(&mut bytes[start..]).unwrap();
        let mut packet = Packet::from_bytes(&bytes);
        Parser::new(FlowHasher::new(0)).parse(&mut packet).unwrap();
        packet
    }

    fn capable(host: u16, version: u8, key: u64) -> Packet {
        let keys = CapableKeys::Sender(key);
        let capable = MptcpCapable { version, checksums: false, uses_hmac: true, keys };
        packet(host, SYN | ACK, Repr::Capable(capable))
    }

    fn join(host: u16, version: MptcpVersion, key: u64) -> Packet {
        let token = version.token(key);
        let join = MptcpJoin::Syn { backup: false, address_id: 1, token, nonce: 1 };
        packet(host, SYN, Repr::Join(join))
    }

    fn tokens(capacity: usize) -> ConnectionTokens {
        ConnectionTokens::with_capacity(AffinityGroups::new(1024, 1).unwrap(), capacity)
    }

    #[test]
    fn subflows_have_the_group_of_the_first_one() {
        let mut tokens = tokens(TOKENS_MAX);
        for (host, number, version) in [(1, 0, MptcpVersion::V0), (2, 1, MptcpVersion::V1)] {
            let first = capable(host, number, 77);
            tokens.learn(&first, |_, _| true);
            let joins = join(100 + host, version, 77);
            let expected = tokens.groups.of_connection(&first.meta().key);
            assert_eq!(tokens.group_of(&joins), Some(expected));
            assert_ne!(tokens.groups.of_connection(&joins.meta().key), expected);
            tokens.begun(&joins);
        }
        let stranger = join(9, MptcpVersion::V1, 78);
        assert_eq!(tokens.group_of(&stranger), None);
        tokens.begun(&stranger);
        assert_eq!(tokens.counters, TokenCounters { joined: 2, unknown: 1, displaced: 0 });
        tokens.learn(&capable(3, 2, 78), |_, _| true);
        assert_eq!(tokens.group_of(&stranger), None, "tokens of version 2 are not known");
    }

    #[test]
    fn tokens_of_connections_without_flows_go_first() {
        let mut tokens = tokens(4);
        let is_known =
            |tokens: &ConnectionTokens, key| tokens.group_of(&join(9, MptcpVersion::V1, key)).is_some();
        for host in 0..4 {
            tokens.learn(&capable(host, 1, host.into()), |_, _| true);
        }
        // The third connection has lost its first sub-flow, and the second one all.
        tokens.begun(&join(50, MptcpVersion::V1, 2));
        let [third, second] = [2, 1].map(|host| capable(host, 1, 0).meta().key);
        let is_live = |key: &FlowKey, _| *key != third && *key != second;
        tokens.learn(&capable(4, 1, 4), is_live);
        assert_eq!([0, 1, 2, 3, 4].map(|key| is_known(&tokens, key)), [true, false, true, true, true]);
        assert_eq!(tokens.counters.displaced, 0);
        // All have flows: one goes anyway.
        tokens.learn(&capable(5, 1, 5), is_live);
        assert_eq!(
            [0, 2, 3, 4, 5].map(|key| is_known(&tokens, key)).iter().filter(|&&known| known).count(),
            4
        );
        assert!(is_known(&tokens, 5));
        assert_eq!((tokens.counters.displaced, tokens.slots.len(), tokens.index.len()), (1, 4, 4));
        // A token that is known already takes no room.
        tokens.learn(&capable(6, 1, 5), is_live);
        assert_eq!((tokens.counters.displaced, tokens.slots.len(), tokens.index.len()), (1, 4, 4));
    }
}
