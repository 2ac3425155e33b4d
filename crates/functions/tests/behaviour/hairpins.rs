//! Functions on both sides of a NAT with hairpins: the two passes of a hairpin are two flows to
//! functions inside, and none to functions outside.

use graph::Options;
use packet::{Endpoint, Side};
use serde_json::{Value, json};

use crate::meter_support::{Arrival, Bench, SECOND_NS, counter_of, options, stage, tcp, udp, v4};

const T: u64 = 1_000_000_000_000;
const SYN: u8 = 2;
const ACK: u8 = 0x10;

fn nat() -> Value {
    json!({
        "external": ["203.0.113.1"],
        "inside": ["10.0.0.0/8"],
        "forwards": [
            {"protocol": "tcp", "external": "203.0.113.1:443", "internal": "10.0.0.20:8443"},
            {"protocol": "udp", "external": "203.0.113.1:53", "internal": "10.0.0.20:53"},
        ],
    })
}

fn client() -> Endpoint {
    v4(10, 0, 0, 5, 1000)
}

fn external() -> Endpoint {
    v4(203, 0, 113, 1, 443)
}

fn server() -> Endpoint {
    v4(10, 0, 0, 20, 8443)
}

/// Returns options with the same expected output: batches of one or several, slow path or fast
/// path.
fn ways() -> [Options; 2] {
    [true, false].map(|consolidate| Options { consolidate, ..options() })
}

fn inside(function: &str, config: &Value, options: Options) -> Bench {
    Bench::new(vec![stage(function, config), stage("nat", &nat())], options)
}

fn outside(function: &str, config: &Value, options: Options) -> Bench {
    Bench::new(vec![stage("nat", &nat()), stage(function, config)], options)
}

/// Returns the endpoints of a packet of [`tcp`] or [`udp`].
fn ends(network: &[u8]) -> (Endpoint, Endpoint) {
    let end = |addr: usize, port: usize| {
        let [a, b, c, d] = std::array::from_fn(|i| network[addr + i]);
        v4(a, b, c, d, u16::from_be_bytes([network[port], network[port + 1]]))
    };
    (end(12, 20), end(16, 22))
}

/// Sends the client's packet, which must return to the inside, to the server; returns its source.
fn asks(bench: &mut Bench, at_ns: u64, network: &[u8], to: Endpoint) -> Endpoint {
    let sent = bench.one(at_ns, Side::Inside, network);
    assert_eq!(sent.iter().map(|of| of.0).collect::<Vec<_>>(), [Side::Inside], "{:?}", bench.drops());
    let (mapped, destination) = ends(&sent[0].1);
    assert_eq!(destination, to);
    mapped
}

/// Sends the server's packet; it must return to the client from the endpoint that the client used.
fn answers(bench: &mut Bench, at_ns: u64, network: &[u8], from: Endpoint) {
    let sent = bench.one(at_ns, Side::Inside, network);
    assert_eq!(sent.iter().map(|of| of.0).collect::<Vec<_>>(), [Side::Inside], "{:?}", bench.drops());
    assert_eq!(ends(&sent[0].1), (from, client()));
}

/// Sets the sequence and acknowledgement numbers of a TCP segment in IPv4.
fn numbered(mut segment: Vec<u8>, sequence: u32, acknowledged: u32) -> Vec<u8> {
    segment[24..28].copy_from_slice(&sequence.to_be_bytes());
    segment[28..32].copy_from_slice(&acknowledged.to_be_bytes());
    segment[36..38].fill(0);
    let len = (segment.len() - 20) as u16;
    let pseudo = [&segment[12..20], &[0, 6], &len.to_be_bytes(), &segment[20..]].concat();
    let sum = packet::checksum::checksum(&pseudo);
    segment[36..38].copy_from_slice(&sum.to_be_bytes());
    segment
}

