//! Sends arbitrary packets, from any side and at any time, through NATs: nothing panics, and every
//! packet is accounted for.

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
            "mapping": "address_and_port_dependent",
            "filtering": "endpoint_independent",
        }),
        json!({
            "external": ["203.0.113.1"],
            "mapping": "address_and_port_dependent",
            "filtering": "address_and_port_dependent",
            "port_selection": "sequential",
            "tcp_opens_with": "any",
        }),
        json!({
            "external": ["203.0.113.1-203.0.113.2"],
            "mapping": "address_dependent",
            "filtering": "address_dependent",
            "pooling": "arbitrary",
            "port_selection": "random",
            "refresh": "both",
            "untranslated": "pass",
        }),
        // Few ports, so that blocks run out.
        json!({
            "external": ["203.0.113.1"],
            "ports": "1020-1055",
            "blocks": { "size": 4, "max": 2 },
            "log": "mappings",
        }),
        json!({ "external": ["203.0.113.1"], "subscriber": { "sessions": 3, "ports": 2 } }),
        json!({
            "external": ["203.0.113.1"],
            "inside": ["10.0.0.0/8"],
            "forwards": [
                { "protocol": "tcp", "external": "203.0.113.1:40000", "internal": "10.0.0.1:1000" },
                { "protocol": "udp", "external": "203.0.113.1:40000-40009", "internal": "10.0.0.2:50-59" },
            ],
        }),
        json!({
            "one_to_one": [{ "external": "203.0.113.0-203.0.113.3", "internal": "10.0.0.0-10.0.0.3" }],
            "ipv6": "drop",
        }),
        json!({ "nptv6": [{ "inside": "2001:db8::/48", "outside": "2001:db8:1::/48" }] }),
        // The identifier is adjusted; one prefix is longer, and another pair handles the rest.
        json!({
            "nptv6": [
                { "inside": "2001:db8::/64", "outside": "2001:db8:1::/56" },
                { "inside": "2001:db8::/32", "outside": "fd00:1::/32" },
            ],
            "ipv6": "drop",
            "untranslated": "pass",
        }),
    ];
    traffic::through("nat", &configs, data);
});
