//! Behaviour of a router's port: frames are built and parsed by another implementation.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    ArpOperation, ArpPacket, Icmpv4Type, Icmpv6Type, NetHeaders, NetSlice, PacketBuilder, PacketHeaders,
    SlicedPacket, TransportHeader,
};
use l3::{
    Config, EgressAction, IngressAction, NEIGHBOURS_MAX, PENDING_PER_NEIGHBOUR_MAX, ProxyPort,
    ProxyPortConfig, RouterPort, StaticRoute,
};
use packet::Addr;
use packet::wire::MacAddress;
use proptest::prelude::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SECOND: u64 = 1_000_000_000;

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

fn config() -> Config {
    Config {
        mac: MacAddress(OWN),
        mtu: 1500,
        addresses: vec!["10.0.0.254/24".parse().unwrap(), "fd00::fe/64".parse().unwrap()],
        routes: Vec::new(),
        gateways: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))],
        nf_addresses: vec![(addr("10.0.0.100"), addr("10.0.0.103"))],
        nf_addresses_in_use: Vec::new(),
        router_addresses: Vec::new(),
        is_at_program: false,
        drop_martians: true,
        shard: (0, 1),
    }
}

fn router_port() -> RouterPort {
    let mut port = RouterPort::new(config());
    assert_eq!(port.take_frames().len(), 3, "it announces its addresses, and its link-local one");
    // And those of NFs, twice.
    [0, 2, 4].into_iter().for_each(|second| port.handle_timeout(second * SECOND));
    assert_eq!(port.take_frames().len(), 2 * 4 + 3);
    port
}

fn udp(to: [u8; 6], source: &str, destination: &str, ttl: u8, len: usize) -> Vec<u8> {
    let link = PacketBuilder::ethernet2(CLIENT, to);
    let ends: (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    let ip = match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            link.ipv4(source.octets(), destination.octets(), ttl)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            link.ipv6(source.octets(), destination.octets(), ttl)
        }
        _ => panic!("of one version"),
    };
    let mut frame = Vec::new();
    ip.udp(1000, 2000).write(&mut frame, &vec![7; len]).unwrap();
    frame
}

fn arp(operation: ArpOperation, sender: ([u8; 6], [u8; 4]), target: [u8; 4]) -> Vec<u8> {
    let packet = ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        etherparse::EtherType::IPV4,
        operation,
        &sender.0,
        &sender.1,
        &OWN,
        &target,
    );
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(sender.0, OWN).arp(packet.unwrap()).write(&mut frame).unwrap();
    frame
}

/// Returns the Ethernet address in the answer for an IPv4 address.
fn answer_for(port: &mut RouterPort, target: [u8; 4]) -> Option<Vec<u8>> {
    let asked = arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), target);
    assert_eq!(port.handle_ingress(&asked, 0), IngressAction::Consumed);
    let frames = port.take_frames();
    let frame = frames.first()?;
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Arp(told)) = sliced.net else { panic!("{frame:?}") };
    assert_eq!((told.operation(), told.sender_protocol_addr()), (ArpOperation::REPLY, &target[..]));
    assert_eq!((told.target_hw_addr(), told.target_protocol_addr()), (&CLIENT[..], &[10, 0, 0, 1][..]));
    Some(told.sender_hw_addr().to_vec())
}

#[test]
fn only_own_and_nf_addresses_are_answered_for() {
    let mut port = router_port();
    for here in [254, 100, 103] {
        assert_eq!(answer_for(&mut port, [10, 0, 0, here]), Some(OWN.to_vec()), "{here}");
    }
    for elsewhere in [1, 99, 104] {
        assert_eq!(answer_for(&mut port, [10, 0, 0, elsewhere]), None, "{elsewhere}");
    }
}

