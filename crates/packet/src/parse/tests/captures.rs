//! Link types of captures, artefacts of the hosts that made them, and mirrored traffic.

use super::*;

/// Returns LLC and SNAP with this EtherType.
fn snap(ether_type: u16) -> Vec<u8> {
    [&[0xaa, 0xaa, 0x03, 0, 0, 0][..], &ether_type.to_be_bytes()].concat()
}

/// Returns an Ethernet header.
fn link_header() -> Vec<u8> {
    ethernet(0x0800, &[])
}

fn zeros(len: usize) -> Vec<u8> {
    vec![0; len]
}

#[test]
fn link_types_of_captures_lead_to_ip() {
    let data_frame = |qos: bool| {
        let mut header = zeros(if qos { 26 } else { 24 });
        (header[0], header[1]) = (if qos { 0x88 } else { 0x08 }, 1);
        [header, snap(0x0800)].concat()
    };
    let nflog = |order: fn(u16) -> [u8; 2]| {
        let attribute = |len: u16, kind: u16| [order(len), order(kind)].concat();
        [zeros(4), attribute(8, 1), zeros(4), attribute(9, 10), zeros(8), attribute(36, 9)].concat()
    };
    let packet_tap =
        [&108_u32.to_le_bytes()[..], &[1, 0, 0, 0, 1, 0, 0, 0], &[0; 96], &link_header()].concat();
    let fixtures: Vec<(u16, Vec<u8>)> = vec![
        (6, [zeros(14), snap(0x0800)].concat()),
        (6, [&zeros(8)[..], &[0x80], &zeros(5), &[2, 0], &snap(0x0800)].concat()),
        (7, vec![1, 2, 240]),
        (7, vec![1, 2, 212, 0, 0, 1]),
        (7, vec![1, 2, 212, 0xff, 0, 0, 212, 0, 0, 1]),
        (8, zeros(16)),
        (10, [zeros(13), snap(0x0800)].concat()),
        (51, [&[0x11, 0, 0, 1, 0, 34][..], &[0x00, 0x21]].concat()),
        (99, [&zeros(6)[..], &[8, 0], &zeros(36)].concat()),
        (100, snap(0x0800)),
        (100, vec![0xfe, 0xfe, 0x03, 0xcc]),
        (102, zeros(24)),
        (104, vec![0x0f, 0, 0x08, 0x00]),
        (105, data_frame(false)),
        (105, data_frame(true)),
        (106, snap(0x0800)),
        (106, vec![]),
        (107, vec![0x18, 0x41, 0x03, 0xcc]),
        (107, vec![0x18, 0x41, 0x03, 0x00, 0x80, 0, 0, 0, 0x08, 0x00]),
        (107, vec![0x18, 0x41, 0x08, 0x00]),
        (109, zeros(12)),
        (117, [&[61, 2][..], &zeros(62)].concat()),
        (119, [zeros(144), data_frame(false)].concat()),
        (119, [&[0x80, 0x21, 0x10, 0x01, 0, 0, 0, 64][..], &zeros(56), &data_frame(false)].concat()),
        (122, [zeros(16), snap(0x0800)].concat()),
        (123, [&[2, 0, 0, 0][..], &snap(0x0800)].concat()),
        (127, [&[0, 0, 10, 0][..], &zeros(6), &data_frame(true)].concat()),
        (129, vec![1, 2, 0, 0, 212, 0, 0, 1]),
        (138, [&zeros(16)[..], &[8, 0]].concat()),
        (143, [&[0, 0, 0, 0, 0, 0][..], &link_header()].concat()),
        (143, [&[1, 2, 0, 0, 7, 7, 0, 0][..], &link_header()].concat()),
        (163, [&[0x80, 0x21, 0x10, 0x01, 0, 0, 0, 64][..], &zeros(56), &data_frame(false)].concat()),
        (166, vec![1, 0x00, 0x21]),
        (197, [&zeros(8)[..], &[2], &zeros(9), &link_header()].concat()),
        (197, [&zeros(8)[..], &[0x82], &zeros(7), &zeros(8), &zeros(2), &link_header()].concat()),
        (204, vec![0, 0xff, 0x03, 0x00, 0x21]),
        (226, zeros(24)),
        (239, nflog(u16::to_le_bytes)),
        (239, nflog(u16::to_be_bytes)),
        (240, [zeros(4), link_header()].concat()),
        (241, [zeros(12), link_header()].concat()),
        (242, [&zeros(40)[..], &[8, 0, 0, 0]].concat()),
        (258, packet_tap),
        (259, [zeros(8), link_header()].concat()),
        (274, [zeros(8), link_header()].concat()),
        (281, [&zeros(16)[..], &[8, 0]].concat()),
        (282, [zeros(4), link_header()].concat()),
        (284, [&zeros(16)[..], &[8, 0]].concat()),
        (285, [&zeros(20)[..], &[8, 0]].concat()),
    ];
    for known in LINK_TYPES {
        assert!(fixtures.iter().any(|&(number, _)| number == known.number), "{} has no fixture", known.name);
    }
    for (number, header) in fixtures {
        let link = LinkType::from_number(number);
        let meta = parse(link, &[header.clone(), UDP4.to_vec()].concat()).unwrap();
        assert_eq!(key(&meta), KEY4, "{link:?} {header:?}");
        assert_eq!(usize::from(meta.outer_l3), header.len(), "{link:?} {header:?}");
        for len in 0..header.len() {
            // A truncated header is refused, or is not IP; never anything else.
            if let Ok(meta) = parse(link, &header[..len]) {
                assert_eq!(meta.class, PacketClass::NotIp, "{link:?} {header:?} cut to {len}");
            }
        }
    }
    assert!(LINK_TYPES.is_sorted_by_key(|known| known.number), "they are searched by number");
}

