//! A host by what it says: frames are built and read by another implementation.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    ArpOperation, ArpPacket, Icmpv4Type, Icmpv6Type, NetHeaders, NetSlice, PacketBuilder, PacketHeaders,
    SlicedPacket, TransportHeader,
};
use l3::{Arrival, Config, Departure, Host, NEIGHBOURS_MAX, Proxy, ProxyConfig, QUEUE_MAX};
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
        networks: vec!["10.0.0.254/24".parse().unwrap(), "fd00::fe/64".parse().unwrap()],
        gateways: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))],
        owned: vec![(addr("10.0.0.100"), addr("10.0.0.103"))],
        router: Vec::new(),
        refuses_martians: true,
        part: (0, 1),
    }
}

fn host() -> Host {
    let mut host = Host::new(config());
    assert_eq!(host.take_frames().len(), 3, "it tells its addresses, and its link-local one");
    // And those of functions, twice.
    [0, 2, 4].into_iter().for_each(|second| host.pass_time(second * SECOND));
    assert_eq!(host.take_frames().len(), 2 * 4 + 3);
    host
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

/// Who answers for an IPv4 address.
fn answer_for(host: &mut Host, target: [u8; 4]) -> Option<Vec<u8>> {
    let asked = arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), target);
    assert_eq!(host.arrive(&asked, 0), Arrival::Kept);
    let frames = host.take_frames();
    let frame = frames.first()?;
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Arp(told)) = sliced.net else { panic!("{frame:?}") };
    assert_eq!((told.operation(), told.sender_protocol_addr()), (ArpOperation::REPLY, &target[..]));
    assert_eq!((told.target_hw_addr(), told.target_protocol_addr()), (&CLIENT[..], &[10, 0, 0, 1][..]));
    Some(told.sender_hw_addr().to_vec())
}

#[test]
fn it_answers_for_its_own_address_and_those_of_functions_alone() {
    let mut host = host();
    for here in [254, 100, 103] {
        assert_eq!(answer_for(&mut host, [10, 0, 0, here]), Some(OWN.to_vec()), "{here}");
    }
    for elsewhere in [1, 99, 104] {
        assert_eq!(answer_for(&mut host, [10, 0, 0, elsewhere]), None, "{elsewhere}");
    }
}

/// A port's hosts: one tells of the port, each knows what another one has heard, and the one that
/// heard it answers.
#[test]
fn hosts_of_one_port_hear_of_neighbours_from_each_other() {
    let mut hosts = [0, 1].map(|number| Host::new(Config { part: (number, 2), ..config() }));
    assert_eq!(hosts.each_mut().map(|host| host.take_frames().len()), [3, 0]);
    let [first, second] = &mut hosts;
    let mut packet = udp(OWN, "192.0.2.1", "10.0.0.7", 9, 30);
    assert_eq!(second.depart(&mut packet, 0), Departure::Kept);
    assert_eq!((second.take_frames().len(), second.waiting()), (1, 1), "it asks");
    let reply = arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 7]), [10, 0, 0, 254]);
    assert_eq!(first.arrive(&reply, 0), Arrival::Kept);
    for told in first.take_told() {
        second.overhear(&told, 0);
    }
    assert_eq!((second.take_frames().len(), second.waiting()), (1, 0), "what waited leaves");
    assert_eq!((second.counters().kept, second.take_told().len()), (0, 0), "it arrived once");
    let asked = arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 7]), [10, 0, 0, 254]);
    first.arrive(&asked, 0);
    first.take_told().iter().for_each(|told| second.overhear(told, 0));
    assert_eq!([first, second].map(|host| host.take_frames().len()), [1, 0], "one answers");
}

