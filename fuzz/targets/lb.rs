//! Sends arbitrary packets, from any side and at any time, through load balancers: nothing panics,
//! and every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "services": [{
            "name": "web", "vip": "198.51.100.1", "protocol": "udp", "port": 53,
            "servers": [{ "name": "a", "address": "10.0.0.1" }, { "name": "b", "address": "10.0.0.2" }],
        }] }),
        json!({ "tunnel": { "source4": "192.0.2.254" }, "services": [{
            "name": "any", "mode": "ipip", "vip": "192.0.2.1", "protocol": "any",
            "servers": [{ "name": "a", "address": "10.0.0.1" }],
        }] }),
    ];
    traffic::through("lb", &configs, data);
});
