//! The configuration, as policies write it; the README explains each key.

use serde::Deserialize;
use values::Nanos;

use super::net::{AddressRange, EndpointRange, PortRange, Prefix4, Prefix6};

/// Configuration of a NAT. Everything has a default; what is left out is not done.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct Config {
    /// External IPv4 addresses, at most [`super::EXTERNAL_MAX`] together.
    pub external: Vec<AddressRange>,
    /// Inside sources that are translated; none: all.
    pub inside: Vec<Prefix4>,
    /// What becomes of IPv4 packets that are not for us to translate.
    pub untranslated: UnmatchedAction,
    /// What becomes of IPv6 packets that no rule of `nptv6` covers.
    pub ipv6: UnmatchedAction,
    /// Which flows of an inside endpoint share an external one.
    pub mapping: MappingBehaviour,
    /// Who may send to a mapped endpoint.
    pub filtering: FilteringBehaviour,
    /// Whether a subscriber keeps to one external address.
    pub pooling: PoolingBehaviour,
    /// External ports that are handed out.
    pub ports: PortRange,
    /// Which free port is taken.
    pub port_selection: PortSelection,
    /// Whether even ports become even ones, odd ones odd, as long as there are any (RFC 4787 REQ-4,
    /// RFC 7857 8).
    pub port_parity: bool,
    /// Whether inside hosts reach one another by their external addresses (RFC 4787 REQ-9).
    pub hairpin: bool,
    /// Which packets keep a mapping alive (RFC 4787 REQ-6).
    pub refresh: RefreshBehaviour,
    /// What happens when all ports that a new flow could have are taken.
    pub when_full: ExhaustionPolicy,
    /// Which TCP packets may open a flow (RFC 7857 2).
    pub tcp_opens_with: TcpOpening,
    /// How long flows are kept without a packet.
    pub timeouts: NatTimeouts,
    /// Port blocks per subscriber; none: ports are taken one by one.
    pub blocks: Option<BlockConfig>,
    /// Limits per subscriber (RFC 6888 REQ-4).
    pub subscriber: SubscriberLimits,
    /// External ports that always lead to an inside endpoint.
    pub forwards: Vec<PortForward>,
    /// External addresses that stand for one inside address, all protocols.
    pub one_to_one: Vec<OneToOne>,
    /// Prefix pairs for IPv6 (RFC 6296).
    pub nptv6: Vec<Nptv6Config>,
    /// What is logged as alerts.
    pub log: LogScope,
    /// What is reported as events, for EVE and for IPFIX.
    pub events: Vec<NatEventKind>,
}

impl Config {
    /// Whether there is anything that IPv4 addresses are translated to.
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
            timeouts: NatTimeouts::default(),
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

/// What becomes of packets that no rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnmatchedAction {
    /// They pass as they are.
    Pass,
    /// They are dropped.
    Drop,
}

/// RFC 4787 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingBehaviour {
    /// One external endpoint per inside endpoint (REQ-1).
    EndpointIndependent,
    /// One per inside endpoint and remote address.
    AddressDependent,
    /// One per inside endpoint and remote endpoint.
    AddressAndPortDependent,
}

/// RFC 4787 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteringBehaviour {
    /// Everybody.
    EndpointIndependent,
    /// Addresses that the inside endpoint sends to.
    AddressDependent,
    /// Endpoints that the inside endpoint sends to.
    AddressAndPortDependent,
}

/// RFC 4787 4.1, "IP address pooling".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolingBehaviour {
    /// All mappings of a subscriber have one external address (REQ-2).
    Paired,
    /// Any address that has a free port.
    Arbitrary,
}

/// Which free port is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortSelection {
    /// The inside port if it is free, else a random one.
    Preserve,
    /// A random one (RFC 6056, RFC 7857 9).
    Random,
    /// The lowest one.
    Sequential,
}

/// RFC 4787 4.3, "mapping refresh".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshBehaviour {
    /// Packets from inside; of TCP, both directions.
    Outbound,
    /// Packets of both directions.
    Both,
}

/// What happens when all ports that a new flow could have are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExhaustionPolicy {
    /// A flow that was never answered, or is over, ends for it.
    EvictHalfOpen,
    /// It is refused, and mappings keep their time (RFC 4787 REQ-5, REQ-11).
    RefuseNew,
}

/// Which TCP packets may open a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpOpening {
    /// A SYN without ACK.
    Syn,
    /// All but a RST: connections survive a restart of the NAT.
    Any,
}

/// How long flows are kept without a packet that refreshes them, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct NatTimeouts {
    /// UDP (RFC 4787 REQ-5: at least 2 minutes, 5 recommended).
    pub udp: Nanos,
    /// TCP with data flowing (RFC 5382 REQ-5: at least 2 hours and 4 minutes).
    pub tcp_established: Nanos,
    /// TCP opening, closing or reset (RFC 5382 REQ-5, RFC 7857 2: at least 4 minutes).
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
    /// Shorter ones are refused: a flow that is forgotten between two packets was never one.
    pub const NS_MIN: u64 = SECOND_NS;
    /// Longer ones are refused.
    pub const NS_MAX: u64 = 7 * 24 * 60 * MINUTE_NS;

    /// All of them with their names.
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

/// Ports in blocks: one log entry covers many mappings (RFC 6888 REQ-14, RFC 7422).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct BlockConfig {
    /// Ports of a block, for each of TCP, UDP and ICMP.
    pub size: u16,
    /// Blocks that a subscriber may hold at once.
    #[serde(default = "one")]
    pub max: u16,
}

fn one() -> u16 {
    1
}

/// What one subscriber, an inside address, may hold at once.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", default)]
pub struct SubscriberLimits {
    /// Flows that it opened.
    pub sessions: Option<u32>,
    /// External ports.
    pub ports: Option<u32>,
}

/// A static forward.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct PortForward {
    /// Which protocols.
    #[serde(default)]
    pub protocol: ForwardProtocol,
    /// External address and ports.
    pub external: EndpointRange,
    /// Inside address and as many ports.
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

/// An external address that stands for an inside address.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct OneToOne {
    /// The external addresses.
    pub external: AddressRange,
    /// As many inside ones.
    pub internal: AddressRange,
}

/// A pair of IPv6 prefixes (RFC 6296).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Nptv6Config {
    /// The prefix of the inside.
    pub inside: Prefix6,
    /// What the outside sees of it.
    pub outside: Prefix6,
}

/// Kinds of NAT events (RFC 8158).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatEventKind {
    /// A flow's translation begins and ends.
    Sessions,
    /// An inside endpoint gets an external one, and gives it back.
    Mappings,
    /// A subscriber gets a block of ports, and gives it back.
    Blocks,
    /// No port is free; a subscriber has reached a limit.
    Limits,
}

/// What is logged as alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogScope {
    /// Nothing.
    Nothing,
    /// Blocks taken and given back.
    Blocks,
    /// Blocks and single mappings.
    Mappings,
}
