//! State that the flows of an NF share.

use packet::{Addr, Side};

use crate::affinity::AffinityKey;
use crate::buffers::Buffers;
use crate::counters::CounterValues;
use crate::meters::Meters;
use crate::payload_cache::PayloadCache;
use crate::pool::SharedPool;
use crate::rule_counters::RuleCounters;
use crate::set::SharedSet;

/// State that the flows of an NF share, of the kinds that its descriptor declares.
#[derive(Default)]
pub struct SharedState {
    /// The declared counters.
    pub counters: CounterValues,
    /// In the order of the descriptor. Sets, pools, meters and payload caches may be held by
    /// another instance if threads share them.
    pub sets: Vec<SharedSet>,
    /// In the order of the descriptor.
    pub pools: Vec<SharedPool>,
    /// In the order of the descriptor.
    pub meters: Vec<Meters>,
    /// In the order of the descriptor.
    pub contents: Vec<PayloadCache>,
    /// The flows' growing buffers, if declared.
    pub buffers: Option<Buffers>,
    /// Hit counters of the operator's rules.
    pub rules: Vec<RuleCounters>,
    /// Warnings about the configuration.
    pub warnings: Vec<String>,
    /// Addresses that the NF owns.
    pub owned: Vec<OwnedAddresses>,
    /// Sources that the NF lets pass from Inside; none: all.
    pub sources: Option<PassedSources>,
    /// The key of the NF's affinity groups.
    pub affinity_key: Option<AffinityKey>,
    /// The reason that this instance runs on one machine only, unless the descriptor gives one.
    pub one_machine: Option<&'static str>,
    /// If set, the NF withholds bytes of TCP streams from receivers.
    pub prevents: bool,
    /// If set, TCP connections do not survive a restart: the advice to the operator.
    pub forgets_connections: Option<&'static str>,
}

/// A range of addresses that an NF owns, such as a NAT's external ones. The ports answer neighbours
/// for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedAddresses {
    /// The side of the neighbours that use them; `None` for both.
    pub side: Option<Side>,
    /// The first address.
    pub first: Addr,
    /// The last address, inclusive.
    pub last: Addr,
    /// Only addresses in use are owned: sources of packets that left by the side.
    pub in_use: bool,
}

/// The sources that an NF lets pass from Inside, such as the prefixes that a NAT translates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedSources {
    /// The key of the configuration that names them.
    pub key: &'static str,
    /// The first and the last address of each range.
    pub ranges: Vec<(Addr, Addr)>,
}

impl SharedState {
    /// Checks if one flow's packet may affect another flow, so that their order matters. Counters
    /// are only added to, and pools change only when flows begin and end.
    pub fn is_order_sensitive(&self) -> bool {
        !self.sets.is_empty()
            || !self.contents.is_empty()
            || self.meters.iter().any(|meters| meters.capacity() > 0)
    }
}
