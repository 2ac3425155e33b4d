//! Actions of matching rules, and their order.

use packet::Side;
use serde_json::json;

use crate::ids_support::*;

/// Returns a rule about datagrams or segments with `evil`.
fn rule(action: &str, protocol: &str, options: &str, sid: u32) -> String {
    format!(
        "{action} {protocol} any any -> any any (msg:\"{action}\"; content:\"evil\"; {options} sid:{sid};)\n"
    )
}

fn evil() -> [Arrival; 1] {
    [datagram(SECOND_NS, 1, 4_000, b"evil")]
}

#[test]
fn flowbits_are_set_before_they_are_tested() {
    let rules = rule("alert", "udp", "flowbits:isset,a;", 1)
        + &rule("alert", "udp", "flowbits:isset,a; flowbits:set,b;", 2)
        + &rule("alert", "udp", "flowbits:set,a;", 3)
        + &rule("alert", "udp", "flowbits:isset,b;", 4)
        + &rule("alert", "udp", "flowbits:isnotset,b;", 5);
    assert_eq!(watch(&rules, &evil()).rules(), [3, 2, 1, 4]);
}

#[test]
fn equal_rules_are_inspected_in_order_of_sid() {
    let rules = [7, 9, 8].map(|sid| rule("alert", "udp", "", sid)).concat();
    assert_eq!(watch(&rules, &evil()).rules(), [7, 8, 9]);
}

#[test]
fn flowbits_stay_with_their_flow() {
    let on = |port: &str, options: &str, sid: u32| {
        format!("alert udp any any -> any any (msg:\"m\"; content:\"{port}\"; {options} sid:{sid};)\n")
    };
    let rules = on("set", "flowbits:set,a; flowbits:noalert;", 1)
        + &on("unset", "flowbits:unset,a; flowbits:noalert;", 2)
        + &on("toggle", "flowbits:toggle,a; flowbits:noalert;", 3)
        + &on("is", "flowbits:isset,a;", 4)
        + &on("none", "flowbits:isnotset,a;", 5)
        + &on("any", "flowbits:isset,b|a;", 6);
    let flow = |host: u8, words: &[&str]| -> Vec<u32> {
        let mut all = vec![datagram(SECOND_NS, 9, 4_000, b"toggle")];
        all.extend(words.iter().map(|word| datagram(SECOND_NS, host, 4_000, word.as_bytes())));
        watch(&rules, &all).rules()
    };
    assert_eq!(flow(1, &["is", "none", "any"]), [5], "those of the other flow are its own");
    assert_eq!(flow(1, &["toggle", "is", "none", "any", "toggle", "is", "none"]), [4, 6, 5]);
    assert_eq!(flow(9, &["is", "toggle", "is"]), [4], "and stay");
    // `unset` matches `set` as well; it comes after it in the file.
    assert_eq!(flow(1, &["set", "is", "unset", "is", "none"]), [4, 5]);
}

#[test]
fn pass_precedes_drop_reject_and_alert() {
    let harsh = rule("alert", "udp", "", 1) + &rule("reject", "udp", "", 2) + &rule("drop", "udp", "", 3);
    let seen = watch(&harsh, &evil());
    assert_eq!((seen.rules(), seen.sent, seen.drops), (vec![3, 2, 1], 0, vec![("ids-rule", 1)]));

    let seen = watch(&(harsh + &rule("pass", "udp", "", 4)), &evil());
    assert_eq!((seen.rules().len(), seen.sent, seen.drops.len()), (0, 1, 0));
    assert_eq!((seen.counter("packets_passed"), seen.counter("alerts")), (1, 0));
}

#[test]
fn priorities_and_places_in_the_file_come_last() {
    let rules = rule("alert", "udp", "priority:3;", 1)
        + &rule("alert", "udp", "priority:1;", 2)
        + &rule("alert", "udp", "priority:1;", 3)
        + &rule("alert", "udp", "priority:2;", 4);
    assert_eq!(watch(&rules, &evil()).rules(), [2, 3, 4, 1]);
}

