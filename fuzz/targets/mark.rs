//! Sends arbitrary packets, from any side and at any time, through markers: nothing panics, and
//! every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "rules": "keep out udp\ndscp ef push_vlan 7 pcp 5 tenant 3 out\ndscp 1 in tcp from any port 1-30000" }),
        json!({ "rules": "vlan 9 in\npop_vlan out from 10.0.0.0/8\npcp 3 dscp 7" }),
        json!({ "rules": "push_vlan 1" }),
        json!({ "rules": "pop_vlan to ::/0\ntenant 65535 dscp 63 {tcp, udp} to any port 53" }),
    ];
    traffic::through("mark", &configs, data);
});
