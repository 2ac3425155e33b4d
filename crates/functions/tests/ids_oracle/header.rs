//! Tests of headers: addresses and ports, the flow, the packet.

use std::net::IpAddr;

use packet::Direction;
use signatures::{
    Application, FlowDirection, FlowState, HeaderDirection as Written, IpOption, PacketTest,
    ReassemblyFilter, Rule, RuleProtocol, RuleTransport,
};

use super::application::Spoken;
use super::witness::{End, Observed};

/// The facts at an inspection point, besides buffers.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub packet: &'a Observed,
    /// Sender and receiver.
    pub ends: (End, End),
    pub direction: Direction,
    pub established: bool,
    pub spoken: Option<Spoken>,
    /// True for a stream, or a message of one.
    pub assembled: bool,
}

/// Returns whether a rule's header, and its tests of flow and packet, match.
pub fn holds(rule: &Rule, place: &Place<'_>) -> bool {
    protocol(rule.protocol, place)
        && ends(rule, place)
        && flow(rule, place)
        && rule.packet.iter().all(|test| packet(test, place.packet) == Some(true))
}

/// Returns whether direction, server port and protocol permit that a rule matches later in a
/// stream; `is_open` if the protocol may still become known.
pub fn may_wait(rule: &Rule, place: &Place<'_>, is_open: bool) -> bool {
    let (ports, server) = match place.direction {
        Direction::Original => (&rule.destination_ports, place.ends.1),
        Direction::Reply => (&rule.source_ports, place.ends.0),
    };
    let in_ports = rule.direction == Written::Both || ports.is_any() || ports.contains(server.1);
    let is_application = matches!(rule.protocol, RuleProtocol::Application(_));
    goes(rule, place) && in_ports && (is_application && is_open || protocol(rule.protocol, place))
}

/// Returns whether a rule's protocol, addresses and ports may match a stream: the constant part.
fn protocol(protocol: RuleProtocol, place: &Place<'_>) -> bool {
    let (number, version) = (place.packet.protocol, place.packet.version);
    match protocol {
        RuleProtocol::Transport(transport) => match transport {
            RuleTransport::Ip => true,
            RuleTransport::Ipv4 => version == 4,
            RuleTransport::Ipv6 => version == 6,
            RuleTransport::Tcp => number == 6,
            RuleTransport::TcpPacket => number == 6 && !place.assembled,
            RuleTransport::TcpStream => number == 6 && place.assembled,
            RuleTransport::Udp => number == 17,
            RuleTransport::Sctp => number == 132,
            RuleTransport::Icmp => matches!(number, 1 | 58),
            RuleTransport::Icmpv4 => number == 1,
            RuleTransport::Icmpv6 => number == 58,
            _ => false,
        },
        RuleProtocol::Application(application) => match place.spoken {
            Some(Spoken::Http1) => matches!(application, Application::Http | Application::Http1),
            Some(Spoken::Http2) => matches!(application, Application::Http | Application::Http2),
            Some(Spoken::Tls) => application == Application::Tls,
            Some(Spoken::Ssh) => application == Application::Ssh,
            Some(Spoken::Smtp) => application == Application::Smtp,
            Some(Spoken::Ftp) => application == Application::Ftp,
            Some(Spoken::Smb) => application == Application::Smb,
            Some(Spoken::Dns) => application == Application::Dns,
            None => false,
        },
    }
}

fn ends(rule: &Rule, place: &Place<'_>) -> bool {
    let has_ports = matches!(place.packet.protocol, 6 | 17 | 132);
    let port = |ports: &signatures::PortSet, end: End| ports.is_any() || has_ports && ports.contains(end.1);
    let address = |set: &signatures::AddressSet, address: IpAddr| set.contains(address);
    let forward = |from: End, to: End| {
        address(&rule.source, from.0)
            && address(&rule.destination, to.0)
            && port(&rule.source_ports, from)
            && port(&rule.destination_ports, to)
    };
    let (from, to) = place.ends;
    forward(from, to) || rule.direction == Written::Both && forward(to, from)
}

/// Returns whether a rule applies to this direction.
fn goes(rule: &Rule, place: &Place<'_>) -> bool {
    rule.flow.direction.is_none_or(|way| {
        place.direction
            == match way {
                FlowDirection::ToServer => Direction::Original,
                FlowDirection::ToClient => Direction::Reply,
            }
    })
}

