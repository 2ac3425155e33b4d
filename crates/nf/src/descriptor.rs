//! An NF's statement about itself (E4), from which feature lists and record layouts follow.

use crate::counters::DeclaredCounters;

/// Describes an NF to the graph, and to operators (`rivulet nf show`). Affinity, scaling and cost
/// are for operators alone: nothing places instances, and clusters go by
/// [`group_of`](crate::NetworkFunction::group_of).
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Name of the type in policies, lower case: `nat`.
    pub name: &'static str,
    /// Other names accepted in policies: `NAT`, `FW`. Names are compared ignoring case.
    pub aliases: &'static [&'static str],
    /// Its purpose, in one sentence.
    pub summary: &'static str,
    /// Readiness for production.
    pub maturity: Maturity,
    /// Version of the state's layout. Increment it with every change, see
    /// [`crate::NetworkFunction::upgrade`].
    pub state_version: u16,
    /// Attributes that it sets on packets (E4); filters read them as `NAME.attribute`.
    pub attributes: &'static [Attribute],
    /// Header fields that its verdicts and actions depend on.
    pub reads: &'static [Field],
    /// Header fields that it may write.
    pub writes: &'static [Field],
    /// Access to payloads.
    pub payload: Access,
    /// Packets that must meet at one instance (E4).
    pub affinity: Affinity,
    /// Extent over which its instances may be spread (E4).
    pub scaling: Scaling,
    /// Its counters: `Counters::DECLARED` of [`counters!`](crate::counters!).
    pub counters: DeclaredCounters,
    /// Other state that flows share. There is no other way to share: instances are immutable while
    /// packets flow.
    pub shared: &'static [Shared],
    /// The treatment of the shared state on a cluster.
    pub across_nodes: NodeSharing,
    /// Size of the per-flow map, if any.
    pub map: Option<MapSpec>,
    /// The per-flow growing buffers, if any.
    pub buffers: Option<BufferSpec>,
    /// If set, TCP streams are reassembled for it, see [`crate::PacketView::stream`].
    pub stream: bool,
    /// If set, it controls how long flows live. If no NF of a graph does, the graph's timeouts
    /// apply.
    pub keeps_flows: bool,
    /// If set, packets leave it as packets of other flows, as at the end of an opaque tunnel. No
    /// alias is learned from them, and no other NF can be in the same graph: it would get packets
    /// with another flow's record.
    pub changes_flows: bool,
    /// If set, one packet shows how all similar packets of a flow are treated (B3, B11). The graph
    /// may record it and treat the next ones alike without calling the NF, until a recorded event
    /// holds.
    ///
    /// Similar packets are whole, without SYN, FIN or RST, of the same direction and side, found by
    /// the same key, in the same connection phase. Everything else may differ: length, payload,
    /// time to live, other flags, ICMP type.
    ///
    /// Header actions are recorded automatically. All other per-packet work must be recorded as
    /// state functions: counts, map writes, alerts, events, reports, changes of state, sets,
    /// meters, buffers. Mark exceptions with [`crate::PacketView::mark_one_off`] and flows treated
    /// packet by packet with [`crate::PacketView::mark_per_packet`]. Flow tags must be the same in
    /// both directions. Without this flag, or with `stream`, the NF sees every packet.
    pub consolidates: bool,
    /// Estimated CPU cycles per packet of a known flow, before anything is measured (E4).
    pub cycles_per_packet: u32,
}

impl Descriptor {
    /// A descriptor without a name: no attributes, headers, shared state or promises. Descriptors
    /// name the fields that differ and take the rest from it.
    pub const DEFAULT: Descriptor = Descriptor {
        name: "",
        aliases: &[],
        summary: "",
        maturity: Maturity::Experimental,
        state_version: 1,
        attributes: &[],
        reads: &[],
        writes: &[],
        payload: Access::Write,
        affinity: Affinity::Flow,
        scaling: Scaling::Single,
        counters: DeclaredCounters::NONE,
        shared: &[],
        across_nodes: NodeSharing::OneMachine("its flows share state"),
        map: None,
        buffers: None,
        stream: false,
        keeps_flows: false,
        changes_flows: false,
        consolidates: false,
        cycles_per_packet: 100,
    };

