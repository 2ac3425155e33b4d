//! Memory for what is kept of streams and messages.

use serde_json::json;

use crate::ids_support::*;

const RULES: &str = r#"alert tcp any any -> any any (msg:"stream"; content:"evil literal"; sid:1;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/evil"; sid:2;)
alert http any any -> any any (msg:"body"; file.data; content:"evil literal"; sid:3;)
alert dns any any -> any any (msg:"query"; dns.query; content:"evil"; sid:4;)
alert tls any any -> any any (msg:"sni"; tls.sni; content:"evil"; sid:5;)"#;

/// What begins and does not end, and would have to be kept.
fn unfinished() -> [Vec<u8>; 4] {
    let long = "x".repeat(3_000);
    [
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\nX: {long}").into_bytes(),
        format!("POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{long}{long}").into_bytes(),
        [&b"\x16\x03\x01\x20\x00\x01\x00\x1f\xfc"[..], long.as_bytes()].concat(),
        long.into_bytes(),
    ]
}

/// Connections of several clients, each with something that does not end, and with evil in one piece.
fn connections() -> Vec<Talk> {
    let begun = unfinished();
    let connection = |number: u8| {
        let mut talk = Talk::midstream(80);
        talk.client = v4(10, 0, 1, number, 40_000);
        talk.handshake();
        begun[usize::from(number) % begun.len()].chunks(500).for_each(|part| talk.piece(Client, part));
        talk.says(Client, "evil literal");
        talk
    };
    (0..40).map(connection).collect()
}

fn segments(talks: Vec<Talk>) -> Vec<Arrival> {
    talks.into_iter().flat_map(|talk| talk.segments).collect()
}

/// All of them when there is little memory, and then one that says these.
fn behind_them(said: &[&str]) -> Seen {
    let mut talks = connections();
    let mut talk = Talk::open(80);
    said.iter().for_each(|text| talk.piece(Client, text.as_bytes()));
    talks.push(talk);
    watch_with(RULES, json!({ "memory": "4096B" }), &segments(talks))
}

const GET: &str = "GET /good HTTP/1.1\r\nHost: x\r\n\r\n";
const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn that_memory_is_full_is_said_and_flows_may_be_dropped() {
    for (when_full, drops) in [("pass", false), ("drop", true)] {
        let more = json!({ "memory": "4096B", "when_full": when_full });
        let seen = watch_with(RULES, more, &segments(connections()));
        let is_own =
            |alert: &&nf::Alert| alert.detail.as_ref().is_some_and(|detail| detail.group == OWN_GROUP);
        assert_eq!(seen.bench.alerts.iter().filter(is_own).count(), 1, "once for many packets");
        assert_eq!(seen.drops.iter().any(|(reason, _)| *reason == "ids-memory"), drops, "{:?}", seen.drops);
    }
}

#[test]
fn without_memory_pieces_are_looked_at_alone() {
    let packets = segments(connections());
    let seen = watch_with(RULES, json!({ "memory": "4096B" }), &packets);
    assert!(seen.refused_bytes > 100_000, "what is not kept is counted: {}", seen.refused_bytes);
    assert_eq!((seen.sent, seen.drops.len()), (packets.len(), 0));
    assert_eq!(seen.rules(), [1; 40], "what stands in one piece is found");
    let enough = watch(RULES, &packets);
    // What has come of the ten bodies is looked at when their flows end.
    let all = [vec![1; 40], vec![3; 10]].concat();
    assert_eq!((enough.refused_bytes, enough.rules()), (0, all));
}

#[test]
fn without_memory_messages_in_one_segment_are_looked_at() {
    assert_eq!(behind_them(&[EVIL]).rules().last(), Some(&2));
    assert_eq!(behind_them(&[GET, EVIL]).rules().last(), Some(&2));
}

#[test]
fn what_is_kept_is_let_go_as_connections_end() {
    let kept = |talks: Vec<Talk>| {
        let mut bench = ids(RULES);
        segments(talks).iter().for_each(|packet| bench.batch(std::slice::from_ref(packet)));
        let used = bench.chain.stages()[0].shared().buffers.as_ref().unwrap().used_bytes();
        end(bench);
        used
    };
    assert!(kept(connections()) > 40 * 500);
    // New connections on the same ports have nothing of those before.
    let mut reopened = connections();
    reopened.iter_mut().for_each(|talk| talk.resets(Client).reopen());
    assert_eq!(kept(reopened), 0);
}
