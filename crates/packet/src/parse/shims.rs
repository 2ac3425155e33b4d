//! Between the link layer and IP: VLAN tags, MPLS labels, PPPoE and LLC/SNAP.

use super::{SHIM_MAX, be16, be32};
use crate::{DropReason, Scope};

/// Skips VLAN tags, MPLS labels and PPPoE between the link layer and IP.
#[cold]
pub(super) fn shims(
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
            1..=LENGTH_MAX => {
                let Some(found) = llc(data, at) else { return Ok(None) };
                (ether_type, at) = (found, at + LLC_SNAP_LEN);
            }
            _ => return Ok(None),
        }
    }
    Err(DropReason::LinkTooDeep)
}

/// The longest payload of an IEEE 802.3 frame: up to this value, the EtherType field is a length.
pub(crate) const LENGTH_MAX: u16 = 1500;

/// Length of an LLC header with SNAP.
pub(super) const LLC_SNAP_LEN: usize = 8;

/// Returns the EtherType of LLC with SNAP (RFC 1042; OUI 00-00-F8 is that of bridges, IEEE 802.1H).
/// `None` for other LLC protocols.
pub(super) fn llc(data: &[u8], at: usize) -> Option<u16> {
    match data.get(at..at + LLC_SNAP_LEN)? {
        &[0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, high, low] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// Finds an IP packet; only its first nibble gives the version.
pub(super) fn version_nibble(data: &[u8], at: usize) -> Result<(usize, u8), DropReason> {
    match data.get(at).map(|byte| byte >> 4) {
        Some(version @ (4 | 6)) => Ok((at, version)),
        Some(_) => Err(DropReason::IpVersion),
        None => Err(DropReason::LinkTruncated),
    }
}

/// Skips an MPLS label stack (RFC 3032); IP follows if the first nibble says so (RFC 4928).
pub(super) fn labels(data: &[u8], mut at: usize) -> Result<Option<(usize, u8)>, DropReason> {
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

pub(super) fn ppp_ether_type(ppp_protocol: u16) -> u16 {
    match ppp_protocol {
        0x0021 => 0x0800,
        0x0057 => 0x86dd,
        0x0281 => 0x8847,
        _ => 0,
    }
}
