//! IPFIX messages decode back to what was reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test that cannot go on has failed.

mod ipfix_decoder;

use std::net::UdpSocket;

use io::ipfix::{Exporter, FileWriter, MESSAGE_MIN, MessageLimitError, Options, UdpCollector};
use ipfix_decoder::{Decoder, Message, Record, number};
use nf::FlowReport;
use packet::{Addr, Endpoint};
use proptest::prelude::*;

const REVERSE: u32 = 29_305;

fn report() -> impl Strategy<Value = FlowReport> {
    let pair = || any::<[u64; 2]>();
    let small = prop_oneof![3 => 1..u64::MAX, 1 => Just(0u64)];
    let packets = [small.clone(), small];
    let ends = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u16; 2]>(), any::<bool>());
    let marks = (
        any::<[u8; 2]>(),
        any::<[u16; 2]>(),
        0..4096u16,
        any::<[u8; 2]>(),
        (1..6u8, any::<Option<[u16; 2]>>()),
    );
    let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(47)];
    (ends, marks, protocol, packets, pair(), pair(), pair()).prop_map(
        |(
            (a, b, ports, v4),
            (tcp_flags, icmp, vlan, tos, (end_reason, exit)),
            protocol,
            packets,
            bytes,
            first,
            last,
        )| {
            let addr = |bytes: [u8; 16]| {
                if v4 {
                    Addr::from_v4_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
                } else {
                    Addr::from_bytes(bytes)
                }
            };
            FlowReport {
                source: addr(a),
                destination: addr(b),
                source_port: ports[0],
                destination_port: ports[1],
                protocol,
                version: if v4 { 4 } else { 6 },
                tcp_flags,
                icmp,
                vlan,
                first_ns: first,
                last_ns: last,
                packets,
                bytes,
                tos,
                // As a NAT of both ends would have it.
                translated: exit.map(|ports| {
                    let end = |addr, port| Endpoint { addr, port };
                    (end(addr(b), ports[0]), end(addr(a), ports[1]))
                }),
                end_reason,
            }
        },
    )
}

/// All messages for these reports.
fn encode(exporter: &mut Exporter, mut reports: &[FlowReport], now_s: u32) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(message) = exporter.next_message(&mut reports, now_s) {
        messages.push(message.to_vec());
    }
    assert!(reports.is_empty());
    messages
}

fn decode(messages: &[Vec<u8>]) -> Vec<Message> {
    Decoder::default().file(&messages.concat())
}

/// What a record says of forward direction `d`, apart from the reverse direction.
fn check(record: &Record, report: &FlowReport, d: usize) {
    let (source, destination) =
        if d == 0 { (report.source, report.destination) } else { (report.destination, report.source) };
    let (a, b) = match report.version {
        4 => (
            record[&(8, 0)].as_slice() == source.v4_bytes(),
            record[&(12, 0)].as_slice() == destination.v4_bytes(),
        ),
        _ => (
            record[&(27, 0)].as_slice() == source.as_bytes(),
            record[&(28, 0)].as_slice() == destination.as_bytes(),
        ),
    };
    assert!(a && b, "addresses");
    let is_icmp = [1, 58].contains(&report.protocol);
    let ports = [report.source_port, report.destination_port].map(|port| if is_icmp { 0 } else { port });
    assert_eq!(number(record, 7, 0), u64::from(ports[d]));
    assert_eq!(number(record, 11, 0), u64::from(ports[1 - d]));
    assert_eq!(number(record, 4, 0), u64::from(report.protocol));
    assert_eq!(number(record, 58, 0), u64::from(report.vlan));
    assert_eq!(number(record, 136, 0), u64::from(report.end_reason));
    assert_eq!(number(record, 239, 0), 1 + d as u64);
    let (source, destination, bytes) = match report.version {
        4 => (225, 226, 4),
        _ => (281, 282, 16),
    };
    assert_eq!(record.contains_key(&(source, 0)), report.translated.is_some());
    if let Some((first, second)) = report.translated {
        let (from, to) = if d == 0 { (first, second) } else { (second, first) };
        for (element, port, end) in [(source, 227, from), (destination, 228, to)] {
            // IPv4 addresses are the last four bytes.
            assert_eq!(record[&(element, 0)], end.addr.as_bytes()[16 - bytes..]);
            assert_eq!(number(record, port, 0), if is_icmp { 0 } else { u64::from(end.port) });
        }
    }
}

