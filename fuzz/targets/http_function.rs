//! Any packets, of any sides and times, and any bytes of HTTP connections, through `http`: nothing
//! panics, every packet is accounted for, and ended flows leave nothing in growing buffers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "anomalies": "alert" }),
        json!({ "smuggling": "drop", "methods": ["GET", "POST"], "method_policy": "drop" }),
        json!({ "events": false, "ports": [80] }),
        json!({ "smuggling": "off" }),
    ];
    traffic::through("http", &configs, data);
});
