//! Any flow reports as IPFIX messages of any size: an independent decoder reads them, and finds a record for each direction.

#![no_main]

use io::ipfix::{Exporter, MESSAGE_MIN, Options};
use libfuzzer_sys::fuzz_target;
use nf::FlowReport;
use packet::{Addr, Endpoint};

#[path = "../../crates/io/tests/ipfix_decoder/mod.rs"]
#[allow(dead_code)]
mod ipfix_decoder;

use ipfix_decoder::Decoder;

/// Bytes of input that a report is made of.
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
    while let Some(message) = exporter.next_message(&mut left, now_s) {
        assert!(message.len() <= options.message_max);
        messages.extend_from_slice(message);
        now_s += u32::from(seconds);
    }
    assert!(left.is_empty());
    let records: usize = Decoder::default().file(&messages).iter().map(|message| message.records.len()).sum();
    let of = |report: &FlowReport| match report.packets {
        [0, 0] => 0,
        [0, _] | [_, 0] => 1,
        _ => 2 - usize::from(options.biflow),
    };
    assert_eq!(records, reports.iter().map(of).sum::<usize>());
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
        translated: (bytes[47] & 1 != 0).then(|| {
            (Endpoint { addr: address(16), port: half(32) }, Endpoint { addr: address(0), port: half(34) })
        }),
        ..FlowReport::default()
    }
}
