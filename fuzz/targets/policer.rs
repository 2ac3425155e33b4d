//! Sends arbitrary packets, from any side and at any time, through policers: nothing panics, and
//! every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "rate": "1kbps", "excess_burst": "2s", "aware": "dscp", "yellow": { "remark": "af12" }, "red": "mark" }),
        json!({ "rate": "400Gbps", "peak_rate": "400Gbps", "burst": "1B", "length": "link", "overhead": 24, "direction": "both" }),
        json!({ "rate": "3pps", "burst": 1, "per": "source", "meters": 2, "prefix6": 0, "green": { "remark": "precedence" } }),
        json!({ "rate": "1bps", "burst": "1d", "per": "inside", "meters": 17, "when_full": "drop", "direction": "from_inside" }),
    ];
    traffic::through("policer", &configs, data);
});
