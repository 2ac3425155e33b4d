//! `ids` against the oracle on traffic that hides an attack after decoys and after packets that no
//! host accepts.

use functions::ids::CANDIDATES_MAX;
use packet::{Endpoint, LinkType};
use signatures::{Classifications, RuleVariables, Ruleset};

use crate::compare::{Both, Compared};
use crate::http_support::fragments;
use crate::ids_oracle::Frame;
use crate::ids_support::*;

/// Compares both.
pub fn compared(rules: &str, talk: &Talk) -> Compared {
    let report = Ruleset::read("table", rules, &RuleVariables::default(), &Classifications::default());
    assert!(report.faults.is_empty(), "{report}");
    let frame = |segment: &Arrival| Frame {
        time_ns: segment.at_ns,
        link: LinkType::RawIp,
        wire_len: segment.network.len() as u32,
        bytes: segment.network.clone(),
    };
    let frames: Vec<Frame> = talk.segments.iter().map(frame).collect();
    Both::new(report.ruleset.rules()).compare(&frames)
}

/// Checks that both agree; returns the number of reports.
fn same(rules: &str, talk: &Talk) -> usize {
    let compared = compared(rules, talk);
    assert_eq!((compared.vague, compared.unsupported), (0, 0));
    assert_eq!(compared.streams.differing, [""; 0]);
    assert_eq!(compared.differing, [vec![], vec![]], "oracle alone, ids alone");
    compared.same
}

/// Returns a rule for each decoy. Some share an anchor, and some have other ports, directions or
/// protocols.
fn decoy_rules() -> String {
    let rule = |number: usize| {
        let (protocol, port, flow) = match number % 10 {
            7 => ("tcp", "81", ""),
            8 => ("tcp", "any", "flow:to_client;"),
            9 => ("tls", "any", ""),
            _ => ("tcp", "any", ""),
        };
        format!(
            r#"alert {protocol} any any -> any {port} (msg:"{number}"; {flow} content:"<{:03}>"; content:"rest"; distance:0; sid:{};)"#,
            number / 3,
            1 + number
        )
    };
    (0..3 * DECOYS).map(rule).collect::<Vec<_>>().join("\n")
}

/// Distinct decoys: enough that not all rules about them can be candidates.
const DECOYS: usize = CANDIDATES_MAX;

fn decoys(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("<{number:03}>")).collect()
}

#[test]
fn after_decoys_ids_equals_the_oracle() {
    let rules = decoy_rules();
    for (first, second) in [(0..DECOYS, 0..0), (0..20, 20..DECOYS), (10..40, 0..20), (0..5, 0..DECOYS)] {
        for filler in [0, 1_500, 2_100] {
            let mut talk = Talk::open(80);
            talk.says(Client, decoys(first.clone())).says(Client, decoys(second.clone()));
            talk.says(Client, "x".repeat(filler)).says(Client, "rest").says(Client, "rest");
            let least = if filler > 2_000 { 0 } else { (CANDIDATES_MAX / 2).min(first.len() + second.len()) };
            let reports = same(&rules, &talk);
            assert!(
                reports >= least && (filler < 2_000 || reports == 0),
                "{first:?} {second:?} {filler}: {reports}"
            );
            let mut talk = Talk::open(80);
            talk.says(Client, decoys(first.clone())).says(Client, decoys(second.clone()) + "rest");
            assert!(same(&rules, &talk) > 2 * second.len(), "{first:?} {second:?}");
        }
    }
}