#[test]
fn who_solicits_an_ipv6_address_is_told() {
    let mut host = host();
    let mut other = Host::new(Config {
        mac: MacAddress(CLIENT),
        mtu: 1500,
        networks: vec!["fd00::1/64".parse().unwrap()],
        gateways: Vec::new(),
        owned: Vec::new(),
        router: Vec::new(),
        refuses_martians: true,
        part: (0, 1),
    });
    other.take_frames();
    // Two hosts find each other, as the kernel's own stack finds them in other tests.
    let mut packet = udp([0; 6], "fd00::1", "fd00::fe", 64, 10);
    assert_eq!(other.depart(&mut packet, 0), Departure::Kept);
    let asked = other.take_frames();
    assert_eq!(asked.len(), 1);
    assert_eq!(host.arrive(&asked[0], 0), Arrival::Kept);
    let told = host.take_frames();
    assert_eq!(told.len(), 1);
    let parsed = PacketHeaders::from_ethernet_slice(&told[0]).unwrap();
    let Some(TransportHeader::Icmpv6(icmp)) = parsed.transport else { panic!("{:?}", parsed.transport) };
    let Some(NetHeaders::Ipv6(ip, _)) = parsed.net else { panic!("{:?}", parsed.net) };
    let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, parsed.payload.slice()).unwrap();
    assert_eq!((icmp.checksum, ip.hop_limit), (sum, 255));
    assert_eq!(other.arrive(&told[0], 0), Arrival::Kept);
    let sent = other.take_frames();
    assert_eq!(sent.len(), 1, "what waited leaves");
    assert_eq!((&sent[0][..6], &sent[0][6..12]), (&OWN[..], &CLIENT[..]));
}

#[test]
fn a_ping_to_it_is_answered_and_one_to_a_function_goes_through() {
    let mut host = host();
    let mut ping = Vec::new();
    let build = |destination| PacketBuilder::ethernet2(CLIENT, OWN).ipv4([10, 0, 0, 1], destination, 64);
    build([10, 0, 0, 254]).icmpv4_echo_request(7, 9).write(&mut ping, b"echo").unwrap();
    assert_eq!(host.arrive(&ping, 0), Arrival::Kept);
    let frames = host.take_frames();
    let parsed = PacketHeaders::from_ethernet_slice(&frames[0]).unwrap();
    let Some(TransportHeader::Icmpv4(icmp)) = parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::EchoReply(echo) if (echo.id, echo.seq) == (7, 9)));
    assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(b"echo"));
    assert_eq!(&frames[0][..6], &CLIENT);
    // One that came through the chain is answered through it; an answer is not answered.
    let mut back = frames[0].clone();
    assert_eq!(host.depart(&mut ping.clone(), 0), Departure::Kept);
    assert_eq!((host.take_returned().len(), host.take_frames().len()), (1, 0));
    back[..6].copy_from_slice(&OWN);
    back[26..34].rotate_left(4);
    assert_eq!((host.arrive(&back, 0), host.take_frames().len()), (Arrival::Kept, 0));
    let mut other = Vec::new();
    build([10, 0, 0, 100]).icmpv4_echo_request(7, 9).write(&mut other, b"echo").unwrap();
    assert_eq!(host.arrive(&other, 0), Arrival::Through);
}

#[test]
fn what_is_not_for_a_router_does_not_go_through() {
    let mut host = host();
    let other_mac = [2, 0, 0, 0, 0, 0x77];
    assert_eq!(host.arrive(&udp(OWN, "10.0.0.1", "192.0.2.1", 64, 9), 0), Arrival::Through);
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
        assert_eq!(host.arrive(&frame, 0), Arrival::Kept, "{source} to {destination}");
    }
    assert_eq!(host.counters().kept, 7);
}

#[test]
fn the_last_hop_is_told_that_time_is_over_and_who_tells_is_limited() {
    let mut host = host();
    let late = udp(OWN, "10.0.0.1", "192.0.2.1", 1, 9);
    for _ in 0..1_000 {
        assert_eq!(host.arrive(&late, SECOND), Arrival::Kept);
    }
    let frames = host.take_frames();
    assert_eq!(frames.len(), 50, "as many as may be sent at once");
    let parsed = PacketHeaders::from_ethernet_slice(&frames[0]).unwrap();
    let Some(NetHeaders::Ipv4(ip, _)) = &parsed.net else { panic!() };
    assert_eq!((ip.source, ip.destination), ([10, 0, 0, 254], [10, 0, 0, 1]));
    let Some(TransportHeader::Icmpv4(icmp)) = &parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::TimeExceeded(_)));
    assert_eq!(&parsed.payload.slice()[..20], &late[14..34], "it quotes the packet");
}

