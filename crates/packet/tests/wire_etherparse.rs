//! `etherparse` as an independent oracle: the views accept what it accepts, and read the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use etherparse::{
    ArpPacketSlice, Ethernet2HeaderSlice, Icmpv4Slice, Icmpv6Slice, IpAuthHeaderSlice, IpNumber,
    Ipv4HeaderSlice, Ipv6ExtensionsSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, LinuxSllHeaderSlice,
    PacketBuilder, SingleVlanSlice, TcpHeaderSlice, TcpOptionElement, UdpSlice,
};
use packet::wire::tcp_option::TcpOption;
use packet::wire::*;
use proptest::prelude::*;

type Outcome = Result<(), TestCaseError>;

/// Reads `bytes` as each header that both sides know.
fn agree(bytes: &[u8]) -> Outcome {
    agree_on_link(bytes)?;
    agree_on_network(bytes)?;
    agree_on_extensions(bytes)?;
    agree_on_transport(bytes)
}

fn agree_on_link(bytes: &[u8]) -> Outcome {
    if let Ok(theirs) = Ethernet2HeaderSlice::from_slice(bytes)
        && theirs.ether_type().0 > 1500
    {
        let ours = ethernet::Frame::new_checked(bytes)?;
        prop_assert_eq!(ours.destination().0, theirs.destination());
        prop_assert_eq!(ours.source().0, theirs.source());
        prop_assert_eq!(ours.ethertype(), Some(EtherType(theirs.ether_type().0)));
    }
    if let Ok(theirs) = SingleVlanSlice::from_slice(bytes) {
        let ours = vlan::Tag::new_checked(bytes)?;
        prop_assert_eq!(ours.pcp(), theirs.priority_code_point().value());
        prop_assert_eq!(ours.dei(), theirs.drop_eligible_indicator());
        prop_assert_eq!(ours.vid(), theirs.vlan_identifier().value());
        prop_assert_eq!(ours.ethertype().0, theirs.ether_type().0);
        prop_assert_eq!(ours.payload(), theirs.payload_slice());
    }
    if let Ok(theirs) = LinuxSllHeaderSlice::from_slice(bytes) {
        let ours = sll::Packet::new_checked(bytes)?;
        prop_assert_eq!(ours.packet_type().0, u16::from(theirs.packet_type()));
        prop_assert_eq!(ours.hardware_type(), theirs.arp_hardware_type().0);
        prop_assert_eq!(ours.address_len(), theirs.sender_address_valid_length());
        prop_assert_eq!(ours.protocol().0, u16::from(theirs.protocol_type()));
    }
    if let Ok(theirs) = ArpPacketSlice::from_slice(bytes) {
        let ours = arp::Packet::new_checked(bytes)?;
        prop_assert_eq!(ours.hardware_type(), theirs.hw_addr_type().0);
        prop_assert_eq!(ours.protocol_type().0, theirs.proto_addr_type().0);
        prop_assert_eq!(ours.operation().0, theirs.operation().0);
        prop_assert_eq!(ours.sender_hardware(), theirs.sender_hw_addr());
        prop_assert_eq!(ours.sender_protocol(), theirs.sender_protocol_addr());
        prop_assert_eq!(ours.target_hardware(), theirs.target_hw_addr());
        prop_assert_eq!(ours.target_protocol(), theirs.target_protocol_addr());
    }
    Ok(())
}

