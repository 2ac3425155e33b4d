//! Packets made field by field. Nothing here uses the crates under test for more than naming
//! addresses.

use packet::{Addr, Endpoint, Packet, Side};

/// The IPv4 address and port `a.b.c.d:port`.
pub fn v4(a: u8, b: u8, c: u8, d: u8, port: u16) -> Endpoint {
    Endpoint::new(Addr::from_v4_bytes([a, b, c, d]), port)
}

/// The IPv6 address `2001:db8::host` and a port.
pub fn v6(host: u16, port: u16) -> Endpoint {
    Endpoint::new(Addr::from_u128(0x2001_0db8_u128 << 96 | u128::from(host)), port)
}

/// An Ethernet frame around an IP packet, as it was received at `at_ns` by `side`.
pub fn packet(at_ns: u64, side: Side, network: &[u8]) -> Packet {
    let mut packet = Packet::from_bytes(&frame(network));
    packet.meta_mut().transit.timestamp_ns = at_ns;
    packet.meta_mut().transit.side = side;
    packet
}

/// Returns an Ethernet frame around an IP packet, or around tags and an IP packet, which begin with
/// the first tag's type.
pub fn frame(network: &[u8]) -> Vec<u8> {
    let ether_type: &[u8] = match network {
        [0x81, 0x00, ..] | [0x88, 0xa8 | 0x47 | 0x64, ..] => &[],
        [0x40..0x50, ..] => &[0x08, 0x00],
        _ => &[0x86, 0xdd],
    };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], ether_type, network].concat()
}

/// Returns the frame of an IP packet after these tags and labels; the last label has its
/// bottom-of-stack bit.
pub fn tagged(tags: &[[u8; 4]], labels: &[[u8; 4]], network: &[u8]) -> Vec<u8> {
    let ether_type: [u8; 2] = match network[0] >> 4 {
        _ if !labels.is_empty() => [0x88, 0x47],
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    };
    [&tags.concat(), &ether_type[..], &labels.concat(), network].concat()
}

/// An IP packet of the addresses' version.
pub fn ip(source: Addr, destination: Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    if source.is_v4() {
        return ipv4(source, destination, protocol, 0x4000, 0, payload);
    }
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([protocol, 64]);
    header.extend(source.as_bytes());
    header.extend(destination.as_bytes());
    [header, payload.to_vec()].concat()
}

fn ipv4(source: Addr, destination: Addr, protocol: u8, fragment: u16, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + payload.len() as u16).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(source.v4_bytes());
    header.extend(destination.v4_bytes());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

