//! Any packets, of any sides and times, through a redundancy meter: nothing panics, every packet is
//! accounted for, and all stream bytes are either redundant or unique once flows have ended.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "window": 16, "sample": 16, "cache": "64KiB", "events_from": 1 }),
        json!({}),
        json!({ "window": 61, "sample": 4096, "events_from": 0 }),
        json!({ "ports": [80] }),
    ];
    if let Some(graph) = traffic::through("redundancy", &configs, data) {
        let counters = &graph.stages()[0].shared().counters;
        for way in ["outbound", "inbound"] {
            let [all, redundant, unique] =
                ["bytes", "redundant", "unique"].map(|what| counters.get(&format!("{what}_{way}")));
            assert_eq!(all, redundant.zip(unique).map(|(redundant, unique)| redundant + unique));
            assert!(all.is_some());
        }
    }
});
