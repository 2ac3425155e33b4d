//! The link layer: from the first byte of a frame to IP, past the Ethernet, PPP, Linux or BSD
//! header and past VLAN tags, MPLS labels, PPPoE and LLC/SNAP.

use super::shims::{ppp_ether_type, shims, version_nibble};
use super::{SHIM_MAX, be16, be32, link_types};
use crate::{DropReason, LinkType, Scope};

/// Finds the network header: its offset and IP version, or `None` if the frame is not IP.
#[inline]
pub(super) fn parse(
    data: &[u8],
    link: LinkType,
    scope: &mut Scope,
) -> Result<Option<(usize, u8)>, DropReason> {
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
        LinkType::Other(number) => return link_types::parse(data, number, scope),
    };
    match ether_type {
        0x0800 => Ok(Some((at, 4))),
        0x86dd => Ok(Some((at, 6))),
        _ => shims(data, ether_type, at, scope),
    }
}

/// Checks for MPLS, PPPoE or LLC between the link layer's header and IP.
#[cold]
pub(super) fn is_encapsulated(data: &[u8], link: LinkType) -> bool {
    let mut at = match link {
        LinkType::Ethernet => 12,
        LinkType::LinuxSll => 14,
        _ => return false,
    };
    for _ in 0..=SHIM_MAX {
        match be16(data, at) {
            Some(0x8100 | 0x88a8 | 0x9100) => at += 4,
            Some(0x0800 | 0x86dd) | None => return false,
            Some(_) => return true,
        }
    }
    true
}

/// Returns the IP version of the preceding BSD address family, in either byte order; the systems
/// differ on IPv6.
pub(crate) fn family(data: &[u8]) -> Option<u8> {
    let number = be32(data, 0)?;
    match if number > 0xffff { number.swap_bytes() } else { number } {
        2 => Some(4),
        10 | 24 | 28 | 30 => Some(6),
        _ => None,
    }
}
