//! The one parse: from the first byte of a frame to the flow's key, in one pass.
//!
//! The checked views in [`crate::wire`] say what every field is; this parser only finds what flow lookup, accounting and
//! header rewriting need and leaves it in [`Meta`]. It accepts exactly what can be processed safely; everything else has
//! a [`DropReason`]. A packet that a capture cut (`wire_len` above what is there, and the IP packet not here as a whole) is
//! accepted as long as its addresses and ports were captured.

use crate::{Addr, Class, DropReason, Endpoint, FlowHasher, FlowKey, LinkType, Meta, Packet, Scope};

mod common;
mod tunnel;

/// IP protocol numbers that the parser treats (IANA).
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// GRE.
    pub const GRE: u8 = 47;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// VLAN tags and MPLS labels that are looked through, each.
pub const SHIM_MAX: usize = 8;

/// IPv6 extension headers that are looked through.
pub const EXTENSION_MAX: usize = 8;

/// Tunnels within tunnels that are looked into.
pub const TUNNEL_MAX: usize = 4;

/// Where a transport header begins at most, so that offsets still fit when headers were pushed before it.
const OFFSET_MAX: usize = u16::MAX as usize - crate::HEADROOM - 64;

/// How packets are parsed.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The hash of flow keys.
    pub hasher: FlowHasher,
    /// Whether a flow is that of the innermost IP header (IP in IP, GRE, VXLAN, Geneve, GTP-U, GUE), not of the outermost.
    pub inner: bool,
    /// Whether a wrong IPv4 header checksum is a reason to drop (RFC 1812 5.2.2).
    pub verify_ipv4_checksum: bool,
}

impl Parser {
    /// A parser of outermost headers that leaves checksums to the hosts.
    pub fn new(hasher: FlowHasher) -> Parser {
        Parser { hasher, inner: false, verify_ipv4_checksum: false }
    }

    /// Fills in the packet's metadata. `timestamp_ns`, `wire_len`, `ingress`, `side`, `link` and `key.tenant` are the
    /// receiver's to set before; all else is set here.
    #[inline]
    pub fn parse(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let (data, meta) = packet.parts_mut();
        if !self.inner && !self.verify_ipv4_checksum && common::parse(data, meta) {
            meta.hash = self.hasher.hash(&meta.key);
            return Ok(());
        }
        self.parse_any(data, meta)
    }

    /// Parses any frame.
    fn parse_any(&self, data: &[u8], meta: &mut Meta) -> Result<(), DropReason> {
        let whole = Whole { complete: meta.wire_len as usize <= data.len() };
        let tenant = meta.key.tenant;
        let mut scope = Scope::default();
        meta.class = Class::NotIp;
        meta.protocol = 0;
        meta.version = 0;
        meta.tcp_flags = 0;
        meta.outer_udp = 0;
        let Some((l3, version)) = link_layer(data, meta.link, &mut scope)? else {
            meta.outer_l3 = 0;
            meta.hash = 0;
            return Ok(());
        };
        let mut found = network(data, l3, version, whole)?;
        let mut outer_udp = 0;
        if self.verify_ipv4_checksum && found.version == 4 {
            verify_ipv4(data, l3)?;
        }
        if self.inner {
            for _ in 0..TUNNEL_MAX {
                let mut inner_scope = scope;
                let Some(inner) = tunnel::enter(data, &found, &mut inner_scope) else { break };
                let Ok(within) = network(data, inner.l3, inner.version, found.whole) else { break };
                outer_udp = inner.checksummed_udp.unwrap_or(outer_udp);
                scope = inner_scope;
                found = within;
            }
        }
        if found.l4 > OFFSET_MAX {
            return Err(DropReason::TooBig);
        }
        let ports = transport(data, &mut found, meta)?;
        let source = Endpoint::new(found.source, ports.0);
        let destination = Endpoint::new(found.destination, ports.1);
        let (mut key, mut reversed) =
            FlowKey::new(source, destination, found.protocol, found.version, scope, tenant);
        if found.class == Class::IcmpError {
            match embedded_key(data, &found, scope, tenant) {
                Some((embedded, embedded_reversed)) => {
                    key = embedded;
                    // The error travels against the packet that it quotes.
                    reversed = !embedded_reversed;
                }
                None => found.class = Class::Whole,
            }
        }
        meta.key = key;
        meta.reversed = reversed;
        meta.hash = self.hasher.hash(&key);
        meta.outer_l3 = l3 as u16;
        meta.l3 = found.l3 as u16;
        meta.l4 = found.l4 as u16;
        meta.protocol = found.protocol;
        meta.version = found.version;
        meta.class = found.class;
        meta.outer_udp = outer_udp as u16;
        Ok(())
    }
}

