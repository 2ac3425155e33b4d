//! Encoding of packets, and the fate of undecodable packets.

use serde_json::json;

use crate::meter_support::*;
use crate::pair::*;

/// Returns a segment with data from site 1 to site 2.
fn data(port: u16, payload: &[u8]) -> Vec<u8> {
    udp(host(4, 1, port), host(4, 2, 53), payload)
}

// E31
#[test]
fn repeated_payloads_are_sent_once() {
    for version in [4, 6] {
        let mut pair = Pair::acquainted(&json!({}));
        let bytes = random_bytes(1, 1_400);
        let kinds: [&dyn Fn(u16) -> Vec<u8>; 4] = [
            &|port| udp(host(version, 1, port), host(version, 2, 53), &bytes),
            &|port| tcp(host(version, 1, port), host(version, 2, 80), 0x18, &bytes),
            &|port| echo(host(version, 1, 0).addr, host(version, 2, 0).addr, port, false, &bytes),
            &|_| ip(host(version, 1, 0).addr, host(version, 2, 0).addr, 47, &[&[0; 4][..], &bytes].concat()),
        ];
        assert!(!pair.pass(&kinds[0](1)), "nothing to refer to");
        for kind in kinds {
            assert!(pair.pass(&kind(2)));
        }
        assert_eq!(pair.count(1, "packets_encoded"), 4);
        assert_eq!(pair.count(2, "packets_decoded"), 4);
        let saved = pair.count(1, "bytes_saved");
        assert!((4 * 1_350..=4 * 1_400).contains(&saved), "{saved}");
        assert!(pair.count(2, "bytes_restored") > saved);
    }
}

// A38
#[test]
fn second_copy_of_a_multipath_connection_is_a_reference() {
    let mut pair = Pair::acquainted(&json!({}));
    let connection = MultipathConnection::new(packet::mptcp::MptcpVersion::V1, 7);
    let mut subflows = [1, 2].map(|port| Subflow::new(host(4, 1, port), host(4, 2, 443), port.into()));
    for packet in connection.begin(&subflows[0]).iter().chain(&connection.join(&subflows[1], 0)) {
        assert!(!pair.pass(packet));
    }
    for step in 0..4 {
        let bytes = random_bytes(step, 1_200);
        let [first, second] = [0, 1].map(|subflow: usize| {
            connection.data(&mut subflows[subflow], (0, 0), step as u32 * 1_200, &bytes)
        });
        assert!(!pair.pass(&first), "nothing to refer to");
        assert!(pair.pass(&second), "and each sub-flow gets its bytes");
    }
    assert_eq!(pair.count(2, "packets_decoded"), 4);
    assert!(pair.count(1, "bytes_saved") > 4 * 1_100);
}

#[test]
fn repeated_parts_are_found_at_any_offset() {
    let mut pair = Pair::acquainted(&json!({}));
    let [a, b, c] = [1, 2, 3].map(|seed| random_bytes(seed, 400));
    assert!(!pair.pass(&data(1, &[&a[..], &b].concat())));
    assert!(!pair.pass(&data(1, &c)));
    assert!(pair.pass(&data(2, &[b"new", &c[..], b"more", &a[100..], b"end"].concat())));
    assert_eq!(pair.count(1, "regions"), 2);
    assert_eq!(pair.count(1, "bytes_saved"), 400 + 300 - 2 * 14 - 12);
    // A region does not extend beyond the end of a payload, although payloads are adjacent in the
    // cache.
    assert!(pair.pass(&data(3, &[&b[..], &a].concat())));
    assert_eq!(pair.count(1, "regions"), 4);
}

#[test]
fn runs_of_zeros_are_found() {
    let mut pair = Pair::acquainted(&json!({}));
    assert!(!pair.pass(&data(1, &[0; 1_400])));
    assert!(pair.pass(&data(1, &[0; 900])));
    assert_eq!(pair.count(1, "regions"), 1);
}

