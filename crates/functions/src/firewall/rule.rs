//! Rules and the headers that they match. [`super::parse`] reads rules from text;
//! [`super::classify`] finds one among thousands.

use std::ops::RangeInclusive;
use std::sync::Arc;

use packet::Addr;
use packet::parse::protocol;

/// A rule of the firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Action on matching packets.
    pub action: FilterAction,
    /// The packets that match.
    pub pattern: RulePattern,
    /// Value for the flow's `tag` attribute.
    pub tag: Option<u8>,
    /// Raises an alert for each match.
    pub log: bool,
    /// Name in alerts and commands: the `as` option, or `rule N`.
    pub name: Arc<str>,
    /// Location of the rule's text, such as `x.rules:12` or `line 12`.
    pub place: Arc<str>,
}

/// The headers that a rule matches: each field is in the rule's set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePattern {
    /// Directions.
    pub ways: RuleDirections,
    /// Protocols, as ranges of numbers.
    pub protocols: Ranges<u8>,
    /// Source addresses.
    pub sources: RuleAddresses,
    /// Source ports; all if the rule names none.
    pub source_ports: Ranges<u16>,
    /// Destination addresses.
    pub destinations: RuleAddresses,
    /// Destination ports, or ICMP types; all if the rule names none.
    pub destination_ports: Ranges<u16>,
    /// States of packets.
    pub states: ConnectionStates,
    /// TCP flags.
    pub flags: FlagMatch,
}

/// Action on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterAction {
    /// Pass.
    Allow,
    /// Drop.
    Deny,
    /// Drop, and notify the sender.
    Reject,
}

/// Direction of a packet through the firewall.
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
    /// Both directions.
    pub const BOTH: RuleDirections = RuleDirections(3);

    /// Returns the set of this direction.
    pub const fn only(way: RuleDirection) -> RuleDirections {
        RuleDirections(1 << way as u8)
    }

    /// Returns whether the set contains the direction.
    pub const fn has(self, way: RuleDirection) -> bool {
        self.0 >> way as u8 & 1 == 1
    }
}

/// State of a packet with respect to known connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionState {
    /// Opens a connection, or continues an unanswered one.
    New,
    /// Belongs to a connection with packets of both ends.
    Established,
    /// An ICMP error about a packet of a known connection.
    Related,
    /// Belongs to no connection and cannot open one.
    Invalid,
}

impl ConnectionState {
    /// All states, in numerical order.
    pub const ALL: [ConnectionState; 4] = [
        ConnectionState::New,
        ConnectionState::Established,
        ConnectionState::Related,
        ConnectionState::Invalid,
    ];

    /// Returns the state's keyword in rules.
    pub const fn name(self) -> &'static str {
        ["new", "established", "related", "invalid"][self as usize]
    }
}

/// A set of [`ConnectionState`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStates(pub u8);

impl ConnectionStates {
    /// States that a rule without `state` matches: all except invalid.
    pub const VALID: ConnectionStates = ConnectionStates(0b0111);

    /// Returns whether the set contains the state.
    pub const fn has(self, state: ConnectionState) -> bool {
        self.0 >> state as u8 & 1 == 1
    }
}

/// TCP flags to match, as in the header's 14th byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagMatch {
    /// Flags to compare.
    pub mask: u8,
    /// Required values of those flags.
    pub value: u8,
}

impl FlagMatch {
    /// Returns whether these flags match.
    pub const fn matches(self, flags: u8) -> bool {
        flags & self.mask == self.value
    }
}

/// Sorted ranges that neither overlap nor touch.
pub type Ranges<T> = Vec<RangeInclusive<T>>;

/// Addresses of both IP versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleAddresses {
    /// IPv4 addresses, as numbers.
    pub v4: Ranges<u32>,
    /// IPv6 addresses, as numbers.
    pub v6: Ranges<u128>,
}

impl RuleAddresses {
    /// Returns the set of all addresses.
    pub fn any() -> RuleAddresses {
        RuleAddresses { v4: vec![0..=u32::MAX], v6: vec![0..=u128::MAX] }
    }
}

/// Sorts ranges, and joins overlapping and adjacent ones. `before` returns the predecessor of a
/// nonzero number.
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

/// Header fields that rules match.
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
    /// Destination port or ICMP type; 0 where there is neither.
    pub destination_port: u16,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
    /// Direction.
    pub way: RuleDirection,
    /// State with respect to known connections.
    pub state: ConnectionState,
}

/// Returns whether rules can name ports of the protocol.
pub fn has_ports(number: u8) -> bool {
    PORT_PROTOCOLS.contains(&number)
}

/// Protocols with ports, in ascending order.
pub const PORT_PROTOCOLS: [u8; 5] =
    [protocol::TCP, protocol::UDP, protocol::DCCP, protocol::SCTP, protocol::UDP_LITE];

/// Returns whether the protocol is ICMP of either IP version.
pub fn is_icmp(number: u8) -> bool {
    matches!(number, protocol::ICMP | protocol::ICMPV6)
}
