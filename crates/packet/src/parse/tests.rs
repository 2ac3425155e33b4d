//! Literal frames and the parser's results for them.

use super::*;
use crate::{LinkType, Side};

mod captures;

/// 10.1.2.3:1000 -> 192.0.2.1:53 over UDP, with 4 bytes of payload and right checksums.
const UDP4: [u8; 32] = [
    0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, 17, 0x6c, 0xc7, 10, 1, 2, 3, 192, 0, 2, 1, //
    0x03, 0xe8, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4,
];

/// Returns 2001:db8::1 port 1000 -> 2001:db8::2 port 53 over UDP, with 2 bytes of payload.
fn udp6() -> Vec<u8> {
    ipv6(17, &[0x03, 0xe8, 0, 53, 0, 10, 0, 0, 9, 9])
}

/// Returns an IPv6 packet from 2001:db8::1 to 2001:db8::2.
fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let mut bytes = vec![0x60, 0, 0, 0, high, low, next_header, 64];
    for host in [1, 2] {
        bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    [bytes, payload.to_vec()].concat()
}

/// Returns an IPv4 packet from 10.1.2.3 to 192.0.2.1, without a checksum.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = UDP4[..20].to_vec();
    bytes[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    bytes[9] = protocol;
    [bytes, payload.to_vec()].concat()
}

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes()[..], rest].concat()
}

fn udp(source: u16, destination: u16, checksum: u16, payload: &[u8]) -> Vec<u8> {
    let words = [source, destination, 8 + payload.len() as u16, checksum];
    [words.map(u16::to_be_bytes).concat(), payload.to_vec()].concat()
}

fn parser(inner: bool) -> Parser {
    Parser { inner, ..Parser::new(FlowHasher::new(1)) }
}

fn parse_as(link: LinkType, inner: bool, frame: &[u8], cut: u32) -> Result<Meta, DropReason> {
    let mut packet = Packet::from_bytes(frame);
    let meta = packet.meta_mut();
    meta.link = link;
    meta.wire_len += cut;
    meta.transit.side = Side::Outside;
    parser(inner).parse(&mut packet)?;
    Ok(packet.meta().clone())
}

fn parse(link: LinkType, frame: &[u8]) -> Result<Meta, DropReason> {
    parse_as(link, false, frame, 0)
}

/// Parses raw IP.
fn raw(network: &[u8]) -> Result<Meta, DropReason> {
    parse(LinkType::RawIp, network)
}

/// Parses raw IP without the last bytes, which were not captured.
fn cut(network: &[u8], to: usize) -> Result<Meta, DropReason> {
    parse_as(LinkType::RawIp, false, &network[..to], (network.len() - to) as u32)
}

fn inner(network: &[u8]) -> Meta {
    parse_as(LinkType::RawIp, true, network, 0).unwrap()
}

/// Returns the key as text, source first.
fn key(meta: &Meta) -> String {
    let (source, destination) = meta.key.ends(meta.reversed);
    format!("{source} > {destination} {}", meta.protocol)
}

const KEY4: &str = "10.1.2.3:1000 > 192.0.2.1:53 17";
const KEY6: &str = "[2001:db8::1]:1000 > [2001:db8::2]:53 17";

