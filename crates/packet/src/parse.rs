//! The one parse: from the first byte of a frame to the flow's key, in one pass.
//!
//! The checked views in [`crate::wire`] define every field; this parser only finds the values for
//! flow lookup, accounting and header rewriting, and leaves them in [`Meta`]. It accepts exactly
//! the packets that can be processed safely; all others get a [`DropReason`]. A packet that a
//! capture cut (its `wire_len` exceeds its bytes, and its IP packet is incomplete) is accepted if
//! its addresses and ports were captured.

use crate::{Addr, DropReason, Endpoint, FlowHasher, FlowKey, LinkType, Meta, Packet, PacketClass, Scope};
use found::Whole;

mod common;
mod embedded;
mod extension;
mod found;
mod link;
mod link_types;
mod network;
mod sanity;
mod shims;
mod source_route;
mod transport;
mod tunnel;

pub use embedded::{EmbeddedPacket, embedded};
pub use link_types::LINK_TYPES;
pub use sanity::Sanity;
pub use transport::{is_error, is_query};
pub use tunnel::{TunnelKind, TunnelPorts, VXLAN_PORTS_MAX};

pub(crate) use extension::{AUTHENTICATION, FRAGMENT, ROUTING, is_extension};
pub(crate) use link::family;
pub(crate) use shims::LENGTH_MAX;
pub(crate) use source_route::{has_source_route, routing_headers};
pub(crate) use tunnel::{GENEVE, GRE_IN_UDP, GUE, VXLAN};

/// IP protocol numbers known to the parser (IANA).
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

/// Limit on the VLAN tags, and on the MPLS labels, that the parser follows.
pub const SHIM_MAX: usize = 8;

/// Limit on the IPv6 extension headers that the parser follows.
pub const EXTENSION_MAX: usize = 8;

/// Limit on nested tunnels that the parser enters.
pub const TUNNEL_MAX: usize = 4;

/// Limit on the offset of a transport header, so that offsets still fit after pushing headers.
const OFFSET_MAX: usize = u16::MAX as usize - crate::HEADROOM - 64;

/// A parser of frames, with its options.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The hash of flow keys.
    pub hasher: FlowHasher,
    /// If set, a flow is that of the innermost IP header ([`TunnelKind`] lists the tunnels), else
    /// of the outermost.
    pub inner: bool,
    /// The UDP ports of tunnels.
    pub tunnel_ports: TunnelPorts,
    /// If set, an IPv4 total length of 0 means the rest of the frame, as in captures on sending
    /// hosts with segmentation offload.
    pub offloaded: bool,
    /// Well-formed packets to refuse. Wrong addresses are checked later, when a packet begins a
    /// flow.
    pub sanity: Sanity,
    /// If set, drop packets with a wrong IPv4 header checksum (RFC 1812 5.2.2).
    pub verify_ipv4_checksum: bool,
    /// If set, VLAN tags are not part of flow keys: a mirror may tag both directions differently.
    pub ignore_vlans: bool,
}

impl Parser {
    /// Returns a parser of outermost headers that leaves checksums to the hosts.
    pub fn new(hasher: FlowHasher) -> Parser {
        Parser {
            hasher,
            inner: false,
            tunnel_ports: TunnelPorts::DEFAULT,
            offloaded: false,
            sanity: Sanity::default(),
            verify_ipv4_checksum: false,
            ignore_vlans: false,
        }
    }

    /// Fills in the packet's metadata. The receiver must have set `wire_len`, `link`, `key.place`
    /// and the arrival in `transit`; all else is set here. An unparsable packet gets class
    /// [`PacketClass::NotIp`].
    ///
    /// # Errors
    /// The drop reason of a packet that must not be processed.
    #[inline(always)]
    pub fn parse(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let (data, meta) = packet.parts_mut();
        if !(self.inner | self.verify_ipv4_checksum) && common::parse(data, meta) {
            meta.hash = self.hasher.hash_untagged_ipv4(&meta.key);
            return Ok(());
        }
        self.parse_any(data, meta)
    }

    /// Returns the key of the packet's current headers: see [`current_key`].
    #[inline]
    pub fn current_key(&self, packet: &Packet) -> (FlowKey, bool) {
        let (mut key, reversed) = current_key(packet);
        if self.ignore_vlans {
            key.scope = key.scope.without_vlans();
        }
        (key, reversed)
    }

    /// Returns the kind of tunnel, if the flow's packet is a tunnel that the parser did not enter.
    pub fn tunnel_kind(&self, packet: &Packet) -> Option<TunnelKind> {
        let meta = packet.meta();
        match meta.class {
            PacketClass::Whole | PacketClass::FirstFragment => {
                tunnel::kind(packet.data(), usize::from(meta.l4), meta.protocol, self.tunnel_ports)
            }
            PacketClass::NotIp | PacketClass::LaterFragment | PacketClass::IcmpError => None,
        }
    }

    /// Parses any frame.
    #[inline(never)]
    fn parse_any(&self, data: &[u8], meta: &mut Meta) -> Result<(), DropReason> {
        let parsed = self.parse_layers(data, meta);
        if parsed.is_err() {
            meta.class = PacketClass::NotIp;
        }
        parsed
    }