fn flow(rule: &Rule, place: &Place<'_>) -> bool {
    let direction = goes(rule, place);
    let state = rule.flow.state.is_none_or(|state| match state {
        FlowState::Established => place.established,
        FlowState::NotEstablished => !place.established,
        FlowState::Stateless => true,
    });
    let stream = rule.flow.stream.is_none_or(|only| place.assembled == (only == ReassemblyFilter::Assembled));
    // Datagrams are not reassembled.
    direction && state && stream && rule.flow.fragments != Some(ReassemblyFilter::Assembled)
}

/// Returns whether a packet test passes; `None` if the tested field is missing.
fn packet(test: &PacketTest, packet: &Observed) -> Option<bool> {
    let word = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let ip = &packet.network[..];
    let v4 = (packet.version == 4).then_some(ip);
    let is_first = packet.class != packet::PacketClass::LaterFragment;
    let of =
        |numbers: &[u8]| (is_first && numbers.contains(&packet.protocol)).then_some(&packet.transport[..]);
    let (tcp, icmp) = (of(&[6]), of(&[1, 58]));
    Some(match test {
        PacketTest::PayloadBytes(test) => test.holds(packet.payload.len() as u16),
        PacketTest::Ttl(test) => test.holds(*ip.get(if packet.version == 4 { 8 } else { 7 })?),
        PacketTest::Tos { negated, value } => {
            let tos = if packet.version == 4 { ip[1] } else { ip[0] << 4 | ip[1] >> 4 };
            (tos == *value) != *negated
        }
        PacketTest::IpId(test) => test.holds(word(v4?, 4)?),
        PacketTest::IpProtocol(test) => test.holds(packet.protocol),
        PacketTest::SameAddress => packet.source.0 == packet.destination.0,
        PacketTest::IpOption(option) => {
            let header = v4?.get(20..usize::from(ip[0] & 15) * 4)?;
            options(header).iter().any(|(kind, _)| match option {
                IpOption::Any => true,
                IpOption::Type(asked) => kind == asked,
            })
        }
        PacketTest::FragmentBits(bits) => bits.holds(v4?.get(6)? >> 5),
        PacketTest::FragmentOffset(test) => test.holds(word(v4?, 6)? & 0x1fff),
        PacketTest::TcpFlags(bits) => bits.holds(*tcp?.get(13)?),
        PacketTest::Sequence(test) => test.holds(u32::from_be_bytes(*tcp?.get(4..)?.first_chunk()?)),
        PacketTest::Acknowledgement(test) => test.holds(u32::from_be_bytes(*tcp?.get(8..)?.first_chunk()?)),
        PacketTest::Window(test) => test.holds(word(tcp?, 14)?),
        PacketTest::Mss(test) => test.holds(word(&tcp_option(tcp?, 2)?, 0)?),
        PacketTest::WindowScale(test) => test.holds(*tcp_option(tcp?, 3)?.first()?),
        PacketTest::IcmpType(test) => test.holds(*icmp?.first()?),
        PacketTest::IcmpCode(test) => test.holds(*icmp?.get(1)?),
        PacketTest::IcmpId(id) => word(query(icmp?, packet.protocol)?, 4)? == *id,
        PacketTest::IcmpSequence(number) => word(query(icmp?, packet.protocol)?, 6)? == *number,
        PacketTest::StreamSize(_) => return None,
    })
}

/// Returns an ICMP message that has an identifier and a sequence number.
fn query(message: &[u8], protocol: u8) -> Option<&[u8]> {
    let kinds: &[u8] = if protocol == 1 { &[0, 8, 13, 14, 15, 16, 17, 18] } else { &[128, 129] };
    kinds.contains(message.first()?).then_some(message)
}

fn tcp_option(header: &[u8], kind: u8) -> Option<Vec<u8>> {
    let options_part = header.get(20..usize::from(header.get(12)? >> 4) * 4)?;
    options(options_part).into_iter().find(|(other, _)| *other == kind).map(|(_, value)| value)
}

/// Returns the options of an IPv4 or TCP header: kinds and values.
fn options(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(&kind) = bytes.first() {
        let len = if kind < 2 { 1 } else { usize::from(bytes.get(1).copied().unwrap_or(0)) };
        if len == 0 || len == 1 && kind > 1 || len > bytes.len() {
            break;
        }
        all.push((kind, bytes.get(2..len).unwrap_or_default().to_vec()));
        if kind == 0 {
            break;
        }
        bytes = &bytes[len..];
    }
    all
}
