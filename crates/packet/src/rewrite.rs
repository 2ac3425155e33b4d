//! Header rewriting: addresses and ports with their checksums, outer headers, tags.
//!
//! Checksums are updated incrementally (RFC 1624), so a valid one stays valid and a wrong one stays
//! wrong: an NF on the path must not hide earlier corruption.

mod congestion;
mod cover;
mod enclose;
mod ends;
mod mss;
mod outer;
mod payload;
mod tags;

pub use congestion::class_after_decap;
pub use cover::{OUTER_MATCH_LEN_MAX, OuterMatch, OuterMatches};
pub use enclose::TRAILER_MAX;
pub use ends::{EndsDraft, NewEnds};
pub use mss::MssOptions;
pub use outer::{OUTER_LEN_MAX, OuterHeaders, SHIM_LEN_MAX};
pub use tags::{TAG_LEN, Tag, TagKind, TagRoom};

use crate::checksum::{self, Delta};
use crate::parse::{self, protocol};
use crate::{Addr, DropReason, Endpoint, LinkType, Meta, Packet, PacketClass};

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl End {
    /// Returns the other end.
    #[inline]
    pub const fn other(self) -> End {
        match self {
            End::Source => End::Destination,
            End::Destination => End::Source,
        }
    }
}

/// The packet could not be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The address is of the other IP version.
    #[error("the address is not of the packet's IP version")]
    Version,
    /// There is no headroom for a header.
    #[error("no headroom for the new header")]
    NoHeadroom,
    /// The packet does not have, or cannot carry, such a header.
    #[error("the packet has no such header")]
    NoHeader,
    /// The packet would exceed its length field.
    #[error("the packet is too big")]
    TooBig,
    /// The packet's link layer cannot carry it.
    #[error("the link layer has no place for such a tag")]
    Link,
    /// The packet would have more tags or labels than the parser follows ([`parse::SHIM_MAX`]).
    #[error("the packet has as many tags as are looked through")]
    TooDeep,
    /// Decapsulation would lose the congestion mark of the outer header.
    #[error("the packet cannot tell of congestion")]
    Congestion,
}

impl RewriteError {
    /// Returns the drop reason of a packet that could not be rewritten. `own` is the NF's reason
    /// for packets that it does not handle.
    #[cold]
    pub fn reason_or(self, own: DropReason) -> DropReason {
        match self {
            RewriteError::NoHeadroom => DropReason::NoHeadroom,
            RewriteError::TooBig => DropReason::TooBig,
            RewriteError::Link => DropReason::LinkTags,
            RewriteError::TooDeep => DropReason::LinkTooDeep,
            RewriteError::Congestion => DropReason::TunnelCongestion,
            RewriteError::Version | RewriteError::NoHeader => own,
        }
    }
}