/// A port's shards: one announces, each learns what another one received, and only the receiver
/// answers.
#[test]
fn shards_of_a_port_learn_neighbours_from_each_other() {
    let mut hosts = [0, 1].map(|number| RouterPort::new(Config { shard: (number, 2), ..config() }));
    assert_eq!(hosts.each_mut().map(|port| port.take_frames().len()), [3, 0]);
    let [first, second] = &mut hosts;
    let mut packet = udp(OWN, "192.0.2.1", "10.0.0.7", 9, 30);
    assert_eq!(second.handle_egress(&mut packet, 0), EgressAction::Consumed);
    assert_eq!((second.take_frames().len(), second.pending()), (1, 1), "it solicits");
    let reply = arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 7]), [10, 0, 0, 254]);
    assert_eq!(first.handle_ingress(&reply, 0), IngressAction::Consumed);
    for told in first.take_snooped() {
        second.snoop(&told, 0);
    }
    assert_eq!((second.take_frames().len(), second.pending()), (1, 0), "pending packets leave");
    assert_eq!((second.counters().consumed, second.take_snooped().len()), (0, 0), "it arrived once");
    let asked = arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 7]), [10, 0, 0, 254]);
    first.handle_ingress(&asked, 0);
    first.take_snooped().iter().for_each(|told| second.snoop(told, 0));
    assert_eq!([first, second].map(|port| port.take_frames().len()), [1, 0], "one answers");
}

#[test]
fn ipv6_solicitation_gets_an_advertisement() {
    let mut port = router_port();
    let mut other = RouterPort::new(Config {
        mac: MacAddress(CLIENT),
        mtu: 1500,
        addresses: vec!["fd00::1/64".parse().unwrap()],
        routes: Vec::new(),
        gateways: Vec::new(),
        nf_addresses: Vec::new(),
        nf_addresses_in_use: Vec::new(),
        router_addresses: Vec::new(),
        is_at_program: false,
        drop_martians: true,
        shard: (0, 1),
    });
    other.take_frames();
    // Two ports find each other; other tests use the kernel's own stack.
    let mut packet = udp([0; 6], "fd00::1", "fd00::fe", 64, 10);
    assert_eq!(other.handle_egress(&mut packet, 0), EgressAction::Consumed);
    let asked = other.take_frames();
    assert_eq!(asked.len(), 1);
    assert_eq!(port.handle_ingress(&asked[0], 0), IngressAction::Consumed);
    let told = port.take_frames();
    assert_eq!(told.len(), 1);
    let parsed = PacketHeaders::from_ethernet_slice(&told[0]).unwrap();
    let Some(TransportHeader::Icmpv6(icmp)) = parsed.transport else { panic!("{:?}", parsed.transport) };
    let Some(NetHeaders::Ipv6(ip, _)) = parsed.net else { panic!("{:?}", parsed.net) };
    let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, parsed.payload.slice()).unwrap();
    assert_eq!((icmp.checksum, ip.hop_limit), (sum, 255));
    assert_eq!(other.handle_ingress(&told[0], 0), IngressAction::Consumed);
    let sent = other.take_frames();
    assert_eq!(sent.len(), 1, "pending packets leave");
    assert_eq!((&sent[0][..6], &sent[0][6..12]), (&OWN[..], &CLIENT[..]));
}

#[test]
fn ping_to_the_port_is_answered_and_to_an_nf_forwarded() {
    let mut port = router_port();
    let mut ping = Vec::new();
    let build = |destination| PacketBuilder::ethernet2(CLIENT, OWN).ipv4([10, 0, 0, 1], destination, 64);
    build([10, 0, 0, 254]).icmpv4_echo_request(7, 9).write(&mut ping, b"echo").unwrap();
    assert_eq!(port.handle_ingress(&ping, 0), IngressAction::Consumed);
    let frames = port.take_frames();
    let parsed = PacketHeaders::from_ethernet_slice(&frames[0]).unwrap();
    let Some(TransportHeader::Icmpv4(icmp)) = parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::EchoReply(echo) if (echo.id, echo.seq) == (7, 9)));
    assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(b"echo"));
    assert_eq!(&frames[0][..6], &CLIENT);
    // A ping through the graph is answered through it; a reply is not answered.
    let mut back = frames[0].clone();
    assert_eq!(port.handle_egress(&mut ping.clone(), 0), EgressAction::Consumed);
    assert_eq!((port.take_returned().len(), port.take_frames().len()), (1, 0));
    back[..6].copy_from_slice(&OWN);
    back[26..34].rotate_left(4);
    assert_eq!((port.handle_ingress(&back, 0), port.take_frames().len()), (IngressAction::Consumed, 0));
    let mut other = Vec::new();
    build([10, 0, 0, 100]).icmpv4_echo_request(7, 9).write(&mut other, b"echo").unwrap();
    assert_eq!(port.handle_ingress(&other, 0), IngressAction::Forward);
}

