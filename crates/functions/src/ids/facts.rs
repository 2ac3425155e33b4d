//! Facts at an inspection point besides buffers: endpoints, protocol, headers.

use applayer::detect::{AppProtocol, Detection};
use applayer::dns;
use applayer::tls::ProtocolVersion;
use nf::PacketView;
use nf::stream::WholeDatagram;
use packet::parse::protocol;
use packet::{Endpoint, PacketClass};
use signatures::{FlagTest, IpOption, PacketTest, StreamSide, TlsState, TlsVersion};

/// The facts at an inspection point.
#[derive(Clone, Copy)]
pub struct InspectionFacts<'a> {
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// The IP protocol number.
    pub protocol: u8,
    /// IP version.
    pub version: u8,
    /// True in the direction to the server.
    pub to_server: bool,
    /// True for the first packet in its direction.
    pub is_first: bool,
    /// True for the first packet in its direction since the protocol is known.
    pub is_first_known: bool,
    /// True if the connection is established.
    pub established: bool,
    /// The application protocol.
    pub application: Detection,
    /// Sizes of the client's and the server's stream, with this packet, in sequence numbers.
    pub stream_sizes: [u32; 2],
    /// The packet, if this is a packet's inspection point.
    pub packet: Option<&'a PacketFacts<'a>>,
    /// The DNS message, if this is a DNS message's inspection point.
    pub dns: Option<&'a DnsFacts>,
    /// The hello, if this is its inspection point.
    pub hello: Option<HelloFacts>,
}

impl InspectionFacts<'_> {
    /// Returns whether a packet test matches.
    pub fn holds(&self, test: &PacketTest) -> bool {
        let PacketTest::StreamSize(wanted) = test else {
            return self.packet.is_some_and(|packet| packet.holds(test, self.source, self.destination));
        };
        let [client, server] = self.stream_sizes.map(|size| wanted.bytes.holds(size));
        self.protocol == protocol::TCP
            && match wanted.side {
                StreamSide::Client => client,
                StreamSide::Server => server,
                StreamSide::Both => client && server,
                StreamSide::Either => client || server,
            }
    }
}

/// A hello of TLS.
#[derive(Clone, Copy)]
pub struct HelloFacts {
    /// The client's or the server's.
    pub state: TlsState,
    /// The version that it requests or selects.
    pub version: ProtocolVersion,
}

impl HelloFacts {
    /// Returns whether it has this version.
    pub fn is_of(&self, version: TlsVersion) -> bool {
        let number = match version {
            TlsVersion::Ssl2 => 0x0002,
            TlsVersion::Ssl3 => 0x0300,
            TlsVersion::Tls10 => 0x0301,
            TlsVersion::Tls11 => 0x0302,
            TlsVersion::Tls12 => 0x0303,
            TlsVersion::Tls13 => 0x0304,
            _ => return false,
        };
        self.version.0 == number
    }
}

/// The bytes of a packet.
pub struct PacketFacts<'a> {
    /// From the IP header on. Of a reassembled datagram, only the header.
    pub network: &'a [u8],
    /// From the transport header on; empty in fragments.
    pub transport: &'a [u8],
    /// After the transport header; empty in fragments.
    pub payload: &'a [u8],
    /// From the link layer on.
    pub frame: &'a [u8],
    /// IP version.
    pub version: u8,
    /// Transport protocol.
    pub protocol: u8,
    /// Relation to its flow.
    pub class: PacketClass,
    /// True for a datagram reassembled from fragments.
    pub is_assembled: bool,
    /// Length of the IP header with its extensions.
    header_len: usize,
}

/// Fields of a DNS message's header and records that rules test.
pub struct DnsFacts {
    /// The opcode.
    pub opcode: u8,
    /// The response code; none in a query.
    pub rcode: Option<u16>,
    /// The types of its questions and answers, the first of them.
    pub kinds: [u16; KINDS_MAX],
    /// Number of types.
    pub kinds_len: usize,
}

/// Maximum types of a DNS message that rules test.
const KINDS_MAX: usize = 32;

impl DnsFacts {
    /// Reads the header of a message.
    pub fn of(message: &dns::DnsMessage<'_>) -> DnsFacts {
        let rcode = message.is_response.then_some(u16::from(message.rcode));
        DnsFacts { opcode: message.opcode, rcode, kinds: [0; KINDS_MAX], kinds_len: 0 }
    }

    /// Adds a type.
    pub fn add(&mut self, kind: u16) {
        if let Some(next) = self.kinds.get_mut(self.kinds_len) {
            *next = kind;
            self.kinds_len += 1;
        }
    }

    /// Returns the types.
    pub fn kinds(&self) -> &[u16] {
        &self.kinds[..self.kinds_len]
    }
}

