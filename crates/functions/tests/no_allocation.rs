//! Packets of known flows pass every function, and a graph of all functions, without an allocation
//! (design.md 5.5): IPv4 and IPv6, fragments and ICMP errors included.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking.

#[path = "../../graph/tests/support/allocations.rs"]
mod allocations;
mod http_support;
mod meter_support;
mod nat_support;

use std::net::Ipv4Addr;

use meter_support as made;
use nat_support::{ACK, End, SYN, end, error, ipv4, query, tcp, udp, udp_body};
use nf::stage::Stage;
use nf::{Registry, Setup};
use packet::{Addr, Endpoint, Side};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Maximum number of flows of the graph under test.
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
/// For both IP versions.
const NAT6: (&str, &str) = (
    "nat",
    r#"{"external": ["203.0.113.1"], "nptv6": [{"inside": "fd01:203:405::/48", "outside": "2001:db8:1::/48"}]}"#,
);
const BALANCER6: (&str, &str) = (
    "lb",
    r#"{"services": [{"name": "web", "vip": "2001:db8:ffff::80", "port": 80,
                      "servers": [{"name": "one", "address": "2001:db8:5::1", "port": 8080}]}]}"#,
);
const TUNNEL6: (&str, &str) = (
    "lb",
    r#"{"services": [{"name": "web", "vip": "2001:db8:ffff::80", "port": 80, "mode": "gue",
                      "servers": [{"name": "one", "address": "2001:db8:5::1"}]}],
        "tunnel": {"source6": "2001:db8:6::/64"}}"#,
);
const FIREWALL: (&str, &str) =
    ("firewall", r#"{"rules": "allow out log\nallow in udp to any port 5000-6000", "tcp": "strict"}"#);
const STATELESS: (&str, &str) = ("firewall", r#"{"rules": "allow any_direction any", "stateful": false}"#);
const MONITOR: (&str, &str) = ("monitor", r#"{"active_timeout": "1ms"}"#);

const POLICER: (&str, &str) =
    ("policer", r#"{"rate": "1Mbps", "yellow": {"remark": "af12"}, "excess_burst": "1KB"}"#);
const SUBSCRIBERS: (&str, &str) =
    ("policer", r#"{"rate": "1kbps", "peak_rate": "2kbps", "per": "inside", "meters": 16, "red": "mark"}"#);
const WHITELIST: (&str, &str) = (
    "whitelist",
    r#"{"record": ["hosts", "clients"], "services": [5000], "capacity": 8, "alert_above": "1pps", "alert_every": "1ms"}"#,
);
/// Tight limits with alerts: flows are blocked and reported.
const DOS: (&str, &str) =
    ("dos", r#"{"packets": 9, "flow_rate": "1pps", "connections": 1, "alert_every": 0}"#);

/// Returns a gateway that receives the packets of its peer.
fn gateway(protocol: &str, here: u8) -> (&'static str, String) {
    let (there, len) = (3 - here, if protocol == "esp" { 20 } else { 32 });
    let sa = |of: u8| format!(r#"{{"spi": 999, "key": "{}"}}"#, format!("{of:02x}").repeat(len));
    let config = format!(
        r#"{{"tunnels": [{{"name": "t", "protocol": "{protocol}", "local": "192.0.2.{here}", "remote": "192.0.2.{there}",
        "local_networks": ["10.{here}.0.0/16", "2001:db8:{here}::/48"],
        "remote_networks": ["10.{there}.0.0/16", "2001:db8:{there}::/48"],
        "outbound": {}, "inbound": [{}], "anti_replay": false}}]}}"#,
        sa(here),
        sa(there)
    );
    ("vpn", config)
}

/// Receives packets to encapsulate; none are decapsulated here.
const SITE: (&str, &str) = (
    "tunnel",
    r#"{"protocol": "gre", "key": 7, "local": "192.0.2.1", "remote": "192.0.2.2", "others": "pass"}"#,
);
const SITE6: (&str, &str) = (
    "tunnel",
    r#"{"protocol": "vxlan", "vni": 7, "local": "2001:db8::1", "remote": "2001:db8::2", "others": "pass",
        "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02"}"#,
);

const HTTP: (&str, &str) = ("http", r#"{"methods": ["POST"], "anomalies": "alert"}"#);

/// Rules that inspect everything, and match nothing in benign traffic.
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

const CLAMP: (&str, &str) = ("tcp-mss", r#"{"max": 1000}"#);
const MARK: (&str, &str) =
    ("mark", r#"{"rules": "dscp ef push_vlan 7 pcp 5 tenant 3 out tcp\npcp 3 in udp\ndscp 1"}"#);
const MIRROR: (&str, &str) = (
    "mirror",
    r#"{"source": "192.0.2.1", "collector": "192.0.2.2", "protocol": "erspan3", "session": 7, "sample": 2}"#,
);
const MIRROR6: (&str, &str) =
    ("mirror", r#"{"source": "2001:db8::1", "collector": "2001:db8::2", "vni": 7, "side": "inside"}"#);

const CHAINS: [&[(&str, &str)]; 18] = [
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
    &[SITE],
    &[FIREWALL, NAT, SITE],
    &[CLAMP, MIRROR, MARK],
    &[MIRROR, NAT, CLAMP],
];

/// Functions with special handling of IPv6, and all others.
const CHAINS6: [&[(&str, &str)]; 17] = [
    &[NAT6],
    &[BALANCER6],
    &[TUNNEL6],
    &[FIREWALL],
    &[STATELESS],
    &[MONITOR],
    &[POLICER],
    &[SUBSCRIBERS],
    &[WHITELIST],
    &[DOS],
    &[NAT6, BALANCER6, MONITOR, FIREWALL],
    &[FIREWALL, MONITOR, NAT6, TUNNEL6],
    &[SUBSCRIBERS, NAT6, WHITELIST, POLICER],
    &[SITE6],
    &[FIREWALL, NAT6, SITE6],
    &[CLAMP, MIRROR6, MARK],
    &[MIRROR6, NAT6, CLAMP],
];

fn stages(functions: &[(&str, &str)]) -> Vec<Box<dyn Stage>> {
    let registry: Registry<serde_json::Value> = functions::registry();
    let make = |(name, config): &(&str, &str)| {
        let config = serde_json::from_str(config).unwrap();
        let mut setup = Setup::new(7, FLOWS);
        setup.inner = true; // Only tunnels need it.
        registry.find(name).unwrap().make(&config, setup).unwrap()
    };
    functions.iter().map(make).collect()
}

/// Returns both directions of flows between a host and a server, of a service behind a load
/// balancer, and of a ping. Hosts' ports are unique, so that a NAT preserves them. Answers go to
/// the host itself or to its external endpoint; the load balancer's server sends some.
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
    on_ethernet(frames)
}

fn on_ethernet(packets: Vec<(Side, Vec<u8>)>) -> Vec<(Side, Vec<u8>)> {
    packets.into_iter().map(|(side, packet)| (side, made::frame(&packet))).collect()
}

/// Returns an inside host of IPv6, and its outside address.
fn host6(host: u16) -> [Endpoint; 2] {
    let at = |prefix: u128| Endpoint::new(Addr::from_u128(prefix << 64 | u128::from(host)), 5_000 + host);
    [at(0xfd01_0203_0405_0001), at(0x2001_0db8_0001_d550)]
}

fn far6(subnet: u128, host: u16, port: u16) -> Endpoint {
    Endpoint::new(Addr::from_u128(0x2001_0db8 << 96 | subnet << 80 | u128::from(host)), port)
}

/// Returns the same as [`frames`], in IPv6.
fn frames6() -> Vec<(Side, Vec<u8>)> {
    let (names, service, server) = (far6(0xffff, 53, 53), far6(0xffff, 0x80, 80), far6(5, 1, 8080));
    let mut frames = Vec::new();
    for [inside, outside] in (1..=50).map(host6) {
        frames.extend([
            (Side::Inside, made::udp(inside, names, b"question")),
            (Side::Outside, made::udp(names, inside, b"answer")),
            (Side::Outside, made::udp(names, outside, b"answer")),
            (Side::Inside, made::tcp(inside, service, SYN, b"")),
            (Side::Inside, made::tcp(inside, service, ACK, b"request")),
            (Side::Outside, made::tcp(service, inside, ACK, b"")),
            (Side::Outside, made::tcp(server, inside, SYN | ACK, b"")),
            (Side::Outside, made::tcp(server, outside, SYN | ACK, b"")),
            (Side::Inside, made::echo(inside.addr, names.addr, inside.port, false, b"ping!")),
            (Side::Outside, made::echo(names.addr, inside.addr, inside.port, true, b"ping!")),
            (Side::Outside, made::echo(names.addr, outside.addr, inside.port, true, b"ping!")),
        ]);
    }
    on_ethernet(frames)
}

/// Returns flows of both versions, with hairpins, ICMP errors from both sides, and fragments in
/// both orders.
fn seldom_frames() -> Vec<(Side, Vec<u8>)> {
    let mut frames = Vec::new();
    let (names, external) = (end("192.0.2.53:53"), Ipv4Addr::new(203, 0, 113, 1));
    let names6 = far6(0xffff, 53, 53);
    for host in 1..=20u8 {
        let ends = |host: u8| {
            let port = 5_000 + u16::from(host);
            ((Ipv4Addr::new(10, 0, 0, host), port), (external, port))
        };
        let ((inside, outside), (peer, outside_peer)) = (ends(host), ends(host % 20 + 1));
        let asked = udp(outside, names, b"question");
        let answered = udp(names, inside, b"answer");
        frames.extend([
            (Side::Inside, udp(inside, names, b"question")),
            (Side::Inside, udp(peer, names, b"question")),
            (Side::Inside, udp(inside, outside_peer, b"hairpin")),
            (Side::Inside, udp(peer, outside, b"and back")),
            (Side::Outside, error(3, 3, names.0, outside.0, &asked, 28)),
            (Side::Outside, error(3, 3, names.0, inside.0, &udp(inside, names, b"question"), 28)),
            (Side::Inside, error(3, 3, inside.0, names.0, &answered, 28)),
            (Side::Inside, error(3, 3, peer.0, outside.0, &udp(outside, peer, b"hairpin"), 28)),
        ]);
        let [inside6, outside6] = host6(host.into());
        let [peer6, outside_peer6] = host6((host % 20 + 1).into());
        let error6 = |from: Endpoint, quoted: &[u8]| made::unreachable(from.addr, quoted);
        frames.extend([
            (Side::Inside, made::udp(inside6, names6, b"question")),
            (Side::Inside, made::udp(inside6, outside_peer6, b"hairpin")),
            (Side::Inside, made::udp(peer6, outside6, b"and back")),
            (Side::Outside, error6(names6, &made::udp(outside6, names6, b"question"))),
            (Side::Outside, error6(names6, &made::udp(inside6, names6, b"question"))),
            (Side::Inside, error6(inside6, &made::udp(names6, inside6, b"answer"))),
            (Side::Inside, error6(peer6, &made::udp(outside6, peer6, b"hairpin"))),
        ]);
        for (id, reversed) in [(1, false), (2, true)] {
            let id = u16::from(host) * 8 + id;
            let body = udp_body(inside, names, &[7; 40]);
            let first = ipv4(nat_support::UDP, inside.0, names.0, id, 0x2000, &body[..24]);
            let later = ipv4(nat_support::UDP, inside.0, names.0, id, 0x0003, &body[24..]);
            let answer = made::fragments(&made::udp(names6, outside6, &[7; 40]), id, 24);
            let asked = made::fragments(&made::udp(inside6, names6, &[7; 40]), id, 24);
            for (side, mut parts) in
                [(Side::Inside, vec![first, later]), (Side::Outside, answer), (Side::Inside, asked)]
            {
                if reversed {
                    parts.reverse();
                }
                frames.extend(parts.into_iter().map(|part| (side, part)));
            }
        }
    }
    on_ethernet(frames)
}

/// Connections of one client, each after the reset of the previous one, with `exchanges` requests
/// and responses split within lines.
fn conversations(exchanges: usize) -> Vec<(Side, Vec<u8>)> {
    exchanged(http_support::Talk::midstream(80), exchanges)
}

fn conversations6(exchanges: usize) -> Vec<(Side, Vec<u8>)> {
    exchanged(http_support::Talk::between(host6(1)[0], far6(0xffff, 0x80, 80)), exchanges)
}

fn exchanged(mut talk: http_support::Talk, exchanges: usize) -> Vec<(Side, Vec<u8>)> {
    use http_support::{Client, Server};
    talk.handshake();
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

/// Returns the same with random contents, in segments of all lengths.
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
    for frames in [conversations(3), conversations6(3)] {
        assert_eq!(allocations::of_known_flows(stages(&[HTTP]), &frames, 20), 0);
    }
}

#[test]
fn split_streams_allocate_nothing() {
    for config in ["{}", r#"{"window": 16, "sample": 16, "cache": "64KiB", "events_from": 1}"#] {
        for frames in [conversations(3), conversations6(3), random_bytes()] {
            assert_eq!(allocations::of_known_flows(stages(&[("redundancy", config)]), &frames, 20), 0);
        }
    }
}

#[test]
fn benign_messages_of_established_flows_past_rules_allocate_nothing() {
    let [few, more] = [40, 80].map(|count| allocations::of_known_flows(ids(), &conversations(count), 4));
    assert_eq!(more, few, "the additional packets belong to established flows");
}

#[test]
fn connections_past_rules_allocate_nothing() {
    for frames in [conversations(3), conversations6(3)] {
        assert_eq!(allocations::of_known_flows(ids(), &frames, 20), 0);
    }
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

#[test]
fn known_flows_of_ipv6_allocate_nothing() {
    let frames = frames6();
    for functions in CHAINS6 {
        assert_eq!(allocations::of_known_flows(stages(functions), &frames, 20), 0, "{functions:?}");
    }
}

/// Hairpins, ICMP errors and fragments of known flows do not allocate either; each is handled as it
/// should be.
#[test]
fn hairpins_errors_and_fragments_allocate_nothing() {
    let frames = seldom_frames();
    for functions in CHAINS.iter().chain(&CHAINS6) {
        assert_eq!(allocations::of_known_flows(stages(functions), &frames, 20), 0, "{functions:?}");
    }
    let mut graph = graph::Graph::new(stages(&[NAT6]), graph::Options::default()).unwrap();
    let mut pool = packet::PacketPool::new(256);
    let mut sent = vec![];
    for (side, frame) in &frames {
        let mut packet = pool.take(frame).unwrap();
        packet.meta_mut().transit.side = *side;
        graph.process(&mut vec![packet], &mut sent, &mut pool);
        sent.drain(..).for_each(|packet| pool.give(packet));
    }
    let count = |name| graph.stages()[0].shared().counters.get(name);
    assert_eq!(count("flows_hairpin"), Some(20));
    assert_eq!(count("icmp_errors"), Some(20 * 6));
    assert_eq!(count("flows_nptv6"), Some(20 * 2));
    // Excludes errors to inside addresses, as they occur without a NAT.
    assert_eq!(graph.counters().packets_out, frames.len() as u64 - 20 * 2);
}

/// Builds a datagram from a host of one site to a host of the other, of either version.
fn between_sites(version: u8, from: u8, to: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let [source, destination] = [from, to].map(|site| match version {
        4 => made::v4(10, site, 0, 7, port),
        _ => far6(site.into(), 7, port),
    });
    made::frame(&made::udp(source, destination, payload))
}

/// Returns a site's output for these frames.
fn sent_by(site: Vec<Box<dyn Stage>>, frames: &[Vec<u8>]) -> Vec<(Side, Vec<u8>)> {
    let mut graph = graph::Graph::new(site, graph::Options::default()).unwrap();
    let mut pool = packet::PacketPool::new(4);
    let send = |frame: &Vec<u8>| {
        let (mut batch, mut sent) = (vec![pool.take(frame).unwrap()], vec![]);
        graph.process(&mut batch, &mut sent, &mut pool);
        let sent = sent.remove(0);
        let bytes = sent.data().to_vec();
        pool.give(sent);
        (Side::Outside, bytes)
    };
    frames.iter().map(send).collect()
}

/// Packets to and from another site; all but the first are encoded.
#[test]
fn redundancy_is_eliminated_without_allocations() {
    let site = |here: u8| {
        let networks = |site: u8| format!(r#"["10.{site}.0.0/16", "2001:db8:{site}::/48"]"#);
        let config = format!(
            r#"{{"local_networks": {}, "remote_networks": {}, "patience": 0, "cache": "64KiB"}}"#,
            networks(here),
            networks(3 - here)
        );
        stages(&[("re", &config)])
    };
    let bytes: Vec<u8> = (0..900u32).map(|i| ((i * i) >> 5) as u8).collect();
    for version in [4, 6] {
        let [there, back] = [(1, 2), (2, 1)]
            .map(|(from, to)| [5_000, 5_001].map(|port| between_sites(version, from, to, port, &bytes)));
        let answers = sent_by(site(2), &back);
        assert!(answers[1].1.len() < 200, "it is encoded");
        let frames = [there.map(|frame| (Side::Inside, frame)).to_vec(), answers].concat();
        assert_eq!(allocations::of_known_flows(site(1), &frames, 20), 0, "IPv{version}");
    }
}

/// Packets into a tunnel, and out of it.
#[test]
fn tunnels_allocate_nothing() {
    for (protocol, version) in ["ah", "esp_null", "esp"].into_iter().flat_map(|p| [(p, 4), (p, 6)]) {
        let site = |site| {
            let (name, config) = gateway(protocol, site);
            stages(&[(name, &config)])
        };
        let packet = |from, to| between_sites(version, from, to, 5_000, &[0; 900]);
        let mut frames = sent_by(site(2), &[packet(2, 1)]);
        assert!(frames[0].1.len() > packet(2, 1).len(), "it is in the tunnel");
        frames.push((Side::Inside, packet(1, 2)));
        assert_eq!(allocations::of_known_flows(site(1), &frames, 20), 0, "{protocol}, IPv{version}");
    }
}
