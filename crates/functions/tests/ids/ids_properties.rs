//! `ids` reports the same however its flows are moved and its packets batched; for HTTP messages,
//! in any segmentation.

use std::collections::BTreeSet;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use functions::ids::State;
use proptest::prelude::*;
use serde_json::json;

use crate::ids_support::conversations::{Turn, in_segments, turn};
use crate::ids_support::moving::moved;
use crate::ids_support::*;

/// Rules about packets and streams.
const OF_BYTES: &str = r#"
alert tcp any any -> any any (msg:"anchor"; content:"evil literal"; sid:1;)
alert tcp any any -> any any (msg:"anchor and rest"; content:"HTTP/1.1"; content:"evil"; distance:0; sid:2;)
alert tcp any any -> any any (msg:"expression"; pcre:"/[0-9]\r\n[a-f]/"; sid:3;)
alert tcp any any -> any any (msg:"not there"; content:"Host"; content:!"evil"; sid:4;)
alert tcp any any -> any any (msg:"near"; content:"GET"; depth:3; sid:5;)
alert tcp-pkt any any -> any any (msg:"near of a packet"; content:"l"; offset:1; depth:20; sid:6;)
alert tcp any any -> any any (msg:"size"; dsize:<9; flags:A; content:"e"; sid:7;)
alert tcp any any -> any any (msg:"marked"; flowbits:isset,posted; dsize:>20; sid:8;)
drop tcp any any -> any any (msg:"tls"; content:"|16 03 01|"; sid:9;)
"#;

/// Rules about HTTP messages; the last tests another rule's flowbit.
const OF_MESSAGES: &str = r#"
alert http any any -> any any (msg:"method"; http.method; content:"POST"; flowbits:set,posted; sid:21;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/b"; sid:22;)
alert http any any -> any any (msg:"header"; http.header; content:"Host|3a| x"; sid:23;)
alert http any any -> any any (msg:"code"; http.stat_code; content:"200"; flowbits:isset,posted; sid:24;)
alert http any any -> any any (msg:"names"; http.header_names; content:"Transfer-Encoding"; sid:25;)
alert http any any -> any any (msg:"form"; http.request_body; content:"hello"; sid:26;)
alert http any any -> any any (msg:"short body"; http.response_body; content:"ok"; sid:27;)
alert http any any -> any any (msg:"file"; file.data; content:"evil literal"; sid:28;)
alert http any any -> any any (msg:"code and file"; http.stat_code; content:"404"; file.data; content:"wxyz"; sid:29;)
alert http any any -> any any (msg:"whole"; content:"evil"; http.method; content:"POST"; sid:30;)
alert http any any -> any any (msg:"file without"; file.data; content:!"evil"; sid:31;)
"#;

/// Rules that share counts between flows, or that end the inspection of a packet.
const OF_COUNTS: &str = r#"
alert http any any -> any any (msg:"limited"; http.protocol; content:"HTTP"; threshold:type limit, track by_src, count 2, seconds 1; sid:41;)
alert http any any -> any any (msg:"often"; http.stat_code; content:"2"; detection_filter:track by_dst, count 1, seconds 1; sid:42;)
pass http any any -> any any (msg:"old"; http.uri; content:"/old"; sid:43;)
"#;

/// Turns that match rules, besides the matches in other conversations.
fn evil_turns() -> Vec<Turn> {
    let body = format!("{}evil literal{}", "benign ".repeat(5), " benign".repeat(5));
    let mut gzip = GzEncoder::new(vec![], Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let coded = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", gzip.len());
    let (a, b) = body.split_at(40);
    let chunks = format!("{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n", a.len(), b.len());
    let post = format!("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    vec![
        (Server, page(body.as_bytes())),
        (Server, page(body.as_bytes()).repeat(2)),
        (Server, response(&coded, &gzip)),
        (Server, response("Transfer-Encoding: chunked\r\n", chunks.as_bytes())),
        (Server, [page(b"ok"), page(body.as_bytes())].concat()),
        (Client, post.into_bytes()),
        (Client, b"GET /evil HTTP/1.1\r\nHost: x\r\nX: evil literal\r\n\r\n".to_vec()),
    ]
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![2 => turn(), 1 => prop::sample::select(evil_turns())];
    prop::collection::vec(turn, 1..10)
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1usize..8, 1usize..60, Just(400)], 1..8)
}

