//! Packets of a client that obeys no rules: TCP over IPv4 and IPv6, with arbitrary fields.

use std::net::Ipv6Addr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;

/// Addresses of the client and of the server, on both sides of the router.
pub const CLIENT4: [u8; 4] = [10, 9, 0, 1];
pub const SERVER4: [u8; 4] = [10, 9, 1, 2];
pub const CLIENT6: &str = "fd09::1";
pub const SERVER6: &str = "fd09:1::2";
/// Ethernet addresses of the client and of the router.
pub const CLIENT_MAC: [u8; 6] = [2, 9, 0, 0, 0, 1];
pub const ROUTER_MAC: [u8; 6] = [2, 9, 0, 0, 0, 2];

/// The IP version of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

/// The content of a checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Right,
    Wrong,
    Zero,
}

/// The IP header of a packet.
#[derive(Clone, Debug)]
pub struct Ip {
    pub ttl: u8,
    pub tos: u8,
    /// IPv4 options, padded with zeros.
    pub options: Vec<u8>,
    /// IPv6 extension headers: type, and content after the first two bytes (padded).
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub checksum: Checksum,
    /// The reserved bit of IPv4.
    pub reserved: bool,
    /// Added to the length field.
    pub len_off: i32,
    /// Bytes after the packet's end.
    pub trailer: Vec<u8>,
    /// The version field.
    pub version: Option<u8>,
    pub mac: [u8; 6],
    /// Fragment: identification, offset in bytes, more fragments. An IPv6 packet with one is a
    /// fragment even if complete.
    pub fragment: Option<(u32, u16, bool)>,
    /// The protocol field, if it is not TCP.
    pub protocol: Option<u8>,
}

impl Default for Ip {
    fn default() -> Ip {
        Ip {
            ttl: 64,
            tos: 0,
            options: Vec::new(),
            extensions: Vec::new(),
            checksum: Checksum::Right,
            reserved: false,
            len_off: 0,
            trailer: Vec::new(),
            version: None,
            mac: ROUTER_MAC,
            fragment: None,
            protocol: None,
        }
    }
}

/// A segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub ports: (u16, u16),
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub urgent: u16,
    pub payload: Vec<u8>,
    pub checksum: Checksum,
    /// The data offset field, in words.
    pub data_offset: Option<u8>,
    pub ip: Ip,
}

