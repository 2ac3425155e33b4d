//! Memory of streams and messages.

use serde_json::{Value, json};

use crate::ids_support::*;

const RULES: &str = r#"alert tcp any any -> any any (msg:"stream"; content:"evil literal"; sid:1;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/evil"; sid:2;)
alert http any any -> any any (msg:"body"; file.data; content:"evil literal"; sid:3;)
alert dns any any -> any any (msg:"query"; dns.query; content:"evil"; sid:4;)
alert tls any any -> any any (msg:"sni"; tls.sni; content:"evil"; sid:5;)"#;

/// Beginnings without an end, which must be buffered.
fn unfinished() -> [Vec<u8>; 4] {
    let long = "x".repeat(3_000);
    [
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\nX: {long}").into_bytes(),
        format!("POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n{long}{long}").into_bytes(),
        [&b"\x16\x03\x01\x20\x00\x01\x00\x1f\xfc"[..], long.as_bytes()].concat(),
        long.into_bytes(),
    ]
}

/// Connections of several clients, each with something incomplete, and with evil in one piece.
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

/// Sends all of them with little memory, and then these turns.
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
fn full_memory_is_reported_and_flows_may_be_dropped() {
    for (when_full, drops) in [("pass", false), ("drop", true)] {
        let more = json!({ "memory": "4096B", "when_full": when_full });
        let seen = watch_with(RULES, more, &segments(connections()));
        let reported = own_alerts(&seen);
        assert!(!reported.is_empty(), "it is said");
        assert!(
            reported.iter().all(|one| reported.iter().filter(|other| one == *other).count() == 1),
            "{reported:?}"
        );
        assert_eq!(seen.drops.iter().any(|(reason, _)| *reason == "ids-memory"), drops, "{:?}", seen.drops);
    }
}

/// Returns alerts without a rule: their sids, and the initiators of the flows.
fn own_alerts(seen: &Seen) -> Vec<(u32, packet::Addr)> {
    let is_own = |alert: &&nf::Alert| alert.detail.as_ref().is_some_and(|detail| detail.group == OWN_GROUP);
    let reported = |alert: &nf::Alert| (alert.signature_id, alert.key.ends(alert.reversed).0.addr);
    seen.bench.alerts.iter().filter(is_own).map(reported).collect()
}

const IN_PARTS: &str = r#"drop tcp any any -> any any (msg:"stream"; content:"evil literal"; sid:1;)"#;

