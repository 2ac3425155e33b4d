//! Any flow reports and NAT events as IPFIX messages of any size. An independent decoder reads them
//! and finds a record for each direction and event, in messages numbered by the preceding records.

#![no_main]

use io::ipfix::{Exporter, MESSAGE_MIN, NatRecord, Options};
use libfuzzer_sys::fuzz_target;
use nf::FlowReport;
use packet::{Addr, Endpoint};

#[path = "../../crates/io/tests/ipfix_decoder/mod.rs"]
#[allow(dead_code)]
mod ipfix_decoder;

use ipfix_decoder::Decoder;

/// Bytes of input per report.
const REPORT: usize = 48;

// Input: two bytes of options, two of the longest message, then reports.
fuzz_target!(|data: &[u8]| {
    let Some((&[how, seconds, long, short], reports)) = data.split_first_chunk() else { return };
    let options = Options {
        biflow: how & 1 != 0,
        message_max: MESSAGE_MIN.max(usize::from(u16::from_be_bytes([long, short]))),
        template_every_messages: u32::from(how >> 4),
        template_every_s: u32::from(seconds),
        ..Options::default()
    };
    let reports: Vec<FlowReport> = reports.as_chunks::<REPORT>().0.iter().map(report).collect();
    let mut exporter = Exporter::new(options).unwrap();
    let (mut left, mut now_s, mut messages) = (&reports[..], 0, Vec::new());
    let events: Vec<NatRecord> = reports.iter().map(event).collect();
    let mut events_left = &events[..];
    loop {
        let flows = exporter.next_message(&mut left, now_s).map(<[u8]>::to_vec);
        let nat = exporter.next_nat_message(&mut events_left, now_s).map(<[u8]>::to_vec);
        if flows.is_none() && nat.is_none() {
            break;
        }
        for message in flows.into_iter().chain(nat) {
            assert!(message.len() <= options.message_max);
            messages.extend(message);
        }
        now_s += u32::from(seconds);
    }
    assert!(left.is_empty() && events_left.is_empty());
    let messages = Decoder::default().file(&messages);
    let mut sequence = 0;
    for message in &messages {
        assert_eq!(message.sequence, sequence);
        sequence += (message.records.len() + message.options.len()) as u32;
    }
    let records: usize = messages.iter().map(|message| message.records.len()).sum();
    let of = |report: &FlowReport| match report.packets {
        [0, 0] => 0,
        [0, _] | [_, 0] => 1,
        _ => 2 - usize::from(options.biflow),
    };
    let exported = [4, 5, 8, 9, 12, 13, 16, 17];
    let told = events.iter().filter(|event| exported.contains(&event.event)).count();
    assert_eq!(records, reports.iter().map(of).sum::<usize>() + told);
});

fn report(bytes: &[u8; REPORT]) -> FlowReport {
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| {
        let bytes: [u8; 16] = bytes[at..at + 16].try_into().unwrap();
        if bytes[0] & 1 == 0 {
            Addr::from_bytes(bytes)
        } else {
            Addr::from_v4_bytes([bytes[0], 0, 0, bytes[3]])
        }
    };
    FlowReport {
        source: address(0),
        destination: address(16),
        source_port: half(32),
        destination_port: half(34),
        protocol: bytes[36],
        version: if bytes[37] & 1 == 0 { 6 } else { 4 },
        tcp_flags: [bytes[38], bytes[39]],
        icmp: [half(38), half(40)],
        vlan: half(40) & 0xfff,
        packets: [u64::from(bytes[42]), u64::from(bytes[43])],
        bytes: [u64::MAX - u64::from(bytes[42]), half(42).into()],
        tos: [bytes[44], bytes[45]],
        end_reason: bytes[46],
        sampling: [0, 1, 10, u32::MAX][usize::from(bytes[47] >> 1 & 3)],
        translated: (bytes[47] & 1 != 0).then(|| {
            (Endpoint { addr: address(16), port: half(32) }, Endpoint { addr: address(0), port: half(34) })
        }),
        ..FlowReport::default()
    }
}

/// A NAT event similar to a report, of any kind.
fn event(report: &FlowReport) -> NatRecord {
    let ends = |first, second| [Endpoint { addr: first, port: 1 }, Endpoint { addr: second, port: 2 }];
    NatRecord {
        time_ms: report.packets[1],
        event: report.end_reason % 20,
        realm: report.tos[0],
        protocol: report.protocol,
        before: ends(report.source, report.destination),
        after: ends(report.destination, report.source),
        ports: report.icmp,
        quota: report.sampling,
        limit: report.vlan.into(),
    }
}