#[test]
fn incompressible_packets_go_plain() {
    let mut pair = Pair::acquainted(&json!({}));
    let bytes = random_bytes(1, 1_000);
    pair.pass(&data(1, &bytes));
    assert!(!pair.pass(&data(1, &random_bytes(2, 1_000))));
    assert!(!pair.pass(&data(1, &bytes[..50])), "too short");
    assert!(!pair.pass(&udp(host(4, 1, 1), host(4, 9, 1), &bytes)), "not between the sites");
    for fragment in fragments(&data(1, &bytes), 1, 504) {
        assert!(!pair.pass(&fragment));
    }
    let destination_options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &data(1, &bytes)[20..]].concat();
    assert!(!pair.pass(&ip(host(6, 1, 0).addr, host(6, 2, 0).addr, 60, &destination_options)));
    assert_eq!((pair.count(1, "packets_encoded"), pair.count(1, "packets_others")), (0, 1));
}

#[test]
fn nothing_is_encoded_without_a_peer() {
    let mut pair = Pair::new(&json!({}));
    let packet = data(1, &random_bytes(1, 1_000));
    for _ in 0..3 {
        assert_eq!(pair.enter(1, &packet), [&packet[..]]);
    }
    assert_eq!(pair.count(1, "payloads_unconfirmed"), 3);
    // A report has arrived and counts for five seconds; but the other end's cache of earlier
    // payloads is unknown.
    assert!(!pair.pass(&packet));
    assert!(!pair.pass(&packet) && pair.pass(&packet));
    pair.now_ns += 5 * SECOND_NS;
    assert_eq!(pair.enter(1, &packet), [&packet[..]]);
    let mut pair = Pair::new(&json!({ "patience": 0 }));
    assert_eq!(pair.enter(1, &packet), [&packet[..]]);
    pair.now_ns += 99 * SECOND_NS;
    let wire = pair.enter(1, &packet).remove(0);
    assert_eq!(protocol_of(&wire), ENCODED, "it need not be heard");
}

#[test]
fn ends_with_different_parameters_do_not_encode() {
    for settings in [json!({ "window": 48 }), json!({ "sample": 64 })] {
        let mut pair = Pair::new(&json!({}));
        pair.ends[1] = end(2, &settings);
        let packet = data(1, &random_bytes(1, 1_000));
        assert!(!pair.pass(&packet) && !pair.pass(&packet));
        assert_eq!(pair.count(1, "reports_invalid"), 1);
    }
}

#[test]
fn missing_payloads_are_reported_and_not_referenced_again() {
    let mut pair = Pair::acquainted(&json!({}));
    let packet = |port| data(port, &random_bytes(1, 1_000));
    pair.enter(1, &packet(1)); // Lost.
    let wire = pair.enter(1, &packet(2)).remove(0);
    assert_eq!(protocol_of(&wire), ENCODED);
    let (reason, back) = pair.dropped(2, &wire, true);
    assert_eq!((reason, back.len(), pair.count(2, "references_missed")), ("re-missing", 1, 1));
    assert!(checksums_are_right(&back[0]), "of its header");
    assert_eq!(pair.dropped(1, &back[0], true).0, "re-report");
    assert_eq!(pair.count(1, "payloads_evicted"), 1);
    assert!(!pair.pass(&packet(3)), "it goes as it is");
    assert!(pair.pass(&packet(4)));
}

#[test]
fn a_retransmitted_segment_is_not_encoded() {
    let mut pair = Pair::acquainted(&json!({}));
    let bytes = random_bytes(1, 1_000);
    let segment = |seq: u32, flags| tcp_segment(host(4, 1, 5), host(4, 2, 80), flags, [seq, 1], &bytes);
    pair.enter(1, &segment(u32::MAX - 1_500, 0x18)); // Lost.
    let second = pair.enter(1, &segment(u32::MAX - 500, 0x18)).remove(0);
    assert_eq!(pair.dropped(2, &second, true).0, "re-missing");
    // The sender's end gets no report, and a retransmission goes plain anyway.
    assert!(!pair.pass(&segment(u32::MAX - 1_500, 0x18)));
    assert!(!pair.pass(&segment(u32::MAX - 500, 0x18)));
    assert!(pair.pass(&segment(499, 0x18)), "this is new");
    assert!(!pair.pass(&segment(77, 0x02)), "another connection");
    assert!(pair.pass(&segment(1_078, 0x18)));
    assert_eq!(pair.count(1, "retransmissions"), 3);
}

