//! Streams: matches across pieces, and the time that a rule waits for the rest.

use functions::ids::{CANDIDATES_MAX, LOOKBACK_BYTES};

use serde_json::json;

use crate::ids_support::*;

const PAIR: &str = r#"alert tcp any any -> any any (msg:"anchor and rest"; content:"the-anchor"; content:"rest"; distance:0; sid:1;)"#;
const ANCHOR: &[u8] = b"the-anchor";

/// Returns the pieces, from 1, with reports.
fn pieces(rules: &str, pieces: &[&[u8]]) -> Vec<(u64, u32)> {
    let mut talk = Talk::open(4_000);
    pieces.iter().for_each(|piece| talk.piece(Client, piece));
    watch(rules, &talk.segments).reported.into_iter().map(|(packet, rule)| (packet - 3, rule)).collect()
}

#[test]
fn a_pattern_is_found_in_any_segmentation() {
    const LONG: &str = r#"alert tcp any any -> any any (msg:"long"; content:"forty bytes of a pattern without an end 40"; sid:1;)"#;
    let text = b"before forty bytes of a pattern without an end 40 behind";
    for cut in 1..text.len() {
        let (a, b) = text.split_at(cut);
        let expected = if cut < text.len() - " behind".len() { 2 } else { 1 };
        assert_eq!(pieces(LONG, &[a, b]), [(expected, 1)], "{cut}");
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(pieces(LONG, &bytes).len(), 1);
}

#[test]
fn the_rest_may_come_later() {
    assert_eq!(pieces(PAIR, &[b"x the-anchor x", b"yyy", b"the rest"]), [(3, 1)]);
    assert_eq!(pieces(PAIR, &[b"the-an", b"chor", b"re", b"st"]), [(4, 1)]);
    assert_eq!(pieces(PAIR, &[b"rest the-anchor", b"yyy"]), [], "in this order");
}

#[test]
fn a_candidate_expires_with_its_window() {
    // The anchor is at the beginning of the stream, the rest after this many bytes.
    for (before_rest, expected) in [(LOOKBACK_BYTES, &[(3, 1)][..]), (LOOKBACK_BYTES + 1, &[])] {
        let filler = vec![b'x'; before_rest - ANCHOR.len()];
        assert_eq!(pieces(PAIR, &[ANCHOR, &filler, b"rest"]), expected, "{before_rest}");
    }
    // Within one piece there is no such limit.
    let filler = vec![b'x'; 2 * LOOKBACK_BYTES];
    assert_eq!(pieces(PAIR, &[&[ANCHOR, &filler, b"rest"].concat()]), [(1, 1)]);
}

#[test]
fn a_gap_ends_the_window() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, ANCHOR).loses(Client, 5).says(Client, "rest").says(Server, "x").says(Client, "rest");
    assert_eq!(watch(PAIR, &talk.segments).reported, []);
    talk.says(Client, ANCHOR).says(Client, "rest");
    assert_eq!(watch(PAIR, &talk.segments).rules(), [1], "after the gap it restarts");
}

#[test]
fn the_other_direction_and_another_connection_are_no_part_of_it() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, ANCHOR).says(Server, "rest");
    assert_eq!(watch(PAIR, &talk.segments).reported, []);
    talk.closes(Client).closes(Server).reopen();
    talk.says(Client, "rest");
    assert_eq!(watch(PAIR, &talk.segments).reported, []);
}

#[test]
fn a_forged_opening_hides_nothing() {
    const BOTH: &str = r#"
alert tcp any any -> any any (msg:"asked"; flow:established,to_server; content:"evil question"; sid:1;)
alert tcp any any -> any any (msg:"answered"; flow:established,to_client; content:"evil answer"; sid:2;)
alert http any any -> any any (msg:"page"; flow:established; http.uri; content:"/evil"; sid:3;)"#;
    for (who, flags) in [(Client, SYN), (Client, SYN | ACK), (Server, SYN | ACK), (Server, SYN)] {
        for away in [70_000, 1, 1 << 31] {
            let mut talk = Talk::open(80);
            talk.forges(who, flags, away).says(Client, "GET /evil?evil question HTTP/1.1\r\n\r\n");
            talk.forges(who, flags, away).says(Server, "HTTP/1.1 200 evil answer\r\n\r\n");
            assert_eq!(watch(BOTH, &talk.segments).rules(), [1, 3, 2], "{who:?} {flags} {away}");
        }
    }
}

#[test]
fn only_a_reset_that_hosts_accept_ends_an_established_connection() {
    const EVIL: &str = r#"alert tcp any any -> any any (msg:"evil"; flow:established; content:"evil"; sid:1;)
alert tcp-pkt any any -> any any (msg:"not established"; flow:not_established; dsize:>0; sid:2;)"#;
    let reported = |talk: &Talk| watch(EVIL, &talk.segments).rules();
    for who in [Client, Server] {
        for away in [70_000, 512, 1 << 31] {
            for flags in [RST, RST | ACK, RST | SYN] {
                let mut talk = Talk::open(4_000);
                talk.forges(who, flags, away).says(Client, "evil").says(Server, "evil");
                assert_eq!(reported(&talk), [1, 1], "{who:?} {flags} {away}");
                // Nor do other forged packets after it.
                let mut talk = Talk::open(4_000);
                talk.forges(Client, FIN | ACK, 9_000)
                    .forges(Server, FIN | ACK, 9_000)
                    .forges(who, flags, away);
                talk.forges(Client, SYN, away).says(Client, "evil").says(Server, "evil");
                assert_eq!(reported(&talk), [1, 1], "{who:?} {flags} {away}, with FINs and a SYN");
            }
        }
        let mut talk = Talk::open(4_000);
        talk.resets(who).reopen();
        let opens = talk.segments.len() as u64;
        talk.says(Client, "evil");
        assert_eq!(watch(EVIL, &talk.segments).reported, [(opens + 1, 1)], "the next connection");
    }
    // Within the handshake.
    let mut talk = Talk::midstream(4_000);
    talk.handshake();
    let forged = talk.clone().forges(Server, RST, 70_000).segments.pop().unwrap();
    talk.segments.insert(1, forged);
    talk.says(Client, "evil");
    assert_eq!(reported(&talk), [1]);
}