#[test]
fn frames_not_for_a_router_are_consumed() {
    let mut port = router_port();
    let other_mac = [2, 0, 0, 0, 0, 0x77];
    assert_eq!(port.handle_ingress(&udp(OWN, "10.0.0.1", "192.0.2.1", 64, 9), 0), IngressAction::Forward);
    for (mac, source, destination) in [
        (other_mac, "10.0.0.1", "192.0.2.1"),
        ([0xff; 6], "10.0.0.1", "192.0.2.1"),
        (OWN, "10.0.0.1", "10.0.0.255"),
        (OWN, "10.0.0.1", "224.0.0.251"),
        (OWN, "10.0.0.1", "255.255.255.255"),
        (OWN, "fe80::1", "fd01::1"),
        (OWN, "fd00::1", "ff02::1"),
    ] {
        let frame = udp(mac, source, destination, 64, 9);
        assert_eq!(port.handle_ingress(&frame, 0), IngressAction::Consumed, "{source} to {destination}");
    }
    assert_eq!(port.counters().consumed, 7);
}

#[test]
fn expired_packets_get_time_exceeded_at_a_limited_rate() {
    let mut port = router_port();
    let late = udp(OWN, "10.0.0.1", "192.0.2.1", 1, 9);
    for _ in 0..1_000 {
        assert_eq!(port.handle_ingress(&late, SECOND), IngressAction::Consumed);
    }
    let frames = port.take_frames();
    assert_eq!(frames.len(), 50, "the limit at once");
    let parsed = PacketHeaders::from_ethernet_slice(&frames[0]).unwrap();
    let Some(NetHeaders::Ipv4(ip, _)) = &parsed.net else { panic!() };
    assert_eq!((ip.source, ip.destination), ([10, 0, 0, 254], [10, 0, 0, 1]));
    let Some(TransportHeader::Icmpv4(icmp)) = &parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::TimeExceeded(_)));
    assert_eq!(&parsed.payload.slice()[..20], &late[14..34], "it quotes the packet");
}

#[test]
fn arp_pending_packets_keep_order_and_unresolved_neighbour_gets_host_unreachable() {
    let mut port = router_port();
    for len in 1..=3 {
        let mut frame = udp(OWN, "192.0.2.1", "10.0.0.1", 64, len);
        assert_eq!(port.handle_egress(&mut frame, 0), EgressAction::Consumed);
    }
    assert_eq!(port.take_frames().len(), 1, "it solicits once");
    port.handle_ingress(&arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 1);
    let lens: Vec<_> = port.take_frames().iter().map(|frame| frame.len() - 42).collect();
    assert_eq!(lens, [1, 2, 3]);
    let mut next = udp(OWN, "192.0.2.1", "10.0.0.1", 64, 9);
    assert_eq!(port.handle_egress(&mut next, 2), EgressAction::Transmit);
    let ip = etherparse::Ipv4Header::from_slice(&next[14..]).unwrap().0;
    assert_eq!((ip.time_to_live, ip.header_checksum), (63, ip.calc_header_checksum()));
    // Not on the link: through the gateway, which is known.
    assert_eq!(
        port.handle_egress(&mut udp(OWN, "10.0.0.9", "198.51.100.1", 64, 9), 3),
        EgressAction::Transmit
    );

    // No neighbour has this address: three solicitations, then the sender gets an error.
    assert_eq!(port.handle_egress(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), 4), EgressAction::Consumed);
    let mut questions = port.take_frames().len();
    for second in 1..10 {
        port.handle_timeout(4 + second * SECOND);
        questions += port.take_frames().len();
    }
    assert_eq!(questions, 3);
    let returned = port.take_returned();
    assert_eq!(returned.len(), 1);
    let parsed = PacketHeaders::from_ethernet_slice(&returned[0]).unwrap();
    let Some(TransportHeader::Icmpv4(icmp)) = &parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::DestinationUnreachable(_)));
    assert_eq!((port.counters().unreachable, port.pending()), (1, 0));
}

