//! What a rule is, and what it is compared with. How rules are written is in [`super::parse`], how
//! one of thousands is found in [`super::classify`].

use std::ops::RangeInclusive;
use std::sync::Arc;

use packet::Addr;
use packet::parse::protocol;

/// One rule: it matches headers that are in all of its sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// What is done with packets that it matches.
    pub action: FilterAction,
    /// Which ways it looks.
    pub ways: RuleDirections,
    /// Protocols, as ranges of their numbers.
    pub protocols: Ranges<u8>,
    /// Where packets come from.
    pub sources: AddressSet,
    /// Source ports; all of them if the rule names none.
    pub source_ports: Ranges<u16>,
    /// Where packets go to.
    pub destinations: AddressSet,
    /// Destination ports, or types of ICMP messages; all of them if the rule names none.
    pub destination_ports: Ranges<u16>,
    /// States that a packet may have.
    pub states: FlowStates,
    /// TCP flags.
    pub flags: FlagMatch,
    /// Value that the flow's `tag` gets.
    pub tag: Option<u8>,
    /// Whether matches are alerts.
    pub log: bool,
    /// Its name in alerts and for `control`: what `as` says, or `rule N`.
    pub name: Arc<str>,
    /// Where it is written, such as `x.rules:12`, or `line 12`.
    pub place: Arc<str>,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterAction {
    /// It passes.
    Allow,
    /// It is dropped.
    Deny,
    /// It is dropped, and its sender is told.
    Reject,
}

/// Which way a packet goes through the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleDirection {
    /// From Outside to Inside.
    In,
    /// From Inside to Outside.
    Out,
}

/// A set of [`RuleDirection`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleDirections(pub u8);

impl RuleDirections {
    /// Either way.
    pub const BOTH: RuleDirections = RuleDirections(3);

    /// That way only.
    pub const fn only(way: RuleDirection) -> RuleDirections {
        RuleDirections(1 << way as u8)
    }

    /// Whether the way is in the set.
    pub const fn has(self, way: RuleDirection) -> bool {
        self.0 >> way as u8 & 1 == 1
    }
}

/// How a packet stands to the connections that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowState {
    /// It opens a connection, or goes on with one that nobody has answered yet.
    New,
    /// It belongs to a connection that both ends take part in.
    Established,
    /// It is an ICMP error about a packet of a known connection.
    Related,
    /// It fits no connection and cannot open one.
    Invalid,
}

impl FlowState {
    /// All states, in order of their numbers.
    pub const ALL: [FlowState; 4] =
        [FlowState::New, FlowState::Established, FlowState::Related, FlowState::Invalid];

    /// The word for it in rules.
    pub const fn name(self) -> &'static str {
        ["new", "established", "related", "invalid"][self as usize]
    }
}

/// A set of [`FlowState`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowStates(pub u8);

impl FlowStates {
    /// What a rule without `state` is about: everything but invalid packets.
    pub const VALID: FlowStates = FlowStates(0b0111);

    /// Whether the state is in the set.
    pub const fn has(self, state: FlowState) -> bool {
        self.0 >> state as u8 & 1 == 1
    }
}

/// Which TCP flags must be set (`value`) among those that matter (`mask`), as in the header's 14th
/// byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagMatch {
    /// Flags that matter.
    pub mask: u8,
    /// Those of them that must be set.
    pub value: u8,
}

impl FlagMatch {
    /// Whether these flags match.
    pub const fn matches(self, flags: u8) -> bool {
        flags & self.mask == self.value
    }
}

/// Sorted ranges that neither overlap nor touch.
pub type Ranges<T> = Vec<RangeInclusive<T>>;

/// Addresses of both IP versions; those of IPv4 as numbers of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSet {
    /// IPv4.
    pub v4: Ranges<u32>,
    /// IPv6.
    pub v6: Ranges<u128>,
}

impl AddressSet {
    /// Every address.
    pub fn any() -> AddressSet {
        AddressSet { v4: vec![0..=u32::MAX], v6: vec![0..=u128::MAX] }
    }
}

/// Sorts ranges and joins those that overlap or touch. `before` gives the predecessor of a number
/// that has one.
pub fn join<T: Copy + Ord>(mut ranges: Ranges<T>, before: impl Fn(T) -> T) -> Ranges<T> {
    ranges.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    let mut joined: Ranges<T> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if *range.start() <= *last.end() || before(*range.start()) == *last.end() => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// What a rule looks at in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterHeaders {
    /// IP version, 4 or 6.
    pub version: u8,
    /// Protocol number.
    pub protocol: u8,
    /// Source address.
    pub source: Addr,
    /// Destination address.
    pub destination: Addr,
    /// Source port; 0 where there is none.
    pub source_port: u16,
    /// Destination port, or the type of an ICMP message; 0 where there is neither.
    pub destination_port: u16,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
    /// Which way the packet goes.
    pub way: RuleDirection,
    /// How it stands to known connections.
    pub state: FlowState,
}

/// Whether the protocol has ports that rules can name.
pub fn has_ports(number: u8) -> bool {
    PORT_PROTOCOLS.contains(&number)
}

/// Protocols with ports, in order.
pub const PORT_PROTOCOLS: [u8; 5] =
    [protocol::TCP, protocol::UDP, protocol::DCCP, protocol::SCTP, protocol::UDP_LITE];

/// Whether the protocol is ICMP of either IP version.
pub fn is_icmp(number: u8) -> bool {
    matches!(number, protocol::ICMP | protocol::ICMPV6)
}
