//! What tshark makes of what leaves a gateway: it decrypts, and checks the values that say that a packet is genuine.

use std::process::Command;

use io::capture::{Format, FormatKind, Record, Writer};
use packet::LinkType;
use packet::Side::Inside;

use crate::meter_support::*;
use crate::pair::*;

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
    let mut one = gateway(protocol, outer_version, 1, &serde_json::json!({}));
    let mut writer = Writer::create(&path, Format { kind: FormatKind::Pcapng, gzip: false }).unwrap();
    writer.add_interface(0, "", LinkType::Ethernet).unwrap();
    let mut payloads = vec![];
    for len in 0..40u64 {
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
    let [source, destination] = outer(outer_version);
    let (cipher, cipher_key, mac, mac_key) = match protocol {
        "esp-null" => {
            ("NULL", String::new(), "HMAC-SHA-256-128 [RFC4868]", format!("0x{}", key(protocol, 0)))
        }
        _ => {
            ("AES-GCM with 16 octet ICV [RFC4106]", format!("0x{}", key(protocol, 0)), "NULL", String::new())
        }
    };
    let association = format!(
        r#"uat:esp_sa:"IPv{outer_version}","{source}","{destination}","0x00001001","{cipher}","{cipher_key}","{mac}","{mac_key}""#
    );
    let number = if protocol == "ah" { "ah.sequence" } else { "esp.sequence" };
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&path)
        .env("WIRESHARK_CONFIG_DIR", folder.path())
        .args(["-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"])
        .args(["-o", &association])
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
        .args([
            "-T",
            "fields",
            "-e",
            number,
            "-e",
            "esp.icv_good",
            "-e",
            "udp.payload",
            "-e",
            "udp.checksum.status",
        ])
        .args(["-e", "ip.checksum.status", "-e", "_ws.expert.message"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let what = format!("{protocol}, {inner} in {outer_version}");
    assert_eq!(text.lines().count(), payloads.len());
    for (at, (line, payload)) in text.lines().zip(&payloads).enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields[0], (at + 1).to_string(), "{what}: {line}");
        let is_checked = protocol != "ah";
        assert_eq!(fields[1], if is_checked { "1" } else { "" }, "{what}: {line}");
        assert_eq!((fields[2], fields[3]), (payload.as_str(), "1"), "{what}: {line}");
        assert!(!fields[4].contains('0'), "{what}: {line}");
    }
}
