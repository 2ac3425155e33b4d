//! What tshark makes of what goes into a tunnel.

use std::process::Command;

use io::capture::{Format, FormatKind, Record, Writer};
use packet::LinkType;
use packet::Side::Inside;
use serde_json::json;

use crate::ends::*;
use crate::meter_support::*;

#[test]
fn tshark_reads_what_is_sent() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "tshark is needed");
        eprintln!("SKIPPED: there is no tshark");
        return;
    }
    for protocol in PROTOCOLS {
        for outer in [4, 6] {
            for inner in [4, 6] {
                reads(protocol, outer, inner);
            }
        }
    }
}

fn reads(protocol: &str, outer_version: u8, inner: u8) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sent.pcapng");
    let checksum = if protocol.len() > 4 { json!("always") } else { json!(null) };
    let mut one = end(protocol, outer_version, 1, json!({ "udp_checksum": checksum }));
    let mut writer = Writer::create(&path, Format { kind: FormatKind::Pcapng, gzip: false }).unwrap();
    writer.add_interface(0, "", LinkType::Ethernet).unwrap();
    let mut payloads = vec![];
    for len in 1..20u64 {
        let payload: Vec<u8> = (0..len * 7).map(|i| i as u8).collect();
        let packet = udp(host(inner, 1, 5_000), host(inner, 2, 5_001), &payload);
        let data = frame(&one.through(NOW_NS + len, Inside, &packet));
        let record = Record {
            timestamp_ns: NOW_NS + len,
            interface: 0,
            link_type: LinkType::Ethernet,
            wire_len: data.len() as u32,
            data: &data,
        };
        writer.write(&record).unwrap();
        payloads.push(payload.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    writer.finish().unwrap();
    let (number, expected) = match protocol {
        "gre" => ("gre.key", "0x12345678"),
        "vxlan" => ("vxlan.vni", "1193046"),
        "geneve" => ("geneve.vni", "0x123456"),
        _ => ("gre.key", ""),
    };
    let fields = [number, "udp.payload", "udp.checksum.status", "ip.checksum.status", "_ws.malformed"];
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&path)
        .env("WIRESHARK_CONFIG_DIR", folder.path())
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields"])
        .args(["-E", "occurrence=a"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let what = format!("{protocol}, {inner} in {outer_version}");
    assert_eq!(text.lines().count(), payloads.len());
    for (line, payload) in text.lines().zip(&payloads) {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields[0], expected, "{what}: {line}");
        // The innermost payload comes last.
        assert_eq!(fields[1].rsplit(',').next().unwrap(), payload, "{what}: {line}");
        let sums = usize::from(protocol == "vxlan" || protocol == "geneve") + 1;
        assert_eq!(fields[2], vec!["1"; sums].join(","), "{what}: {line}");
        let headers = usize::from(inner == 4) + usize::from(outer_version == 4);
        assert_eq!(fields[3], vec!["1"; headers].join(","), "{what}: {line}");
        assert_eq!(fields[4], "", "{what}: {line}");
    }
}