/// The key of the packet's own addresses and protocol, with ports 0: for an ICMP error that quotes no known flow, and for
/// telling fragmented datagrams apart.
pub fn portless_key(packet: &Packet) -> (FlowKey, bool) {
    let meta = packet.meta();
    let (source, destination) = addresses(packet.data(), meta.l3 as usize, meta.version);
    let (a, b) = (Endpoint::new(source, 0), Endpoint::new(destination, 0));
    FlowKey::new(a, b, meta.protocol, meta.version, meta.key.scope, meta.key.tenant)
}

/// The identification of the datagram that this fragment is of (RFC 791 3.2, RFC 8200 4.5).
pub fn fragment_id(packet: &Packet) -> u32 {
    let (data, meta) = (packet.data(), packet.meta());
    let l3 = meta.l3 as usize;
    if meta.version == 4 {
        return be16(data, l3 + 4).map_or(0, u32::from);
    }
    let (mut next_header, mut at) = (data.get(l3 + 6).copied().unwrap_or(0), l3 + 40);
    while next_header != FRAGMENT && is_extension(next_header) {
        let Some(&[following, units]) = data.get(at..).and_then(|d| d.first_chunk()) else { return 0 };
        at += if next_header == AUTHENTICATION {
            4 * (usize::from(units) + 2)
        } else {
            8 * (usize::from(units) + 1)
        };
        next_header = following;
    }
    be32(data, at + 4).unwrap_or(0)
}

/// The key of the packet as its headers are now, whatever it was when it arrived. Only for packets that have a flow.
#[inline]
pub fn current_key(packet: &Packet) -> (FlowKey, bool) {
    let (source, destination) = ends(packet);
    let meta = packet.meta();
    FlowKey::new(source, destination, meta.protocol, meta.version, meta.key.scope, meta.key.tenant)
}

/// Source and destination as the headers are now; ports are 0 where there are none.
#[inline]
pub fn ends(packet: &Packet) -> (Endpoint, Endpoint) {
    let (data, meta) = (packet.data(), packet.meta());
    let (source, destination) = addresses(data, meta.l3 as usize, meta.version);
    let (source_port, destination_port) =
        if meta.has_transport() { ports(data, meta.l4 as usize, meta.protocol) } else { (0, 0) };
    (Endpoint::new(source, source_port), Endpoint::new(destination, destination_port))
}

/// An IP header that was found, on the way down.
#[derive(Clone, Copy)]
struct Found {
    l3: usize,
    l4: usize,
    /// Where the IP payload ends, as far as it was captured.
    end: usize,
    source: Addr,
    destination: Addr,
    protocol: u8,
    version: u8,
    class: Class,
    /// Whether all of it is here.
    whole: Whole,
}

/// Whether the whole frame was captured, or at least the whole of the IP packet at hand.
#[derive(Clone, Copy)]
struct Whole {
    complete: bool,
}

impl Whole {
    /// A header that is not there is an error, unless the capture cut the packet.
    #[inline]
    fn check(self, there: bool, reason: DropReason) -> Result<(), DropReason> {
        if there || !self.complete { Ok(()) } else { Err(reason) }
    }

    /// What is here up to the IP packet's end is whole, however much was cut behind it.
    #[inline]
    fn at_least(self, there: bool, reason: DropReason) -> Result<Whole, DropReason> {
        self.check(there, reason)?;
        Ok(Whole { complete: there })
    }
}

#[inline]
fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