#[test]
fn packets_wait_for_a_neighbour_in_order_and_a_silent_one_is_given_up() {
    let mut host = host();
    for len in 1..=3 {
        let mut frame = udp(OWN, "192.0.2.1", "10.0.0.1", 64, len);
        assert_eq!(host.depart(&mut frame, 0), Departure::Kept);
    }
    assert_eq!(host.take_frames().len(), 1, "it asks once");
    host.arrive(&arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 1);
    let lens: Vec<_> = host.take_frames().iter().map(|frame| frame.len() - 42).collect();
    assert_eq!(lens, [1, 2, 3]);
    let mut next = udp(OWN, "192.0.2.1", "10.0.0.1", 64, 9);
    assert_eq!(host.depart(&mut next, 2), Departure::Leaves);
    let ip = etherparse::Ipv4Header::from_slice(&next[14..]).unwrap().0;
    assert_eq!((ip.time_to_live, ip.header_checksum), (63, ip.calc_header_checksum()));
    // Not on the link: by the gateway, who is known.
    assert_eq!(host.depart(&mut udp(OWN, "10.0.0.9", "198.51.100.1", 64, 9), 3), Departure::Leaves);

    // Nobody has this address: three questions, and the sender is told.
    assert_eq!(host.depart(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), 4), Departure::Kept);
    let mut questions = host.take_frames().len();
    for second in 1..10 {
        host.pass_time(4 + second * SECOND);
        questions += host.take_frames().len();
    }
    assert_eq!(questions, 3);
    let returned = host.take_returned();
    assert_eq!(returned.len(), 1);
    let parsed = PacketHeaders::from_ethernet_slice(&returned[0]).unwrap();
    let Some(TransportHeader::Icmpv4(icmp)) = &parsed.transport else { panic!() };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::DestinationUnreachable(_)));
    assert_eq!((host.counters().unreachable, host.waiting()), (1, 0));
}

#[test]
fn neighbours_are_asked_for_again_when_the_link_has_come_up() {
    let mut host = host();
    let other = [2, 0, 0, 0, 0, 2];
    let speak = |host: &mut Host, now_ns| {
        let mut frame = udp(OWN, "192.0.2.1", "10.0.0.1", 64, 9);
        let departure = host.depart(&mut frame, now_ns);
        (departure, frame[..6].to_vec(), host.take_frames().len())
    };
    let told = |mac| arp(ArpOperation::REPLY, (mac, [10, 0, 0, 1]), [10, 0, 0, 254]);
    host.arrive(&arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 40 * SECOND);
    host.take_frames();
    let now = 41 * SECOND;
    assert_eq!(speak(&mut host, now), (Departure::Leaves, CLIENT.to_vec(), 0), "it is known");
    host.come_up(now);
    assert_eq!(host.take_frames().len(), 3, "it tells its addresses");
    // It is used as it was known, asked for once in a second, and then as it says.
    assert_eq!(speak(&mut host, now), (Departure::Leaves, CLIENT.to_vec(), 1));
    assert_eq!(speak(&mut host, now + 1), (Departure::Leaves, CLIENT.to_vec(), 0));
    host.arrive(&told(other), now + 2);
    assert_eq!(speak(&mut host, now + 3), (Departure::Leaves, other.to_vec(), 0));
    // One that was asked for while the link was down is asked for at once.
    assert_eq!(host.depart(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), now + 4), Departure::Kept);
    assert_eq!(host.take_frames().len(), 1);
    host.come_up(now + 5);
    host.take_frames();
    host.pass_time(now + 6);
    // Beside the addresses of functions that are announced again.
    assert_eq!((host.take_frames().len(), host.waiting()), (1 + 4, 1));
}

