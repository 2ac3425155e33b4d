//! Every view of a header over any bytes: checked views are read to the end.

use std::hint::black_box;

use packet::wire::*;

/// Wraps `bytes` in each view and, if that succeeds, calls every getter.
pub fn read_everything(bytes: &[u8]) {
    /// `view { getters } { walks }`: calls each getter, and walks each walk to its end.
    macro_rules! read {
        ($($view:path { $($getter:ident)* } { $($walk:ident)* })*) => {$(
            if let Ok(view) = <$view>::new_checked(bytes) {
                black_box((view.header_len(), view.payload(), view.payload_range()));
                $(black_box(view.$getter());)*
                $(assert!(view.$walk().count() <= bytes.len());)*
            }
        )*};
    }
    read! {
        ethernet::Frame::<_> { destination source ethertype_or_length ethertype is_802_3 } {}
        llc::Packet::<_> { dsap ssap control is_snap snap ethertype } {}
        vlan::Tag::<_> { pcp dei vid tci ethertype } {}
        arp::Packet::<_> {
            hardware_type protocol_type hardware_len protocol_len operation sender_hardware sender_protocol
            target_hardware target_protocol
        } {}
        ipv4::Packet::<_> {
            version dscp ecn total_len ident dont_fragment more_fragments fragment_offset is_fragment ttl
            protocol checksum source destination verify_checksum
        } { options }
        ipv6::Packet::<_> {
            version traffic_class dscp ecn flow_label payload_len next_header hop_limit source destination
        } {}
        ipv6_ext::Header::<_> { next_header header_ext_len routing_type segments_left data } { options }
        ipv6_ext::Fragment::<_> { next_header ident fragment_offset more_fragments info } {}
        ipv6_ext::Authentication::<_> { next_header payload_len spi sequence_number icv } {}
        tcp::Packet::<_> {
            source_port destination_port sequence_number acknowledgment_number flags window checksum
            urgent_pointer segment_len
        } { options }
        udp::Packet::<_> { source_port destination_port length checksum } {}
        icmpv4::Packet::<_> {
            message_type code checksum rest_of_header ident sequence_number pointer next_hop_mtu
            original_datagram verify_checksum
        } {}
        icmpv6::Packet::<_> {
            message_type code checksum rest_of_header ident sequence_number mtu pointer original_packet
        } {}
        gre::Packet::<_> {
            version flags_and_version protocol checksum key sequence_number acknowledgment_number verify_checksum
        } {}
        vxlan::Packet::<_> { flags vni } {}
        geneve::Packet::<_> { version is_control has_critical_options vni protocol options_bytes } { options }
        mpls::Entry::<_> { word label traffic_class is_bottom ttl } {}
        gtpu::Packet::<_> {
            version message_type length teid sequence_number n_pdu_number
        } { extension_headers }
        ppp::Packet::<_> { protocol } {}
        ppp::Session::<_> { version_and_type code session_id length } {}
        sll::Packet::<_> { packet_type hardware_type address_len protocol address } {}
        sll::Packet2::<_> { packet_type hardware_type address_len protocol address interface_index } {}
        null::Packet::<_> { family ethertype } {}
        gue::Packet::<_> { variant is_control proto_ctype flags fields } {}
    }

    parse_everything(bytes);
    walk_everything(bytes);
}

/// Parses every `Repr`, and everything that needs more than the view.
fn parse_everything(bytes: &[u8]) {
    let v4 = IpAddresses::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
    let v6 = IpAddresses::V6 { source: [1; 16].into(), destination: [2; 16].into() };
    macro_rules! parse {
        ($($module:ident :: $view:ident)*) => {$(
            if let Ok(view) = $module::$view::new_checked(bytes) {
                let _ = black_box($module::Repr::parse(&view));
            }
        )*};
    }
    parse! {
        ethernet::Frame vlan::Tag arp::Packet ipv4::Packet ipv6::Packet tcp::Packet udp::Packet icmpv4::Packet
        icmpv6::Packet gre::Packet vxlan::Packet geneve::Packet gue::Packet
    }
    if let Ok(cut) = ipv4::Packet::new_checked_header(bytes) {
        black_box((cut.payload(), cut.options().count(), ipv4::Repr::parse(&cut), cut.verify_checksum()));
    }
    if let Ok(cut) = ipv6::Packet::new_checked_header(bytes) {
        black_box((cut.payload(), ipv6::Repr::parse(&cut)));
    }
    if let Ok(cut) = udp::Packet::new_checked_header(bytes) {
        black_box((cut.payload(), udp::Repr::parse(&cut), cut.verify_checksum(v4), cut.verify_checksum(v6)));
    }
    if let Ok(segment) = tcp::Packet::new_checked(bytes) {
        black_box((segment.verify_checksum(v4), segment.verify_checksum(v6)));
        for option in segment.options().flatten() {
            if let tcp_option::TcpOption::Mptcp(data) = option {
                let _ = black_box(mptcp::Repr::parse(data));
            }
        }
    }
    let _ = black_box(mptcp::Repr::parse(bytes));
    if let Ok(message) = icmpv6::Packet::new_checked(bytes) {
        black_box(message.verify_checksum(v6));
    }
}

/// Walks from every number that could announce these bytes.
fn walk_everything(bytes: &[u8]) {
    for kind in (0..=u8::MAX).map(IpProtocol) {
        if let Ok(upper) = ipv6_walk::walk(kind, bytes) {
            assert!(upper.offset <= bytes.len());
        }
        for (_, header) in ipv6_walk::Headers::new(kind, bytes).flatten() {
            black_box((header.data(), header.options().count(), header.payload()));
        }
    }
    for ethertype in [EtherType::VLAN, EtherType::QINQ, EtherType::IPV4] {
        let mut tags = vlan::Tags::new(ethertype, bytes);
        assert!(tags.by_ref().count() <= vlan::TAGS_MAX + 1);
        assert!(tags.payload().len() <= bytes.len());
    }
    assert!(mpls::Stack::new(bytes).count() <= mpls::ENTRIES_MAX + 1);
}