#[test]
fn every_link_type_leads_to_ip() {
    let sll2 = |kind: u16| [&kind.to_be_bytes()[..], &[0; 18]].concat();
    let fixtures: Vec<(LinkType, Vec<u8>, bool)> = vec![
        (LinkType::Ethernet, ethernet(0x0800, &[]), false),
        (LinkType::Ethernet, ethernet(0x86dd, &[]), true),
        (LinkType::RawIp, vec![], false),
        (LinkType::RawIp, vec![], true),
        (LinkType::LinuxSll, [&[0; 14][..], &[0x08, 0x00]].concat(), false),
        (LinkType::LinuxSll, [&[0; 14][..], &[0x86, 0xdd]].concat(), true),
        (LinkType::LinuxSll2, sll2(0x0800), false),
        (LinkType::LinuxSll2, sll2(0x86dd), true),
        (LinkType::Ppp, vec![0xff, 0x03, 0x00, 0x21], false),
        (LinkType::Ppp, vec![0xff, 0x03, 0x00, 0x57], true),
        (LinkType::Ppp, vec![0x00, 0x21], false),
        (LinkType::Ppp, vec![0x21], false),
        (LinkType::Ppp, vec![0x57], true),
        (LinkType::Ppp, vec![0x02, 0x81, 0, 0x01, 0x01, 64], false),
        (LinkType::Null, vec![2, 0, 0, 0], false),
        (LinkType::Null, vec![0, 0, 0, 2], false),
        (LinkType::Null, vec![10, 0, 0, 0], true),
        (LinkType::Null, vec![24, 0, 0, 0], true),
        (LinkType::Null, vec![28, 0, 0, 0], true),
        (LinkType::Null, vec![0, 0, 0, 30], true),
        (LinkType::Loop, vec![0, 0, 0, 2], false),
        (LinkType::Loop, vec![0, 0, 0, 24], true),
    ];
    for (link, header, v6) in fixtures {
        let network = if v6 { udp6() } else { UDP4.to_vec() };
        let meta = parse(link, &[header.clone(), network].concat()).unwrap();
        let at = header.len() as u16;
        let l4 = at + if v6 { 40 } else { 20 };
        assert_eq!(key(&meta), if v6 { KEY6 } else { KEY4 }, "{link:?} {header:?}");
        assert_eq!((meta.outer_l3, meta.l3, meta.l4, meta.payload), (at, at, l4, l4 + 8));
        assert_eq!((meta.class, meta.version), (PacketClass::Whole, if v6 { 6 } else { 4 }));
        assert_eq!(meta.key.scope, Scope::default());
        assert_eq!(meta.transit.side, Side::Outside, "the receiver's word stays");
        assert_eq!(meta.hash, FlowHasher::new(1).hash(&meta.key));
    }
}

#[test]
fn tags_and_labels_are_skipped() {
    let fixtures: Vec<(Vec<u8>, Option<u16>, Option<u16>)> = vec![
        (ethernet(0x8100, &[0x20, 7, 0x08, 0x00]), Some(7), None),
        (ethernet(0x88a8, &[0, 7, 0x81, 0x00, 0, 9, 0x08, 0x00]), Some(7), Some(9)),
        (ethernet(0x9100, &[0, 7, 0x88, 0xa8, 0, 9, 0x81, 0x00, 0, 1, 0x08, 0x00]), Some(7), Some(9)),
        (ethernet(0x8847, &[0, 0, 0x10, 64, 0, 0, 0x21, 64]), None, None),
        (ethernet(0x8848, &[0, 0, 0x11, 64]), None, None),
        (ethernet(0x8100, &[0, 7, 0x88, 0x47, 0, 0, 0x11, 64]), Some(7), None),
        (ethernet(0x8864, &[0x11, 0, 0, 1, 0, 34, 0x00, 0x21]), None, None),
        (ethernet(0x8100, &[0, 7, 0x88, 0x64, 0x11, 0, 0, 1, 0, 34, 0x00, 0x21]), Some(7), None),
    ];
    for (header, vlan, inner_vlan) in fixtures {
        let meta = parse(LinkType::Ethernet, &[header.clone(), UDP4.to_vec()].concat()).unwrap();
        assert_eq!(key(&meta), KEY4, "{header:?}");
        assert_eq!((meta.key.scope.vlan(), meta.key.scope.inner_vlan()), (vlan, inner_vlan));
        assert_eq!(usize::from(meta.l3), header.len());
    }
}

#[test]
fn frames_other_than_ip_have_no_key() {
    let frames = [
        ethernet(0x0806, &[0; 28]),
        ethernet(38, &[0x42, 0x42, 3, 0, 0]),
        ethernet(0x8863, &[0; 20]),
        ethernet(0x8864, &[0x11, 0, 0, 1, 0, 4, 0xc0, 0x21]),
        ethernet(0x8847, &[0, 0, 0x11, 64, 0x00, 0, 0, 0]),
        ethernet(0x8100, &[0, 7, 0x08, 0x06]),
    ];
    for frame in frames {
        let meta = parse(LinkType::Ethernet, &frame).unwrap();
        assert_eq!((meta.class, meta.version, meta.hash), (PacketClass::NotIp, 0, 0), "{frame:?}");
    }
    assert_eq!(parse(LinkType::Null, &[7, 0, 0, 0, 1]).unwrap().class, PacketClass::NotIp);
    assert_eq!(parse(LinkType::Ppp, &[0xc0, 0x21, 1, 1]).unwrap().class, PacketClass::NotIp);
}