#[test]
fn without_a_route_or_beyond_the_mtu_the_sender_is_told() {
    let mut host = host();
    assert_eq!(host.depart(&mut udp(OWN, "fd00::1", "fd99::1", 64, 9), 0), Departure::Kept);
    assert_eq!(host.depart(&mut udp(OWN, "fd00::2", "fd00::1", 64, 1_500), 0), Departure::Kept);
    // Nor is there one to all hosts of a network, by the gateway or otherwise.
    assert_eq!(host.depart(&mut udp(OWN, "192.0.2.1", "10.0.0.255", 64, 9), 0), Departure::Kept);
    assert!(host.take_frames().is_empty());
    let returned = host.take_returned();
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
    let mut host = host();
    for _ in 0..QUEUE_MAX + 5 {
        host.depart(&mut udp(OWN, "192.0.2.1", "10.0.0.9", 64, 9), 0);
    }
    assert_eq!((host.waiting(), host.counters().unreachable), (QUEUE_MAX as u64, 5));
    // More neighbours than are kept, each of whom spoke.
    let mut guest = Host::new(Config {
        mac: MacAddress(OWN),
        mtu: 1500,
        networks: vec!["10.0.0.0/8".parse().unwrap()],
        gateways: Vec::new(),
        owned: Vec::new(),
        router: Vec::new(),
        refuses_martians: true,
        part: (0, 1),
    });
    for i in 1..=2 * NEIGHBOURS_MAX as u32 {
        let address = (0x0a00_0000 + i).to_be_bytes();
        guest.arrive(&arp(ArpOperation::REQUEST, (CLIENT, address), [10, 0, 0, 0]), u64::from(i));
    }
    let known = (1..=2 * NEIGHBOURS_MAX as u32).filter(|i| {
        let address = Ipv4Addr::from(0x0a00_0000 + i).to_string();
        guest.depart(&mut udp(OWN, "192.0.2.1", &address, 64, 9), SECOND) == Departure::Leaves
    });
    assert!(known.count() <= NEIGHBOURS_MAX);
    // A scan of a large network: nobody answers, and what waits is bounded, too.
    for i in 1..=2 * NEIGHBOURS_MAX as u32 {
        let address = Ipv4Addr::from(0x0a80_0000 + i).to_string();
        guest.depart(&mut udp(OWN, "192.0.2.1", &address, 64, 9), SECOND);
    }
    assert!(guest.waiting() <= NEIGHBOURS_MAX as u64);
    assert!(guest.counters().unreachable >= NEIGHBOURS_MAX as u64);
}

