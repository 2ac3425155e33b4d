//! Checksums computed from their definitions, by a frame reader that shares nothing with the tested
//! one.

use std::net::IpAddr;

use packet::LinkType;

/// The state of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    Right,
    Wrong,
    /// Absent, or not verifiable: a UDP checksum of zero, a fragment, a truncated packet.
    Unknown,
}

/// Returns each checksum of a frame with its name, from the outermost header to the innermost: IP
/// headers, transport, the content of tunnels (IP in IP, GUE), the IPv4 header in an ICMP error.
pub fn all(link: LinkType, data: &[u8]) -> Vec<(&'static str, Sum)> {
    let mut found = Vec::new();
    if let Some(at) = network(link, data) {
        ip(&data[at..], &mut found, 0);
    }
    found
}

/// Returns source and destination of a frame's first IP header.
pub fn ends(link: LinkType, data: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = &data[network(link, data)?..];
    let v4 = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
    let v6 = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
    match ip.first()? >> 4 {
        4 if ip.len() >= 20 => Some((v4(12), v4(16))),
        6 if ip.len() >= 40 => Some((v6(8), v6(24))),
        _ => None,
    }
}

/// Returns whether right checksums have stayed right, and none has become wrong.
pub fn kept(before: &[(&str, Sum)], after: &[(&str, Sum)]) -> bool {
    // Headers added by a tunnel or a reply have no counterpart.
    let (own, added) = match after.len().checked_sub(before.len()) {
        Some(added) if names(&after[added..]).eq(names(before)) => (&after[added..], &after[..added]),
        _ => {
            let all_right = before.iter().all(|(_, sum)| *sum != Sum::Wrong);
            return !all_right || after.iter().all(|(_, sum)| *sum != Sum::Wrong);
        }
    };
    let fits = |(before, after): (&(&str, Sum), &(&str, Sum))| match before.1 {
        Sum::Right => after.1 == Sum::Right,
        Sum::Unknown => after.1 != Sum::Wrong,
        Sum::Wrong => true,
    };
    before.iter().zip(own).all(fits) && added.iter().all(|(_, sum)| *sum != Sum::Wrong)
}