#[test]
fn a_firewall_judges_each_pass() {
    let syn = tcp(client(), external(), SYN, b"");
    let denied = |rules: &str, default: &str, reason: &str| {
        for options in ways() {
            let config = json!({"rules": rules, "default": default});
            let mut bench = inside("firewall", &config, options);
            assert_eq!(bench.one(T, Side::Inside, &syn), [], "{rules}");
            assert_eq!(bench.drops(), [(reason, 1)], "{rules}");
            assert_eq!(bench.graph.counters().flows_live, 0);
            assert_eq!(bench.graph.flows().records().live(), 0, "neither pass leaves a flow");
            assert_eq!(
                bench.graph.stages()[1].shared().pools.iter().map(|pool| pool.in_use()).sum::<u32>(),
                0
            );
        }
    };
    denied("deny tcp to 10.0.0.20 port 8443", "allow", "firewall-denied");
    denied("deny tcp to 203.0.113.1 port 443", "allow", "firewall-denied");
    denied("allow out", "deny", "firewall-default");
    denied("allow in", "deny", "firewall-default");
    for (options, tcp_mode) in ways().into_iter().flat_map(|way| [(way, "loose"), (way, "strict")]) {
        let rules = "allow out tcp to 203.0.113.1 port 443\nallow in tcp to 10.0.0.20 port 8443";
        let config = json!({"rules": rules, "default": "deny", "tcp": tcp_mode});
        let mut bench = inside("firewall", &config, options);
        let mapped = asks(&mut bench, T, &numbered(syn.clone(), 99, 0), server());
        answers(&mut bench, T, &numbered(tcp(server(), mapped, SYN | ACK, b""), 199, 100), external());
        for i in 1..5 {
            asks(&mut bench, T + i, &numbered(tcp(client(), external(), ACK, b""), 100, 200), server());
            answers(&mut bench, T + i, &numbered(tcp(server(), mapped, ACK, b""), 200, 100), external());
        }
        assert_eq!(counter_of(&bench, 0, "judged"), 2, "once in each pass");
        assert_eq!(bench.graph.stages()[0].counters().packets, 20);
        let counters = bench.graph.counters();
        assert_eq!(
            (counters.flows_started, counters.flows_live, bench.graph.flows().records().live()),
            (1, 1, 2)
        );
        // A rule that was disabled ends the second pass, and with it the connection.
        bench.graph.stage_mut(0).unwrap().control("rule 2 disable").unwrap();
        assert_eq!(bench.one(T + 9, Side::Inside, &tcp(client(), external(), ACK, b"")), []);
        assert_eq!(bench.one(T + 9, Side::Inside, &tcp(server(), mapped, ACK, b"")), []);
        assert_eq!(bench.drops(), [("firewall-default", 2)]);
        bench.advance(T + 20_000_000 * SECOND_NS);
        assert_eq!(bench.graph.flows().records().live(), 0);
    }
    for options in ways() {
        let mut bench = outside("firewall", &json!({"rules": "", "default": "deny"}), options);
        asks(&mut bench, T, &syn, server());
        assert_eq!(bench.graph.stages()[1].counters().packets, 0, "it does not reach that function");
    }
}

#[test]
fn a_load_balancer_serves_the_second_pass() {
    let service = |vip: &str| {
        json!({"services": [{"name": "web", "vip": vip, "protocol": "any",
            "servers": [{"name": "one", "address": "10.0.0.31"}]}]})
    };
    let one = v4(10, 0, 0, 31, 8443);
    for options in ways() {
        let mut bench = inside("lb", &service("10.0.0.20"), options);
        let mapped = asks(&mut bench, T, &tcp(client(), external(), SYN, b""), one);
        for i in 0..4 {
            answers(&mut bench, T + i, &tcp(one, mapped, SYN | ACK, b""), external());
            asks(&mut bench, T + i, &tcp(client(), external(), ACK, b"x"), one);
        }
        // A service at the NAT's address, inside of the NAT: the packet does not reach the NAT.
        let mut bench = inside("lb", &service("203.0.113.1"), options);
        let sent = bench.one(T, Side::Inside, &tcp(client(), external(), SYN, b""));
        assert_eq!(ends(&sent[0].1).1, v4(10, 0, 0, 31, 443));
        let mut bench = outside("lb", &service("203.0.113.1"), options);
        asks(&mut bench, T, &tcp(client(), external(), SYN, b""), server());
    }
}

#[test]
fn a_policer_has_a_bucket_per_pass() {
    let syn = tcp(client(), external(), SYN, b"");
    let directions = ["each", "both", "from_inside", "from_outside"];
    for (options, direction) in ways().into_iter().flat_map(|way| directions.map(|of| (way, of))) {
        let config = json!({"rate": "1pps", "burst": 2, "direction": direction});
        let mut bench = inside("policer", &config, options);
        for _ in 0..5 {
            bench.one(T, Side::Inside, &syn);
        }
        // If both passes shared a bucket, only one packet would have passed.
        assert_eq!(bench.drops(), [("policer-rate", 3)], "{direction}");
        let mut bench = outside("policer", &config, options);
        for _ in 0..5 {
            asks(&mut bench, T, &syn, server());
        }
    }
}

