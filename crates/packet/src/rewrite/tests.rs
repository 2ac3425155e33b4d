//! Rewriting against full recomputation: checksums that were right stay right, wrong ones stay
//! wrong, all else stays.

use proptest::prelude::*;

use super::*;
use crate::{FlowHasher, Parser};

mod cover;
mod outer;
mod tags;

/// Returns the sum of RFC 1071, byte by byte: the oracle, independent of incremental updates.
fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (i, &byte) in bytes.iter().enumerate() {
        sum += if i % 2 == 0 { u32::from(byte) << 8 } else { u32::from(byte) };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Fields of an IP packet that the oracle needs: header length, total length, protocol,
/// pseudo-header.
fn fields(packet: &[u8]) -> (usize, usize, u8, Vec<u8>) {
    let (header, total, protocol, addresses) = if packet[0] >> 4 == 4 {
        let total = u16::from_be_bytes([packet[2], packet[3]]);
        (usize::from(packet[0] & 15) * 4, usize::from(total), packet[9], &packet[12..20])
    } else {
        let total = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        (40, total, packet[6], &packet[8..40])
    };
    let len = (total - header) as u16;
    let pseudo = [addresses, &[0, 0], &len.to_be_bytes(), &[0, protocol]].concat();
    (header, total, protocol, pseudo)
}

/// Returns the offset of the checksum field of a transport.
fn field_of(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 | 33 | 136 => Some(6),
        1 | 58 => Some(2),
        _ => None,
    }
}

/// Returns, for every checksum in a whole IP packet from outside to inside, true if it is valid.
/// Includes the contents of tunnels and ICMP errors that are whole.
fn verdicts(packet: &[u8]) -> Vec<bool> {
    let (header, total, protocol, pseudo) = fields(packet);
    let mut right = vec![];
    if packet[0] >> 4 == 4 {
        right.push(slow_sum(&packet[..header]) == 0);
    }
    let Some(body) = packet.get(header..total) else { return right };
    let covered = if protocol == 1 { body.to_vec() } else { [&pseudo, body].concat() };
    match field_of(protocol) {
        Some(6) if body[6..8] == [0, 0] => right.push(true),
        Some(_) => right.push(slow_sum(&covered) == 0),
        None => {}
    }
    let within = match protocol {
        17 if body[2..4] == [0x12, 0xb5] => &body[8 + 8 + 14..],
        1 if matches!(body[0], 3 | 11) => &body[8..],
        58 if body[0] < 5 => &body[8..],
        4 | 41 => body,
        _ => &[],
    };
    // A random body may be too short for a header.
    let header_len = if within.first().is_some_and(|first| first >> 4 == 4) { 20 } else { 40 };
    if within.len() >= header_len {
        right.extend(verdicts(within));
    }
    right
}

