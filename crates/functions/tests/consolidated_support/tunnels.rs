//! Packets in tunnels, built byte by byte, independently of the outer headers that functions write.

use packet::split_mix;

/// Kinds of tunnels.
const KINDS: u64 = 8;

/// Puts an IP packet into outer headers of a kind. All packets of a kind have the same headers,
/// except for per-packet fields and, rarely, an invalid value.
pub fn in_tunnel(kind: u64, mut own: u64, network: &[u8]) -> Vec<u8> {
    let mut some = || split_mix(&mut own);
    let is_v4 = network[0] >> 4 == 4;
    let ether_type: [u8; 2] = if is_v4 { [8, 0] } else { [0x86, 0xdd] };
    // Sometimes the packet is followed by trailing bytes.
    let padding = if some().is_multiple_of(32) { vec![0; 5] } else { vec![] };
    let inside = [network, &padding].concat();
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type[..], &inside].concat();
    let (peer, source_port) = (if some().is_multiple_of(32) { 6 } else { 4 }, some() as u16 | 0x8000);
    match kind % KINDS {
        0 => over(4, peer, 47, &[&[0, 0], &ether_type[..], &inside].concat(), some()),
        1 => over(
            6,
            peer,
            17,
            &udp(source_port, 4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat()),
            some(),
        ),
        2 => over(4, 9, if is_v4 { 4 } else { 41 }, &inside, some()),
        3 => {
            let number = (some() as u32).to_be_bytes();
            over(
                6,
                peer,
                47,
                &[&[0x30, 0], &ether_type[..], &[0, 0, 0, 7], &number, &inside].concat(),
                some(),
            )
        }
        4 => over(
            4,
            peer,
            17,
            &udp(source_port, 4789, &[&[8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat()),
            some(),
        ),
        5 => {
            let option = [0, 1, 2, 1, u8::from(some().is_multiple_of(16)), 0, 0, 0];
            let head = [&[2, 0], &ether_type[..], &[0, 0, 7, 0], &option].concat();
            over(4, peer, 17, &udp(source_port, 6081, &[head, inside].concat()), some())
        }
        6 => over(
            4,
            peer,
            47,
            &[&[0x20, 0], &ether_type[..], &[0, 0, 0, some() as u8 & 1], &inside].concat(),
            some(),
        ),
        _ => {
            let once = over(6, 9, 47, &[&[0, 0], &ether_type[..], &inside].concat(), some());
            over(4, 9, 41, &once, some())
        }
    }
}

/// Builds a datagram without a checksum, which tunnels may have.
fn udp(source_port: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [&source_port.to_be_bytes(), &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0][..], payload].concat()
}

/// Builds an IP packet from a host of the tunnels' network to another host.
fn over(version: u8, peer: u8, protocol: u8, payload: &[u8], mut own: u64) -> Vec<u8> {
    let mut some = || split_mix(&mut own) as u8;
    // Usually with an ECN-capable transport.
    let class = some() & 0xfc | [2, 2, 2, 2, 2, 1, 0, 3][usize::from(some() & 7)];
    let ttl = 1 + some() % 64;
    if version == 6 {
        let len = (payload.len() as u16).to_be_bytes();
        let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let first =
            [6 << 4 | class >> 4, class << 4 | some() & 15, some(), some(), len[0], len[1], protocol, ttl];
        return [&first[..], &address(peer), &address(5), payload].concat();
    }
    let len = (20 + payload.len() as u16).to_be_bytes();
    let flags = if some() & 1 == 0 { 0x40 } else { 0 };
    let mut header = [
        0x45,
        class,
        len[0],
        len[1],
        some(),
        some(),
        flags,
        0,
        ttl,
        protocol,
        0,
        0,
        192,
        0,
        2,
        peer,
        192,
        0,
        2,
        5,
    ];
    let sum = packet::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}