    fn parse_layers(&self, data: &[u8], meta: &mut Meta) -> Result<(), DropReason> {
        let whole = Whole { complete: meta.wire_len as usize <= data.len(), offloaded: self.offloaded };
        let place = meta.key.place;
        let mut scope = Scope::default();
        meta.class = PacketClass::NotIp;
        meta.protocol = 0;
        meta.version = 0;
        meta.tcp_flags = 0;
        meta.outer_udp = 0;
        meta.plain_len = 0;
        let Some((l3, version)) = link::parse(data, meta.link, &mut scope)? else {
            meta.outer_l3 = 0;
            meta.hash = 0;
            return Ok(());
        };
        if self.sanity.encapsulated && link::is_encapsulated(data, meta.link) {
            return Err(DropReason::LinkEncapsulated);
        }
        let mut found = network::parse(data, l3, version, whole)?;
        if self.sanity.ttl_zero | self.sanity.source_routes {
            network::check_sanity(data, &found, self.sanity)?;
        }
        let mut outer_udp = 0;
        if self.verify_ipv4_checksum && found.version == 4 {
            network::verify_ipv4(data, l3, self.offloaded)?;
        }
        if self.inner {
            for _ in 0..TUNNEL_MAX {
                let mut inner_scope = scope;
                let Some(inner) = tunnel::enter(data, &found, &mut inner_scope, self.tunnel_ports) else {
                    break;
                };
                let Ok(within) = network::parse(data, inner.l3, inner.version, found.whole) else { break };
                outer_udp = inner.checksummed_udp.unwrap_or(outer_udp);
                scope = inner_scope;
                found = within;
            }
        }
        if found.l4 > OFFSET_MAX {
            return Err(DropReason::TooBig);
        }
        if self.ignore_vlans {
            scope = scope.without_vlans();
        }
        let ports = transport::parse(data, &mut found, meta)?;
        let source = Endpoint::new(found.source, ports.0);
        let destination = Endpoint::new(found.destination, ports.1);
        let (mut key, mut reversed) =
            FlowKey::new(source, destination, found.protocol, found.version, scope, place);
        if found.class == PacketClass::IcmpError {
            match embedded::key(data, &found, scope, place) {
                Some((embedded, embedded_reversed)) => {
                    key = embedded;
                    // The error travels against the packet that it quotes.
                    reversed = !embedded_reversed;
                }
                None => found.class = PacketClass::Whole,
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
        let plain = found.version == 4
            && found.class == PacketClass::Whole
            && found.l4 - found.l3 == 20
            && matches!(found.protocol, protocol::TCP | protocol::UDP)
            && outer_udp == 0;
        meta.plain_len = if plain { be16(data, found.l3 + 2).unwrap_or(0) } else { 0 };
        Ok(())
    }
}

/// Parses the headers again, from the outermost IP header on, after the packet became another one.
/// Key, hash and order stay as on arrival.
///
/// # Errors
/// Those of [`Parser::parse`]; the packet then has class [`PacketClass::NotIp`].
pub fn reparse(packet: &mut Packet) -> Result<(), DropReason> {
    let Meta { key, hash, reversed, .. } = *packet.meta();
    let parsed = Parser::new(FlowHasher::UNKEYED).parse(packet);
    let meta = packet.meta_mut();
    (meta.key, meta.hash, meta.reversed) = (key, hash, reversed);
    parsed
}

/// Returns the key of the packet's addresses and protocol, with ports 0: for ICMP errors that quote
/// no known flow, and to identify fragmented datagrams.
pub fn portless_key(packet: &Packet) -> (FlowKey, bool) {
    let meta = packet.meta();
    let (source, destination) = network::addresses(packet.data(), meta.l3 as usize, meta.version);
    let (a, b) = (Endpoint::new(source, 0), Endpoint::new(destination, 0));
    FlowKey::new(a, b, meta.protocol, meta.version, meta.key.scope, meta.key.place)
}

/// Returns the identification of this fragment's datagram (RFC 791 3.2, RFC 8200 4.5).
pub fn fragment_id(packet: &Packet) -> u32 {
    let (data, meta) = (packet.data(), packet.meta());
    let l3 = meta.l3 as usize;
    if meta.version == 4 {
        return be16(data, l3 + 4).map_or(0, u32::from);
    }
    fragment_header(data, l3).and_then(|at| be32(data, at + 4)).unwrap_or(0)
}

/// The part of a datagram in a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPart {
    /// Offset in the packet.
    pub at: usize,
    /// Offset in the datagram, in bytes.
    pub offset: u16,
    /// Set if more fragments follow.
    pub more: bool,
}

/// Returns the part of the datagram in this fragment (RFC 791 3.2, RFC 8200 4.5); `None` if the
/// headers do not give it.
pub fn fragment_part(packet: &Packet) -> Option<FragmentPart> {
    let (data, meta) = (packet.data(), packet.meta());
    let l3 = meta.l3 as usize;
    if meta.version == 4 {
        let (header_len, word) = (usize::from(data.get(l3)? & 0xf) * 4, be16(data, l3 + 6)?);
        return Some(FragmentPart { at: l3 + header_len, offset: word << 3, more: word & 0x2000 != 0 });
    }
    let at = fragment_header(data, l3)?;
    let word = be16(data, at + 2)?;
    Some(FragmentPart { at: at + 8, offset: word & !7, more: word & 1 != 0 })
}

/// Returns the offset of the fragment header of the IPv6 packet at `l3`.
fn fragment_header(data: &[u8], l3: usize) -> Option<usize> {
    let (mut next_header, mut at) = (*data.get(l3 + 6)?, l3 + 40);
    while next_header != FRAGMENT && is_extension(next_header) {
        let &[following, units] = data.get(at..)?.first_chunk()?;
        at += if next_header == AUTHENTICATION {
            4 * (usize::from(units) + 2)
        } else {
            8 * (usize::from(units) + 1)
        };
        next_header = following;
    }
    (next_header == FRAGMENT).then_some(at)
}

/// Returns the key of the packet's current headers, tags and tunnel. Only for packets that have a
/// flow.
#[inline]
pub fn current_key(packet: &Packet) -> (FlowKey, bool) {
    let (source, destination) = ends(packet);
    let meta = packet.meta();
    // Most packets are in no tunnel: their IP header follows Ethernet's directly.
    let is_bare = meta.link == LinkType::Ethernet && meta.l3 == 14;
    let scope = if is_bare { Scope::default() } else { current_scope(packet).unwrap_or(meta.key.scope) };
    FlowKey::new(source, destination, meta.protocol, meta.version, scope, meta.key.place)
}

/// Returns the VLAN tags and the virtual network currently in front of the flow's IP header. `None`
/// if they cannot be parsed.
#[inline(never)]
fn current_scope(packet: &Packet) -> Option<Scope> {
    let (data, meta) = (packet.data(), packet.meta());
    let (mut scope, l3) = (Scope::default(), usize::from(meta.l3));
    let whole = Whole { complete: meta.wire_len as usize <= data.len(), offloaded: false };
    let (mut at, mut version) = link::parse(data, meta.link, &mut scope).ok()??;
    while at < l3 {
        let found = network::parse(data, at, version, whole).ok()?;
        let inner = tunnel::enter(data, &found, &mut scope, TunnelPorts::DEFAULT)?;
        (at, version) = (inner.l3, inner.version);
    }
    (at == l3).then_some(scope)
}

/// The outermost tunnel of a packet.
pub(crate) struct Tunnel {
    /// The protocol after the outermost IP header and its extensions.
    pub protocol: u8,
    /// Offset of the tunnel's header.
    pub at: usize,
    /// Offset of the next IP header.
    pub l3: usize,
}

/// Returns the outermost tunnel; `None` if the packet is in no known one.
pub(crate) fn outermost(packet: &Packet) -> Option<Tunnel> {
    let (data, meta) = (packet.data(), packet.meta());
    let (l3, version) = shims::version_nibble(data, usize::from(meta.outer_l3)).ok()?;
    let whole = Whole { complete: meta.wire_len as usize <= data.len(), offloaded: false };
    let found = network::parse(data, l3, version, whole).ok()?;
    let inner = tunnel::enter(data, &found, &mut Scope::default(), TunnelPorts::DEFAULT)?;
    Some(Tunnel { protocol: found.protocol, at: found.l4, l3: inner.l3 })
}

/// Returns source and destination of the current headers; ports are 0 if there are none.
#[inline]
pub fn ends(packet: &Packet) -> (Endpoint, Endpoint) {
    match plain_ends(packet) {
        Some(ends) => ends,
        None => any_ends(packet.data(), packet.meta()),
    }
}

/// Returns source and destination in the common case; `None` otherwise.
#[inline(always)]
pub(crate) fn plain_ends(packet: &Packet) -> Option<(Endpoint, Endpoint)> {
    let (data, meta) = (packet.data(), packet.meta());
    let header = data.get(meta.l3 as usize..).and_then(<[u8]>::first_chunk::<24>);
    match header {
        Some(h) if meta.is_plain() => {
            let end = |address: usize, port: usize| {
                let address = [h[address], h[address + 1], h[address + 2], h[address + 3]];
                Endpoint::new(Addr::from_v4_bytes(address), u16::from_be_bytes([h[port], h[port + 1]]))
            };
            Some((end(12, 20), end(16, 22)))
        }
        _ => None,
    }
}

#[inline(never)]
fn any_ends(data: &[u8], meta: &Meta) -> (Endpoint, Endpoint) {
    let (source, destination) = network::addresses(data, meta.l3 as usize, meta.version);
    let (source_port, destination_port) =
        if meta.has_transport() { transport::ports(data, meta.l4 as usize, meta.protocol) } else { (0, 0) };
    (Endpoint::new(source, source_port), Endpoint::new(destination, destination_port))
}

#[inline]
fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
