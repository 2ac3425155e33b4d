//! Handling of all kinds of packets by the answering.

use graph::{Graph, GraphError, Options};
use packet::Side::{Inside, Outside};
use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

fn small(version: u8) -> Vec<u8> {
    udp(host(version, 1, 5_000), host(version, 2, 53), b"question")
}

/// Builds an IP packet of this length with a datagram.
fn sized(version: u8, len: usize) -> Vec<u8> {
    let headers = if version == 4 { 28 } else { 48 };
    udp(host(version, 1, 5_000), host(version, 2, 53), &vec![7; len - headers])
}

// RFC 4301 5.1.2.1
#[test]
fn packets_cross_by_all_protocols_and_ip_versions() {
    for protocol in PROTOCOLS {
        for (outer, inner) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let [mut one, mut other] = pair(protocol, outer);
            let packet = small(inner);
            let sent = one.through(NOW_NS, Inside, &packet);
            assert_eq!(sent[0] >> 4, outer);
            let number = if outer == 4 { sent[9] } else { sent[6] };
            assert_eq!(number, if protocol == "ah" { 51 } else { 50 });
            let readable = sent.windows(8).any(|window| window == b"question");
            assert_eq!(readable, matches!(protocol, "ah" | "esp_null"), "{protocol}");
            assert_eq!(
                other.through(NOW_NS, Outside, &sent),
                routed(&packet, 2),
                "{protocol} {inner} in {outer}"
            );
            let back = udp(host(inner, 2, 53), host(inner, 1, 5_000), b"answer");
            let sent = other.through(NOW_NS, Inside, &back);
            assert_eq!(one.through(NOW_NS, Outside, &sent), routed(&back, 2));
            for (bench, name) in [(&one, "packets_out"), (&one, "packets_in"), (&other, "packets_in")] {
                assert_eq!(counted(bench, name), 1);
            }
            assert_eq!(counted(&one, "bytes_out"), packet.len() as u64);
            assert_eq!(counted(&other, "bytes_out"), back.len() as u64);
        }
    }
}

#[test]
fn a_tunnels_flow_is_separate_from_inner_flows() {
    // Both directions, several flows, and the tunnel's own packets: none is mistaken for another.
    let [mut one, mut other] = pair("esp", 4);
    for round in 0..3 {
        for port in 5_000..5_010 {
            let there = udp(host(4, 1, port), host(4, 2, 53), b"question");
            let back = udp(host(4, 2, 53), host(4, 1, port), b"answer");
            let sent = one.through(NOW_NS + round, Inside, &there);
            assert_eq!(other.through(NOW_NS, Outside, &sent), routed(&there, 2));
            let sent = other.through(NOW_NS + round, Inside, &back);
            assert_eq!(one.through(NOW_NS, Outside, &sent), routed(&back, 2));
        }
    }
    assert_eq!(one.graph.counters().flows_live, 11, "ten inner flows, and the tunnel's");
    assert!(one.drops().is_empty() && other.drops().is_empty());
}

// RFC 4303 3.4.3
#[test]
fn replayed_packets_are_refused() {
    for (anti_replay, verdict) in [(true, None), (false, Some(()))] {
        let [mut one, _] = pair("esp", 4);
        let mut other = gateway("esp", 4, 2, &json!({ "anti_replay": anti_replay }));
        let sent = one.through(NOW_NS, Inside, &small(4));
        other.through(NOW_NS, Outside, &sent);
        let again = other.one(NOW_NS, Outside, &sent);
        assert_eq!(again.first().map(|_| ()), verdict);
        assert_eq!(counted(&other, "replayed"), u64::from(anti_replay));
    }
    // The replay window survives the flow that filled it.
    let [mut one, mut other] = pair("esp", 4);
    let sent = one.through(NOW_NS, Inside, &small(4));
    other.through(NOW_NS, Outside, &sent);
    other.advance(u64::MAX / 2);
    assert_eq!(dropped(&mut other, Outside, &sent), "vpn-replayed");
}