fn check_counts(record: &Record, report: &FlowReport, d: usize, enterprise: u32) {
    let timed = if report.packets[d] > 0 { d } else { 1 - d };
    let icmp = if report.version == 4 { 32 } else { 139 };
    assert_eq!(number(record, 1, enterprise), report.bytes[d]);
    assert_eq!(number(record, 2, enterprise), report.packets[d]);
    assert_eq!(number(record, 5, enterprise), u64::from(report.tos[d]));
    assert_eq!(number(record, 6, enterprise), u64::from(report.tcp_flags[d]));
    assert_eq!(number(record, icmp, enterprise), u64::from(report.icmp[d]));
    assert_eq!(number(record, 152, enterprise), report.first_ns[timed] / 1_000_000);
    assert_eq!(number(record, 153, enterprise), report.last_ns[timed] / 1_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn records_decode_to_what_was_reported(
        reports in prop::collection::vec(report(), 0..60),
        biflow: bool,
        message_max in prop_oneof![Just(MESSAGE_MIN), MESSAGE_MIN..3000, Just(65_535)],
        observation_domain: u32,
        export_time_s: u32,
    ) {
        let options = Options { biflow, message_max, observation_domain, ..Options::default() };
        let messages = encode(&mut Exporter::new(options).unwrap(), &reports, export_time_s);
        prop_assert!(messages.iter().all(|message| message.len() <= message_max));
        let decoded = decode(&messages);
        let mut sequence = 0;
        for message in &decoded {
            prop_assert!(!message.records.is_empty());
            prop_assert_eq!((message.sequence, message.domain), (sequence, observation_domain));
            prop_assert_eq!(message.export_time_s, export_time_s);
            sequence += message.records.len() as u32;
        }
        let mut records = decoded.iter().flat_map(|message| &message.records);
        for report in &reports {
            if biflow && report.packets != [0, 0] {
                let record = records.next().unwrap();
                check(record, report, 0);
                check_counts(record, report, 0, 0);
                check_counts(record, report, 1, REVERSE);
            }
            for d in [0, 1].into_iter().filter(|&d| !biflow && report.packets[d] > 0) {
                let record = records.next().unwrap();
                check(record, report, d);
                check_counts(record, report, d, 0);
            }
        }
        prop_assert!(records.next().is_none());
    }
}

fn some_report() -> FlowReport {
    FlowReport {
        source: Addr::from_v4_bytes([10, 0, 0, 1]),
        destination: Addr::from_v4_bytes([10, 0, 0, 2]),
        version: 4,
        packets: [1, 1],
        bytes: [40, 40],
        ..FlowReport::default()
    }
}

#[test]
fn templates_are_repeated_by_count_and_by_time() {
    let options = Options { template_every_messages: 3, template_every_s: 10, ..Options::default() };
    let mut exporter = Exporter::new(options).unwrap();
    let times = [100, 100, 100, 100, 105, 110, 119, 120, 130];
    let messages: Vec<_> =
        times.iter().flat_map(|&now_s| encode(&mut exporter, &[some_report()], now_s)).collect();
    let repeated: Vec<bool> = decode(&messages).iter().map(|m| m.templates == [256, 257, 260, 261]).collect();
    assert_eq!(repeated, [true, false, false, true, false, true, false, true, true]);
}

#[test]
fn nothing_to_tell_is_no_message() {
    let mut exporter = Exporter::new(Options::default()).unwrap();
    assert!(encode(&mut exporter, &[], 0).is_empty());
    assert!(encode(&mut exporter, &[FlowReport { packets: [0, 0], ..some_report() }], 0).is_empty());
    // The templates that were not sent then come with the first message.
    assert_eq!(decode(&encode(&mut exporter, &[some_report()], 0))[0].templates, [256, 257, 260, 261]);
}

#[test]
fn limits_are_checked() {
    for wrong in [0, MESSAGE_MIN - 1, 65_536] {
        let error = Exporter::new(Options { message_max: wrong, ..Options::default() }).unwrap_err();
        assert_eq!(error, MessageLimitError(wrong));
    }
}

#[test]
fn a_file_is_its_messages_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    let mut file = FileWriter::create(&path, Options::default()).unwrap();
    file.write(&[some_report(); 50], 7).unwrap();
    file.write(&[some_report(); 3], 8).unwrap();
    file.finish().unwrap();
    let messages = Decoder::default().file(&std::fs::read(&path).unwrap());
    assert_eq!(messages.iter().map(|m| m.records.len()).sum::<usize>(), 106);
    assert_eq!(messages.last().map(|m| m.export_time_s), Some(8));
}

#[test]
fn a_collector_gets_datagrams_and_may_be_down() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut collector = UdpCollector::connect(socket.local_addr().unwrap(), Options::default()).unwrap();
    collector.send(&[some_report(); 30], 7);
    assert_eq!((collector.messages_lost(), collector.messages_sent()), (0, 3));
    let (mut decoder, mut records, mut buffer) = (Decoder::default(), 0, [0; 2000]);
    for _ in 0..3 {
        let len = socket.recv(&mut buffer).unwrap();
        records += decoder.message(&buffer[..len]).0.records.len();
    }
    assert_eq!(records, 60);
    drop(socket);
    for _ in 0..20 {
        collector.send(&[some_report()], 8);
    }
    assert_eq!(collector.messages_lost() + collector.messages_sent(), 23);
    assert!(collector.messages_lost() > 0 && collector.last_error().is_some());
}
