//! Looking into tunnels: where the next IP header inwards begins, if the packet carries one.

use super::link::{shims, version_nibble};
use super::network::Found;
use super::{EXTENSION_MAX, be16, be32, protocol};
use crate::{Class, Scope};

/// UDP ports by which tunnels are known (IANA).
pub(crate) const VXLAN: u16 = 4789;
pub(crate) const GENEVE: u16 = 6081;
pub(crate) const GUE: u16 = 6080;
pub(crate) const GRE_IN_UDP: u16 = 4754;
const GTP_U: u16 = 2152;
const TEREDO: u16 = 3544;

/// An inner IP header.
pub(super) struct Inner {
    pub l3: usize,
    pub version: u8,
    /// The UDP header around it, if that has a checksum which a change within must keep right.
    pub checksummed_udp: Option<usize>,
}

/// Goes one tunnel inwards; none if the packet is not one that we know.
pub(super) fn enter(data: &[u8], outer: &Found, scope: &mut Scope) -> Option<Inner> {
    if outer.class != Class::Whole {
        return None; // A fragment of a tunnel packet: its inner packet is not here as a whole.
    }
    let data = data.get(..outer.end)?;
    match outer.protocol {
        protocol::IPV4 => Some(Inner { l3: outer.l4, version: 4, checksummed_udp: None }),
        protocol::IPV6 => Some(Inner { l3: outer.l4, version: 6, checksummed_udp: None }),
        protocol::GRE => gre(data, outer.l4, scope),
        protocol::UDP => {
            let (source, destination) = (be16(data, outer.l4)?, be16(data, outer.l4 + 2)?);
            let at = outer.l4 + 8;
            let mut inner = match destination {
                VXLAN => vxlan(data, at, scope),
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

fn ip(data: &[u8], at: usize) -> Option<Inner> {
    let (l3, version) = version_nibble(data, at).ok()?;
    Some(Inner { l3, version, checksummed_udp: None })
}

fn by_ether_type(data: &[u8], ether_type: u16, at: usize, scope: &mut Scope) -> Option<Inner> {
    let (l3, version) = match ether_type {
        0x0800 => (at, 4),
        0x86dd => (at, 6),
        0x6558 => ethernet(data, at, scope)?,
        _ => shims(data, ether_type, at, scope).ok()??,
    };
    Some(Inner { l3, version, checksummed_udp: None })
}

/// An Ethernet frame within; its VLAN tags count to the scope as far as there is room.
fn ethernet(data: &[u8], at: usize, scope: &mut Scope) -> Option<(usize, u8)> {
    shims(data, be16(data, at + 12)?, at + 14, scope).ok()?
}

/// RFC 2784, RFC 2890; version 0 without routing, and without a checksum: that covers what functions change within.
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
    by_ether_type(data, be16(data, at + 2)?, next, scope)
}

/// RFC 7348 5.
fn vxlan(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    if be32(data, at)? & 0x0800_0000 == 0 {
        return None;
    }
    *scope = scope.with_network(be32(data, at + 4)? >> 8);
    by_ether_type(data, 0x6558, at + 8, scope)
}

/// RFC 8926 3.4.
fn geneve(data: &[u8], at: usize, scope: &mut Scope) -> Option<Inner> {
    let word = be32(data, at)?;
    if word >> 30 != 0 {
        return None;
    }
    *scope = scope.with_network(be32(data, at + 4)? >> 8);
    let options = ((word >> 24) & 0x3f) as usize * 4;
    by_ether_type(data, word as u16, at + 8 + options, scope)
}

/// 3GPP TS 29.281 5.1: a G-PDU, with its optional fields and extension headers. Its tunnel identifier is not part of the
/// flow's key: each direction of a session has one of its own.
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

/// Generic UDP encapsulation, variant 0 with an IP protocol, and variant 1 (plain IP).
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
