//! Every capture, broken ones too, through each function and through all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use io::capture::{CaptureFormat, CaptureReader, CaptureRecord, CaptureWriter, FormatKind};
use nf::{Alert, FlowReport};
use packet::FlowKey;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;

use crate::policies::Kind;
use crate::run::{Outcome, Sent, is_order_sensitive, run, run_on_threads, run_on_units};
use crate::sums;
use crate::traces::{self, Capture};

/// A capture of tens of thousands of packets takes a fraction of a second; longer is a hang.
const TOO_LONG: Duration = Duration::from_secs(600);

fn each(kind: Kind) {
    let captures = traces::all();
    let (mut packets, mut dropped, mut changed, mut followed) = (0, 0, 0, 0);
    let mut failed = Vec::new();
    for capture in &captures {
        // One run reports all captures that fail.
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let started = Instant::now();
            let policy = kind.policy(&capture.records);
            let outcome = run(&policy, &capture.records, runtime::BATCH);
            assert!(started.elapsed() < TOO_LONG, "{}", capture.name);
            outcome.check(&capture.records);
            let changed = compare(kind, capture, &outcome);
            read_again(capture, &outcome);
            same_again(&policy, capture, &outcome);
            same_walking(&policy, capture, &outcome);
            same_on_units(&policy, capture, &outcome);
            same_on_threads(&policy, capture, &outcome);
            let report = &outcome.report;
            let followed = report.timing.fast_path.as_ref().map_or(0, |path| path.packets);
            (report.packets_in, report.dropped(), changed, followed)
        }));
        match judged {
            Ok(counts) => {
                (packets, dropped, changed) = (packets + counts.0, dropped + counts.1, changed + counts.2);
                followed += counts.3;
            }
            Err(_) => failed.push(&capture.name),
        }
    }
    assert!(failed.is_empty(), "{kind:?}: {failed:?}");
    println!(
        "{kind:?}: {} captures, {packets} packets, {dropped} dropped, {changed} changed, {followed} by rules",
        captures.len()
    );
    let idle = captures.is_empty() || kind.changes_nothing();
    assert!(idle || changed > 5_000, "the policy must do something to be tested: {changed} changed");
    assert!(captures.is_empty() || kind != Kind::Graph || followed * 4 > packets, "{followed} by rules");
}

/// Compares input and output. Checksums must be as right as before, and everything else unchanged
/// unless a function changes it. Returns the number of changed packets.
fn compare(kind: Kind, capture: &Capture, outcome: &Outcome) -> u64 {
    let mut changed = 0;
    for sent in &outcome.sent {
        let record = &capture.records[sent.record as usize];
        let context = || format!("{kind:?} {} packet {}", capture.name, sent.record + 1);
        if sent.data == record.data {
            continue;
        }
        changed += 1;
        let (before, after) = (sums::all(record.link, &record.data), sums::all(sent.link, &sent.data));
        let is_ip = sums::network(record.link, &record.data).is_some();
        assert!(is_ip, "{}: changed, and not IP", context());
        assert!(sums::kept(&before, &after), "{}: {before:?} {after:?}", context());
    }
    let made = outcome.report.packets_generated;
    assert!(!kind.changes_nothing() || changed <= made, "{kind:?} {}: {changed} changed", capture.name);
    changed
}