#[test]
fn packets_may_be_reordered_within_the_window() {
    let [mut one, mut other] = pair("esp_null", 4);
    let mut sent: Vec<_> = (0..1_200).map(|i| one.through(NOW_NS + i, Inside, &small(4))).collect();
    let last = sent.pop().unwrap();
    other.through(NOW_NS, Outside, &last);
    sent.reverse();
    let (young, old) = sent.split_at(functions::vpn::REPLAY_WINDOW as usize - 1);
    for packet in young {
        other.through(NOW_NS, Outside, packet);
    }
    for packet in old {
        assert_eq!(dropped(&mut other, Outside, packet), "vpn-replayed");
    }
}

// RFC 4303 3.3.3
#[test]
fn sequence_numbers_are_exhausted() {
    let mut one = gateway(
        "ah",
        4,
        1,
        &json!({ "outbound":
        { "spi": 0x1001, "key": key("ah", 0), "first_sequence": u32::MAX - 1 } }),
    );
    one.through(NOW_NS, Inside, &small(4));
    one.through(NOW_NS, Inside, &small(4));
    assert_eq!(dropped(&mut one, Inside, &small(4)), "vpn-exhausted");
    assert_eq!(dropped(&mut one, Inside, &small(6)), "vpn-exhausted");
}

// RFC 4106 3.1
#[test]
fn vectors_do_not_repeat_when_numbers_restart() {
    let iv = |now_ns| {
        let mut one = gateway("esp", 4, 1, &json!({}));
        [0, 0, 5].map(|later| one.through(now_ns + later, Inside, &small(4))[28..36].to_vec())
    };
    assert_eq!(iv(NOW_NS), [NOW_NS, NOW_NS + 1, NOW_NS + 5].map(|ns| ns.to_be_bytes().to_vec()));
    assert!(iv(NOW_NS + 6).iter().all(|vector| !iv(NOW_NS).contains(vector)), "after a restart");
}

// RFC 4301 5.2
#[test]
fn packets_outside_the_selectors_are_refused() {
    let [mut one, mut other] = pair("esp", 4);
    let sent = one.through(NOW_NS, Inside, &small(4));
    let changed = |at: usize, byte: u8| {
        let mut packet = sent.clone();
        packet[at] = byte;
        packet
    };
    assert_eq!(dropped(&mut other, Outside, &changed(23, 0x99)), "vpn-no-sa", "another SPI");
    assert_eq!(dropped(&mut other, Outside, &changed(15, 9)), "vpn-no-sa", "another sender");
    assert_eq!(dropped(&mut other, Outside, &changed(6, 0x20)), "vpn-fragment");
    assert_eq!(dropped(&mut other, Outside, &ip(host_of(0), host_of(1), 50, &[0; 7])), "vpn-malformed");
    assert_eq!(dropped(&mut other, Outside, &changed(60, sent[60] ^ 1)), "vpn-integrity");
    assert_eq!(counted(&other, "forged"), 1);
    // In the clear, as if it had come through the tunnel.
    assert_eq!(dropped(&mut other, Outside, &small(4)), "vpn-clear");
    assert_eq!(dropped(&mut other, Outside, &small(6)), "vpn-clear");
    // From a network that is not at the other end.
    let mut wide = gateway("esp", 4, 1, &json!({ "local_networks": ["0.0.0.0/0"] }));
    let foreign = udp(v4(172, 16, 0, 1, 1), host(4, 2, 53), b"");
    let sent = wide.through(NOW_NS, Inside, &foreign);
    assert_eq!(dropped(&mut other, Outside, &sent), "vpn-selector");
    // To another address it belongs to another host.
    assert_eq!(other.through(NOW_NS, Outside, &changed(19, 9)), changed(19, 9));
}

fn host_of(end: usize) -> packet::Addr {
    outer(4)[end].parse::<std::net::IpAddr>().unwrap().into()
}