impl Packet {
    /// Rewrites address and port of one end, and all checksums that cover them. A later fragment
    /// only has the address; the port of an ICMP query is its identifier.
    ///
    /// # Errors
    /// The address is of the other IP version.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        let (data, meta) = self.parts_mut();
        if set_end_plain(data, meta, end, to) { Ok(()) } else { self.set_end_any(end, to) }
    }

    #[inline(never)]
    fn set_end_any(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        let (data, meta) = self.parts_mut();
        if (meta.version == 4) != to.addr.is_v4() || meta.class == PacketClass::NotIp {
            return Err(RewriteError::Version);
        }
        if meta.outer_udp != 0 {
            return inside_checksummed_tunnel(data, meta, |data, meta| set_end(data, meta, end, to));
        }
        set_end(data, meta, end, to)
    }

    /// Rewrites address and port of one end of the packet quoted in this ICMP error, its quoted
    /// checksums, and the error's own checksum (RFC 5508 REQ-4, REQ-5).
    ///
    /// # Errors
    /// The address is of the other IP version, or the packet quotes none.
    pub fn set_embedded_end(&mut self, end: End, to: Endpoint) -> Result<(), RewriteError> {
        let (data, meta) = self.parts_mut();
        if (meta.version == 4) != to.addr.is_v4() || meta.class != PacketClass::IcmpError {
            return Err(RewriteError::Version);
        }
        if meta.outer_udp != 0 {
            return inside_checksummed_tunnel(data, meta, |data, meta| set_embedded(data, meta, end, to));
        }
        set_embedded(data, meta, end, to)
    }

    /// Inserts `header` between the link layer and the outermost IP header. It begins with an IP
    /// header of `version` with valid length and checksum fields (see [`Packet::ip_len`]).
    ///
    /// # Errors
    /// There is no headroom, the packet would be too long, or its link layer cannot carry it.
    pub fn encap_bytes(&mut self, header: &[u8], version: u8) -> Result<(), RewriteError> {
        let l2 = self.meta().outer_l3 as usize;
        if self.meta().class == PacketClass::NotIp || l2 >= self.len() {
            return Err(RewriteError::NoHeader);
        }
        if header.len() > self.headroom() {
            return Err(RewriteError::NoHeadroom);
        }
        self.trim_trailer();
        self.push_front(header.len()).map_err(|_| RewriteError::NoHeadroom)?;
        let (data, meta) = self.parts_mut();
        data.copy_within(header.len()..header.len() + l2, 0);
        data[l2..l2 + header.len()].copy_from_slice(header);
        meta.shift(header.len() as i32);
        // A tunnel with a checksum further inside already accounts for inner changes.
        if meta.outer_udp == 0
            && let Some(at) = checksummed_udp(header, version)
        {
            meta.outer_udp = (l2 + at) as u16;
            meta.plain_len = 0;
        }
        meta.wire_len += header.len() as u32;
        grow_link(data, meta.link, header.len() as i32);
        set_network_protocol(data, meta, version)
    }

    /// Removes the outermost `len` bytes of network headers, the reverse of
    /// [`Packet::encap_bytes`]. An IP header of `version` must follow.
    ///
    /// # Errors
    /// The packet has no such headers, or its link layer cannot carry the rest.
    pub fn strip_outer(&mut self, len: usize, version: u8) -> Result<(), RewriteError> {
        let (data, meta) = self.parts_mut();
        let l2 = meta.outer_l3 as usize;
        if meta.class == PacketClass::NotIp || l2 + len > meta.l3 as usize || l2 + len > data.len() {
            return Err(RewriteError::NoHeader);
        }
        if (meta.outer_udp as usize) < l2 + len {
            meta.outer_udp = 0; // The tunnel goes, and its checksum with it.
        }
        let version_before = data.get(l2).map_or(0, |first| first >> 4);
        match data.split_first_chunk_mut::<ETHERNET_LEN>() {
            // A header of known length is moved in one go.
            Some((link, rest)) if l2 == ETHERNET_LEN && len >= ETHERNET_LEN => {
                rest[len - ETHERNET_LEN..len].copy_from_slice(link);
            }
            _ => data.copy_within(0..l2, len),
        }
        self.pull_front(len);
        let (data, meta) = self.parts_mut();
        meta.shift(-(len as i32));
        meta.wire_len = meta.wire_len.saturating_sub(len as u32);
        grow_link(data, meta.link, -(len as i32));
        if version == version_before { Ok(()) } else { set_network_protocol(data, meta, version) }
    }

    /// Returns the packet's length from its outermost IP header on, in bytes, as given by that
    /// header.
    #[inline(always)]
    pub fn ip_len(&self) -> usize {
        let meta = self.meta();
        if meta.is_plain() && meta.l3 == meta.outer_l3 {
            usize::from(meta.plain_len)
        } else {
            ip_len(self.data(), meta.outer_l3 as usize)
        }
    }

    /// Returns the end of the IP packet with the flow's header, as given by that header, in bytes
    /// from the packet's start. In a tunnel, padding may follow within the outer packet.
    #[inline(always)]
    pub fn flow_end(&self) -> usize {
        let (l3, meta) = (self.meta().l3 as usize, self.meta());
        if meta.is_plain() { l3 + usize::from(meta.plain_len) } else { l3 + ip_len(self.data(), l3) }
    }

    /// Removes link-layer padding after the IP packet.
    pub fn trim_trailer(&mut self) {
        let end = self.meta().outer_l3 as usize + self.ip_len();
        if end < self.len() {
            let padding = (self.len() - end) as u32;
            self.truncate(end);
            let meta = self.meta_mut();
            meta.wire_len = meta.wire_len.saturating_sub(padding);
        }
    }

    /// Decrements the time to live or hop limit of the flow's IP header. Returns false and changes
    /// nothing if it is used up.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        let (data, meta) = self.parts_mut();
        if meta.outer_udp != 0 {
            return inside_checksummed_tunnel(data, meta, decrement_ttl).is_ok();
        }
        decrement_ttl(data, meta).is_ok()
    }

    /// Sets the differentiated services code point of the flow's IP header (RFC 2474), 0 to 63; ECN
    /// bits stay.
    pub fn set_dscp(&mut self, dscp: u8) {
        let (data, meta) = self.parts_mut();
        let done = if meta.outer_udp != 0 {
            inside_checksummed_tunnel(data, meta, |data, meta| set_dscp(data, meta, dscp))
        } else {
            set_dscp(data, meta, dscp)
        };
        debug_assert!(
            done.is_ok() || meta.class == PacketClass::NotIp,
            "a packet that was parsed has its IP header"
        );
    }
}

