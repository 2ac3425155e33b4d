//! Decoding of encapsulated packets by tshark, which decrypts them and verifies the check values.

use packet::Side::Inside;

use crate::meter_support::*;
use crate::pair::*;
use crate::tshark_support::{fields_of, for_each, hex};

#[test]
fn tshark_reads_what_is_sent() {
    for_each(&PROTOCOLS, reads);
}

fn reads(protocol: &str, outer_version: u8, inner: u8) {
    let mut one = gateway(protocol, outer_version, 1, &serde_json::json!({}));
    let payloads: Vec<Vec<u8>> = (0..40u64).map(|len| (0..len * 7).map(|i| i as u8).collect()).collect();
    let frames = payloads.iter().zip(NOW_NS..).map(|(payload, now_ns)| {
        let packet = udp(host(inner, 1, 5_000), host(inner, 2, 5_001), payload);
        frame(&one.through(now_ns, Inside, &packet))
    });
    let frames: Vec<Vec<u8>> = frames.collect();
    let [source, destination] = outer(outer_version);
    let (cipher, cipher_key, mac, mac_key) = match protocol {
        "esp_null" => {
            ("NULL", String::new(), "HMAC-SHA-256-128 [RFC4868]", format!("0x{}", key(protocol, 0)))
        }
        _ => {
            ("AES-GCM with 16 octet ICV [RFC4106]", format!("0x{}", key(protocol, 0)), "NULL", String::new())
        }
    };
    let association = format!(
        r#"uat:esp_sa:"IPv{outer_version}","{source}","{destination}","0x00001001","{cipher}","{cipher_key}","{mac}","{mac_key}""#
    );
    let preferences =
        ["esp.enable_encryption_decode:TRUE", "esp.enable_authentication_check:TRUE", &association];
    let number = if protocol == "ah" { "ah.sequence" } else { "esp.sequence" };
    let fields = [number, "esp.icv_good", "udp.payload", "udp.checksum.status", "ip.checksum.status"];
    let what = format!("{protocol}, {inner} in {outer_version}");
    for (at, (fields, payload)) in fields_of(&frames, &preferences, &fields).iter().zip(&payloads).enumerate()
    {
        assert_eq!(fields[0], (at + 1).to_string(), "{what}: {fields:?}");
        let is_checked = protocol != "ah";
        assert_eq!(fields[1], if is_checked { "1" } else { "" }, "{what}: {fields:?}");
        assert_eq!((&*fields[2], &*fields[3]), (&*hex(payload), "1"), "{what}: {fields:?}");
        assert!(!fields[4].contains('0'), "{what}: {fields:?}");
    }
}