impl<'a> PacketFacts<'a> {
    /// Reads a packet.
    pub fn of(packet: &'a PacketView<'_>) -> PacketFacts<'a> {
        let meta = packet.meta();
        let is_fragment = matches!(meta.class, PacketClass::FirstFragment | PacketClass::LaterFragment);
        let is_error = meta.class == PacketClass::IcmpError;
        PacketFacts {
            network: packet.network(),
            transport: if is_fragment { &[] } else { packet.transport() },
            payload: match () {
                () if is_fragment => &[],
                () if is_error => packet.transport().get(8..).unwrap_or_default(),
                () => packet.payload(),
            },
            frame: packet.data(),
            version: meta.version,
            protocol: match (is_error, meta.version) {
                (true, 4) => protocol::ICMP,
                (true, _) => protocol::ICMPV6,
                (false, _) => meta.protocol,
            },
            class: meta.class,
            is_assembled: false,
            header_len: usize::from(meta.l4).saturating_sub(usize::from(meta.l3)),
        }
    }

    /// Reads the datagram that this packet, a fragment, completes.
    pub fn assembled(packet: &'a PacketView<'_>, datagram: WholeDatagram<'a>) -> PacketFacts<'a> {
        let (meta, transport) = (packet.meta(), datagram.transport);
        let header_len = usize::from(meta.l4).saturating_sub(usize::from(meta.l3));
        let transport_len = match datagram.protocol {
            protocol::TCP => transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4),
            protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
            _ => 0,
        };
        PacketFacts {
            network: packet.network().get(..header_len).unwrap_or_default(),
            transport,
            payload: transport.get(transport_len..).unwrap_or_default(),
            frame: packet.data(),
            version: meta.version,
            protocol: datagram.protocol,
            class: PacketClass::Whole,
            is_assembled: true,
            header_len,
        }
    }

    /// Returns whether the packet is a fragment.
    pub fn is_fragment(&self) -> bool {
        matches!(self.class, PacketClass::FirstFragment | PacketClass::LaterFragment)
    }

    /// Returns the IP header with its extensions.
    pub fn ip_header(&self) -> &'a [u8] {
        self.network.get(..self.header_len).filter(|header| !header.is_empty()).unwrap_or(self.network)
    }

    /// Returns the ports in the transport header.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has = matches!(self.protocol, protocol::TCP | protocol::UDP);
        has.then_some((self.u16(self.transport, 0)?, self.u16(self.transport, 2)?))
    }

    /// Returns the length of the transport header; 0 if there is none.
    pub fn transport_len(&self) -> usize {
        let len = self.payload.as_ptr() as usize - self.transport.as_ptr() as usize;
        if self.transport.is_empty() { 0 } else { len.min(self.transport.len()) }
    }

    fn u8(&self, of: &[u8], at: usize) -> Option<u8> {
        of.get(at).copied()
    }

    fn u16(&self, of: &[u8], at: usize) -> Option<u16> {
        of.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&self, of: &[u8], at: usize) -> Option<u32> {
        of.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn v4(&self) -> Option<&'a [u8]> {
        (self.version == 4).then_some(self.network)
    }

    fn tcp(&self) -> Option<&'a [u8]> {
        (self.protocol == protocol::TCP && !self.transport.is_empty()).then_some(self.transport)
    }

    fn icmp(&self) -> Option<&'a [u8]> {
        let is = matches!(self.protocol, protocol::ICMP | protocol::ICMPV6);
        (is && !self.transport.is_empty()).then_some(self.transport)
    }

    /// Returns type and code of an ICMP message.
    pub fn icmp_type(&self) -> Option<[u8; 2]> {
        self.icmp()?.first_chunk().copied()
    }

    /// Returns identifier and sequence number of an ICMP message that has them: echo, timestamp,
    /// information, address mask (RFC 792, RFC 950), and ICMPv6 echo (RFC 4443).
    fn query(&self) -> Option<(u16, u16)> {
        let icmp = self.icmp()?;
        let has = match self.protocol {
            protocol::ICMP => matches!(icmp.first()?, 0 | 8 | 13..=18),
            _ => matches!(icmp.first()?, 128 | 129),
        };
        has.then_some((self.u16(icmp, 4)?, self.u16(icmp, 6)?))
    }

    /// Returns the value of a TCP option.
    fn tcp_option(&self, kind: u8) -> Option<&'a [u8]> {
        let tcp = self.tcp()?;
        let mut rest = tcp.get(20..usize::from(tcp.get(12)? >> 4) * 4)?;
        loop {
            match *rest.first()? {
                0 => return None,
                1 => rest = &rest[1..],
                found => {
                    let len = usize::from(*rest.get(1)?);
                    let option = rest.get(..len).filter(|_| len >= 2)?;
                    if found == kind {
                        return Some(&option[2..]);
                    }
                    rest = &rest[len..];
                }
            }
        }
    }

    fn has_ip_option(&self, wanted: IpOption) -> bool {
        let Some(v4) = self.v4() else { return false };
        let Some(mut rest) = v4.first().and_then(|first| v4.get(20..usize::from(first & 15) * 4)) else {
            return false;
        };
        if let IpOption::Any = wanted {
            return !rest.is_empty();
        }
        while let Some(&kind) = rest.first() {
            if wanted == IpOption::Type(kind) {
                return true;
            }
            let len = match kind {
                0 => return false,
                1 => 1,
                _ => rest.get(1).map_or(0, |&len| usize::from(len)),
            };
            match rest.get(len..).filter(|_| len > 0) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        false
    }

    /// Returns whether a packet test matches.
    pub fn holds(&self, test: &PacketTest, source: Endpoint, destination: Endpoint) -> bool {
        self.value(test, source, destination).unwrap_or(false)
    }

    fn value(&self, test: &PacketTest, source: Endpoint, destination: Endpoint) -> Option<bool> {
        let net = self.network;
        Some(match *test {
            PacketTest::PayloadBytes(_) if self.is_fragment() => return None,
            PacketTest::FragmentBits(_) | PacketTest::FragmentOffset(_) if self.is_assembled => return None,
            PacketTest::PayloadBytes(wanted) => {
                wanted.holds(u16::try_from(self.payload.len()).unwrap_or(u16::MAX))
            }
            PacketTest::Ttl(wanted) => wanted.holds(self.u8(net, if self.version == 4 { 8 } else { 7 })?),
            PacketTest::Tos { negated, value } => {
                let tos = match self.version {
                    4 => self.u8(net, 1)?,
                    _ => (self.u16(net, 0)? >> 4) as u8,
                };
                (tos == value) != negated
            }
            PacketTest::IpId(wanted) => wanted.holds(self.u16(self.v4()?, 4)?),
            PacketTest::IpProtocol(wanted) => wanted.holds(self.protocol),
            PacketTest::SameAddress => source.addr == destination.addr,
            PacketTest::IpOption(wanted) => self.has_ip_option(wanted),
            PacketTest::FragmentBits(bits) => bits.holds(self.u8(self.v4()?, 6)? >> 5),
            PacketTest::FragmentOffset(wanted) => wanted.holds(self.u16(self.v4()?, 6)? & 0x1fff),
            PacketTest::TcpFlags(bits) => FlagTest::holds(bits, self.u8(self.tcp()?, 13)?),
            PacketTest::Sequence(wanted) => wanted.holds(self.u32(self.tcp()?, 4)?),
            PacketTest::Acknowledgement(wanted) => wanted.holds(self.u32(self.tcp()?, 8)?),
            PacketTest::Window(wanted) => wanted.holds(self.u16(self.tcp()?, 14)?),
            PacketTest::Mss(wanted) => wanted.holds(self.u16(self.tcp_option(2)?, 0)?),
            PacketTest::WindowScale(wanted) => wanted.holds(self.u8(self.tcp_option(3)?, 0)?),
            PacketTest::IcmpType(wanted) => wanted.holds(self.u8(self.icmp()?, 0)?),
            PacketTest::IcmpCode(wanted) => wanted.holds(self.u8(self.icmp()?, 1)?),
            PacketTest::IcmpId(wanted) => self.query()?.0 == wanted,
            PacketTest::IcmpSequence(wanted) => self.query()?.1 == wanted,
            // A test of the flow.
            PacketTest::StreamSize(_) => return None,
        })
    }
}

/// Returns whether the detected protocol is the rule's.
pub fn is_application(found: Detection, wanted: signatures::Application) -> bool {
    use signatures::Application as A;
    match found {
        Detection::Unknown => wanted == A::Unknown,
        Detection::Failed => wanted == A::Failed,
        Detection::Known(found) => match wanted {
            A::Http => matches!(found, AppProtocol::Http1 | AppProtocol::Http2),
            A::Http1 => found == AppProtocol::Http1,
            A::Http2 => found == AppProtocol::Http2,
            A::Tls => found == AppProtocol::Tls,
            A::Ssh => found == AppProtocol::Ssh,
            A::Smtp => found == AppProtocol::Smtp,
            A::Ftp => found == AppProtocol::Ftp,
            A::Smb => found == AppProtocol::Smb,
            A::Dns => found == AppProtocol::Dns,
            _ => false,
        },
    }
}
