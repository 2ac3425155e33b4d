//! Decoding of encapsulated packets by tshark.

use packet::Side::Inside;
use serde_json::json;

use crate::ends::*;
use crate::meter_support::*;
use crate::tshark_support::{fields_of, for_each, hex};

#[test]
fn tshark_reads_what_is_sent() {
    for_each(&PROTOCOLS, reads);
}

fn reads(protocol: &str, outer_version: u8, inner: u8) {
    let checksum = if protocol.len() > 4 { json!("always") } else { json!(null) };
    let mut one = end(protocol, outer_version, 1, json!({ "udp_checksum": checksum }));
    let payloads: Vec<Vec<u8>> = (1..20u64).map(|len| (0..len * 7).map(|i| i as u8).collect()).collect();
    let frames = payloads.iter().zip(NOW_NS..).map(|(payload, now_ns)| {
        let packet = udp(host(inner, 1, 5_000), host(inner, 2, 5_001), payload);
        frame(&one.through(now_ns, Inside, &packet))
    });
    let frames: Vec<Vec<u8>> = frames.collect();
    let (number, expected) = match protocol {
        "gre" => ("gre.key", "0x12345678"),
        "vxlan" => ("vxlan.vni", "1193046"),
        "geneve" => ("geneve.vni", "0x123456"),
        _ => ("gre.key", ""),
    };
    let fields = [number, "udp.payload", "udp.checksum.status", "ip.checksum.status", "_ws.malformed"];
    let what = format!("{protocol}, {inner} in {outer_version}");
    for (fields, payload) in fields_of(&frames, &[], &fields).iter().zip(&payloads) {
        assert_eq!(fields[0], expected, "{what}: {fields:?}");
        // The innermost payload comes last.
        assert_eq!(fields[1].rsplit(',').next().unwrap(), hex(payload), "{what}: {fields:?}");
        let sums = usize::from(protocol == "vxlan" || protocol == "geneve") + 1;
        assert_eq!(fields[2], vec!["1"; sums].join(","), "{what}: {fields:?}");
        let headers = usize::from(inner == 4) + usize::from(outer_version == 4);
        assert_eq!(fields[3], vec!["1"; headers].join(","), "{what}: {fields:?}");
        assert_eq!(fields[4], "", "{what}: {fields:?}");
    }
}