/// Reads the written capture back, packet by packet.
fn read_again(capture: &Capture, outcome: &Outcome) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let format = CaptureFormat { kind: FormatKind::Pcapng, gzip: false };
    let mut writer = CaptureWriter::create(file.path(), format).unwrap();
    let mut links: Vec<packet::LinkType> = Vec::new();
    for sent in &outcome.sent {
        let known = links.iter().position(|link| *link == sent.link);
        let interface = known.unwrap_or_else(|| {
            writer.add_interface(links.len() as u32, "out", sent.link).unwrap();
            links.push(sent.link);
            links.len() - 1
        });
        let record = CaptureRecord {
            timestamp_ns: sent.timestamp_ns,
            interface: interface as u32,
            link_type: sent.link,
            wire_len: sent.wire_len,
            data: &sent.data,
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = CaptureReader::open(file.path()).unwrap();
    for sent in &outcome.sent {
        let record =
            reader.next().unwrap().unwrap_or_else(|| panic!("{}: a packet is missing", capture.name));
        assert_eq!(
            (record.data, record.timestamp_ns),
            (&sent.data[..], sent.timestamp_ns),
            "{}",
            capture.name
        );
        assert_eq!(record.wire_len, sent.wire_len, "{}", capture.name);
    }
    assert!(reader.next().unwrap().is_none(), "{}", capture.name);
}

/// Asserts that the output on units is the same in every mode. Records of flows' ends are in each
/// unit's own order.
fn same_on_units(policy: &str, capture: &Capture, first: &Outcome) {
    for mode in [Granularity::Flowlet, Granularity::Packet] {
        let config =
            UnitsConfig { mode, units_max: 5, capacity_bps: 2_000_000, ..UnitsConfig::as_published() };
        let other = run_on_units(policy, &capture.records, config);
        let context = || format!("{} on units, {mode}", capture.name);
        assert!(first.sent == other.sent, "{}: other packets", context());
        assert_eq!(first.lasting_report(), other.lasting_report(), "{}", context());
        let told = |outcome: &Outcome| {
            // Which of several flows that end together releases a shared item depends on the order.
            let last_of = |alert: &Alert| match alert.sequence {
                0 => Alert { key: FlowKey::default(), reversed: false, ..alert.clone() },
                _ => alert.clone(),
            };
            let alerts = outcome.alerts.iter().map(|alert| format!("{:?}", last_of(alert)));
            let events = outcome.events.iter().map(|event| format!("{event:?}"));
            let mut told: Vec<_> = alerts.chain(events).collect();
            told.extend(outcome.flows.iter().map(|flow| format!("{flow:?}")));
            told.sort();
            told
        };
        let (first, other) = (told(first), told(&other));
        let differ = first.iter().zip(&other).find(|(first, other)| first != other);
        assert!(first.len() == other.len() && differ.is_none(), "{}: told otherwise: {differ:#?}", context());
    }
}

/// Units on threads send the same packets in each unit's own order, with the same counts, unless
/// flows share rates.
fn same_on_threads(policy: &str, capture: &Capture, first: &Outcome) {
    let config = UnitsConfig {
        units_min: 2,
        units_max: 3,
        capacity_bps: 2_000_000,
        mode: Granularity::Packet,
        ..UnitsConfig::as_published()
    };
    let other = run_on_threads(policy, &capture.records, config);
    if is_order_sensitive(policy) {
        // Which flow's packet exceeds a shared rate depends on the threads.
        other.check(&capture.records);
        assert_eq!(first.report.packets_in, other.report.packets_in, "{}", capture.name);
        return;
    }
    assert!(sorted(&first.sent) == sorted(&other.sent), "{}: packets differ on threads", capture.name);
    let counted = |outcome: &Outcome| {
        let mut report = outcome.lasting_report();
        // The peak of flows is sampled.
        report["flows"].as_object_mut().unwrap().remove("peak");
        // The expiry of a datagram is noticed at the next fragment, which may be at another unit,
        // so not all are counted.
        let streams = report["streams"].as_object_mut();
        let lost =
            streams.and_then(|streams| streams.remove("fragments_lost")).and_then(|lost| lost.as_u64());
        (report, lost.unwrap_or(0))
    };
    let ((first, first_lost), (other, other_lost)) = (counted(first), counted(&other));
    assert_eq!(first, other, "{} on threads", capture.name);
    assert!(other_lost <= first_lost, "{} on threads: {other_lost} datagrams lost", capture.name);
}

/// Asserts that the same input and seed give the same output byte for byte. One packet at a time,
/// only the order across flows may differ.
fn same_again(policy: &str, capture: &Capture, first: &Outcome) {
    let second = run(policy, &capture.records, runtime::BATCH);
    assert_eq!(first.lasting_report(), second.lasting_report(), "{}", capture.name);
    assert!(first.sent == second.sent, "{}: other packets", capture.name);
    assert!(first.alerts == second.alerts, "{}: other alerts", capture.name);
    assert!(first.events == second.events, "{}: other events", capture.name);
    assert!(first.flows == second.flows, "{}: flow reports differ", capture.name);
    let single = run(policy, &capture.records, 1);
    assert_eq!(first.lasting_report(), single.lasting_report(), "{}", capture.name);
    assert!(sorted(&first.sent) == sorted(&single.sent), "{}: packets differ one by one", capture.name);
    assert!(first.alerts == single.alerts, "{}: alerts differ one by one", capture.name);
    assert!(first.events == single.events, "{}: events differ one by one", capture.name);
    assert!(by_time(first) == by_time(&single), "{}: flow reports differ one by one", capture.name);
}

/// Asserts that the fast path gives the same output and counts as the slow path (B4).
fn same_walking(policy: &str, capture: &Capture, first: &Outcome) {
    let walking = policy.replace("settings { ", "settings { consolidate: false, ");
    assert_ne!(walking, policy);
    let walked = run(&walking, &capture.records, runtime::BATCH);
    assert!(walked.report.timing.fast_path.is_none());
    assert_eq!(first.lasting_report(), walked.lasting_report(), "{} walking", capture.name);
    assert!(first.sent == walked.sent, "{}: packets differ on the slow path", capture.name);
    assert!(first.alerts == walked.alerts, "{}: alerts differ on the slow path", capture.name);
    assert!(first.events == walked.events, "{}: events differ on the slow path", capture.name);
    assert!(by_time(first) == by_time(&walked), "{}: flow reports differ on the slow path", capture.name);
}

/// Sorts flow reports: the order within a batch is not fixed.
fn by_time(outcome: &Outcome) -> Vec<FlowReport> {
    let mut flows = outcome.flows.clone();
    flows.sort_by_key(|flow| {
        (flow.source, flow.source_port, flow.destination, flow.destination_port, flow.first_ns)
    });
    flows
}

fn sorted(sent: &[Sent]) -> Vec<&Sent> {
    let mut sent: Vec<_> = sent.iter().collect();
    sent.sort();
    sent
}

#[test]
fn every_capture_through_a_wire() {
    each(Kind::Wire);
}

#[test]
fn every_capture_through_a_nat() {
    each(Kind::Nat);
}

#[test]
fn every_capture_through_a_load_balancer() {
    each(Kind::Balance);
}

#[test]
fn every_capture_into_tunnels() {
    each(Kind::Tunnel);
}

#[test]
fn every_capture_through_a_firewall() {
    each(Kind::Firewall);
}

#[test]
fn every_capture_through_a_monitor() {
    each(Kind::Monitor);
}

#[test]
fn every_capture_through_a_policer() {
    each(Kind::Police);
}

#[test]
fn every_capture_through_a_whitelist() {
    each(Kind::Whitelist);
}

#[test]
fn every_capture_through_a_preventer_of_denial_of_service() {
    each(Kind::Dos);
}

#[test]
fn every_capture_through_http() {
    each(Kind::Http);
}

#[test]
fn every_capture_through_a_redundancy_meter() {
    each(Kind::Redundancy);
}

/// SpeedyBox's first real chain (B34); all of it can be consolidated.
#[test]
fn every_capture_through_a_consolidated_graph() {
    each(Kind::Graph);
}

#[test]
fn every_capture_through_all_functions() {
    each(Kind::All);
}
