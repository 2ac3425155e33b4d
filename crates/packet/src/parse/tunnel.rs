//! Tunnels: the position of the next inner IP header.

use super::found::Found;
use super::shims::{labels, shims, version_nibble};
use super::{EXTENSION_MAX, be16, be32, protocol};
use crate::{PacketClass, Scope};

/// UDP ports of tunnels (IANA).
pub(crate) const VXLAN: u16 = 4789;
pub(crate) const GENEVE: u16 = 6081;
pub(crate) const GUE: u16 = 6080;
pub(crate) const GRE_IN_UDP: u16 = 4754;
/// The VXLAN port of early Linux versions and their peers.
const VXLAN_OF_LINUX: u16 = 8472;
const VXLAN_GPE: u16 = 4790;
const GTP_U: u16 = 2152;
const TEREDO: u16 = 3544;
const MPLS_IN_UDP: u16 = 6635;
const L2TP: u16 = 1701;
const TZSP: u16 = 37008;

/// IP protocol numbers of tunnels (IANA).
const ETHER_IP: u8 = 97;
const L2TP_V3: u8 = 115;
const MPLS_IN_IP: u8 = 137;

/// EtherTypes in GRE.
const ERSPAN: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;
const PPP: u16 = 0x880b;
/// Nothing: an answer to a keepalive, as Cisco IOS defined it.
const KEEPALIVE: u16 = 0;

/// Limit on the UDP ports of VXLAN.
pub const VXLAN_PORTS_MAX: usize = 4;

/// UDP ports of tunnels that may differ from IANA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPorts {
    /// Ports of VXLAN; 0 for none.
    pub vxlan: [u16; VXLAN_PORTS_MAX],
}