#[test]
fn others_pass_or_are_dropped() {
    let others = [
        (Inside, udp(v4(10, 1, 0, 7, 1), v4(203, 0, 113, 9, 53), b"to the world")),
        (Inside, udp(v4(10, 9, 0, 7, 1), v4(10, 2, 0, 9, 53), b"from elsewhere")),
        (Outside, udp(v4(203, 0, 113, 9, 53), v4(10, 1, 0, 7, 1), b"from the world")),
        (Outside, udp(v4(198, 51, 100, 1, 500), v4(192, 0, 2, 1, 500), b"IKE")),
        (Inside, ip(host_of(0), host_of(1), 50, &[0; 40])),
    ];
    let mut pass = gateway("esp", 4, 1, &json!({}));
    let mut drop = with(&json!({ "tunnels": [tunnel("esp", 4, 1)], "others": "drop" }));
    for (side, packet) in &others {
        assert_eq!(pass.through(NOW_NS, *side, packet), *packet);
        assert_eq!(dropped(&mut drop, *side, packet), "vpn-other");
    }
    assert_eq!(counter(&pass, "packets_others"), 5);
}

// RFC 4301 8.2.1, RFC 1191, RFC 8201
#[test]
fn a_packet_that_is_too_long_is_refused_and_its_sender_notified() {
    for protocol in PROTOCOLS {
        for (version, inner) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let mut one = gateway(protocol, version, 1, &json!({ "mtu": 1420 }));
            one.through(NOW_NS, Inside, &small(inner)); // A flow without a passed packet is not kept.
            let answer = one.one(NOW_NS, Inside, &sized(inner, 1421));
            let [(side, message)] = &answer[..] else { panic!("{answer:?}") };
            assert_eq!((*side, checksums_are_right(message)), (Inside, true));
            let (kind, mtu) = if inner == 4 {
                (&message[20..22], u16::from_be_bytes([message[26], message[27]]))
            } else {
                (&message[40..42], u16::from_be_bytes([message[46], message[47]]))
            };
            assert_eq!(kind, if inner == 4 { [3, 4] } else { [2, 0] });
            // A packet of the reported length fits, and a byte more does not.
            let mtu = usize::from(mtu);
            let longest = one.through(NOW_NS, Inside, &sized(inner, mtu));
            assert!(
                (1417..=1420).contains(&longest.len()),
                "{protocol} {inner} in {version}: {}",
                longest.len()
            );
            assert_eq!(
                dropped(&mut one, Inside, &sized(inner, mtu + 1)),
                "too-big",
                "reported once per interval"
            );
            assert_eq!(one.one(NOW_NS + 100_000_000, Inside, &sized(inner, mtu + 1)).len(), 1, "and again");
            assert_eq!(counter(&one, "errors_sent"), 2);
        }
    }
    // A packet that may be fragmented is dropped silently (RFC 1191 requires DF for an error).
    let mut one = gateway("esp", 4, 1, &json!({}));
    let mut may = sized(4, 1500);
    may[6] = 0;
    may[10..12].fill(0);
    let may = routed(&may, 0);
    assert_eq!(dropped(&mut one, Inside, &may), "too-big");
}

#[test]
fn expired_ttl_is_reported() {
    let last = |mut packet: Vec<u8>, ttl: u8| {
        packet[8] = ttl;
        routed(&packet, 0)
    };
    let mut silent = gateway("esp", 4, 1, &json!({}));
    assert_eq!(dropped(&mut silent, Inside, &last(small(4), 1)), "ttl-expired");
    let mut answering = with(&json!({ "tunnels": [tunnel("esp", 4, 1)], "gateway4": "10.1.0.1" }));
    let answer = answering.one(NOW_NS, Inside, &last(small(4), 1));
    assert_eq!(answer[0].1[12..16], [10, 1, 0, 1]);
    assert_eq!(answer[0].1[20..22], [11, 0]);
    let [mut one, mut other] = pair("esp", 4);
    let sent = one.through(NOW_NS, Inside, &last(small(4), 2));
    assert_eq!(dropped(&mut other, Outside, &sent), "ttl-expired");
}

// RFC 6040 4.1, 4.2; RFC 4301 5.1.2.1
#[test]
fn dscp_and_congestion_marks_cross_the_tunnel() {
    for (inner, on_the_way, behind) in
        [(0xb8, 0xb8, Some(0xb8)), (0xba, 0xbb, Some(0xbb)), (0xba, 0x03, Some(0xbb)), (0xb8, 0xbb, None)]
    {
        let [mut one, mut other] = pair("ah", 4);
        let mut packet = small(4);
        packet[1] = inner;
        let packet = routed(&packet, 0);
        let mut sent = one.through(NOW_NS, Inside, &packet);
        assert_eq!(sent[1], inner);
        sent[1] = on_the_way;
        let sent = routed(&sent, 3);
        match behind {
            Some(class) => assert_eq!(other.through(NOW_NS, Outside, &sent)[1], class),
            None => assert_eq!(dropped(&mut other, Outside, &sent), "vpn-congestion"),
        }
    }
}