fn agree_on_network(bytes: &[u8]) -> Outcome {
    // A total length below the header's is an error of the payload for etherparse, of the header
    // for us.
    if let Ok(theirs) = Ipv4HeaderSlice::from_slice(bytes)
        && theirs.payload_len().is_ok()
    {
        let ours = ipv4::Packet::new_checked_header(bytes)?;
        prop_assert_eq!(ours.header_len(), theirs.slice().len());
        prop_assert_eq!((ours.dscp(), ours.ecn()), (theirs.dcp().value(), theirs.ecn().value()));
        prop_assert_eq!(
            (ours.total_len(), ours.ident(), ours.ttl()),
            (theirs.total_len(), theirs.identification(), theirs.ttl())
        );
        prop_assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
        prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
        prop_assert_eq!(ours.fragment_offset(), theirs.fragments_offset().byte_offset());
        prop_assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
        prop_assert_eq!(ours.protocol().0, theirs.protocol().0);
        prop_assert_eq!(ours.checksum(), theirs.header_checksum());
        prop_assert_eq!(ours.source(), theirs.source_addr());
        prop_assert_eq!(ours.destination(), theirs.destination_addr());
        // etherparse drops the reserved flag.
        let mut filled = ours.as_ref().to_vec();
        filled[6] &= 0x7f;
        let mut filled = ipv4::Packet::new_checked_header(&mut filled)?;
        filled.fill_checksum();
        prop_assert_eq!(filled.checksum(), theirs.to_header().calc_header_checksum());
    }
    if let Ok(theirs) = Ipv6HeaderSlice::from_slice(bytes) {
        let ours = ipv6::Packet::new_checked_header(bytes)?;
        prop_assert_eq!(ours.traffic_class(), theirs.traffic_class());
        prop_assert_eq!(ours.flow_label(), theirs.flow_label().value());
        prop_assert_eq!(ours.payload_len(), theirs.payload_length());
        prop_assert_eq!(ours.next_header().0, theirs.next_header().0);
        prop_assert_eq!(ours.hop_limit(), theirs.hop_limit());
        prop_assert_eq!(ours.source(), theirs.source_addr());
        prop_assert_eq!(ours.destination(), theirs.destination_addr());
    }
    Ok(())
}