#[test]
fn options_shift_the_transport_header() {
    let mut packet = [&UDP4[..20], &[1; 8], &UDP4[20..]].concat();
    packet[0] = 0x47;
    packet[3] = 40;
    let meta = raw(&packet).unwrap();
    assert_eq!((key(&meta).as_str(), meta.l4), (KEY4, 28));
}

#[test]
fn fragments_are_distinguished_from_whole_packets() {
    let fixtures = [
        (0x4000, PacketClass::Whole, 1000),
        (0x0000, PacketClass::Whole, 1000),
        (0x8000, PacketClass::Whole, 1000), // The reserved bit has no meaning.
        (0x2000, PacketClass::FirstFragment, 1000),
        (0x2002, PacketClass::LaterFragment, 0),
        (0x0002, PacketClass::LaterFragment, 0),
    ];
    for (field, class, port) in fixtures {
        let mut packet = UDP4;
        packet[6..8].copy_from_slice(&u16::to_be_bytes(field));
        let meta = raw(&packet).unwrap();
        assert_eq!((meta.class, meta.key.ends(meta.reversed).0.port), (class, port), "{field:04x}");
        assert_eq!(meta.has_transport(), class != PacketClass::LaterFragment);
        assert_eq!(meta.payload, if class == PacketClass::LaterFragment { 20 } else { 28 });
    }
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let (hop, destination, routing) =
        ([60, 0, 1, 4, 0, 0, 0, 0], [43, 0, 1, 4, 0, 0, 0, 0], [51, 0, 0, 0, 0, 0, 0, 0]);
    let authentication = [[17, 4], [0, 0]].concat().into_iter().chain([0; 20]).collect::<Vec<u8>>();
    let chain = [&hop[..], &destination, &routing, &authentication].concat();
    let meta = raw(&ipv6(0, &[&chain[..], &udp6()[40..]].concat())).unwrap();
    assert_eq!((key(&meta).as_str(), meta.l4, meta.class), (KEY6, 40 + 24 + 24, PacketClass::Whole));

    let fragment = |field: u16| {
        let [high, low] = field.to_be_bytes();
        ipv6(44, &[&[17, 0, high, low, 0xaa, 0xbb, 0xcc, 0xdd], &udp6()[40..]].concat())
    };
    for (field, class) in
        [(0, PacketClass::Whole), (1, PacketClass::FirstFragment), (8, PacketClass::LaterFragment)]
    {
        let packet = fragment(field);
        assert_eq!(raw(&packet).unwrap().class, class);
        let mut parsed = Packet::from_bytes(&packet);
        parsed.meta_mut().link = LinkType::RawIp;
        parser(false).parse(&mut parsed).unwrap();
        assert_eq!(fragment_id(&parsed), 0xaabb_ccdd);
    }
}

#[test]
fn transport_headers_give_the_payload_offset() {
    let ports = [0x03, 0xe8, 0, 53];
    let tcp = [&ports[..], &[0; 8], &[0x60, 0x12, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1], b"hello"].concat();
    let meta = raw(&ipv4(6, &tcp)).unwrap();
    assert_eq!((meta.payload, meta.tcp_flags), (20 + 24, 0x12));
    let sctp = [&ports[..], &[0; 8], &[0; 16]].concat();
    assert_eq!(raw(&ipv4(132, &sctp)).unwrap().payload, 20 + 12);
    let dccp = [&ports[..], &[4, 0, 0, 0], &[0; 16]].concat();
    assert_eq!(raw(&ipv4(33, &dccp)).unwrap().payload, 20 + 16);
    let udp_lite = [&ports[..], &[0, 8, 0, 0, 7]].concat();
    assert_eq!(raw(&ipv4(136, &udp_lite)).unwrap().payload, 20 + 8);
    for network in [ipv4(6, &tcp), ipv4(132, &sctp), ipv4(33, &dccp), ipv4(136, &udp_lite)] {
        assert!(key(&raw(&network).unwrap()).starts_with("10.1.2.3:1000 > 192.0.2.1:53"));
    }
    let esp = ipv4(50, &[1, 2, 3, 4, 5]);
    assert_eq!(key(&raw(&esp).unwrap()), "10.1.2.3:0 > 192.0.2.1:0 50");
}