#[test]
fn after_forged_packets_ids_equals_the_oracle() {
    const EVIL: &str = r#"
alert tcp any any -> any any (msg:"established"; flow:established; content:"evil"; sid:1;)
alert tcp any any -> any any (msg:"not established"; flow:not_established; content:"evil"; sid:2;)
alert tcp any any -> any any (msg:"packet"; flow:established; flags:R,A; sid:3;)
alert tcp any any -> any any (msg:"packet"; flow:not_established; flags:R,A; sid:4;)
alert http any any -> any any (msg:"page"; flow:established; http.uri; content:"/evil"; sid:5;)
alert tcp any any -> any any (msg:"packet"; flow:established; flags:A; sid:6;)"#;
    const ASKS: &str = "GET /evil HTTP/1.1\r\n\r\n";
    let forged = [(RST, 70_000), (RST | ACK, 1), (SYN, 70_000), (SYN | ACK, 9), (FIN | ACK, 9_000), (RST, 0)];
    for opens in [0, 1, 2, 3] {
        for (number, (flags, away)) in forged.into_iter().enumerate() {
            for (others, far) in &forged[number..] {
                for who in [Client, Server] {
                    // The forged ones come after this many packets of the handshake.
                    let mut talk = Talk::open(80);
                    let rest = talk.segments.split_off(opens);
                    if opens == 3 {
                        talk.forges(who, flags, away).forges(Client, *others, *far);
                    } else {
                        let mut other = Talk::midstream(80);
                        other.forges(who, flags, away).forges(Client, *others, *far);
                        talk.segments.extend(other.segments);
                    }
                    talk.segments.extend(rest);
                    talk.says(Client, ASKS)
                        .says(Server, "evil")
                        .resets(Server)
                        .says(Client, ASKS)
                        .resets(Client);
                    talk.says(Client, "").reopen();
                    talk.says(Client, "evil").closes(Client).closes(Server).says(Client, "");
                    if opens == 0 && (who == Server || flags & SYN == 0) {
                        // The client's bytes may be parsed after the response, and the sender of a
                        // first packet without SYN is a guess.
                        assert_eq!(
                            compared(EVIL, &talk).differing,
                            [vec![], vec![]],
                            "{flags} {others} {far}"
                        );
                        continue;
                    }
                    assert!(same(EVIL, &talk) > 4, "{opens} {who:?} {flags} {away} {others} {far}");
                }
            }
        }
    }
}

#[test]
fn around_resets_messages_equal_those_of_the_oracle() {
    const MESSAGES: &str = r#"
alert http any any -> any any (msg:"body"; flow:established; file.data; content:"evil"; sid:1;)
alert http any any -> any any (msg:"no body"; http.method; content:"POST"; file.data; absent; sid:2;)
alert http any any -> any any (msg:"whole"; flow:not_established; http.method; content:"POST"; content:"evil"; sid:3;)
alert http any any -> any any (msg:"head"; http.uri; content:"/f"; sid:4;)
alert http any any -> any any (msg:"answer"; flow:to_client; http.stat_code; content:"200"; file.data; content:"evil"; sid:5;)"#;
    const POST: &str =
        "POST /f HTTP/1.1\r\nContent-Length: 40\r\n\r\n0123456789 evil 0123456789 evil 01234567";
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nno evil \r\n8\r\nevil 012\r\n0\r\n\r\n";
    assert!(POST.ends_with("01234567") && POST.split("\r\n\r\n").nth(1).map(str::len) == Some(40));
    for cut in 1..POST.len().max(ANSWER.len()) {
        for (who, away) in [(Client, 0), (Server, 0), (Server, 5)] {
            let mut talk = Talk::open(80);
            let halves = [POST, ANSWER].map(|text| text.split_at(cut.min(text.len())));
            for (sender, (before, behind)) in [Client, Server].into_iter().zip(halves) {
                talk.says(sender, before).forges(who, RST, away);
                if cut % 3 == 0 {
                    talk.closes(Client).reopen();
                }
                let other = if sender == Client { Server } else { Client };
                talk.says(sender, behind).says(other, "");
            }
            let compared = compared(MESSAGES, &talk);
            assert_eq!(compared.streams.differing, [""; 0]);
            assert_eq!(compared.differing, [vec![], vec![]], "oracle alone, ids alone");
            assert!(compared.same > 0 || cut % 3 == 0, "{cut} {who:?} {away}");
        }
    }
}

/// A rule for a request and one for its body, which is inspected when it is complete.
const REQUEST: &str = r#"
alert tcp any any -> any any (msg:"stream"; flow:established,only_stream; content:"/evil"; sid:1;)
alert http any any -> any any (msg:"page"; http.uri; content:"/evil"; sid:2;)
alert http any any -> any any (msg:"body"; file.data; content:"evil body"; sid:3;)"#;
const EVIL_REQUEST: &str = "POST /evil HTTP/1.1\r\nContent-Length: 9\r\n\r\nevil body";
const GOOD_REQUEST: &str = "POST /good HTTP/1.1\r\nContent-Length: 9\r\n\r\ngood body";

