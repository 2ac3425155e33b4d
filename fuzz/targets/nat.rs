//! Any packets, of any sides and times, through NATs: nothing panics, and every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "external": ["203.0.113.1-203.0.113.2"] }),
        json!({
            "external": ["203.0.113.1"],
            "mapping": "address-and-port-dependent",
            "filtering": "endpoint-independent",
        }),
    ];
    traffic::through("nat", &configs, data);
});
