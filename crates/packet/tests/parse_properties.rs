//! The parser on arbitrary input: it never panics, its offsets stay within the packet, and other
//! parsers agree.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use etherparse::{LaxPacketHeaders, LaxPayloadSlice, NetHeaders, PacketBuilder, TransportHeader};
use packet::wire::{ipv4, ipv6, tcp, udp};
use packet::{Addr, DropReason, Endpoint, FlowHasher, LinkType, Packet, PacketClass, Parser, parse};
use proptest::prelude::*;

const LINKS: [LinkType; 8] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::Null,
    LinkType::Loop,
    LinkType::Ppp,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Other(105),
];

fn parsed(frame: &[u8], link: LinkType, inner: bool, cut: u32) -> (Packet, Result<(), DropReason>) {
    let mut packet = Packet::from_bytes(frame);
    packet.meta_mut().link = link;
    packet.meta_mut().wire_len = (frame.len() as u32).saturating_add(cut);
    let parser = Parser { inner, ..Parser::new(FlowHasher::new(3)) };
    let result = parser.parse(&mut packet);
    (packet, result)
}

/// Checks the invariants of every accepted packet, and calls all accessors.
fn holds(packet: &Packet) -> Result<(), TestCaseError> {
    let meta = packet.meta();
    if meta.class == PacketClass::NotIp {
        return Ok(());
    }
    let (l3, l4, payload) = (meta.l3 as usize, meta.l4 as usize, meta.payload as usize);
    prop_assert!(usize::from(meta.outer_l3) <= l3);
    let header_min = if meta.version == 4 { 20 } else { 40 };
    prop_assert!(l3 + header_min <= l4);
    prop_assert!(l4 <= payload && payload <= packet.len(), "{meta:?} of {} bytes", packet.len());
    prop_assert_eq!(packet.data()[l3] >> 4, meta.version);
    prop_assert!(meta.outer_udp == 0 || (meta.outer_udp > meta.outer_l3 && usize::from(meta.outer_udp) < l3));
    prop_assert_eq!(meta.hash, FlowHasher::new(3).hash(&meta.key));
    let (source, destination) = parse::ends(packet);
    if matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment) {
        prop_assert_eq!(meta.key.ends(meta.reversed), (source, destination));
        prop_assert_eq!(parse::current_key(packet), (meta.key, meta.reversed));
    }
    let (portless, reversed) = parse::portless_key(packet);
    let (a, b) = portless.ends(reversed);
    prop_assert_eq!((a, b), (Endpoint::new(source.addr, 0), Endpoint::new(destination.addr, 0)));
    parse::fragment_id(packet);
    let quoted = parse::embedded(packet.data(), l4, meta.version);
    prop_assert!(meta.class != PacketClass::IcmpError || quoted.is_some());
    prop_assert!(packet.ip_len() > 0);
    Ok(())
}

/// Generates bytes that are a frame of some kind, or nearly.
fn frames() -> impl Strategy<Value = (LinkType, Vec<u8>)> {
    let link = prop::sample::select(LINKS.to_vec());
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    let changes = prop::collection::vec((0usize..120, any::<u8>()), 0..4);
    prop_oneof![
        2 => (link, noise),
        5 => (network(), link_header(), changes, 0usize..4).prop_map(|(network, (link, v4, v6), changes, cut)| {
            let header = if network[0] >> 4 == 4 { v4 } else { v6 };
            let mut frame = [header, network].concat();
            for (at, byte) in changes {
                if let Some(old) = frame.get_mut(at) {
                    *old = byte;
                }
            }
            frame.truncate(frame.len() - cut.min(frame.len()));
            (link, frame)
        }),
    ]
}

