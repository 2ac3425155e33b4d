use proptest::prelude::*;
use values::Origin;

use super::*;

fn read(text: &str) -> Result<Vec<FilterRule>, String> {
    let origin = Origin { source: "x.rules".to_owned(), line: 1, column: 1, escapes: Vec::new() };
    let tags = BTreeMap::from([("web".to_owned(), 1), ("dns".to_owned(), 7)]);
    rules(&[Located::with_origin(text, origin)], &tags).map_err(|error| error.to_string())
}

fn one(text: &str) -> FilterRule {
    let rules = read(text).unwrap();
    assert_eq!(rules.len(), 1, "{text}");
    rules[0].clone()
}

#[test]
fn every_part_of_a_rule_is_parsed() {
    let rule = one(
        "reject in tcp from {10.0.0.0/8, 192.0.2.1-192.0.2.9} port 1024-65535 to 10.1.0.0/16 port {443,80,81} \
         state {new, invalid} flags SYN,!ack tag web log as \"no web\" # why",
    );
    let v4 = |ranges: &[(u32, u32)]| RuleAddresses {
        v4: ranges.iter().map(|&(a, b)| a..=b).collect(),
        v6: Vec::new(),
    };
    assert_eq!(
        rule,
        FilterRule {
            action: FilterAction::Reject,
            pattern: RulePattern {
                ways: RuleDirections::only(RuleDirection::In),
                protocols: vec![6..=6],
                sources: v4(&[(0x0a00_0000, 0x0aff_ffff), (0xc000_0201, 0xc000_0209)]),
                source_ports: vec![1024..=65535],
                destinations: v4(&[(0x0a01_0000, 0x0a01_ffff)]),
                destination_ports: vec![80..=81, 443..=443],
                states: ConnectionStates(0b1001),
                flags: FlagMatch { mask: 0x12, value: 0x02 },
            },
            tag: Some(1),
            log: true,
            name: "no web".into(),
            place: "x.rules:1".into(),
        }
    );
}

#[test]
fn omitted_parts_match_anything() {
    let rule = one("allow").pattern;
    assert_eq!((rule.ways, rule.states, rule.flags.mask), (RuleDirections::BOTH, ConnectionStates::VALID, 0));
    assert_eq!((rule.sources, rule.destinations), (RuleAddresses::any(), RuleAddresses::any()));
    assert_eq!(rule.protocols, [0..=255]);
    assert_eq!(&*one("allow").name, "rule 1");
    assert_eq!(one("allow any_direction any from any to any"), one("allow"));
    assert_eq!(one("deny out 47").pattern.protocols, [47..=47]);
    assert_eq!(one("deny {tcp, udp, 7, 8}").pattern.protocols, [6..=8, 17..=17]);
}

#[test]
fn ports_without_a_protocol_match_every_protocol_with_ports() {
    assert_eq!(
        one("allow to any port 53").pattern.protocols,
        [6..=6, 17..=17, 33..=33, 132..=132, 136..=136]
    );
    assert_eq!(one("allow icmp icmp_type {8, 13-18}").pattern.destination_ports, [8..=8, 13..=18]);
    assert_eq!(
        one("allow to ::/0").pattern.destinations,
        RuleAddresses { v4: vec![], v6: vec![0..=u128::MAX] }
    );
    assert_eq!(
        one("allow to 0.0.0.0/0").pattern.destinations,
        RuleAddresses { v4: vec![0..=u32::MAX], v6: vec![] }
    );
    assert_eq!(one("allow to 2001:db8::1").pattern.destinations.v6.len(), 1);
}

#[test]
fn comments_blank_lines_and_crlf_are_ignored() {
    assert_eq!(read("").unwrap().len(), 0);
    let rules = read("# head\r\n\r\nallow tcp // why\r\n  // more\n\tdeny# all\n\n").unwrap();
    assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["rule 1", "rule 2"]);
}

