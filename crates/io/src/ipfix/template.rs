//! Information elements of records and their encoding: one list for templates and records.

use nf::FlowReport;
use packet::Endpoint;
use packet::parse::protocol;

/// The layout of a record (RFC 7011 3.4.1).
#[derive(Debug)]
pub struct Template {
    /// Above 255. Each layout has its own, whatever the options, so that a collector never confuses
    /// records from before and after a restart.
    pub id: u16,
    fields: &'static [Field],
}

/// A field of a record.
#[derive(Clone, Copy, Debug)]
struct Field {
    element: Element,
    /// It describes the reverse direction (RFC 5103 6.1).
    reverse: bool,
}

/// IANA's numbers of the information elements used here (RFC 7012 5).
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
enum Element {
    OctetDeltaCount = 1,
    PacketDeltaCount = 2,
    ProtocolIdentifier = 4,
    IpClassOfService = 5,
    TcpControlBits = 6,
    SourceTransportPort = 7,
    SourceIpv4Address = 8,
    DestinationTransportPort = 11,
    DestinationIpv4Address = 12,
    SourceIpv6Address = 27,
    DestinationIpv6Address = 28,
    IcmpTypeCodeIpv4 = 32,
    VlanId = 58,
    FlowEndReason = 136,
    IcmpTypeCodeIpv6 = 139,
    // Milliseconds, because nfdump 1.7 does not read nanoseconds (156 and 157).
    FlowStartMilliseconds = 152,
    FlowEndMilliseconds = 153,
    PostNatSourceIpv4Address = 225,
    PostNatDestinationIpv4Address = 226,
    PostNaptSourceTransportPort = 227,
    PostNaptDestinationTransportPort = 228,
    BiflowDirection = 239,
    PostNatSourceIpv6Address = 281,
    PostNatDestinationIpv6Address = 282,
}

/// The enterprise number of reverse elements (RFC 5103 6.1).
const REVERSE_PEN: u32 = 29_305;

/// Bit of an element's number: an enterprise number follows (RFC 7011 3.2).
const ENTERPRISE_BIT: u16 = 0x8000;

/// biflowDirection (RFC 5103 6.3): the record's source, or its destination, opened the flow.
const INITIATOR: u8 = 1;
const REVERSE_INITIATOR: u8 = 2;

const UNIFLOW_FIELDS: usize = 15;
const REVERSE_FIELDS: usize = 7;
const TRANSLATED_FIELDS: usize = 4;

/// The layouts. Those with reverse elements, and those of translated flows, have other fields, and
/// so other identifiers.
static TEMPLATES: [Template; 8] = [
    Template { id: 256, fields: &uniflow(4) },
    Template { id: 257, fields: &uniflow(6) },
    Template {
        id: 260,
        fields: &translated::<UNIFLOW_FIELDS, { UNIFLOW_FIELDS + TRANSLATED_FIELDS }>(uniflow(4), 4),
    },
    Template {
        id: 261,
        fields: &translated::<UNIFLOW_FIELDS, { UNIFLOW_FIELDS + TRANSLATED_FIELDS }>(uniflow(6), 6),
    },
    Template { id: 262, fields: &biflow(4) },
    Template { id: 263, fields: &biflow(6) },
    Template {
        id: 264,
        fields: &translated::<BIFLOW_FIELDS, { BIFLOW_FIELDS + TRANSLATED_FIELDS }>(biflow(4), 4),
    },
    Template {
        id: 265,
        fields: &translated::<BIFLOW_FIELDS, { BIFLOW_FIELDS + TRANSLATED_FIELDS }>(biflow(6), 6),
    },
];

const BIFLOW_FIELDS: usize = UNIFLOW_FIELDS + REVERSE_FIELDS;

