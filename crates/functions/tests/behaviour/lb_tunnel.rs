//! The load balancer's tunnel modes: input and output, in all four pairs of IP versions.

use crate::lb_support::*;
use packet::DropReason::{LbProtocol, TooBig};
use packet::Side::{Inside, Outside};
use serde_json::{Value, json};

use Expect::{Answered, Dropped, Sent};

const CLIENT: &str = "198.51.100.7:40000";
const CLIENT6: &str = "[2001:db8:7::7]:40000";

fn config(mode: &str, tunnel: Value) -> Value {
    let service = |name: &str, vip: &str, server: &str| {
        json!({ "name": name, "vip": vip, "port": 443, "mode": mode,
                "servers": [{ "name": "s", "address": server }] })
    };
    json!({
        "tunnel": tunnel,
        "services": [
            service("44", "203.0.113.44", "10.0.0.4"),
            service("46", "203.0.113.46", "fd00::4"),
            service("64", "2001:db8::64", "10.0.0.6"),
            service("66", "2001:db8::66", "fd00::6"),
        ]
    })
}

fn plain() -> Value {
    json!({ "source4": "192.0.2.1", "source6": "fd00:1::1", "ttl": 32 })
}

/// Puts the packet into an outer header.
fn within(source: &str, destination: &str, inner: &Ip) -> Ip {
    let protocol = if inner.source.is_ipv4() { 4 } else { 41 };
    let mut outer = Ip::new(ip(source), ip(destination), protocol, inner.bytes());
    outer.ttl = 32;
    outer.tos = inner.tos;
    outer.dont_fragment = inner.dont_fragment && inner.source.is_ipv4();
    outer
}

/// Copies the fields that vary among flows from the output, after checking that they vary.
fn like(mut expected: Ip, got: &[u8]) -> Vec<u8> {
    if expected.source.is_ipv6() {
        expected.label = u32::from_be_bytes([0, got[15] & 0xf, got[16], got[17]]);
    } else if !expected.dont_fragment {
        expected.id = u16::from_be_bytes([got[18], got[19]]);
    }
    expected.frame()
}

#[test]
fn ip_in_ip_in_all_versions() {
    let mut marked = tcp(CLIENT, "203.0.113.44:443", ACK, b"marked");
    marked.tos = 0xb9; // Expedited forwarding, ECT(1).
    let mut marked6 = tcp(CLIENT6, "[2001:db8::66]:443", ACK, b"marked");
    marked6.tos = 0x03; // Congestion experienced.
    let mut bench = Bench::new(&config("ipip", plain()));
    for (inner, source, server) in [
        (tcp(CLIENT, "203.0.113.44:443", SYN, b""), "192.0.2.1", "10.0.0.4"),
        (marked, "192.0.2.1", "10.0.0.4"),
        (tcp(CLIENT, "203.0.113.44:443", ACK, b"data").may_fragment(), "192.0.2.1", "10.0.0.4"),
        (tcp(CLIENT, "203.0.113.46:443", SYN, b"4 in 6"), "fd00:1::1", "fd00::4"),
        (tcp(CLIENT6, "[2001:db8::64]:443", SYN, b"6 in 4"), "192.0.2.1", "10.0.0.6"),
        (marked6, "fd00:1::1", "fd00::6"),
    ] {
        let got = bench.pass(&inner);
        assert_eq!(got, like(within(source, server, &inner), &got), "{inner:?}");
    }
    // The server answers the client directly; if its answer comes by, it passes.
    let answer = tcp("203.0.113.44:443", CLIENT, SYN | ACK, b"");
    assert_eq!(bench.reply(&answer), answer.frame());
}

