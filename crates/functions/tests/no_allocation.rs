//! Packets of known flows pass every function, and all of them in a chain, without a single allocation (DESIGN 5.5).
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

#[path = "../../chain/tests/support/allocations.rs"]
mod allocations;
mod http_support;
mod meter_support;
mod nat_support;

use std::net::Ipv4Addr;

use nat_support::{ACK, End, SYN, end, query, tcp, udp};
use nf::stage::Stage;
use nf::{Registry, Setup};
use packet::Side;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Flows of the chain under test; its option is the same.
const FLOWS: u32 = 4096;

const NAT: (&str, &str) = ("nat", r#"{"external": ["203.0.113.1"], "log": "mappings"}"#);
const BALANCER: (&str, &str) = (
    "lb",
    r#"{"services": [{"name": "web", "vip": "192.0.2.80", "port": 80,
                      "servers": [{"name": "one", "address": "198.51.100.1", "port": 8080}]}]}"#,
);
const TUNNEL: (&str, &str) = (
    "lb",
    r#"{"services": [{"name": "web", "vip": "192.0.2.80", "port": 80, "mode": "gue",
                      "servers": [{"name": "one", "address": "198.51.100.1"}]}],
        "tunnel": {"source4": "198.18.0.0/16"}}"#,
);
const FIREWALL: (&str, &str) =
    ("firewall", r#"{"rules": "allow out log\nallow in udp to any port 5000-6000", "tcp": "strict"}"#);
const STATELESS: (&str, &str) = ("firewall", r#"{"rules": "allow any-direction any", "stateful": false}"#);
const MONITOR: (&str, &str) = ("monitor", r#"{"active_timeout": "1ms"}"#);

const POLICER: (&str, &str) =
    ("policer", r#"{"rate": "1Mbps", "yellow": {"remark": "af12"}, "excess_burst": "1KB"}"#);
const SUBSCRIBERS: (&str, &str) =
    ("policer", r#"{"rate": "1kbps", "peak_rate": "2kbps", "per": "inside", "meters": 16, "red": "mark"}"#);
const WHITELIST: (&str, &str) = (
    "whitelist",
    r#"{"record": ["hosts", "clients"], "services": [5000], "capacity": 8, "alert_above": "1pps", "alert_every": "1ms"}"#,
);
/// Tight and loud: flows are blocked, and told of.
const DOS: (&str, &str) =
    ("dos", r#"{"packets": 9, "flow_rate": "1pps", "connections": 1, "alert_every": 0}"#);

/// A gateway, and the one at the other end, whose packets it gets.
fn gateway(protocol: &str, here: u8) -> (&'static str, String) {
    let (there, len) = (3 - here, if protocol == "esp" { 20 } else { 32 });
    let sa = |of: u8| format!(r#"{{"spi": 999, "key": "{}"}}"#, format!("{of:02x}").repeat(len));
    let config = format!(
        r#"{{"tunnels": [{{"name": "t", "protocol": "{protocol}", "local": "192.0.2.{here}", "remote": "192.0.2.{there}",
        "local_networks": ["10.{here}.0.0/16"], "remote_networks": ["10.{there}.0.0/16"],
        "outbound": {}, "inbound": [{}], "anti_replay": false}}]}}"#,
        sa(here),
        sa(there)
    );
    ("vpn", config)
}

const HTTP: (&str, &str) = ("http", r#"{"methods": ["POST"], "anomalies": "alert"}"#);

/// Rules that look everywhere, and find nothing in what is benign.
const IDS_RULES: &str = r#"
alert tcp any any -> any any (msg:"stream"; content:"evil literal"; sid:1;)
alert tcp any any -> any any (msg:"candidate"; content:"HTTP/1.1"; content:"evil"; distance:0; sid:2;)
alert tcp any any -> any any (msg:"expression"; content:"GET"; pcre:"/evil[0-9]+/"; sid:3;)
alert tcp any any -> any any (msg:"no anchor"; pcre:"/evil[a-f]+/"; sid:4;)
alert tcp any any -> any any (msg:"near"; content:"evil"; depth:20; sid:5;)
alert tcp any any -> any any (msg:"packet"; dsize:>2; flags:A; content:"evil"; sid:6;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/evil"; sid:7;)
alert http any any -> any any (msg:"common"; http.header; content:"Host"; content:"evil"; sid:8;)
alert http any any -> any any (msg:"names"; http.header_names; content:"X-Evil"; sid:9;)
alert http any any -> any any (msg:"code"; http.stat_code; content:"666"; sid:10;)
alert http any any -> any any (msg:"body"; file.data; content:"evil body"; sid:11;)
alert http any any -> any any (msg:"body and code"; http.stat_code; content:"200"; http.response_body; content:"hell no"; sid:12;)
alert http any any -> any any (msg:"whole"; content:"hello"; http.uri; content:"/evil"; sid:13;)
"#;

fn ids() -> Vec<Box<dyn Stage>> {
    let config = serde_json::json!({ "rules": IDS_RULES, "unsupported": "refuse" });
    stages(&[("ids", &config.to_string())])
}

const CHAINS: [&[(&str, &str)]; 14] = [
    &[NAT],
    &[BALANCER],
    &[TUNNEL],
    &[FIREWALL],
    &[STATELESS],
    &[MONITOR],
    &[POLICER],
    &[SUBSCRIBERS],
    &[WHITELIST],
    &[DOS],
    &[NAT, BALANCER, MONITOR, FIREWALL],
    &[FIREWALL, MONITOR, NAT, TUNNEL],
    &[SUBSCRIBERS, NAT, WHITELIST, POLICER],
    &[NAT, DOS, MONITOR],
];

fn stages(functions: &[(&str, &str)]) -> Vec<Box<dyn Stage>> {
    let registry: Registry<serde_json::Value> = functions::registry();
    let make = |(name, config): &(&str, &str)| {
        let config = serde_json::from_str(config).unwrap();
        registry.find(name).unwrap().make(&config, Setup::new(7, FLOWS)).unwrap()
    };
    functions.iter().map(make).collect()
}

/// Both directions of flows between a host and a server, a service behind a load balancer, and a ping. Hosts' ports are
/// their own, so that a NAT keeps them; answers come to the host itself, to its external end, and from the balanced server.
fn frames() -> Vec<(Side, Vec<u8>)> {
    let mut frames = Vec::new();
    for host in 1..=50u8 {
        let inside: End = (Ipv4Addr::new(10, 0, 0, host), 5000 + u16::from(host));
        let outside: End = (Ipv4Addr::new(203, 0, 113, 1), inside.1);
        let (names, service) = (end("192.0.2.53:53"), end("192.0.2.80:80"));
        let ping = query(8, u16::from(host), inside.0, names.0);
        frames.extend([
            (Side::Inside, udp(inside, names, b"question")),
            (Side::Outside, udp(names, inside, b"answer")),
            (Side::Outside, udp(names, outside, b"answer")),
            (Side::Inside, tcp(inside, service, SYN, b"")),
            (Side::Inside, tcp(inside, service, ACK, b"request")),
            (Side::Outside, tcp(service, inside, ACK, b"")),
            (Side::Outside, tcp(end("198.51.100.1:8080"), inside, SYN | ACK, b"")),
            (Side::Outside, tcp(end("198.51.100.1:8080"), outside, SYN | ACK, b"")),
            (Side::Inside, ping),
        ]);
    }
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frames.into_iter().map(|(side, packet)| (side, [&ethernet[..], &packet].concat())).collect()
}

/// Connections of one client, each behind the reset of the one before, with so many requests and responses cut in the midst of
/// lines.
fn conversations(exchanges: usize) -> Vec<(Side, Vec<u8>)> {
    use http_support::{Client, Server, Talk};
    let mut talk = Talk::open(80);
    for number in 0..4 {
        if number > 0 {
            talk.reopen();
        }
        for _ in 0..exchanges {
            let request =
                "GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: agent\r\n\r\nGET /b HTTP/1.1\nHost: y\n\n";
            let response = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello";
            request.as_bytes().chunks(31).for_each(|part| talk.piece(Client, part));
            response.repeat(2).as_bytes().chunks(37).for_each(|part| talk.piece(Server, part));
        }
        talk.resets(Client);
    }
    framed(talk)
}

/// As those, but what is said is random, in segments of all lengths.
fn random_bytes() -> Vec<(Side, Vec<u8>)> {
    use http_support::{Client, Server, Talk};
    let mut talk = Talk::open(80);
    let mut random = 7;
    for number in 0..4 {
        if number > 0 {
            talk.reopen();
        }
        for _ in 0..20 {
            let len = packet::split_mix(&mut random) as usize % 1_460;
            let bytes: Vec<u8> = (0..len).map(|_| packet::split_mix(&mut random) as u8).collect();
            talk.piece(if random % 2 == 0 { Client } else { Server }, &bytes);
        }
        talk.resets(Client);
    }
    framed(talk)
}

fn framed(talk: http_support::Talk) -> Vec<(Side, Vec<u8>)> {
    talk.segments.into_iter().map(|s| (s.side, http_support::frame(&s.network))).collect()
}

#[test]
fn transactions_allocate_nothing() {
    let frames = conversations(3);
    assert_eq!(allocations::of_known_flows(stages(&[HTTP]), &frames, 20), 0);
}

#[test]
fn benign_messages_of_established_flows_past_rules_allocate_nothing() {
    let [few, more] = [40, 80].map(|count| allocations::of_known_flows(ids(), &conversations(count), 4));
    assert_eq!(more, few, "what is more comes in flows that are established");
}

#[test]
fn connections_past_rules_allocate_nothing() {
    assert_eq!(allocations::of_known_flows(ids(), &conversations(3), 20), 0);
}

#[test]
fn random_bytes_past_rules_allocate_nothing() {
    let frames = random_bytes();
    assert_eq!(allocations::of_known_flows(ids(), &frames, 20), 0);
}

#[test]
fn known_flows_allocate_nothing() {
    let frames = frames();
    for functions in CHAINS {
        assert_eq!(allocations::of_known_flows(stages(functions), &frames, 20), 0, "{functions:?}");
    }
}

/// Packets to another site, of which all but the first are encoded, and the same from there.
#[test]
fn redundancy_is_eliminated_without_allocations() {
    let ends = [1, 2].map(|here: u8| {
        let config = format!(
            r#"{{"local_networks": ["10.{here}.0.0/16"], "remote_networks": ["10.{}.0.0/16"], "patience": 0, "cache": "64KiB"}}"#,
            3 - here
        );
        stages(&[("re", &config)])
    });
    let [here, there] = ends;
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let bytes: Vec<u8> = (0..900u32).map(|i| ((i * i) >> 5) as u8).collect();
    let packet = |from: u8, to: u8, port| {
        let ends = [from, to].map(|site| (Ipv4Addr::new(10, site, 0, 7), port));
        [&ethernet[..], &udp(ends[0], ends[1], &bytes)].concat()
    };
    let mut peer = chain::Chain::new(there, chain::Options::default()).unwrap();
    let mut pool = packet::Pool::new(4);
    let mut frames = vec![(Side::Inside, packet(1, 2, 5_000)), (Side::Inside, packet(1, 2, 5_001))];
    for port in [5_000, 5_001] {
        let (mut batch, mut sent) = (vec![pool.take(&packet(2, 1, port)).unwrap()], vec![]);
        peer.process(&mut batch, &mut sent, &mut pool);
        frames.push((Side::Outside, sent[0].data().to_vec()));
        pool.give(sent.remove(0));
    }
    assert!(frames[3].1.len() < 200, "it is encoded");
    assert_eq!(allocations::of_known_flows(here, &frames, 20), 0);
}

/// Packets into a tunnel, and out of it.
#[test]
fn tunnels_allocate_nothing() {
    for protocol in ["ah", "esp-null", "esp"] {
        let [(name, here), (_, there)] = [1, 2].map(|site| gateway(protocol, site));
        let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let packet = |from: u8, to: u8| {
            let ends = [from, to].map(|site| (Ipv4Addr::new(10, site, 0, 7), 5_000));
            [&ethernet[..], &udp(ends[0], ends[1], &[0; 900])].concat()
        };
        let mut peer = chain::Chain::new(stages(&[(name, &there)]), chain::Options::default()).unwrap();
        let mut pool = packet::Pool::new(4);
        let (mut batch, mut sent) = (vec![pool.take(&packet(2, 1)).unwrap()], vec![]);
        peer.process(&mut batch, &mut sent, &mut pool);
        let frames = [(Side::Inside, packet(1, 2)), (Side::Outside, sent[0].data().to_vec())];
        assert_eq!(allocations::of_known_flows(stages(&[(name, &here)]), &frames, 20), 0, "{protocol}");
    }
}
