//! Addresses that functions own on a link: a port answers for addresses in use, and for no
//! neighbour's. Frames are built and parsed by another implementation.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{ArpOperation, ArpPacket, NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use l3::{Config, EgressAction, IngressAction, ProxyPort, ProxyPortConfig, RouterPort, StaticRoute};
use packet::Addr;
use packet::wire::MacAddress;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SECOND: u64 = 1_000_000_000;

/// An address of the prefix on the link that functions own while in use.
const HOST: &str = "2001:db8::77";
const GATEWAY: &str = "2001:db8::1";

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

fn config() -> Config {
    let route = StaticRoute::new("192.0.2.0".parse().unwrap(), 24, "203.0.113.9".parse().unwrap());
    Config {
        mac: MacAddress(OWN),
        mtu: 1500,
        addresses: vec!["203.0.113.2/28".parse().unwrap(), "2001:db8::2/64".parse().unwrap()],
        routes: route.into_iter().collect(),
        gateways: vec!["203.0.113.1".parse().unwrap(), GATEWAY.parse().unwrap()],
        nf_addresses: vec![(addr("203.0.113.0"), addr("203.0.113.15"))],
        nf_addresses_in_use: vec![(addr("2001:db8::"), addr("2001:db8::ffff:ffff:ffff:ffff"))],
        router_addresses: vec![addr("203.0.113.2"), addr("203.0.113.5"), addr("2001:db8::2")],
        is_at_program: false,
        drop_martians: true,
        shard: (0, 1),
    }
}

fn router(shard: (usize, usize)) -> RouterPort {
    let mut port = RouterPort::new(Config { shard, ..config() });
    port.take_frames();
    port
}

fn wire(shard: (usize, usize)) -> ProxyPort {
    ProxyPort::new(ProxyPortConfig {
        mac: MacAddress(OWN),
        wire: vec![MacAddress(OWN)],
        nf_addresses: Vec::new(),
        nf_addresses_in_use: config().nf_addresses_in_use,
        shard,
    })
}

/// A port of either kind.
trait Port {
    fn enter(&mut self, frame: &[u8], now_ns: u64) -> IngressAction;
    fn leave(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction;
    fn frames(&mut self) -> Vec<Vec<u8>>;
    fn told(&mut self) -> Vec<Vec<u8>>;
    fn hear(&mut self, frame: &[u8], now_ns: u64);
    fn duplicates(&self) -> u64;
}

macro_rules! port {
    ($type:ty) => {
        impl Port for $type {
            fn enter(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
                self.handle_ingress(frame, now_ns)
            }
            fn leave(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
                self.handle_egress(frame, now_ns)
            }
            fn frames(&mut self) -> Vec<Vec<u8>> {
                self.take_frames()
            }
            fn told(&mut self) -> Vec<Vec<u8>> {
                self.take_snooped()
            }
            fn hear(&mut self, frame: &[u8], now_ns: u64) {
                self.snoop(frame, now_ns);
            }
            fn duplicates(&self) -> u64 {
                self.counters().duplicate
            }
        }
    };
}
port!(RouterPort);
port!(ProxyPort);

fn both(shard: (usize, usize)) -> [Box<dyn Port>; 2] {
    [Box::new(router(shard)), Box::new(wire(shard))]
}

/// A neighbour discovery message about an address.
fn discovery(kind: u8, source: &str, target: &str) -> Vec<u8> {
    let source: Ipv6Addr = source.parse().unwrap();
    let target: Ipv6Addr = target.parse().unwrap();
    let mut contents = target.octets().to_vec();
    if !source.is_unspecified() {
        contents.extend([if kind == 135 { 1 } else { 2 }, 1]);
        contents.extend(NEIGHBOUR);
    }
    let mut frame = Vec::new();
    let group = "ff02::1".parse::<Ipv6Addr>().unwrap();
    PacketBuilder::ethernet2(NEIGHBOUR, [0x33, 0x33, 0, 0, 0, 1])
        .ipv6(source.octets(), group.octets(), 255)
        .icmpv6_raw(kind, 0, [0; 4])
        .write(&mut frame, &contents)
        .unwrap();
    frame
}

fn solicitation(source: &str, target: &str) -> Vec<u8> {
    discovery(135, source, target)
}

/// A neighbour says that it has an address.
fn claim(target: &str) -> Vec<u8> {
    discovery(136, target, target)
}

/// A packet from an address of the prefix, which a function translated to it.
fn packet(source: &str) -> Vec<u8> {
    let (source, to): (Ipv6Addr, Ipv6Addr) = (source.parse().unwrap(), "2001:db8:9::9".parse().unwrap());
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(NEIGHBOUR, [9; 6])
        .ipv6(source.octets(), to.octets(), 64)
        .udp(1, 2)
        .write(&mut frame, &[])
        .unwrap();
    frame
}

/// Returns the kind, flags and target of a discovery message, and checks its checksum.
fn parsed(frame: &[u8]) -> (u8, u8, Ipv6Addr) {
    let parsed = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let (Some(TransportHeader::Icmpv6(icmp)), Some(NetHeaders::Ipv6(ip, _))) =
        (&parsed.transport, &parsed.net)
    else {
        panic!("{parsed:?}")
    };
    let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, parsed.payload.slice()).unwrap();
    assert_eq!((icmp.checksum, ip.hop_limit), (sum, 255));
    let message = &frame[14 + 40..];
    (message[0], message[4], Ipv6Addr::from(<[u8; 16]>::try_from(&message[8..24]).unwrap()))
}