#[test]
fn neighbours_are_solicited_again_after_the_link_came_up() {
    let mut port = router_port();
    let other = [2, 0, 0, 0, 0, 2];
    let speak = |port: &mut RouterPort, now_ns| {
        let mut frame = udp(OWN, "192.0.2.1", "10.0.0.1", 64, 9);
        let departure = port.handle_egress(&mut frame, now_ns);
        (departure, frame[..6].to_vec(), port.take_frames().len())
    };
    let told = |mac| arp(ArpOperation::REPLY, (mac, [10, 0, 0, 1]), [10, 0, 0, 254]);
    port.handle_ingress(&arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 40 * SECOND);
    port.take_frames();
    let now = 41 * SECOND;
    assert_eq!(speak(&mut port, now), (EgressAction::Transmit, CLIENT.to_vec(), 0), "it is known");
    port.handle_link_up(now);
    assert_eq!(port.take_frames().len(), 3, "it announces its addresses");
    // The old address stays in use, is solicited once per second, and then replaced by the answer.
    assert_eq!(speak(&mut port, now), (EgressAction::Transmit, CLIENT.to_vec(), 1));
    assert_eq!(speak(&mut port, now + 1), (EgressAction::Transmit, CLIENT.to_vec(), 0));
    port.handle_ingress(&told(other), now + 2);
    assert_eq!(speak(&mut port, now + 3), (EgressAction::Transmit, other.to_vec(), 0));
    // A neighbour solicited while the link was down is solicited again at once.
    assert_eq!(
        port.handle_egress(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), now + 4),
        EgressAction::Consumed
    );
    assert_eq!(port.take_frames().len(), 1);
    port.handle_link_up(now + 5);
    port.take_frames();
    port.handle_timeout(now + 6);
    // In addition to the addresses of NFs, which are announced again.
    assert_eq!((port.take_frames().len(), port.pending()), (1 + 4, 1));
}

#[test]
fn sender_gets_no_route_and_too_big_errors() {
    let mut port = router_port();
    assert_eq!(port.handle_egress(&mut udp(OWN, "fd00::1", "fd99::1", 64, 9), 0), EgressAction::Consumed);
    assert_eq!(port.handle_egress(&mut udp(OWN, "fd00::2", "fd00::1", 64, 1_500), 0), EgressAction::Consumed);
    // There is no route to a network's broadcast address either, through the gateway or otherwise.
    assert_eq!(
        port.handle_egress(&mut udp(OWN, "192.0.2.1", "10.0.0.255", 64, 9), 0),
        EgressAction::Consumed
    );
    assert!(port.take_frames().is_empty());
    let returned = port.take_returned();
    let kinds = returned[..2].iter().map(|frame| {
        match PacketHeaders::from_ethernet_slice(frame).unwrap().transport.unwrap() {
            TransportHeader::Icmpv6(icmp) => icmp.icmp_type,
            other => panic!("{other:?}"),
        }
    });
    let kinds: Vec<_> = kinds.collect();
    assert!(matches!(kinds[0], Icmpv6Type::DestinationUnreachable(_)), "{kinds:?}");
    assert!(matches!(kinds[1], Icmpv6Type::PacketTooBig { mtu: 1500 }), "{kinds:?}");
}

#[test]
fn queues_and_tables_are_bounded() {
    let mut port = router_port();
    for _ in 0..PENDING_PER_NEIGHBOUR_MAX + 5 {
        port.handle_egress(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), 0);
    }
    assert_eq!((port.pending(), port.counters().unreachable), (PENDING_PER_NEIGHBOUR_MAX as u64, 5));
    // More neighbours than are kept, all active.
    let mut guest = RouterPort::new(Config {
        mac: MacAddress(OWN),
        mtu: 1500,
        addresses: vec!["10.0.0.0/8".parse().unwrap()],
        routes: Vec::new(),
        gateways: Vec::new(),
        nf_addresses: Vec::new(),
        nf_addresses_in_use: Vec::new(),
        router_addresses: Vec::new(),
        is_at_program: false,
        drop_martians: true,
        shard: (0, 1),
    });
    for i in 1..=2 * NEIGHBOURS_MAX as u32 {
        let address = (0x0a00_0000 + i).to_be_bytes();
        guest.handle_ingress(&arp(ArpOperation::REQUEST, (CLIENT, address), [10, 0, 0, 0]), u64::from(i));
    }
    let known = (1..=2 * NEIGHBOURS_MAX as u32).filter(|i| {
        let address = Ipv4Addr::from(0x0a00_0000 + i).to_string();
        guest.handle_egress(&mut udp(OWN, "192.0.2.1", &address, 64, 9), SECOND) == EgressAction::Transmit
    });
    assert!(known.count() <= NEIGHBOURS_MAX);
    // A scan of a large network: no answers, and pending packets are bounded, too.
    for i in 1..=2 * NEIGHBOURS_MAX as u32 {
        let address = Ipv4Addr::from(0x0a80_0000 + i).to_string();
        guest.handle_egress(&mut udp(OWN, "192.0.2.1", &address, 64, 9), SECOND);
    }
    assert!(guest.pending() <= NEIGHBOURS_MAX as u64);
    assert!(guest.counters().unreachable >= NEIGHBOURS_MAX as u64);
}