#[test]
fn either_end_may_restart() {
    for site in [1, 2] {
        let mut pair = Pair::acquainted(&json!({}));
        let packet = data(1, &random_bytes(1, 1_000));
        assert!(!pair.pass(&packet) && pair.pass(&packet));
        pair.now_ns += SECOND_NS;
        pair.ends[site - 1] = end(site, &json!({}));
        let mut passed = 0;
        for _ in 0..4 {
            pair.now_ns += SECOND_NS;
            let wire = pair.enter(1, &packet).remove(0);
            let (out, back) = pair.arrive(2, &wire);
            passed += out.len();
            assert!(out.iter().all(|out| *out == packet));
            back.iter().for_each(|report| assert!(pair.arrive(1, report).0.is_empty()));
        }
        assert!(passed >= 3, "end {site}: {passed} of 4 passed");
        assert!(pair.pass(&packet));
    }
}

#[test]
fn corrupted_packets_are_dropped() {
    let mut pair = Pair::acquainted(&json!({}));
    let packet = data(1, &random_bytes(1, 700));
    pair.pass(&packet);
    let wire = pair.enter(1, &data(2, &[&random_bytes(1, 700)[..], b"behind"].concat())).remove(0);
    let mut reasons = std::collections::BTreeMap::new();
    for bit in 20 * 8..wire.len() * 8 {
        let mut changed = wire.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        *reasons.entry(pair.dropped(2, &changed, true).0).or_insert(0) += 1;
    }
    assert_eq!(reasons.keys().collect::<Vec<_>>(), [&"re-checksum", &"re-malformed", &"re-missing"]);
    for len in 0..wire.len() - 20 {
        let mut cut = wire[..20 + len].to_vec();
        cut[2..4].copy_from_slice(&(20 + len as u16).to_be_bytes());
        let reason = pair.dropped(2, &cut, true).0;
        assert!(matches!(reason, "re-malformed" | "re-checksum"), "{reason} at {len}");
    }
    assert_eq!(pair.arrive(2, &wire).0.len(), 1, "and it does no harm");
}

#[test]
fn fragments_of_encoded_packets_and_foreign_ones_are_dropped() {
    let mut pair = Pair::acquainted(&json!({}));
    let packet = data(1, &random_bytes(1, 1_000));
    pair.pass(&packet);
    let wire = pair.enter(1, &packet).remove(0);
    for (number, fragment) in fragments(&wire, 7, 24).iter().enumerate() {
        let reason = if number == 0 { "re-fragment" } else { "fragment-of-dropped" };
        assert_eq!(pair.dropped(2, fragment, true).0, reason);
    }
    assert_eq!(pair.dropped(1, &wire, false).0, "re-clash");
    let foreign = ip(host(4, 1, 0).addr, host(4, 2, 0).addr, ENCODED, b"somebody's own");
    assert_eq!(pair.dropped(2, &foreign, true).0, "re-malformed");
}

#[test]
fn reports_are_rate_limited() {
    let mut pair = Pair::acquainted(&json!({}));
    let mut reports = 0;
    for number in 0..50 {
        let bytes = random_bytes(number, 1_000);
        pair.enter(1, &data(1, &bytes)); // Lost.
        let wire = pair.enter(1, &data(2, &bytes)).remove(0);
        let (reason, back) = pair.dropped(2, &wire, true);
        assert_eq!(reason, "re-missing");
        reports += back.len();
    }
    assert_eq!(reports, 1, "in less than a millisecond");
}

#[test]
fn old_payloads_make_room() {
    let mut pair = Pair::acquainted(&json!({ "cache": "64KiB" }));
    let packet = |number: u64| data(1, &random_bytes(number, 1_000));
    for number in 0..200 {
        assert!(!pair.pass(&packet(number)));
    }
    assert!(!pair.pass(&packet(100)), "64 KiB hold some 64 of them");
    assert!(pair.pass(&packet(199)));
}

#[test]
fn stands_alone() {
    let re = || stage("re", &config(1, &json!({})));
    for stages in [vec![re(), stage("monitor", &json!({}))], vec![stage("monitor", &json!({})), re()]] {
        let refused = graph::Graph::new(stages, options());
        assert!(matches!(refused, Err(graph::GraphError::NotAlone("re"))));
    }
}