fn names<'a>(sums: &'a [(&'a str, Sum)]) -> impl Iterator<Item = &'a str> {
    sums.iter().map(|(name, _)| *name)
}

/// Returns the offset of the first IP header, if there is one.
pub fn network(link: LinkType, data: &[u8]) -> Option<usize> {
    let at = match link {
        LinkType::Ethernet => ether_type(data, 12)?,
        LinkType::RawIp => 0,
        LinkType::Null | LinkType::Loop => 4,
        LinkType::LinuxSll => ether_type(data, 14)?,
        LinkType::LinuxSll2 if matches!(word(data, 0)?, 0x0800 | 0x86dd) => 20,
        LinkType::Ppp => {
            let at = if word(data, 0)? == 0xff03 { 2 } else { 0 };
            if matches!(word(data, at)?, 0x21 | 0x57) { at + 2 } else { return None }
        }
        LinkType::Other(RADIOTAP) => wireless(data)?,
        LinkType::LinuxSll2 | LinkType::Other(_) => return None,
    };
    matches!(data.get(at)? >> 4, 4 | 6).then_some(at)
}

/// IEEE 802.11 after a radiotap header.
const RADIOTAP: u16 = 127;

/// Returns the offset after radiotap, data frame, LLC and SNAP headers.
fn wireless(data: &[u8]) -> Option<usize> {
    let frame = usize::from(u16::from_le_bytes([*data.get(2)?, *data.get(3)?]));
    let (&kind, &flags) = (data.get(frame)?, data.get(frame + 1)?);
    if kind & 0x0c != 0x08 || kind & 0x40 != 0 || flags & 0x40 != 0 {
        return None; // Not a data frame, without data, or encrypted.
    }
    let four_addresses = if flags & 3 == 3 { 6 } else { 0 };
    let quality = if kind & 0x80 != 0 { 2 } else { 0 };
    let llc = frame + 24 + four_addresses + quality;
    matches!(data.get(llc..llc + 3)?, [0xaa, 0xaa, 3]).then(|| ether_type(data, llc + 6))?
}

/// Returns the offset after an EtherType at `at` and its VLAN tags, PPPoE or MPLS headers.
fn ether_type(data: &[u8], at: usize) -> Option<usize> {
    match word(data, at)? {
        0x0800 | 0x86dd => Some(at + 2),
        0x8100 | 0x88a8 | 0x9100 => ether_type(data, at + 4),
        0x8864 if matches!(word(data, at + 8)?, 0x21 | 0x57) => Some(at + 10),
        0x8847 | 0x8848 => {
            let mut label = at + 2;
            while data.get(label + 2)? & 1 == 0 {
                label += 4;
            }
            Some(label + 4)
        }
        _ => None,
    }
}

fn ip(packet: &[u8], found: &mut Vec<(&'static str, Sum)>, depth: usize) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4(packet, found, depth),
        Some(6) => ipv6(packet, found, depth),
        _ => {}
    }
}

fn ipv4(packet: &[u8], found: &mut Vec<(&'static str, Sum)>, depth: usize) {
    let header = usize::from(packet[0] & 15) * 4;
    if header < 20 || packet.len() < header {
        return;
    }
    found.push(("IPv4", right(total(0, &packet[..header]))));
    let (Some(length), Some(fragment)) = (word(packet, 2), word(packet, 6)) else { return };
    if fragment & 0x1fff != 0 {
        return;
    }
    let whole =
        (usize::from(length) <= packet.len() && usize::from(length) >= header && fragment & 0x2000 == 0)
            .then_some(usize::from(length));
    let pseudo = total(0, &packet[12..20]);
    transport(packet[9], &packet[header..whole.unwrap_or(packet.len())], whole.map(|_| pseudo), found, depth);
}

fn ipv6(packet: &[u8], found: &mut Vec<(&'static str, Sum)>, depth: usize) {
    let (Some(length), true) = (word(packet, 4), packet.len() >= 40) else { return };
    let end = 40 + usize::from(length);
    let (mut next, mut at, mut whole) = (packet[6], 40, end <= packet.len());
    let mut destination = &packet[24..40];
    loop {
        match next {
            // Hop-by-hop and destination options. A routing header names the final destination,
            // which checksums cover.
            0 | 60 | 43 => {
                let Some(&[following, len]) = packet.get(at..at + 2).and_then(|b| b.first_chunk()) else {
                    return;
                };
                let size = 8 + 8 * usize::from(len);
                if next == 43 && packet.get(at + 3).is_some_and(|&left| left > 0) {
                    match packet.get(at + size - 16..at + size) {
                        Some(last) if size >= 24 => destination = last,
                        _ => return,
                    }
                }
                (next, at) = (following, at + size);
            }
            44 => {
                let (Some(&following), Some(field)) = (packet.get(at), word(packet, at + 2)) else { return };
                if field & 0xfff8 != 0 {
                    return;
                }
                whole &= field & 1 == 0;
                (next, at) = (following, at + 8);
            }
            _ => break,
        }
    }
    if at > packet.len() || whole && at > end {
        return;
    }
    let pseudo = total(total(0, &packet[8..24]), destination);
    transport(
        next,
        &packet[at..if whole { end } else { packet.len() }],
        whole.then_some(pseudo),
        found,
        depth,
    );
}

/// Adds the checksums of a transport's packet. `pseudo` is the sum of the addresses, if all that
/// the checksum covers is present.
fn transport(
    protocol: u8,
    body: &[u8],
    pseudo: Option<u32>,
    found: &mut Vec<(&'static str, Sum)>,
    depth: usize,
) {
    let covered = |length: usize| {
        let (pseudo, body) = (pseudo?, body.get(..length)?);
        Some(right(total(pseudo + u32::from(protocol) + length as u32, body)))
    };
    match protocol {
        6 if body.len() >= 20 => found.push(("TCP", covered(body.len()).unwrap_or(Sum::Unknown))),
        17 if body.len() >= 8 => {
            let stated = (word(body, 6) != Some(0)).then(|| covered(usize::from(word(body, 4)?))).flatten();
            found.push(("UDP", stated.unwrap_or(Sum::Unknown)));
            if word(body, 2) == Some(6080) && depth < 2 && body.len() > 12 {
                ip(&body[12..], found, depth + 1);
            }
        }
        1 if body.len() >= 8 => {
            let sum = pseudo.map_or(Sum::Unknown, |_| right(total(0, body)));
            found.push(("ICMP", sum));
            if matches!(body[0], 3 | 4 | 5 | 11 | 12) && body.len() >= 28 && body[8] == 0x45 {
                found.push(("quoted IPv4", right(total(0, &body[8..28]))));
            }
        }
        58 if body.len() >= 8 => found.push(("ICMPv6", covered(body.len()).unwrap_or(Sum::Unknown))),
        4 | 41 if depth < 2 => ip(body, found, depth + 1),
        _ => {}
    }
}

/// Sums the 16-bit words of `bytes`.
fn total(start: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    words.fold(start, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16))
}

/// Judges a sum by RFC 1071: including the checksum, the covered words sum to all ones.
fn right(total: u32) -> Sum {
    let folded = (total & 0xffff) + (total >> 16);
    if (folded & 0xffff) + (folded >> 16) == 0xffff { Sum::Right } else { Sum::Wrong }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
