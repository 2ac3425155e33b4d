//! Open checksums of senders, detected and completed without metadata.
//!
//! A stack at a veth, or in a virtual machine, leaves the checksums of TCP and UDP to a card that
//! does not exist: their fields have the sum of the pseudo-header alone. Packet sockets report such
//! frames; AF_XDP and DPDK do not. Here the field shows it: if it has that very sum, the checksum
//! is calculated.
//!
//! A frame with a correct checksum stays the same. If the field `F` is the pseudo-header's sum `P`,
//! and correct, it is `!(P + D)` with the sum `D` of all else; calculated again it is `!(F + D)`,
//! the same. Of frames that were damaged on their way, one in 65,536 has such a field, and is
//! accepted: as many as the checksum itself lets through.

use packet::checksum;
use packet::wire::{EtherType, IpProtocol, gre, ipv4, ipv6, ipv6_walk, udp, vxlan};

use crate::port::network;
use crate::port::offload::finish;

/// Depth of nested tunnels that are inspected.
const DEPTH: u32 = 2;

const VXLAN_PORT: u16 = 4789;

/// Completes the open checksums of a frame; returns whether there were any.
pub fn complete(frame: &mut [u8]) -> bool {
    complete_frame(frame, DEPTH).unwrap_or(false)
}

fn complete_frame(frame: &mut [u8], depth: u32) -> Option<bool> {
    let (at, ethertype) = network(frame)?;
    complete_packet(&mut frame[at..], ethertype, depth)
}

fn complete_packet(packet: &mut [u8], ethertype: EtherType, depth: u32) -> Option<bool> {
    let (protocol, range, pseudo) = match ethertype {
        EtherType::IPV4 => {
            let header = ipv4::Packet::new_checked(&*packet).ok()?;
            if header.is_fragment() {
                return None;
            }
            let (protocol, range) = (header.protocol(), header.payload_range());
            let (source, destination) = (header.source(), header.destination());
            let len = range.len() as u16;
            (protocol, range, checksum::pseudo_header_v4(source, destination, protocol.0, len))
        }
        EtherType::IPV6 => {
            let header = ipv6::Packet::new_checked(&*packet).ok()?;
            let mut range = header.payload_range();
            let upper = ipv6_walk::walk(header.next_header(), &packet[range.clone()]).ok()?;
            if upper.fragment.is_some() {
                return None;
            }
            range.start += upper.offset;
            let (source, destination) = (header.source(), header.destination());
            let len = range.len() as u32;
            (upper.protocol, range, checksum::pseudo_header_v6(source, destination, upper.protocol.0, len))
        }
        _ => return None,
    };
    let payload = packet.get_mut(range)?;
    match protocol {
        IpProtocol::TCP => complete_field(payload, 16, pseudo),
        IpProtocol::UDP => {
            // The inner packet is completed first, because the outer checksum covers it.
            let inner = udp::Packet::new_checked(&*payload)
                .is_ok_and(|header| header.destination_port() == VXLAN_PORT && depth > 0)
                .then(|| complete_frame(payload.get_mut(udp::HEADER_LEN + vxlan::HEADER_LEN..)?, depth - 1));
            let outer = complete_field(payload, 6, pseudo);
            Some(inner.flatten().unwrap_or(false) | outer?)
        }
        IpProtocol::IPV4 if depth > 0 => complete_packet(payload, EtherType::IPV4, depth - 1),
        IpProtocol::IPV6 if depth > 0 => complete_packet(payload, EtherType::IPV6, depth - 1),
        IpProtocol::GRE if depth > 0 => {
            let header = gre::Packet::new_checked(&*payload).ok()?;
            let (range, ethertype) = (header.payload_range(), header.protocol());
            complete_packet(payload.get_mut(range)?, ethertype, depth - 1)
        }
        _ => None,
    }
}

