//! Sends arbitrary packets, from any side and at any time, through firewalls: nothing panics, and
//! every packet is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "rules": "allow out state new\nreject in tcp from any to any port 53 log\n" }),
        json!({ "rules": "allow any from any to any", "tcp": "strict", "pickup": "drop" }),
    ];
    traffic::through("firewall", &configs, data);
});
