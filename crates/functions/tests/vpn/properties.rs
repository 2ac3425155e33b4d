//! Properties of all packets: the decapsulated packet equals the encapsulated one, and nothing else
//! comes out.

use packet::Side::{Inside, Outside};
use proptest::prelude::*;

use crate::meter_support::*;
use crate::pair::*;

/// Builds a packet from site 1 to site 2 with an arbitrary payload after its IP header.
fn packet_of(version: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (host(version, 1, 5_000), host(version, 2, 53));
    match protocol {
        0 => udp(source, destination, payload),
        1 => tcp(source, destination, 0x18, payload),
        2 => echo(source.addr, destination.addr, 9, false, payload),
        _ => ip(source.addr, destination.addr, 253, payload),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn encapsulated_packets_are_restored(
        protocol in 0usize..4,
        outer in prop::sample::select(vec![4u8, 6]),
        packets in prop::collection::vec(
            (prop::sample::select(vec![4u8, 6]), 0u8..4, prop::collection::vec(any::<u8>(), 0..1_300)),
            1..8,
        ),
    ) {
        let [mut one, mut other] = pair(PROTOCOLS[protocol], outer);
        for (version, kind, payload) in packets {
            let packet = packet_of(version, kind, &payload);
            let sent = one.through(NOW_NS, Inside, &packet);
            if outer == 4 {
                prop_assert!(checksums_are_right(&sent));
            }
            let expected = if outer == 4 { u16::from_be_bytes([sent[2], sent[3]]) } else { 40 + u16::from_be_bytes([sent[4], sent[5]]) };
            prop_assert_eq!(sent.len(), usize::from(expected));
            prop_assert_eq!(other.through(NOW_NS, Outside, &sent), routed(&packet, 2));
        }
    }

    /// A packet that is truncated, changed or made up is never decapsulated.
    #[test]
    fn forged_packets_are_refused(
        protocol in 0usize..4,
        outer_version in prop::sample::select(vec![4u8, 6]),
        keep in 0usize..60,
        rest in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let [mut one, mut other] = pair(PROTOCOLS[protocol], outer_version);
        let sent = one.through(NOW_NS, Inside, &packet_of(4, 0, b"payload"));
        let header = if outer_version == 4 { 20 } else { 40 };
        let mut forged = sent[..(header + keep).min(sent.len())].to_vec();
        forged.extend(&rest);
        prop_assume!(forged != sent);
        let len = if outer_version == 4 { forged.len() } else { forged.len() - 40 } as u16;
        let at = if outer_version == 4 { 2 } else { 4 };
        forged[at..at + 2].copy_from_slice(&len.to_be_bytes());
        prop_assert!(other.one(NOW_NS, Outside, &forged).is_empty());
    }
}

/// Returns whether routers may change this bit, which AH does not cover and ESP ignores.
fn is_mutable(protocol: &str, outer: u8, bit: usize) -> bool {
    let byte = bit / 8;
    if protocol == "ah" && outer == 4 {
        return matches!(byte, 1 | 8 | 10 | 11) || byte == 6 && bit % 8 >= 6;
    }
    if protocol == "ah" {
        return matches!(byte, 1..4 | 7) || byte == 0 && bit % 8 < 4;
    }
    byte < if outer == 4 { 20 } else { 40 }
}

#[test]
fn every_changed_bit_is_refused() {
    for protocol in PROTOCOLS {
        for outer in [4, 6] {
            let [mut one, mut other] = pair(protocol, outer);
            let sent = one.through(NOW_NS, Inside, &packet_of(4, 1, b"the payload"));
            for bit in 0..sent.len() * 8 {
                if is_mutable(protocol, outer, bit) {
                    continue;
                }
                let mut changed = sent.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let out = other.one(NOW_NS, Outside, &changed);
                let is_others = out.len() == 1 && out[0].1 == changed;
                // In the outer header: with another address or protocol, the packet is not for the
                // gateway.
                let is_header = bit / 8 < if outer == 4 { 20 } else { 40 };
                assert!(out.is_empty() || is_others && is_header, "{protocol} over {outer}, bit {bit}");
            }
            // None of them has moved the window, and the genuine packet still enters.
            assert_eq!(counted(&other, "packets_in"), 0);
            other.through(NOW_NS, Outside, &sent);
        }
    }
}