#[test]
fn a_reset_connection_is_established_again_if_its_hosts_continue() {
    const ANY: &str = r#"alert tcp-pkt any any -> any any (msg:"established"; flow:established; flags:RA; sid:1;)
alert tcp-pkt any any -> any any (msg:"established"; flow:established; flags:A; sid:2;)"#;
    let mut talk = Talk::open(4_000);
    talk.resets(Server).resets(Server);
    talk.says(Client, "").says(Client, "goes on").says(Server, "").says(Client, "");
    // Not yet on the handshake's last packet; and again from the packet on that acknowledges the
    // bytes.
    let seen = watch_with(ANY, json!({ "mode": "detect" }), &talk.segments);
    assert_eq!(seen.reported, [(4, 1), (8, 2), (9, 2)]);
}

#[test]
fn a_rule_acts_again_when_its_anchor_comes_again() {
    let said: [&[u8]; 5] = [b"the-anchor rest", b"rest", b"rest", b"the-anchor", b"rest"];
    // With the second anchor, the window still contains the first match.
    assert_eq!(pieces(PAIR, &said), [(1, 1), (4, 1)]);
    let far = vec![b'x'; LOOKBACK_BYTES];
    let said: [&[u8]; 5] = [b"the-anchor rest", &far, b"the-anchor", b"rest", b"rest"];
    assert_eq!(pieces(PAIR, &said), [(1, 1), (4, 1)], "without the first one it is searched for again");
}

#[test]
fn a_rule_without_an_anchor_acts_once_in_a_direction() {
    const DIGITS: &str = r#"alert tcp any any -> any any (msg:"digits"; pcre:"/x[0-9]{3}/"; sid:1;)"#;
    let mut talk = Talk::open(4_000);
    talk.says(Client, "x1").says(Client, "23").says(Client, "x456").says(Server, "x789").says(Server, "x789");
    assert_eq!(watch(DIGITS, &talk.segments).reported, [(5, 1), (7, 1)]);
}

#[test]
fn one_candidate_too_many_evicts_the_oldest() {
    let count = CANDIDATES_MAX as u32 + 1;
    let rule = |number: u32| {
        format!(
            r#"alert tcp any any -> any any (msg:"{number}"; content:"<anchor-{number:02}>"; content:"rest"; distance:0; sid:{number};)"#
        )
    };
    let rules: Vec<String> = (1..=count).map(rule).collect();
    for (anchors, forgotten) in [(count - 1, 0), (count, 1)] {
        let mut talk = Talk::open(4_000);
        (1..=anchors).for_each(|number| talk.piece(Client, format!("<anchor-{number:02}>").as_bytes()));
        talk.says(Client, "rest");
        let seen = watch(&rules.join("\n"), &talk.segments);
        let last = talk.segments.len() as u64;
        let expected: Vec<_> = (1 + forgotten..=anchors).map(|number| (last, number)).collect();
        assert_eq!(seen.reported, expected, "{anchors}");
        assert_eq!(seen.counter("candidates_evicted"), u64::from(forgotten));
    }
}

#[test]
fn decoys_in_the_same_piece_keep_no_rule_from_acting() {
    let decoys = 2 * CANDIDATES_MAX as u32;
    let decoy = |number: u32| format!("decoy{number:03}");
    let rule = |number: u32| {
        format!(
            r#"alert tcp any any -> any any (msg:"{number}"; content:"{}"; content:"never"; distance:0; sid:{number};)"#,
            decoy(number)
        )
    };
    let evil = r#"drop tcp any any -> any any (msg:"evil"; content:"evilpattern"; content:"rest"; distance:0; sid:1000;)"#;
    let rules: Vec<String> = (1..=decoys).map(rule).chain([evil.to_owned()]).collect();
    let said: Vec<String> = (1..=decoys).map(decoy).collect();
    let (rules, said) = (rules.join("\n"), said.join(" "));
    for evil in [format!("evilpattern rest {said}"), format!("evilpattern {said} rest")] {
        let mut talk = Talk::open(4_000);
        talk.says(Client, &evil);
        let seen = watch(&rules, &talk.segments);
        assert_eq!((seen.reported, seen.sent), (vec![(4, 1000)], 3));
        assert_eq!(seen.bench.drops(), [("ids-rule", 1)]);
    }
    // The last candidates are kept: their anchors stay longest in the window.
    let mut talk = Talk::open(4_000);
    talk.says(Client, format!("{said} evilpattern")).says(Client, "rest");
    let seen = watch(&rules, &talk.segments);
    assert_eq!(seen.reported, [(5, 1000)]);
    assert_eq!(seen.counter("candidates_evicted"), u64::from(decoys + 1) - CANDIDATES_MAX as u64);
}

#[test]
fn offsets_count_from_the_beginning_of_the_stream() {
    const THIRD: &str =
        r#"alert tcp-stream any any -> any any (msg:"at 8"; content:"evil"; offset:8; depth:4; sid:1;)"#;
    assert_eq!(pieces(THIRD, &[b"01234567", b"evil"]), [(2, 1)]);
    assert_eq!(pieces(THIRD, &[b"01234567ev", b"il"]), [(2, 1)]);
    assert_eq!(pieces(THIRD, &[b"0123", b"01234567evil"]), [], "of the packet it would be there");
}
