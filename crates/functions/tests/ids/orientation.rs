//! The server's identity when the beginning of a connection was not seen, or was the server's.

use packet::{Endpoint, Side};
use serde_json::json;

use crate::ids_support::*;

const ASK: &str = "GET /ask HTTP/1.1\r\nHost: x.example\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nSECRET";

/// A rule for each thing that depends on the server's identity.
const RULES: &str = r#"
alert tcp any any -> any any (msg:"any"; content:"SECRET"; sid:1;)
alert http any any -> any any (msg:"body"; flow:established,to_client; file.data; content:"SECRET"; sid:2;)
alert http any any -> any any (msg:"target"; flow:established,to_server; http.uri; content:"/ask"; sid:3;)
alert tcp any any -> any 80 (msg:"to the port"; content:"GET"; sid:4;)
alert tcp any any -> any any (msg:"answer"; flow:to_client; content:"200 OK"; sid:5;)
alert tcp any any -> any any (msg:"never"; flow:to_server; content:"SECRET"; sid:6;)
"#;

/// Returns the alerts of a connection that is visible from this segment on, counted from 1.
fn seen(talk: &Talk, from: usize) -> Vec<u32> {
    let mut rules = watch(RULES, &talk.segments[from - 1..]).rules();
    rules.sort_unstable();
    rules
}

fn web(port: u16) -> Talk {
    let mut talk = Talk::open(port);
    talk.says(Client, ASK).says(Server, ANSWER);
    talk.says(Client, "").says(Client, ASK).says(Server, ANSWER);
    talk
}

#[test]
fn the_server_is_identified_whichever_side_is_seen_first() {
    let whole = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5];
    let talk = web(80);
    // From the client's SYN; the server's; the client's acknowledgement; its request.
    for from in 1..=4 {
        assert_eq!(seen(&talk, from), whole, "from {from}");
    }
    // From the response; and from an acknowledgement of the server's.
    assert_eq!(seen(&talk, 5), [1, 1, 2, 2, 3, 4, 5, 5]);
    let mut talk = Talk::midstream(80);
    talk.says(Server, "").says(Client, ASK).says(Server, ANSWER);
    assert_eq!(seen(&talk, 1), [1, 2, 3, 4, 5]);
}

#[test]
fn content_determines_the_server_where_ports_do_not() {
    // Neither port is known as a server's; or the client's is.
    for (client, server) in [(40_000, 8_080), (80, 8_080), (80, 80)] {
        let at = |address: [u8; 4], port| {
            let [a, b, c, d] = address;
            v4(a, b, c, d, port)
        };
        let mut talk = Talk::between(at([10, 0, 0, 1], client), at([192, 0, 2, 1], server));
        talk.says(Server, ANSWER).says(Client, ASK).says(Server, ANSWER);
        let mut rules = seen(&talk, 1);
        rules.retain(|rule| *rule != 4);
        assert_eq!(rules, [1, 1, 2, 2, 3, 5, 5], "{client} and {server}");
    }
}

#[test]
fn a_request_is_parsed_after_the_rest_of_a_response() {
    for len in [100, 3_000, 9_000] {
        let mut talk = Talk::midstream(8_080);
        for part in "x".repeat(len).as_bytes().chunks(1_000) {
            talk.says(Server, part);
        }
        talk.says(Client, ASK).says(Server, ANSWER);
        assert_eq!(seen(&talk, 1), [1, 2, 3, 5], "{len}");
    }
}

#[test]
fn a_syn_overrides_earlier_evidence() {
    // A forged reply, or a stray segment, before the client's SYN.
    for (who, flags) in [(Client, SYN | ACK), (Server, ACK), (Client, ACK)] {
        let mut talk = Talk::midstream(80);
        talk.forges(who, flags, 77);
        talk.handshake();
        talk.says(Client, ASK).says(Server, ANSWER);
        assert_eq!(seen(&talk, 1), [1, 2, 3, 4, 5], "{who:?} {flags}");
    }
}