/// A UDP packet with a checksum.
pub fn udp(source: Endpoint, destination: Endpoint, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![];
    segment.extend(source.port.to_be_bytes());
    segment.extend(destination.port.to_be_bytes());
    segment.extend((8 + payload.len() as u16).to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(payload);
    seal(source.addr, destination.addr, 17, &mut segment, 6);
    ip(source.addr, destination.addr, 17, &segment)
}

/// A TCP packet.
pub fn tcp(source: Endpoint, destination: Endpoint, flags: u8, payload: &[u8]) -> Vec<u8> {
    tcp_segment(source, destination, flags, [1, 1], payload)
}

/// A TCP packet with these sequence and acknowledgment numbers.
pub fn tcp_segment(
    source: Endpoint,
    destination: Endpoint,
    flags: u8,
    numbers: [u32; 2],
    payload: &[u8],
) -> Vec<u8> {
    let mut segment = vec![];
    segment.extend(source.port.to_be_bytes());
    segment.extend(destination.port.to_be_bytes());
    segment.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
    segment.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    seal(source.addr, destination.addr, 6, &mut segment, 16);
    ip(source.addr, destination.addr, 6, &segment)
}

/// Returns a SYN, with other flags if given, that offers windows of up to a gigabyte from then on
/// (RFC 7323 2).
pub fn tcp_syn_scaled(source: Endpoint, destination: Endpoint, flags: u8, numbers: [u32; 2]) -> Vec<u8> {
    tcp_with_options(source, destination, flags, numbers, &[3, 3, 14, 0])
}

/// A TCP packet without payload, with options that fill whole words, and the largest window.
pub fn tcp_with_options(
    source: Endpoint,
    destination: Endpoint,
    flags: u8,
    numbers: [u32; 2],
    options: &[u8],
) -> Vec<u8> {
    tcp_with_options_and_payload(source, destination, flags, numbers, options, &[])
}

/// The same with a payload.
pub fn tcp_with_options_and_payload(
    source: Endpoint,
    destination: Endpoint,
    flags: u8,
    numbers: [u32; 2],
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut segment = vec![];
    segment.extend(source.port.to_be_bytes());
    segment.extend(destination.port.to_be_bytes());
    segment.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
    segment.extend([0x50 + (options.len() / 4 * 16) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(payload);
    seal(source.addr, destination.addr, 6, &mut segment, 16);
    ip(source.addr, destination.addr, 6, &segment)
}

/// An echo request, or its reply, with this identifier.
pub fn echo(source: Addr, destination: Addr, id: u16, reply: bool, payload: &[u8]) -> Vec<u8> {
    let kind = match (source.is_v4(), reply) {
        (true, false) => 8,
        (true, true) => 0,
        (false, false) => 128,
        (false, true) => 129,
    };
    let [high, low] = id.to_be_bytes();
    icmp(source, destination, &[&[kind, 0, 0, 0, high, low, 0, 1], payload].concat())
}

/// Returns "port unreachable" from `router` about this packet, quoted to the length that routers
/// quote.
pub fn unreachable(router: Addr, quoted: &[u8]) -> Vec<u8> {
    let v4 = quoted[0] >> 4 == 4;
    let to = if v4 {
        Addr::from_v4_bytes([quoted[12], quoted[13], quoted[14], quoted[15]])
    } else {
        Addr::from_bytes(quoted[8..24].try_into().unwrap())
    };
    let head: [u8; 8] = if v4 { [3, 3, 0, 0, 0, 0, 0, 0] } else { [1, 4, 0, 0, 0, 0, 0, 0] };
    let quoted = &quoted[..quoted.len().min(if v4 { 28 } else { 1000 })];
    icmp(router, to, &[&head, quoted].concat())
}

fn icmp(source: Addr, destination: Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    if source.is_v4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        return ip(source, destination, 1, &message);
    }
    seal(source, destination, 58, &mut message, 2);
    ip(source, destination, 58, &message)
}

/// Cuts an IP packet into fragments with payloads of up to `size` bytes, a multiple of 8.
pub fn fragments(whole: &[u8], id: u16, size: usize) -> Vec<Vec<u8>> {
    let v4 = whole[0] >> 4 == 4;
    let address = |at: usize| match v4 {
        true => Addr::from_v4_bytes(whole[at..at + 4].try_into().unwrap()),
        false => Addr::from_bytes(whole[at..at + 16].try_into().unwrap()),
    };
    let pieces: Vec<&[u8]> = whole[if v4 { 20 } else { 40 }..].chunks(size).collect();
    let cut = |(i, piece): (usize, &&[u8])| {
        let (offset, more) = (i * size, i + 1 < pieces.len());
        if v4 {
            let field = u16::from(more) << 13 | (offset / 8) as u16;
            return ipv4(address(12), address(16), whole[9], field, id, piece);
        }
        let field = (offset as u16 | u16::from(more)).to_be_bytes();
        let header = [&[whole[6], 0], &field[..], &[0, 0], &id.to_be_bytes()].concat();
        ip(address(8), address(24), 44, &[&header, *piece].concat())
    };
    pieces.iter().enumerate().map(cut).collect()
}

/// Returns true if all checksums of an IP packet that is no fragment are right; by full
/// recomputation.
pub fn checksums_are_right(network: &[u8]) -> bool {
    if network[0] >> 4 == 4 {
        let header = &network[..usize::from(network[0] & 15) * 4];
        let total = usize::from(u16::from_be_bytes([network[2], network[3]]));
        let address = |at: usize| Addr::from_v4_bytes(network[at..at + 4].try_into().unwrap());
        let fragment = u16::from_be_bytes([network[6], network[7]]) & 0x3fff != 0;
        let rest = &network[header.len()..total];
        checksum(header) == 0 && (fragment || transport_is_right(address(12), address(16), network[9], rest))
    } else {
        let total = 40 + usize::from(u16::from_be_bytes([network[4], network[5]]));
        let address = |at: usize| Addr::from_bytes(network[at..at + 16].try_into().unwrap());
        transport_is_right(address(8), address(24), network[6], &network[40..total])
    }
}

fn transport_is_right(source: Addr, destination: Addr, protocol: u8, segment: &[u8]) -> bool {
    match protocol {
        17 if segment[6..8] == [0, 0] => true,
        6 | 17 | 58 => checksum(&with_pseudo_header(source, destination, protocol, segment)) == 0,
        1 => checksum(segment) == 0,
        _ => true,
    }
}

/// Sets the transport checksum at `at`.
fn seal(source: Addr, destination: Addr, protocol: u8, segment: &mut [u8], at: usize) {
    let mut sum = checksum(&with_pseudo_header(source, destination, protocol, segment));
    if protocol == 17 && sum == 0 {
        sum = 0xffff;
    }
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn with_pseudo_header(source: Addr, destination: Addr, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    if source.is_v4() {
        bytes.extend(source.v4_bytes());
        bytes.extend(destination.v4_bytes());
    } else {
        bytes.extend(source.as_bytes());
        bytes.extend(destination.as_bytes());
    }
    bytes.extend([0, 0]);
    bytes.extend((segment.len() as u16).to_be_bytes());
    bytes.extend([0, protocol]);
    [bytes, segment.to_vec()].concat()
}

/// RFC 1071, word by word.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