proptest! {
    #[test]
    fn fragments_are_the_packet(len in 1_473usize..9_000, mtu in 68u32..1_500) {
        let mut host = Host::new(Config {
            mac: MacAddress(OWN),
            mtu,
            networks: vec!["10.0.0.254/24".parse().unwrap()],
            gateways: Vec::new(),
            owned: Vec::new(),
            router: Vec::new(),
            refuses_martians: true,
            part: (0, 1),
        });
        host.arrive(&arp(ArpOperation::REQUEST, (CLIENT, [10, 0, 0, 1]), [10, 0, 0, 254]), 0);
        host.take_frames();
        let mut whole = udp(OWN, "192.0.2.1", "10.0.0.1", 64, len);
        whole[20] &= !0x40; // It may be cut.
        let header = etherparse::Ipv4Header::from_slice(&whole[14..]).unwrap().0;
        whole[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
        prop_assert_eq!(host.depart(&mut whole.clone(), 0), Departure::Kept);
        let mut put_together = vec![0; whole.len() - 34];
        let frames = host.take_frames();
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
    fn nothing_that_arrives_or_departs_breaks_it(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..6, cut in 0usize..200, at in 0usize..120, to: u8,
    ) {
        let mut host = host();
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
        host.arrive(&frame, 0);
        host.depart(&mut frame, 0);
        host.pass_time(SECOND);
    }
}

/// Priority tags (IEEE 802.1Q 9.6) are taken off; tags of VLANs stay, and the frame is none of this
/// port's.
#[test]
fn priority_tagged_frames_are_of_the_untagged_network() {
    let plain = udp(OWN, "10.0.0.1", "192.0.2.1", 64, 30);
    let with = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let mut untagged = Vec::new();
    for tags in [&[[0x81, 0, 0, 0]][..], &[[0x81, 0, 0xf0, 0]], &[[0x88, 0xa8, 0xe0, 0], [0x81, 0, 0x20, 0]]]
    {
        let frame = with(tags);
        assert_eq!(host().arrive(&frame, 0), Arrival::Kept, "nobody looks behind the tag");
        assert!(l3::untag(&frame, &mut untagged));
        assert_eq!(untagged, plain);
        assert_eq!(host().arrive(&untagged, 0), Arrival::Through);
    }
    let priority_then_vlan = with(&[[0x81, 0, 0xe0, 0], [0x81, 0, 0, 7]]);
    assert!(l3::untag(&priority_then_vlan, &mut untagged));
    assert_eq!(untagged, with(&[[0x81, 0, 0, 7]]));
    for frame in [plain.clone(), with(&[[0x81, 0, 0, 7]]), plain[..13].to_vec(), vec![]] {
        assert!(!l3::untag(&frame, &mut untagged));
    }
}

/// The addresses that frames announce: by ARP that asks for the sender's own, or by an
/// advertisement to all.
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
fn addresses_of_functions_are_announced_at_the_start_and_when_the_link_is_back() {
    let owned = vec![(addr("10.0.0.100"), addr("10.0.0.103")), (addr("fd00::80"), addr("fd00::80"))];
    let expected = ["10.0.0.100", "10.0.0.101", "10.0.0.102", "10.0.0.103", "fd00::80"].map(ip);
    let mut host = Host::new(Config { owned, ..config() });
    host.take_frames();
    let mut round = |at_ns: u64| {
        let frames: Vec<_> = (0..10)
            .flat_map(|ms| {
                host.pass_time(at_ns + ms * 1_000_000);
                host.take_frames()
            })
            .collect();
        announced(&frames)
    };
    assert_eq!(round(SECOND), expected);
    assert!(round(2 * SECOND).is_empty());
    let own = ["10.0.0.254", "fd00::fe", "fe80::ff:fe00:fe"].map(ip);
    assert_eq!(round(3 * SECOND), [&own[..], &expected].concat(), "once more");
    assert!(round(6 * SECOND).is_empty());
    host.come_up(9 * SECOND);
    assert_eq!(announced(&host.take_frames()), own);
    host.pass_time(9 * SECOND);
    assert_eq!(announced(&host.take_frames()), expected);
    assert_eq!(host.counters().announced, 15);
    let mut second = Host::new(Config { part: (1, 2), ..config() });
    second.pass_time(SECOND);
    assert!(second.take_frames().is_empty(), "one of a port's hosts announces");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn martians_are_refused_for_a_reason() {
    let router = vec![addr("10.0.0.254"), addr("203.0.113.1")];
    let mut host = Host::new(Config { router: router.clone(), ..config() });
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
        let arrival = host.arrive(&frame, 0);
        assert_eq!(arrival, Arrival::Refused(packet::DropReason::Martian), "{source} > {destination}");
    }
    assert_eq!(host.arrive(&udp(OWN, "10.0.0.5", "192.0.2.1", 9, 10), 0), Arrival::Through);
    assert_eq!(host.arrive(&udp([0xff; 6], "0.0.0.0", "255.255.255.255", 9, 10), 0), Arrival::Kept);
    assert_eq!(host.counters().kept, 1);
    let mut lenient = Host::new(Config { router, refuses_martians: false, ..config() });
    assert_eq!(lenient.arrive(&udp(OWN, "240.0.0.1", "192.0.2.1", 9, 10), 0), Arrival::Through);
}

/// The cards of a wire.
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0xa0];
const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0xa1];

/// The two ends of a wire with a NAT, which owns addresses outside.
fn wire() -> [Proxy; 2] {
    let wire = vec![MacAddress(INSIDE), MacAddress(OUTSIDE)];
    let owned = vec![(addr("203.0.113.1"), addr("203.0.113.4")), (addr("2001:db8::1"), addr("2001:db8::1"))];
    let proxy = |mac, owned| {
        Proxy::new(ProxyConfig { mac: MacAddress(mac), wire: wire.clone(), owned, part: (0, 1) })
    };
    [proxy(INSIDE, Vec::new()), proxy(OUTSIDE, owned)]
}