impl Template {
    /// Returns the template for flows of an IP version (any but 4 counts as 6), with or without
    /// translated endpoints.
    pub const fn of(version: u8, translated: bool, biflow: bool) -> &'static Template {
        &TEMPLATES[biflow as usize * 4 + translated as usize * 2 + (version != 4) as usize]
    }

    /// Returns all templates of a session.
    pub fn all(biflow: bool) -> &'static [Template] {
        &TEMPLATES[usize::from(biflow) * 4..][..4]
    }

    /// Returns the bytes of the template record.
    pub const fn specification_len(&self) -> usize {
        let (mut len, mut i) = (4, 0);
        while i < self.fields.len() {
            len += if self.fields[i].reverse { 8 } else { 4 };
            i += 1;
        }
        len
    }

    /// Returns the bytes of a record.
    pub const fn record_len(&self) -> usize {
        let (mut len, mut i) = (0, 0);
        while i < self.fields.len() {
            len += self.fields[i].element.len();
            i += 1;
        }
        len
    }

    /// Appends the template record (RFC 7011 3.4.1).
    pub fn put_specification(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_be_bytes());
        out.extend((self.fields.len() as u16).to_be_bytes());
        for Field { element, reverse } in self.fields {
            let enterprise = if *reverse { ENTERPRISE_BIT } else { 0 };
            out.extend((*element as u16 | enterprise).to_be_bytes());
            out.extend((element.len() as u16).to_be_bytes());
            if *reverse {
                out.extend(REVERSE_PEN.to_be_bytes());
            }
        }
    }

    /// Appends a report's record, with forward direction `forward`: 0 original, 1 reply.
    pub fn put_record(&self, report: &FlowReport, forward: usize, out: &mut Vec<u8>) {
        for Field { element, reverse } in self.fields {
            element.put(report, forward ^ usize::from(*reverse), out);
        }
    }
}

const fn uniflow(version: u8) -> [Field; UNIFLOW_FIELDS] {
    use Element as E;
    let (source, destination, icmp) = match version {
        4 => (E::SourceIpv4Address, E::DestinationIpv4Address, E::IcmpTypeCodeIpv4),
        _ => (E::SourceIpv6Address, E::DestinationIpv6Address, E::IcmpTypeCodeIpv6),
    };
    [
        forth(source),
        forth(destination),
        forth(E::SourceTransportPort),
        forth(E::DestinationTransportPort),
        forth(E::ProtocolIdentifier),
        forth(E::IpClassOfService),
        forth(E::VlanId),
        forth(E::FlowEndReason),
        forth(E::BiflowDirection),
        forth(icmp),
        forth(E::TcpControlBits),
        forth(E::OctetDeltaCount),
        forth(E::PacketDeltaCount),
        forth(E::FlowStartMilliseconds),
        forth(E::FlowEndMilliseconds),
    ]
}

/// Returns the fields of the uniflow, followed by those of the reverse direction.
const fn biflow(version: u8) -> [Field; BIFLOW_FIELDS] {
    use Element as E;
    let forward = uniflow(version);
    let icmp = if version == 4 { E::IcmpTypeCodeIpv4 } else { E::IcmpTypeCodeIpv6 };
    let reverse = [
        E::IpClassOfService,
        icmp,
        E::TcpControlBits,
        E::OctetDeltaCount,
        E::PacketDeltaCount,
        E::FlowStartMilliseconds,
        E::FlowEndMilliseconds,
    ];
    let mut fields = [forward[0]; BIFLOW_FIELDS];
    let mut i = 0;
    while i < fields.len() {
        fields[i] = if i < UNIFLOW_FIELDS { forward[i] } else { back(reverse[i - UNIFLOW_FIELDS]) };
        i += 1;
    }
    fields
}

/// Returns `N` fields, followed by the endpoints that a NAT gave the flow (RFC 8158 8.1): `M` in
/// all.
const fn translated<const N: usize, const M: usize>(fields: [Field; N], version: u8) -> [Field; M] {
    use Element as E;
    let (source, destination) = match version {
        4 => (E::PostNatSourceIpv4Address, E::PostNatDestinationIpv4Address),
        _ => (E::PostNatSourceIpv6Address, E::PostNatDestinationIpv6Address),
    };
    let ends = [source, destination, E::PostNaptSourceTransportPort, E::PostNaptDestinationTransportPort];
    let mut all = [fields[0]; M];
    let mut i = 0;
    while i < M {
        all[i] = if i < N { fields[i] } else { forth(ends[i - N]) };
        i += 1;
    }
    all
}

const fn forth(element: Element) -> Field {
    Field { element, reverse: false }
}

const fn back(element: Element) -> Field {
    Field { element, reverse: true }
}

