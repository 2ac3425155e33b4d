//! Every capture through `examples/all.rvl`, with the command and its files.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use io::capture::CaptureReader;

use crate::traces::{self, Capture};

const TOO_LONG: Duration = Duration::from_secs(600);

#[test]
fn the_command_runs_every_capture_through_all_functions() {
    let place = tempfile::tempdir().unwrap();
    let captures = traces::all();
    for capture in &captures {
        let started = Instant::now();
        let output = run(capture, place.path());
        assert!(started.elapsed() < TOO_LONG, "{}", capture.name);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{}: {said}", capture.name);
        assert_eq!(output.status.success(), capture.broken.is_none(), "{}: {said}", capture.name);
        if let Some(broken) = &capture.broken {
            assert!(said.contains(broken.as_str()) && said.contains("at byte"), "{}: {said}", capture.name);
        }
        if CaptureReader::open(&capture.path).is_ok() {
            check(capture, place.path());
        }
    }
    let broken = captures.iter().filter(|capture| capture.broken.is_some()).count();
    println!("{} captures, {broken} of them broken", captures.len());
}

fn run(capture: &Capture, place: &Path) -> Output {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/all.rvl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rivulet"));
    command.arg("run").arg(policy).arg("--read").arg(&capture.path).current_dir(place).stdin(Stdio::null());
    command.args(["--write", "out.pcapng", "--report", "report.json", "--alerts", "alerts.json"]);
    command.args(["--ipfix", "flows.ipfix", "--seed", "7", "--quiet"]);
    command.output().unwrap()
}

/// Checks that the report covers all readable packets, and that the files agree with it.
fn check(capture: &Capture, place: &Path) {
    let text = std::fs::read_to_string(place.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap();
    let drops: u64 = report["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(number("packets_in"), capture.records.len() as u64, "{}", capture.name);
    let (into, out) = (number("packets_in") + number("packets_generated"), number("packets_out"));
    assert_eq!(into, out + drops + number("packets_pending"), "{}", capture.name);

    let mut reader = CaptureReader::open(place.join("out.pcapng")).unwrap();
    let mut written = 0;
    while reader.next().unwrap().is_some() {
        written += 1;
    }
    assert_eq!(written, out, "{}", capture.name);
    let alerts = std::fs::read_to_string(place.join("alerts.json")).unwrap();
    assert_eq!(alerts.lines().count() as u64, number("alerts") + number("events"), "{}", capture.name);
    assert!(alerts.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
