//! A value that is emitted and parsed is unchanged; values that do not fit are refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use packet::wire::*;
use proptest::prelude::*;

/// Emits into a dirty buffer that is longer than needed. Checks that no byte after the header
/// changed, and that one byte less of room is refused.
fn emitted(
    len: usize,
    payload_len: usize,
    emit: impl Fn(&mut [u8]) -> Result<(), WireError>,
) -> Result<Vec<u8>, TestCaseError> {
    let mut bytes = vec![0xa5; len + payload_len];
    prop_assert_eq!(emit(&mut bytes), Ok(()));
    prop_assert!(bytes[len..].iter().all(|byte| *byte == 0xa5));
    let refused = emit(&mut vec![0; len - 1]);
    prop_assert!(matches!(refused, Err(WireError::NoRoom { .. })), "{:?}", refused);
    Ok(bytes)
}

fn mac() -> impl Strategy<Value = MacAddress> {
    any::<[u8; 6]>().prop_map(MacAddress)
}

fn ethertype() -> impl Strategy<Value = EtherType> {
    (1501u16..).prop_map(EtherType)
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn v4() -> impl Strategy<Value = IpAddresses> {
    any::<(u32, u32)>().prop_map(|(source, destination)| IpAddresses::V4 {
        source: source.into(),
        destination: destination.into(),
    })
}

fn v6() -> impl Strategy<Value = IpAddresses> {
    any::<(u128, u128)>().prop_map(|(source, destination)| IpAddresses::V6 {
        source: source.into(),
        destination: destination.into(),
    })
}

fn data_number() -> impl Strategy<Value = mptcp::DataNumber> {
    use mptcp::DataNumber::{Long, Short};
    prop_oneof![any::<u32>().prop_map(Short), any::<u64>().prop_map(Long)]
}

fn multipath() -> impl Strategy<Value = mptcp::Repr> {
    use mptcp::*;
    let data = any::<Option<(u16, Option<u16>)>>();
    let keys = prop_oneof![
        Just(CapableKeys::None),
        any::<u64>().prop_map(CapableKeys::Sender),
        (any::<(u64, u64)>(), data).prop_map(|((sender, receiver), data)| CapableKeys::Both {
            sender,
            receiver,
            data
        }),
    ];
    let capable = (0u8..16, any::<(bool, bool)>(), keys).prop_map(|(version, flags, keys)| {
        Repr::Capable(MptcpCapable { version, checksums: flags.0, uses_hmac: flags.1, keys })
    });
    let join = prop_oneof![
        any::<(bool, u8, u32, u32)>().prop_map(|(backup, address_id, token, nonce)| MptcpJoin::Syn {
            backup,
            address_id,
            token,
            nonce
        }),
        any::<(bool, u8, [u8; 8], u32)>().prop_map(|(backup, address_id, hmac, nonce)| {
            MptcpJoin::SynAck { backup, address_id, hmac, nonce }
        }),
        any::<[u8; HMAC_LEN]>().prop_map(|hmac| MptcpJoin::Ack { hmac }),
    ];
    let mapping = (data_number(), any::<(u32, u16, Option<u16>)>())
        .prop_map(|(data, (subflow, len, checksum))| DataMapping { data, subflow, len, checksum });
    let signal = (any::<bool>(), prop::option::of(data_number()), prop::option::of(mapping)).prop_map(
        |(data_fin, ack, mapping)| Repr::DataSequence(DataSequenceSignal { data_fin, ack, mapping }),
    );
    prop_oneof![
        capable,
        join.prop_map(Repr::Join),
        signal,
        (3u8..16).prop_map(|subtype| Repr::Other { subtype })
    ]
}

proptest! {
    #[test]
    fn mptcp(repr in multipath()) {
        let bytes = emitted(repr.buffer_len(), 0, |buffer| repr.emit(buffer))?;
        prop_assert_eq!(mptcp::Repr::parse(&bytes), Ok(repr));
    }

    #[test]
    fn ethernet(destination in mac(), source in mac(), ethertype in ethertype()) {
        let repr = ethernet::Repr { destination, source, ethertype };
        let bytes = emitted(repr.buffer_len(), 5, |buffer| repr.emit(buffer))?;
        prop_assert_eq!(ethernet::Repr::parse(&ethernet::Frame::new_checked(&bytes).unwrap()), Ok(repr));
    }

    #[test]
    fn vlan(pcp in 0u8..8, dei: bool, vid in 0u16..4096, ethertype in ethertype()) {
        let repr = vlan::Repr { pcp, dei, vid, ethertype };
        let bytes = emitted(repr.buffer_len(), 5, |buffer| repr.emit(buffer))?;
        prop_assert_eq!(vlan::Repr::parse(&vlan::Tag::new_checked(&bytes).unwrap()), repr);
    }

    #[test]
    fn arp(operation: u16, hardware in [mac(), mac()], sender: u32, target: u32) {
        let repr = arp::Repr {
            operation: arp::Operation(operation),
            sender_hardware: hardware[0],
            sender_protocol: sender.into(),
            target_hardware: hardware[1],
            target_protocol: target.into(),
        };
        let bytes = emitted(repr.buffer_len(), 18, |buffer| repr.emit(buffer))?;
        prop_assert_eq!(arp::Repr::parse(&arp::Packet::new_checked(&bytes).unwrap()), Ok(repr));
    }

    #[test]
    fn ipv4(
        (dscp, ecn, ident, flags) in (0u8..64, 0u8..4, any::<u16>(), any::<(bool, bool)>()),
        fragment in 0u16..8192, ttl: u8, protocol: u8, source: u32, destination: u32, payload_len in 0u16..100,
    ) {
        let repr = ipv4::Repr {
            dscp, ecn, ident, dont_fragment: flags.0, more_fragments: flags.1, fragment_offset: fragment * 8, ttl,
            protocol: IpProtocol(protocol), source: source.into(), destination: destination.into(), payload_len,
        };
        let bytes = emitted(repr.buffer_len(), payload_len.into(), |buffer| repr.emit(buffer))?;
        let packet = ipv4::Packet::new_checked(&bytes).unwrap();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!(packet.payload().len(), usize::from(payload_len));
        prop_assert_eq!(ipv4::Repr::parse(&packet), repr);
    }

    #[test]
    fn ipv6(
        traffic_class: u8, flow_label in 0u32..1 << 20, next_header: u8, hop_limit: u8,
        source: u128, destination: u128, payload_len in 0u16..100,
    ) {
        let repr = ipv6::Repr {
            traffic_class, flow_label, next_header: IpProtocol(next_header), hop_limit,
            source: source.into(), destination: destination.into(), payload_len,
        };
        let bytes = emitted(repr.buffer_len(), payload_len.into(), |buffer| repr.emit(buffer))?;
        let packet = ipv6::Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.payload().len(), usize::from(payload_len));
        prop_assert_eq!(ipv6::Repr::parse(&packet), repr);
    }

    #[test]
    fn tcp(
        ports: (u16, u16), numbers: (u32, u32), flags in 0u16..512, window: u16, urgent_pointer: u16,
        max_segment_size: Option<u16>, payload_len in 0usize..50, addresses in prop_oneof![v4(), v6()],
    ) {
        let repr = tcp::Repr {
            source_port: ports.0, destination_port: ports.1, sequence_number: numbers.0,
            acknowledgment_number: numbers.1, flags: tcp::Flags(flags), window, urgent_pointer, max_segment_size,
        };
        let mut bytes = emitted(repr.buffer_len(), payload_len, |buffer| repr.emit(buffer))?;
        let mut packet = tcp::Packet::new_checked(&mut bytes).unwrap();
        packet.fill_checksum(addresses);
        prop_assert!(packet.verify_checksum(addresses));
        prop_assert_eq!(tcp::Repr::parse(&packet), repr);
    }

    #[test]
    fn udp(ports: (u16, u16), payload_len in 0u16..50, addresses in prop_oneof![v4(), v6()]) {
        let repr = udp::Repr { source_port: ports.0, destination_port: ports.1, payload_len };
        let mut bytes = emitted(repr.buffer_len(), payload_len.into(), |buffer| repr.emit(buffer))?;
        let mut packet = udp::Packet::new_checked(&mut bytes).unwrap();
        packet.fill_checksum(addresses);
        prop_assert!(packet.verify_checksum(addresses));
        prop_assert_eq!(udp::Repr::parse(&packet), repr);
    }

    #[test]
    fn icmpv4(kind in 0usize..5, ident: u16, sequence_number: u16, code: u8, pointer: u8, data in bytes(64)) {
        let data = &data[..];
        let repr = [
            icmpv4::Repr::EchoRequest { ident, sequence_number, data },
            icmpv4::Repr::EchoReply { ident, sequence_number, data },
            icmpv4::Repr::DestinationUnreachable { code, next_hop_mtu: ident, original: data },
            icmpv4::Repr::TimeExceeded { code, original: data },
            icmpv4::Repr::ParameterProblem { code, pointer, original: data },
        ][kind];
        let bytes = emitted(repr.buffer_len(), 0, |buffer| repr.emit(buffer))?;
        let packet = icmpv4::Packet::new_checked(&bytes).unwrap();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!(icmpv4::Repr::parse(&packet), Ok(repr));
    }

    #[test]
    fn icmpv6(
        kind in 0usize..6, ident: u16, sequence_number: u16, code: u8, mtu: u32, data in bytes(64), addresses in v6(),
    ) {
        let data = &data[..];
        let repr = [
            icmpv6::Repr::EchoRequest { ident, sequence_number, data },
            icmpv6::Repr::EchoReply { ident, sequence_number, data },
            icmpv6::Repr::DestinationUnreachable { code, original: data },
            icmpv6::Repr::PacketTooBig { mtu, original: data },
            icmpv6::Repr::TimeExceeded { code, original: data },
            icmpv6::Repr::ParameterProblem { code, pointer: mtu, original: data },
        ][kind];
        let bytes = emitted(repr.buffer_len(), 0, |buffer| repr.emit(addresses, buffer))?;
        let packet = icmpv6::Packet::new_checked(&bytes).unwrap();
        prop_assert!(packet.verify_checksum(addresses));
        prop_assert_eq!(icmpv6::Repr::parse(&packet), Ok(repr));
    }

    #[test]
    fn gre(protocol in ethertype(), has_checksum: bool, key: Option<u32>, sequence_number: Option<u32>) {
        let repr = gre::Repr { protocol, has_checksum, key, sequence_number };
        let mut bytes = emitted(repr.buffer_len(), 7, |buffer| repr.emit(buffer))?;
        let mut packet = gre::Packet::new_checked(&mut bytes).unwrap();
        packet.fill_checksum();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!(packet.payload(), [0xa5; 7]);
        prop_assert_eq!(gre::Repr::parse(&packet), Ok(repr));
    }

    #[test]
    fn vxlan(vni in 0u32..1 << 24) {
        let repr = vxlan::Repr { vni };
        let bytes = emitted(repr.buffer_len(), 7, |buffer| repr.emit(buffer))?;
        prop_assert_eq!(vxlan::Repr::parse(&vxlan::Packet::new_checked(&bytes).unwrap()), Ok(repr));
    }

    #[test]
    fn geneve(
        is_control: bool, protocol in ethertype(), vni in 0u32..1 << 24,
        list in prop::collection::vec((any::<u16>(), any::<u8>(), prop::collection::vec(any::<u32>(), 0..7)), 0..8),
    ) {
        let list: Vec<(u16, u8, Vec<u8>)> = list
            .into_iter()
            .map(|(class, kind, words)| (class, kind, words.into_iter().flat_map(u32::to_be_bytes).collect()))
            .collect();
        let mut options = Vec::new();
        for (class, kind, data) in &list {
            let option = geneve::GeneveOption { class: *class, kind: *kind, data };
            options.extend(emitted(option.buffer_len(), 0, |buffer| option.emit(buffer))?);
        }
        let repr = geneve::Repr { is_control, protocol, vni, options: &options };
        let bytes = emitted(repr.buffer_len(), 7, |buffer| repr.emit(buffer))?;
        let packet = geneve::Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(geneve::Repr::parse(&packet), Ok(repr));
        prop_assert_eq!(packet.payload(), [0xa5; 7]);
        let parsed: Vec<_> = packet
            .options()
            .map(|option| option.map(|option| (option.class, option.kind, option.data.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(parsed, list);
    }

    #[test]
    fn gue(is_control: bool, proto_ctype: u8, flags: u16, words in prop::collection::vec(any::<u32>(), 0..32)) {
        let fields: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let repr = gue::Repr { is_control, proto_ctype: IpProtocol(proto_ctype), flags, fields: &fields };
        let bytes = emitted(repr.buffer_len(), 7, |buffer| repr.emit(buffer))?;
        let packet = gue::Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(gue::Repr::parse(&packet), repr);
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let unrepresentable = |result: Result<(), WireError>| {
        assert!(matches!(result, Err(WireError::Unrepresentable { .. })), "{result:?}");
    };
    let mut buffer = [0; 400];
    let mac = MacAddress::BROADCAST;
    unrepresentable(
        ethernet::Repr { destination: mac, source: mac, ethertype: EtherType(1500) }.emit(&mut buffer),
    );
    let tag = vlan::Repr { pcp: 8, dei: false, vid: 0, ethertype: EtherType::IPV4 };
    unrepresentable(tag.emit(&mut buffer));
    unrepresentable(vlan::Repr { pcp: 0, vid: 4096, ..tag }.emit(&mut buffer));
    unrepresentable(udp::Repr { source_port: 0, destination_port: 0, payload_len: 65528 }.emit(&mut buffer));
    unrepresentable(vxlan::Repr { vni: 1 << 24 }.emit(&mut buffer));
    let options = [0; geneve::OPTIONS_LEN_MAX + 4];
    let geneve = geneve::Repr { is_control: false, protocol: EtherType::IPV4, vni: 0, options: &options };
    unrepresentable(geneve.emit(&mut buffer));
    unrepresentable(geneve::Repr { vni: 1 << 24, options: &[], ..geneve }.emit(&mut buffer));
    unrepresentable(gue::Repr { fields: &[0; 3], ..gue::Repr::data(IpProtocol::IPV4) }.emit(&mut buffer));
}
