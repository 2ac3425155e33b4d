//! The transport layer: header length, ports or query identifier, and the classes of ICMP messages.

use super::found::Found;
use super::protocol;
use crate::{DropReason, Meta, PacketClass};

/// Checks the transport header and returns its ports.
#[inline]
pub(super) fn parse(data: &[u8], found: &mut Found, meta: &mut Meta) -> Result<(u16, u16), DropReason> {
    meta.payload = found.l4 as u16;
    if found.class == PacketClass::LaterFragment {
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

/// Returns source and destination port; a query identifier stands for both; 0 without ports.
#[inline]
pub(super) fn ports(data: &[u8], l4: usize, protocol: u8) -> (u16, u16) {
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

/// Checks for an error that quotes a packet: unreachable, quench, redirect, time exceeded,
/// parameter problem.
#[inline]
pub fn is_error(protocol: u8, kind: u8) -> bool {
    match protocol {
        protocol::ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => (1..=4).contains(&kind),
    }
}

/// Checks for a query or its answer, with an identifier: echo, timestamp, information, address
/// mask.
#[inline]
pub fn is_query(protocol: u8, kind: u8) -> bool {
    match protocol {
        protocol::ICMP => matches!(kind, 0 | 8 | 13..=18),
        _ => matches!(kind, 128 | 129),
    }
}

/// Parses a TCP header (RFC 9293 3.1).
#[inline]
fn tcp(body: &[u8], found: &Found, meta: &mut Meta) -> Result<usize, DropReason> {
    let Some(header) = body.first_chunk::<20>() else {
        // A first fragment without the whole header is an evasion (RFC 1858 3.1); a truncated
        // capture is not.
        let reason = if found.class == PacketClass::FirstFragment {
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
    if header_len > body.len() && found.class == PacketClass::Whole {
        found.whole.check(false, DropReason::TcpHeaderLength)?;
    }
    meta.tcp_flags = header[13];
    Ok(header_len)
}

/// Parses a UDP header (RFC 768). A length of 0 is valid only in jumbograms (RFC 2675 4).
#[inline]
fn udp(body: &[u8], found: &Found) -> Result<usize, DropReason> {
    let Some(header) = body.first_chunk::<8>() else {
        if found.whole.complete || body.len() < 4 {
            return Err(DropReason::UdpTruncated);
        }
        return Ok(8);
    };
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if found.class == PacketClass::Whole {
        let jumbo = len == 0 && body.len() > 0xffff;
        if len < 8 && !jumbo {
            return Err(DropReason::UdpLength);
        }
        found.whole.check(len <= body.len(), DropReason::UdpLength)?;
    }
    Ok(8)
}

/// Parses an ICMP header (RFC 792, RFC 4443). The header is assumed to have 8 bytes; four suffice
/// for types without a rest.
#[inline]
fn icmp(body: &[u8], found: &mut Found) -> Result<usize, DropReason> {
    let Some(&kind) = body.first() else {
        return Err(DropReason::IcmpTruncated);
    };
    if body.len() < 4 || (is_query(found.protocol, kind) && body.len() < 8) {
        found.whole.check(false, DropReason::IcmpTruncated)?;
    }
    if is_error(found.protocol, kind) && found.class == PacketClass::Whole {
        found.class = PacketClass::IcmpError;
    }
    Ok(8)
}

/// Parses a header that begins with two ports.
fn other(body: &[u8], found: &Found, header_len: usize) -> Result<usize, DropReason> {
    if body.len() < 4 {
        return Err(DropReason::TransportTruncated);
    }
    if found.class == PacketClass::Whole {
        found.whole.check(header_len <= body.len(), DropReason::TransportTruncated)?;
    }
    Ok(header_len)
}