#[test]
fn a_dropped_packet_is_counted_once() {
    let rules = rule("drop", "udp", "", 1) + &rule("drop", "udp", "", 2) + &rule("reject", "udp", "", 3);
    let seen = watch(&rules, &evil());
    assert_eq!((seen.rules(), &seen.drops[..]), (vec![1, 2, 3], &[("ids-rule", 1)][..]));
    assert_eq!((seen.counter("packets_dropped"), seen.counter("packets_rejected")), (1, 0));
}

#[test]
fn a_rule_about_packets_drops_only_these() {
    let again = |payload: &[u8]| datagram(SECOND_NS, 1, 4_000, payload);
    let seen = watch(&rule("drop", "udp", "", 1), &[again(b"good"), again(b"evil"), again(b"good")]);
    assert_eq!((seen.sent, seen.drops), (2, vec![("ids-rule", 1)]));
}

#[test]
fn a_rule_about_a_stream_drops_the_flow() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, "ev").says(Client, "il").says(Server, "good").says(Client, "evil").closes(Client);
    let seen = watch(&rule("drop", "tcp", "", 1), &talk.segments);
    assert_eq!(seen.reported, [(5, 1)], "nothing is looked at any more");
    assert_eq!((seen.sent, seen.drops), (4, vec![("ids-rule", 1), ("ids-flow", 3)]));
}

#[test]
fn mode_detect_drops_nothing() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, "evil").says(Server, "good").says(Server, "evil");
    let rules = rule("drop", "tcp", "", 1) + &rule("reject", "tcp", "", 2);
    let seen = watch_with(&rules, json!({ "mode": "detect" }), &talk.segments);
    assert_eq!(seen.reported, [(4, 1), (4, 2), (6, 1), (6, 2)]);
    assert_eq!((seen.sent, seen.drops.len()), (talk.segments.len(), 0));
    assert_eq!((seen.counter("packets_dropped"), seen.counter("packets_rejected")), (0, 0));
}

#[test]
fn a_rejected_segment_is_answered_with_one_reset() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, "evil").says(Client, "more");
    let mut bench = ids(&(rule("reject", "tcp", "", 1) + &rule("reject", "tcp", "", 2)));
    let mut left = talk.segments.iter().map(|one| bench.one(one.at_ns, one.side, &one.network));
    left.by_ref().take(3).for_each(|sent| assert_eq!(sent.len(), 1, "the handshake passes"));
    let answers = left.next().unwrap();
    let [(Side::Inside, reset)] = &answers[..] else { panic!("one answer, to who sent: {answers:?}") };
    assert!(checksums_are_right(reset));
    let ports = [4_000u16.to_be_bytes(), talk.client.port.to_be_bytes()].concat();
    assert_eq!((reset[9], &reset[20..24], u32::from(reset[33]) & 4), (6, &ports[..], 4), "TCP with RST");
    assert_eq!(left.next().unwrap(), [], "the flow is dropped, and not answered again");
    drop(left);
    let seen = end(bench);
    assert_eq!(seen.rules(), [1, 2]);
    assert_eq!(seen.drops, [("ids-rejected", 1), ("ids-flow", 1)]);
    assert_eq!((seen.counter("packets_dropped"), seen.counter("packets_rejected")), (0, 1));
}

#[test]
fn a_rejected_datagram_is_answered_with_an_error() {
    let mut bench = ids(&rule("reject", "udp", "", 1));
    let [Arrival { at_ns, side, network }] = &evil();
    let answers = bench.one(*at_ns, *side, network);
    let [(Side::Inside, error)] = &answers[..] else { panic!("one answer, to who sent: {answers:?}") };
    assert!(checksums_are_right(error));
    // RFC 1812 5.2.7.1: communication administratively prohibited.
    assert_eq!((error[9], &error[20..22]), (1, &[3, 13][..]));
    assert_eq!(error[28..56], network[..28], "about that datagram");
    assert_eq!(end(bench).drops, [("ids-rejected", 1)]);
}

/// A rule that requires an unsupported action blocks anyway.
#[test]
fn rules_that_reject_receivers_reject_senders() {
    for action in ["rejectdst", "rejectboth"] {
        let seen = watch_with(&rule(action, "udp", "", 1), json!({ "unsupported": "skip" }), &evil());
        assert_eq!((seen.rules(), &seen.drops[..]), (vec![1], &[("ids-rejected", 1)][..]), "{action}");
    }
}

