//! Any packets, of any sides and times, through tunnels: nothing panics, and every packet is
//! accounted for. Packets in headers of the other end reach the code after the checks.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

#[path = "../traffic.rs"]
mod traffic;

fn config(protocol: &str, ends: [&str; 2], more: Value) -> Value {
    let mut config = json!({ "protocol": protocol, "local": ends[0], "remote": ends[1] });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fuzz_target!(|data: &[u8]| {
    let (ends4, ends6) = (["192.0.2.1", "198.51.100.1"], ["2001:db8:a::1", "2001:db8:b::1"]);
    let frames =
        || json!({ "vni": 0, "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02", "others": "pass" });
    let configs = [
        config("gre", ends4, json!({ "mtu": 1350 })),
        config("ipip", ends6, json!({ "dscp": 46 })),
        config("vxlan", ends4, frames()),
        config("geneve", ends6, frames()),
        config("gre", ends6, json!({ "key": 0, "others": "pass" })),
        config("ipip", ends4, json!({ "gateway4": "10.1.0.1" })),
        config("geneve", ends4, frames()),
    ];
    traffic::through("tunnel", &configs, data);
    // With outer addresses that it accepts.
    let Some((choice, rest)) = data.split_first() else { return };
    let mut made = vec![*choice];
    let mut rest = rest;
    while let [kind, step, length, bytes @ ..] = rest {
        let (payload, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = behind;
        let is_v4 = kind & 8 == 0;
        let protocol = [47, 4, 17, 41][usize::from(kind >> 6)];
        let header = if is_v4 { outer4(protocol, payload.len()) } else { outer6(protocol, payload.len()) };
        let whole = [&header[..], payload].concat();
        made.extend([kind & !2 | 1, *step, whole.len().min(255) as u8]);
        made.extend(&whole[..whole.len().min(255)]);
    }
    traffic::through("tunnel", &configs, &made);
});

fn outer4(protocol: u8, len: usize) -> Vec<u8> {
    let len = (20 + len) as u16;
    let mut header = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
    header.extend([198, 51, 100, 1, 192, 0, 2, 1]);
    header
}

fn outer6(protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, protocol, 64];
    for site in [0xb, 0xa] {
        header.extend([0x20, 1, 0xd, 0xb8, 0, site, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
    header
}