#[test]
fn generic_udp_encapsulation_in_all_versions() {
    for (checksum, over4, over6) in
        [(json!("auto"), false, true), (json!("always"), true, true), (json!("never"), false, false)]
    {
        let mut tunnel = plain();
        tunnel["udp_checksum"] = checksum;
        let mut bench = Bench::new(&config("gue", tunnel));
        for (inner, source, server, summed) in [
            (tcp(CLIENT, "203.0.113.44:443", SYN, b"odd"), "192.0.2.1", "10.0.0.4", over4),
            (tcp(CLIENT, "203.0.113.46:443", SYN, b""), "fd00:1::1", "fd00::4", over6),
            (tcp(CLIENT6, "[2001:db8::64]:443", SYN, b""), "192.0.2.1", "10.0.0.6", over4),
            (tcp(CLIENT6, "[2001:db8::66]:443", SYN, b"odd"), "fd00:1::1", "fd00::6", over6),
        ] {
            let got = bench.pass(&inner);
            let outer_len = if server.contains(':') { 40 } else { 20 };
            let port = u16::from_be_bytes([got[14 + outer_len], got[15 + outer_len]]);
            assert!(port >= 0xc000, "{port} is a dynamic port");
            let protocol = if inner.source.is_ipv4() { 4 } else { 41 };
            let payload = [&[0, protocol, 0, 0], &inner.bytes()[..]].concat();
            let end = |addr: &str, port| std::net::SocketAddr::new(ip(addr), port).to_string();
            let wrap = if summed { udp } else { udp_unchecked };
            let mut outer = wrap(&end(source, port), &end(server, 6080), &payload);
            outer.ttl = 32;
            outer.dont_fragment = inner.source.is_ipv4();
            assert_eq!(got, like(outer, &got), "{server}");
        }
    }
}

#[test]
fn outer_headers_vary_only_among_flows() {
    let tunnel = json!({ "source4": "172.16.0.0/12", "source6": "fd00:1::/64" });
    let mut bench = Bench::new(&config("gue", tunnel.clone()));
    let (mut sources, mut ports, mut labels) = (
        std::collections::BTreeSet::new(),
        std::collections::BTreeSet::new(),
        std::collections::BTreeSet::new(),
    );
    for port in 1000..1064 {
        let packet = |flags| tcp(&format!("198.51.100.7:{port}"), "203.0.113.44:443", flags, b"");
        let (first, second) = (bench.pass(&packet(SYN)), bench.pass(&packet(ACK)));
        assert_eq!(first[26..36], second[26..36], "one flow, one source and port");
        assert_eq!(first[26], 172);
        assert_eq!(first[27] & 0xf0, 16);
        sources.insert(first[26..30].to_vec());
        ports.insert(first[34..36].to_vec());
        let wrapped = bench.pass(&tcp(&format!("[2001:db8:7::7]:{port}"), "[2001:db8::66]:443", SYN, b""));
        labels.insert(wrapped[15..18].to_vec());
        assert_eq!(wrapped[22..30], [0xfd, 0, 0, 1, 0, 0, 0, 0]);
    }
    assert!(sources.len() > 60 && ports.len() > 60 && labels.len() > 60);
    // Another instance with the same seed writes the same headers.
    let packet = tcp("198.51.100.7:1000", "203.0.113.44:443", ACK, b"");
    assert_eq!(bench.pass(&packet)[20..], Bench::new(&config("gue", tunnel)).pass(&packet)[20..]);
}

