//! The load balancer's `nat` mode: input and output, row by row.

use crate::lb_support::*;
use packet::DropReason::{LbAnswered, LbNoFlow, LbNoServer};
use packet::Side::{Inside, Outside};
use serde_json::{Value, json};

use Expect::{Answered, Dropped, Sent};

/// Returns a configuration with one server per service, so that every row has one outcome.
fn config() -> Value {
    json!({
        "answer_ping": true,
        "services": [
            { "name": "web", "vip": "203.0.113.80", "port": 443,
              "servers": [{ "name": "w", "address": "10.0.0.1", "port": 8443 }] },
            { "name": "dns", "vip": "203.0.113.80", "port": "53-54", "protocol": "udp",
              "servers": [{ "name": "d", "address": "10.0.0.2" }] },
            { "name": "web6", "vip": "2001:db8::80", "port": 443,
              "servers": [{ "name": "w", "address": "fd00::1", "port": 8443 }] },
            { "name": "dns6", "vip": "2001:db8::80", "port": 53, "protocol": "udp",
              "servers": [{ "name": "d", "address": "fd00::2" }] },
            { "name": "ping", "vip": "203.0.113.81", "protocol": "icmp",
              "servers": [{ "name": "p", "address": "10.0.0.3" }] },
            { "name": "ping6", "vip": "2001:db8::81", "protocol": "icmp",
              "servers": [{ "name": "p", "address": "fd00::3" }] },
            { "name": "all", "vip": "203.0.113.82", "protocol": "any",
              "servers": [{ "name": "a", "address": "10.0.0.4" }] },
            { "name": "none", "vip": "203.0.113.83", "port": 80,
              "servers": [{ "name": "n", "address": "10.0.0.5", "down": true }] },
        ]
    })
}

#[test]
fn tcp_and_udp_to_a_server_and_back() {
    let (client, client6) = ("198.51.100.7:40000", "[2001:db8:7::7]:40000");
    check(
        &config(),
        vec![
            Row(
                "a SYN goes to the server's port",
                Inside,
                tcp(client, "203.0.113.80:443", SYN, b"").frame(),
                Sent(tcp(client, "10.0.0.1:8443", SYN, b"").frame()),
            ),
            Row(
                "its answer comes from the service",
                Outside,
                tcp("10.0.0.1:8443", client, SYN | ACK, b"").frame(),
                Sent(tcp("203.0.113.80:443", client, SYN | ACK, b"").frame()),
            ),
            Row(
                "data of odd length",
                Inside,
                tcp(client, "203.0.113.80:443", ACK, b"GET / HTTP/1.1\n\n\n").frame(),
                Sent(tcp(client, "10.0.0.1:8443", ACK, b"GET / HTTP/1.1\n\n\n").frame()),
            ),
            Row(
                "IPv6",
                Inside,
                tcp(client6, "[2001:db8::80]:443", SYN, b"").frame(),
                Sent(tcp(client6, "[fd00::1]:8443", SYN, b"").frame()),
            ),
            Row(
                "IPv6 back",
                Outside,
                tcp("[fd00::1]:8443", client6, SYN | ACK, b"").frame(),
                Sent(tcp("[2001:db8::80]:443", client6, SYN | ACK, b"").frame()),
            ),
            Row(
                "UDP keeps its port",
                Inside,
                udp(client, "203.0.113.80:54", b"query").frame(),
                Sent(udp(client, "10.0.0.2:54", b"query").frame()),
            ),
            Row(
                "UDP back",
                Outside,
                udp("10.0.0.2:54", client, b"answer").frame(),
                Sent(udp("203.0.113.80:54", client, b"answer").frame()),
            ),
            Row(
                "UDP without a checksum",
                Inside,
                udp_unchecked("198.51.100.8:1", "203.0.113.80:53", b"q").frame(),
                Sent(udp_unchecked("198.51.100.8:1", "10.0.0.2:53", b"q").frame()),
            ),
            Row(
                "UDP over IPv6",
                Inside,
                udp(client6, "[2001:db8::80]:53", b"query").frame(),
                Sent(udp(client6, "[fd00::2]:53", b"query").frame()),
            ),
            Row(
                "UDP over IPv6 back",
                Outside,
                udp("[fd00::2]:53", client6, b"answer").frame(),
                Sent(udp("[2001:db8::80]:53", client6, b"answer").frame()),
            ),
            Row(
                "no server is up",
                Inside,
                tcp(client, "203.0.113.83:80", SYN, b"").frame(),
                Dropped(LbNoServer),
            ),
        ],
    );
}