/// A query's identifier stands for both ports, so that request and answer have one key.
#[test]
fn icmp_queries_use_their_identifier_as_port() {
    for (kind, id) in [(8, 7), (0, 7), (13, 7), (17, 7), (9, 0), (10, 0)] {
        let meta = raw(&ipv4(1, &[kind, 0, 0, 0, 0, 7, 0, 1])).unwrap();
        assert_eq!((meta.class, meta.key.ends(false).0.port), (PacketClass::Whole, id), "type {kind}");
    }
    for (kind, id) in [(128, 7), (129, 7), (135, 0)] {
        let meta = raw(&ipv6(58, &[kind, 0, 0, 0, 0, 7, 0, 1])).unwrap();
        assert_eq!((meta.class, meta.key.ends(false).1.port), (PacketClass::Whole, id), "type {kind}");
    }
}

/// An error has the key of the packet that it quotes, in the direction of the error.
#[test]
fn icmp_errors_have_the_key_of_the_quoted_packet() {
    let swapped = |text: &str| {
        let (source, rest) = text.split_once(" > ").unwrap();
        let (destination, _) = rest.split_once(' ').unwrap();
        format!("{destination} > {source}")
    };
    for kind in [3, 4, 5, 11, 12] {
        let meta = raw(&ipv4(1, &[&[kind, 1, 0, 0, 0, 0, 0, 0], &UDP4[..28]].concat())).unwrap();
        assert_eq!(meta.class, PacketClass::IcmpError);
        assert_eq!(key(&meta), format!("{} 1", swapped(KEY4)));
        assert_eq!((meta.key.protocol, meta.protocol), (17, 1));
    }
    for kind in 1..=4 {
        let meta = raw(&ipv6(58, &[&[kind, 1, 0, 0, 0, 0, 0, 0], &udp6()[..]].concat())).unwrap();
        assert_eq!((key(&meta), meta.class), (format!("{} 58", swapped(KEY6)), PacketClass::IcmpError));
    }
    // A short quotation, another version, or a later fragment: known only by its own addresses.
    let mut later = UDP4;
    later[7] = 2;
    for quoted in [&UDP4[..23], &udp6()[..], &later[..], &[]] {
        let meta = raw(&ipv4(1, &[&[3, 1, 0, 0, 0, 0, 0, 0], quoted].concat())).unwrap();
        assert_eq!((meta.class, key(&meta).as_str()), (PacketClass::Whole, "10.1.2.3:0 > 192.0.2.1:0 1"));
    }
    // Bytes after the packet are not quoted.
    let error = ipv4(1, &[&[3, 1, 0, 0, 0, 0, 0, 0], &UDP4[..22]].concat());
    assert_eq!(raw(&[error, UDP4[22..].to_vec()].concat()).unwrap().class, PacketClass::Whole);
}

#[test]
fn both_directions_have_one_key() {
    let mut back = UDP4;
    back[12..16].copy_from_slice(&UDP4[16..20]);
    back[16..20].copy_from_slice(&UDP4[12..16]);
    back[20..22].copy_from_slice(&UDP4[22..24]);
    back[22..24].copy_from_slice(&UDP4[20..22]);
    let (forth, back) = (raw(&UDP4).unwrap(), raw(&back).unwrap());
    assert_eq!((forth.key, forth.hash), (back.key, back.hash));
    assert_ne!(forth.reversed, back.reversed);
}

