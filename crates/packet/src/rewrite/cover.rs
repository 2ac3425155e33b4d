//! Matching of outer headers and tags: packets treated alike must arrive with the same (B11, B14).

use super::congestion::{class_after_decap, set_traffic_class, traffic_class};
use super::{RewriteError, tags, word};
use crate::parse::{self, Tunnel, protocol};
use crate::{Packet, PacketClass};

/// Limit on the bytes of tags, or of outer headers, that can be matched. Outer headers are longer
/// only with more than 22 bytes of options, tags never.
pub const OUTER_MATCH_LEN_MAX: usize = 96;

const WORD_LEN: usize = size_of::<u128>();

/// A pattern of the bytes in front of a packet's headers, except for per-packet fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterMatch {
    len: u8,
    /// The common bits; zeros for per-packet fields.
    bytes: [u128; OUTER_MATCH_LEN_MAX / WORD_LEN],
    /// Mask of the common bits.
    mask: [u128; OUTER_MATCH_LEN_MAX / WORD_LEN],
}

/// The patterns of the tags and outer headers that packets have in common; none if irrelevant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OuterMatches {
    /// From the first type after the Ethernet addresses to the outermost IP header, matched
    /// exactly.
    pub tags: Option<OuterMatch>,
    /// From the outermost IP header to the flow's.
    pub outer: Option<OuterMatch>,
}

impl OuterMatches {
    /// Returns a packet's patterns that can be matched.
    pub fn of(packet: &Packet) -> OuterMatches {
        OuterMatches { tags: OuterMatch::tags_of(packet), outer: OuterMatch::outer_of(packet) }
    }

    /// Returns the length of the outer headers.
    #[inline]
    pub fn outer_len(&self) -> usize {
        self.outer.as_ref().map_or(0, OuterMatch::len)
    }

    /// Checks if a packet has the same tags and outer headers, so that all of them can be removed.
    #[inline]
    pub fn are_of(&self, packet: &Packet) -> bool {
        self.tags.as_ref().is_none_or(|tags| tags.are_tags_of(packet))
            && self.outer.as_ref().is_none_or(|outer| outer.is_outer_of(packet))
    }
}

impl OuterMatch {
    /// Returns the pattern of a packet's tags, possibly empty. `None` if its link layer has no
    /// place for tags, or contains the packet's length.
    pub fn tags_of(packet: &Packet) -> Option<OuterMatch> {
        tags::are_all(packet).then(|| OuterMatch::new(packet.data().get(tags::range(packet))?, |_| 0xff))?
    }

    /// Returns the pattern of the outer headers of a packet in one tunnel. `None` if it is in none
    /// or several, or if the headers have options or contain the packet's length.
    ///
    /// Per-packet fields are, in IP headers: lengths, class, identification, DF bit, flow label,
    /// time to live and checksum. In UDP headers: source port, length and checksum. And GRE's
    /// sequence number.
    #[inline]
    pub fn outer_of(packet: &Packet) -> Option<OuterMatch> {
        let meta = packet.meta();
        let is_in_one = meta.outer_l3 < meta.l3 && meta.class == PacketClass::Whole;
        if is_in_one { OuterMatch::of_headers(packet, meta.outer_l3.into(), meta.l3.into()) } else { None }
    }

    /// Returns the pattern of outer headers at this position.
    #[inline(never)]
    fn of_headers(packet: &Packet, start: usize, end: usize) -> Option<OuterMatch> {
        let header = packet.data().get(start..end)?;
        let Tunnel { protocol, at, l3 } = parse::outermost(packet)?;
        let (ip_len, is_v4) = if header[0] >> 4 == 4 { (20, true) } else { (40, false) };
        if l3 != end || at != start + ip_len {
            return None;
        }
        let gre_at = match (protocol, word(header, ip_len + 2)) {
            (protocol::IPV4 | protocol::IPV6, _) => None,
            (protocol::GRE, _) => Some(ip_len),
            (protocol::UDP, parse::GRE_IN_UDP) => Some(ip_len + UDP_LEN),
            (protocol::UDP, parse::VXLAN | parse::GENEVE | parse::GUE) => None,
            _ => return None,
        };
        let number_at = gre_at.and_then(|at| gre_number_at(header, at));
        OuterMatch::new(header, |at| match at {
            at if at < ip_len && is_v4 => V4_MASK[at],
            at if at < ip_len => V6_MASK[at],
            at if protocol == protocol::UDP && at < ip_len + UDP_LEN => UDP_MASK[at - ip_len],
            at if number_at.is_some_and(|number| (number..number + 4).contains(&at)) => 0,
            _ => 0xff,
        })
    }

    /// Returns `None` if there are too many bytes.
    fn new(bytes: &[u8], mask_at: impl Fn(usize) -> u8) -> Option<OuterMatch> {
        let (mut masked, mut mask) = ([0; OUTER_MATCH_LEN_MAX], [0; OUTER_MATCH_LEN_MAX]);
        for (at, (masked, byte)) in masked.get_mut(..bytes.len())?.iter_mut().zip(bytes).enumerate() {
            mask[at] = mask_at(at);
            *masked = byte & mask[at];
        }
        let words = |bytes: &[u8; OUTER_MATCH_LEN_MAX]| {
            std::array::from_fn(|i| {
                u128::from_ne_bytes(std::array::from_fn(|byte| bytes[i * WORD_LEN + byte]))
            })
        };
        Some(OuterMatch { len: bytes.len() as u8, bytes: words(&masked), mask: words(&mask) })
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty pattern is a pattern")]
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns the bytes, with zeros for per-packet fields.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.bytes.iter().flat_map(|word| word.to_ne_bytes()).take(self.len())
    }