/// Fills in the transport checksum of an IP packet, and the header's.
fn seal(packet: &mut [u8]) {
    let (header, total, protocol, pseudo) = fields(packet);
    if let Some(field) = field_of(protocol) {
        let body = &packet[header..total];
        let covered = if protocol == 1 { body.to_vec() } else { [&pseudo, body].concat() };
        let sum = match slow_sum(&covered) {
            0 if protocol == 17 => 0xffff,
            sum => sum,
        };
        packet[header + field..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    if packet[0] >> 4 == 4 {
        let sum = slow_sum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn ip(six: bool, protocol: u8, body: &[u8], with_checksum: bool) -> Vec<u8> {
    let [high, low] = (body.len() as u16 + if six { 0 } else { 20 }).to_be_bytes();
    let mut packet = if six {
        [&[0x60, 0, 0, 0, high, low, protocol, 64][..], &[0x20; 16], &[0x30; 16], body].concat()
    } else {
        let head = [0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
        [&head[..], body].concat()
    };
    seal(&mut packet);
    if !with_checksum && protocol == 17 {
        let at = packet.len() - body.len() + 6;
        packet[at..at + 2].fill(0);
    }
    packet
}

/// Returns a packet of any transport that can be rewritten, of any length, with or without a UDP
/// checksum.
fn plain() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (any::<bool>(), 0usize..5, payload, any::<[u8; 4]>(), any::<bool>()).prop_map(
        |(six, kind, payload, [a, b, c, d], with_checksum)| {
            let ports = [a, b, c | 0x40, d]; // Not the port of a tunnel, which the oracle would look into.
            let len = (8 + payload.len() as u16).to_be_bytes();
            let (protocol, head) = match kind {
                0 => (17, [&ports[..], &len, &[0, 0]].concat()),
                1 => (6, [&ports[..], &[7; 8], &[0x50, 0x10, 9, 9, 0, 0, 0, 0]].concat()),
                2 => (
                    if six { 58 } else { 1 },
                    vec![if six { 128 } else { 8 }, 0, 0, 0, ports[0], ports[1], 0, 1],
                ),
                3 => (136, [&ports[..], &[0, 0, 0, 0]].concat()),
                _ => (33, [&ports[..], &[3, 0, 0, 0, 0, 0, 0, 0]].concat()),
            };
            ip(six, protocol, &[head, payload].concat(), with_checksum)
        },
    )
}

/// Returns an ICMP error that quotes a packet, as a whole or only its beginning.
fn error() -> impl Strategy<Value = Vec<u8>> {
    (plain(), 8usize..60, any::<bool>()).prop_map(|(quoted, len, whole)| {
        let six = quoted[0] >> 4 == 6;
        let header = if six { 40 } else { 20 };
        let quoted = if whole { &quoted[..] } else { &quoted[..quoted.len().min(header + len)] };
        let head: [u8; 8] = if six { [1, 4, 0, 0, 0, 0, 0, 0] } else { [3, 3, 0, 0, 0, 0, 0, 0] };
        ip(six, if six { 58 } else { 1 }, &[&head, quoted].concat(), true)
    })
}

/// Returns a packet within a VXLAN tunnel, itself perhaps within another, or in IP; UDP with or
/// without checksums.
fn tunnelled() -> impl Strategy<Value = Vec<u8>> {
    let inside = prop_oneof![3 => plain(), 1 => error()];
    (inside, any::<[bool; 5]>()).prop_map(|(inside, [six, sum, twice, six_outside, sum_outside])| {
        let once = vxlan(six, sum, &inside);
        match (twice, sum_outside) {
            (false, _) => once,
            (true, true) => vxlan(six_outside, true, &once),
            (true, false) => ip(six_outside, if six { 41 } else { 4 }, &once, true),
        }
    })
}

fn vxlan(six: bool, with_checksum: bool, inside: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if inside[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    let [high, low] = (8 + 8 + 14 + inside.len() as u16).to_be_bytes();
    let head =
        [&[0xcc, 0xcc, 0x12, 0xb5, high, low, 0, 0, 8, 0, 0, 0, 0, 0, 9, 0][..], &[4; 12], &kind].concat();
    ip(six, 17, &[&head, inside].concat(), with_checksum)
}

/// Returns a way to frame IP packets: the link type, and its header before IPv4 and IPv6.
fn framing() -> impl Strategy<Value = (LinkType, Vec<u8>, Vec<u8>)> {
    let ether = |tags: &[u8], v4: [u8; 2], v6: [u8; 2]| {
        let head = [&[6; 12][..], tags].concat();
        (LinkType::Ethernet, [&head[..], &v4].concat(), [&head[..], &v6].concat())
    };
    let (v4, v6) = ([8, 0], [0x86, 0xdd]);
    let label = vec![0, 0, 0x11, 64];
    let sll2 = |kind: [u8; 2], rest: &[u8]| [&kind[..], &[0; 18], rest].concat();
    prop::sample::select(vec![
        ether(&[], v4, v6),
        ether(&[0x81, 0, 0, 7], v4, v6),
        ether(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 99], [0, 0x21], [0, 0x57]),
        ether(&[0x88, 0x47], [0, 0], [0, 0]),
        (LinkType::RawIp, vec![], vec![]),
        (LinkType::Null, vec![2, 0, 0, 0], vec![30, 0, 0, 0]),
        (LinkType::Null, vec![0, 0, 0, 2], vec![0, 0, 0, 30]),
        (LinkType::Null, vec![2, 0, 0, 0], vec![10, 0, 0, 0]),
        (LinkType::Loop, vec![0, 0, 0, 2], vec![0, 0, 0, 24]),
        (LinkType::Ppp, vec![0xff, 3, 0, 0x21], vec![0xff, 3, 0, 0x57]),
        (LinkType::Ppp, vec![0, 0x21], vec![0, 0x57]),
        (LinkType::Ppp, vec![0x21], vec![0x57]),
        (
            LinkType::Ppp,
            [vec![0x02, 0x81], label.clone()].concat(),
            [vec![0x02, 0x81], label.clone()].concat(),
        ),
        (LinkType::LinuxSll, [&[0; 14][..], &v4].concat(), [&[0; 14][..], &v6].concat()),
        (LinkType::LinuxSll2, sll2(v4, &[]), sll2(v6, &[])),
        (LinkType::LinuxSll2, sll2([0x81, 0], &[0, 7, 8, 0]), sll2([0x81, 0], &[0, 7, 0x86, 0xdd])),
    ])
    .prop_map(|(link, v4, v6)| {
        // A label needs its bottom-of-stack bit; the tag list above has no room for it.
        let mpls = link == LinkType::Ethernet && v4.ends_with(&[0x88, 0x47, 0, 0]);
        let labelled = |head: &[u8]| [&head[..head.len() - 2], &[0, 0, 0x11, 64]].concat();
        if mpls { (link, labelled(&v4), labelled(&v6)) } else { (link, v4, v6) }
    })
}

fn frame(
    (link, v4, v6): &(LinkType, Vec<u8>, Vec<u8>),
    network: &[u8],
    trailer: &[u8],
    inner: bool,
) -> Packet {
    let head = if network[0] >> 4 == 4 { v4 } else { v6 };
    let mut packet = Packet::from_bytes(&[head, network, trailer].concat());
    packet.meta_mut().link = *link;
    parse_again(&mut packet, inner);
    packet
}

fn parse_again(packet: &mut Packet, inner: bool) {
    let parser = Parser { inner, ..Parser::new(FlowHasher::new(1)) };
    parser.parse(packet).unwrap();
}

/// Returns the IP packet, without link header and trailer.
fn network(packet: &Packet) -> &[u8] {
    let l3 = packet.meta().outer_l3 as usize;
    &packet.data()[l3..l3 + packet.ip_len()]
}

#[derive(Clone, Copy, Debug)]
enum Change {
    End(End, u128, u16),
    Embedded(End, u128, u16),
    Ttl,
    Dscp(u8),
}

fn change() -> impl Strategy<Value = Change> {
    let end = || prop_oneof![Just(End::Source), Just(End::Destination)];
    // Addresses and ports that make sums of zero are as likely as others.
    let address = || prop_oneof![any::<u128>(), Just(0u128), Just(u128::MAX)];
    let port = || prop_oneof![any::<u16>(), Just(0u16), Just(0xffff)];
    prop_oneof![
        4 => (end(), address(), port()).prop_map(|(end, a, p)| Change::End(end, a, p)),
        3 => (end(), address(), port()).prop_map(|(end, a, p)| Change::Embedded(end, a, p)),
        1 => Just(Change::Ttl),
        1 => any::<u8>().prop_map(Change::Dscp),
    ]
}

fn endpoint(packet: &Packet, address: u128, port: u16) -> Endpoint {
    let addr = match packet.meta().version {
        4 => Addr::from_v4_bytes((address as u32).to_be_bytes()),
        // Not a mapped address: that would be IPv4's.
        _ => Addr::from_u128(address | 1 << 127),
    };
    // Not the port of a tunnel, which the oracle would look into.
    Endpoint::new(addr, if port == 4789 { 4790 } else { port })
}

fn apply(packet: &mut Packet, change: Change) -> Result<(), RewriteError> {
    match change {
        Change::End(end, address, port) => packet.set_end(end, endpoint(packet, address, port)),
        Change::Embedded(end, address, port) => packet.set_embedded_end(end, endpoint(packet, address, port)),
        Change::Ttl => {
            packet.decrement_ttl();
            Ok(())
        }
        Change::Dscp(dscp) => {
            packet.set_dscp(dscp);
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every checksum in the packet keeps its validity; the link layer and the trailer are
    /// untouched.
    #[test]
    fn checksums_keep_their_verdicts(
        network_bytes in prop_oneof![plain(), error(), tunnelled()],
        framing in framing(),
        trailer in prop::collection::vec(any::<u8>(), 0..30),
        changes in prop::collection::vec(change(), 1..4),
        flips in prop::collection::vec((0usize..200, 1u8..), 0..2),
        inner: bool,
    ) {
        let mut packet = frame(&framing, &network_bytes, &trailer, inner);
        // Bytes after all headers that the oracle reads, or a checksum: a fault from before.
        let payload = packet.meta().payload as usize;
        let udp_sum = packet.meta().protocol == protocol::UDP && packet.meta().has_transport();
        let nothing_within = verdicts(&packet.data()[packet.meta().l3 as usize..]).len() <= 2;
        for (at, bits) in flips {
            let end = packet.meta().outer_l3 as usize + packet.ip_len();
            let at = if at == 0 && udp_sum { packet.meta().l4 as usize + 7 } else { payload + at };
            if at < end && packet.meta().class == PacketClass::Whole && nothing_within {
                packet.data_mut()[at] ^= bits;
            }
        }
        let before = packet.data().to_vec();
        let right = verdicts(network(&packet));
        for change in changes {
            let _ = apply(&mut packet, change);
            let now = verdicts(network(&packet));
            // A packet to a tunnel's port may no longer have that port; its contents are then
            // unknown.
            let known = now.len().min(right.len());
            prop_assert!(known == right.len() || !inner);
            prop_assert_eq!(&now, &right[..known], "after {:?}", change);
        }
        let (l3, end) = (packet.meta().outer_l3 as usize, packet.meta().outer_l3 as usize + packet.ip_len());
        prop_assert_eq!(&packet.data()[..l3], &before[..l3]);
        prop_assert_eq!(&packet.data()[end..], &before[end..], "the trailer");
        prop_assert_eq!(packet.len(), before.len());
    }

    /// Endpoints that were set read back, and setting the old ones restores the bytes.
    #[test]
    fn set_ends_read_back_and_are_reversible(network_bytes in prop_oneof![plain(), error(), tunnelled()], a: u128, p: u16, inner: bool) {
        let framing = (LinkType::RawIp, vec![], vec![]);
        let mut packet = frame(&framing, &network_bytes, &[], inner);
        let before = packet.data().to_vec();
        let (source, destination) = parse::ends(&packet);
        for (end, old) in [(End::Source, source), (End::Destination, destination)] {
            let to = endpoint(&packet, a, p);
            packet.set_end(end, to).unwrap();
            let now = parse::ends(&packet);
            let now = if end == End::Source { now.0 } else { now.1 };
            prop_assert_eq!(now.addr, to.addr);
            prop_assert!(now.port == to.port || old.port == 0 || matches!(packet.meta().class, PacketClass::IcmpError));
            packet.set_end(end, old).unwrap();
            prop_assert_eq!(packet.data(), &before[..]);
        }
    }

    /// Combined writes equal the same writes one after the other, on packets with the expected
    /// endpoints and, if compared first, on others.
    #[test]
    fn combined_writes_equal_writes_in_turn(
        network_bytes in prop_oneof![plain(), tunnelled()],
        writes in prop::collection::vec((any::<bool>(), any::<u128>(), any::<u16>()), 0..4),
        other: bool,
        flip: u16,
        inner: bool,
    ) {
        let mut packet = frame(&(LinkType::RawIp, vec![], vec![]), &network_bytes, &[], inner);
        let is_icmp = matches!(packet.meta().protocol, protocol::ICMP | protocol::ICMPV6);
        // Both ends of an ICMP query have one identifier.
        let writes = writes.into_iter().filter(|&(source, ..)| source || !is_icmp);
        let writes: Vec<(End, Endpoint)> = writes
            .map(|(source, a, p)| {
                (if source { End::Source } else { End::Destination }, endpoint(&packet, a, p))
            })
            .collect();
        if packet.meta().class == PacketClass::Whole && packet.meta().protocol == protocol::UDP {
            // Right and wrong checksums, and none.
            let at = packet.meta().l4 as usize + 6;
            let sum = word(packet.data(), at) ^ flip;
            packet.data_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut new = NewEnds::new(parse::ends(&packet), writes.iter().copied());
        if other {
            let (source, destination) = parse::ends(&packet);
            new = NewEnds::new((destination, source), writes.iter().copied());
        }
        let mut in_turn = Packet::from_bytes(packet.data());
        *in_turn.meta_mut() = packet.meta().clone();
        let wanted = writes.iter().try_for_each(|&(end, to)| in_turn.set_end(end, to));
        prop_assert_eq!(packet.set_ends(&new, !other), wanted);
        prop_assert_eq!(packet.data(), in_turn.data());
    }

    /// A packet truncated by a capture changes like the beginning of the whole one.
    #[test]
    fn truncated_packets_change_like_whole_ones(network_bytes in plain(), change in change(), keep in 0usize..80) {
        let framing = (LinkType::RawIp, vec![], vec![]);
        let mut whole = frame(&framing, &network_bytes, &[], false);
        // A checksum with only one captured byte is not checked.
        let keep = (whole.meta().l4 as usize + 8 + keep / 2 * 2).min(whole.len());
        let mut cut = Packet::from_bytes(&network_bytes[..keep]);
        cut.meta_mut().link = LinkType::RawIp;
        cut.meta_mut().wire_len = network_bytes.len() as u32;
        if Parser::new(FlowHasher::new(1)).parse(&mut cut).is_err() {
            return Ok(());
        }
        prop_assert_eq!(apply(&mut cut, change), apply(&mut whole, change));
        prop_assert_eq!(cut.data(), &whole.data()[..keep]);
    }

    /// After pushing and pulling headers the packet is restored, and the link layer's type is right
    /// in between.
    #[test]
    fn tunnels_are_pushed_and_pulled(
        network_bytes in prop_oneof![plain(), error()],
        framing in framing(),
        trailer in prop::collection::vec(any::<u8>(), 0..9),
        six: bool,
    ) {
        let mut packet = frame(&framing, &network_bytes, &trailer, true);
        let version = packet.meta().version;
        let before = (packet.data().to_vec(), format!("{:?}", packet.meta()));
        let header = ip(six, if version == 4 { 4 } else { 41 }, &network_bytes, true);
        let header = &header[..header.len() - network_bytes.len()];
        packet.encap_bytes(header, if six { 6 } else { 4 }).unwrap();
        prop_assert_eq!(network(&packet), &[header, &network_bytes].concat()[..]);
        if let Some(at) = pppoe_length(&framing) {
            // By as much as the packet grew; 99 is what the frame's maker wrote.
            prop_assert_eq!(usize::from(word(packet.data(), at)), 99 + header.len());
        }
        let (l3, l4) = (packet.meta().l3, packet.meta().l4);
        let right = verdicts(network(&packet));
        prop_assert!(right.iter().all(|right| *right) || packet.meta().class == PacketClass::IcmpError);
        parse_again(&mut packet, true);
        prop_assert_eq!((packet.meta().l3, packet.meta().l4), (l3, l4));
        packet.strip_outer(header.len(), version).unwrap();
        let end = before.0.len() - trailer.len();
        // BSD systems differ on the family of IPv6: one of them is as good as another.
        let family = matches!(framing.0, LinkType::Null | LinkType::Loop) && version == 6 && !six;
        let from = if family { 4 } else { 0 };
        prop_assert_eq!(&packet.data()[from..], &before.0[from..end]);
        prop_assert_eq!(usize::from(packet.meta().l3), framing_len(&framing, version));
        parse_again(&mut packet, true);
        prop_assert_eq!(network(&packet), &network_bytes[..]);
    }
}

fn framing_len((_, v4, v6): &(LinkType, Vec<u8>, Vec<u8>), version: u8) -> usize {
    if version == 4 { v4.len() } else { v6.len() }
}

/// Returns the offset of the length in a PPPoE header.
fn pppoe_length((link, v4, _): &(LinkType, Vec<u8>, Vec<u8>)) -> Option<usize> {
    (*link == LinkType::Ethernet && v4[12..14] == [0x88, 0x64]).then_some(18)
}

/// With a routing header, the transport checksum covers the final destination, not the next one
/// (RFC 8200 8.1).
#[test]
fn intermediate_destination_of_a_route_is_not_covered() {
    let (next, last) = ([0x22; 16], [0x33; 16]);
    let udp = [0, 53, 0, 53, 0, 11, 0, 0, 1, 2, 3];
    let mut direct = ip(true, 17, &udp, true);
    direct[24..40].copy_from_slice(&last);
    direct[46..48].fill(0);
    seal(&mut direct);
    let mut routed = direct[..40].to_vec();
    routed[4..6].copy_from_slice(&(24 + udp.len() as u16).to_be_bytes());
    routed[6] = 43;
    routed[24..40].copy_from_slice(&next);
    routed.extend([17, 2, 0, 1, 0, 0, 0, 0]);
    routed.extend(last);
    routed.extend(&direct[40..]);
    let mut packet = frame(&(LinkType::RawIp, vec![], vec![]), &routed, &[], false);
    packet.set_end(End::Destination, Endpoint::new(Addr::from_bytes([0x44; 16]), 53)).unwrap();
    assert_eq!(packet.data()[24..40], [0x44; 16]);
    assert_eq!(packet.data()[40..], routed[40..], "address and port are as the checksum has them");
    packet.set_end(End::Source, Endpoint::new(Addr::from_bytes([0x55; 16]), 54)).unwrap();
    let arrived = [&packet.data()[..24], &last, &packet.data()[64..]].concat();
    let arrived = [&arrived[..4], &(udp.len() as u16).to_be_bytes(), &[17], &arrived[7..]].concat();
    assert_eq!(verdicts(&arrived), [true]);
}

/// In a first fragment, the transport checksum covers the datagram: it changes with the header.
#[test]
fn fragments_of_a_datagram_change_together() {
    let payload: Vec<u8> = (0..60).collect();
    let udp = [&[3, 232, 0, 53, 0, 68, 0, 0][..], &payload].concat();
    let mut whole = ip(false, 17, &udp, true);
    let mut pieces: Vec<Packet> = [(0x2000u16, &whole[20..44]), (0x0003, &whole[44..88])]
        .into_iter()
        .map(|(field, piece)| {
            let mut bytes = [&whole[..20], piece].concat();
            bytes[2..4].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            bytes[10..12].fill(0);
            let sum = slow_sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            frame(&(LinkType::RawIp, vec![], vec![]), &bytes, &[], false)
        })
        .collect();
    let to = Endpoint::new(Addr::from_v4_bytes([203, 0, 113, 7]), 4444);
    for piece in &mut pieces {
        piece.set_end(End::Source, to).unwrap();
        assert_eq!(slow_sum(&piece.data()[..20]), 0);
        assert_eq!(piece.data()[12..16], [203, 0, 113, 7]);
    }
    let body = [&pieces[0].data()[20..], &pieces[1].data()[20..]].concat();
    whole[12..16].copy_from_slice(&[203, 0, 113, 7]);
    whole[20..].copy_from_slice(&body);
    assert_eq!(verdicts(&whole)[1..], [true]);
    assert_eq!(body[..2], 4444u16.to_be_bytes());
}

#[test]
fn impossible_rewrites_are_refused_and_change_nothing() {
    let four = Endpoint::new(Addr::from_v4_bytes([1, 2, 3, 4]), 5);
    let raw = (LinkType::RawIp, vec![], vec![]);
    let mut six = frame(&raw, &ip(true, 17, &[0, 1, 0, 2, 0, 8, 0, 0], true), &[], false);
    let before = six.data().to_vec();
    assert_eq!(six.set_end(End::Source, four), Err(RewriteError::Version));
    assert_eq!(six.set_embedded_end(End::Source, four), Err(RewriteError::Version));
    assert_eq!(six.strip_outer(40, 4), Err(RewriteError::NoHeader));
    assert_eq!(six.encap_bytes(&[0; crate::HEADROOM + 1], 4), Err(RewriteError::NoHeadroom));
    assert_eq!(six.data(), before);
    for link in [LinkType::Ethernet, LinkType::Ppp, LinkType::Null, LinkType::Other(105)] {
        let mut unparsed = Packet::from_bytes(&[0; 3]);
        unparsed.meta_mut().link = link;
        assert_eq!(unparsed.encap_bytes(&[0; 20], 4), Err(RewriteError::NoHeader), "{link:?}");
        assert_eq!(unparsed.strip_outer(0, 4), Err(RewriteError::NoHeader));
        assert!(!unparsed.decrement_ttl());
        assert_eq!(unparsed.data(), [0; 3]);
    }
}

/// A removed tunnel's checksum needs no update: nothing is written at its position.
#[test]
fn removed_tunnel_is_forgotten() {
    let inside = ip(false, 17, &[0, 1, 0, 2, 0, 8, 0, 0], true);
    let nested = vxlan(false, true, &ip(false, 4, &inside, true));
    let mut packet = frame(&(LinkType::RawIp, vec![], vec![]), &nested, &[], true);
    assert_eq!((packet.meta().outer_udp, packet.meta().l3), (20, 70));
    packet.strip_outer(50, 4).unwrap();
    assert_eq!((packet.meta().outer_udp, packet.meta().l3), (0, 20));
    packet.set_end(End::Source, Endpoint::new(Addr::from_v4_bytes([9, 9, 9, 9]), 7)).unwrap();
    assert!(verdicts(packet.data()).iter().all(|right| *right));
}

#[test]
fn added_tunnel_is_remembered() {
    let inside = ip(false, 17, &[0, 1, 0, 2, 0, 8, 0, 0], true);
    for (six, with_checksum) in [(false, true), (true, true), (false, false), (true, false)] {
        let nested = vxlan(six, with_checksum, &inside);
        let mut packet = frame(&(LinkType::RawIp, vec![], vec![]), &inside, &[], false);
        packet.encap_bytes(&nested[..nested.len() - inside.len()], if six { 6 } else { 4 }).unwrap();
        packet.set_end(End::Source, Endpoint::new(Addr::from_v4_bytes([9, 9, 9, 9]), 7)).unwrap();
        assert_ne!(packet.data(), nested);
        assert_eq!(verdicts(packet.data()), verdicts(&nested), "IPv6: {six}, checksum: {with_checksum}");
    }
}

#[test]
fn used_up_hop_count_stays() {
    for six in [false, true] {
        let mut packet = ip(six, 17, &[0, 1, 0, 2, 0, 8, 0, 0], true);
        packet[if six { 7 } else { 8 }] = 2;
        seal(&mut packet);
        let mut packet = frame(&(LinkType::RawIp, vec![], vec![]), &packet, &[], false);
        assert!(packet.decrement_ttl());
        let before = packet.data().to_vec();
        assert!(!packet.decrement_ttl());
        assert_eq!(packet.data(), before);
    }
}