impl TunnelPorts {
    /// IANA's ports, and Linux's for VXLAN.
    pub const DEFAULT: TunnelPorts = TunnelPorts { vxlan: [VXLAN, VXLAN_OF_LINUX, 0, 0] };
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Kinds of tunnels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum TunnelKind { $($(#[doc = $doc])+ $variant,)+ }

        impl TunnelKind {
            /// All kinds, in order of their numbers.
            pub const ALL: &'static [TunnelKind] = &[$(TunnelKind::$variant,)+];

            /// Number of kinds.
            pub const COUNT: usize = TunnelKind::ALL.len();

            /// Returns the name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(TunnelKind::$variant => $name,)+ }
            }
        }
    };
}

kinds! {
    /// GRE (RFC 2784) with IP, Ethernet or MPLS.
    Gre = "gre",
    /// ERSPAN types I, II and III: mirrored Ethernet in GRE.
    Erspan = "erspan",
    /// PPTP: PPP in GRE, never parsed.
    Pptp = "pptp",
    /// IPv4 or IPv6 in IP.
    IpInIp = "ip-in-ip",
    /// Ethernet in IP (RFC 3378).
    EtherIp = "etherip",
    /// MPLS in IP or UDP (RFC 4023, RFC 7510).
    Mpls = "mpls",
    /// VXLAN (RFC 7348), also with its generic protocol extension.
    Vxlan = "vxlan",
    /// Geneve (RFC 8926).
    Geneve = "geneve",
    /// GTP-U (3GPP TS 29.281).
    GtpU = "gtp-u",
    /// Generic UDP encapsulation.
    Gue = "gue",
    /// Teredo (RFC 4380).
    Teredo = "teredo",
    /// L2TP version 2 over UDP and version 3 over IP, never parsed.
    L2tp = "l2tp",
    /// TaZmen Sniffer Protocol, used by wireless probes and routers for mirroring.
    Tzsp = "tzsp",
}

/// Returns the kind of the tunnel header at `l4`, after an IP header with this protocol.
pub(super) fn kind(data: &[u8], l4: usize, protocol: u8, ports: TunnelPorts) -> Option<TunnelKind> {
    use TunnelKind::{
        Erspan, EtherIp, Geneve, Gre, GtpU, Gue, IpInIp, L2tp, Mpls, Pptp, Teredo, Tzsp, Vxlan,
    };
    match protocol {
        protocol::IPV4 | protocol::IPV6 => Some(IpInIp),
        ETHER_IP => Some(EtherIp),
        L2TP_V3 => Some(L2tp),
        MPLS_IN_IP => Some(Mpls),
        protocol::GRE => match be16(data, l4 + 2)? {
            KEEPALIVE => None,
            ERSPAN | ERSPAN_3 => Some(Erspan),
            PPP => Some(Pptp),
            _ => Some(Gre),
        },
        protocol::UDP => {
            let (source, destination) = (be16(data, l4)?, be16(data, l4 + 2)?);
            let first = be32(data, l4 + 8)?;
            // Any application may use these ports, so the header must look right.
            match destination {
                port if ports.vxlan.contains(&port) || port == VXLAN_GPE => {
                    (first & 0x0800_0000 != 0).then_some(Vxlan)
                }
                GENEVE => (first >> 30 == 0).then_some(Geneve),
                GTP_U => (first >> 28 == 0b0011 && first >> 16 & 0xff == 255).then_some(GtpU),
                GUE => Some(Gue),
                GRE_IN_UDP => Some(Gre),
                MPLS_IN_UDP => Some(Mpls),
                L2TP => (first >> 16 & 0xf == 2).then_some(L2tp),
                TZSP => (first >> 24 == 1).then_some(Tzsp),
                _ if source == TEREDO || destination == TEREDO => Some(Teredo),
                _ => None,
            }
        }
        _ => None,
    }
}

/// An inner IP header.
pub(super) struct Inner {
    pub l3: usize,
    pub version: u8,
    /// Offset of the surrounding UDP header, if its checksum must be updated with inner changes.
    pub checksummed_udp: Option<usize>,
}

/// Enters one tunnel; `None` if it is not a known one.
pub(super) fn enter(data: &[u8], outer: &Found, scope: &mut Scope, ports: TunnelPorts) -> Option<Inner> {
    if outer.class != PacketClass::Whole {
        return None; // A fragment of a tunnel packet: its inner packet is incomplete.
    }
    let data = data.get(..outer.end)?;
    match outer.protocol {
        protocol::IPV4 => Some(Inner { l3: outer.l4, version: 4, checksummed_udp: None }),
        protocol::IPV6 => Some(Inner { l3: outer.l4, version: 6, checksummed_udp: None }),
        protocol::GRE => gre(data, outer.l4, scope),
        // RFC 3378 3.
        ETHER_IP if data.get(outer.l4)? >> 4 == 3 => by_ether_type(data, ETHERNET, outer.l4 + 2, scope),
        MPLS_IN_IP => mpls(data, outer.l4),
        protocol::UDP => {
            let (source, destination) = (be16(data, outer.l4)?, be16(data, outer.l4 + 2)?);
            let at = outer.l4 + 8;
            let mut inner = match destination {
                port if ports.vxlan.contains(&port) && port != 0 => vxlan(data, at, scope),
                VXLAN_GPE => vxlan_gpe(data, at, scope),
                MPLS_IN_UDP => mpls(data, at),
                TZSP => tzsp(data, at, scope),
                GENEVE => geneve(data, at, scope),
                GTP_U => gtp_u(data, at),
                GUE => gue(data, at),
                GRE_IN_UDP => gre(data, at, scope),
                _ if source == TEREDO || destination == TEREDO => ip(data, at),
                _ => None,
            }?;
            if be16(data, outer.l4 + 6)? != 0 {
                inner.checksummed_udp = Some(outer.l4);
            }
            Some(inner)
        }
        _ => None,
    }
}

/// EtherType of Ethernet frames in GRE (RFC 1701).
const ETHERNET: u16 = 0x6558;

fn mpls(data: &[u8], at: usize) -> Option<Inner> {
    let (l3, version) = labels(data, at).ok()??;
    Some(Inner { l3, version, checksummed_udp: None })
}

fn ip(data: &[u8], at: usize) -> Option<Inner> {
    let (l3, version) = version_nibble(data, at).ok()?;
    Some(Inner { l3, version, checksummed_udp: None })
}

fn by_ether_type(data: &[u8], ether_type: u16, at: usize, scope: &mut Scope) -> Option<Inner> {
    let (l3, version) = match ether_type {
        0x0800 => (at, 4),
        0x86dd => (at, 6),
        ETHERNET => ethernet(data, at, scope)?,
        _ => shims(data, ether_type, at, scope).ok()??,
    };
    Some(Inner { l3, version, checksummed_udp: None })
}

/// Parses an inner Ethernet frame; its VLAN tags are added to the scope while there is room.
fn ethernet(data: &[u8], at: usize, scope: &mut Scope) -> Option<(usize, u8)> {
    shims(data, be16(data, at + 12)?, at + 14, scope).ok()?
}

/// Parses GRE (RFC 2784, RFC 2890): version 0 without routing and checksum, which would cover bytes
/// that NFs change.
fn gre(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    let flags = be16(data, at)?;
    if flags & 0xc007 != 0 {
        return None;
    }
    let mut next = at + 4;
    if flags & 0x2000 != 0 {
        *scope = scope.with_network(be32(data, next)?);
        next += 4;
    }
    if flags & 0x1000 != 0 {
        next += 4;
    }
    match be16(data, at + 2)? {
        // Type I has neither sequence numbers nor a header of its own.
        ERSPAN if flags & 0x1000 == 0 => by_ether_type(data, ETHERNET, next, scope),
        ERSPAN => erspan(data, next, scope),
        ERSPAN_3 => erspan(data, next, scope),
        ether_type => by_ether_type(data, ether_type, next, scope),
    }
}

/// Parses ERSPAN (draft-foschiano-erspan): type II has 8 bytes, type III 12, or 20 with a platform
/// subheader. VLAN and session are not part of the flow's key: the mirrored frame's own tags are.
fn erspan(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    let header_len = match data.get(at)? >> 4 {
        1 => 8,
        2 if data.get(at + 11)? & 1 != 0 => 20,
        2 => 12,
        _ => return None,
    };
    by_ether_type(data, ETHERNET, at + header_len, scope)
}

/// Parses TZSP: version 1, a received or sent Ethernet packet; fields up to the end marker.
fn tzsp(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    const FIELDS_MAX: usize = 32;
    const OF_ETHERNET: u16 = 1;
    const PADDING: u8 = 0;
    const END: u8 = 1;
    if *data.get(at)? != 1 || be16(data, at + 2)? != OF_ETHERNET {
        return None;
    }
    let mut next = at + 4;
    for _ in 0..FIELDS_MAX {
        next += match *data.get(next)? {
            END => return by_ether_type(data, ETHERNET, next + 1, scope),
            PADDING => 1,
            _ => 2 + usize::from(*data.get(next + 1)?),
        };
    }
    None
}

/// Parses VXLAN (RFC 7348 5).
fn vxlan(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    if be32(data, at)? & 0x0800_0000 == 0 {
        return None;
    }
    *scope = scope.with_network(be32(data, at + 4)? >> 8);
    by_ether_type(data, ETHERNET, at + 8, scope)
}

/// Parses VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe 3): a header with a next protocol.
fn vxlan_gpe(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    let word = be32(data, at)?;
    let ether_type = match (word & 0x3c00_0000 == 0x0c00_0000, word as u8) {
        (true, 1) => 0x0800,
        (true, 2) => 0x86dd,
        (true, 3) => ETHERNET,
        _ => return None,
    };
    *scope = scope.with_network(be32(data, at + 4)? >> 8);
    by_ether_type(data, ether_type, at + 8, scope)
}

/// Parses Geneve (RFC 8926 3.4).
fn geneve(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    let word = be32(data, at)?;
    if word >> 30 != 0 {
        return None;
    }
    *scope = scope.with_network(be32(data, at + 4)? >> 8);
    let options = ((word >> 24) & 0x3f) as usize * 4;
    by_ether_type(data, word as u16, at + 8 + options, scope)
}

/// Parses GTP-U (3GPP TS 29.281 5.1): a G-PDU, with optional fields and extension headers. The
/// tunnel identifier is not part of the flow's key, as it differs between the directions of a
/// session.
fn gtp_u(data: &[u8], at: usize) -> Option<Inner> {
    let word = be32(data, at)?;
    let (flags, kind) = ((word >> 24) as u8, (word >> 16) as u8);
    if flags >> 4 != 0b0011 || kind != 255 {
        return None;
    }
    let mut next = at + 8;
    if flags & 0b111 != 0 {
        let mut extension = *data.get(next + 3)?;
        next += 4;
        for _ in 0..EXTENSION_MAX {
            if flags & 0b100 == 0 || extension == 0 {
                return ip(data, next);
            }
            let len = usize::from(*data.get(next)?) * 4;
            if len == 0 {
                return None;
            }
            extension = *data.get(next + len - 1)?;
            next += len;
        }
        return None;
    }
    ip(data, next)
}

/// Parses generic UDP encapsulation: variant 0 with an IP protocol, and variant 1 (plain IP).
fn gue(data: &[u8], at: usize) -> Option<Inner> {
    let word = be32(data, at)?;
    if word >> 30 == 1 {
        return ip(data, at);
    }
    let (variant, control, words) = (word >> 30, word >> 29 & 1, (word >> 24 & 0x1f) as usize);
    match (variant, control, (word >> 16) as u8) {
        (0, 0, protocol::IPV4 | protocol::IPV6) => ip(data, at + 4 + words * 4),
        _ => None,
    }
}