/// Finds the network header behind the link layer's: its offset and IP version, or none if the frame is not IP.
#[inline]
fn link_layer(data: &[u8], link: LinkType, scope: &mut Scope) -> Result<Option<(usize, u8)>, DropReason> {
    use DropReason::LinkTruncated;
    let (ether_type, at) = match link {
        LinkType::Ethernet => (be16(data, 12).ok_or(LinkTruncated)?, 14),
        LinkType::RawIp => return version_nibble(data, 0).map(Some),
        LinkType::LinuxSll => (be16(data, 14).ok_or(LinkTruncated)?, 16),
        LinkType::LinuxSll2 => (be16(data, 0).filter(|_| data.len() >= 20).ok_or(LinkTruncated)?, 20),
        LinkType::Ppp => match data {
            [0xff, 0x03, ..] => (ppp_ether_type(be16(data, 2).ok_or(LinkTruncated)?), 4),
            [0x21, ..] => (0x0800, 1),
            [0x57, ..] => (0x86dd, 1),
            _ => (ppp_ether_type(be16(data, 0).ok_or(LinkTruncated)?), 2),
        },
        LinkType::Null | LinkType::Loop if data.len() < 4 => return Err(LinkTruncated),
        LinkType::Null | LinkType::Loop => return Ok(family(data).map(|version| (4, version))),
        LinkType::Other(_) => return Err(DropReason::LinkUnknown),
    };
    match ether_type {
        0x0800 => Ok(Some((at, 4))),
        0x86dd => Ok(Some((at, 6))),
        _ => shims(data, ether_type, at, scope),
    }
}

/// VLAN tags, MPLS labels and PPPoE between the link layer and IP.
#[cold]
fn shims(
    data: &[u8],
    mut ether_type: u16,
    mut at: usize,
    scope: &mut Scope,
) -> Result<Option<(usize, u8)>, DropReason> {
    use DropReason::LinkTruncated;
    for _ in 0..=SHIM_MAX {
        match ether_type {
            0x0800 => return Ok(Some((at, 4))),
            0x86dd => return Ok(Some((at, 6))),
            0x8100 | 0x88a8 | 0x9100 => {
                *scope = scope.with_vlan(be16(data, at).ok_or(LinkTruncated)?);
                ether_type = be16(data, at + 2).ok_or(LinkTruncated)?;
                at += 4;
            }
            0x8847 | 0x8848 => return labels(data, at),
            0x8864 => {
                ether_type = ppp_ether_type(be16(data, at + 6).ok_or(LinkTruncated)?);
                at += 8;
            }
            _ => return Ok(None),
        }
    }
    Err(DropReason::LinkTooDeep)
}

/// Skips an MPLS label stack (RFC 3032); what follows is IP if its first nibble says so (RFC 4928).
fn labels(data: &[u8], mut at: usize) -> Result<Option<(usize, u8)>, DropReason> {
    for _ in 0..SHIM_MAX {
        let entry = be32(data, at).ok_or(DropReason::LinkTruncated)?;
        at += 4;
        if entry & 0x100 != 0 {
            return match data.get(at).map(|byte| byte >> 4) {
                Some(version @ (4 | 6)) => Ok(Some((at, version))),
                _ => Ok(None),
            };
        }
    }
    Err(DropReason::LinkTooDeep)
}

fn ppp_ether_type(ppp_protocol: u16) -> u16 {
    match ppp_protocol {
        0x0021 => 0x0800,
        0x0057 => 0x86dd,
        0x0281 => 0x8847,
        _ => 0,
    }
}

/// The IP version that the BSD address family before it stands for, in either byte order; the systems differ on IPv6.
pub(crate) fn family(data: &[u8]) -> Option<u8> {
    let number = be32(data, 0)?;
    match if number > 0xffff { number.swap_bytes() } else { number } {
        2 => Some(4),
        10 | 24 | 28 | 30 => Some(6),
        _ => None,
    }
}

fn version_nibble(data: &[u8], at: usize) -> Result<(usize, u8), DropReason> {
    match data.get(at).map(|byte| byte >> 4) {
        Some(version @ (4 | 6)) => Ok((at, version)),
        Some(_) => Err(DropReason::IpVersion),
        None => Err(DropReason::LinkTruncated),
    }
}