#[test]
fn on_the_same_ports_the_other_side_may_begin() {
    let mut talk = Talk::open(80);
    talk.says(Client, ASK).says(Server, ANSWER).closes(Client).closes(Server);
    let mut back = Talk::between(talk.server, talk.client);
    back.handshake();
    back.says(Client, ASK).says(Server, ANSWER);
    let turned = |one: &Arrival| {
        let side = if one.side == Side::Inside { Side::Outside } else { Side::Inside };
        Arrival { at_ns: one.at_ns + SECOND_NS, side, network: one.network.clone() }
    };
    talk.segments.extend(back.segments.iter().map(turned));
    assert_eq!(seen(&talk, 1), [1, 1, 2, 2, 3, 3, 4, 5, 5]);
}

#[test]
fn tls_and_ssh_determine_the_server() {
    let hello = |kind: u8| {
        let body = [&[3, 3][..], &[b'R'; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        let message = [&[kind, 0, 0, body.len() as u8][..], &body].concat();
        [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
    };
    let rules = r#"
alert tls any any -> any any (msg:"client"; flow:to_server; tls.random; content:"RRRR"; sid:1;)
alert ssh any any -> any any (msg:"server"; flow:to_client; ssh.software; content:"theirs"; sid:2;)
"#;
    let mut talk = Talk::midstream(50_000);
    talk.says(Server, "").says(Client, hello(1));
    assert_eq!(watch(rules, &talk.segments).rules(), [1]);
    let mut talk = Talk::midstream(22);
    talk.says(Server, "SSH-2.0-theirs\r\n").says(Client, "SSH-2.0-ours\r\n");
    assert_eq!(watch(rules, &talk.segments).rules(), [2], "both sides say the same: the port decides");
}

/// Returns a DNS query or response.
fn dns(flags: u16) -> Vec<u8> {
    let header = [0x1234, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], b"\x04name\x07example\0\0\x01\0\x01"].concat()
}

#[test]
fn an_answer_of_dns_comes_from_the_server() {
    let rules = r#"
alert dns any any -> any any (msg:"query"; flow:to_server; dns.query; content:"name"; sid:1;)
alert dns any any -> any any (msg:"answer"; flow:to_client; dns.queries.rrname; content:"name"; sid:2;)
"#;
    let (host, server): (Endpoint, Endpoint) = (v4(10, 0, 0, 1, 5_000), v4(192, 0, 2, 1, 53));
    let answer = Arrival { at_ns: SECOND_NS, side: Side::Outside, network: udp(server, host, &dns(0x8180)) };
    let query = Arrival { at_ns: SECOND_NS, side: Side::Inside, network: udp(host, server, &dns(0x0100)) };
    assert_eq!(watch(rules, &[answer.clone(), query.clone()]).reported, [(1, 2), (2, 1)]);
    assert_eq!(watch(rules, &[query, answer]).reported, [(1, 1), (2, 2)]);
}

#[test]
fn one_direction_alone_counts_as_established_only_if_so_configured() {
    let rules =
        r#"alert http any any -> any any (msg:"m"; flow:established; http.uri; content:"/ask"; sid:1;)"#;
    let mut talk = Talk::open(80);
    talk.says(Client, ASK).says(Client, ASK);
    talk.segments.remove(1);
    let seen = watch(rules, &talk.segments);
    assert_eq!((seen.rules(), seen.counter("one_sided_connections")), (vec![], 1));
    let seen = watch_with(rules, json!({ "async_oneside": true }), &talk.segments);
    assert_eq!((seen.rules(), seen.counter("one_sided_connections")), (vec![1, 1], 1));
    // A connection without any beginning counts anyway.
    let seen = watch(rules, &talk.segments[2..]);
    assert_eq!((seen.rules(), seen.counter("one_sided_connections")), (vec![1, 1], 1));
    assert_eq!(watch(rules, &web(80).segments).counter("one_sided_connections"), 0);
}
