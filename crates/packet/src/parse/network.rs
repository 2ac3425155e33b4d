//! The network layer: an IPv4 or IPv6 header up to the transport's, the kind of fragment, and the
//! captured length.

use super::extension;
use super::found::{Found, Whole, fragment_class};
use super::sanity::Sanity;
use super::source_route::has_source_route;
use crate::{Addr, DropReason, PacketClass};

/// Parses the IP header at `l3`, up to the transport header.
#[inline]
pub(super) fn parse(data: &[u8], l3: usize, version: u8, whole: Whole) -> Result<Found, DropReason> {
    if version == 4 { ipv4(data, l3, whole) } else { ipv6(data, l3, whole) }
}

/// Returns source and destination address of the IP header at `l3`.
#[inline]
pub(super) fn addresses(data: &[u8], l3: usize, version: u8) -> (Addr, Addr) {
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

/// Refuses an IPv4 header with a wrong checksum (RFC 1812 5.2.2). With `offloaded`, a checksum of 0
/// was left to a card.
pub(super) fn verify_ipv4(data: &[u8], l3: usize, offloaded: bool) -> Result<(), DropReason> {
    let header_len = usize::from(data.get(l3).map_or(0, |byte| byte & 0xf)) * 4;
    match data.get(l3..l3 + header_len) {
        Some(header) if crate::checksum::verify(crate::checksum::sum(header)) => Ok(()),
        Some(&[_, _, _, _, _, _, _, _, _, _, 0, 0, ..]) if offloaded => Ok(()),
        _ => Err(DropReason::Ipv4Checksum),
    }
}

/// Refuses source routes and a time to live of 0.
#[cold]
pub(super) fn check_sanity(data: &[u8], found: &Found, sanity: Sanity) -> Result<(), DropReason> {
    let header = data.get(found.l3..found.l4).unwrap_or_default();
    let ttl_at = if found.version == 4 { 8 } else { 7 };
    if sanity.ttl_zero && header.get(ttl_at) == Some(&0) {
        return Err(DropReason::TtlZero);
    }
    if sanity.source_routes && header.len() > ttl_at && has_source_route(header, found.version) {
        return Err(DropReason::SourceRoute);
    }
    Ok(())
}

/// Parses an IPv4 header (RFC 791 3.1).
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
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // An aggregate larger than the field (Linux "BIG TCP"), or one captured by the sender before
    // segmentation.
    let (total_len, whole) = if total_len == 0 && (rest.len() > 0xffff || whole.offloaded) {
        (rest.len(), whole)
    } else if total_len < header_len {
        return Err(DropReason::Ipv4TotalLength);
    } else {
        (total_len, whole.at_least(total_len <= rest.len(), DropReason::Ipv4TotalLength)?)
    };
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

/// Parses an IPv6 header and its extensions (RFC 8200 3 and 4).
fn ipv6(data: &[u8], l3: usize, whole: Whole) -> Result<Found, DropReason> {
    let rest = data.get(l3..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<40>() else {
        return Err(DropReason::Ipv6Truncated);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::IpVersion);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // A length of 0 is a jumbogram (RFC 2675) or an aggregate: the payload is what is available.
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
        class: PacketClass::Whole,
        whole,
    };
    if extension::is_extension(found.protocol) {
        extension::skip(&data[..end], &mut found)?;
    }
    Ok(found)
}

/// Returns the 16 bytes of a slice of that length.
#[inline]
fn array(bytes: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(bytes);
    out
}