/// Takes the discovery messages that a port sends, without packets that waited for a neighbour.
fn discoveries(port: &mut dyn Port) -> Vec<(u8, u8, Ipv6Addr)> {
    const ICMPV6: u8 = 58;
    port.frames().iter().filter(|frame| frame[20] == ICMPV6).map(|frame| parsed(frame)).collect()
}

/// Solicits an address, and returns whether the answer overrides what the sender knows; `None`
/// without an answer.
fn asks(port: &mut dyn Port, source: &str, now_ns: u64) -> Option<bool> {
    port.frames();
    port.enter(&solicitation(source, HOST), now_ns);
    let frames: Vec<_> = discoveries(port);
    let [(kind, flags, target)] = frames[..] else { return None };
    assert_eq!((kind, target), (136, HOST.parse().unwrap()));
    Some(flags & 0x20 != 0)
}

#[test]
fn address_is_answered_for_once_a_packet_from_it_left() {
    for mut port in both((0, 1)) {
        let port = &mut *port;
        // Solicited by the gateway and by a neighbour's probe before any host here has it.
        assert_eq!(asks(port, GATEWAY, 0), None);
        assert_eq!(asks(port, "::", 0), None);
        port.leave(&mut packet(HOST), 0);
        let mut probes = discoveries(port);
        probes.retain(|&(_, _, target)| target == HOST.parse::<Ipv6Addr>().unwrap());
        assert_eq!(probes, [(135, 0, HOST.parse().unwrap())], "it is probed");
        assert_eq!(asks(port, GATEWAY, 1), Some(false), "at once, as the answer comes soon");
        assert_eq!(asks(port, GATEWAY, 2 * SECOND), Some(true));
        assert_eq!(asks(port, "::", 2 * SECOND), Some(true), "it is defended");
        // Another one is still free.
        port.enter(&solicitation("::", "2001:db8::78"), 2 * SECOND);
        assert_eq!(port.frames(), [[0; 0]; 0]);
        assert_eq!(port.duplicates(), 0);
    }
}