#[test]
fn a_wire_answers_for_addresses_of_functions_alone() {
    let [mut inside, mut outside] = wire();
    let asks = |target| arp(ArpOperation::REQUEST, (CLIENT, [203, 0, 113, 254]), target);
    assert_eq!(outside.arrive(&asks([203, 0, 113, 4]), 0), Arrival::Kept);
    let frames = outside.take_frames();
    let sliced = SlicedPacket::from_ethernet(&frames[0]).unwrap();
    let Some(NetSlice::Arp(told)) = sliced.net else { panic!("{frames:?}") };
    assert_eq!((told.operation(), told.sender_protocol_addr()), (ArpOperation::REPLY, &[203, 0, 113, 4][..]));
    assert_eq!((told.sender_hw_addr(), told.target_hw_addr()), (&OUTSIDE[..], &CLIENT[..]));
    assert_eq!(outside.arrive(&asks([203, 0, 113, 5]), 0), Arrival::Through, "it is somebody else's");
    assert_eq!(inside.arrive(&asks([203, 0, 113, 4]), 0), Arrival::Through, "that of the other end");
    outside.pass_time(0);
    let expected = ["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4", "2001:db8::1"].map(ip);
    assert_eq!(announced(&outside.take_frames()), expected);
    inside.pass_time(0);
    assert!(inside.take_frames().is_empty());
}

#[test]
fn packets_to_addresses_of_functions_get_to_who_they_are_for() {
    let [mut inside, _outside] = wire();
    // Not addressed to the wire: they pass as they are, and their senders are remembered.
    let forth = udp([9; 6], "10.0.0.5", "192.0.2.1", 9, 10);
    assert_eq!(inside.arrive(&forth, 0), Arrival::Through);
    let mut other = udp([9; 6], "192.0.2.1", "10.0.0.5", 9, 10);
    assert_eq!(inside.depart(&mut other, 0), Departure::Leaves);
    assert_eq!(other[..6], [9; 6]);
    // What came to the wire's card has been translated: it goes to the sender's card.
    let mut answer = udp(OUTSIDE, "192.0.2.1", "10.0.0.5", 9, 10);
    assert_eq!(inside.depart(&mut answer, 0), Departure::Leaves);
    assert_eq!((&answer[..6], &answer[6..12]), (&CLIENT[..], &INSIDE[..]));
    // Whoever has not spoken is asked for.
    let mut early = udp(OUTSIDE, "192.0.2.1", "10.0.0.9", 9, 10);
    assert_eq!((inside.depart(&mut early, 0), inside.waiting()), (Departure::Kept, 1));
    let asked = inside.take_frames();
    let sliced = SlicedPacket::from_ethernet(&asked[0]).unwrap();
    let Some(NetSlice::Arp(probe)) = sliced.net else { panic!("{asked:?}") };
    assert_eq!(
        (probe.sender_protocol_addr(), probe.target_protocol_addr()),
        (&[0; 4][..], &[10, 0, 0, 9][..])
    );
    let mut reply = arp(ArpOperation::REPLY, (CLIENT, [10, 0, 0, 9]), [0; 4]);
    reply[..6].copy_from_slice(&INSIDE);
    assert_eq!(inside.arrive(&reply, 0), Arrival::Kept);
    let sent = inside.take_frames();
    assert_eq!((sent.len(), &sent[0][..6], inside.waiting()), (1, &CLIENT[..], 0));
    // Nobody answers: it is lost, and counted.
    let mut late = udp(OUTSIDE, "192.0.2.1", "10.0.0.77", 9, 10);
    inside.depart(&mut late, 0);
    (0..5).for_each(|second| inside.pass_time(second * SECOND));
    assert_eq!((inside.counters().unreachable, inside.waiting()), (1, 0));
}
