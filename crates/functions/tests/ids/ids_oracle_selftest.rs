//! Tests of the oracle itself: tables, and traffic planted for each rule.

use std::collections::BTreeSet;

use crate::ids_oracle::plant::{self, Rendering};
use crate::ids_oracle::{Oracle, Witness, shared};
use signatures::{Classifications, LoadedRule, ReassemblyFilter, RuleVariables, Ruleset};

/// Seed of the planted traffic.
const SEED: u64 = 7;
/// Bytes before a piece that are inspected with it.
const LOOKBACK_BYTES: usize = 2048;

#[test]
fn most_rules_can_be_judged() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let oracle = Oracle::new(&loaded);
    for (gid, sid, why) in oracle.unsupported() {
        println!("{gid}:{sid}: {why}");
    }
    let (judged, all) = (oracle.supported(), loaded.len());
    println!("{judged} of {all} rules");
    assert!(judged * 100 >= all * 95);
}

#[test]
fn planted_traffic_is_reported_in_any_segmentation() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let (mut count, mut missing, mut cut, mut lost) = (0, Vec::new(), 0, Vec::new());
    for rule in &loaded {
        let Some(planted) = plant::plant(&loaded, rule, SEED) else {
            missing.push(rule.rule.sid);
            continue;
        };
        count += 1;
        if !is_the_same_cut(rule) || planted.conversations.len() > 1 || !planted.others.is_empty() {
            continue;
        }
        // A match in a packet that happens to begin like the stream does not count.
        let mut rule = rule.clone();
        rule.rule.flow.stream = Some(ReassemblyFilter::Assembled);
        let holds = |rendering| plant::reports(&[rule.clone()], &rule, &planted.conversations, rendering);
        let longest = planted.conversations[0].turns.iter().map(|turn| turn.bytes.len()).max();
        if longest > Some(LOOKBACK_BYTES) || !holds(Rendering::Whole) {
            continue;
        }
        let size = 1 + rule.rule.sid as usize % 37;
        for rendering in renderings(size) {
            cut += 1;
            if !holds(rendering) {
                lost.push((rule.rule.sid, rendering));
            }
        }
    }
    println!("{count} of {} rules planted; {cut} renderings; not planted: {missing:?}", loaded.len());
    assert!(count * 100 >= loaded.len() * 90);
    assert!(lost.is_empty(), "{} lost: {lost:?}", lost.len());
}

#[test]
fn near_misses_are_not_reported() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for rule in loaded.iter().step_by(3) {
        let Some(planted) = plant::plant(&loaded, rule, SEED) else { continue };
        if planted.conversations.len() > 1 || !planted.others.is_empty() {
            continue;
        }
        for miss in plant::near_misses(&rule.rule, &planted, SEED) {
            count += 1;
            if plant::reports(&planted.rules(rule), rule, &miss.conversations, Rendering::Whole) {
                wrong.push((rule.rule.sid, miss.what));
            }
        }
    }
    println!("{count} near misses");
    assert!(count > 500 && wrong.is_empty(), "{} reported: {wrong:?}", wrong.len());
}

/// Real traffic has the content that the parsers of application protocols need.
#[test]
fn captures_have_all_kinds_of_buffers() {
    let rules = r#"
alert tls any any -> any any (tls.cert_subject; content:"CN="; sid:1;)
alert tls any any -> any any (tls.cert_serial; content:":"; sid:2;)
alert tls any any -> any any (tls.sni; content:"."; sid:3;)
alert ssh any any -> any any (ssh.proto; content:"2.0"; startswith; endswith; sid:4;)
alert dns any any -> any any (dns.query; content:"."; sid:5;)
alert http any any -> any any (http.uri; content:"/"; startswith; sid:6;)
alert http any any -> any any (http.stat_code; content:"200"; bsize:3; sid:7;)
alert http any any -> any any (file.data; content:"<html"; nocase; flow:to_client; sid:8;)
alert smtp any any -> any any (content:"MAIL FROM"; nocase; sid:9;)
alert ftp any any -> any any (content:"USER "; nocase; sid:10;)
alert icmp any any -> any any (itype:8; sid:11;)
alert tcp any any -> any any (flags:S; sid:12;)"#;
    let report = Ruleset::read("table", rules, &RuleVariables::default(), &Classifications::default());
    let oracle = Oracle::new(report.ruleset.rules());
    let captures = shared::captures();
    let mut found = BTreeSet::new();
    for (_, frames) in &captures {
        let packets = Witness::watch(&frames[..frames.len().min(2000)]);
        found.extend(oracle.alerts(&packets).iter().map(|alert| alert.sid));
    }
    assert!(captures.is_empty() || found == (1..=12).collect(), "{found:?}");
}