#[inline]
fn network(data: &[u8], l3: usize, version: u8, whole: Whole) -> Result<Found, DropReason> {
    if version == 4 { ipv4(data, l3, whole) } else { ipv6(data, l3, whole) }
}

/// RFC 791 3.1.
#[inline]
fn ipv4(data: &[u8], l3: usize, whole: Whole) -> Result<Found, DropReason> {
    let rest = data.get(l3..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<20>() else {
        return Err(DropReason::Ipv4Truncated);
    };
    if header[0] >> 4 != 4 {
        return Err(DropReason::IpVersion);
    }
    let header_len = usize::from(header[0] & 0xf) * 4;
    if header_len < 20 || header_len > rest.len() {
        return Err(DropReason::Ipv4HeaderLength);
    }
    let mut total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_len == 0 && rest.len() > 0xffff {
        total_len = rest.len(); // An aggregate larger than the field can say (Linux "BIG TCP").
    }
    if total_len < header_len {
        return Err(DropReason::Ipv4TotalLength);
    }
    let whole = whole.at_least(total_len <= rest.len(), DropReason::Ipv4TotalLength)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let protocol = header[9];
    let class = fragment_class(fragment & 0x1fff, fragment & 0x2000 != 0, protocol)?;
    Ok(Found {
        l3,
        l4: l3 + header_len,
        end: l3 + total_len.min(rest.len()),
        source: Addr::from_v4_bytes([header[12], header[13], header[14], header[15]]),
        destination: Addr::from_v4_bytes([header[16], header[17], header[18], header[19]]),
        protocol,
        version: 4,
        class,
        whole,
    })
}

/// What kind of fragment it is; one that would overwrite a TCP header's flags is refused (RFC 1858 3.2.1).
#[inline]
fn fragment_class(offset: u16, more: bool, protocol: u8) -> Result<Class, DropReason> {
    match (offset, more) {
        (0, false) => Ok(Class::Whole),
        (0, true) => Ok(Class::FirstFragment),
        (1, _) if protocol == protocol::TCP => Err(DropReason::FragmentIllegal),
        _ => Ok(Class::LaterFragment),
    }
}

/// RFC 8200 3 and 4.
fn ipv6(data: &[u8], l3: usize, whole: Whole) -> Result<Found, DropReason> {
    let rest = data.get(l3..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<40>() else {
        return Err(DropReason::Ipv6Truncated);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::IpVersion);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // A length of 0 is a jumbogram (RFC 2675) or an aggregate: then the payload is what there is.
    let end = if payload_len == 0 { rest.len() } else { 40 + payload_len };
    let whole = whole.at_least(end <= rest.len(), DropReason::Ipv6PayloadLength)?;
    let end = l3 + end.min(rest.len());
    let mut found = Found {
        l3,
        l4: l3 + 40,
        end,
        source: Addr::from_bytes(array(&header[8..24])),
        destination: Addr::from_bytes(array(&header[24..40])),
        protocol: header[6],
        version: 6,
        class: Class::Whole,
        whole,
    };
    if is_extension(found.protocol) {
        extensions(&data[..end], &mut found)?;
    }
    Ok(found)
}

/// The 16 bytes of a slice of that length.
#[inline]
fn array(bytes: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(bytes);
    out
}

const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

#[inline]
fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | 135 | 139 | 140)
}

/// Walks the extension headers up to the transport's (RFC 8200 4.1), a later fragment's up to its data.
#[cold]
fn extensions(data: &[u8], found: &mut Found) -> Result<(), DropReason> {
    // A chain that a capture cut leads nowhere: neither the ports nor where they stand are known.
    let cut = if found.whole.complete { DropReason::Ipv6Extension } else { DropReason::Ipv6Truncated };
    for _ in 0..EXTENSION_MAX {
        if !is_extension(found.protocol) {
            return Ok(());
        }
        let Some(&[next_header, len, high, low]) = data.get(found.l4..).and_then(|d| d.first_chunk()) else {
            return Err(cut);
        };
        let units = usize::from(len);
        let len = match found.protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if found.protocol == FRAGMENT {
            let word = u16::from_be_bytes([high, low]);
            found.class = fragment_class(word >> 3, word & 1 != 0, next_header)?;
        }
        found.protocol = next_header;
        found.l4 += len;
        if found.l4 > data.len() {
            return Err(cut);
        }
        if found.class == Class::LaterFragment {
            return Ok(());
        }
    }
    if is_extension(found.protocol) { Err(DropReason::Ipv6ExtensionChain) } else { Ok(()) }
}