/// Length of an untagged Ethernet header.
const ETHERNET_LEN: usize = 14;

/// Returns the offset of a UDP header with a checksum after the IP header of `version` that these
/// headers begin with.
fn checksummed_udp(headers: &[u8], version: u8) -> Option<usize> {
    let (protocol_at, at) = match (version, headers.first()?) {
        (4, first) => (9, usize::from(first & 0xf) * 4),
        _ => (6, 40),
    };
    let is_udp = headers.get(protocol_at) == Some(&protocol::UDP);
    (is_udp && word(headers, at + 6) != 0).then_some(at)
}

/// Returns the length of the IP packet at `l3` from its header, or the available bytes if it gives
/// none.
#[inline(never)]
fn ip_len(data: &[u8], l3: usize) -> usize {
    let header = data.get(l3..).unwrap_or_default();
    let stated = match header {
        [first, _, a, b, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*a, *b])),
        [first, _, _, _, a, b, ..] if first >> 4 == 6 => match usize::from(u16::from_be_bytes([*a, *b])) {
            0 => 0,
            payload => 40 + payload,
        },
        _ => 0,
    };
    if stated == 0 { header.len() } else { stated }
}

#[inline]
fn decrement_ttl(data: &mut [u8], meta: &Meta) -> Result<(), RewriteError> {
    match (meta.version, data.get_mut(meta.l3 as usize..).unwrap_or_default()) {
        (4, [_, _, _, _, _, _, _, _, ttl, next, high, low, ..]) if *ttl > 1 => {
            let old = u16::from_be_bytes([*ttl, *next]);
            *ttl -= 1;
            let sum = u16::from_be_bytes([*high, *low]);
            [*high, *low] = Delta::of16(old, u16::from_be_bytes([*ttl, *next])).apply(sum).to_be_bytes();
            Ok(())
        }
        (6, [_, _, _, _, _, _, _, hop_limit, ..]) if *hop_limit > 1 => {
            *hop_limit -= 1;
            Ok(())
        }
        _ => Err(RewriteError::NoHeader),
    }
}

#[inline]
fn set_dscp(data: &mut [u8], meta: &Meta, dscp: u8) -> Result<(), RewriteError> {
    let dscp = dscp & 0x3f;
    match (meta.version, data.get_mut(meta.l3 as usize..).unwrap_or_default()) {
        (4, [first, tos, _, _, _, _, _, _, _, _, high, low, ..]) => {
            let old = u16::from_be_bytes([*first, *tos]);
            *tos = dscp << 2 | *tos & 3;
            let sum = u16::from_be_bytes([*high, *low]);
            [*high, *low] = Delta::of16(old, u16::from_be_bytes([*first, *tos])).apply(sum).to_be_bytes();
            Ok(())
        }
        (6, [first, second, ..]) => {
            *first = *first & 0xf0 | dscp >> 2;
            *second = *second & 0x3f | dscp << 6;
            Ok(())
        }
        _ => Err(RewriteError::NoHeader),
    }
}