/// Computes the Internet checksum.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn put_checksum(bytes: &mut [u8], at: usize, right: u16, how: Checksum) {
    let value = match how {
        Checksum::Right => right,
        Checksum::Wrong => right ^ 0x5555,
        Checksum::Zero => 0,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub fn v6(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().unwrap().octets()
}

impl Segment {
    /// Returns the TCP header and payload.
    pub fn transport(&self, family: Family) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let words = self.data_offset.unwrap_or((20 + options.len()) as u8 / 4);
        let mut bytes = Vec::new();
        bytes.extend(self.ports.0.to_be_bytes());
        bytes.extend(self.ports.1.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgment.to_be_bytes());
        bytes.extend([words << 4, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent.to_be_bytes());
        bytes.extend(&options);
        bytes.extend(&self.payload);
        let len = bytes.len() as u32;
        let right = match family {
            Family::V4 => checksum(&[&CLIENT4, &SERVER4, &[0, 6], &(len as u16).to_be_bytes(), &bytes]),
            Family::V6 => checksum(&[&v6(CLIENT6), &v6(SERVER6), &len.to_be_bytes(), &[0, 0, 0, 6], &bytes]),
        };
        put_checksum(&mut bytes, 16, right, self.checksum);
        bytes
    }

    /// Returns the frame.
    pub fn frame(&self, family: Family) -> Vec<u8> {
        frame(family, &self.ip, &self.transport(family))
    }
}

/// Returns a frame with this IP header and payload.
pub fn frame(family: Family, ip: &Ip, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(ip.mac);
    frame.extend(CLIENT_MAC);
    match family {
        Family::V4 => {
            frame.extend([8, 0]);
            frame.extend(v4_header(ip, body.len()));
        }
        Family::V6 => {
            frame.extend([0x86, 0xdd]);
            frame.extend(v6_header(ip, body.len()));
        }
    }
    frame.extend(body);
    frame.extend(&ip.trailer);
    frame
}

fn v4_header(ip: &Ip, body_len: usize) -> Vec<u8> {
    let mut options = ip.options.clone();
    options.resize(options.len().next_multiple_of(4), 0);
    let header_len = 20 + options.len();
    let total = (header_len + body_len) as i32 + ip.len_off;
    let (id, offset, more) = ip.fragment.unwrap_or((0, 0, false));
    let bits = (offset / 8) | (u16::from(more) << 13) | (u16::from(ip.reserved) << 15);
    let mut header = vec![ip.version.unwrap_or(4) << 4 | (header_len / 4) as u8, ip.tos];
    header.extend((total as u16).to_be_bytes());
    header.extend((id as u16).to_be_bytes());
    header.extend(bits.to_be_bytes());
    header.extend([ip.ttl, ip.protocol.unwrap_or(6), 0, 0]);
    header.extend(CLIENT4);
    header.extend(SERVER4);
    header.extend(options);
    let right = checksum(&[&header]);
    put_checksum(&mut header, 10, right, ip.checksum);
    header
}

fn v6_header(ip: &Ip, body_len: usize) -> Vec<u8> {
    // Headers from the last to the first, each naming the next.
    let mut next = ip.protocol.unwrap_or(6);
    let mut rest = Vec::new();
    if let Some((id, offset, more)) = ip.fragment {
        let mut header = vec![next, 0];
        header.extend((offset & !7 | u16::from(more)).to_be_bytes());
        header.extend(id.to_be_bytes());
        next = 44;
        rest = header;
    }
    for (kind, content) in ip.extensions.iter().rev() {
        let len = (content.len() + 2).next_multiple_of(8);
        let mut header = vec![next, (len / 8 - 1) as u8];
        header.extend(content);
        header.resize(len, 0);
        next = *kind;
        header.extend(rest);
        rest = header;
    }
    let mut header = vec![ip.version.unwrap_or(6) << 4 | ip.tos >> 4, ip.tos << 4, 0, 0];
    header.extend((((rest.len() + body_len) as i32 + ip.len_off) as u16).to_be_bytes());
    header.extend([next, ip.ttl]);
    header.extend(v6(CLIENT6));
    header.extend(v6(SERVER6));
    header.extend(rest);
    header
}

/// A segment from the server.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub ports: (u16, u16),
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    /// Its timestamp.
    pub timestamp: Option<u32>,
    pub family: Family,
}

/// Parses a frame from the server; `None` if it is not TCP.
pub fn read(frame: &[u8]) -> Option<Answer> {
    let kind = frame.get(12..14)?;
    let (family, at, end) = match kind {
        [8, 0] if frame.get(23) == Some(&6) => {
            let len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            (Family::V4, 14 + usize::from(frame[14] & 15) * 4, 14 + len)
        }
        [0x86, 0xdd] if frame.get(20) == Some(&6) => {
            (Family::V6, 54, 54 + usize::from(u16::from_be_bytes([frame[18], frame[19]])))
        }
        _ => return None,
    };
    let tcp = frame.get(at..end)?;
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_be_bytes(tcp[at..at + 2].try_into().unwrap());
    let header_len = usize::from(*tcp.get(12)? >> 4) * 4;
    let mut options = tcp.get(20..header_len)?;
    let mut timestamp = None;
    while let [kind, rest @ ..] = options {
        options = match kind {
            0 => break,
            1 => rest,
            _ => {
                let len = usize::from(*rest.first()?);
                if *kind == 8 {
                    timestamp = Some(u32::from_be_bytes(options.get(2..6)?.try_into().ok()?));
                }
                options.get(len..)?
            }
        };
    }
    Some(Answer {
        ports: (half(0), half(2)),
        sequence: word(4),
        acknowledgment: word(8),
        flags: tcp[13],
        window: half(14),
        timestamp,
        family,
    })
}