/// Checks the transport header and returns its ports.
#[inline]
fn transport(data: &[u8], found: &mut Found, meta: &mut Meta) -> Result<(u16, u16), DropReason> {
    meta.payload = found.l4 as u16;
    if found.class == Class::LaterFragment {
        return Ok((0, 0));
    }
    let body = data.get(found.l4..found.end).unwrap_or_default();
    let header_len = match found.protocol {
        protocol::TCP => tcp(body, found, meta)?,
        protocol::UDP => udp(body, found)?,
        protocol::ICMP | protocol::ICMPV6 => icmp(body, found)?,
        protocol::SCTP => other(body, found, 12)?,
        protocol::UDP_LITE => other(body, found, 8)?,
        // RFC 4340 5.1: the data offset, in words, covers the header with its options.
        protocol::DCCP => {
            other(body, found, body.get(4).map_or(12, |&words| usize::from(words) * 4).max(12))?
        }
        _ => 0,
    };
    meta.payload = (found.l4 + header_len.min(body.len())) as u16;
    Ok(ports(data, found.l4, found.protocol))
}

/// A header that begins with two ports.
fn other(body: &[u8], found: &Found, header_len: usize) -> Result<usize, DropReason> {
    if body.len() < 4 {
        return Err(DropReason::TransportTruncated);
    }
    if found.class == Class::Whole {
        found.whole.check(header_len <= body.len(), DropReason::TransportTruncated)?;
    }
    Ok(header_len)
}

/// RFC 9293 3.1.
#[inline]
fn tcp(body: &[u8], found: &Found, meta: &mut Meta) -> Result<usize, DropReason> {
    let Some(header) = body.first_chunk::<20>() else {
        // A first fragment that does not hold the header is an evasion (RFC 1858 3.1); a cut capture is not.
        let reason = if found.class == Class::FirstFragment {
            DropReason::FragmentIllegal
        } else {
            DropReason::TcpTruncated
        };
        if found.whole.complete || body.len() < 4 {
            return Err(reason);
        }
        meta.tcp_flags = body.get(13).copied().unwrap_or(0);
        return Ok(20);
    };
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < 20 {
        return Err(DropReason::TcpHeaderLength);
    }
    if header_len > body.len() && found.class == Class::Whole {
        found.whole.check(false, DropReason::TcpHeaderLength)?;
    }
    meta.tcp_flags = header[13];
    Ok(header_len)
}

/// RFC 768; a length of 0 only in jumbograms (RFC 2675 4).
#[inline]
fn udp(body: &[u8], found: &Found) -> Result<usize, DropReason> {
    let Some(header) = body.first_chunk::<8>() else {
        if found.whole.complete || body.len() < 4 {
            return Err(DropReason::UdpTruncated);
        }
        return Ok(8);
    };
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if found.class == Class::Whole {
        let jumbo = len == 0 && body.len() > 0xffff;
        if len < 8 && !jumbo {
            return Err(DropReason::UdpLength);
        }
        found.whole.check(len <= body.len(), DropReason::UdpLength)?;
    }
    Ok(8)
}

/// RFC 792, RFC 4443. The header is taken to have 8 bytes; four are enough for types without a rest.
#[inline]
fn icmp(body: &[u8], found: &mut Found) -> Result<usize, DropReason> {
    let Some(&kind) = body.first() else {
        return Err(DropReason::IcmpTruncated);
    };
    if body.len() < 4 || (is_query(found.protocol, kind) && body.len() < 8) {
        found.whole.check(false, DropReason::IcmpTruncated)?;
    }
    if is_error(found.protocol, kind) && found.class == Class::Whole {
        found.class = Class::IcmpError;
    }
    Ok(8)
}

