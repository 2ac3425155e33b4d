//! TCP segments in IP packets and fragments, parsed strictly (RFC 791, RFC 8200, RFC 9293).

use std::collections::{BTreeMap, HashMap};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The protocol number of TCP (RFC 9293).
const TCP: u8 = 6;
/// The header number of IPv6 fragments.
const FRAGMENT: u8 = 44;
/// Maximum datagrams being reassembled, and their timeout.
const DATAGRAMS_MAX: usize = 1024;
const DATAGRAM_NS: u64 = 30_000_000_000;

/// A segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub window: u16,
    /// Its options: a timestamp, a window scale, and a signature.
    pub timestamp: Option<u32>,
    pub scale: Option<u8>,
    pub signed: bool,
    /// Bytes of payload sent, possibly more than are available.
    pub len: u32,
    pub payload: Vec<u8>,
    /// True if its checksums are valid; `None` if the packet is incomplete.
    pub intact: Option<bool>,
}

/// The payload of an IP packet.
pub struct Carried<'a> {
    /// Both addresses.
    pub ends: &'a [u8],
    /// True if the checksum of the IP header, if any, is valid.
    pub has_right_header: bool,
    /// The part of its datagram, for a fragment.
    pub part: Option<Part>,
    /// The number of its first header.
    next: u8,
    /// The available bytes, and the original length.
    bytes: &'a [u8],
    len: usize,
}

/// The part of a datagram in a fragment.
pub struct Part {
    identification: u32,
    offset: usize,
    more: bool,
}

/// Incomplete datagrams by endpoints and identification.
#[derive(Default)]
pub struct Datagrams(HashMap<(Vec<u8>, u32), Datagram>);

/// An incomplete datagram.
#[derive(Default)]
struct Datagram {
    since_ns: u64,
    bytes: BTreeMap<usize, u8>,
    len: Option<usize>,
    /// The number of its first header.
    next: u8,
}