proptest! {
    #[test]
    fn fragments_reassemble_to_the_packet(len in 1_473usize..9_000, mtu in 68u32..1_500) {
        let mut port = RouterPort::new(Config {
            mac: MacAddress(OWN),
            mtu,
            addresses: vec!["10.0.0.254/24".parse().unwrap()],
            routes: Vec::new(),
            gateways: Vec::new(),
            nf_addresses: Vec::new(),
            nf_addresses_in_use: Vec::new(),
            router_addresses: Vec::new(),
            is_at_program: false,
            drop_martians: true,
            shard: (0, 1),
        });
        port.handle_ingress(&arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 0);
        port.take_frames();
        let mut whole = udp(OWN, "192.0.2.1", "10.0.0.1", 64, len);
        whole[20] &= !0x40; // It may be cut.
        let header = etherparse::Ipv4Header::from_slice(&whole[14..]).unwrap().0;
        whole[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
        prop_assert_eq!(port.handle_egress(&mut whole.clone(), 0), EgressAction::Consumed);
        let mut put_together = vec![0; whole.len() - 34];
        let frames = port.take_frames();
        for (number, frame) in frames.iter().enumerate() {
            prop_assert!(frame.len() <= mtu as usize + 14);
            let ip = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
            prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            prop_assert_eq!(ip.more_fragments, number + 1 < frames.len());
            prop_assert_eq!(usize::from(ip.total_len) + 14, frame.len());
            let at = usize::from(ip.fragment_offset.value()) * 8;
            put_together[at..at + frame.len() - 34].copy_from_slice(&frame[34..]);
        }
        prop_assert_eq!(&put_together[..], &whole[34..]);
    }

    #[test]
    fn arbitrary_frames_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..6, cut in 0usize..200, at in 0usize..120, to: u8,
    ) {
        let mut port = router_port();
        let mut frame = match kind {
            0 => bytes,
            1 => udp(OWN, "10.0.0.1", "10.0.0.254", 64, bytes.len()),
            2 => udp(OWN, "fd00::1", "fd00::fe", 64, bytes.len()),
            3 => arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]),
            4 => udp(OWN, "10.0.0.1", "192.0.2.1", 1, bytes.len()),
            _ => {
                let mut ping = Vec::new();
                let link = PacketBuilder::ethernet2(CLIENT, OWN).ipv6([0xfd; 16], [0xfe; 16], 255);
                link.icmpv6_raw(135, 0, [0; 4]).write(&mut ping, &bytes).unwrap();
                ping
            }
        };
        if let Some(byte) = frame.get_mut(at) {
            *byte = to;
        }
        frame.truncate(frame.len().saturating_sub(cut % 60));
        port.handle_ingress(&frame, 0);
        port.handle_egress(&mut frame, 0);
        port.handle_timeout(SECOND);
    }
}

