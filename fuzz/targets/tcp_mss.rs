//! Sends arbitrary packets, and SYNs with arbitrary options, through MSS clamps: nothing panics,
//! and every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "max": 536 }),
        json!({ "max_from_inside": 1000 }),
        json!({ "to_path_mtu": { "outside": 576 } }),
        json!({ "max": 65535, "to_path_mtu": { "inside": 1500, "outside": 1492 } }),
    ];
    traffic::through("tcp-mss", &configs, data);
    let [choice, flags, offset, options @ ..] = data else { return };
    let mut segment = vec![0, 7, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, *offset, flags | 2, 0, 0, 0, 0, 0, 0];
    segment.extend(&options[..options.len().min(60)]);
    let mut made = vec![*choice];
    for network in [ipv4(&segment), ipv6(&segment)] {
        made.extend([1, 1, network.len() as u8]);
        made.extend(network);
    }
    traffic::through("tcp-mss", &configs, &made);
});

fn ipv4(segment: &[u8]) -> Vec<u8> {
    let len = 20 + segment.len() as u8;
    let header = [0x45, 0, 0, len, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&header, segment].concat()
}

fn ipv6(segment: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, segment.len() as u8, 6, 64];
    for host in 1..3 {
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    [&header, segment].concat()
}
