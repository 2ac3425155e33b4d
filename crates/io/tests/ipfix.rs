//! IPFIX messages decode to the reports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod ipfix_decoder;

use std::net::UdpSocket;

use io::ipfix::{Exporter, FileWriter, MESSAGE_MIN, MessageLimitError, NatRecord, Options, UdpCollector};
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
        (1..6u8, any::<Option<[u16; 2]>>(), prop_oneof![8 => Just(1u32), 1 => Just(0), 1 => Just(100)]),
    );
    let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(47)];
    (ends, marks, protocol, packets, pair(), pair(), pair()).prop_map(
        |(
            (a, b, ports, v4),
            (tcp_flags, icmp, vlan, tos, (end_reason, exit, sampling)),
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
                // As a NAT of both endpoints.
                translated: exit.map(|ports| {
                    let end = |addr, port| Endpoint { addr, port };
                    (end(addr(b), ports[0]), end(addr(a), ports[1]))
                }),
                end_reason,
                sampling,
                ..FlowReport::default()
            }
        },
    )
}

/// Encodes all messages of these reports.
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

/// Checks a record's fields of forward direction `d`, apart from the reverse direction.
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
    assert_eq!(record[&(6, enterprise)], [report.tcp_flags[d]], "one octet, which all collectors read");
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
            sequence += (message.records.len() + message.options.len()) as u32;
        }
        let mut records = decoded.iter().flat_map(|message| &message.records);
        let mut samplings = samplings(&decoded, observation_domain).into_iter();
        for report in &reports {
            let directions = if biflow { usize::from(report.packets != [0, 0]) } else { report.packets.iter().filter(|&&packets| packets > 0).count() };
            for sampling in samplings.by_ref().take(directions) {
                prop_assert_eq!(sampling, u64::from(report.sampling.max(1)));
            }
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

/// Returns the sampling of each record, by the options record before it.
fn samplings(messages: &[Message], observation_domain: u32) -> Vec<u64> {
    let (mut all, mut now) = (Vec::new(), 1);
    for message in messages {
        for at in 0..message.records.len() {
            for (_, options) in message.options.iter().filter(|(before, _)| *before == at) {
                now = number(options, 34, 0);
                let probability = f64::from_bits(number(options, 311, 0));
                assert_eq!(number(options, 149, 0), u64::from(observation_domain));
                assert_eq!((number(options, 390, 0), probability), (4, 1.0 / now as f64));
                assert!(!options.contains_key(&(35, 0)), "nfdump ignores an interval with an algorithm");
            }
            all.push(now);
        }
    }
    all
}

fn some_nat_events() -> Vec<NatRecord> {
    let end = |last: u8, port| Endpoint { addr: Addr::from_v4_bytes([192, 0, 2, last]), port };
    let kinds = [4, 5, 8, 9, 12, 13, 16, 17, 1, 6];
    let event = |(number, event): (usize, u8)| NatRecord {
        time_ms: 1_700_000_000_000 + number as u64,
        event,
        realm: 1,
        protocol: 6,
        before: [end(1, 1000 + number as u16), end(2, 80)],
        after: [end(3, 2000 + number as u16), end(4, 8080)],
        ports: [3000, 3999],
        quota: 3,
        limit: 77,
    };
    kinds.repeat(20).into_iter().enumerate().map(event).collect()
}

#[test]
fn nat_events_have_the_elements_of_their_kind() {
    let mut exporter = Exporter::new(Options { message_max: MESSAGE_MIN, ..Options::default() }).unwrap();
    let events = some_nat_events();
    let mut messages = encode(&mut exporter, &[some_report()], 7);
    let mut rest = &events[..];
    while let Some(message) = exporter.next_nat_message(&mut rest, 7) {
        assert!(message.len() <= MESSAGE_MIN);
        messages.push(message.to_vec());
    }
    messages.extend(encode(&mut exporter, &[some_report()], 7));
    let decoded = decode(&messages);
    let mut sequence = 0;
    for message in &decoded {
        assert_eq!(message.sequence, sequence);
        sequence += (message.records.len() + message.options.len()) as u32;
    }
    assert_eq!(decoded[1].templates, [266, 267, 268, 269, 270]);
    assert!(decoded[2..].iter().all(|message| message.templates.is_empty()));
    let records = decoded.iter().flat_map(|message| &message.records);
    let records: Vec<_> = records.filter(|record| record.contains_key(&(230, 0))).collect();
    // Events that RFC 8158 does not have, or that are not exported, have no record.
    let events: Vec<_> = events.iter().filter(|event| ![1, 6].contains(&event.event)).collect();
    assert_eq!(records.len(), events.len());
    for (record, event) in records.into_iter().zip(events) {
        let has = |element: u16| record.contains_key(&(element, 0));
        assert_eq!(number(record, 230, 0), u64::from(event.event));
        assert_eq!(number(record, 323, 0), event.time_ms);
        let address = |element: u16| record[&(element, 0)].as_slice();
        match event.event {
            4 | 5 | 8 | 9 => {
                assert_eq!([229, 4].map(|element| number(record, element, 0)), [1, 6]);
                assert_eq!((address(8), address(225)), (&[192, 0, 2, 1][..], &[192, 0, 2, 3][..]));
                assert_eq!(number(record, 7, 0), u64::from(event.before[0].port));
                assert_eq!(number(record, 227, 0), u64::from(event.after[0].port));
                let is_session = event.event < 8;
                assert_eq!([12, 226, 11, 228].map(has), [is_session; 4]);
                if is_session {
                    assert_eq!((address(12), address(226)), (&[192, 0, 2, 2][..], &[192, 0, 2, 4][..]));
                    assert_eq!([11, 228].map(|element| number(record, element, 0)), [80, 8080]);
                }
            }
            12 => assert_eq!((address(225), number(record, 4, 0)), (&[192, 0, 2, 3][..], 6)),
            13 => {
                assert_eq!([466, 473].map(|element| number(record, element, 0)), [3, 77]);
                assert_eq!(address(8), [192, 0, 2, 1]);
            }
            _ => {
                assert_eq!([361, 362].map(|element| number(record, element, 0)), [3000, 3999]);
                assert_eq!((address(8), address(225)), (&[192, 0, 2, 1][..], &[192, 0, 2, 3][..]));
            }
        }
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
fn no_reports_make_no_message() {
    let mut exporter = Exporter::new(Options::default()).unwrap();
    assert!(encode(&mut exporter, &[], 0).is_empty());
    assert!(encode(&mut exporter, &[FlowReport { packets: [0, 0], ..some_report() }], 0).is_empty());
    // The templates that were not sent then are in the first message.
    assert_eq!(decode(&encode(&mut exporter, &[some_report()], 0))[0].templates, [256, 257, 260, 261]);
}

#[test]
fn limits_of_options_are_checked() {
    for wrong in [0, MESSAGE_MIN - 1, 65_536] {
        let error = Exporter::new(Options { message_max: wrong, ..Options::default() }).unwrap_err();
        assert_eq!(error, MessageLimitError(wrong));
    }
}

#[test]
fn a_file_is_a_sequence_of_messages() {
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
fn a_collector_receives_datagrams_and_may_be_down() {
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
