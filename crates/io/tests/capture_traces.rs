//! Captures from elsewhere: every file is read as other tools read it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use io::capture::{CaptureFormat, CaptureReader, CaptureWriter, FormatKind};
use support::{Owned, drain, read_all};

/// Damaged on purpose: other readers refuse them, and so does this one.
const REFUSED: [(&str, &str); 2] = [
    ("small/pcap-invalid-version-1.pcap", "at byte 4: expected pcap version 2, found version 1.4"),
    (
        "small/shb-option-too-long.pcapng",
        "at byte 48: expected the block's length, as at its beginning, found 808464432",
    ),
];

fn traces() -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if traces.join("MANIFEST.tsv").is_file() {
        return Some(traces);
    }
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no captures at {}", traces.display());
    println!("SKIPPED: no captures at {}", traces.display());
    None
}

/// Returns the manifest's rows, by column name.
fn manifest(traces: &Path) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(traces.join("MANIFEST.tsv")).unwrap();
    let mut lines = text.lines();
    let columns: Vec<_> = lines.next().unwrap().split('\t').map(str::to_owned).collect();
    lines.map(|line| columns.iter().cloned().zip(line.split('\t').map(str::to_owned)).collect()).collect()
}

fn open_all(path: &Path) -> (Vec<Owned>, Option<io::capture::ReadError>) {
    drain(&mut CaptureReader::open(path).unwrap())
}

#[test]
fn every_capture_has_the_packets_and_bytes_of_its_manifest() {
    let Some(traces) = traces() else { return };
    let mut read = 0;
    for row in manifest(&traces) {
        let path = traces.join(&row["file"]);
        if let Some((_, message)) = REFUSED.iter().find(|(file, _)| *file == row["file"]) {
            assert_eq!(CaptureReader::open(&path).unwrap_err().to_string(), *message);
            continue;
        }
        let mut reader = CaptureReader::open(&path).unwrap();
        let (mut packets, mut wire_bytes) = (0_u64, 0_u64);
        let end = loop {
            match reader.next() {
                Ok(Some(record)) => {
                    (packets, wire_bytes) = (packets + 1, wire_bytes + u64::from(record.wire_len))
                }
                end => break end.map(|_| ()),
            }
        };
        let found = (packets.to_string(), wire_bytes.to_string());
        assert_eq!(found, (row["packets"].clone(), row["wire_bytes"].clone()), "{}: {end:?}", row["file"]);
        read += 1;
    }
    println!("read {read} captures");
}

/// All captures except the plainest kind (about a hundred): tshark starts slowly.
#[test]
fn times_lengths_and_interfaces_are_those_of_tshark() {
    let Some(traces) = traces() else { return };
    if Command::new("tshark").arg("-v").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    for row in manifest(&traces) {
        let refused = REFUSED.iter().any(|(file, _)| *file == row["file"]);
        // tshark's number overflows on a fraction of two thousand seconds: the manifest is the
        // oracle there.
        let overflows = row["file"].starts_with("small/timestamp_invalid_");
        let plain = row["file_format"] == "pcap-le-us" && row["link_type"] == "EN10MB";
        if refused || plain || overflows || !row["file"].starts_with("small/") {
            continue;
        }
        let path = traces.join(&row["file"]);
        let (records, _) = open_all(&path);
        let expected = tshark_rows(&path);
        assert_eq!(records.len(), expected.len(), "{}", row["file"]);
        for (number, (record, expected)) in records.iter().zip(expected).enumerate() {
            let found = TsharkRow {
                timestamp_ns: expected.timestamp_ns.is_some().then_some(record.timestamp_ns),
                wire_len: record.wire_len,
                captured: record.data.len(),
                interface: expected.interface.is_some().then_some(record.interface),
            };
            assert_eq!(found, expected, "{} packet {}", row["file"], number + 1);
        }
    }
}

/// A packet as tshark sees it: no time for a simple packet, no interface in pcap.
#[derive(Debug, PartialEq, Eq)]
struct TsharkRow {
    timestamp_ns: Option<u64>,
    wire_len: u32,
    captured: usize,
    interface: Option<u32>,
}

fn tshark_rows(path: &Path) -> Vec<TsharkRow> {
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"])
        .args(["-e", "frame.cap_len", "-e", "frame.interface_id", "-r"])
        .arg(path)
        .output()
        .unwrap();
    let rows = String::from_utf8(output.stdout).unwrap().lines().map(tshark_row).collect::<Vec<_>>();
    // tshark also lists blocks that are no packets, without time and interface.
    rows.into_iter().filter(|row| row.timestamp_ns.is_some() || row.interface.is_some()).collect()
}

fn tshark_row(line: &str) -> TsharkRow {
    let fields: Vec<_> = line.split('\t').collect();
    let time = fields[0].split_once('.').map(|(seconds, nanoseconds)| {
        seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds.parse::<u64>().unwrap()
    });
    TsharkRow {
        timestamp_ns: time,
        wire_len: fields[1].parse().unwrap(),
        captured: fields[2].parse().unwrap(),
        interface: fields[3].parse().ok(),
    }
}

#[test]
fn a_fraction_of_many_seconds_is_carried_into_the_seconds() {
    let Some(traces) = traces() else { return };
    for row in manifest(&traces).iter().filter(|row| row["file"].contains("timestamp_invalid_")) {
        let (records, error) = open_all(&traces.join(&row["file"]));
        assert!(error.is_none());
        let times = || records.iter().map(|record| record.timestamp_ns);
        let duration_us = (times().max().unwrap() - times().min().unwrap()) / 1_000;
        let expected = row["duration_s"].parse::<f64>().unwrap();
        assert!((duration_us as f64 / 1e6 - expected).abs() < 2e-6, "{}: {duration_us} us", row["file"]);
    }
}

#[test]
fn rewritten_captures_read_the_same() {
    let Some(traces) = traces() else { return };
    for row in manifest(&traces) {
        let path = traces.join(&row["file"]);
        let Ok(mut reader) = CaptureReader::open(&path) else { continue };
        if row["packets"].parse::<u64>().unwrap() > 2_000 {
            continue;
        }
        let (records, _) = drain(&mut reader);
        let copy = tempfile::NamedTempFile::new().unwrap();
        let mut writer =
            CaptureWriter::create(copy.path(), CaptureFormat { kind: FormatKind::Pcapng, gzip: true })
                .unwrap();
        for (number, interface) in reader.interfaces().iter().enumerate() {
            writer
                .add_interface(number as u32, interface.name.as_deref().unwrap_or(""), interface.link_type)
                .unwrap();
        }
        for record in &records {
            writer.write(&record.record()).unwrap();
        }
        writer.finish().unwrap();
        let (again, error) = open_all(copy.path());
        assert!(error.is_none(), "{}: {error:?}", row["file"]);
        assert_eq!(again, records, "{}", row["file"]);
    }
}

#[test]
fn a_capture_truncated_at_any_byte_yields_whole_records() {
    let Some(traces) = traces() else { return };
    for name in ["small/complex.pcapng", "small/sctp.cap", "small/pcapng-multi-interface.pcapng"] {
        let file = std::fs::read(traces.join(name)).unwrap();
        let (whole, _) = read_all(&file);
        for cut in 0..file.len() {
            let (part, _) = read_all(&file[..cut]);
            assert_eq!(part, whole[..part.len()], "{name} cut at {cut}");
        }
    }
}
