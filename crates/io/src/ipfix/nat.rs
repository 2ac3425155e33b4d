//! NAT events as records (RFC 8158), and the information elements of each kind.

use packet::Endpoint;

/// A NAT event. Fields that its kind does not have are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatRecord {
    /// Time in milliseconds since 1970.
    pub time_ms: u64,
    /// natEvent, numbered as in RFC 8158 4.4.
    pub event: u8,
    /// natOriginatingAddressRealm: 1 private, 2 public.
    pub realm: u8,
    /// The protocol.
    pub protocol: u8,
    /// Source and destination before translation. If it is no session, the source is the inside
    /// host.
    pub before: [Endpoint; 2],
    /// Source and destination after translation.
    pub after: [Endpoint; 2],
    /// First and last port of a block.
    pub ports: [u16; 2],
    /// natQuotaExceededEvent (RFC 8158 4.4.2).
    pub quota: u32,
    /// The limit that was reached.
    pub limit: u32,
}

/// IANA's numbers of the information elements used here.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
enum Element {
    ProtocolIdentifier = 4,
    SourceTransportPort = 7,
    SourceIpv4Address = 8,
    DestinationTransportPort = 11,
    DestinationIpv4Address = 12,
    PostNatSourceIpv4Address = 225,
    PostNatDestinationIpv4Address = 226,
    PostNaptSourceTransportPort = 227,
    PostNaptDestinationTransportPort = 228,
    NatOriginatingAddressRealm = 229,
    NatEvent = 230,
    ObservationTimeMilliseconds = 323,
    PortRangeStart = 361,
    PortRangeEnd = 362,
    NatQuotaExceededEvent = 466,
    MaxEntriesPerUser = 473,
}

/// The layout of a kind's records. Its identifier is above those of flows' templates.
#[derive(Debug)]
pub struct NatTemplate {
    /// Template identifier.
    pub id: u16,
    elements: &'static [Element],
}

/// The templates of RFC 8158 5.
static TEMPLATES: [NatTemplate; 5] = {
    use Element as E;
    [
        // Sessions (RFC 8158 5.6.1).
        NatTemplate {
            id: 266,
            elements: &[
                E::ObservationTimeMilliseconds,
                E::NatEvent,
                E::NatOriginatingAddressRealm,
                E::ProtocolIdentifier,
                E::SourceIpv4Address,
                E::PostNatSourceIpv4Address,
                E::SourceTransportPort,
                E::PostNaptSourceTransportPort,
                E::DestinationIpv4Address,
                E::PostNatDestinationIpv4Address,
                E::DestinationTransportPort,
                E::PostNaptDestinationTransportPort,
            ],
        },
        // Entries of the binding information base.
        NatTemplate {
            id: 267,
            elements: &[
                E::ObservationTimeMilliseconds,
                E::NatEvent,
                E::NatOriginatingAddressRealm,
                E::ProtocolIdentifier,
                E::SourceIpv4Address,
                E::PostNatSourceIpv4Address,
                E::SourceTransportPort,
                E::PostNaptSourceTransportPort,
            ],
        },
        // No port was free.
        NatTemplate {
            id: 268,
            elements: &[
                E::ObservationTimeMilliseconds,
                E::NatEvent,
                E::PostNatSourceIpv4Address,
                E::ProtocolIdentifier,
            ],
        },
        // A user has too many entries.
        NatTemplate {
            id: 269,
            elements: &[
                E::ObservationTimeMilliseconds,
                E::NatEvent,
                E::NatQuotaExceededEvent,
                E::MaxEntriesPerUser,
                E::SourceIpv4Address,
            ],
        },
        // Blocks of ports.
        NatTemplate {
            id: 270,
            elements: &[
                E::ObservationTimeMilliseconds,
                E::NatEvent,
                E::SourceIpv4Address,
                E::PostNatSourceIpv4Address,
                E::PortRangeStart,
                E::PortRangeEnd,
            ],
        },
    ]
};

