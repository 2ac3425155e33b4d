//! A TCP segment, as the reassembler sees it.

use packet::checksum::{sum, verify};
use packet::parse::protocol;
use packet::{Direction, Packet, PacketClass};

use super::network;

/// A segment: fields of its header, and the captured part of its payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment<'a> {
    /// Its direction in its flow.
    pub direction: Direction,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgment number; without meaning unless the ACK flag is set.
    pub acknowledgment: u32,
    /// The flags, as in the header's 14th byte.
    pub flags: u8,
    /// The window that its sender offers, not scaled.
    pub window: u16,
    /// The urgent pointer; without meaning unless the URG flag is set.
    pub urgent: u16,
    /// Its options.
    pub options: SegmentOptions,
    /// True if hosts ignore it because of its IP header, or its TTL ends before the host.
    pub ignored: bool,
    /// Bytes of payload on the wire.
    pub len: u32,
    /// The captured payload: shorter than `len` if a capture cut the packet.
    pub payload: &'a [u8],
    /// True if its checksums are right; `None` if they were not checked, or cannot be.
    pub intact: Option<bool>,
    /// True if it was reassembled from fragments, so that its payload is not in the current packet.
    pub apart: bool,
}

/// The options of a segment that decide whether its receiver takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// The value of its timestamp (RFC 7323 3).
    pub timestamp: Option<u32>,
    /// The window scale, in bits; in a SYN (RFC 7323 2).
    pub scale: Option<u8>,
    /// True if it has an MD5 signature (RFC 2385).
    pub signed: bool,
    /// True if it has the Authentication Option (RFC 5925).
    pub authenticated: bool,
}

impl SegmentOptions {
    /// Reads options as Linux does: up to the first malformed one; the last of a kind counts.
    #[inline]
    pub fn read(options: &[u8]) -> SegmentOptions {
        match options {
            [] => SegmentOptions::default(),
            [1, 1, 8, 10, a, b, c, d, _, _, _, _] => SegmentOptions {
                timestamp: Some(u32::from_be_bytes([*a, *b, *c, *d])),
                ..SegmentOptions::default()
            },
            _ => SegmentOptions::read_any(options),
        }
    }

    fn read_any(mut options: &[u8]) -> SegmentOptions {
        let mut read = SegmentOptions::default();
        while let [kind, rest @ ..] = options {
            options = match kind {
                0 => break,
                1 => rest,
                _ => {
                    let Some(len @ 2..) = rest.first().map(|len| usize::from(*len)) else { break };
                    let Some((option, rest)) = options.split_at_checked(len) else { break };
                    match option {
                        [3, _, scale] => read.scale = Some((*scale).min(SCALE_MAX)),
                        [8, _, a, b, c, d, _, _, _, _] => {
                            read.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                        }
                        [19, 18, ..] => read.signed = true,
                        [29, ..] => read.authenticated = true,
                        _ => {}
                    }
                    rest
                }
            };
        }
        read
    }
}

/// Maximum window scale, in bits (RFC 7323 2.3).
const SCALE_MAX: u8 = 14;

impl<'a> Segment<'a> {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
    pub(super) const URG: u8 = 32;

    /// Returns the segment of a packet with a known flow; `None` if it is not a whole TCP packet,
    /// or its header was not captured.
    #[inline(always)]
    pub fn of(packet: &'a Packet) -> Option<Segment<'a>> {
        let meta = packet.meta();
        if meta.protocol != protocol::TCP || meta.class != PacketClass::Whole {
            return None;
        }
        let l4 = meta.l4 as usize;
        let len = packet.flow_end().checked_sub(l4)?;
        Segment::read(packet.data().get(l4..)?, len, meta.transit.direction)
    }

    /// Returns the segment at the beginning of these bytes; `len` is its length on the wire.
    #[inline(always)]
    pub(super) fn read(bytes: &'a [u8], len: usize, direction: Direction) -> Option<Segment<'a>> {
        let header: &[u8; 20] = bytes.first_chunk()?;
        let number =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        let len = len.checked_sub(header_len)?;
        let rest = bytes.get(header_len..).unwrap_or_default();
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Segment {
            direction,
            sequence: number(4),
            acknowledgment: number(8),
            flags: header[13],
            window: short(14),
            urgent: short(18),
            options: SegmentOptions::read(bytes.get(20..header_len).unwrap_or_default()),
            ignored: false,
            len: len as u32,
            payload: &rest[..len.min(rest.len())],
            intact: None,
            apart: false,
        })
    }

    /// Returns true if the checksums of a packet's IPv4 header and segment are right; `None` if it
    /// was not captured completely, or is too long for a network.
    pub(super) fn check(packet: &Packet) -> Option<bool> {
        let segment = packet.data().get(usize::from(packet.meta().l4)..packet.flow_end())?;
        if !Segment::has_right_header(packet) {
            return Some(false);
        }
        Segment::check_bytes(packet, segment)
    }

    /// Same for the segment alone, between the addresses of this packet. With a routing header (RFC
    /// 8200 4.4) its sender used another address in the checksum: such a segment counts as damaged.
    pub(super) fn check_bytes(packet: &Packet, segment: &[u8]) -> Option<bool> {
        let (meta, len) = (packet.meta(), segment.len() as u32);
        let l3 = usize::from(meta.l3);
        let (from, until) = if meta.version == 4 { (l3 + 12, l3 + 20) } else { (l3 + 8, l3 + 40) };
        if meta.version == 4 && len > u32::from(u16::MAX) {
            return None; // Longer than its header can state.
        }
        let addresses = sum(packet.data().get(from..until)?);
        let pseudo = addresses + u32::from(protocol::TCP) + (len >> 16) + (len & 0xffff);
        Some(verify(pseudo + sum(segment)))
    }

    /// Returns true if the IPv4 header's checksum of a packet, if it has one, is right.
    pub(super) fn has_right_header(packet: &Packet) -> bool {
        let (meta, data) = (packet.meta(), packet.data());
        let header = data.get(usize::from(meta.l3)..usize::from(meta.l4)).unwrap_or_default();
        meta.version != 4 || verify(sum(header))
    }

    /// Returns true if hosts ignore a packet because of its IP header, or its TTL is below
    /// `ttl_min`.
    #[inline]
    pub(super) fn is_ignored(packet: &Packet, ttl_min: u8) -> bool {
        let (meta, data) = (packet.meta(), packet.data());
        let (l3, l4) = (usize::from(meta.l3), usize::from(meta.l4));
        let (ttl_at, plain) = if meta.version == 4 { (8, 20) } else { (7, 40) };
        let ttl = data.get(l3 + ttl_at).copied().unwrap_or(u8::MAX);
        ttl < ttl_min || l4 > l3 + plain && network::is_ignored(&data[l3..l4.min(data.len())])
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the sequence number of its first byte of payload: a SYN counts as one.
    pub(super) fn first(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.has(Segment::SYN)))
    }

    /// Returns the acknowledged sequence number, if the ACK flag is set.
    pub(super) fn acknowledged(&self) -> Option<u32> {
        self.has(Segment::ACK).then_some(self.acknowledgment)
    }
}