#[test]
fn a_rule_that_would_block_is_skipped_only_if_so_configured() {
    let registry: nf::Registry<serde_json::Value> = functions::registry();
    let make = |rules: &str, more: serde_json::Value| {
        let mut config = config(rules, more);
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        registry.find("ids").unwrap().make(&config, nf::Setup::new(7, 16)).map(drop)
    };
    // An unsupported and an invalid option.
    for options in ["filesize:>7;", "depth:x;"] {
        for action in ["drop", "reject", "rejectboth"] {
            let one_line = rule("alert", "udp", "", 1) + "\n" + &rule(action, "tcp", options, 2);
            let two_lines = one_line.replace(options, &format!("\\\n  {options}"));
            for rules in [one_line, two_lines] {
                let error = make(&rules, json!({ "unsupported": null })).unwrap_err().to_string();
                assert!(error.contains("sid 2") && error.contains("`unsupported: skip`"), "{error}");
                for more in
                    [json!({ "unsupported": "skip" }), json!({ "unsupported": null, "mode": "detect" })]
                {
                    make(&rules, more).unwrap();
                }
            }
        }
        let rules = rule("alert", "tcp", options, 2);
        make(&rules, json!({ "unsupported": null })).unwrap();
        make(&rules, json!({})).unwrap_err();
    }
    // Loaded in part, it blocks.
    make(&rule("rejectboth", "udp", "", 1), json!({ "unsupported": null })).unwrap();
}

/// Lets segments of two bytes pass.
const PASS: &str = r#"pass tcp any any -> any any (msg:"short"; dsize:2; sid:1;)"#;

#[test]
fn passed_bytes_are_still_part_of_their_stream() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, "good e").says(Client, "vi").says(Client, "l");
    let seen = watch(&format!("{PASS}\n{}", rule("alert", "tcp", "", 2)), &talk.segments);
    assert_eq!(seen.reported, [(6, 2)]);
    assert_eq!(seen.counter("packets_passed"), 1);
}

#[test]
fn passed_bytes_are_still_part_of_their_message() {
    let page = r#"alert http any any -> any any (msg:"page"; http.uri; content:"/evil"; sid:2;)"#;
    let mut talk = Talk::open(80);
    talk.says(Client, "GET /ev").says(Client, "il").says(Client, " HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(watch(&format!("{PASS}\n{page}"), &talk.segments).reported, [(6, 2)]);
}

#[test]
fn what_has_no_effect_in_mode_detect_is_warned_of() {
    let warnings = |more: serde_json::Value| {
        let seen = watch_with(&rule("alert", "udp", "", 1), more, &evil());
        seen.bench.graph.stages()[0].shared().warnings.clone()
    };
    let drops = json!({ "beyond": "drop", "when_full": "drop", "mode": "detect" });
    assert_eq!(
        warnings(drops),
        [
            "`beyond: drop` has no effect in `mode: detect`, which drops nothing",
            "`when_full: drop` has no effect in `mode: detect`, which drops nothing"
        ]
    );
    assert_eq!(warnings(json!({ "mode": "detect" })), [""; 0]);
    assert_eq!(warnings(json!({ "beyond": "drop", "when_full": "drop" })), [""; 0]);
}

#[test]
fn lengths_have_a_range() {
    let registry: nf::Registry<serde_json::Value> = functions::registry();
    for key in ["head", "body", "handshake"] {
        for (value, expected) in
            [("0B", Some("0 bytes")), ("1B", None), ("1MiB", None), ("2MiB", Some("2097152 bytes"))]
        {
            let config = config(&rule("alert", "udp", "", 1), json!({ key: value }));
            let made = registry.find("ids").unwrap().make(&config, nf::Setup::new(7, 16)).map(drop);
            let error = made.err().map(|error| error.to_string());
            assert_eq!(error.is_some(), expected.is_some(), "{key} {value}: {error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{key} {value}");
        }
    }
}