    /// Returns the pattern in words, unique among patterns of packets.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        let used = self.bytes.iter().take(self.len().div_ceil(WORD_LEN));
        let words = used.flat_map(|word| [0, 32, 64, 96].map(|shift| (word >> shift) as u32));
        std::iter::once(self.len.into()).chain(words)
    }

    fn are_tags_of(&self, packet: &Packet) -> bool {
        let range = tags::range(packet);
        packet.meta().link == crate::LinkType::Ethernet
            && range.len() == self.len()
            && self.is_at(packet.data(), range.start)
    }

    /// Checks if the outer headers are in front of the packet's and can be removed: the outer
    /// length matches the packet, and the packet can carry the congestion mark.
    #[inline]
    fn is_outer_of(&self, packet: &Packet) -> bool {
        let (data, meta) = (packet.data(), packet.meta());
        let (outer, inner) = (usize::from(meta.outer_l3), usize::from(meta.l3));
        if inner != outer + self.len() || !self.is_at(data, outer) || data.len() > usize::from(u16::MAX) {
            return false;
        }
        let said = |at: usize| data.get(at..).map_or((0, 0), said);
        let ((outer_len, outer), (inner_len, inner)) = (said(outer), said(inner));
        inner_len != 0 && outer_len == inner_len + self.len() && class_after_decap(inner, outer).is_some()
    }

    /// Checks for the pattern at this offset. An IP header always follows, so the packet is longer.
    #[inline]
    fn is_at(&self, data: &[u8], at: usize) -> bool {
        let there = data.get(at..at + self.len().next_multiple_of(WORD_LEN)).unwrap_or_default();
        let (there, rest) = there.as_chunks::<WORD_LEN>();
        let alike = self.bytes.iter().zip(&self.mask).zip(there);
        let differ = alike
            .fold(0, |differ, ((bytes, mask), there)| differ | (u128::from_ne_bytes(*there) & mask) ^ bytes);
        differ == 0 && rest.is_empty() && !there.is_empty()
    }
}

const UDP_LEN: usize = 8;

/// Bits of an IPv4 header without options that are common: all but class, length, identification,
/// DF, time to live and checksum.
const V4_MASK: [u8; 20] =
    [0xff, 0, 0, 0, 0, 0, 0xbf, 0xff, 0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// Same for an IPv6 header: version, next header, addresses.
const V6_MASK: [u8; 40] = {
    let mut mask = [0xff; 40];
    (mask[0], mask[1], mask[2], mask[3]) = (0xf0, 0, 0, 0);
    (mask[4], mask[5], mask[7]) = (0, 0, 0);
    mask
};

/// Same for a UDP header: the destination port.
const UDP_MASK: [u8; UDP_LEN] = [0, 0, 0xff, 0xff, 0, 0, 0, 0];

/// Returns the offset of the sequence number of the GRE header at `at`, if it has one (RFC 2890 2).
fn gre_number_at(headers: &[u8], at: usize) -> Option<usize> {
    let flags = word(headers, at);
    let key_len = if flags & 0x2000 != 0 { 4 } else { 0 };
    (flags & 0x1000 != 0).then_some(at + 4 + key_len)
}

/// Returns the packet length in an IP header, 0 if it gives none, and its class.
#[inline(always)]
fn said(header: &[u8]) -> (usize, u8) {
    match *header {
        [first, class, a, b, ..] if first >> 4 == 4 => (usize::from(u16::from_be_bytes([a, b])), class),
        [first, second, _, _, a, b, ..] => {
            let len = usize::from(u16::from_be_bytes([a, b]));
            (if len == 0 { 0 } else { 40 + len }, first << 4 | second >> 4)
        }
        _ => (0, 0),
    }
}

impl Packet {
    /// Decapsulates: removes the outermost `len` bytes of network headers, the reverse of
    /// [`Packet::encap`]. The inner header takes over the outer congestion mark (RFC 6040 4.2).
    /// Returns its IP version.
    ///
    /// # Errors
    /// [`RewriteError`]: `Congestion` if the inner header cannot carry the mark; `NoHeader` if there is no
    /// inner header. Nothing is changed then.
    pub fn decap(&mut self, len: usize) -> Result<u8, RewriteError> {
        let at = usize::from(self.meta().outer_l3);
        let outer = self.data().get(at..).unwrap_or_default();
        let inner = outer.get(len..).unwrap_or_default();
        let version = inner.first().map_or(0, |first| first >> 4);
        if !matches!(version, 4 | 6) {
            return Err(RewriteError::NoHeader);
        }
        let own = traffic_class(inner);
        let class = class_after_decap(own, traffic_class(outer)).ok_or(RewriteError::Congestion)?;
        self.strip_outer(len, version)?;
        if class != own {
            set_traffic_class(self.data_mut().get_mut(at..).unwrap_or_default(), class);
        }
        Ok(version)
    }

    /// Checks that the packet has exactly `outer_len` bytes of outer headers, and that the IP
    /// packet inside has at most `len_max` bytes.
    #[inline]
    pub fn fits_after_decap(&self, outer_len: usize, len_max: u16) -> bool {
        let meta = self.meta();
        usize::from(meta.l3) == usize::from(meta.outer_l3) + outer_len
            && self.ip_len() <= usize::from(len_max) + outer_len
    }
}
