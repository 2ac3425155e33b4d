//! Verdicts of Rivulet and Suricata on a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use io::capture::{CaptureFormat, CaptureRecord, CaptureWriter};
use packet::LinkType;
use serde_json::Value;

use crate::talk::Recorded;
use crate::wire::Family;

/// Reported letters of each connection.
pub type Reported = BTreeMap<(Family, u16), BTreeSet<u8>>;

/// Returns a rule for each letter.
pub fn rules() -> String {
    let letters = (b'A'..=b'Z').chain(b'a'..=b'z');
    letters
        .map(|letter| {
            let (sid, letter) = (1000 + u32::from(letter), letter as char);
            format!(
                "alert tcp any any -> any 8080:8089 (msg:\"{letter}\"; content:\"{letter}\"; sid:{sid};)\n"
            )
        })
        .collect()
}

/// Returns a policy with one `ids`.
pub fn policy(mode: &str, settings: &str) -> String {
    policy_of("file(\"evasion.rules\")", mode, settings)
}

/// Returns a policy with these rules.
pub fn policy_of(rules: &str, mode: &str, settings: &str) -> String {
    format!(
        "Port<0> inside {{ prefixes: [10.9.0.0/24, fd09::/64] }};\nPort<1> outside;\n\
         IDS guard {{ rules: {rules}, mode: {mode} }};\n{settings}\n\
         pipelet {{ inside <-> guard <-> outside; }}\n"
    )
}

/// Writes a recording.
pub fn write(path: &Path, record: &[Recorded]) {
    let mut writer = CaptureWriter::create(path, CaptureFormat::of_path(path)).unwrap();
    for recorded in record {
        let record = CaptureRecord {
            timestamp_ns: 1_700_000_000_000_000_000 + recorded.time_ns,
            interface: 0,
            link_type: LinkType::Ethernet,
            wire_len: recorded.frame.len() as u32,
            data: &recorded.frame,
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns what Rivulet reports of a recording.
pub fn rivulet(dir: &Path, capture: &Path, settings: &str) -> Reported {
    std::fs::write(dir.join("evasion.rules"), rules()).unwrap();
    std::fs::write(dir.join("detect.rvl"), policy("detect", settings)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rivulet"));
    command.args(["run", "detect.rvl", "--seed", "1", "--alerts", "detect.json", "--read"]).arg(capture);
    let output = command.current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    reported(&dir.join("detect.json"))
}

/// Returns what Suricata reports, if it is installed.
pub fn suricata(dir: &Path, capture: &Path) -> Option<Reported> {
    let logs = dir.join("suricata");
    std::fs::create_dir_all(&logs).unwrap();
    let mut command = Command::new("suricata");
    command.args(["-S", "evasion.rules", "--set", "vars.address-groups.EXTERNAL_NET=any"]);
    // Makes it inspect each acknowledged byte, rather than some thousand at once.
    command.args(["--set", "stream.reassembly.toserver-chunk-size=1", "--set"]);
    command.args(["stream.reassembly.randomize-chunk-size=no", "-l", "suricata", "-r"]);
    let output = command.arg(capture).current_dir(dir).output().ok()?;
    output.status.success().then(|| reported(&logs.join("eve.json")))
}

fn reported(path: &Path) -> Reported {
    let mut reported = Reported::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let Some(sid) = event["alert"]["signature_id"].as_u64() else { continue };
        // A packet of the server may have triggered it.
        let port = |name: &str| event[name].as_u64().unwrap_or(0) as u16;
        let port = port("src_port").max(port("dest_port"));
        let is_v6 = event["src_ip"].as_str().unwrap_or("").contains(':');
        let family = if is_v6 { Family::V6 } else { Family::V4 };
        if (1000..1256).contains(&sid) {
            reported.entry((family, port)).or_default().insert((sid - 1000) as u8);
        }
    }
    reported
}
