//! Decoding of frames by tshark.

use std::process::Command;

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter, FormatKind};
use packet::LinkType;

/// Returns whether there is tshark. Its absence is a failure in CI.
pub fn is_there() -> bool {
    let is_there = Command::new("tshark").arg("--version").output().is_ok();
    if !is_there {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "tshark is needed");
        eprintln!("SKIPPED: there is no tshark");
    }
    is_there
}

/// Runs a check for each protocol, with outer and inner IP headers of either version, if there is
/// tshark.
pub fn for_each(protocols: &[&str], reads: impl Fn(&str, u8, u8)) {
    if !is_there() {
        return;
    }
    for protocol in protocols {
        for outer in [4, 6] {
            for inner in [4, 6] {
                reads(protocol, outer, inner);
            }
        }
    }
}

/// Returns tshark's values of these fields, one list per frame. Verifies all checksums, and sets
/// these preferences.
pub fn fields_of(frames: &[Vec<u8>], preferences: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sent.pcapng");
    let mut writer =
        CaptureWriter::create(&path, CaptureFormat { kind: FormatKind::Pcapng, gzip: false }).unwrap();
    writer.add_interface(0, "", LinkType::Ethernet).unwrap();
    for (data, timestamp_ns) in frames.iter().zip(1..) {
        let wire_len = data.len() as u32;
        let link_type = LinkType::Ethernet;
        writer.write(&CaptureRecord { timestamp_ns, interface: 0, link_type, wire_len, data }).unwrap();
    }
    writer.finish().unwrap();
    let preferences = ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE"].iter().chain(preferences);
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&path)
        .env("WIRESHARK_CONFIG_DIR", folder.path())
        .args(preferences.flat_map(|preference| ["-o", preference]))
        .args(["-T", "fields", "-E", "occurrence=a"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<_> = text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    assert_eq!(shown.len(), frames.len());
    shown
}

/// Formats bytes as tshark does.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
