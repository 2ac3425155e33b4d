//! The contract of the views: after `new_checked`, no getter panics, whatever the bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use packet::wire::*;
use proptest::prelude::*;
use views::read_everything;

#[path = "support/views.rs"]
mod views;

/// Generates first bytes that pass the checks of a version, so that random bytes reach further.
fn first_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        vec![],
        vec![0x45],
        vec![0x4f],
        vec![0x60],
        vec![0x36, 255, 0],
        vec![0x11],
        vec![0x01],
        vec![0xaa, 0xaa, 3],
        vec![0xff, 3],
        vec![0xb0, 0],
    ])
}

/// Returns valid packets: a value of each kind, emitted.
fn valid_packets() -> Vec<Vec<u8>> {
    let v6 = IpAddresses::V6 { source: [1; 16].into(), destination: [2; 16].into() };
    let mac = MacAddress([2; 6]);
    let mut packets = Vec::new();
    let mut add = |len: usize, emit: &dyn Fn(&mut [u8]) -> Result<(), WireError>| {
        let mut bytes = vec![0xa5; len + 24];
        emit(&mut bytes).unwrap();
        packets.push(bytes);
    };
    let ethernet = ethernet::Repr { destination: mac, source: mac, ethertype: EtherType::IPV4 };
    add(14, &|bytes| ethernet.emit(bytes));
    let vlan = vlan::Repr { pcp: 1, dei: true, vid: 2, ethertype: EtherType::VLAN };
    add(4, &|bytes| vlan.emit(bytes));
    let arp = arp::Repr {
        operation: arp::Operation::REPLY,
        sender_hardware: mac,
        sender_protocol: [10, 0, 0, 1].into(),
        target_hardware: mac,
        target_protocol: [10, 0, 0, 2].into(),
    };
    add(28, &|bytes| arp.emit(bytes));
    let ipv4 = ipv4::Repr {
        dscp: 0,
        ecn: 0,
        ident: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 1,
        protocol: IpProtocol::UDP,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        payload_len: 20,
    };
    add(20, &|bytes| ipv4.emit(bytes));
    let ipv6 = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        next_header: IpProtocol::UDP,
        hop_limit: 1,
        source: [1; 16].into(),
        destination: [2; 16].into(),
        payload_len: 20,
    };
    add(40, &|bytes| ipv6.emit(bytes));
    let tcp = tcp::Repr {
        source_port: 1,
        destination_port: 2,
        sequence_number: 3,
        acknowledgment_number: 4,
        flags: tcp::Flags::SYN,
        window: 5,
        urgent_pointer: 0,
        max_segment_size: Some(1460),
    };
    add(24, &|bytes| tcp.emit(bytes));
    let udp = udp::Repr { source_port: 1, destination_port: 2, payload_len: 20 };
    add(8, &|bytes| udp.emit(bytes));
    let icmpv4 = icmpv4::Repr::TimeExceeded { code: 0, original: &[0x45; 28] };
    add(36, &|bytes| icmpv4.emit(bytes));
    let icmpv6 = icmpv6::Repr::PacketTooBig { mtu: 1280, original: &[0x60; 48] };
    add(56, &|bytes| icmpv6.emit(v6, bytes));
    let gre =
        gre::Repr { protocol: EtherType::IPV4, has_checksum: true, key: Some(1), sequence_number: Some(2) };
    add(16, &|bytes| gre.emit(bytes));
    add(8, &|bytes| vxlan::Repr { vni: 7 }.emit(bytes));
    let geneve = geneve::Repr {
        is_control: false,
        protocol: EtherType::ETHERNET,
        vni: 7,
        options: &[0, 1, 2, 1, 9, 9, 9, 9],
    };
    add(16, &|bytes| geneve.emit(bytes));
    add(4, &|bytes| gue::Repr::data(IpProtocol::IPV4).emit(bytes));
    // Those without a `Repr`.
    packets.push(vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45]);
    packets.push(vec![6, 1, 5, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    packets.push(vec![17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9]);
    packets.push(vec![0x36, 255, 0, 13, 0, 0, 0, 7, 0, 9, 0, 0x85, 1, 0x10, 5, 0x40, 1, 1, 2, 0, 0x45]);
    packets.push(vec![0x11, 0, 0, 7, 0, 3, 0, 0x21, 0x45]);
    packets.push(vec![0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x86, 0xdd, 0x60]);
    packets.push(vec![8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 1, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0x45]);
    packets.push(vec![0x30, 0x81, 0x88, 0x0b, 0, 1, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0xc0]);
    packets
}

#[test]
fn every_truncation_of_valid_packets() {
    for packet in valid_packets() {
        for len in 0..=packet.len() {
            read_everything(&packet[..len]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_bytes(first in first_bytes(), rest in prop::collection::vec(any::<u8>(), 0..200)) {
        read_everything(&[first, rest].concat());
    }

    /// Small bytes make lengths that fit.
    #[test]
    fn random_small_bytes(first in first_bytes(), rest in prop::collection::vec(0u8..24, 0..200)) {
        read_everything(&[first, rest].concat());
    }

    #[test]
    fn mutated_valid_packets(
        mut packet in prop::sample::select(valid_packets()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (index, value) in changes {
            let at = index.index(packet.len());
            packet[at] = value;
        }
        read_everything(&packet);
    }
}