    /// Checks if the NF may change the length of packets.
    pub(crate) const fn resizes(&self) -> bool {
        let mut i = 0;
        while i < self.writes.len() {
            if matches!(self.writes[i], Field::Vlan | Field::Encapsulation) {
                return true;
            }
            i += 1;
        }
        false
    }
}

/// The maturity of an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maturity {
    /// Ready for production.
    Production,
    /// Complete, but new.
    Preview,
    /// May change or disappear.
    Experimental,
}

/// An attribute that an NF sets on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The part after the dot in `FW.safe`.
    pub name: &'static str,
    /// Width of the value, 1 to 16 bits.
    pub bits: u8,
    /// Names of values, from 0 on; the others are numbers.
    pub values: &'static [&'static str],
    /// Explanation for operators.
    pub meaning: &'static str,
}

/// A header field that NFs read or rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Source address.
    SourceAddress,
    /// Destination address.
    DestinationAddress,
    /// Source port, or identifier of an ICMP query.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// IP protocol number.
    Protocol,
    /// TCP flags.
    TcpFlags,
    /// Time to live or hop limit.
    TimeToLive,
    /// Differentiated services code point.
    Dscp,
    /// VLAN tags.
    Vlan,
    /// Headers around the IP header: tunnels and MPLS labels.
    Encapsulation,
}

/// Access of an NF or a state function to a packet's payload (B17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Neither read nor written.
    Ignore,
    /// Only read.
    Read,
    /// May be written.
    Write,
}

/// The packets that must meet at one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Packets of one flow, both directions.
    Flow,
    /// Packets of one subscriber: same source of the flow's first packet.
    Source,
    /// Packets to one destination.
    Destination,
    /// None: any packet may be processed anywhere.
    None,
}

/// The extent over which an NF's instances may be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Cores and servers.
    Servers,
    /// Cores of one server.
    Cores,
    /// One instance only.
    Single,
}

/// The treatment of state that flows share when they are at several nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSharing {
    /// The NF runs on one machine only, for this reason.
    OneMachine(&'static str),
    /// Each node has shared state of its own, such as limits on what the NF sends by itself.
    PerNode,
    /// Flows that share state are in one affinity group, and at one node:
    /// [`group_of`](crate::NetworkFunction::group_of). Their items move with them:
    /// [`flow_leaves`](crate::NetworkFunction::flow_leaves) and
    /// [`flow_arrives`](crate::NetworkFunction::flow_arrives).
    PerGroup,
}

/// State that flows share, except counters, in one of the kinds that scale without locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A bounded set of 64-bit members with expiry; merged by union.
    Set {
        /// Name in reports.
        name: &'static str,
        /// Limit on its members, unless [`crate::Setup::set_capacity`] overrides it. When full, the
        /// oldest member is evicted.
        capacity: usize,
    },
    /// Items that flows take and return, such as NAT ports. Each instance leases ranges of its own.
    Pool(&'static str),
    /// A bounded table of small values by key, such as token buckets of subscribers; see
    /// [`crate::Meters`]. Leased: each instance has meters of its own, with a share of the
    /// allowance.
    Meters(&'static str),
    /// The most recent payloads of any flow, found by fingerprints; see [`crate::PayloadCache`].
    /// Local to one instance, or to the threads of one machine.
    PayloadCache(&'static str),
}

/// Size of the per-flow map. It is part of the flow's record and moves with the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Limit on the entries; further ones are refused.
    pub entries: usize,
    /// Bytes of a value. Shorter values are padded with zeros.
    pub value_len: usize,
}

/// Growing buffers of a flow. They move with the flow. Bytes beyond a limit are refused and
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// Buffers per flow.
    pub count: usize,
    /// Limit on the bytes of one buffer.
    pub len_max: usize,
    /// Limit on the bytes of all buffers of an instance.
    pub memory: usize,
}
