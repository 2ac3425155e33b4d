//! Any packets, of any sides and times, through denial-of-service preventers: nothing panics, and
//! every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({}),
        json!({ "protect": "outside", "packets": 2, "flow_rate": "3pps", "flow_burst": 1, "alert_every": 0 }),
        json!({ "syns": 1, "connections": 1, "sources": 2, "prefix6": 0, "when_full": "drop" }),
        json!({ "flow_rate": 18446744073709551615u64, "flow_burst": 9223372036u64, "connections": 9, "prefix4": 8, "alert_every": "1us" }),
    ];
    traffic::through("dos", &configs, data);
});