fn agree_on_extensions(bytes: &[u8]) -> Outcome {
    for kind in [0, 43, 44, 51, 60, 6] {
        let Ok((_, protocol, rest)) = Ipv6ExtensionsSlice::from_slice(IpNumber(kind), bytes) else {
            continue;
        };
        match ipv6_walk::walk(IpProtocol(kind), bytes) {
            // etherparse continues after the header of a later fragment, where there is only data.
            Ok(ours) if ours.fragment.is_some_and(|fragment| fragment.offset != 0) => {
                prop_assert!(ours.offset <= bytes.len() - rest.len());
            }
            Ok(ours) => {
                prop_assert_eq!((ours.protocol.0, ours.offset), (protocol.0, bytes.len() - rest.len()));
            }
            Err(WireError::TooMany { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Ok(theirs) = Ipv6FragmentHeaderSlice::from_slice(bytes) {
        let ours = ipv6_ext::Fragment::new_checked(bytes)?;
        prop_assert_eq!(ours.fragment_offset(), theirs.fragment_offset().byte_offset());
        prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
        prop_assert_eq!(ours.ident(), theirs.identification());
        prop_assert_eq!(!ours.info().is_atomic(), theirs.is_fragmenting_payload());
    }
    if let Ok(theirs) = IpAuthHeaderSlice::from_slice(bytes) {
        let ours = ipv6_ext::Authentication::new_checked(bytes)?;
        prop_assert_eq!(ours.spi(), theirs.spi());
        prop_assert_eq!(ours.sequence_number(), theirs.sequence_number());
        prop_assert_eq!(ours.icv(), theirs.raw_icv());
    }
    Ok(())
}

fn agree_on_transport(bytes: &[u8]) -> Outcome {
    if let Ok(theirs) = TcpHeaderSlice::from_slice(bytes) {
        let ours = tcp::Packet::new_checked(bytes)?;
        let flags = [
            theirs.fin(),
            theirs.syn(),
            theirs.rst(),
            theirs.psh(),
            theirs.ack(),
            theirs.urg(),
            theirs.ece(),
            theirs.cwr(),
            theirs.ns(),
        ];
        let flags = flags.iter().enumerate().map(|(bit, is_set)| u16::from(*is_set) << bit).sum();
        prop_assert_eq!(ours.flags(), tcp::Flags(flags));
        prop_assert_eq!(ours.source_port(), theirs.source_port());
        prop_assert_eq!(ours.destination_port(), theirs.destination_port());
        prop_assert_eq!(ours.sequence_number(), theirs.sequence_number());
        prop_assert_eq!(ours.acknowledgment_number(), theirs.acknowledgment_number());
        prop_assert_eq!((ours.window(), ours.checksum()), (theirs.window_size(), theirs.checksum()));
        prop_assert_eq!(ours.urgent_pointer(), theirs.urgent_pointer());
        prop_assert_eq!(ours.header_len(), theirs.slice().len());
        agree_on_tcp_options(&ours, &theirs)?;
    }
    // A length of zero means "to the end" for etherparse; for us it is malformed.
    if let Ok(theirs) = UdpSlice::from_slice(bytes)
        && theirs.length() != 0
    {
        let ours = udp::Packet::new_checked(bytes)?;
        prop_assert_eq!(ours.source_port(), theirs.source_port());
        prop_assert_eq!(ours.destination_port(), theirs.destination_port());
        prop_assert_eq!((ours.length(), ours.checksum()), (theirs.length(), theirs.checksum()));
        prop_assert_eq!(ours.payload(), theirs.payload());
    }
    if let Ok(theirs) = Icmpv4Slice::from_slice(bytes) {
        let ours = icmpv4::Packet::new_checked(bytes)?;
        prop_assert_eq!(
            (ours.message_type().0, ours.code(), ours.checksum()),
            (theirs.type_u8(), theirs.code_u8(), theirs.checksum())
        );
        prop_assert_eq!(ours.rest_of_header().to_be_bytes(), theirs.bytes5to8());
    }
    if let Ok(theirs) = Icmpv6Slice::from_slice(bytes) {
        let ours = icmpv6::Packet::new_checked(bytes)?;
        prop_assert_eq!(
            (ours.message_type().0, ours.code(), ours.checksum()),
            (theirs.type_u8(), theirs.code_u8(), theirs.checksum())
        );
        prop_assert_eq!(ours.payload(), theirs.payload());
        let addresses = IpAddresses::V6 { source: [1; 16].into(), destination: [2; 16].into() };
        prop_assert_eq!(ours.verify_checksum(addresses), theirs.is_checksum_valid([1; 16], [2; 16]));
    }
    Ok(())
}

/// Compares the options; etherparse stops at the first unknown or malformed one.
fn agree_on_tcp_options(ours: &tcp::Packet<&[u8]>, theirs: &TcpHeaderSlice<'_>) -> Outcome {
    let mut options = ours.options();
    for option in theirs.options_iterator() {
        let ours = options.next();
        let Ok(theirs) = option else {
            let is_beyond_them =
                matches!(ours, Some(Err(_) | Ok(TcpOption::Unknown { .. } | TcpOption::Mptcp(_))));
            prop_assert!(is_beyond_them, "{:?}", ours);
            return Ok(());
        };
        let Some(Ok(ours)) = ours else {
            return Err(TestCaseError::fail(format!("{ours:?} for {theirs:?}")));
        };
        let is_same = match (ours, theirs) {
            (TcpOption::NoOperation, TcpOptionElement::Noop) => true,
            (TcpOption::MaximumSegmentSize(ours), TcpOptionElement::MaximumSegmentSize(theirs)) => {
                ours == theirs
            }
            (TcpOption::WindowScale(ours), TcpOptionElement::WindowScale(theirs)) => ours == theirs,
            (TcpOption::SackPermitted, TcpOptionElement::SelectiveAcknowledgementPermitted) => true,
            (TcpOption::Sack(ours), TcpOptionElement::SelectiveAcknowledgement(first, others)) => {
                ours.eq([first].into_iter().chain(others.into_iter().flatten()))
            }
            (TcpOption::Timestamps { value, echo_reply }, TcpOptionElement::Timestamp(one, two)) => {
                (value, echo_reply) == (one, two)
            }
            _ => false,
        };
        prop_assert!(is_same);
    }
    prop_assert!(options.next().is_none());
    Ok(())
}

/// Generates a valid frame, built by etherparse, with the offsets of its headers.
fn frames() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let options = vec![
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(1, 2),
        TcpOptionElement::WindowScale(7),
        TcpOptionElement::Noop,
        TcpOptionElement::SelectiveAcknowledgement((1, 2), [Some((3, 4)), None, None]),
    ];
    let options = prop::sample::subsequence(options, 0..4);
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    (any::<(bool, bool)>(), 0u8..3, any::<(u32, u32, u16, u16, u32)>(), options, payload).prop_map(
        |((has_tag, is_v6), kind, (source, destination, from, to, number), options, payload)| {
            let (mut bytes, mut offsets) = (Vec::new(), vec![0, 14]);
            let link = PacketBuilder::ethernet2([1; 6], [2; 6]);
            let wide = |half: u32| (u128::from(half) << 96 | u128::from(half)).to_be_bytes();
            let network = match (has_tag, is_v6) {
                (false, false) => link.ipv4(source.to_be_bytes(), destination.to_be_bytes(), 64),
                (false, true) => link.ipv6(wide(source), wide(destination), 64),
                (true, is_v6) => {
                    offsets.push(18);
                    let link = link.single_vlan(etherparse::VlanId::try_new(from & 0xfff).unwrap());
                    if is_v6 {
                        link.ipv6(wide(source), wide(destination), 64)
                    } else {
                        link.ipv4(source.to_be_bytes(), destination.to_be_bytes(), 64)
                    }
                }
            };
            offsets.push(offsets[offsets.len() - 1] + if is_v6 { 40 } else { 20 });
            match (kind, is_v6) {
                (0, _) => network
                    .tcp(from, to, number, from)
                    .syn()
                    .options(&options)
                    .unwrap()
                    .write_to_vec(&mut bytes, &payload)
                    .unwrap(),
                (1, _) => network.udp(from, to).write_to_vec(&mut bytes, &payload).unwrap(),
                (_, false) => {
                    network.icmpv4_echo_request(from, to).write_to_vec(&mut bytes, &payload).unwrap()
                }
                (_, true) => {
                    network.icmpv6_echo_request(from, to).write_to_vec(&mut bytes, &payload).unwrap()
                }
            }
            (bytes, offsets)
        },
    )
}

/// Walks a valid frame from its first byte to its transport checksum; all checksums must be valid.
fn every_checksum_is_right(bytes: &[u8]) -> Outcome {
    let frame = ethernet::Frame::new_checked(bytes)?;
    let mut tags = vlan::Tags::new(frame.ethertype_or_length(), frame.payload());
    for tag in tags.by_ref() {
        tag?;
    }
    let (addresses, protocol, payload) = match tags.ethertype() {
        EtherType::IPV4 => {
            let packet = ipv4::Packet::new_checked(tags.payload())?;
            prop_assert!(packet.verify_checksum());
            (IpAddresses::from(&packet), packet.protocol(), packet.payload().to_vec())
        }
        _ => {
            let packet = ipv6::Packet::new_checked(tags.payload())?;
            let upper = ipv6_walk::walk(packet.next_header(), packet.payload())?;
            (IpAddresses::from(&packet), upper.protocol, packet.payload()[upper.offset..].to_vec())
        }
    };
    let is_right = match protocol {
        IpProtocol::TCP => tcp::Packet::new_checked(&payload)?.verify_checksum(addresses),
        IpProtocol::UDP => udp::Packet::new_checked(&payload)?.verify_checksum(addresses),
        IpProtocol::ICMP => icmpv4::Packet::new_checked(&payload)?.verify_checksum(),
        _ => icmpv6::Packet::new_checked(&payload)?.verify_checksum(addresses),
    };
    prop_assert!(is_right);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn on_valid_frames((bytes, offsets) in frames()) {
        every_checksum_is_right(&bytes)?;
        for offset in offsets {
            agree(&bytes[offset..])?;
        }
    }

    #[test]
    fn on_mutated_frames(
        (mut bytes, offsets) in frames(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        for offset in offsets {
            agree(&bytes[offset..])?;
            agree(&bytes[offset..offset + cut.index(bytes.len() - offset + 1)])?;
        }
    }

    #[test]
    fn on_random_bytes(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..4], 0..120)) {
        agree(&bytes)?;
    }

    /// Chains of extension headers, which random bytes rarely make.
    #[test]
    fn on_extension_headers(kinds in prop::collection::vec((0usize..5, 0u8..3, any::<u8>()), 1..8)) {
        let numbers: Vec<u8> = kinds.iter().map(|(kind, ..)| [0, 43, 44, 51, 60][*kind]).collect();
        let mut bytes = Vec::new();
        for (index, number) in numbers.iter().enumerate() {
            let (_, units, fill) = kinds[index];
            let next = numbers.get(index + 1).copied().unwrap_or(6);
            let (len_field, len) = match number {
                44 => (0, 8),
                51 => (units + 1, usize::from(units + 3) * 4),
                _ => (units, usize::from(units + 1) * 8),
            };
            let mut header = vec![if *number == 44 { 0 } else { fill }; len];
            header[3] = fill & 1; // of a fragment: whether there are more
            header[..2].copy_from_slice(&[next, len_field]);
            bytes.extend(header);
        }
        bytes.push(0);
        let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(numbers[0]), &bytes);
        let ours = ipv6_walk::walk(IpProtocol(numbers[0]), &bytes);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        agree(&bytes)?;
    }
}