/// Returns the segmentations of the tests.
fn renderings(size: usize) -> [Rendering; 6] {
    [
        Rendering::At(size),
        Rendering::Cut(size),
        Rendering::Cut(1),
        Rendering::Backwards(size),
        Rendering::Overlapping(size),
        Rendering::Twice(size),
    ]
}

/// Returns whether a rule's meaning is independent of segmentation: it inspects streams or
/// messages, and tests nothing that must not be there yet.
fn is_the_same_cut(loaded: &LoadedRule) -> bool {
    let prepared = crate::ids_oracle::prepared::Prepared::new(&loaded.rule, 0).unwrap();
    let occasions = prepared.occasions;
    let on_pieces = occasions.pieces && prepared.is_positive;
    on_pieces || occasions.http.is_some() || occasions.tls || occasions.ssh
}

/// Returns the reports of these rules on payloads that a client sends, each in a packet.
fn reported(rules: &str, turns: &[&str]) -> Vec<(u64, u32)> {
    use plant::conversation::{Conversation, Fields, Kind, Talker, Turn};
    let (variables, _) = RuleVariables::read("home", shared::HOME);
    let report = Ruleset::read("table", rules, &variables, &Classifications::default());
    assert!(report.faults.is_empty(), "{report}");
    let turn = |text: &&str| match text.strip_prefix('<') {
        Some(text) => Turn { from: Talker::Server, bytes: text.as_bytes().to_vec(), is_planted: true },
        None => Turn { from: Talker::Client, bytes: text.as_bytes().to_vec(), is_planted: true },
    };
    let conversation = Conversation {
        kind: Kind::Tcp,
        client: ("198.51.100.7".parse().unwrap(), 40_001),
        server: ("10.1.2.3".parse().unwrap(), 80),
        turns: turns.iter().map(turn).collect(),
        fields: Fields::default(),
    };
    let frames = plant::frames(&[conversation], Rendering::Whole);
    let oracle = Oracle::new(report.ruleset.rules());
    assert_eq!(oracle.unsupported(), []);
    // A turn is a packet and its acknowledgement, after three packets of the handshake.
    let turn = |packet: u64| packet.saturating_sub(3) / 2;
    oracle.alerts(&Witness::watch(&frames)).into_iter().map(|alert| (turn(alert.packet), alert.sid)).collect()
}

fn rule(options: &str) -> String {
    format!("alert tcp any any -> any any ({options}; sid:1;)")
}

/// Returns the turns with a report of a rule with these options.
fn turns_of(options: &str, turns: &[&str]) -> Vec<u64> {
    reported(&rule(options), turns).into_iter().map(|(turn, _)| turn).collect()
}