/// Priority tags (IEEE 802.1Q 9.6) are removed. VLAN tags stay, and such a frame is not for this
/// port.
#[test]
fn priority_tagged_frames_belong_to_the_untagged_network() {
    let plain = udp(OWN, "10.0.0.1", "192.0.2.1", 64, 30);
    let with = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let mut untagged = Vec::new();
    for tags in [&[[0x81, 0, 0, 0]][..], &[[0x81, 0, 0xf0, 0]], &[[0x88, 0xa8, 0xe0, 0], [0x81, 0, 0x20, 0]]]
    {
        let frame = with(tags);
        assert_eq!(router_port().handle_ingress(&frame, 0), IngressAction::Consumed, "the tag is not parsed");
        assert!(l3::untag(&frame, &mut untagged));
        assert_eq!(untagged, plain);
        assert_eq!(router_port().handle_ingress(&untagged, 0), IngressAction::Forward);
    }
    let priority_then_vlan = with(&[[0x81, 0, 0xe0, 0], [0x81, 0, 0, 7]]);
    assert!(l3::untag(&priority_then_vlan, &mut untagged));
    assert_eq!(untagged, with(&[[0x81, 0, 0, 7]]));
    for frame in [plain.clone(), with(&[[0x81, 0, 0, 7]]), plain[..13].to_vec(), vec![]] {
        assert!(!l3::untag(&frame, &mut untagged));
    }
}

/// Returns the addresses that frames announce: by gratuitous ARP, or by an advertisement to all
/// nodes.
fn announced(frames: &[Vec<u8>]) -> Vec<IpAddr> {
    let of = |frame: &Vec<u8>| {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        match sliced.net.unwrap() {
            NetSlice::Arp(arp) if arp.sender_protocol_addr() == arp.target_protocol_addr() => {
                assert_eq!((arp.operation(), &frame[..6]), (ArpOperation::REQUEST, &[0xff; 6][..]));
                Some(IpAddr::from(<[u8; 4]>::try_from(arp.target_protocol_addr()).unwrap()))
            }
            NetSlice::Ipv6(ip)
                if ip.header().destination_addr() == "ff02::1".parse::<Ipv6Addr>().unwrap() =>
            {
                Some(IpAddr::V6(ip.header().source_addr()))
            }
            _ => None,
        }
    };
    frames.iter().filter_map(of).collect()
}

#[test]
fn nf_addresses_are_announced_at_the_start_and_after_link_up() {
    let owned = vec![(addr("10.0.0.100"), addr("10.0.0.103")), (addr("fd00::80"), addr("fd00::80"))];
    let expected = ["10.0.0.100", "10.0.0.101", "10.0.0.102", "10.0.0.103", "fd00::80"].map(ip);
    let mut port = RouterPort::new(Config { nf_addresses: owned, ..config() });
    port.take_frames();
    let mut round = |at_ns: u64| {
        let frames: Vec<_> = (0..10)
            .flat_map(|ms| {
                port.handle_timeout(at_ns + ms * 1_000_000);
                port.take_frames()
            })
            .collect();
        announced(&frames)
    };
    assert_eq!(round(SECOND), expected);
    assert!(round(2 * SECOND).is_empty());
    let own = ["10.0.0.254", "fd00::fe", "fe80::ff:fe00:fe"].map(ip);
    assert_eq!(round(3 * SECOND), [&own[..], &expected].concat(), "once more");
    assert!(round(6 * SECOND).is_empty());
    port.handle_link_up(9 * SECOND);
    assert_eq!(announced(&port.take_frames()), own);
    port.handle_timeout(9 * SECOND);
    assert_eq!(announced(&port.take_frames()), expected);
    assert_eq!(port.counters().announced, 15);
    let mut second = RouterPort::new(Config { shard: (1, 2), ..config() });
    second.handle_timeout(SECOND);
    assert!(second.take_frames().is_empty(), "only the first shard announces");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn martians_are_dropped_with_their_reason() {
    let router = vec![addr("10.0.0.254"), addr("203.0.113.1")];
    let mut port = RouterPort::new(Config { router_addresses: router.clone(), ..config() });
    for (source, destination) in [
        ("127.0.0.1", "192.0.2.1"),
        ("0.1.2.3", "192.0.2.1"),
        ("240.0.0.1", "192.0.2.1"),
        ("224.0.0.1", "192.0.2.1"),
        ("255.255.255.255", "192.0.2.1"),
        ("10.0.0.254", "192.0.2.1"),
        ("203.0.113.1", "192.0.2.1"),
        ("203.0.113.1", "10.0.0.254"),
        ("10.0.0.5", "127.0.0.1"),
        ("10.0.0.5", "240.0.0.1"),
        ("10.0.0.5", "0.0.0.0"),
        ("::1", "2001:db8::1"),
        ("::", "2001:db8::1"),
        ("fd00::5", "::1"),
        ("ff02::1", "2001:db8::1"),
        ("::ffff:10.0.0.5", "2001:db8::1"),
    ] {
        let frame = udp(OWN, source, destination, 9, 10);
        let arrival = port.handle_ingress(&frame, 0);
        assert_eq!(arrival, IngressAction::Drop(packet::DropReason::Martian), "{source} > {destination}");
    }
    assert_eq!(port.handle_ingress(&udp(OWN, "10.0.0.5", "192.0.2.1", 9, 10), 0), IngressAction::Forward);
    assert_eq!(
        port.handle_ingress(&udp([0xff; 6], "0.0.0.0", "255.255.255.255", 9, 10), 0),
        IngressAction::Consumed
    );
    assert_eq!(port.counters().consumed, 1);
    // A program forwards what the router's other ports sent.
    let mut behind =
        RouterPort::new(Config { router_addresses: router.clone(), is_at_program: true, ..config() });
    let error = udp(OWN, "203.0.113.1", "192.0.2.1", 9, 10);
    assert_eq!(behind.handle_ingress(&error, 0), IngressAction::Forward);
    let own = udp(OWN, "10.0.0.254", "192.0.2.1", 9, 10);
    assert_eq!(behind.handle_ingress(&own, 0), IngressAction::Drop(packet::DropReason::Martian));
    let mut lenient = RouterPort::new(Config { router_addresses: router, drop_martians: false, ..config() });
    assert_eq!(lenient.handle_ingress(&udp(OWN, "240.0.0.1", "192.0.2.1", 9, 10), 0), IngressAction::Forward);
}

/// The interfaces of a wire.
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0xa0];
const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0xa1];