#[test]
fn errors_report_position_and_expectation() {
    let options = "one of `state`, `flags`, `icmp_type`, `tag`, `log`, `as`";
    let rows = [
        ("permit tcp", "1:1: expected `allow`, `deny` or `reject`, found `permit`"),
        ("\n\nallow tpc from any", "3:7: expected a protocol, `from`, `to` or an option, found `tpc`"),
        ("allow 256", "1:7: expected a protocol, `from`, `to` or an option, found `256`"),
        (
            "allow tcp from",
            "1:15: expected an address, a prefix, a range or `any`, found the end of the line",
        ),
        (
            "allow tcp from   # nobody",
            "1:15: expected an address, a prefix, a range or `any`, found the end of the line",
        ),
        (
            "allow from 10.0.0.300",
            "1:12: expected an address, a prefix, a range or `any`, found `10.0.0.300`",
        ),
        ("allow from 10.0.0.0/33", "1:12: an IPv4 prefix length must be 0 to 32"),
        ("allow from ::/129", "1:12: an IPv6 prefix length must be 0 to 128"),
        (
            "allow from 10.0.0.1/8",
            "1:12: `10.0.0.1/8` has bits set after its prefix length; did you mean `10.0.0.0/8`?",
        ),
        ("allow from 10.0.0.9-10.0.0.1", "1:12: the range `10.0.0.9-10.0.0.1` ends before it begins"),
        ("allow from 10.0.0.9-::1", "1:12: the range `10.0.0.9-::1` mixes IPv4 and IPv6"),
        ("allow from {10.0.0.1 10.0.0.2}", "1:22: expected `,` or `}`, found `10.0.0.2`"),
        ("allow from {}", "1:13: expected an address, a prefix, a range or `any`, found `}`"),
        ("allow tcp to any port 80000", "1:23: number too large: the maximum is 65535"),
        ("allow tcp to any port 90-80", "1:23: the range `90-80` ends before it begins"),
        ("allow tcp to any port http", "1:23: expected a port or a range of ports, found `http`"),
        ("allow gre to any port 80", "1:18: `port` needs a protocol with ports, such as `tcp`"),
        ("allow {tcp, icmp} to any port 80", "1:26: `port` needs a protocol with ports, such as `tcp`"),
        ("allow from 10.0.0.0/8 to ::1", "1:23: source and destination have no IP version in common"),
        ("allow udp flags SYN", "1:11: `flags` needs the protocol `tcp`"),
        ("allow flags SYN", "1:7: `flags` needs the protocol `tcp`"),
        ("allow tcp flags SYN,!SYN", "1:21: duplicate flag `SYN`"),
        ("allow tcp icmp_type 8", "1:11: `icmp_type` needs the protocol `icmp` or `icmp6`"),
        ("allow icmp icmp_type 300", "1:22: number too large: the maximum is 255"),
        ("allow tcp state open", "1:17: expected `new`, `established`, `related` or `invalid`, found `open`"),
        ("allow tag mail", "1:11: expected a tag from 1 to 255 or one of `dns`, `web`, found `mail`"),
        ("allow tag 0", "1:11: expected a tag from 1 to 255 or one of `dns`, `web`, found `0`"),
        ("allow log log", "1:11: duplicate option `log`"),
        ("allow as web", "1:10: expected a name in quotes, found `web`"),
        ("allow as \"web", "1:10: the string has no closing quote"),
        ("allow as \"a\"\ndeny as \"a\"", "2:1: duplicate rule name `a`"),
        ("allow \"tcp\"", "1:7: expected a protocol, `from`, `to` or an option, found \"tcp\""),
    ];
    for (text, want) in rows {
        assert_eq!(read(text).unwrap_err(), format!("x.rules:{want}"), "{text}");
    }
    assert_eq!(
        read("allow tcp fro any").unwrap_err(),
        format!("x.rules:1:11: expected {options}, found `fro`")
    );
    assert!(read("allow tcp flags SIN").unwrap_err().starts_with("x.rules:1:17: expected a flag (FIN, SYN"));
}

#[test]
fn several_errors_are_reported_together() {
    let error = read("allow\npermit\nallow tcp to any port x\ndeny all").unwrap_err();
    assert_eq!(
        error,
        "x.rules:2:1: expected `allow`, `deny` or `reject`, found `permit`\
         ; x.rules:3:23: expected a port or a range of ports, found `x`\
         ; x.rules:4:6: expected a protocol, `from`, `to` or an option, found `all`"
    );
    let error = read(&"bad\n".repeat(50)).unwrap_err();
    assert!(error.ends_with("; and 40 more errors"), "{error}");
    assert_eq!(error.matches("x.rules:").count(), ERRORS_SHOWN);
    // The rest of a text that is wrong throughout is not read: the limit of rules, which is beyond
    // it, is not reached.
    let error = read(&("bad\n".repeat(ERRORS_MAX) + &"allow\n".repeat(RULES_MAX + 1))).unwrap_err();
    assert!(error.ends_with("; and more errors"), "{error}");
}

#[test]
fn the_number_of_rules_is_limited() {
    assert_eq!(read(&"allow\n".repeat(RULES_MAX)).unwrap().len(), RULES_MAX);
    let error = read(&"allow\n".repeat(RULES_MAX + 1)).unwrap_err();
    assert_eq!(error, "x.rules:16385:1: too many rules: the maximum is 16384");
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "[ -~\\n\\t\u{e9}]{0,80}") {
        let _ = read(&text);
    }

    #[test]
    fn arbitrary_word_order_does_not_panic(words in prop::collection::vec(prop::sample::select(vec![
        "allow", "deny", "in", "tcp", "udp", "icmp", "from", "to", "any", "port", "state", "new", "flags", "SYN", "!ACK", ",",
        "{", "}", "10.0.0.0/8", "::1", "80", "1-9", "log", "as", "\"x\"", "\"", "tag", "web", "#", "\n", "-", "/", "!",
    ]), 0..30)) {
        let _ = read(&words.join(" "));
    }
}

#[test]
fn rules_know_their_lines() {
    let places = |text: &Located| -> Vec<String> {
        rules(std::slice::from_ref(text), &BTreeMap::new())
            .unwrap()
            .iter()
            .map(|rule| rule.place.to_string())
            .collect()
    };
    let text = "# head\nallow in\r\n\n  deny out # why\nreject";
    let origin = |escapes| Origin { source: "p.rvl".to_owned(), line: 7, column: 3, escapes };
    assert_eq!(places(&Located::with_origin(text, origin(Vec::new()))), ["p.rvl:8", "p.rvl:10", "p.rvl:11"]);
    assert_eq!(places(&text.into()), ["line 2", "line 4", "line 5"]);
    // As one string of a policy with `\n` in it.
    let escaped = text.char_indices().filter(|(_, c)| *c == '\n').map(|(at, _)| (at as u32, 2)).collect();
    assert_eq!(places(&Located::with_origin(text, origin(escaped))), ["p.rvl:7"; 3]);
}
