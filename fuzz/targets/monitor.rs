//! Any packets, of any sides and times, through monitors: nothing panics, and every packet is
//! accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [json!({}), json!({ "active_timeout": "1s", "sample": 2, "report": ["active"] })];
    traffic::through("monitor", &configs, data);
});
