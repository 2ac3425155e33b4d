//! IPFIX as nfdump's collector and tshark read it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod nfcapd;

use std::net::{Ipv6Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter, FormatKind};
use io::ipfix::{Exporter, NatRecord, Options, UdpCollector};
use nf::FlowReport;
use nfcapd::Collector;
use packet::{Addr, Endpoint, LinkType};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// 2026-01-01 00:00:00 UTC.
const EPOCH_S: u64 = 1_767_225_600;

/// Returns whether a tool is installed. If not, the test is skipped, which fails in CI.
fn installed(tool: &str) -> bool {
    // To tshark `-V` would mean to capture.
    let version = if tool == "tshark" { "-v" } else { "-V" };
    if Command::new(tool).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{tool} is not installed");
    println!("SKIPPED: {tool} is not installed");
    false
}

/// Returns flows of all kinds, each recognisable by its numbers.
fn reports() -> Vec<FlowReport> {
    let report = |i: u64| {
        let v6 = i.is_multiple_of(3);
        let protocol = match (i % 4, v6) {
            (0, false) => ICMP,
            (0, true) => ICMPV6,
            (1, _) => UDP,
            _ => TCP,
        };
        let addr = |last: u64| match v6 {
            true => Addr::from(std::net::IpAddr::from(Ipv6Addr::new(
                0x2001,
                0xdb8,
                0,
                0,
                0,
                0,
                last as u16,
                i as u16,
            ))),
            false => Addr::from_v4_bytes([10, last as u8, (i >> 8) as u8, i as u8]),
        };
        let start_ns = (EPOCH_S + i) * 1_000_000_000 + 123_000_000;
        FlowReport {
            source: addr(1),
            destination: addr(2),
            source_port: 1024 + i as u16,
            destination_port: 80,
            protocol,
            version: if v6 { 6 } else { 4 },
            tcp_flags: if protocol == TCP { [0x1b, 0x13] } else { [0; 2] },
            icmp: match protocol {
                ICMP => [0x0800, 0x0000],
                ICMPV6 => [0x8000, 0x8100],
                _ => [0; 2],
            },
            vlan: i as u16 % 4096,
            first_ns: [start_ns, start_ns + 2_000_000],
            last_ns: [start_ns + 1_500_000_000, start_ns + 1_400_000_000],
            packets: [i + 1, if i.is_multiple_of(5) { 0 } else { 2 * i }],
            bytes: [100 * (i + 1), if i.is_multiple_of(5) { 0 } else { 3_000 * i }],
            tos: [(i % 64) as u8 * 4, (i % 32) as u8 * 8],
            // As a NAT reports them: records of another template.
            translated: i.is_multiple_of(3).then(|| {
                let end = |addr, port| Endpoint { addr, port };
                (end(addr(3), 2048 + i as u16), end(addr(2), 80))
            }),
            end_reason: (i % 5) as u8 + 1,
            sampling: 1,
            ..FlowReport::default()
        }
    };
    (1..=300).map(report).collect()
}