#[test]
fn rarer_link_types_without_ip_pass_through() {
    let protected = [&[0x08, 0x41][..], &zeros(22), &snap(0x0800), &UDP4].concat();
    let beacon = [&[0x80, 0][..], &zeros(60)].concat();
    let arp = [snap(0x0806), zeros(28)].concat();
    for (number, frame) in [(105, protected), (105, beacon), (100, arp), (7, vec![1, 2, 213, 0, 0, 1])] {
        assert_eq!(
            parse(LinkType::from_number(number), &frame).unwrap().class,
            PacketClass::NotIp,
            "{number}"
        );
    }
    assert_eq!(parse(LinkType::Other(147), &UDP4).unwrap_err(), DropReason::LinkUnknown);
}

#[test]
fn llc_with_snap_leads_to_ip() {
    let frame = |llc: &[u8]| {
        let len = (llc.len() + UDP4.len()) as u16;
        ethernet(len, &[llc, &UDP4[..]].concat())
    };
    assert_eq!(key(&parse(LinkType::Ethernet, &frame(&snap(0x0800))).unwrap()), KEY4);
    let bridged = [0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0];
    assert_eq!(key(&parse(LinkType::Ethernet, &frame(&bridged)).unwrap()), KEY4);
    for other in [&[0x42, 0x42, 3, 0, 0, 0, 8, 0], &[0xaa, 0xaa, 3, 0, 0, 0x0c, 8, 0]] {
        assert_eq!(parse(LinkType::Ethernet, &frame(other)).unwrap().class, PacketClass::NotIp);
    }
}

