//! Captures to a collector: nfdump counts the same packets and bytes as the monitor, and each flow
//! that tshark finds.

use std::process::Command;

use crate::nfcapd::Collector;
use crate::policies::Kind;
use crate::traces;
use crate::tshark::{self, Counts};

#[test]
fn nfdump_counts_every_packet_and_byte_of_a_run() {
    for name in ["workload/merged_mix.pcap", "workload/echo_500_connections.pcap"] {
        let Some(capture) = traces::one(name) else { return };
        if !traces::has_tool("nfcapd", "-V") || !traces::has_tool("nfdump", "-V") {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let flows = place.path().join("flows");
        std::fs::create_dir(&flows).unwrap();
        let policy = place.path().join("monitor.rvl");
        std::fs::write(&policy, Kind::Monitor.policy(&capture.records)).unwrap();
        let nfcapd = Collector::start(&flows);
        let output = Command::new(env!("CARGO_BIN_EXE_rivulet"))
            .args(["run", "-o", "json", "--ipfix", &format!("udp:{}", nfcapd.address()), "--read"])
            .arg(&capture.path)
            .arg(&policy)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        nfcapd.stop();

        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let counters = &report["functions"][0]["counters"];
        let count = |what: &str| -> u64 {
            let of = |class: &str| counters[format!("{what}_{class}")].as_u64().unwrap();
            ["tcp", "udp", "icmp", "other"].map(of).iter().sum()
        };
        let (packets, bytes) = nfdump_totals(&flows);
        // ICMP errors about a flow are counted separately: they are not its packets.
        assert_eq!(packets, count("packets") - counters["icmp_errors"].as_u64().unwrap(), "{name}");
        assert!(bytes <= count("bytes"), "{name}");
        if counters["icmp_errors"] == 0 {
            assert_eq!(bytes, count("bytes"), "{name}");
        }
        println!("{name}: {packets} packets, {bytes} bytes");
        // The other capture has fragments and ICMP errors, which programs assign to flows in
        // different ways.
        if name.contains("echo") && traces::has_tool("tshark", "-v") {
            let of_tshark = tshark::counts(&capture.path);
            assert_eq!(of_tshark.len(), 1_000, "both directions of 500 connections");
            assert_eq!(nfdump_flows(&flows), of_tshark);
        }
    }
}

/// nfdump keeps sequence numbers by address and domain.
#[test]
fn processes_of_one_address_have_domains_of_their_own() {
    let Some(capture) = traces::one("small/wikipedia.pcap") else { return };
    if !traces::has_tool("nfcapd", "-V") || !traces::has_tool("nfdump", "-V") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let policy = place.path().join("monitor.rvl");
    let text = "Port<0> a; Port<1> b; Monitor m; pipelet { a <-> m <-> b; }";
    std::fs::write(&policy, text).unwrap();
    let failures = |name: &str, runs: [&str; 2]| {
        let flows = place.path().join(name);
        std::fs::create_dir(&flows).unwrap();
        let nfcapd = Collector::start(&flows);
        for options in runs {
            let output = Command::new(env!("CARGO_BIN_EXE_rivulet"))
                .args(["run", "-q", "--ipfix", &format!("udp:{}", nfcapd.address())])
                .args(options.split(' '))
                .arg("--read")
                .arg(&capture.path)
                .arg(&policy)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        nfcapd.stop();
        let output = Command::new("nfdump").args(["-I", "-R"]).arg(&flows).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Sequence failures:"));
        line.unwrap_or_else(|| panic!("{text}")).trim().parse::<u64>().unwrap()
    };
    assert_eq!(failures("derived", ["--seed 1", "--seed 2"]), 0);
    assert_eq!(failures("given", ["--seed 1 --ipfix-domain 7", "--seed 1 --ipfix-domain 8"]), 0);
    assert_eq!(failures("one", ["--seed 1", "--seed 1"]), 1, "what a second exporter looks like");
}

fn nfdump_totals(folder: &std::path::Path) -> (u64, u64) {
    let output =
        Command::new("nfdump").args(["-N", "-q", "-o", "fmt:%pkt|%byt", "-R"]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter_map(|line| line.split_once('|'));
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    rows.fold((0, 0), |sum, (packets, bytes)| (sum.0 + number(packets), sum.1 + number(bytes)))
}

/// Reads the rows of all files. Each direction of a flow is separate and may have several rows.
fn nfdump_flows(folder: &std::path::Path) -> Counts {
    let output = Command::new("nfdump")
        .args(["-N", "-q", "-6", "-o", "fmt:%sa|%sp|%da|%dp|%pr|%pkt|%byt", "-R"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut counts = Counts::new();
    for row in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<_> = row.split('|').map(str::trim).collect();
        let [source, from, destination, to, protocol, packets, bytes] = fields[..] else { continue };
        let ends = (
            source.parse().unwrap(),
            from.parse().unwrap(),
            destination.parse().unwrap(),
            to.parse().unwrap(),
            protocol.parse().unwrap(),
        );
        let so_far = counts.entry(ends).or_default();
        so_far.0 += packets.parse::<u64>().unwrap();
        so_far.1 += bytes.parse::<u64>().unwrap();
    }
    counts
}

/// A NAT reports start and end of each translation to the collector and to the log, equally with
/// and without the fast path.
#[test]
fn nfdump_reads_every_session_of_a_nat() {
    if !traces::has_tool("nfcapd", "-V") || !traces::has_tool("nfdump", "-V") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let rivulet = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rivulet"));
        let output = command.args(arguments).current_dir(place.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let policy = |consolidate: bool| {
        format!(
            "settings {{ consolidate: {consolidate} }}\nPort<0> inside;\nPort<1> outside;\n\
             NAT n {{ external: [203.0.113.1-203.0.113.4], events: [sessions] }};\n\
             Monitor m {{ report: [] }};\npipelet {{ inside <-> m <-> n <-> outside; }}\n"
        )
    };
    std::fs::write(path("fast.rvl"), policy(true)).unwrap();
    std::fs::write(path("slow.rvl"), policy(false)).unwrap();
    rivulet(&["traffic", "--write", "in.pcapng", "--packets", "3000"]);
    let flows = path("flows");
    std::fs::create_dir(&flows).unwrap();
    let nfcapd = Collector::start(&flows);
    let to = format!("udp:{}", nfcapd.address());
    let run = ["run", "fast.rvl", "--read", "in.pcapng", "--seed", "1", "-o", "json"];
    let report: serde_json::Value =
        serde_json::from_slice(&rivulet(&[&run[..], &["--ipfix", &to, "--alerts", "eve.json"]].concat()))
            .unwrap();
    nfcapd.stop();
    let counters = &report["functions"][1]["counters"];
    let translated: u64 =
        ["flows_out", "flows_in", "flows_hairpin"].iter().map(|name| counters[*name].as_u64().unwrap()).sum();
    assert!(translated > 10, "{report}");
    let output = Command::new("nfdump").args(["-N", "-q", "-o", "json", "-R"]).arg(&flows).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let logged = std::fs::read_to_string(path("eve.json")).unwrap();
    for (number, name) in [(4, "create"), (5, "delete")] {
        let told = told.matches(&format!("\"NAT44 session {name}\"")).count() as u64;
        let logged = logged.matches(&format!("\"nat\":{{\"event\":{number},")).count() as u64;
        assert_eq!((told, logged), (translated, translated), "{name}");
    }
    for (policy, file) in [("fast.rvl", "fast.ipfix"), ("slow.rvl", "slow.ipfix")] {
        rivulet(&["run", policy, "--read", "in.pcapng", "--seed", "1", "-q", "--ipfix", file]);
    }
    let [fast, slow] = ["fast.ipfix", "slow.ipfix"].map(|name| std::fs::read(path(name)).unwrap());
    assert!(!fast.is_empty() && fast == slow);
}