impl NatTemplate {
    /// Returns the template for a natEvent; none if it is not exported.
    pub fn of(event: u8) -> Option<&'static NatTemplate> {
        let number = match event {
            4 | 5 => 0,
            8 | 9 => 1,
            12 => 2,
            13 => 3,
            16 | 17 => 4,
            _ => return None,
        };
        TEMPLATES.get(number)
    }

    /// Returns all templates.
    pub fn all() -> &'static [NatTemplate] {
        &TEMPLATES
    }

    /// Returns the bytes of all template records.
    pub const fn specifications_len() -> usize {
        let (mut len, mut i) = (0, 0);
        while i < TEMPLATES.len() {
            len += 4 + 4 * TEMPLATES[i].elements.len();
            i += 1;
        }
        len
    }

    /// Returns the bytes of the longest record.
    pub const fn longest_len() -> usize {
        let (mut longest, mut i) = (0, 0);
        while i < TEMPLATES.len() {
            let len = TEMPLATES[i].record_len();
            longest = if len > longest { len } else { longest };
            i += 1;
        }
        longest
    }

    /// Returns the bytes of a record.
    pub const fn record_len(&self) -> usize {
        let (mut len, mut i) = (0, 0);
        while i < self.elements.len() {
            len += self.elements[i].len();
            i += 1;
        }
        len
    }

    /// Appends the template record (RFC 7011 3.4.1).
    pub fn put_specification(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_be_bytes());
        out.extend((self.elements.len() as u16).to_be_bytes());
        for element in self.elements {
            out.extend((*element as u16).to_be_bytes());
            out.extend((element.len() as u16).to_be_bytes());
        }
    }

    /// Appends a record.
    pub fn put_record(&self, record: &NatRecord, out: &mut Vec<u8>) {
        self.elements.iter().for_each(|element| element.put(record, out));
    }
}

impl Element {
    const fn len(self) -> usize {
        use Element as E;
        match self {
            E::ProtocolIdentifier | E::NatOriginatingAddressRealm | E::NatEvent => 1,
            E::SourceTransportPort | E::DestinationTransportPort => 2,
            E::PostNaptSourceTransportPort | E::PostNaptDestinationTransportPort => 2,
            E::PortRangeStart | E::PortRangeEnd => 2,
            E::SourceIpv4Address | E::DestinationIpv4Address => 4,
            E::PostNatSourceIpv4Address | E::PostNatDestinationIpv4Address => 4,
            E::NatQuotaExceededEvent | E::MaxEntriesPerUser => 4,
            E::ObservationTimeMilliseconds => 8,
        }
    }

    fn put(self, record: &NatRecord, out: &mut Vec<u8>) {
        use Element as E;
        let ([source, destination], [post_source, post_destination]) = (record.before, record.after);
        match self {
            E::ProtocolIdentifier => out.push(record.protocol),
            E::NatOriginatingAddressRealm => out.push(record.realm),
            E::NatEvent => out.push(record.event),
            E::SourceTransportPort => out.extend(source.port.to_be_bytes()),
            E::DestinationTransportPort => out.extend(destination.port.to_be_bytes()),
            E::PostNaptSourceTransportPort => out.extend(post_source.port.to_be_bytes()),
            E::PostNaptDestinationTransportPort => out.extend(post_destination.port.to_be_bytes()),
            E::SourceIpv4Address => out.extend(source.addr.v4_bytes()),
            E::DestinationIpv4Address => out.extend(destination.addr.v4_bytes()),
            E::PostNatSourceIpv4Address => out.extend(post_source.addr.v4_bytes()),
            E::PostNatDestinationIpv4Address => out.extend(post_destination.addr.v4_bytes()),
            E::PortRangeStart => out.extend(record.ports[0].to_be_bytes()),
            E::PortRangeEnd => out.extend(record.ports[1].to_be_bytes()),
            E::NatQuotaExceededEvent => out.extend(record.quota.to_be_bytes()),
            E::MaxEntriesPerUser => out.extend(record.limit.to_be_bytes()),
            E::ObservationTimeMilliseconds => out.extend(record.time_ms.to_be_bytes()),
        }
    }
}