#[test]
fn an_ids_sees_both_passes() {
    let rules = "alert tcp any any -> 10.0.0.20 8443 (msg:\"inner\"; content:\"secret\"; sid:1;)\n\
        alert tcp any any -> 203.0.113.1 443 (msg:\"outer\"; content:\"secret\"; sid:2;)\n\
        alert tcp 10.0.0.20 8443 -> any any (msg:\"inner answer\"; content:\"answer\"; sid:3;)\n\
        alert tcp 203.0.113.1 443 -> any any (msg:\"outer answer\"; content:\"answer\"; sid:4;)";
    for (options, batch) in ways().into_iter().flat_map(|way| [(way, 1), (way, 8)]) {
        let mut bench = inside("ids", &json!({"rules": rules}), options);
        let syn = numbered(tcp(client(), external(), SYN, b""), 99, 0);
        let mapped = asks(&mut bench, T, &syn, server());
        let segments = [
            numbered(tcp(server(), mapped, SYN | ACK, b""), 199, 100),
            numbered(tcp(client(), external(), ACK, b""), 100, 200),
            // In two segments: only stream reassembly finds it.
            numbered(tcp(client(), external(), ACK, b"sec"), 100, 200),
            numbered(tcp(client(), external(), ACK, b"ret"), 103, 200),
            numbered(tcp(server(), mapped, ACK, b"ans"), 200, 106),
            numbered(tcp(server(), mapped, ACK, b"wer"), 203, 106),
            numbered(tcp(client(), external(), ACK, b""), 106, 206),
            numbered(tcp(server(), mapped, ACK, b""), 206, 106),
        ];
        let arrivals = segments.map(|network| Arrival { at_ns: T, side: Side::Inside, network });
        arrivals.chunks(batch).for_each(|batch| bench.batch(batch));
        let mut told: Vec<u32> = bench.alerts.iter().map(|alert| alert.signature_id).collect();
        told.sort_unstable();
        assert_eq!(told, [1, 2, 3, 4]);
        let inner = bench.alerts.iter().find(|alert| alert.signature_id == 1).unwrap();
        assert_eq!(inner.key.ends(inner.reversed), (mapped, server()), "an alert names what it saw");
    }
    // Inline, it stops packets that match only in the second pass.
    for options in ways() {
        let rules = "drop tcp any any -> 10.0.0.20 8443 (msg:\"inner\"; flags:S; sid:1;)";
        let mut bench = inside("ids", &json!({"rules": rules, "mode": "prevent"}), options);
        assert_eq!(bench.one(T, Side::Inside, &tcp(client(), external(), SYN, b"")), []);
        let mut bench = outside("ids", &json!({"rules": rules, "mode": "prevent"}), options);
        asks(&mut bench, T, &tcp(client(), external(), SYN, b""), server());
    }
}

#[test]
fn a_whitelist_judges_the_second_pass() {
    let question = udp(client(), v4(203, 0, 113, 1, 53), b"question");
    let inner = v4(10, 0, 0, 20, 53);
    for options in ways() {
        // No inside host has sent a request to the NAT's address and another port.
        let mut bench = inside("whitelist", &json!({}), options);
        assert_eq!(bench.one(T, Side::Inside, &question), []);
        assert_eq!(bench.drops(), [("whitelist-unsolicited", 1)]);
        let mut bench = inside("whitelist", &json!({"services": [53]}), options);
        let mapped = asks(&mut bench, T, &question, inner);
        answers(&mut bench, T, &udp(inner, mapped, b"answer"), v4(203, 0, 113, 1, 53));
        let mut bench = outside("whitelist", &json!({}), options);
        let mapped = asks(&mut bench, T, &question, inner);
        answers(&mut bench, T, &udp(inner, mapped, b"answer"), v4(203, 0, 113, 1, 53));
    }
}

#[test]
fn a_dos_guard_counts_the_second_pass() {
    let syn = tcp(client(), external(), SYN, b"");
    for options in ways() {
        let mut bench = inside("dos", &json!({"syns": 2}), options);
        let passed: usize = (0..6).map(|_| bench.one(T, Side::Inside, &syn).len()).sum();
        assert_eq!(passed, 2, "{:?}", bench.drops());
        let mut bench = outside("dos", &json!({"syns": 2}), options);
        let passed: usize = (0..6).map(|_| bench.one(T, Side::Inside, &syn).len()).sum();
        assert_eq!(passed, 6);
    }
}

/// Each pass is a flow to a monitor, with the endpoints that its packets have there.
#[test]
fn a_monitor_reports_each_pass() {
    for options in ways() {
        let mut bench = inside("monitor", &json!({}), options);
        let mapped = asks(&mut bench, T, &tcp(client(), external(), SYN, b""), server());
        answers(&mut bench, T, &tcp(server(), mapped, SYN | ACK, b""), external());
        bench.advance(T + 20_000_000 * SECOND_NS);
        let ends = bench.reports.iter().map(|report| {
            let end = |addr, port| Endpoint::new(addr, port);
            let (source, destination) =
                (end(report.source, report.source_port), end(report.destination, report.destination_port));
            (source, destination, report.packets)
        });
        let expected = [(client(), external(), [1, 1]), (mapped, server(), [1, 1])];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
    }
}