/// A truncated packet is accepted if addresses and ports are there.
#[test]
fn truncated_packets_with_ports_are_accepted() {
    let tcp = ipv4(6, &[&[0x03, 0xe8, 0, 53], &[0; 8][..], &[0x80, 0x02], &[0; 300]].concat());
    for to in 24..tcp.len() {
        let meta = cut(&tcp, to).unwrap();
        assert_eq!(key(&meta), "10.1.2.3:1000 > 192.0.2.1:53 6");
        assert!(usize::from(meta.payload) <= to);
        assert_eq!(meta.tcp_flags, if to > 33 { 2 } else { 0 });
    }
    assert_eq!(cut(&tcp, 23).err(), Some(DropReason::TcpTruncated));
    assert_eq!(cut(&tcp, 19).err(), Some(DropReason::Ipv4Truncated));
    assert_eq!(key(&cut(&UDP4, 24).unwrap()), KEY4);
    // Truncated within an extension header, or before the next one: the ports are unknown.
    let chain = ipv6(0, &[&[17, 1][..], &[0; 14], &udp6()[40..]].concat());
    for to in 40..60 {
        assert!(cut(&chain, to).is_err(), "{to}");
    }
    assert_eq!(key(&cut(&chain, 60).unwrap()), KEY6);
}

/// Only the completeness of the IP packet matters: a truncated trailer excuses nothing.
#[test]
fn truncated_trailer_does_not_truncate_the_packet() {
    let mut packet = UDP4;
    packet[25] = 13;
    let with_trailer = [&packet[..], &[0; 8]].concat();
    assert_eq!(parse_as(LinkType::RawIp, false, &with_trailer, 10).err(), Some(DropReason::UdpLength));
    assert_eq!(cut(&packet, 31).map(|meta| key(&meta)), Ok(KEY4.into()));
}

#[test]
fn every_fault_has_its_reason() {
    use DropReason::*;
    let v4 = |change: fn(&mut [u8; 32])| {
        let mut packet = UDP4;
        change(&mut packet);
        packet.to_vec()
    };
    let label = [0, 0, 0x10, 64];
    let fixtures: Vec<(LinkType, Vec<u8>, DropReason)> = vec![
        (LinkType::Ethernet, vec![0; 13], LinkTruncated),
        (LinkType::Ethernet, ethernet(0x8100, &[0, 7, 8]), LinkTruncated),
        (LinkType::Ethernet, ethernet(0x8864, &[0; 7]), LinkTruncated),
        (LinkType::Ethernet, ethernet(0x8847, &label[..3]), LinkTruncated),
        (LinkType::LinuxSll, vec![0; 15], LinkTruncated),
        (LinkType::LinuxSll2, vec![8; 19], LinkTruncated),
        (LinkType::Ppp, vec![0xff], LinkTruncated),
        (LinkType::Null, vec![2, 0, 0], LinkTruncated),
        (LinkType::RawIp, vec![], LinkTruncated),
        (LinkType::Ethernet, ethernet(0x8100, &[0, 1, 0x81, 0].repeat(SHIM_MAX + 1)), LinkTooDeep),
        (LinkType::Ethernet, ethernet(0x8847, &label.repeat(SHIM_MAX + 1)), LinkTooDeep),
        (LinkType::Other(147), UDP4.to_vec(), LinkUnknown),
        (LinkType::RawIp, v4(|p| p[0] = 0x55), IpVersion),
        (LinkType::Ethernet, ethernet(0x0800, &udp6()), IpVersion),
        (LinkType::Ethernet, ethernet(0x86dd, &[0x45; 40]), IpVersion),
        (LinkType::RawIp, UDP4[..19].to_vec(), Ipv4Truncated),
        (LinkType::RawIp, v4(|p| p[0] = 0x44), Ipv4HeaderLength),
        (LinkType::RawIp, v4(|p| p[0] = 0x4f), Ipv4HeaderLength),
        (LinkType::RawIp, v4(|p| p[3] = 19), Ipv4TotalLength),
        (LinkType::RawIp, v4(|p| p[3] = 33), Ipv4TotalLength),
        (LinkType::RawIp, v4(|p| p[3] = 0), Ipv4TotalLength),
        (LinkType::RawIp, udp6()[..39].to_vec(), Ipv6Truncated),
        (LinkType::RawIp, udp6()[..49].to_vec(), Ipv6PayloadLength),
        (LinkType::RawIp, ipv6(0, &[17, 0, 0]), Ipv6Extension),
        (LinkType::RawIp, ipv6(0, &[17, 1, 0, 0, 0, 0, 0, 0]), Ipv6Extension),
        (LinkType::RawIp, ipv6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(EXTENSION_MAX + 1)), Ipv6ExtensionChain),
        (LinkType::RawIp, ipv4(6, &[0; 19]), TcpTruncated),
        (LinkType::RawIp, ipv4(6, &[0; 20]), TcpHeaderLength),
        (LinkType::RawIp, ipv4(6, &[0x60; 20]), TcpHeaderLength),
        (LinkType::RawIp, ipv4(17, &[0; 7]), UdpTruncated),
        (LinkType::RawIp, v4(|p| p[25] = 7), UdpLength),
        (LinkType::RawIp, v4(|p| p[25] = 13), UdpLength),
        (LinkType::RawIp, ipv4(1, &[]), IcmpTruncated),
        (LinkType::RawIp, ipv4(1, &[9, 0, 0]), IcmpTruncated),
        (LinkType::RawIp, ipv4(1, &[8, 0, 0, 0, 0, 7, 0]), IcmpTruncated),
        (LinkType::RawIp, ipv4(132, &[0; 3]), TransportTruncated),
        (LinkType::RawIp, ipv4(132, &[0; 11]), TransportTruncated),
        (LinkType::RawIp, ipv4(136, &[0; 7]), TransportTruncated),
        (LinkType::RawIp, ipv4(33, &[0, 1, 0, 2, 9, 0, 0, 0, 0, 0, 0, 0]), TransportTruncated),
        (LinkType::RawIp, v4(|p| (p[7], p[9]) = (1, 6)), FragmentIllegal),
        (LinkType::RawIp, v4(|p| (p[6], p[9]) = (0x20, 6)), FragmentIllegal),
    ];
    for (link, frame, reason) in fixtures {
        assert_eq!(parse(link, &frame).err(), Some(reason), "{link:?} {frame:02x?}");
    }
    let strict = Parser { verify_ipv4_checksum: true, ..parser(false) };
    let mut packet = Packet::from_bytes(&UDP4);
    packet.meta_mut().link = LinkType::RawIp;
    assert_eq!(strict.parse(&mut packet), Ok(()));
    packet.data_mut()[4] ^= 1;
    assert_eq!(strict.parse(&mut packet), Err(Ipv4Checksum));
}