/// Adds a segment that hides the next bytes if it is accepted.
type Decoy = fn(&mut Talk);

#[test]
fn after_decoys_that_hosts_drop_ids_sees_what_they_accept() {
    let decoys: [(&str, Decoy); 5] = [
        ("a wrong checksum", |talk| {
            talk.decoys(Client, ACK, 0, GOOD_REQUEST).damages(30);
        }),
        ("a wrong checksum of the IP header", |talk| {
            talk.decoys(Client, ACK, 0, GOOD_REQUEST);
            talk.segments.last_mut().unwrap().network[8] ^= 1; // The time to live.
        }),
        ("a wrong checksum of an end", |talk| {
            talk.decoys(Client, ACK | FIN, 0, "").damages(16);
        }),
        ("an acknowledgement of what was not sent", |talk| {
            talk.decoys(Client, ACK, 1, GOOD_REQUEST);
        }),
        ("one of what was before the beginning", |talk| {
            talk.decoys(Client, ACK | FIN, u32::MAX, GOOD_REQUEST);
        }),
    ];
    for (what, decoy) in decoys {
        for at in [0, 1, 20, 50] {
            let mut talk = Talk::open(80);
            talk.says(Client, &EVIL_REQUEST[..at]);
            decoy(&mut talk);
            talk.says(Client, &EVIL_REQUEST[at..]).says(Server, "");
            assert_eq!(same(REQUEST, &talk), 3, "{what}, {at}");
        }
    }
}

#[test]
fn after_decoys_before_the_reply_ids_sees_what_the_server_accepts() {
    for early in [false, true] {
        for flags in [SYN, SYN | FIN] {
            let mut talk = Talk::open(80);
            let rest = talk.segments.split_off(1);
            let mut before = Talk::midstream(80);
            before.decoys(Client, flags, 0, GOOD_REQUEST);
            talk.segments = before.segments;
            if early {
                // The server does not know the connection yet, or resets it, which the client
                // ignores.
                let mut before = Talk::midstream(80);
                before.loses(Client, 1).decoys(Client, ACK, 70_000, GOOD_REQUEST);
                talk.segments.extend(before.segments);
            }
            talk.segments.extend(rest);
            talk.says(Client, EVIL_REQUEST).says(Server, "");
            assert!(same(REQUEST, &talk) >= 3, "{early} {flags}");
        }
    }
}

#[test]
fn a_reset_that_no_host_sees_hides_no_later_one() {
    const CHUNKED: &str = "POST /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n";
    for forged in 0..3 {
        let mut talk = Talk::open(80);
        talk.says(Client, CHUNKED);
        for _ in 0..forged {
            talk.resets(Client).says(Client, "4\r\nmore\r\n");
        }
        if forged > 0 {
            talk.forges(Client, SYN, 70_000);
        }
        // After a reset, bytes count once they are acknowledged.
        talk.says(Client, "9\r\nevil body\r\n").says(Server, "").resets(Server).says(Server, "");
        assert_eq!(same(REQUEST, &talk), 1, "{forged}");
    }
}

/// Sends a request in one segment, in fragments of this size and order. The order may use longer
/// fragments of the same segment.
fn in_fragments(ends: (Endpoint, Endpoint), size: usize, order: Order) -> Talk {
    let mut talk = Talk::between(ends.0, ends.1);
    talk.handshake();
    talk.says(Client, EVIL_REQUEST);
    let whole = talk.segments.pop().unwrap();
    let [mut cut, longer] = [size, size + 8].map(|size| fragments(&whole.network, 7, size));
    order(&mut cut, &longer);
    talk.segments.extend(cut.into_iter().map(|network| Arrival { network, ..whole.clone() }));
    talk
}

type Order = fn(&mut Vec<Vec<u8>>, &[Vec<u8>]);

