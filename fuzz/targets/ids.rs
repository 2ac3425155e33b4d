//! Any packets, of any sides and times, and any bytes of connections, through `ids`: nothing
//! panics, every packet is accounted for, and ended flows leave nothing in growing buffers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

/// Rules for each inspection point, and rules that match soon.
const RULES: &str = r#"
alert ip any any -> any any (msg:"packet"; ttl:<3; sid:1;)
alert tcp any any -> any any (msg:"near"; content:"G"; depth:1; content:!"x"; sid:2;)
alert tcp any any -> any any (msg:"stream"; flowbits:set,a; content:"ab"; content:"c"; distance:0; within:9; sid:3;)
alert tcp any any -> any any (msg:"mark"; flowbits:isset,a; content:"|0d 0a|"; sid:4;)
alert http any any -> any any (msg:"head"; http.uri; content:"/a"; http.header; pcre:"/Host: [a-z.]+/"; sid:5;)
alert http any any -> any any (msg:"body"; file.data; content:"e"; threshold:type both, track by_src, count 2, seconds 9; sid:6;)
alert http any any -> any any (msg:"names"; http.header_names; content:"|0d 0a|Host"; http.method; content:"GET"; sid:7;)
alert dns any any -> any any (msg:"name"; dns.query; content:"e"; sid:8;)
alert tls any any -> any any (msg:"hello"; tls.sni; content:"a"; sid:9;)
drop udp any any -> any any (msg:"drop"; content:"drop"; detection_filter:track by_dst, count 1, seconds 5; sid:10;)
reject tcp any any -> any any (msg:"reject"; content:"reject"; sid:11;)
pass tcp any any -> any any (msg:"pass"; content:"pass"; depth:4; sid:12;)
"#;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "rules": RULES }),
        json!({ "rules": RULES, "mode": "detect", "body": 16 }),
        json!({ "rules": RULES, "memory": 4096, "trackers": 1 }),
    ];
    traffic::through("ids", &configs, data);
});