#[test]
fn neighbours_keep_what_they_have() {
    for rival in [claim(HOST), solicitation("::", HOST)] {
        for mut port in both((0, 1)) {
            let port = &mut *port;
            port.leave(&mut packet(HOST), 0);
            port.enter(&rival, SECOND / 2);
            assert_eq!(asks(port, GATEWAY, 2 * SECOND), None);
            assert_eq!(port.leave(&mut packet(HOST), 2 * SECOND), EgressAction::Consumed);
            assert_eq!(port.duplicates(), 1);
            // Later it may have gone.
            port.leave(&mut packet(HOST), 100 * SECOND);
            assert_eq!(asks(port, GATEWAY, 102 * SECOND), Some(true));
        }
    }
}

#[test]
fn addresses_of_the_link_itself_are_never_in_use() {
    let mut port = router((0, 1));
    for taken in [GATEWAY, "2001:db8::2"] {
        assert_eq!(port.handle_egress(&mut packet(taken), 0), EgressAction::Consumed, "{taken}");
    }
    assert_eq!((port.counters().duplicate, port.counters().in_use), (2, 0));
    assert_eq!(asks(&mut port, GATEWAY, 0), None);
}

#[test]
fn shards_answer_for_what_each_of_them_sent() {
    for (mut first, mut second) in both((0, 2)).into_iter().zip(both((1, 2))) {
        first.frames();
        second.leave(&mut packet(HOST), 0);
        for told in second.told() {
            first.hear(&told, 0);
        }
        assert_eq!(asks(&mut *first, GATEWAY, 2 * SECOND), Some(true));
        assert!(first.told().iter().all(|frame| frame[6..12] == NEIGHBOUR), "no report goes in a circle");
        // A neighbour's forged report is ignored.
        let mut forged = claim("2001:db8::99");
        forged[6..12].copy_from_slice(&OWN);
        first.enter(&forged, 0);
        assert_eq!(first.told().len(), 0);
    }
}

fn answers_arp(port: &mut RouterPort, target: [u8; 4]) -> bool {
    let asked = ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        etherparse::EtherType::IPV4,
        ArpOperation::REQUEST,
        &NEIGHBOUR,
        &[203, 0, 113, 3],
        &[0; 6],
        &target,
    );
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(NEIGHBOUR, [0xff; 6]).arp(asked.unwrap()).write(&mut frame).unwrap();
    port.take_frames();
    port.handle_ingress(&frame, 0);
    !port.take_frames().is_empty()
}

/// A NAT's pool that has the whole network of the link.
#[test]
fn pool_has_no_address_of_the_link_itself() {
    let mut port = router((0, 1));
    for (last, is_answered) in [
        (0, false),  // the network
        (1, false),  // the gateway
        (2, true),   // the port's own
        (4, true),   // the pool's
        (5, false),  // another port's
        (9, false),  // a next hop
        (14, true),  // the pool's
        (15, false), // the broadcast address
    ] {
        assert_eq!(answers_arp(&mut port, [203, 0, 113, last]), is_answered, "{last}");
    }
    let announced: Vec<u8> = (0..5_000)
        .flat_map(|ms| {
            port.handle_timeout(ms * 1_000_000);
            port.take_frames()
        })
        .filter_map(|frame| (frame[12..14] == [8, 6]).then(|| frame[41]))
        .collect();
    assert!(announced.contains(&4) && [0, 1, 5, 9, 15].iter().all(|last| !announced.contains(last)));
}

#[test]
fn addresses_in_use_are_announced_when_the_link_comes_up() {
    let mut port = router((0, 1));
    port.handle_egress(&mut packet(HOST), 0);
    (0..6_000).for_each(|ms| port.handle_timeout(ms * 1_000_000));
    port.take_frames();
    port.handle_link_up(10 * SECOND);
    (10_000..16_000).for_each(|ms| port.handle_timeout(ms * 1_000_000));
    let host = HOST.parse::<Ipv6Addr>().unwrap().octets();
    let frames = port.take_frames();
    assert_eq!(frames.iter().filter(|frame| frame.get(62..78) == Some(&host)).count(), 2);
}
