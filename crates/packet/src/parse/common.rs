//! Fast path for common frames: untagged Ethernet, a whole IPv4 packet without options, TCP or UDP,
//! and a time to live above 0.
//!
//! It fills in exactly what the general parser would, and leaves everything unusual to that.

use super::protocol;
use crate::{FlowKey, LinkType, Meta, PacketClass};

/// EtherType of IPv4, then version 4 and five words of header, and an arbitrary byte.
const ETHER_IPV4: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
const ETHER_IPV4_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// Flags and fragment offset that are non-zero in a fragment.
const FRAGMENT_MASK: u16 = u16::from_le_bytes([0x3f, 0xff]);

const L3: usize = 14;
const L4: usize = 34;
const UDP_END: usize = L4 + 8;
const TCP_END: usize = L4 + 20;

/// Parses a common frame, leaving `hash` unset. Returns false if nothing was changed.
#[inline(always)]
pub(super) fn parse(data: &[u8], meta: &mut Meta) -> bool {
    let Some(h) = data.first_chunk::<UDP_END>() else { return false };
    let total_len = usize::from(be16(h, 16));
    let usual = meta.link == LinkType::Ethernet
        && u32::from_le_bytes(bytes(h, 12)) & ETHER_IPV4_MASK == ETHER_IPV4
        && u16::from_le_bytes(bytes(h, 20)) & FRAGMENT_MASK == 0
        && h[22] != 0
        && total_len + L3 <= data.len();
    if !usual {
        return false;
    }
    let protocol = h[23];
    match protocol {
        protocol::UDP => {
            let len = usize::from(be16(h, 38));
            if len < 8 || len + 20 > total_len {
                return false;
            }
            (meta.payload, meta.tcp_flags) = (UDP_END as u16, 0);
        }
        protocol::TCP => {
            let Some(h) = data.first_chunk::<TCP_END>() else { return false };
            let header_len = usize::from(h[46] >> 4) * 4;
            if header_len < 20 || header_len + 20 > total_len {
                return false;
            }
            (meta.payload, meta.tcp_flags) = ((L4 + header_len) as u16, h[47]);
        }
        _ => return false,
    }
    let source = (bytes(h, 26), bytes(h, L4));
    let destination = (bytes(h, 30), bytes(h, L4 + 2));
    let (key, reversed) = FlowKey::of_ipv4(source, destination, protocol, meta.key.place);
    meta.key = key;
    meta.reversed = reversed;
    meta.outer_l3 = L3 as u16;
    meta.l3 = L3 as u16;
    meta.l4 = L4 as u16;
    meta.outer_udp = 0;
    meta.protocol = protocol;
    meta.version = 4;
    meta.class = PacketClass::Whole;
    meta.plain_len = total_len as u16;
    true
}

#[inline(always)]
fn be16(h: &[u8; UDP_END], at: usize) -> u16 {
    u16::from_be_bytes(bytes(h, at))
}

#[inline(always)]
fn bytes<const N: usize>(h: &[u8; UDP_END], at: usize) -> [u8; N] {
    // With `array::from_fn`, each byte would be a call.
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = h[at + i];
    }
    bytes
}