/// Returns a link type with its headers before IPv4 and IPv6.
fn link_header() -> impl Strategy<Value = (LinkType, Vec<u8>, Vec<u8>)> {
    let ether = |tags: &[u8], kind: [u8; 2]| [&[2; 12][..], tags, &kind].concat();
    let (v4, v6) = ([0x08, 0x00], [0x86, 0xdd]);
    let tag = [0x81, 0x00, 0x00, 0x07];
    let sll = |kind: [u8; 2]| [&[0; 14][..], &kind].concat();
    let sll2 = |kind: [u8; 2]| [&kind[..], &[0; 18]].concat();
    prop::sample::select(vec![
        (LinkType::Ethernet, ether(&[], v4), ether(&[], v6)),
        (LinkType::Ethernet, ether(&tag, v4), ether(&tag, v6)),
        (LinkType::Ethernet, ether(&[tag, tag].concat(), v4), ether(&[tag, tag].concat(), v6)),
        (LinkType::RawIp, vec![], vec![]),
        (LinkType::Null, vec![2, 0, 0, 0], vec![30, 0, 0, 0]),
        (LinkType::Loop, vec![0, 0, 0, 2], vec![0, 0, 0, 24]),
        (LinkType::Ppp, vec![0xff, 3, 0, 0x21], vec![0xff, 3, 0, 0x57]),
        (LinkType::LinuxSll, sll(v4), sll(v6)),
        (LinkType::LinuxSll2, sll2(v4), sll2(v6)),
    ])
}

/// Generates IP packets: transports, ICMP errors, and tunnels around other IP packets.
fn network() -> impl Strategy<Value = Vec<u8>> {
    let transport = prop_oneof![
        (any::<[u16; 2]>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|([a, b], payload)| (17u8, udp(a, b, &payload))),
        (any::<[u16; 2]>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
            |([a, b], flags, payload)| {
                let head = [a.to_be_bytes(), b.to_be_bytes()].concat();
                (6, [&head[..], &[0; 8], &[0x50, flags], &[0; 6], &payload].concat())
            }
        ),
        (prop::sample::select(vec![0u8, 3, 8, 11, 128, 1]), any::<u16>(), any::<bool>()).prop_map(
            |(kind, id, v6)| {
                let [high, low] = id.to_be_bytes();
                (if v6 { 58 } else { 1 }, vec![kind, 0, 0, 0, high, low, 0, 1])
            }
        ),
        prop::sample::select(vec![0u8, 33, 43, 44, 50, 51, 59, 60, 132, 135, 136]).prop_map(|protocol| (
            protocol,
            vec![17, 0, 0, 1, 9, 9, 9, 9, 1, 1, 2, 2, 0, 12, 0, 0, 7, 7, 7, 7]
        )),
    ];
    let plain = (transport, any::<bool>()).prop_map(|((protocol, body), v6)| ip(v6, protocol, &body));
    plain.prop_recursive(3, 8, 1, |inside| {
        (inside, 0usize..8, any::<bool>(), any::<bool>()).prop_map(|(inside, how, v6, sum)| {
            let six = inside[0] >> 4 == 6;
            let kind: [u8; 2] = if six { [0x86, 0xdd] } else { [0x08, 0x00] };
            let ethernet = [&[2; 12][..], &kind, &inside].concat();
            let over_udp = |port, head: &[u8], what: &[u8]| {
                let mut datagram = udp(9, port, &[head, what].concat());
                datagram[7] = u8::from(sum);
                ip(v6, 17, &datagram)
            };
            match how {
                0 => ip(v6, if six { 41 } else { 4 }, &inside),
                1 => ip(v6, 47, &[&[0, 0][..], &kind, &inside].concat()),
                2 => over_udp(4789, &[8, 0, 0, 0, 0, 1, 2, 0], &ethernet),
                3 => over_udp(6081, &[0, 0, kind[0], kind[1], 0, 1, 2, 0], &inside),
                4 => over_udp(2152, &[0x30, 255, 0, inside.len() as u8, 0, 0, 0, 1], &inside),
                5 => over_udp(6080, &[0, if six { 41 } else { 4 }, 0, 0], &inside),
                6 => ip(false, 1, &[&[3, 1, 0, 0, 0, 0, 0, 0][..], &inside].concat()),
                _ => ip(true, 58, &[&[1, 4, 0, 0, 0, 0, 0, 0][..], &inside].concat()),
            }
        })
    })
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let words = [source, destination, 8 + payload.len() as u16, 0];
    [words.map(u16::to_be_bytes).concat(), payload.to_vec()].concat()
}

