//! What a function says of itself (E4): data, from which feature lists, record layouts and
//! placement are made.

/// Describes a function to the chain, to operators (`rivulet nf show`) and to placement.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The type's name in policies, lower case: `nat`.
    pub name: &'static str,
    /// Other spellings that policies may use: `NAT`, `FW`. Names are compared without case.
    pub aliases: &'static [&'static str],
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What may be expected of it.
    pub maturity: Maturity,
    /// Version of the per-flow state's layout; raised with every change, see
    /// [`crate::NetworkFunction::upgrade`].
    pub state_version: u16,
    /// Attributes that it sets on packets (E4), read by filters as `NAME.attribute`.
    pub attributes: &'static [Attribute],
    /// Header fields that its verdicts and actions depend on.
    pub reads: &'static [Field],
    /// Header fields that it may write.
    pub writes: &'static [Field],
    /// What it does with payloads.
    pub payload: Access,
    /// Which packets must meet at one instance (E4).
    pub affinity: Affinity,
    /// Whether instances may stand on several cores or servers (E4).
    pub scaling: Scaling,
    /// State that flows share. Anything else that is shared is refused: functions are immutable
    /// while packets flow.
    pub shared: &'static [Shared],
    /// The per-flow get/put map, if it wants one.
    pub map: Option<MapSpec>,
    /// Growing buffers of each flow, if it wants some.
    pub buffers: Option<BufferSpec>,
    /// Whether it wants its flows' TCP streams put together: see [`crate::PacketView::stream`].
    pub stream: bool,
    /// Whether it says how long flows live; if no function of a chain does, the chain's own
    /// timeouts count.
    pub keeps_flows: bool,
    /// Whether a flow's state follows from the headers, lengths, times and order of its packets
    /// alone: not from payloads, nor from what flows share, other than counters, nor from packets
    /// that functions make. Then units may recompute it, each for itself, from what they are told
    /// of packets that others get; see [`crate::NetworkFunction::recomputes`].
    pub recomputes: bool,
    /// Whether packets leave it as other flows' packets than they came as: the end of a tunnel that
    /// nobody else looks into. No alias is learned from what leaves, and no other function can
    /// stand in the same chain: it would have packets with a record that is not their flow's.
    pub changes_flows: bool,
    /// Whether what it does to a flow's packets can be told from one of them (B3, B11): then a
    /// chain may record that one and treat the next ones alike without the function, until an event
    /// that was recorded holds. These are whole packets without SYN, FIN or RST, of the same
    /// direction, from the same side, found by the same key, and the flow's connection is in the
    /// same phase. They may differ in all else: length, payload, time to live, other flags, ICMP
    /// type.
    ///
    /// Header actions are recorded by themselves. Whatever else it does for each packet (counts,
    /// puts, alerts, events, reports, changes of state, sets, meters, buffers) it must have
    /// recorded as state functions, which do it then. A packet that is not like the next ones it
    /// marks (see [`crate::PacketView::mark_one_off`]), and packets of flows that are each treated in
    /// their own way (see [`crate::PacketView::mark_per_packet`]); flow tags must be those that packets of
    /// both directions have. A function that does not say so, or that wants streams, sees every
    /// packet.
    pub consolidates: bool,
    /// Estimated cost in cycles per packet of a known flow, for sizing before anything was measured
    /// (E4).
    pub cycles_per_packet: u32,
}

impl Descriptor {
    /// Whether packets may be longer or shorter behind the function.
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

/// How far one may rely on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maturity {
    /// For production.
    Production,
    /// Complete, but young.
    Preview,
    /// May change or go.
    Experimental,
}

/// An attribute that a function sets on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, as in `FW.safe`.
    pub name: &'static str,
    /// How many bits its value takes, 1 to 16.
    pub bits: u8,
    /// What it says.
    pub meaning: &'static str,
}

/// Header fields, as far as functions read or rewrite them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Source address.
    SourceAddress,
    /// Destination address.
    DestinationAddress,
    /// Source port, or the identifier of an ICMP query.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// IP protocol.
    Protocol,
    /// TCP flags.
    TcpFlags,
    /// Time to live or hop limit.
    TimeToLive,
    /// Differentiated services code point.
    Dscp,
    /// VLAN tags.
    Vlan,
    /// Headers around the IP header are pushed or pulled: tunnels, MPLS labels.
    Encapsulation,
}

/// What a function, or a state function, does with a packet's payload (B17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Neither reads nor writes it.
    Ignore,
    /// Reads it.
    Read,
    /// May write it.
    Write,
}

/// Which packets must meet at one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Those of one flow, both directions.
    Flow,
    /// Those of one subscriber: the source of the flow's first packet.
    Source,
    /// Those to one destination.
    Destination,
    /// None: any packet may be processed anywhere.
    None,
}

/// Over what a function's instances may be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Cores and servers.
    Servers,
    /// Cores of one server.
    Cores,
    /// One instance only.
    Single,
}

/// State that several flows share, of one of the kinds that scale without locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A number that is only added to; merged by addition.
    Counter(&'static str),
    /// A group of counters whose number and names follow from the configuration, some per server
    /// say; see [`crate::Setup::counters`]. Merged by addition, name by name.
    Counters(&'static str),
    /// A bounded set of 64-bit members with expiry; merged by union.
    Set {
        /// Its name.
        name: &'static str,
        /// Members at most, unless [`crate::Setup::set_capacity`] says otherwise; the oldest goes
        /// when it is full.
        capacity: usize,
    },
    /// Items that flows take and give back, such as NAT ports. Each instance leases ranges of its
    /// own.
    Pool(&'static str),
    /// A bounded table of a little state by key, such as token buckets of subscribers; see
    /// [`crate::Meters`]. Leased: each instance has meters of its own, with a share of what they
    /// allow.
    Meters(&'static str),
    /// The last payloads of any flows, so many bytes, found again by fingerprints; see
    /// [`crate::PayloadCache`]. Belongs to one instance, or to those on several threads of one machine.
    PayloadCache(&'static str),
}

/// Size of the per-flow get/put map: part of the flow's record, so it moves with the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Entries at most; a put beyond is refused.
    pub entries: usize,
    /// Bytes of a value; shorter ones are padded with zeros.
    pub value_len: usize,
}

/// Growing buffers of each flow: part of what a flow keeps, so they move with it. What finds no
/// room is refused and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// How many buffers a flow has.
    pub count: usize,
    /// Bytes of a buffer at most.
    pub len_max: usize,
    /// Bytes of all buffers of all flows of an instance at most.
    pub memory: usize,
}
