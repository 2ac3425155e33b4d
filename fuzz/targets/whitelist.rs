//! Sends arbitrary packets, from any side and at any time, through whitelists: nothing panics, and
//! every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({}),
        json!({ "protect": "outside", "strict": "address", "others": "drop", "expiry": "1ns", "alert_above": "1pps" }),
        json!({ "record": ["hosts", "clients"], "services": [53, 1000], "capacity": 1, "alert_every": "1ns" }),
    ];
    traffic::through("whitelist", &configs, data);
});