#[test]
fn total_length_of_zero_means_the_frame_with_offload() {
    let mut network = UDP4;
    network[2..4].fill(0);
    assert_eq!(raw(&network).unwrap_err(), DropReason::Ipv4TotalLength);
    let parser = Parser { offloaded: true, ..parser(false) };
    for wire_len in [32, 40_000] {
        let mut packet = Packet::from_bytes(&network);
        packet.meta_mut().link = LinkType::RawIp;
        packet.meta_mut().wire_len = wire_len;
        parser.parse(&mut packet).unwrap();
        assert_eq!(key(packet.meta()), KEY4);
        assert_eq!((packet.payload(), packet.flow_len()), (&[1, 2, 3, 4][..], 32));
    }
    network[10..12].fill(0);
    for (offloaded, verdict) in [(true, Ok(())), (false, Err(DropReason::Ipv4TotalLength))] {
        let mut packet = Packet::from_bytes(&network);
        packet.meta_mut().link = LinkType::RawIp;
        let strict = Parser { offloaded, verify_ipv4_checksum: true, ..parser };
        assert_eq!(strict.parse(&mut packet), verdict, "a checksum that a card was to complete");
    }
    network[2..4].copy_from_slice(&[0, 19]);
    let mut packet = Packet::from_bytes(&network);
    packet.meta_mut().link = LinkType::RawIp;
    assert_eq!(parser.parse(&mut packet).unwrap_err(), DropReason::Ipv4TotalLength, "19 is no length");
}

fn mirrored() -> Vec<u8> {
    ethernet(0x0800, &UDP4)
}

#[test]
fn mirrored_traffic_is_entered() {
    let gre = |flags: u16, kind: u16, rest: &[u8]| {
        ipv4(47, &[&flags.to_be_bytes()[..], &kind.to_be_bytes(), rest, &mirrored()].concat())
    };
    let by_udp =
        |port: u16, header: &[u8], within: &[u8]| ipv4(17, &udp(9, port, 0, &[header, within].concat()));
    let label = [0, 1, 1, 64];
    let erspan_2 = [0, 0, 0, 1, 0x10, 7, 0, 0, 0, 0, 0, 0];
    let erspan_3 = [0, 0, 0, 1, 0x20, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let erspan_3_long = [&erspan_3[..15], &[1], &[0; 8]].concat();
    let vxlan = [8, 0, 0, 0, 0, 0, 5, 0];
    for (name, network) in [
        ("ERSPAN I", gre(0, 0x88be, &[])),
        ("ERSPAN II", gre(0x1000, 0x88be, &erspan_2)),
        ("ERSPAN III", gre(0x1000, 0x22eb, &erspan_3)),
        ("ERSPAN III with a subheader", gre(0x1000, 0x22eb, &erspan_3_long)),
        ("VXLAN", by_udp(4789, &vxlan, &mirrored())),
        ("VXLAN of Linux", by_udp(8472, &vxlan, &mirrored())),
        ("VXLAN-GPE, Ethernet", by_udp(4790, &[0x0c, 0, 0, 3, 0, 0, 5, 0], &mirrored())),
        ("VXLAN-GPE, IPv4", by_udp(4790, &[0x0c, 0, 0, 1, 0, 0, 5, 0], &UDP4)),
        ("MPLS over UDP", by_udp(6635, &label, &UDP4)),
        ("MPLS over IP", ipv4(137, &[&label[..], &UDP4].concat())),
        ("Ethernet over IP", ipv4(97, &[&[0x30, 0][..], &mirrored()].concat())),
        ("TZSP", by_udp(37008, &[1, 0, 0, 1, 10, 1, 7, 0, 1], &mirrored())),
    ] {
        let meta = inner(&network);
        assert_eq!(key(&meta), KEY4, "{name}");
        assert!(usize::from(meta.l3) > 20, "{name}");
    }
}

#[test]
fn tunnels_that_are_not_entered_have_a_kind() {
    let kind = |inner: bool, ports: TunnelPorts, network: &[u8]| {
        let parser = Parser { tunnel_ports: ports, ..parser(inner) };
        let mut packet = Packet::from_bytes(network);
        packet.meta_mut().link = LinkType::RawIp;
        parser.parse(&mut packet).unwrap();
        parser.tunnel_kind(&packet)
    };
    let vxlan =
        |port: u16| ipv4(17, &udp(9, port, 0, &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &mirrored()].concat()));
    let strange = ipv4(47, &[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x70, 7][..], &[0; 50]].concat());
    let port_5 = TunnelPorts { vxlan: [5, 0, 0, 0] };
    assert_eq!(kind(false, TunnelPorts::DEFAULT, &vxlan(4789)), Some(TunnelKind::Vxlan));
    assert_eq!(kind(true, TunnelPorts::DEFAULT, &vxlan(4789)), None, "it is looked into");
    assert_eq!(kind(true, port_5, &vxlan(5)), None, "by the port that is configured");
    assert_eq!(kind(false, port_5, &vxlan(5)), Some(TunnelKind::Vxlan));
    assert_eq!(kind(true, port_5, &vxlan(4789)), None, "as it is no port of VXLAN");
    assert_eq!(
        kind(true, TunnelPorts::DEFAULT, &strange),
        Some(TunnelKind::Erspan),
        "of a version unheard of"
    );
    assert_eq!(kind(false, TunnelPorts::DEFAULT, &ipv4(4, &UDP4)), Some(TunnelKind::IpInIp));
    assert_eq!(kind(false, TunnelPorts::DEFAULT, &UDP4), None);
}

