//! Any bytes as a frame of any link type: parsing does not panic, and rewriting is reversible.
//!
//! Input: link type, mode, bytes cut by the capture, then the frame.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::{PacketClass, End, FlowHasher, LinkType, Packet, Parser, parse};

const LINKS: [u16; 8] = [1, 101, 0, 108, 9, 113, 276, 105];

fuzz_target!(|data: &[u8]| {
    let [link, mode, cut, frame @ ..] = data else { return };
    let parser = Parser {
        inner: mode & 1 != 0,
        verify_ipv4_checksum: mode & 2 != 0,
        ignore_vlans: mode & 4 != 0,
        offloaded: mode & 8 != 0,
        ..Parser::new(FlowHasher::new(1))
    };
    let mut packet = Packet::from_bytes(frame);
    let meta = packet.meta_mut();
    meta.link = LinkType::from_number(LINKS[usize::from(*link) % LINKS.len()]);
    meta.wire_len = meta.wire_len.saturating_add(u32::from(*cut));
    if parser.parse(&mut packet).is_err() || packet.meta().class == PacketClass::NotIp {
        return;
    }
    let meta = packet.meta().clone();
    assert!(meta.outer_l3 <= meta.l3 && meta.l3 < meta.l4 && meta.l4 <= meta.payload);
    assert!(usize::from(meta.payload) <= packet.len());
    parse::fragment_id(&packet);
    parse::portless_key(&packet);

    let before = packet.data().to_vec();
    let (source, destination) = parse::ends(&packet);
    // Only addresses of the packet's own version: a mapped one in IPv6 is refused.
    if packet.set_end(End::Source, destination).is_ok() && packet.set_end(End::Source, source).is_ok() {
        assert_eq!(without_checksums(&packet), without_checksums_of(&before, &packet));
    }
    if let Some(quoted) = parse::embedded(packet.data(), meta.l4.into(), meta.version) {
        assert!(quoted.l4 <= packet.len());
    }
    let _ = packet.set_embedded_end(End::Destination, source);
    packet.set_dscp(mode >> 2);
    packet.decrement_ttl();
    let (l3, len) = (packet.meta().l3, packet.len());
    let header = [0x45; 20];
    if packet.encap_bytes(&header, 4).is_ok() {
        assert_eq!(packet.strip_outer(header.len(), meta_version(&packet, &meta)), Ok(()));
        assert_eq!(packet.meta().l3, l3);
        assert!(packet.len() <= len);
    }
});

/// Returns the IP version of the packet before its encapsulation.
fn meta_version(packet: &Packet, meta: &packet::Meta) -> u8 {
    packet.data().get(usize::from(meta.outer_l3) + 20).map_or(4, |byte| byte >> 4)
}

/// Wrong checksums may return as the other form of zero: all other bytes must be equal.
fn without_checksums(packet: &Packet) -> Vec<u8> {
    without_checksums_of(packet.data(), packet)
}

fn without_checksums_of(bytes: &[u8], packet: &Packet) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let meta = packet.meta();
    let transport = match meta.protocol {
        6 => 16,
        17 | 33 | 136 => 6,
        _ => 2,
    };
    let udp = usize::from(meta.outer_udp);
    for at in [usize::from(meta.l3) + 10, usize::from(meta.l4) + transport, udp + 6] {
        let there =
            if at == udp + 6 { udp != 0 } else { at != usize::from(meta.l3) + 10 || meta.version == 4 };
        if there && let Some(field) = bytes.get_mut(at..at + 2) {
            field.fill(0);
        }
    }
    bytes
}