/// Sends a connection with these connections between its two halves of `evil`, with 1 MiB of memory
/// and further configuration.
fn beside(others: Vec<Talk>, more: Value) -> Seen {
    let mut talk = Talk::open(80);
    talk.piece(Client, b"what is said before evil ");
    let mut packets = talk.segments.split_off(0);
    packets.extend(segments(others));
    talk.piece(Client, b"literal, and more");
    packets.extend(talk.segments);
    let mut config = json!({ "memory": "1MiB" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    watch_with(IN_PARTS, config, &packets)
}

/// Returns whether the rule stopped that connection.
fn is_stopped(seen: &Seen) -> bool {
    let drops = seen.drops.iter().find(|(reason, _)| *reason == "ids-rule");
    seen.rules() == [1] && drops.is_some_and(|(_, packets)| *packets == 1)
}

#[test]
fn one_source_leaves_memory_for_others() {
    let begun = unfinished();
    let attack = || {
        (0..500_u16).map(|number| {
            let client = v4(10, 6, 6, 6, 1_024 + number);
            let mut talk = Talk::between(client, v4(192, 0, 2, 1, 80)).scaled();
            talk.handshake();
            begun[usize::from(number) % begun.len()].chunks(1_000).for_each(|part| talk.piece(Client, part));
            talk
        })
    };
    for (when_full, drops) in [("pass", false), ("drop", true)] {
        let seen = beside(attack().collect(), json!({ "when_full": when_full }));
        assert!(is_stopped(&seen), "{when_full}: {:?} {:?}", seen.rules(), seen.drops);
        assert!(seen.counter("source_over_share") > 0);
        assert_eq!((seen.counter("memory_full"), seen.counter("memory_reclaimed")), (0, 0));
        assert_eq!(seen.drops.iter().any(|(reason, _)| *reason == "ids-memory"), drops, "{:?}", seen.drops);
        assert_eq!(own_alerts(&seen), [(2, v4(10, 6, 6, 6, 0).addr)]);
    }
}

#[test]
fn spoofed_sources_take_nothing_from_open_connections() {
    let spoofed = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut talk = Talk::between(v4(10, 7, high, low, 1_024), v4(192, 0, 2, 1, 80));
        (0..3).for_each(|_| talk.piece(Client, &[b'x'; 1_000]));
        talk
    };
    for (when_full, drops) in [("pass", 0), ("drop", 1)] {
        let seen = beside((0..1_000).map(spoofed).collect(), json!({ "when_full": when_full }));
        assert!(is_stopped(&seen), "{when_full}: {:?} {:?}", seen.rules(), seen.drops);
        assert!(seen.bench.graph.stages()[0].shared().buffers.as_ref().unwrap().evictions() > 100);
        assert_eq!(seen.counter("source_over_share"), 0);
        let dropped = seen.drops.iter().find(|(reason, _)| *reason == "ids-memory");
        assert!(drops == 1 || dropped.is_none(), "{:?}", seen.drops);
    }
}

#[test]
fn evicted_bytes_are_treated_as_configured() {
    let busy = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut talk = Talk::between(v4(10, 8, high, low, 1_024), v4(192, 0, 2, 1, 80)).scaled();
        talk.handshake();
        (0..3).for_each(|_| talk.piece(Client, &[b'x'; 1_000]));
        talk
    };
    for (when_full, reason) in [("pass", None), ("drop", Some("ids-memory"))] {
        let seen = beside((0..700).map(busy).collect(), json!({ "when_full": when_full }));
        assert_eq!(seen.counter("memory_reclaimed"), 1);
        assert_eq!(own_alerts(&seen), [(3, v4(10, 0, 0, 1, 0).addr)]);
        assert_eq!(seen.drops.first().map(|(reason, _)| *reason), reason);
    }
}

#[test]
fn without_memory_pieces_are_inspected_alone() {
    let packets = segments(connections());
    let seen = watch_with(RULES, json!({ "memory": "4096B" }), &packets);
    assert!(seen.refused_bytes > 100_000, "what is not kept is counted: {}", seen.refused_bytes);
    assert_eq!((seen.sent, seen.drops.len()), (packets.len(), 0));
    assert_eq!(seen.rules(), [1; 40], "what stands in one piece is found");
    let enough = watch(RULES, &packets);
    // The ten partial bodies are inspected when their flows end.
    let all = [vec![1; 40], vec![3; 10]].concat();
    assert_eq!((enough.refused_bytes, enough.rules()), (0, all));
}

#[test]
fn without_memory_messages_in_one_segment_are_inspected() {
    assert_eq!(behind_them(&[EVIL]).rules().last(), Some(&2));
    assert_eq!(behind_them(&[GET, EVIL]).rules().last(), Some(&2));
}

#[test]
fn buffers_are_freed_as_connections_end() {
    let kept = |talks: Vec<Talk>| {
        let mut bench = ids(RULES);
        segments(talks).iter().for_each(|packet| bench.batch(std::slice::from_ref(packet)));
        let used = bench.graph.stages()[0].shared().buffers.as_ref().unwrap().used_bytes();
        end(bench);
        used
    };
    assert!(kept(connections()) > 40 * 500);
    // New connections on the same ports have no bytes of the previous ones.
    let mut reopened = connections();
    reopened.iter_mut().for_each(|talk| talk.resets(Client).reopen());
    assert_eq!(kept(reopened), 0);
}