/// Offsets that do not fit the metadata are refused, not truncated.
#[test]
fn headers_beyond_the_offset_limit_are_refused() {
    let mut packet = vec![];
    for level in 0..=TUNNEL_MAX {
        let next = if level == TUNNEL_MAX { 17 } else { 41 };
        let mut header = ipv6(60, &[]);
        for i in 0..EXTENSION_MAX {
            header.extend([if i + 1 == EXTENSION_MAX { next } else { 60 }, 255]);
            header.extend([0; 2046]);
        }
        packet.extend(header); // A payload length of 0: as long as there are bytes.
    }
    packet.extend(udp(1, 2, 0, &[0; 4]));
    assert!(packet.len() > 0xffff);
    assert_eq!(parse_as(LinkType::RawIp, true, &packet, 0).err(), Some(DropReason::TooBig));
}

#[test]
fn tunnels_are_entered_on_demand() {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(0x0800, &UDP4)].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 42, 0, 0, 0, 0, 0][..], &ethernet(0x0800, &UDP4)].concat();
    let geneve_ip = [&[0, 0, 0x08, 0x00, 0, 0, 42, 0][..], &UDP4].concat();
    let gtp = |teid: u8| [&[0x30, 255, 0, 32, 0, 0, 0, teid][..], &UDP4].concat();
    let gtp_extended = [
        &[0x34, 255, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 0x09, 0x00][..], //
        &UDP4,
    ]
    .concat();
    let gue = [&[0, 4, 0, 0][..], &UDP4].concat();
    let fixtures: Vec<(&str, Vec<u8>, u32)> = vec![
        ("ip in ip", ipv4(4, &UDP4), 0),
        ("4in6", ipv6(4, &UDP4), 0),
        ("gre", ipv4(47, &[&[0, 0, 0x08, 0x00][..], &UDP4].concat()), 0),
        (
            "gre with key and sequence",
            ipv4(47, &[&[0x30, 0, 8, 0, 0, 0, 0, 42, 0, 0, 0, 1][..], &UDP4].concat()),
            42,
        ),
        ("ethernet in gre", ipv4(47, &[&[0, 0, 0x65, 0x58][..], &ethernet(0x0800, &UDP4)].concat()), 0),
        ("vxlan", ipv4(17, &udp(9999, 4789, 0, &vxlan)), 42),
        ("vxlan over ipv6", ipv6(17, &udp(9999, 4789, 7, &vxlan)), 42),
        ("geneve with an option", ipv4(17, &udp(9999, 6081, 0, &geneve)), 42),
        ("geneve with ip", ipv4(17, &udp(9999, 6081, 0, &geneve_ip)), 42),
        ("gtp-u", ipv4(17, &udp(2152, 2152, 0, &gtp(1))), 0),
        ("gtp-u with an extension", ipv4(17, &udp(2152, 2152, 0, &gtp_extended)), 0),
        ("gue", ipv4(17, &udp(9999, 6080, 0, &gue)), 0),
        ("gue, plain ip", ipv4(17, &udp(9999, 6080, 0, &UDP4)), 0),
        ("gre in udp", ipv4(17, &udp(9999, 4754, 0, &[&[0, 0, 8, 0][..], &UDP4].concat())), 0),
        ("vxlan in ip in ip", ipv4(4, &ipv4(17, &udp(9999, 4789, 0, &vxlan))), 42),
        ("mpls in gre", ipv4(47, &[&[0, 0, 0x88, 0x47, 0, 0, 0x11, 64][..], &UDP4].concat()), 0),
    ];
    for (what, network, id) in fixtures {
        let within = inner(&network);
        assert_eq!((key(&within).as_str(), within.outer_l3), (KEY4, 0), "{what}");
        assert_eq!(&network[usize::from(within.l3)..], UDP4, "{what}");
        assert_eq!(within.key.scope.network(), id, "{what}");
        let outside = raw(&network).unwrap();
        assert_eq!((outside.l3, outside.outer_udp), (0, 0));
        assert_eq!(outside.key.scope.network(), 0);
    }
    let six = inner(&ipv4(41, &udp6()));
    assert_eq!((key(&six).as_str(), six.l3, six.version), (KEY6, 20, 6));
}