#[inline]
pub(crate) fn word(data: &[u8], at: usize) -> u16 {
    match data.get(at..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

#[inline]
pub(crate) fn put(data: &mut [u8], at: usize, value: u16) {
    if let Some([high, low, ..]) = data.get_mut(at..) {
        [*high, *low] = value.to_be_bytes();
    }
}

fn set_end(data: &mut [u8], meta: &Meta, end: End, to: Endpoint) -> Result<(), RewriteError> {
    let (l3, l4) = (meta.l3 as usize, meta.l4 as usize);
    let mut address = set_address(data, l3, meta.version, end, to.addr)?;
    if !meta.has_transport() {
        return Ok(());
    }
    if end == End::Destination && meta.version == 6 && is_on_a_route(data, l3, l4) {
        address = Delta::ZERO;
    }
    let port = set_port(data, l4, meta.protocol, end, to.port);
    fix_transport(data, l4, meta.protocol, meta.version, address, port);
    Ok(())
}

/// Handles the common case in one go. Returns false if nothing was changed.
///
/// All numbers are in native byte order: a sum of words is the same, byte by byte, in either order
/// (RFC 1071 2 B).
#[inline(always)]
fn set_end_plain(data: &mut [u8], meta: &Meta, end: End, to: Endpoint) -> bool {
    let (address_at, port_at) = if end == End::Source { (12, 20) } else { (16, 22) };
    let is_udp = meta.protocol == protocol::UDP;
    let checksum_at = if is_udp { 26 } else { 36 };
    let Some(h) = data.get_mut(meta.l3 as usize..) else { return false };
    if !meta.is_plain() || !to.addr.is_v4() || h.len() < checksum_at + 2 {
        return false;
    }
    let word = |h: &[u8], at: usize| u16::from_ne_bytes([h[at], h[at + 1]]);
    let old = u32::from_ne_bytes([h[address_at], h[address_at + 1], h[address_at + 2], h[address_at + 3]]);
    let new = to.addr.v4_bytes();
    h[address_at..address_at + 4].copy_from_slice(&new);
    // RFC 1624 equation 3, its terms summed before folding.
    let address = u64::from(!old) + u64::from(u32::from_ne_bytes(new));
    let sum = fold(address + u64::from(!word(h, 10)));
    h[10..12].copy_from_slice(&sum.to_ne_bytes());
    let (old_port, new_port) = (word(h, port_at), to.port.to_be());
    h[port_at..port_at + 2].copy_from_slice(&new_port.to_ne_bytes());
    let old_sum = word(h, checksum_at);
    if is_udp && old_sum == 0 {
        return true; // The sender computed none.
    }
    let sum = fold(address + u64::from(!old_port) + u64::from(new_port) + u64::from(!old_sum));
    let sum = if is_udp && sum == 0 { 0xffff } else { sum };
    h[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_ne_bytes());
    true
}

/// Returns the complement of a sum of words with its carries folded: the halves of the number are
/// added to each other, and the upper sum then includes the lower one's carry.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    !(sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Sets an address and the IPv4 header checksum; returns the change.
#[inline]
fn set_address(data: &mut [u8], l3: usize, version: u8, end: End, to: Addr) -> Result<Delta, RewriteError> {
    let header = data.get_mut(l3..).ok_or(RewriteError::NoHeader)?;
    if version == 4 {
        let header = header.first_chunk_mut::<20>().ok_or(RewriteError::NoHeader)?;
        let at = if end == End::Source { 12 } else { 16 };
        let old = u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let new = to.v4_bytes();
        header[at..at + 4].copy_from_slice(&new);
        let delta = Delta::of32(old, u32::from_be_bytes(new));
        let sum = delta.apply(u16::from_be_bytes([header[10], header[11]]));
        [header[10], header[11]] = sum.to_be_bytes();
        Ok(delta)
    } else {
        let header = header.first_chunk_mut::<40>().ok_or(RewriteError::NoHeader)?;
        let at = if end == End::Source { 8 } else { 24 };
        let mut old = [0; 16];
        old.copy_from_slice(&header[at..at + 16]);
        header[at..at + 16].copy_from_slice(to.as_bytes());
        Ok(Delta::of128(u128::from_be_bytes(old), to.to_u128()))
    }
}

/// Checks if the IPv6 destination is an intermediate hop of a routing header. The transport
/// checksum then covers the last one (RFC 8200 8.1).
#[inline]
fn is_on_a_route(data: &[u8], l3: usize, l4: usize) -> bool {
    const HEADER_BYTES: usize = 40;
    l4 > l3 + HEADER_BYTES && is_on_a_route_by_extensions(data, l3, l4)
}

#[cold]
fn is_on_a_route_by_extensions(data: &[u8], l3: usize, l4: usize) -> bool {
    let Some(mut header) = data.get(l3 + 6).copied() else { return false };
    let mut at = l3 + 40;
    while at < l4 {
        let Some(&[next_header, len, _, segments_left]) = data.get(at..).and_then(|d| d.first_chunk()) else {
            return false;
        };
        if header == parse::ROUTING && segments_left > 0 {
            return true;
        }
        at += match header {
            parse::FRAGMENT => 8,
            parse::AUTHENTICATION => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        header = next_header;
    }
    false
}

/// Sets a port, or a query's identifier; returns the change.
#[inline]
fn set_port(data: &mut [u8], l4: usize, protocol: u8, end: End, to: u16) -> Delta {
    let at = match protocol {
        protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::DCCP => {
            if end == End::Source {
                l4
            } else {
                l4 + 2
            }
        }
        protocol::ICMP | protocol::ICMPV6 => match data.get(l4) {
            Some(&kind) if parse::is_query(protocol, kind) => l4 + 4,
            _ => return Delta::ZERO,
        },
        _ => return Delta::ZERO, // SCTP's checksum is not incremental; its ports stay (RFC 5382 does not speak of it).
    };
    match data.get_mut(at..) {
        Some([high, low, ..]) => {
            let delta = Delta::of16(u16::from_be_bytes([*high, *low]), to);
            [*high, *low] = to.to_be_bytes();
            delta
        }
        _ => Delta::ZERO,
    }
}

/// Applies changes of address and port to the transport checksum, if it covers them.
#[inline]
fn fix_transport(data: &mut [u8], l4: usize, protocol: u8, version: u8, address: Delta, port: Delta) {
    let (at, delta) = match protocol {
        protocol::TCP => (16, address + port),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => (6, address + port),
        protocol::ICMP => (2, port),
        protocol::ICMPV6 if version == 6 => (2, address + port),
        _ => return,
    };
    if let Some([high, low, ..]) = data.get_mut(l4 + at..) {
        let old = u16::from_be_bytes([*high, *low]);
        let new = if protocol == protocol::UDP { delta.apply_udp(old) } else { delta.apply(old) };
        [*high, *low] = new.to_be_bytes();
    }
}

/// Changes the quoted packet like any other, and the error's checksum by the change of the covered
/// bytes.
#[cold]
fn set_embedded(data: &mut [u8], meta: &Meta, end: End, to: Endpoint) -> Result<(), RewriteError> {
    let (l3, icmp) = (meta.l3 as usize, meta.l4 as usize);
    // Bytes after the IP packet are neither quoted nor covered.
    let len = data.len().min(l3 + ip_len(data, l3));
    let data = &mut data[..len];
    let quoted = parse::embedded(data, icmp, meta.version).ok_or(RewriteError::NoHeader)?;
    // Up to the last checksum field that can change; a sum over an even number of bytes from an
    // even offset.
    let covered = icmp + 8..data.len().min((quoted.l4 + 18).next_multiple_of(2));
    let before = checksum::sum(&data[covered.clone()]);
    let mut address = set_address(data, quoted.l3, quoted.version, end, to.addr)?;
    if quoted.has_transport {
        if end == End::Destination && quoted.version == 6 && is_on_a_route(data, quoted.l3, quoted.l4) {
            address = Delta::ZERO;
        }
        let port = set_port(data, quoted.l4, quoted.protocol, end, to.port);
        fix_transport(data, quoted.l4, quoted.protocol, quoted.version, address, port);
    }
    let delta = Delta::of_sums(before, checksum::sum(&data[covered]));
    put(data, icmp + 2, delta.apply(word(data, icmp + 2)));
    Ok(())
}

/// Changes the headers within a tunnel that has a UDP checksum, and updates that checksum.
#[cold]
pub(crate) fn inside_checksummed_tunnel(
    data: &mut [u8],
    meta: &Meta,
    change: impl FnOnce(&mut [u8], &Meta) -> Result<(), RewriteError>,
) -> Result<(), RewriteError> {
    let udp = meta.outer_udp as usize;
    let before = checksum::sum(data.get(udp + 8..).unwrap_or_default());
    change(data, meta)?;
    let after = checksum::sum(data.get(udp + 8..).unwrap_or_default());
    let fixed = Delta::of_sums(before, after).apply_udp(word(data, udp + 6));
    put(data, udp + 6, fixed);
    Ok(())
}

/// Adjusts the length in the link layer, that of a PPPoE (RFC 2516 4) or IEEE 802.3 header, after
/// its payload grew by `by` bytes.
pub fn grow_link(data: &mut [u8], link: LinkType, by: i32) {
    let mut at = match link {
        LinkType::Ethernet => 12,
        LinkType::LinuxSll => 14,
        _ => return,
    };
    for _ in 0..=parse::SHIM_MAX {
        match word(data, at) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            // Version and type, code, session, length.
            0x8864 => return put(data, at + 6, (i32::from(word(data, at + 6)) + by) as u16),
            len @ 1..=parse::LENGTH_MAX => return put(data, at, (i32::from(len) + by) as u16),
            _ => return,
        }
    }
}

/// Sets the protocol in a link-layer header that ends where `meta` has the outermost IP header, for
/// this IP version. A link layer of unknown format stays.
pub fn set_link_protocol(data: &mut [u8], meta: &Meta, version: u8) {
    let _ = set_network_protocol(data, meta, version);
}

/// Sets the link layer's protocol for this IP version.
fn set_network_protocol(data: &mut [u8], meta: &Meta, version: u8) -> Result<(), RewriteError> {
    let l3 = meta.outer_l3 as usize;
    let (ether_type, ppp, family): (u16, u16, u32) =
        if version == 4 { (0x0800, 0x0021, 2) } else { (0x86dd, 0x0057, 30) };
    match meta.link {
        LinkType::Ppp if l3 == 1 => data[0] = ppp as u8,
        LinkType::LinuxSll2 if l3 == 20 => put(data, 0, ether_type),
        LinkType::Ethernet | LinkType::Ppp | LinkType::LinuxSll | LinkType::LinuxSll2 => {
            // The type right before IP; after MPLS labels there is none, and the version nibble
            // decides. A last label's low half has the bottom-of-stack bit, which none of these
            // types has.
            match l3.checked_sub(2).map(|at| (at, word(data, at))) {
                Some((at, 0x0800 | 0x86dd)) => put(data, at, ether_type),
                Some((at, 0x0021 | 0x0057)) => put(data, at, ppp),
                _ => {}
            }
        }
        // Systems have different numbers for IPv6: a number that already means it stays.
        LinkType::Null | LinkType::Loop if parse::family(data) == Some(version) => {}
        LinkType::Null | LinkType::Loop => {
            let big_endian = meta.link == LinkType::Loop || data.first() == Some(&0);
            let bytes = if big_endian { family.to_be_bytes() } else { family.to_le_bytes() };
            data.get_mut(..4).ok_or(RewriteError::NoHeader)?.copy_from_slice(&bytes);
        }
        LinkType::RawIp => {}
        LinkType::Other(_) => return Err(RewriteError::NoHeader),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
