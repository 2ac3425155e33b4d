//! Batches of datagrams, as the kernel sends them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

use link::TRANSMIT_BYTES_MAX;

/// A device receives the longest batch as one frame, over IPv4 and IPv6.
#[test]
fn the_longest_batch_stays_whole() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/batches.py");
    let line = format!("ip link set lo up && python3 {program} {TRANSMIT_BYTES_MAX}");
    let output = Command::new("unshare").args(["--net", "sh", "-c", &line]).output().unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
        println!("SKIPPED: {why}");
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n");
}