/// Returns nfdump's rows of flows, in the order of [`expected_rows`].
fn nfdump(folder: &Path) -> Vec<String> {
    let output = Command::new("nfdump")
        .env("TZ", "UTC")
        .args(["-N", "-6", "-q", "-o", "fmt:%pr|%sa|%sp|%da|%dp|%flg|%tos|%svln|%pkt|%byt|%ts|%te", "-R"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rows: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join("|"))
        .collect();
    rows.sort();
    rows
}

/// Returns the same rows, one for each direction that had packets, from the reports.
fn expected_rows(reports: &[FlowReport]) -> Vec<String> {
    let mut rows: Vec<String> = reports
        .iter()
        .flat_map(|report| [0, 1].into_iter().filter(|&d| report.packets[d] > 0).map(|d| row(report, d)))
        .collect();
    rows.sort();
    rows
}

fn row(report: &FlowReport, d: usize) -> String {
    let addrs = [report.source, report.destination];
    let ports = [report.source_port.to_string(), report.destination_port.to_string()];
    let [kind, code] = report.icmp[d].to_be_bytes();
    let (source_port, destination_port) = match report.protocol {
        ICMP | ICMPV6 => ("0".to_owned(), format!("{kind}.{code}")),
        _ => (ports[d].clone(), ports[1 - d].clone()),
    };
    let flags: String = (0..8)
        .rev()
        .map(|bit| if report.tcp_flags[d] >> bit & 1 == 1 { b"FSRPAUEC"[bit] as char } else { '.' })
        .collect();
    format!(
        "{}|{}|{source_port}|{}|{destination_port}|{flags}|{}|{}|{}|{}|{}|{}",
        report.protocol,
        addrs[d],
        addrs[1 - d],
        report.tos[d],
        report.vlan,
        report.packets[d],
        report.bytes[d],
        time(report.first_ns[d]),
        time(report.last_ns[d]),
    )
}

/// Formats a time of the first day of 2026 as nfdump does.
fn time(ns: u64) -> String {
    let ms = ns / 1_000_000 - EPOCH_S * 1000;
    let (s, ms) = (ms / 1000, ms % 1000);
    format!("2026-01-01 {:02}:{:02}:{:02}.{ms:03}", s / 3600, s / 60 % 60, s % 60)
}

#[test]
fn nfdump_has_every_flow_packet_and_byte() {
    if !installed("nfcapd") || !installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nfcapd = Collector::start(folder.path());
    let mut udp = UdpCollector::connect(nfcapd.address(), Options::default()).unwrap();
    udp.send(&reports(), (EPOCH_S + 400) as u32);
    assert_eq!(udp.messages_lost(), 0);
    nfcapd.stop();
    let (rows, expected) = (nfdump(folder.path()), expected_rows(&reports()));
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
    assert_eq!(rows.len(), expected.len());
}

/// Returns tshark's fields of all messages, each in a frame of its own.
fn tshark(messages: &[Vec<u8>], arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipfix.pcap");
    let mut writer =
        CaptureWriter::create(&path, CaptureFormat { kind: FormatKind::Pcap, ..CaptureFormat::default() })
            .unwrap();
    for message in messages {
        let data = datagram(message);
        writer
            .write(&CaptureRecord {
                timestamp_ns: EPOCH_S * 1_000_000_000,
                interface: 0,
                link_type: LinkType::RawIp,
                wire_len: data.len() as u32,
                data: &data,
            })
            .unwrap();
    }
    writer.finish().unwrap();
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-d", "udp.port==4739,cflow"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the message in an IPv4 packet to the port of IPFIX.
fn datagram(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend((28 + message.len() as u16).to_be_bytes());
    out.extend([0, 0, 0, 0, 64, UDP, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    out.extend([0x12, 0x83, 0x12, 0x83]);
    out.extend((8 + message.len() as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(message);
    out
}

#[test]
fn tshark_decodes_every_message() {
    if !installed("tshark") {
        return;
    }
    for biflow in [false, true] {
        let mut exporter = Exporter::new(Options { biflow, ..Options::default() }).unwrap();
        let (reports, mut messages) = (reports(), Vec::new());
        let mut rest = &reports[..];
        while let Some(message) = exporter.next_message(&mut rest, EPOCH_S as u32) {
            messages.push(message.to_vec());
        }
        let faults = tshark(&messages, &["-Y", "_ws.malformed || _ws.expert"]);
        assert_eq!(faults, "", "biflow {biflow}");
        let fields = ["-T", "fields", "-e", "cflow.packets", "-E", "aggregator=,"];
        let text = tshark(&messages, &fields);
        let mut seen: Vec<u64> = text.split([',', '\n']).filter_map(|number| number.parse().ok()).collect();
        // tshark lists a reverse element with the forward one of its number.
        let mut expected: Vec<u64> = reports.iter().flat_map(|report| report.packets).collect();
        if !biflow {
            expected.retain(|&packets| packets > 0);
        }
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "biflow {biflow}");
    }
}

/// Returns one NAT event of each kind that is exported.
fn nat_events() -> Vec<NatRecord> {
    let end = |addr: [u8; 4], port| Endpoint { addr: Addr::from_v4_bytes(addr), port };
    let event = |event: u8| NatRecord {
        time_ms: (EPOCH_S + u64::from(event)) * 1000 + 250,
        event,
        realm: 1,
        protocol: UDP,
        before: [end([10, 0, 0, event], 5000), end([198, 51, 100, 7], 53)],
        after: [end([203, 0, 113, 1], 6000 + u16::from(event)), end([198, 51, 100, 7], 53)],
        ports: [7000, 7999],
        quota: 3,
        limit: 4242,
    };
    [4, 5, 8, 9, 12, 13, 16, 17].map(event).to_vec()
}

fn nat_messages() -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(Options::default()).unwrap();
    let (events, mut messages) = (nat_events(), Vec::new());
    let mut rest = &events[..];
    while let Some(message) = exporter.next_nat_message(&mut rest, EPOCH_S as u32) {
        messages.push(message.to_vec());
    }
    messages
}

#[test]
fn tshark_decodes_nat_events() {
    if !installed("tshark") {
        return;
    }
    let messages = nat_messages();
    assert_eq!(tshark(&messages, &["-Y", "_ws.malformed || _ws.expert"]), "");
    let text = tshark(&messages, &["-V"]);
    for known in [
        "Nat Event: NAT44 session create (4)",
        "Nat Event: NAT44 session delete (5)",
        "Nat Event: NAT44 BIB create (8)",
        "Nat Event: NAT44 BIB delete (9)",
        "Nat Event: NAT ports exhausted (12)",
        "Nat Event: Quota Exceeded (13)",
        "Nat Event: Port block allocation (16)",
        "Nat Event: Port block de-allocation (17)",
        "NAT Quota Exceeded Event: Maximum entries per user (3)",
        "Nat Originating Address Realm: 1",
        "Post NAT Source IPv4 Address: 203.0.113.1",
        "Post NAPT Source Transport Port: 6004",
        "Post NAT Destination IPv4 Address: 198.51.100.7",
        "Observation Time Milliseconds: Jan  1, 2026 00:00:04.250000000 UTC",
        "Port Range Start: 7000",
        "Port Range End: 7999",
        "Max Entries Per User: 4242",
    ] {
        assert!(text.contains(known), "{known}: {text}");
    }
}

#[test]
fn nfdump_reads_nat_sessions() {
    if !installed("nfcapd") || !installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nfcapd = Collector::start(folder.path());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for message in nat_messages() {
        socket.send_to(&message, nfcapd.address()).unwrap();
    }
    nfcapd.stop();
    let output = Command::new("nfdump")
        .env("TZ", "UTC")
        .args(["-N", "-6", "-q", "-o", "json", "-R"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<&str> = text.split("},").collect();
    assert_eq!(found.len(), nat_events().len(), "{text}");
    let names = ["NAT44 session create", "NAT44 session delete", "NAT44 BIB create", "NAT44 BIB delete"];
    for ((found, event), name) in found.iter().zip(nat_events()).zip(names) {
        let mut expected = vec![
            format!(r#""src4_addr" : "10.0.0.{}""#, event.event),
            r#""src_port" : 5000"#.to_owned(),
            r#""src4_xlt_ip" : "203.0.113.1""#.to_owned(),
            format!(r#""src_xlt_port" : "{}""#, 6000 + u16::from(event.event)),
            format!(r#""nat_event_id" : "{}""#, event.event),
            format!(r#""nat_event" : "{name}""#),
            format!(r#""t_event" : "2026-01-01T00:00:{:02}.250""#, event.event),
            r#""proto" : 17"#.to_owned(),
        ];
        if name.contains("session") {
            expected.push(r#""dst4_addr" : "198.51.100.7""#.to_owned());
            expected.push(r#""dst_xlt_port" : "53""#.to_owned());
        }
        for expected in expected {
            assert!(found.contains(&expected), "{expected}: {found}");
        }
    }
}

#[test]
fn tshark_decodes_the_sampling() {
    if !installed("tshark") {
        return;
    }
    let mut exporter = Exporter::new(Options::default()).unwrap();
    let sampled = [FlowReport { sampling: 10, ..reports()[0] }];
    let message = exporter.next_message(&mut &sampled[..], EPOCH_S as u32).unwrap().to_vec();
    let text = tshark(&[message], &["-V"]);
    let known = [
        "Observation Domain Id: 1",
        "Flow_Selector_Algorithm: 4",
        "Sampling Probability: 0.1",
        "Sampling interval: 10",
    ];
    for known in known {
        assert!(text.to_lowercase().contains(&known.to_lowercase()), "{known}: {text}");
    }
}

#[test]
fn nfdump_multiplies_sampled_flows() {
    if !installed("nfcapd") || !installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nfcapd = Collector::start(folder.path());
    let mut udp = UdpCollector::connect(nfcapd.address(), Options::default()).unwrap();
    let sampled: Vec<_> = reports().into_iter().map(|report| FlowReport { sampling: 10, ..report }).collect();
    udp.send(&sampled, (EPOCH_S + 400) as u32);
    nfcapd.stop();
    let multiplied = |report: &FlowReport| FlowReport {
        packets: report.packets.map(|packets| 10 * packets),
        bytes: report.bytes.map(|bytes| 10 * bytes),
        ..*report
    };
    let all: Vec<_> = sampled.iter().map(multiplied).collect();
    assert_eq!(nfdump(folder.path()), expected_rows(&all));
}

#[test]
fn nfdump_reads_a_biflows_counts() {
    if !installed("nfcapd") || !installed("nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nfcapd = Collector::start(folder.path());
    let mut udp =
        UdpCollector::connect(nfcapd.address(), Options { biflow: true, ..Options::default() }).unwrap();
    udp.send(&reports(), (EPOCH_S + 400) as u32);
    nfcapd.stop();
    let output = Command::new("nfdump")
        .args(["-N", "-6", "-q", "-o", "fmt:%sa|%sp|%ipkt|%ibyt|%opkt|%obyt", "-R"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join("|"))
        .collect();
    assert_eq!(rows.len(), reports().len());
    for report in reports().iter().filter(|report| [TCP, UDP].contains(&report.protocol)) {
        let expected = format!(
            "{}|{}|{}|{}|{}|{}",
            report.source,
            report.source_port,
            report.packets[0],
            report.bytes[0],
            report.packets[1],
            report.bytes[1]
        );
        assert!(rows.contains(&expected), "{expected}\n{text}");
    }
}