/// Each direction of a GTP-U session has its own tunnel identifier, so it cannot be part of the
/// key.
#[test]
fn both_directions_of_a_gtp_session_have_one_key() {
    let session = |teid: u8| {
        inner(&ipv4(17, &udp(2152, 2152, 0, &[&[0x30, 255, 0, 32, 0, 0, 0, teid][..], &UDP4].concat())))
    };
    assert_eq!(session(1).key, session(2).key);
}

/// A header that looks like a tunnel but leads nowhere leaves the outer packet and its scope
/// unchanged.
#[test]
fn headers_that_lead_nowhere_are_not_tunnels() {
    let fixtures: Vec<Vec<u8>> = vec![
        ipv4(4, &[0x45; 10]),
        ipv4(47, &[&[0x20, 0, 0x08, 0x06, 0, 0, 0, 42][..], &[0; 28]].concat()),
        ipv4(47, &[&[0x20, 1, 0x88, 0x0b, 0, 0, 0, 42][..], &UDP4].concat()),
        ipv4(17, &udp(9999, 4789, 0, &[8, 0, 0, 0, 0, 0, 42, 0, 1, 2, 3])),
        ipv4(
            17,
            &udp(9999, 4789, 0, &[&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(0x0806, &[0; 28])].concat()),
        ),
        ipv4(17, &udp(2152, 2152, 0, &[0x32, 1, 0, 4, 0, 0, 0, 0])),
        // The checksum of GRE covers what an NF would change.
        ipv4(47, &[&[0x80, 0, 0x08, 0x00, 1, 2, 0, 0][..], &UDP4].concat()),
    ];
    for network in fixtures {
        let meta = inner(&network);
        assert_eq!((meta.l3, meta.key.scope), (0, Scope::default()), "{network:02x?}");
        assert_eq!(meta.key, raw(&network).unwrap().key);
    }
}

#[test]
fn checksum_of_a_tunnel_is_remembered() {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(0x0800, &UDP4)].concat();
    assert_eq!(inner(&ipv4(17, &udp(9999, 4789, 7, &vxlan))).outer_udp, 20);
    assert_eq!(inner(&ipv4(17, &udp(9999, 4789, 0, &vxlan))).outer_udp, 0);
}