/// The two ends of a wire with a NAT, which owns addresses outside.
fn wire() -> [ProxyPort; 2] {
    let wire = vec![MacAddress(INSIDE), MacAddress(OUTSIDE)];
    let owned = vec![(addr("203.0.113.1"), addr("203.0.113.4")), (addr("2001:db8::1"), addr("2001:db8::1"))];
    let proxy = |mac, owned| {
        ProxyPort::new(ProxyPortConfig {
            mac: MacAddress(mac),
            wire: wire.clone(),
            nf_addresses: owned,
            nf_addresses_in_use: Vec::new(),
            shard: (0, 1),
        })
    };
    [proxy(INSIDE, Vec::new()), proxy(OUTSIDE, owned)]
}

#[test]
fn wire_answers_only_for_nf_addresses() {
    let [mut inside, mut outside] = wire();
    let asks = |target| arp(ArpOperation::REQUEST, (CLIENT, [203, 0, 113, 254]), target);
    assert_eq!(outside.handle_ingress(&asks([203, 0, 113, 4]), 0), IngressAction::Consumed);
    let frames = outside.take_frames();
    let sliced = SlicedPacket::from_ethernet(&frames[0]).unwrap();
    let Some(NetSlice::Arp(told)) = sliced.net else { panic!("{frames:?}") };
    assert_eq!((told.operation(), told.sender_protocol_addr()), (ArpOperation::REPLY, &[203, 0, 113, 4][..]));
    assert_eq!((told.sender_hw_addr(), told.target_hw_addr()), (&OUTSIDE[..], &CLIENT[..]));
    assert_eq!(
        outside.handle_ingress(&asks([203, 0, 113, 5]), 0),
        IngressAction::Forward,
        "it belongs to another machine"
    );
    assert_eq!(
        inside.handle_ingress(&asks([203, 0, 113, 4]), 0),
        IngressAction::Forward,
        "that of the other end"
    );
    outside.handle_timeout(0);
    let expected = ["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4", "2001:db8::1"].map(ip);
    assert_eq!(announced(&outside.take_frames()), expected);
    inside.handle_timeout(0);
    assert!(inside.take_frames().is_empty());
}