/// Completes the checksum in the segment's field at this offset, if the field is the sum of the
/// pseudo-header.
fn complete_field(segment: &mut [u8], at: usize, pseudo: u32) -> Option<bool> {
    let field: &[u8; 2] = segment.get(at..)?.first_chunk()?;
    let field = u16::from_be_bytes(*field);
    if u32::from(field) != pseudo {
        return Some(false);
    }
    let sum = finish(checksum::sum(segment), at);
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(sum != field)
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, PacketHeaders};
    use proptest::prelude::*;

    use super::*;

    /// Builds a frame with a complete checksum, by another implementation; returns the checksum's
    /// offset, too.
    fn frame(is_v4: bool, is_tcp: bool, payload: &[u8]) -> (Vec<u8>, usize) {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut bytes = Vec::new();
        let ip = match is_v4 {
            true => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            false => link.ipv6([0xfd; 16], [0xfe; 16], 64),
        };
        match is_tcp {
            true => ip.tcp(1000, 80, 7, 512).write(&mut bytes, payload),
            false => ip.udp(1000, 53).write(&mut bytes, payload),
        }
        .unwrap();
        let transport = 14 + if is_v4 { 20 } else { 40 };
        (bytes, transport + if is_tcp { 16 } else { 6 })
    }

    /// Returns the same frame as a stack leaves it.
    fn open(whole: &[u8], field: usize, is_v4: bool, is_tcp: bool) -> Vec<u8> {
        let mut open = whole.to_vec();
        let len = (open.len() - field + if is_tcp { 16 } else { 6 }) as u16;
        let protocol = if is_tcp { 6 } else { 17 };
        let pseudo = match is_v4 {
            true => checksum::pseudo_header_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol, len),
            false => checksum::pseudo_header_v6([0xfd; 16].into(), [0xfe; 16].into(), protocol, len.into()),
        };
        open[field..][..2].copy_from_slice(&(pseudo as u16).to_be_bytes());
        open
    }

    /// Returns the frame's packet in a tunnel between the same machines.
    fn in_tunnel(kind: u8, inner: &[u8], is_v4: bool) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
        let mut bytes = Vec::new();
        let protocol = if is_v4 { 4 } else { 41 };
        match kind {
            0 => link.write(&mut bytes, protocol.into(), &inner[14..]).unwrap(),
            1 => {
                let ethertype: [u8; 2] = if is_v4 { [8, 0] } else { [0x86, 0xdd] };
                let payload = [&[0, 0], &ethertype[..], &inner[14..]].concat();
                link.write(&mut bytes, 47.into(), &payload).unwrap();
            }
            _ => {
                let payload = [&[8, 0, 0, 0, 0, 0, 5, 0], inner].concat();
                link.udp(4000, VXLAN_PORT).write(&mut bytes, &payload).unwrap();
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn an_open_checksum_is_completed_also_in_tunnels(
            is_v4: bool, is_tcp: bool, tunnel in prop::option::of(0u8..3), payload: Vec<u8>,
        ) {
            let (whole, field) = frame(is_v4, is_tcp, &payload);
            let open = open(&whole, field, is_v4, is_tcp);
            let put = |frame: &[u8]| match tunnel {
                Some(kind) => in_tunnel(kind, frame, is_v4),
                None => frame.to_vec(),
            };
            let (whole, mut frame) = (put(&whole), put(&open));
            if tunnel == Some(2) {
                // A stack calculates the outer checksum as if the inner one were complete.
                frame[14 + 20 + 6..][..2].copy_from_slice(&whole[14 + 20 + 6..][..2]);
            }
            let was_open = frame != whole;
            prop_assert_eq!(complete(&mut frame), was_open);
            prop_assert_eq!(&frame, &whole);
            prop_assert!(!complete(&mut frame));
        }

        #[test]
        fn a_right_checksum_stays_also_if_it_looks_open(is_v4: bool, is_tcp: bool, payload in prop::collection::vec(any::<u8>(), 2..40)) {
            // Two bytes of the payload make the correct checksum equal to the sum of the
            // pseudo-header.
            let (mut whole, field) = frame(is_v4, is_tcp, &payload);
            let len = whole.len() & !1;
            whole[len - 2..len].fill(0);
            let mut alike = open(&whole, field, is_v4, is_tcp);
            let segment = field - if is_tcp { 16 } else { 6 };
            let pseudo = u16::from_be_bytes([alike[field], alike[field + 1]]);
            let sum = checksum::sum(&alike[segment..]) + u32::from(pseudo);
            alike[len - 2..len].copy_from_slice(&checksum::finish(sum).to_be_bytes());
            let headers = PacketHeaders::from_ethernet_slice(&alike).unwrap();
            prop_assert!(headers.transport.is_some());
            let mut frame = alike.clone();
            prop_assert!(!complete(&mut frame));
            prop_assert_eq!(frame, alike);
        }

        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, is_v4: bool, is_tcp: bool, cut in 0usize..60, change in 0usize..60, to: u8) {
            let (mut frame, _) = frame(is_v4, is_tcp, &bytes);
            frame.truncate(frame.len().saturating_sub(cut));
            if let Some(byte) = frame.get_mut(change) {
                *byte = to;
            }
            complete(&mut frame);
        }
    }

    #[test]
    fn fragments_and_damaged_frames_stay_unchanged() {
        let (mut damaged, field) = frame(true, false, b"abcd");
        damaged[field] ^= 1;
        let mut frame = damaged.clone();
        assert!(!complete(&mut frame));
        assert_eq!(frame, damaged);
        let (whole, field) = self::frame(true, false, b"abcd");
        let mut first = open(&whole, field, true, false);
        first[14 + 6] = 0x20;
        let mut frame = first.clone();
        assert!(!complete(&mut frame));
        assert_eq!(frame, first);
    }
}