#[test]
fn a_packet_that_is_too_long_is_refused_and_its_sender_notified() {
    let long = |len, destination: &str, client: &str| tcp(client, destination, ACK, &vec![7; len]);
    let fits = long(1500 - 20 - 20 - 20, "203.0.113.44:443", CLIENT);
    let over = long(1500 - 20 - 20 - 20 + 1, "203.0.113.44:443", CLIENT);
    let over6 = long(1500 - 40 - 40 - 20 + 1, "[2001:db8::66]:443", CLIENT6);
    let mut control = error("203.0.113.44", "198.51.100.7", [3, 4], 1480, &over.bytes()[..576 - 28]);
    control.tos = 0xc0;
    let mut control6 = error("2001:db8::66", "2001:db8:7::7", [2, 0], 1460, &over6.bytes()[..1280 - 48]);
    control6.tos = 0xc0;
    let begin = tcp(CLIENT, "203.0.113.44:443", SYN, b"");
    let begin6 = tcp(CLIENT6, "[2001:db8::66]:443", SYN, b"");
    let mut first = Bench::new(&config("ipip", plain()));
    let label6 = first.pass(&begin6);
    let begun6 = like(within("fd00:1::1", "fd00::6", &begin6), &label6);
    check(
        &config("ipip", plain()),
        vec![
            Row("the flow", Inside, begin.frame(), Sent(within("192.0.2.1", "10.0.0.4", &begin).frame())),
            Row("it just fits", Inside, fits.frame(), Sent(within("192.0.2.1", "10.0.0.4", &fits).frame())),
            Row("a byte more", Inside, over.frame(), Answered(TooBig, frame_back(&control.bytes()))),
            Row("said once for a while", Inside, over.frame(), Dropped(TooBig)),
            Row("the flow, IPv6", Inside, begin6.frame(), Sent(begun6)),
            Row("a byte more, IPv6", Inside, over6.frame(), Answered(TooBig, frame_back(&control6.bytes()))),
        ],
    );
    // A packet that may be fragmented passes, and is counted.
    let mut bench = Bench::new(&config("ipip", plain()));
    let may = over.may_fragment();
    let got = bench.pass(&may);
    assert_eq!(got, like(within("192.0.2.1", "10.0.0.4", &may), &got));
    assert_eq!(bench.counter("packets_oversize"), 1, "oversize");
    // Over IPv6 no router would fragment it.
    assert_eq!(bench.drop(Inside, &long(1441, "203.0.113.46:443", "198.51.100.7:2").may_fragment()), TooBig);
}

#[test]
fn icmp_errors_and_fragments_go_to_the_flows_server() {
    let begin = tcp(CLIENT, "203.0.113.44:443", SYN, b"");
    let about = tcp("203.0.113.44:443", CLIENT, ACK, b"data");
    let too_big = error("198.51.100.1", "203.0.113.44", [3, 4], 1400, &about.bytes());
    let unknown = tcp("203.0.113.44:443", "198.51.100.7:9", ACK, b"data");
    let unrelated = error("198.51.100.1", "203.0.113.44", [3, 4], 1400, &unknown.bytes());
    let wrap = |inner: &Ip| Sent(within("192.0.2.1", "10.0.0.4", inner).frame());
    check(
        &config("ipip", plain()),
        vec![
            Row("the flow", Inside, begin.frame(), wrap(&begin)),
            Row("an error about it", Inside, too_big.frame(), wrap(&too_big)),
            Row("an error about a flow that is not known", Inside, unrelated.frame(), wrap(&unrelated)),
        ],
    );
    let mut bench = Bench::new(&config("ipip", plain()));
    let mut first = tcp(CLIENT, "203.0.113.44:443", ACK, &[1; 28]).may_fragment();
    (first.id, first.more) = (5, true);
    let mut later = Ip::new(first.source, first.destination, 6, vec![2; 16]).may_fragment();
    (later.id, later.offset) = (5, 6);
    for fragment in [first, later] {
        let got = bench.pass(&fragment);
        assert_eq!(got, like(within("192.0.2.1", "10.0.0.4", &fragment), &got));
    }
}

#[test]
fn ethernet_padding_does_not_enter_the_tunnel() {
    let mut bench = Bench::new(&config("ipip", plain()));
    let inner = tcp(CLIENT, "203.0.113.44:443", SYN, b"");
    let padded = [inner.frame(), vec![0xee; 6]].concat();
    let out = bench.batch(&[(Outside, padded)]);
    assert_eq!(out, [(Inside, within("192.0.2.1", "10.0.0.4", &inner).frame())]);
}

#[test]
fn a_packet_in_a_tunnel_is_not_encapsulated_again() {
    // In graphs that parse tunnels, a service may be addressed inside one: the new header would
    // precede the outer one.
    let inner = tcp(CLIENT, "203.0.113.44:443", SYN, b"");
    let outer = within("198.51.100.9", "198.51.100.10", &inner);
    let mut looking = Bench::with(&config("gue", plain()), Vec::new(), true);
    assert_eq!(looking.drop(Inside, &outer), LbProtocol);
    // Otherwise the outer packet counts, which is not for a service.
    assert_eq!(Bench::new(&config("gue", plain())).pass(&outer), outer.frame());
}