#[test]
fn in_fragments_ids_sees_what_hosts_reassemble() {
    let orders: [(&str, Order, usize); 8] = [
        ("as sent", |_, _| {}, 3),
        ("backwards", |cut, _| cut.reverse(), 3),
        ("the first one last", |cut, _| cut.rotate_left(1), 3),
        ("each twice", |cut, _| *cut = cut.iter().flat_map(|one| [one.clone(), one.clone()]).collect(), 3),
        ("one is missing", |cut, _| drop(cut.remove(1)), 0),
        ("overlapping", |cut, longer| cut.insert(1, longer[1].clone()), 0),
        (
            "overlapping, and again",
            |cut, longer| *cut = [&cut[..1], &longer[1..], &cut[1..], &cut[..]].concat(),
            3,
        ),
        (
            "a damaged one that overlaps",
            |cut, longer| {
                cut.insert(1, longer[1].clone());
                cut[1][10] ^= 1;
            },
            3,
        ),
    ];
    let ends4 = (v4(10, 0, 0, 1, 40_000), v4(192, 0, 2, 1, 80));
    let ends6 = (v6(1, 40_000), v6(2, 80));
    for (ends, size) in [(ends4, 24), (ends4, 40), (ends4, 32), (ends6, 24), (ends6, 48)] {
        for (what, order, reports) in orders {
            if what.contains("damaged") && ends == ends6 {
                continue; // Its header has no checksum.
            }
            let mut talk = in_fragments(ends, size, order);
            let reported = |talk: &Talk| {
                watch_with(REQUEST, serde_json::json!({ "mode": "detect" }), &talk.segments).reported.len()
            };
            assert_eq!(reported(&talk), reports, "{what}, {size}");
            // A segment that could not be reassembled is retransmitted.
            talk.again(Client, EVIL_REQUEST);
            assert_eq!(reported(&talk), 3, "{what}, {size}");
            // The oracle determines the reassembled bytes, too.
            talk.says(Server, "").says(Client, "more").closes(Server);
            let streams = compared(REQUEST, &talk).streams;
            assert_eq!(streams.differing, [""; 0], "{what}, {size}");
        }
    }
}

#[test]
fn in_line_ambiguous_packets_do_not_pass() {
    const RULE: &str = r#"drop tcp any any -> any any (msg:"evil"; content:"evil"; sid:1;)"#;
    let mut talk = Talk::open(80);
    talk.says(Client, "good").again(Client, "evil").again(Client, "good").says(Server, "answer");
    // Once it is acknowledged, no host accepts it.
    talk.again(Client, "evil");
    let seen = watch(RULE, &talk.segments);
    assert_eq!((seen.drops, seen.reported), (vec![("stream-differs", 1)], vec![]));

    let mut talk = Talk::open(80);
    talk.decoys(Client, ACK, 70_000, "evil").decoys(Client, 0, 0, "evil").says(Client, "good");
    let seen = watch(RULE, &talk.segments);
    assert_eq!((seen.drops, seen.reported), (vec![("stream-ignored", 2)], vec![]));
}

#[test]
fn in_line_bytes_of_a_syn_are_inspected_before_they_pass() {
    const RULES: &str = r#"
alert tcp any any -> any any (msg:"stream"; content:"evil"; sid:1;)
alert tcp any any -> any any (msg:"packet"; flags:S; dsize:>0; sid:2;)
alert http any any -> any any (msg:"request"; http.uri; content:"/evil"; sid:3;)
alert http any any -> any any (msg:"answer"; http.response_body; content:"done"; sid:4;)
"#;
    for is_taken in [true, false] {
        let mut talk = Talk::open_fast(80, EVIL_GET, is_taken);
        if !is_taken {
            talk.says(Client, EVIL_GET);
        }
        talk.says(Server, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").says(Client, "");
        let seen = watch(RULES, &talk.segments);
        assert_eq!((seen.sent, &seen.drops[..]), (talk.segments.len(), &[][..]), "{is_taken}");
        let mut rules = seen.rules();
        rules.sort_unstable();
        assert_eq!(rules, [1, 2, 3, 4], "{is_taken}");
        let seen = watch(&RULES.replacen("alert", "drop", 2), &talk.segments);
        assert_eq!(seen.drops[0].0, "ids-rule", "the SYN does not pass: {:?}", seen.drops);
    }
    // A server that leaves them is not sent others.
    let mut talk = Talk::open_fast(80, b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n", false);
    talk.says(Client, EVIL_GET);
    let seen = watch(RULES, &talk.segments);
    assert_eq!((seen.rules(), &seen.drops[..]), (vec![2], &[("stream-differs", 1)][..]));
}

const EVIL_GET: &[u8] = b"GET /evil HTTP/1.1\r\nHost: h\r\n\r\n";
