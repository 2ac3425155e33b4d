//! Configuration as written in a policy; the README documents each key.

use std::net::Ipv6Addr;

use serde::Deserialize;
use values::Nanos;

use super::net::{AddressRange, EndpointRange, PortRange, Prefix4, Prefix6};

/// Configuration of a NAT. Every key has a default; features without a key are off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct Config {
    /// External IPv4 addresses, at most [`super::EXTERNAL_MAX`] in total.
    pub external: Vec<AddressRange>,
    /// Inside sources to translate; empty: all.
    pub inside: Vec<Prefix4>,
    /// Action for IPv4 packets that are not translated.
    pub untranslated: UnmatchedAction,
    /// Action for IPv6 packets that no `nptv6` rule covers.
    pub ipv6: UnmatchedAction,
    /// Mapping behaviour: the flows of an inside endpoint that share an external endpoint.
    pub mapping: MappingBehaviour,
    /// Filtering behaviour: the remote hosts that may send to a mapped endpoint.
    pub filtering: FilteringBehaviour,
    /// Pooling behaviour: one external address per subscriber, or any.
    pub pooling: PoolingBehaviour,
    /// External ports to allocate.
    pub ports: PortRange,
    /// Strategy for choosing a free port.
    pub port_selection: PortSelection,
    /// Preserves the parity of the inside port while a port of that parity is free (RFC 4787 REQ-4,
    /// RFC 7857 8).
    pub port_parity: bool,
    /// Lets inside hosts reach one another by their external addresses (RFC 4787 REQ-9).
    pub hairpin: bool,
    /// Packets that refresh a mapping (RFC 4787 REQ-6).
    pub refresh: RefreshBehaviour,
    /// Action when every port available to a new flow is taken.
    pub when_full: ExhaustionPolicy,
    /// TCP packets that may open a flow (RFC 7857 2).
    pub tcp_opens_with: TcpOpening,
    /// Answer to TCP packets that belong to no flow and may open none.
    pub not_opening: NotOpeningAction,
    /// Idle timeouts of flows.
    pub timeouts: NatTimeouts,
    /// Hold-down of UDP ports and blocks that were given back (RFC 6888 REQ-8).
    pub hold_down: HoldDownConfig,
    /// Port blocks per subscriber; none: ports are allocated one by one.
    pub blocks: Option<BlockConfig>,
    /// Limits per subscriber (RFC 6888 REQ-4).
    pub subscriber: SubscriberLimits,
    /// Static port forwards.
    pub forwards: Vec<PortForward>,
    /// External addresses that each stand for one inside address, for all protocols.
    pub one_to_one: Vec<OneToOne>,
    /// IPv6 prefix pairs (RFC 6296).
    pub nptv6: Vec<Nptv6Config>,
    /// Allocations that raise an alert.
    pub log: LogScope,
    /// Events to report to EVE and IPFIX.
    pub events: Vec<NatEventKind>,
}

impl Config {
    /// Returns whether IPv4 addresses have anything to be translated to.
    pub fn translates_v4(&self) -> bool {
        !(self.external.is_empty() && self.forwards.is_empty() && self.one_to_one.is_empty())
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            external: Vec::new(),
            inside: Vec::new(),
            untranslated: UnmatchedAction::Drop,
            ipv6: UnmatchedAction::Pass,
            mapping: MappingBehaviour::EndpointIndependent,
            filtering: FilteringBehaviour::EndpointIndependent,
            pooling: PoolingBehaviour::Paired,
            ports: PortRange { first: 1, last: u16::MAX },
            port_selection: PortSelection::Preserve,
            port_parity: true,
            hairpin: true,
            refresh: RefreshBehaviour::Outbound,
            when_full: ExhaustionPolicy::EvictHalfOpen,
            tcp_opens_with: TcpOpening::Syn,
            not_opening: NotOpeningAction::Drop,
            timeouts: NatTimeouts::default(),
            hold_down: HoldDownConfig::default(),
            blocks: None,
            subscriber: SubscriberLimits::default(),
            forwards: Vec::new(),
            one_to_one: Vec::new(),
            nptv6: Vec::new(),
            log: LogScope::Blocks,
            events: Vec::new(),
        }
    }
}

/// Action for packets that no rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnmatchedAction {
    /// Pass unchanged.
    Pass,
    /// Drop.
    Drop,
}

/// Mapping behaviour (RFC 4787 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingBehaviour {
    /// One external endpoint per inside endpoint (REQ-1).
    EndpointIndependent,
    /// One external endpoint per inside endpoint and remote address.
    AddressDependent,
    /// One external endpoint per inside endpoint and remote endpoint.
    AddressAndPortDependent,
}

/// Filtering behaviour (RFC 4787 5): remote hosts that may send to a mapped endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteringBehaviour {
    /// Every host.
    EndpointIndependent,
    /// Addresses that the inside endpoint sends to.
    AddressDependent,
    /// Endpoints that the inside endpoint sends to.
    AddressAndPortDependent,
}

/// IP address pooling behaviour (RFC 4787 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolingBehaviour {
    /// All mappings of a subscriber share one external address (REQ-2).
    Paired,
    /// Any address with a free port.
    Arbitrary,
}