// RFC 4301 8.1
#[test]
fn the_df_bit_is_as_configured() {
    for (df, over4, over6) in [("copy", [0x40, 0], 0x40), ("set", [0x40; 2], 0x40), ("clear", [0; 2], 0)] {
        let mut one = gateway("esp", 4, 1, &json!({ "df": df }));
        let mut may = small(4);
        may[6] = 0;
        let may = routed(&may, 0);
        assert_eq!(one.through(NOW_NS, Inside, &small(4))[6], over4[0], "{df}");
        let fragmentable = one.through(NOW_NS, Inside, &may);
        assert_eq!(fragmentable[6], over4[1]);
        assert_eq!(fragmentable[4..6] == [0, 0], fragmentable[6] == 0x40, "it has an identification");
        assert_eq!(one.through(NOW_NS, Inside, &small(6))[6], over6);
    }
}

#[test]
fn fragments_are_encapsulated_one_by_one() {
    let whole = udp(host(4, 1, 5_000), host(4, 2, 53), &[9; 1_000]);
    let [mut one, mut other] = pair("esp", 4);
    for fragment in fragments(&whole, 77, 400) {
        let sent = one.through(NOW_NS, Inside, &fragment);
        assert_eq!(other.through(NOW_NS, Outside, &sent), routed(&fragment, 2));
    }
}

#[test]
fn several_inbound_associations_are_accepted_during_a_key_change() {
    let (old, new) = (key("esp", 0), key("esp", 0).replace("00", "77"));
    let mut other = gateway(
        "esp",
        4,
        2,
        &json!({ "inbound":
        [{ "spi": 0x1001, "key": old }, { "spi": "0x2001", "key": new }] }),
    );
    for (spi, key) in [(0x1001, &old), (0x2001, &new), (0x1001, &old)] {
        let mut one = gateway(
            "esp",
            4,
            1,
            &json!({ "outbound":
            { "spi": spi, "key": key, "first_sequence": counted(&other, "packets_in") + 1 } }),
        );
        let sent = one.through(NOW_NS, Inside, &small(4));
        assert_eq!(other.through(NOW_NS, Outside, &sent), routed(&small(4), 2));
    }
}

#[test]
fn a_gateway_must_be_the_only_function_of_its_graph() {
    let monitor = || stage("monitor", &json!({}));
    let vpn = || stage("vpn", &json!({ "tunnels": [tunnel("esp", 4, 1)] }));
    for stages in [vec![vpn(), monitor()], vec![monitor(), vpn()], vec![vpn(), vpn()]] {
        let refused = Graph::new(stages, Options::default());
        assert!(matches!(refused, Err(GraphError::NotAlone("vpn"))));
    }
}

#[test]
fn output_does_not_depend_on_batches() {
    let config = json!({ "tunnels": [tunnel("esp", 4, 1)] });
    let [mut one, _] = pair("esp", 4);
    let mut peer = gateway("esp", 4, 2, &json!({}));
    let mut traffic = vec![];
    for i in 0..400u16 {
        let (version, at_ns) = (if i % 3 == 0 { 6 } else { 4 }, NOW_NS + u64::from(i) * 1_000);
        let there = udp(host(version, 1, 5_000 + i % 7), host(version, 2, 53), &vec![1; usize::from(i)]);
        let back = udp(host(version, 2, 53), host(version, 1, 5_000 + i % 5), b"answer");
        let sent = peer.through(at_ns, Inside, &back);
        let twice = usize::from(i % 11 == 0) + 1;
        let arrival = |side, network: &[u8]| Arrival { at_ns, side, network: network.to_vec() };
        traffic.push(arrival(Inside, &there));
        traffic.extend(vec![arrival(Outside, &sent); twice]);
        one.through(at_ns, Inside, &there);
    }
    batches_change_nothing("vpn", &config, &traffic);
}