#[test]
fn other_protocols() {
    let odd = |source: &str, destination: &str, protocol| {
        Ip::new(ip(source), ip(destination), protocol, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    };
    check(
        &config(),
        vec![
            Row(
                "an echo keeps its identifier",
                Inside,
                echo("198.51.100.7", "203.0.113.81", true, 77, b"abc").frame(),
                Sent(echo("198.51.100.7", "10.0.0.3", true, 77, b"abc").frame()),
            ),
            Row(
                "its answer",
                Outside,
                echo("10.0.0.3", "198.51.100.7", false, 77, b"abc").frame(),
                Sent(echo("203.0.113.81", "198.51.100.7", false, 77, b"abc").frame()),
            ),
            Row(
                "ICMPv6",
                Inside,
                echo("2001:db8:7::7", "2001:db8::81", true, 78, b"abc").frame(),
                Sent(echo("2001:db8:7::7", "fd00::3", true, 78, b"abc").frame()),
            ),
            Row(
                "ICMPv6 back",
                Outside,
                echo("fd00::3", "2001:db8:7::7", false, 78, b"abc").frame(),
                Sent(echo("2001:db8::81", "2001:db8:7::7", false, 78, b"abc").frame()),
            ),
            Row(
                "a protocol without ports",
                Inside,
                odd("198.51.100.7", "203.0.113.82", 50).frame(),
                Sent(odd("198.51.100.7", "10.0.0.4", 50).frame()),
            ),
            Row(
                "and back",
                Outside,
                odd("10.0.0.4", "198.51.100.7", 50).frame(),
                Sent(odd("203.0.113.82", "198.51.100.7", 50).frame()),
            ),
            Row(
                "SCTP, whose checksum has no addresses",
                Inside,
                odd("198.51.100.7", "203.0.113.82", 132).frame(),
                Sent(odd("198.51.100.7", "10.0.0.4", 132).frame()),
            ),
        ],
    );
}

#[test]
fn packets_for_no_service_pass_unchanged() {
    let other = |source: &str, destination: &str| tcp(source, destination, SYN, b"").frame();
    let mut rows = vec![
        Row(
            "another address",
            Inside,
            other("198.51.100.7:1", "203.0.113.9:443"),
            Sent(other("198.51.100.7:1", "203.0.113.9:443")),
        ),
        Row(
            "another port of the service's address",
            Inside,
            other("198.51.100.7:1", "203.0.113.80:22"),
            Sent(other("198.51.100.7:1", "203.0.113.80:22")),
        ),
        Row(
            "a server's own connection",
            Outside,
            other("10.0.0.1:50000", "198.51.100.7:25"),
            Sent(other("10.0.0.1:50000", "198.51.100.7:25")),
        ),
        Row(
            "a client past the service",
            Inside,
            other("198.51.100.7:2", "10.0.0.1:8443"),
            Sent(other("198.51.100.7:2", "10.0.0.1:8443")),
        ),
        Row(
            "and the answer to it",
            Outside,
            tcp("10.0.0.1:8443", "198.51.100.7:2", SYN | ACK, b"").frame(),
            Sent(tcp("10.0.0.1:8443", "198.51.100.7:2", SYN | ACK, b"").frame()),
        ),
    ];
    let stray = tcp("10.0.0.1:8443", "198.51.100.9:9", ACK, b"late").frame();
    rows.push(Row("a stray from the service's port", Outside, stray.clone(), Sent(stray.clone())));
    check(&config(), rows);
    let mut strict = config();
    strict["strays"] = json!("drop");
    let forged = tcp("203.0.113.80:443", "198.51.100.7:3", ACK, b"");
    let past = tcp("10.0.0.1:8443", "198.51.100.7:2", SYN | ACK, b"").frame();
    check(
        &strict,
        vec![
            Row("a stray", Outside, stray, Dropped(LbNoFlow)),
            Row("forged in the service's name", Inside, forged.frame(), Dropped(LbNoFlow)),
            Row(
                "whom it named is served",
                Inside,
                other("198.51.100.7:3", "203.0.113.80:443"),
                Sent(other("198.51.100.7:3", "10.0.0.1:8443")),
            ),
            Row(
                "a client past the service",
                Inside,
                other("198.51.100.7:2", "10.0.0.1:8443"),
                Sent(other("198.51.100.7:2", "10.0.0.1:8443")),
            ),
            Row("is answered", Outside, past.clone(), Sent(past)),
            Row(
                "a server's own connection",
                Outside,
                other("10.0.0.1:50000", "198.51.100.7:25"),
                Sent(other("10.0.0.1:50000", "198.51.100.7:25")),
            ),
        ],
    );
}

#[test]
fn pings_of_a_service_are_answered() {
    let answer =
        |from: &str, to: &str, id, payload: &[u8]| frame_back(&echo(from, to, false, id, payload).bytes());
    let mut options = echo("198.51.100.7", "203.0.113.80", true, 5, b"x");
    options.ttl = 9;
    check(
        &config(),
        vec![
            Row(
                "IPv4",
                Inside,
                options.frame(),
                Answered(LbAnswered, answer("203.0.113.80", "198.51.100.7", 5, b"x")),
            ),
            Row(
                "from outside",
                Outside,
                echo("198.51.100.7", "203.0.113.80", true, 6, b"xy").frame(),
                Answered(LbAnswered, answer("203.0.113.80", "198.51.100.7", 6, b"xy")),
            ),
            Row(
                "IPv6",
                Inside,
                echo("2001:db8:7::7", "2001:db8::80", true, 6, b"xyz").frame(),
                Answered(LbAnswered, answer("2001:db8::80", "2001:db8:7::7", 6, b"xyz")),
            ),
            Row(
                "another address",
                Inside,
                echo("198.51.100.7", "203.0.113.9", true, 6, b"x").frame(),
                Sent(echo("198.51.100.7", "203.0.113.9", true, 6, b"x").frame()),
            ),
            Row(
                "another kind of ICMP",
                Inside,
                echo("198.51.100.7", "203.0.113.80", false, 6, b"x").frame(),
                Sent(echo("198.51.100.7", "203.0.113.80", false, 6, b"x").frame()),
            ),
        ],
    );
}

#[test]
fn icmp_errors_and_fragments_follow_their_flow() {
    let client = "198.51.100.7:40000";
    let (syn, there) = (tcp(client, "203.0.113.80:443", SYN, b""), tcp(client, "10.0.0.1:8443", SYN, b""));
    let (reply, back) =
        (tcp("10.0.0.1:8443", client, SYN | ACK, b""), tcp("203.0.113.80:443", client, SYN | ACK, b""));
    let first = |destination: &str| {
        let mut whole = udp(client, destination, &[7; 40]).may_fragment();
        whole.body.truncate(24);
        (whole.id, whole.more) = (99, true);
        whole.frame()
    };
    let later = |destination: &str| {
        let mut rest = Ip::new(ip("198.51.100.7"), ip(destination), 17, vec![7; 24]).may_fragment();
        (rest.id, rest.offset) = (99, 3);
        rest.frame()
    };
    check(
        &config(),
        vec![
            Row("the flow", Inside, syn.frame(), Sent(there.frame())),
            Row(
                "its server has no such port",
                Outside,
                error("10.0.0.1", "198.51.100.7", [3, 3], 0, &there.bytes()).frame(),
                Sent(error("203.0.113.80", "198.51.100.7", [3, 3], 0, &syn.bytes()).frame()),
            ),
            Row(
                "a router on the way, 8 bytes quoted",
                Outside,
                error("10.9.9.9", "198.51.100.7", [11, 0], 0, &there.bytes()[..28]).frame(),
                Sent(error("203.0.113.80", "198.51.100.7", [11, 0], 0, &syn.bytes()[..28]).frame()),
            ),
            Row("the answer", Outside, reply.frame(), Sent(back.frame())),
            Row(
                "the client's router says too big",
                Inside,
                error("198.51.100.1", "203.0.113.80", [3, 4], 1400, &back.bytes()).frame(),
                Sent(error("198.51.100.1", "10.0.0.1", [3, 4], 1400, &reply.bytes()).frame()),
            ),
            Row(
                "the same of a connection that is not known",
                Inside,
                error(
                    "198.51.100.1",
                    "203.0.113.80",
                    [3, 4],
                    1400,
                    &tcp("203.0.113.80:443", "198.51.100.7:40001", ACK, b"data").bytes(),
                )
                .frame(),
                Sent(
                    error(
                        "198.51.100.1",
                        "10.0.0.1",
                        [3, 4],
                        1400,
                        &tcp("10.0.0.1:8443", "198.51.100.7:40001", ACK, b"data").bytes(),
                    )
                    .frame(),
                ),
            ),
            Row(
                "an error about no service",
                Inside,
                error(
                    "198.51.100.1",
                    "203.0.113.80",
                    [3, 4],
                    1400,
                    &tcp("203.0.113.80:22", "198.51.100.7:40001", ACK, b"data").bytes(),
                )
                .frame(),
                Sent(
                    error(
                        "198.51.100.1",
                        "203.0.113.80",
                        [3, 4],
                        1400,
                        &tcp("203.0.113.80:22", "198.51.100.7:40001", ACK, b"data").bytes(),
                    )
                    .frame(),
                ),
            ),
            Row("a first fragment", Inside, first("203.0.113.80:53"), Sent(first_translated(client))),
            Row("a later one", Inside, later("203.0.113.80"), Sent(later("10.0.0.2"))),
        ],
    );
}

/// Returns the first fragment as the server gets it, with the checksum of the whole datagram.
fn first_translated(client: &str) -> Vec<u8> {
    let mut whole = udp(client, "10.0.0.2:53", &[7; 40]).may_fragment();
    whole.body.truncate(24);
    (whole.id, whole.more) = (99, true);
    whole.frame()
}