/// Strategy for choosing a free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortSelection {
    /// The inside port if free, otherwise a random port.
    Preserve,
    /// A random port (RFC 6056, RFC 7857 9).
    Random,
    /// The lowest free port.
    Sequential,
}

/// Mapping refresh (RFC 4787 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshBehaviour {
    /// Packets from inside; for TCP, packets of both directions.
    Outbound,
    /// Packets of both directions.
    Both,
}

/// Action when every port available to a new flow is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExhaustionPolicy {
    /// Evict a flow that is unanswered or closed.
    EvictHalfOpen,
    /// Refuse the new flow; existing mappings keep their timeouts (RFC 4787 REQ-5, REQ-11).
    RefuseNew,
}

/// TCP packets that may open a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpOpening {
    /// A SYN without ACK.
    Syn,
    /// Any segment except RST: connections survive a restart of the NAT.
    Any,
}

/// Answer to TCP packets that belong to no flow and may open none; they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotOpeningAction {
    /// None.
    Drop,
    /// A reset, so that hosts know of the end of a connection (RFC 9293 3.10.7.1).
    Reject,
}

/// Idle timeouts of flows.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct NatTimeouts {
    /// UDP (RFC 4787 REQ-5: at least 2 minutes, 5 recommended).
    pub udp: Nanos,
    /// Established TCP (RFC 5382 REQ-5: at least 2 hours and 4 minutes).
    pub tcp_established: Nanos,
    /// TCP that is opening, closing or reset (RFC 5382 REQ-5, RFC 7857 2: at least 4 minutes).
    pub tcp_transitory: Nanos,
    /// ICMP queries (RFC 5508 REQ-2: at least 60 seconds).
    pub icmp: Nanos,
    /// Other protocols.
    pub other: Nanos,
}

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

impl Default for NatTimeouts {
    fn default() -> NatTimeouts {
        NatTimeouts {
            udp: Nanos(5 * MINUTE_NS),
            tcp_established: Nanos(124 * MINUTE_NS),
            tcp_transitory: Nanos(4 * MINUTE_NS),
            icmp: Nanos(MINUTE_NS),
            other: Nanos(5 * MINUTE_NS),
        }
    }
}

impl NatTimeouts {
    /// Lower bound: a shorter timeout could expire a flow between two of its packets.
    pub const NS_MIN: u64 = SECOND_NS;
    /// Upper bound.
    pub const NS_MAX: u64 = 7 * 24 * 60 * MINUTE_NS;

    /// Returns every timeout with its key.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("udp", self.udp.0),
            ("tcp_established", self.tcp_established.0),
            ("tcp_transitory", self.tcp_transitory.0),
            ("icmp", self.icmp.0),
            ("other", self.other.0),
        ]
    }
}

/// Hold-down of UDP ports, or of blocks: only the inside endpoint, or subscriber, that had them
/// last gets them for some time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct HoldDownConfig {
    /// Length of a hold-down; 0: none.
    pub time: Nanos,
    /// Limit on the ports, or blocks, held down.
    pub max: u32,
}

impl Default for HoldDownConfig {
    fn default() -> HoldDownConfig {
        HoldDownConfig { time: Nanos(120 * SECOND_NS), max: 65_536 }
    }
}

/// Allocation of ports in blocks: one log entry covers many mappings (RFC 6888 REQ-14, RFC 7422).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct BlockConfig {
    /// Ports per block, for each of TCP, UDP and ICMP.
    pub size: u16,
    /// Maximum number of blocks per subscriber.
    #[serde(default = "one")]
    pub max: u16,
}

fn one() -> u16 {
    1
}

/// Limits of one subscriber, which is an inside address.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct SubscriberLimits {
    /// Flows opened by the subscriber.
    pub sessions: Option<u32>,
    /// External ports.
    pub ports: Option<u32>,
}

/// A static port forward.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct PortForward {
    /// Protocols.
    #[serde(default)]
    pub protocol: ForwardProtocol,
    /// External address and ports.
    pub external: EndpointRange,
    /// Inside address and the same number of ports.
    pub internal: EndpointRange,
}

/// Protocols of a static forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP and UDP.
    #[default]
    Both,
}

/// External addresses, each standing for one inside address.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct OneToOne {
    /// The external addresses.
    pub external: AddressRange,
    /// The same number of inside addresses.
    pub internal: AddressRange,
}

/// An IPv6 prefix pair (RFC 6296).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Nptv6Config {
    /// Inside prefix.
    pub inside: Prefix6,
    /// Outside prefix.
    pub outside: Prefix6,
    /// Inside addresses of hosts that are reached though they may never have sent a packet.
    #[serde(default)]
    pub hosts: Vec<Ipv6Addr>,
}

/// Kinds of NAT events (RFC 8158).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatEventKind {
    /// Start and end of a flow's translation.
    Sessions,
    /// Creation and release of a mapping.
    Mappings,
    /// Allocation and release of a port block.
    Blocks,
    /// Exhausted ports, and subscribers at a limit.
    Limits,
}

/// Allocations that raise an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogScope {
    /// None.
    Nothing,
    /// Port blocks.
    Blocks,
    /// Port blocks and single mappings.
    Mappings,
}