/// Whether the type is an error that quotes a packet: unreachable, quench, redirect, time exceeded, parameter problem.
#[inline]
pub fn is_error(protocol: u8, kind: u8) -> bool {
    match protocol {
        protocol::ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => (1..=4).contains(&kind),
    }
}

/// Whether the type is a query or its answer, with an identifier: echo, timestamp, information, address mask.
#[inline]
pub fn is_query(protocol: u8, kind: u8) -> bool {
    match protocol {
        protocol::ICMP => matches!(kind, 0 | 8 | 13..=18),
        _ => matches!(kind, 128 | 129),
    }
}

#[inline]
fn addresses(data: &[u8], l3: usize, version: u8) -> (Addr, Addr) {
    let header = data.get(l3..).unwrap_or_default();
    if version == 4 {
        match header.get(12..20) {
            Some(a) => {
                (Addr::from_v4_bytes([a[0], a[1], a[2], a[3]]), Addr::from_v4_bytes([a[4], a[5], a[6], a[7]]))
            }
            None => (Addr::NONE, Addr::NONE),
        }
    } else {
        match header.get(8..40) {
            Some(a) => (Addr::from_bytes(array(&a[..16])), Addr::from_bytes(array(&a[16..]))),
            None => (Addr::NONE, Addr::NONE),
        }
    }
}

/// Source and destination port; a query identifier stands for both; 0 for protocols without.
#[inline]
fn ports(data: &[u8], l4: usize, protocol: u8) -> (u16, u16) {
    let header = data.get(l4..).unwrap_or_default();
    match protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE => {
            match header {
                [a, b, c, d, ..] => (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])),
                _ => (0, 0),
            }
        }
        protocol::ICMP | protocol::ICMPV6 => match header {
            [kind, _, _, _, a, b, ..] if is_query(protocol, *kind) => {
                let id = u16::from_be_bytes([*a, *b]);
                (id, id)
            }
            _ => (0, 0),
        },
        _ => (0, 0),
    }
}

/// Where the packet that an ICMP error quotes has its headers: IP header, transport header, version, protocol.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// Where its IP header begins, from the packet's first byte.
    pub l3: usize,
    /// Where its transport header begins.
    pub l4: usize,
    /// Its IP version.
    pub version: u8,
    /// Its transport protocol.
    pub protocol: u8,
    /// Whether it has a transport header: false for a later fragment.
    pub has_transport: bool,
}

/// Finds the packet that an ICMP error quotes; none if it is too short to tell its flow.
pub fn embedded(data: &[u8], icmp_l4: usize, version: u8) -> Option<Embedded> {
    let found = network(data, icmp_l4 + 8, version, Whole { complete: false }).ok()?;
    let has_transport = found.class != Class::LaterFragment;
    // The quotation holds at least 8 bytes of the transport header (RFC 792); the ports are in the first 4.
    if has_transport && data.len() < found.l4 + 4 {
        return None;
    }
    Some(Embedded { l3: found.l3, l4: found.l4, version, protocol: found.protocol, has_transport })
}

#[cold]
fn embedded_key(data: &[u8], error: &Found, scope: Scope, tenant: u16) -> Option<(FlowKey, bool)> {
    let quoted = embedded(data.get(..error.end)?, error.l4, error.version)?;
    if !quoted.has_transport {
        return None;
    }
    let (source, destination) = addresses(data, quoted.l3, quoted.version);
    let (a, b) = ports(data, quoted.l4, quoted.protocol);
    let (a, b) = (Endpoint::new(source, a), Endpoint::new(destination, b));
    Some(FlowKey::new(a, b, quoted.protocol, quoted.version, scope, tenant))
}

fn verify_ipv4(data: &[u8], l3: usize) -> Result<(), DropReason> {
    let header_len = usize::from(data.get(l3).map_or(0, |byte| byte & 0xf)) * 4;
    match data.get(l3..l3 + header_len) {
        Some(header) if crate::checksum::verify(crate::checksum::sum(header)) => Ok(()),
        _ => Err(DropReason::Ipv4Checksum),
    }
}

#[cfg(test)]
mod tests;