impl Element {
    /// Returns the bytes of a value.
    const fn len(self) -> usize {
        use Element as E;
        match self {
            E::ProtocolIdentifier | E::IpClassOfService | E::FlowEndReason | E::BiflowDirection => 1,
            // Reduced (RFC 7125 3): the upper bits are never known, and pmacct 1.7 takes two octets
            // for none.
            E::TcpControlBits => 1,
            E::SourceTransportPort | E::DestinationTransportPort | E::VlanId => 2,
            E::PostNaptSourceTransportPort | E::PostNaptDestinationTransportPort => 2,
            E::PostNatSourceIpv4Address | E::PostNatDestinationIpv4Address => 4,
            E::PostNatSourceIpv6Address | E::PostNatDestinationIpv6Address => 16,
            E::IcmpTypeCodeIpv4 | E::IcmpTypeCodeIpv6 => 2,
            E::SourceIpv4Address | E::DestinationIpv4Address => 4,
            E::OctetDeltaCount | E::PacketDeltaCount => 8,
            E::FlowStartMilliseconds | E::FlowEndMilliseconds => 8,
            E::SourceIpv6Address | E::DestinationIpv6Address => 16,
        }
    }

    /// Appends a report's value for packets of one direction: 0 original, 1 reply.
    fn put(self, report: &FlowReport, direction: usize, out: &mut Vec<u8>) {
        use Element as E;
        let d = direction;
        let addrs = [report.source, report.destination];
        let has_ports = !matches!(report.protocol, protocol::ICMP | protocol::ICMPV6);
        let ports = if has_ports { [report.source_port, report.destination_port] } else { [0; 2] };
        let exit = || {
            let own = |addr, port| Endpoint { addr, port };
            let (source, destination) = report.translated.unwrap_or((
                own(report.source, report.source_port),
                own(report.destination, report.destination_port),
            ));
            [source, destination].map(|end| if has_ports { end } else { own(end.addr, 0) })
        };
        match self {
            E::SourceIpv4Address => out.extend(addrs[d].v4_bytes()),
            E::DestinationIpv4Address => out.extend(addrs[1 - d].v4_bytes()),
            E::SourceIpv6Address => out.extend(addrs[d].as_bytes()),
            E::DestinationIpv6Address => out.extend(addrs[1 - d].as_bytes()),
            E::SourceTransportPort => out.extend(ports[d].to_be_bytes()),
            E::DestinationTransportPort => out.extend(ports[1 - d].to_be_bytes()),
            E::ProtocolIdentifier => out.push(report.protocol),
            E::IpClassOfService => out.push(report.tos[d]),
            E::VlanId => out.extend(report.vlan.to_be_bytes()),
            E::FlowEndReason => out.push(report.end_reason),
            E::PostNatSourceIpv4Address => out.extend(exit()[d].addr.v4_bytes()),
            E::PostNatDestinationIpv4Address => out.extend(exit()[1 - d].addr.v4_bytes()),
            E::PostNatSourceIpv6Address => out.extend(exit()[d].addr.as_bytes()),
            E::PostNatDestinationIpv6Address => out.extend(exit()[1 - d].addr.as_bytes()),
            E::PostNaptSourceTransportPort => out.extend(exit()[d].port.to_be_bytes()),
            E::PostNaptDestinationTransportPort => out.extend(exit()[1 - d].port.to_be_bytes()),
            E::BiflowDirection => out.push([INITIATOR, REVERSE_INITIATOR][d]),
            E::IcmpTypeCodeIpv4 | E::IcmpTypeCodeIpv6 => out.extend(report.icmp[d].to_be_bytes()),
            E::TcpControlBits => out.push(report.tcp_flags[d]),
            E::OctetDeltaCount => out.extend(report.bytes[d].to_be_bytes()),
            E::PacketDeltaCount => out.extend(report.packets[d].to_be_bytes()),
            E::FlowStartMilliseconds => out.extend(milliseconds(report, report.first_ns, d)),
            E::FlowEndMilliseconds => out.extend(milliseconds(report, report.last_ns, d)),
        }
    }
}

/// Returns a time of a direction, or of the other one if it had no packets.
fn milliseconds(report: &FlowReport, times_ns: [u64; 2], direction: usize) -> [u8; 8] {
    let counted = if report.packets[direction] == 0 { 1 - direction } else { direction };
    (times_ns[counted] / 1_000_000).to_be_bytes()
}