#[test]
fn packets_to_addresses_of_functions_get_to_who_they_are_for() {
    let [mut inside, _outside] = wire();
    // Not addressed to the wire: they pass unchanged, and their senders are remembered.
    let forth = udp([9; 6], "10.0.0.5", "192.0.2.1", 9, 10);
    assert_eq!(inside.handle_ingress(&forth, 0), IngressAction::Forward);
    let mut other = udp([9; 6], "192.0.2.1", "10.0.0.5", 9, 10);
    assert_eq!(inside.handle_egress(&mut other, 0), EgressAction::Transmit);
    assert_eq!(other[..6], [9; 6]);
    // A frame to the wire's interface was translated: it goes to the interface of the sender.
    let mut answer = udp(OUTSIDE, "192.0.2.1", "10.0.0.5", 9, 10);
    assert_eq!(inside.handle_egress(&mut answer, 0), EgressAction::Transmit);
    assert_eq!((&answer[..6], &answer[6..12]), (&CLIENT[..], &INSIDE[..]));
    // An address that has not spoken is solicited.
    let mut early = udp(OUTSIDE, "192.0.2.1", "10.0.0.9", 9, 10);
    assert_eq!((inside.handle_egress(&mut early, 0), inside.pending()), (EgressAction::Consumed, 1));
    let asked = inside.take_frames();
    let sliced = SlicedPacket::from_ethernet(&asked[0]).unwrap();
    let Some(NetSlice::Arp(probe)) = sliced.net else { panic!("{asked:?}") };
    assert_eq!(
        (probe.sender_protocol_addr(), probe.target_protocol_addr()),
        (&[0; 4][..], &[10, 0, 0, 9][..])
    );
    let mut reply = arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 9]), [0; 4]);
    reply[..6].copy_from_slice(&INSIDE);
    assert_eq!(inside.handle_ingress(&reply, 0), IngressAction::Consumed);
    let sent = inside.take_frames();
    assert_eq!((sent.len(), &sent[0][..6], inside.pending()), (1, &CLIENT[..], 0));
    // No neighbour answers: the packet is lost and counted.
    let mut late = udp(OUTSIDE, "192.0.2.1", "10.0.0.77", 9, 10);
    inside.handle_egress(&mut late, 0);
    (0..5).for_each(|second| inside.handle_timeout(second * SECOND));
    assert_eq!((inside.counters().unreachable, inside.pending()), (1, 0));
}

/// The question for a next hop, with the port's source on the hop's link.
#[test]
fn routes_lead_to_their_next_hops() {
    let route = |to: &str, length, hop: &str| {
        StaticRoute::new(to.parse().unwrap(), length, hop.parse().unwrap()).unwrap()
    };
    let routes = vec![
        route("192.0.2.0", 24, "10.0.0.7"),
        route("192.0.2.128", 25, "10.0.0.8"),
        route("2001:db8:9::", 48, "fe80::9"),
    ];
    let mut port = RouterPort::new(Config { routes, ..config() });
    port.take_frames();
    for (destination, hop) in [
        ("192.0.2.1", "10.0.0.7"),
        ("192.0.2.200", "10.0.0.8"),
        ("192.0.3.1", "10.0.0.1"),
        ("10.0.0.9", "10.0.0.9"),
        ("2001:db8:9::1", "fe80::9"),
    ] {
        let source = if destination.contains(':') { "2001:db8::7" } else { "198.51.100.7" };
        let mut packet = udp(OWN, source, destination, 9, 30);
        assert_eq!(port.handle_egress(&mut packet, 0), EgressAction::Consumed, "{destination}");
        let frames = port.take_frames();
        assert_eq!(frames.len(), 1, "{destination}");
        let asked: (IpAddr, IpAddr) = match SlicedPacket::from_ethernet(&frames[0]).unwrap().net.unwrap() {
            NetSlice::Arp(arp) => {
                let of = |bytes: &[u8]| IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap());
                (of(arp.sender_protocol_addr()), of(arp.target_protocol_addr()))
            }
            NetSlice::Ipv6(ip) => {
                let target: [u8; 16] = ip.payload().payload[8..24].try_into().unwrap();
                (ip.header().source_addr().into(), target.into())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(asked.1, hop.parse::<IpAddr>().unwrap(), "{destination}");
        let expected: IpAddr = if hop.starts_with("fe80") {
            "fe80::ff:fe00:fe".parse().unwrap()
        } else {
            "10.0.0.254".parse().unwrap()
        };
        assert_eq!(asked.0, expected, "{destination}");
    }
    let mut packet = udp(OWN, "2001:db8::7", "2001:db8:8::1", 9, 30);
    assert_eq!(port.handle_egress(&mut packet, 0), EgressAction::Consumed);
    assert_eq!((port.counters().unreachable, port.take_returned().len()), (1, 1), "there is no route");
}