#[test]
fn forbidden_packets_are_refused_on_demand() {
    let strict = Parser { sanity: Sanity::STRICT, ..parser(false) };
    let refused = |parser: &Parser, link: LinkType, frame: &[u8]| {
        let mut packet = Packet::from_bytes(frame);
        packet.meta_mut().link = link;
        parser.parse(&mut packet).and_then(|()| parser.sanity.check_addresses(&packet)).err()
    };
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut frame = ethernet(0x0800, &UDP4);
        change(&mut frame);
        frame
    };
    let routed = |kind: u8| {
        let mut network = UDP4[..20].to_vec();
        network[0] = 0x47;
        network[2..4].copy_from_slice(&40_u16.to_be_bytes());
        network.extend([kind, 7, 4, 10, 0, 0, 1, 0]);
        ethernet(0x0800, &[&network[..], &UDP4[20..]].concat())
    };
    let type_0 = [&[17, 0, 0, 1, 0, 0, 0, 0][..], &udp(1, 2, 0, &[])].concat();
    let pppoe = [&[0x11, 0, 0, 1, 0, 34, 0, 0x21][..], &UDP4].concat();
    let network = [&snap(0x0800)[..], &UDP4].concat();
    for (reason, frame) in [
        (DropReason::TtlZero, changed(|frame| frame[22] = 0)),
        (DropReason::SourceRoute, routed(0x83)),
        (DropReason::SourceRoute, routed(0x89)),
        (DropReason::SourceRoute, ethernet(0x86dd, &ipv6(43, &type_0))),
        (DropReason::LinkEncapsulated, ethernet(0x8847, &[&[0, 1, 1, 64][..], &UDP4].concat())),
        (DropReason::LinkEncapsulated, ethernet(0x8864, &pppoe)),
        (DropReason::LinkEncapsulated, ethernet(network.len() as u16, &network)),
        (DropReason::Martian, changed(|frame| frame[26] = 127)),
        (DropReason::Martian, changed(|frame| frame[26] = 224)),
        (DropReason::Martian, changed(|frame| frame[30] = 0)),
        (DropReason::Martian, {
            let mut frame = ethernet(0x86dd, &udp6());
            frame[22..34].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            frame
        }),
        (DropReason::Land, changed(|frame| frame.copy_within(26..30, 30))),
    ] {
        assert_eq!(refused(&strict, LinkType::Ethernet, &frame), Some(reason), "{frame:?}");
        assert_eq!(refused(&parser(false), LinkType::Ethernet, &frame), None, "{frame:?}");
    }
    for frame in [
        ethernet(0x0800, &UDP4),
        ethernet(0x8100, &[&[0, 7, 8, 0][..], &UDP4].concat()),
        routed(0x07),
        changed(|frame| {
            frame[26..30].fill(0);
            frame[30..34].fill(255);
        }),
    ] {
        assert_eq!(refused(&strict, LinkType::Ethernet, &frame), None, "{frame:?}");
    }
}