#[test]
fn pieces_are_inspected_with_the_preceding_window() {
    assert_eq!(turns_of(r#"content:"abcd""#, &["xab", "cd", "y", "abcdabcd"]), [1, 3]);
    assert_eq!(turns_of(r#"content:"ab"; content:"yz"; distance:0"#, &["ab", "x", "yz", "yz"]), [2]);
    let far = "k".repeat(1400);
    assert_eq!(
        turns_of(r#"content:"ab"; content:"yzz"; distance:0; fast_pattern"#, &["ab", &far, "yzz"]),
        [2]
    );
    assert_eq!(
        turns_of(r#"content:"ab"; content:"yzz"; distance:0; fast_pattern"#, &["ab", &far, &far, "yzz"]),
        [0u64; 0]
    );
    assert_eq!(turns_of(r#"content:"abc"; content:!"z"; flow:to_server"#, &["zabc", &far, &far]), [0u64; 0]);
}

#[test]
fn positions_count_from_the_stream_and_from_packets() {
    let rule = r#"content:"cd"; offset:2; depth:2"#;
    assert_eq!(turns_of(rule, &["ab", "cd"]), [1]);
    assert_eq!(turns_of(rule, &["k", "abcd"]), [1]);
    assert_eq!(turns_of(&format!("{rule}; flow:only_stream"), &["k", "abcd"]), [0u64; 0]);
    assert_eq!(turns_of(r#"content:"abc"; startswith"#, &["abc", "abc"]), [0, 1]);
    assert_eq!(turns_of(r#"content:"abc"; dsize:3"#, &["ab", "abc", "abcd"]), [1]);
}

#[test]
fn all_places_of_a_content_are_tried() {
    assert_eq!(turns_of(r#"content:"a"; content:"c"; distance:1; within:1"#, &["abxc", "aabc"]), [1]);
    assert_eq!(turns_of(r#"content:"a"; content:!"b"; within:1"#, &["ab", "abab", "abax"]), [2]);
    assert_eq!(turns_of(r#"pcre:"/a./"; content:"c"; distance:0; within:1"#, &["abx", "aaac"]), [1]);
    assert_eq!(turns_of(r#"content:"n="; byte_test:2,>,10,0,relative,string,dec"#, &["n=09", "n=11"]), [1]);
    assert_eq!(
        turns_of(r#"content:"j"; byte_jump:1,0,relative,string,dec; content:"z"; within:1"#, &["j2abz"]),
        [0]
    );
}

#[test]
fn messages_of_http_have_their_buffers() {
    let about = |options: &str, turns: &[&str]| {
        let rule = format!("alert http any any -> any any ({options}; sid:1;)");
        reported(&rule, turns).into_iter().map(|(turn, _)| turn).collect::<Vec<_>>()
    };
    let request =
        ["POST /a%20b?c HTTP/1.1\r\nHost: A.example:80\r\nX-", "Y:  z\r\nContent-Length: 4\r\n\r\nab", "cd"];
    assert_eq!(about(r#"http.uri; content:"/a b?c"; bsize:6"#, &request), [1]);
    assert_eq!(about(r#"http.host; content:"a.example"; bsize:9"#, &request), [1]);
    assert_eq!(about(r#"http.header; content:"X-Y: z|0d 0a|""#, &request), [1]);
    assert_eq!(
        about(r#"http.header_names; content:"|0d 0a|Host|0d 0a|X-Y|0d 0a|"; startswith"#, &request),
        [1]
    );
    assert_eq!(about(r#"http.request_body; content:"abcd""#, &request), [2]);
    assert_eq!(about(r#"http.user_agent; absent"#, &request), [1]);
    let answer = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "<HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        "<1\r\nc\r\n0\r\n\r\n",
    ];
    assert_eq!(about(r#"http.stat_code; content:"404""#, &answer), [1]);
    assert_eq!(about(r#"file.data; content:"abc"; flow:to_client"#, &answer), [2]);
}

#[test]
fn flowbits_order_and_thresholds_apply() {
    let rules = r#"
alert tcp any any -> any any (content:"b"; flowbits:isset,a; sid:1;)
alert tcp any any -> any any (content:"a"; flowbits:set,a; flowbits:noalert; sid:2;)
alert tcp any any -> any any (content:"b"; threshold:type both, track by_src, count 2, seconds 9; sid:3;)
pass tcp any any -> any any (content:"bc"; sid:4;)
drop tcp any any -> any any (content:"d"; sid:5;)"#;
    // The matches in the first and the fourth turn wait for the flowbit, or for the next packet.
    let all = [(1, 1), (2, 1), (2, 3), (4, 1), (4, 5)];
    assert_eq!(reported(rules, &["b", "a", "b", "bc", "d", "b"]), all);
}