/// Returns the turn of each packet: those of the handshake belong to the first.
fn turn_of_each(turns: &[Turn], talk: &Talk) -> Vec<usize> {
    let lens = talk.segments.iter().map(|segment| segment.network.len() - 40);
    let (mut turn, mut rest) = (0, turns[0].1.len());
    let of = |len: usize| {
        while len > 0 && rest == 0 {
            turn += 1;
            rest = turns[turn].1.len();
        }
        rest -= len;
        turn
    };
    lens.map(of).collect()
}

/// Returns the reports of each turn.
fn reported_by_turn(rules: &str, turns: &[Turn], lens: &[usize]) -> BTreeSet<(usize, u32)> {
    let talk = in_segments(turns, lens);
    let of = turn_of_each(turns, &talk);
    watch(rules, &talk.segments)
        .reported
        .into_iter()
        .map(|(packet, rule)| (of[packet as usize - 1], rule))
        .collect()
}

proptest! {
    // The prefilters are built several times per case, which takes most of the time.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// All state of a flow is in its record and its buffers.
    #[test]
    fn moving_changes_nothing(turns in turns(), lens in lens()) {
        let config = config(&[OF_BYTES, OF_MESSAGES].concat(), json!({}));
        let talk = in_segments(&turns, &lens);
        prop_assert_eq!(moved::<State>("ids", &config, &talk, true), moved::<State>("ids", &config, &talk, false));
    }

    #[test]
    fn batching_changes_nothing(turns in turns(), lens in lens()) {
        let rules = [OF_BYTES, OF_MESSAGES, OF_COUNTS].concat();
        let segments = in_segments(&turns, &lens).segments;
        let alone = watch(&rules, &segments);
        for batch in [3, 64] {
            let mut bench = ids(&rules);
            segments.chunks(batch).for_each(|segments| bench.batch(segments));
            let together = end(bench);
            prop_assert_eq!(&together.bench.told, &alone.bench.told);
            prop_assert_eq!(&together.drops, &alone.drops);
            let counters = |seen: &Seen| seen.bench.graph.stages()[0].shared().counters.clone();
            prop_assert_eq!(counters(&together), counters(&alone));
        }
    }

    /// A rule is reported once per packet, so the number of reports does not matter here.
    #[test]
    fn segmentation_changes_no_alert_about_messages(turns in turns(), lens in lens()) {
        prop_assert_eq!(reported_by_turn(OF_MESSAGES, &turns, &lens), reported_by_turn(OF_MESSAGES, &turns, &[10_000]));
    }
}

/// All of these rules match in such conversations.
#[test]
fn no_rule_is_idle() {
    let (gets, responses): (Vec<Turn>, Vec<Turn>) =
        evil_turns().into_iter().partition(|(who, _)| *who == Client);
    let said: [&[u8]; 6] = [
        b"GET http://y/b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /c HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwxyz\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ];
    let turns =
        said.into_iter().map(|text| (if text.starts_with(b"HTTP") { Server } else { Client }, text.to_vec()));
    let more =
        [(Server, page(b"16\r\nab")), (Client, b"ok hello".to_vec()), (Server, b"\x16\x03\x01".to_vec())];
    let turns: Vec<Turn> = turns.chain(gets).chain(responses).chain(more).collect();
    let rules = [OF_BYTES, OF_MESSAGES, OF_COUNTS].concat();
    let mut idle: BTreeSet<u32> = (1..=9).chain(21..=31).chain(41..=42).collect();
    for len in [10_000, 8] {
        watch(&rules, &in_segments(&turns, &[len]).segments).rules().iter().for_each(|rule| {
            idle.remove(rule);
        });
    }
    assert_eq!(idle, BTreeSet::new());
}
