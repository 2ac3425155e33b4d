//! Foreign captures and tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use io::capture::CaptureReader;
use packet::LinkType;

/// A record of a capture.
pub struct Recorded {
    pub timestamp_ns: u64,
    pub interface: u32,
    pub link: LinkType,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// A capture: its readable records, and the error that ended it.
pub struct Capture {
    pub name: String,
    pub path: PathBuf,
    pub records: Vec<Recorded>,
    pub broken: Option<String>,
}

/// Returns all captures, small ones first. Without captures, prints a message and returns none.
pub fn all() -> Vec<Capture> {
    let Some(traces) = folder() else { return Vec::new() };
    let mut captures = Vec::new();
    for part in ["small", "workload"] {
        let mut paths: Vec<_> =
            std::fs::read_dir(traces.join(part)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let is_capture =
            |path: &PathBuf| path.extension().is_some_and(|e| e.to_string_lossy().contains("cap"));
        captures.extend(paths.into_iter().filter(is_capture).map(read));
    }
    captures
}

/// Returns one capture, such as `workload/merged_mix.pcap`.
pub fn one(name: &str) -> Option<Capture> {
    folder().map(|traces| read(traces.join(name)))
}

fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if traces.join("MANIFEST.tsv").is_file() {
        return Some(traces);
    }
    skip(&format!("no captures at {}", traces.display()));
    None
}

fn read(path: PathBuf) -> Capture {
    let mut capture = Capture {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        path: path.clone(),
        records: Vec::new(),
        broken: None,
    };
    let mut reader = match CaptureReader::open(&path) {
        Ok(reader) => reader,
        Err(error) => {
            capture.broken = Some(error.to_string());
            return capture;
        }
    };
    loop {
        match reader.next() {
            Ok(Some(record)) => capture.records.push(Recorded {
                timestamp_ns: record.timestamp_ns,
                interface: record.interface,
                link: record.link_type,
                wire_len: record.wire_len,
                data: record.data.to_vec(),
            }),
            Ok(None) => return capture,
            Err(error) => {
                capture.broken = Some(error.to_string());
                return capture;
            }
        }
    }
}

/// Returns whether a tool is installed, and prints a message if not.
pub fn has_tool(name: &str, version: &str) -> bool {
    let found = Command::new(name).arg(version).output().is_ok();
    if !found {
        skip(&format!("{name} is not installed"));
    }
    found
}

fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("SKIPPED: {why}");
}