fn ip(v6: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
    if v6 {
        let [high, low] = (body.len() as u16).to_be_bytes();
        return [&[0x60, 0, 0, 0, high, low, protocol, 64][..], &[1; 16], &[2; 16], body].concat();
    }
    let [high, low] = (20 + body.len() as u16).to_be_bytes();
    [&[0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..], body].concat()
}

/// Returns the bytes of a frame that etherparse builds: Ethernet, perhaps tagged, and any
/// transport.
fn built() -> impl Strategy<Value = Vec<u8>> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>());
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>());
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    (v4, v6, any::<[u16; 2]>(), any::<[bool; 3]>(), 0usize..3, 0usize..4, payload).prop_map(
        |(v4, v6, [a, b], [six, syn, fin], tags, transport, payload)| {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let vlan = |id: u16| etherparse::VlanId::try_new(id).unwrap();
            let step = match (tags, six) {
                (0, false) => builder.ipv4(v4.0, v4.1, 60),
                (0, true) => builder.ipv6(v6.0, v6.1, 60),
                (1, false) => builder.single_vlan(vlan(5)).ipv4(v4.0, v4.1, 60),
                (1, true) => builder.single_vlan(vlan(5)).ipv6(v6.0, v6.1, 60),
                (_, false) => builder.double_vlan(vlan(5), vlan(6)).ipv4(v4.0, v4.1, 60),
                (_, true) => builder.double_vlan(vlan(5), vlan(6)).ipv6(v6.0, v6.1, 60),
            };
            let mut bytes = vec![];
            match (transport, six) {
                (0, _) => step.udp(a, b).write(&mut bytes, &payload),
                (1, false) => step.icmpv4_echo_request(a, b).write(&mut bytes, &payload),
                (1, true) => step.icmpv6_echo_reply(a, b).write(&mut bytes, &payload),
                _ => {
                    let mut step = step.tcp(a, b, 7, 8);
                    if syn {
                        step = step.syn();
                    }
                    if fin {
                        step = step.fin().ack(9);
                    }
                    step.write(&mut bytes, &payload)
                }
            }
            .unwrap();
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parser_never_panics_and_offsets_stay_within(
        (link, frame) in frames(),
        inner: bool,
        cut in prop_oneof![Just(0u32), 1u32..64, any::<u32>()],
    ) {
        let (packet, result) = parsed(&frame, link, inner, cut);
        if result.is_ok() {
            holds(&packet)?;
        }
        prop_assert_eq!(packet.data(), &frame[..]);
    }

    /// However short a capture truncates a valid packet: an error, or the same flow.
    #[test]
    fn truncation_does_not_change_the_flow(network in network()) {
        let (whole, result) = parsed(&network, LinkType::RawIp, false, 0);
        if result.is_err() || whole.meta().class != PacketClass::Whole {
            return Ok(());
        }
        for len in 0..network.len() {
            let (cut, result) = parsed(&network[..len], LinkType::RawIp, false, (network.len() - len) as u32);
            let query = matches!(cut.meta().protocol, 1 | 58) && len < usize::from(whole.meta().l4) + 8;
            if result.is_ok() && !query {
                holds(&cut)?;
                prop_assert_eq!(cut.meta().key, whole.meta().key);
                prop_assert_eq!((cut.meta().l3, cut.meta().l4), (whole.meta().l3, whole.meta().l4));
            }
        }
    }

    /// An independent parser, and the checked views, agree.
    #[test]
    fn other_parsers_agree(frame in built()) {
        let (packet, result) = parsed(&frame, LinkType::Ethernet, false, 0);
        prop_assert_eq!(result, Ok(()));
        holds(&packet)?;
        let meta = packet.meta();
        let theirs = LaxPacketHeaders::from_ethernet(&frame).unwrap();
        prop_assert!(theirs.stop_err.is_none());
        let (protocol, source, destination) = match theirs.net.unwrap() {
            NetHeaders::Ipv4(h, _) => {
                (h.protocol.0, Addr::from_v4_bytes(h.source), Addr::from_v4_bytes(h.destination))
            }
            NetHeaders::Ipv6(h, _) => {
                (h.next_header.0, Addr::from_bytes(h.source), Addr::from_bytes(h.destination))
            }
            NetHeaders::Arp(_) => unreachable!(),
        };
        let (ports, flags) = match theirs.transport.unwrap() {
            TransportHeader::Udp(h) => ((h.source_port, h.destination_port), 0),
            TransportHeader::Tcp(h) => (
                (h.source_port, h.destination_port),
                u8::from(h.fin) | u8::from(h.syn) << 1 | u8::from(h.ack) << 4,
            ),
            TransportHeader::Icmpv4(_) | TransportHeader::Icmpv6(_) => {
                let id = u16::from_be_bytes(frame[usize::from(meta.l4) + 4..][..2].try_into().unwrap());
                ((id, id), 0)
            }
            TransportHeader::Igmp(_) => unreachable!(),
        };
        let (ours_source, ours_destination) = meta.key.ends(meta.reversed);
        prop_assert_eq!(meta.protocol, protocol);
        prop_assert_eq!(meta.tcp_flags, flags);
        prop_assert_eq!(ours_source, Endpoint::new(source, ports.0));
        prop_assert_eq!(ours_destination, Endpoint::new(destination, ports.1));
        let payload = match theirs.payload {
            LaxPayloadSlice::Udp { payload, .. } | LaxPayloadSlice::Tcp { payload, .. } => payload,
            LaxPayloadSlice::Icmpv4 { payload, .. } | LaxPayloadSlice::Icmpv6 { payload, .. } => payload,
            _ => unreachable!(),
        };
        let at = payload.as_ptr() as usize - frame.as_ptr() as usize;
        prop_assert_eq!(usize::from(meta.payload), at);

        let network = &frame[usize::from(meta.l3)..];
        if meta.version == 4 {
            prop_assert_eq!(ipv4::Packet::new_checked(network).unwrap().header_len(), usize::from(meta.l4 - meta.l3));
        } else {
            prop_assert!(ipv6::Packet::new_checked(network).is_ok());
        }
        let segment = &frame[usize::from(meta.l4)..];
        let header_len = match protocol {
            6 => tcp::Packet::new_checked(segment).unwrap().header_len(),
            17 => udp::Packet::new_checked(segment).unwrap().header_len(),
            _ => 8,
        };
        prop_assert_eq!(usize::from(meta.payload - meta.l4), header_len);
    }

    /// The checked views accept every whole TCP or UDP packet that the parser accepts, even a
    /// damaged one.
    #[test]
    fn views_accept_what_the_parser_accepts((link, frame) in frames()) {
        let (packet, result) = parsed(&frame, link, false, 0);
        let meta = packet.meta();
        if result.is_err() || meta.class != PacketClass::Whole {
            return Ok(());
        }
        let data = &frame[..frame.len().min(usize::from(meta.outer_l3) + packet.ip_len())];
        if meta.version == 4 {
            prop_assert!(ipv4::Packet::new_checked(&data[usize::from(meta.l3)..]).is_ok());
        } else {
            prop_assert!(ipv6::Packet::new_checked(&data[usize::from(meta.l3)..]).is_ok());
        }
        match meta.protocol {
            6 => prop_assert!(tcp::Packet::new_checked(&data[usize::from(meta.l4)..]).is_ok()),
            17 => prop_assert!(udp::Packet::new_checked(&data[usize::from(meta.l4)..]).is_ok()),
            _ => {}
        }
    }
}