impl Segment {
    /// Parses the segment in a packet; `None` without a complete header.
    pub fn read(carried: &Carried<'_>) -> Option<Segment> {
        let at = tcp_at(carried.next, carried.bytes)?;
        let (tcp, len) = (&carried.bytes[at..], carried.len.checked_sub(at)?);
        let number = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let header = usize::from(tcp.get(..20)?[12] >> 4) * 4;
        let (mut timestamp, mut scale, mut signed) = (None, None, false);
        let mut options = tcp.get(20..header).unwrap_or_default();
        while let Some(&kind) = options.first().filter(|kind| **kind != 0) {
            let len = if kind == 1 { 1 } else { options.get(1).map_or(0, |len| usize::from(*len)) };
            let Some(option) = options.get(..len).filter(|_| len > usize::from(kind != 1)) else { break };
            match (kind, len) {
                (3, 3) => scale = Some(option[2].min(14)),
                (8, 10) => timestamp = Some(u32::from_be_bytes(*option[2..].first_chunk()?)),
                (19, 18) => signed = true,
                _ => {}
            }
            options = &options[len..];
        }
        Some(Segment {
            window: u16::from_be_bytes(*tcp[14..].first_chunk()?),
            timestamp,
            scale,
            signed,
            sequence: number(4)?,
            acknowledged: number(8)?,
            flags: tcp[13],
            len: u32::try_from(len.checked_sub(header)?).ok()?,
            payload: tcp.get(header..).unwrap_or_default().to_vec(),
            intact: carried.is_intact(tcp, len),
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the sequence number of the first byte: a SYN counts as one.
    pub fn first(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.has(SYN)))
    }
}

impl<'a> Carried<'a> {
    /// Parses a packet from its IP header on.
    pub fn read(packet: &'a [u8]) -> Option<Carried<'a>> {
        match packet.first()? >> 4 {
            4 => Carried::by_v4(packet),
            _ => Carried::by_v6(packet),
        }
    }

    fn by_v4(packet: &'a [u8]) -> Option<Carried<'a>> {
        let number = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let (until, identification, place) = (usize::from(number(2)?), number(4)?, number(6)?);
        let header = usize::from(packet[0] & 15) * 4;
        let part = Part {
            identification: identification.into(),
            offset: usize::from(place & 0x1fff) * 8,
            more: place & 0x2000 != 0,
        };
        // A length of 0 is a packet for segmentation by the sender's hardware.
        let until = if until == 0 { packet.len() } else { until };
        Some(Carried {
            ends: packet.get(12..20)?,
            has_right_header: folded(sum(packet.get(..header)?)) == 0xffff,
            part: (part.more || part.offset > 0).then_some(part),
            next: packet[9],
            bytes: packet.get(header..until.min(packet.len()))?,
            len: until.checked_sub(header)?,
        })
    }

    fn by_v6(packet: &'a [u8]) -> Option<Carried<'a>> {
        let until = 40 + usize::from(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?));
        let until = if until == 40 { packet.len() } else { until };
        let (mut next, mut at, mut part) = (*packet.get(6)?, 40, None);
        while next != TCP && part.is_none() {
            let header = packet.get(at..at + 8)?;
            at += header_len(next, header)?;
            if next == FRAGMENT {
                let place = u16::from_be_bytes(*header[2..].first_chunk()?);
                let (offset, more) = (usize::from(place & 0xfff8), place & 1 != 0);
                let identification = u32::from_be_bytes(*header[4..].first_chunk()?);
                // The only fragment of a packet is not a fragment (RFC 6946).
                part = (more || offset > 0).then_some(Part { identification, offset, more });
            }
            next = header[0];
        }
        let bytes = packet.get(at..until.min(packet.len()))?;
        Some(Carried {
            ends: packet.get(8..40)?,
            has_right_header: true,
            part,
            next,
            bytes,
            len: until.checked_sub(at)?,
        })
    }

    fn is_intact(&self, tcp: &[u8], len: usize) -> Option<bool> {
        // No network carries a longer one.
        if tcp.len() < len || self.ends.len() == 8 && len > 0xffff {
            return None;
        }
        let pseudo = sum(self.ends) + u64::from(TCP) + len as u64;
        Some(self.has_right_header && folded(pseudo + sum(tcp)) == 0xffff)
    }
}

impl Datagrams {
    /// Returns the segment of the datagram that this fragment completes.
    pub fn add(&mut self, carried: &Carried<'_>, now_ns: u64) -> Option<Segment> {
        let part = carried.part.as_ref()?;
        if carried.bytes.len() < carried.len {
            return None;
        }
        self.0.retain(|_, datagram| now_ns < datagram.since_ns + DATAGRAM_NS);
        let key = (carried.ends.to_vec(), part.identification);
        if self.0.len() == DATAGRAMS_MAX && !self.0.contains_key(&key) {
            return None; // It does not pass.
        }
        let fresh = || Datagram { since_ns: now_ns, ..Datagram::default() };
        let datagram = self.0.entry(key.clone()).or_insert_with(fresh);
        if !datagram.take(part, carried) {
            self.0.remove(&key);
            return None;
        }
        let len = datagram.len.filter(|len| datagram.bytes.len() == *len)?;
        let datagram = self.0.remove(&key)?;
        let whole: Vec<u8> = datagram.bytes.into_values().collect();
        Segment::read(&Carried { part: None, next: datagram.next, bytes: &whole, len, ..*carried })
    }
}

impl Datagram {
    /// Adds a part; false if it contradicts others.
    fn take(&mut self, part: &Part, carried: &Carried<'_>) -> bool {
        // All but the last part are multiples of 8.
        let len = if part.more { carried.len / 8 * 8 } else { carried.len };
        let end = part.offset + len;
        let behind = self.bytes.keys().next_back().map_or(0, |last| last + 1);
        let is_odd = match self.len {
            Some(len) => end > len || !part.more && end != len,
            None => !part.more && end < behind,
        };
        let known = self.bytes.range(part.offset..end).count();
        if len == 0 || end > 0xffff || is_odd || known > 0 && known < len {
            return false;
        }
        for (place, byte) in (part.offset..).zip(&carried.bytes[..len]) {
            self.bytes.entry(place).or_insert(*byte);
        }
        if !part.more {
            self.len = Some(end);
        }
        if part.offset == 0 {
            self.next = carried.next;
        }
        true
    }
}

/// Returns the offset of TCP after IPv6 headers.
fn tcp_at(mut next: u8, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while next != TCP {
        let header = bytes.get(at..at + 8)?;
        at += header_len(next, header)?;
        next = header[0];
    }
    Some(at)
}

fn header_len(next: u8, header: &[u8]) -> Option<usize> {
    match next {
        0 | 43 | 60 | 135 => Some(8 + 8 * usize::from(header[1])),
        51 => Some(8 + 4 * usize::from(header[1])),
        FRAGMENT => Some(8),
        _ => None,
    }
}

/// Returns the sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u64::from(*byte));
    bytes.chunks(2).map(word).sum()
}

fn folded(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}
