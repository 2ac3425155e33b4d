//! `threshold` and `detection_filter`, against manual counts.

use serde_json::json;

use crate::ids_support::*;

fn rule(options: &str) -> String {
    format!(r#"alert udp any any -> any any (msg:"often"; content:"evil"; {options} sid:1;)"#)
}

/// Sends datagrams of one host at these times; returns the times of the rule's reports.
fn reported_at(options: &str, seconds: &[u64]) -> Vec<u64> {
    let packets: Vec<_> =
        seconds.iter().map(|second| datagram((100 + second) * SECOND_NS, 1, 4_000, b"evil")).collect();
    watch(&rule(options), &packets).reported.iter().map(|(packet, _)| seconds[*packet as usize - 1]).collect()
}

#[test]
fn a_limit_reports_the_first_matches_in_its_time() {
    let limit = "threshold:type limit, track by_src, count 2, seconds 10;";
    assert_eq!(reported_at(limit, &[0, 1, 2, 9, 10, 11, 12]), [0, 1, 11, 12]);
    assert_eq!(reported_at(limit, &[0, 9, 9, 30, 39, 39, 40, 41]), [0, 9, 30, 39, 41]);
}

#[test]
fn a_threshold_reports_each_nth_match() {
    let threshold = "threshold:type threshold, track by_src, count 3, seconds 10;";
    assert_eq!(reported_at(threshold, &[0, 1, 2, 3, 4, 5, 6]), [2, 5]);
    // After the end of the time it counts again; the time continues after a report.
    assert_eq!(reported_at(threshold, &[0, 1, 2, 3, 4, 15, 16, 17]), [2, 17]);
    assert_eq!(reported_at(threshold, &[0, 9, 11, 12, 13]), [13]);
    assert_eq!(reported_at(threshold, &[0, 9, 9, 10, 11, 12]), [9]);
}

#[test]
fn both_reports_once_in_its_time() {
    let both = "threshold:type both, track by_src, count 2, seconds 10;";
    assert_eq!(reported_at(both, &[0, 1, 2, 3, 10, 11, 12]), [1, 12]);
    assert_eq!(reported_at(both, &[0, 11, 22, 29, 29]), [29]);
}

#[test]
fn a_detection_filter_lets_a_rule_act_only_then() {
    let filter = "detection_filter:track by_src, count 2, seconds 10;";
    assert_eq!(reported_at(filter, &[0, 1, 2, 3, 12, 13, 14]), [2, 3, 14]);
    // If it does not act, it changes no flowbit either.
    let marks = format!(
        "{}\n{}",
        rule(&format!("{filter} flowbits:set,often;")),
        r#"alert udp any any -> any any (msg:"marked"; flowbits:isset,often; sid:2;)"#
    );
    let packets = [0, 1, 2].map(|second| datagram(second * SECOND_NS, 1, 4_000, b"evil"));
    assert_eq!(watch(&marks, &packets).reported, [(3, 1), (3, 2)]);
}

#[test]
fn counts_are_separate_per_tracked_endpoint() {
    // The packets that get the one report of their kind: host, server's port.
    let packets = [(1, 1), (1, 1), (1, 2), (2, 1), (2, 2)];
    for (track, reported) in [
        ("by_src", &[1, 4][..]),
        ("by_dst", &[1]),
        ("by_both", &[1, 4]),
        ("by_rule", &[1]),
        ("by_flow", &[1, 3, 4, 5]),
    ] {
        let options = format!("threshold:type limit, track {track}, count 1, seconds 10;");
        let packets = packets.map(|(host, port)| datagram(SECOND_NS, host, port, b"evil"));
        let seen: Vec<u64> =
            watch(&rule(&options), &packets).reported.iter().map(|(packet, _)| *packet).collect();
        assert_eq!(seen, reported, "{track}");
    }
}

#[test]
fn unreported_matches_act_and_are_counted() {
    let limit = "threshold:type limit, track by_src, count 1, seconds 10;";
    let packets = [0, 1, 2].map(|second| datagram(second * SECOND_NS, 1, 4_000, b"evil"));
    let seen = watch(&rule(limit).replace("alert", "drop"), &packets);
    assert_eq!((seen.reported.len(), seen.sent), (1, 0));
    assert_eq!(seen.counter("alerts_suppressed"), 2);
    assert_eq!(seen.counter("packets_dropped"), 3);
}

#[test]
fn without_a_tracker_all_matches_are_reported_and_counted() {
    let limit = "threshold:type limit, track by_src, count 1, seconds 10;";
    let packets = [1, 2, 1, 2, 2].map(|host| datagram(SECOND_NS, host, 4_000, b"evil"));
    let seen = watch_with(&rule(limit), json!({ "trackers": 1 }), &packets);
    let reported: Vec<u64> = seen.reported.iter().map(|(packet, _)| *packet).collect();
    assert_eq!(reported, [1, 2, 4, 5], "the first host has the tracker");
    let trackers = &seen.bench.graph.stages()[0].shared().meters[0];
    assert_eq!((trackers.in_use(), trackers.refused()), (1, 3));
}
