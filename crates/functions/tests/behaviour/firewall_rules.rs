//! Every feature of rules, as rows of description, rules, packet and fate.

use crate::firewall_support::*;
use packet::DropReason::{FirewallDefault, FirewallDenied, FirewallInvalid, FirewallRejected};
use serde_json::json;

#[test]
fn rules_decide_first_packets() {
    let web = tcp((IN, 40_000), (OUT, 80), SYN, 100, 0, 0);
    let into = tcp((OUT, 40_000), (IN, 80), SYN, 100, 0, 0);
    let dns = udp((IN, 5353), (OUT, 53));
    let web6 = tcp((IN6, 40_000), (OUT6, 80), SYN, 100, 0, 0);
    let ping = icmp(IN, OUT, 8, 1);
    let gre = ip(IN, OUT, 47, &[0; 8]);
    let denied = Dropped(FirewallDenied);
    let default = Dropped(FirewallDefault);
    let rows = [
        ("nothing is allowed unless a rule says so", "", Inside, &web, default),
        ("the first match counts", "deny to any port 80\nallow", Inside, &web, denied),
        ("a later one does not", "allow\ndeny to any port 80", Inside, &web, Passed),
        ("a rule that does not match", "deny to any port 81\nallow", Inside, &web, Passed),
        ("out", "allow out", Inside, &web, Passed),
        ("out is not in", "allow out", Outside, &into, default),
        ("in", "allow in", Outside, &into, Passed),
        ("in is not out", "allow in", Inside, &web, default),
        ("protocol", "allow tcp", Inside, &web, Passed),
        ("another protocol", "allow tcp", Inside, &dns, default),
        ("protocol by number", "allow 47", Inside, &gre, Passed),
        ("protocols in a list", "allow {gre, udp}", Inside, &dns, Passed),
        ("source address", "allow from 10.0.0.5", Inside, &web, Passed),
        ("source prefix", "allow from 10.0.0.0/29", Inside, &web, Passed),
        ("beside the prefix", "allow from 10.0.0.8/29", Inside, &web, default),
        ("source range", "allow from 10.0.0.1-10.0.0.5", Inside, &web, Passed),
        ("beside the range", "allow from 10.0.0.1-10.0.0.4", Inside, &web, default),
        ("a list of sources", "allow from {172.16.0.0/12, 10.0.0.5}", Inside, &web, Passed),
        ("destination", "allow to 192.0.2.0/24", Inside, &web, Passed),
        ("source and destination exchanged", "allow from 192.0.2.0/24", Inside, &web, default),
        ("source port", "allow from any port 40000", Inside, &web, Passed),
        ("destination port", "allow to any port {22, 79-81}", Inside, &web, Passed),
        ("destination port of UDP", "allow udp to any port 53", Inside, &dns, Passed),
        ("another port", "allow to any port 443", Inside, &web, default),
        ("ports of what has none", "allow to any port 0", Inside, &gre, default),
        ("identifiers of pings are no ports", "allow to any port 1", Inside, &ping, default),
        ("IPv6", "allow tcp from 2001:db8:1::/48 to any port 80", Inside, &web6, Passed),
        ("IPv4 rules do not match IPv6", "allow from 0.0.0.0/0", Inside, &web6, default),
        ("IPv6 rules do not match IPv4", "allow from ::/0", Inside, &web, default),
        ("flags", "allow tcp flags SYN,!ACK", Inside, &web, Passed),
        ("other flags", "allow tcp flags ACK", Inside, &web, default),
        ("ICMP type", "allow icmp icmp_type 8", Inside, &ping, Passed),
        ("another ICMP type", "allow icmp icmp_type {0, 9-13}", Inside, &ping, default),
        ("ICMP for IPv6 is another protocol", "allow icmp6", Inside, &ping, default),
        ("state", "allow state new", Inside, &web, Passed),
        ("another state", "allow state {established, related, invalid}", Inside, &web, default),
        ("reject", "reject", Inside, &web, Dropped(FirewallRejected)),
    ];
    for (what, rules, side, frame, want) in rows {
        assert_eq!(Bench::rules(rules).send(side, frame), want, "{what}");
        // A stateless firewall judges a first packet in the same way.
        let mut alone = Bench::json(json!({ "rules": rules, "stateful": false }));
        assert_eq!(alone.send(side, frame), want, "{what}, without state");
    }
}

#[test]
fn the_default_is_configured() {
    let web = tcp((IN, 40_000), (OUT, 80), SYN, 100, 0, 0);
    for (default, want) in
        [("allow", Passed), ("deny", Dropped(FirewallDefault)), ("reject", Dropped(FirewallRejected))]
    {
        let mut bench = Bench::json(json!({ "rules": "deny udp", "default": default }));
        assert_eq!(bench.send(Inside, &web), want);
    }
}

#[test]
fn invalid_packets_pass_only_by_a_rule_that_names_them() {
    let segment = |flags| tcp((IN, 40_000), (OUT, 80), flags, 100, 200, 0);
    let odd = [0, FIN, SYN | FIN, SYN | RST, FIN | RST, FIN | 0x28, SYN | FIN | ACK];
    for flags in odd {
        for rules in ["", "allow"] {
            let mut bench = Bench::json(json!({ "rules": rules, "default": "allow" }));
            assert_eq!(bench.send(Inside, &segment(flags)), Dropped(FirewallInvalid), "{flags:#x}");
            assert_eq!(bench.counter("invalid"), 1);
        }
        let mut bench = Bench::rules("deny state invalid log as \"odd\"\nallow");
        assert_eq!(bench.send(Inside, &segment(flags)), Dropped(FirewallDenied), "{flags:#x}");
        assert_eq!(&*bench.graph.effects_mut().alerts[0].signature, "odd");
        assert_eq!(Bench::rules("allow state invalid").send(Inside, &segment(flags)), Passed);
    }
}

#[test]
fn connections_are_picked_up_as_configured() {
    for flags in [ACK, ACK | 8, SYN | ACK, RST, RST | ACK, FIN | ACK] {
        let frame = tcp((IN, 40_000), (OUT, 80), flags, 100, 200, 0);
        for (pickup, want) in [("allow", Passed), ("drop", Dropped(FirewallInvalid))] {
            for stateful in [true, false] {
                let mut bench =
                    Bench::json(json!({ "rules": "allow out", "pickup": pickup, "stateful": stateful }));
                assert_eq!(bench.send(Inside, &frame), want, "{flags:#x} {pickup}");
            }
        }
    }
}

#[test]
fn rules_set_tags() {
    let mut bench = Bench::json(json!({
        "rules": ["allow tcp to any port 80 tag web", "allow udp tag 9"],
        "tags": { "web": 3 },
        "default": "allow",
    }));
    let web = tcp((IN, 40_000), (OUT, 80), SYN, 100, 0, 0);
    assert_eq!(bench.send(Inside, &web), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (1, 3));
    assert_eq!(bench.send(Outside, &tcp((OUT, 80), (IN, 40_000), SYN | ACK, 7, 101, 0)), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (1, 3), "later packets have the flow's tags (A29)");
    assert_eq!(bench.send(Inside, &udp((IN, 5353), (OUT, 53))), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (1, 9));
    assert_eq!(bench.send(Inside, &icmp(IN, OUT, 8, 1)), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (0, 0), "a packet that passes by default is not safe");
    bench.control("rule 1 disable");
    assert_eq!(bench.send(Inside, &tcp((IN, 40_000), (OUT, 80), ACK, 101, 8, 0)), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (0, 0), "tags follow the rules");
}

#[test]
fn alerts_carry_the_rule() {
    let mut bench = Bench::rules("allow udp log\nreject in tcp log as \"no way in\"\ndeny log");
    bench.send(Inside, &udp((IN, 5353), (OUT, 53)));
    bench.send(Outside, &udp((OUT, 53), (IN, 5353)));
    bench.send(Outside, &tcp((OUT, 40_000), (IN, 80), SYN, 100, 0, 0));
    bench.send(Inside, &icmp(IN, OUT, 8, 1));
    let alerts: Vec<_> = bench
        .graph
        .effects_mut()
        .alerts
        .iter()
        .map(|alert| {
            (alert.signature_id, alert.signature.to_string(), alert.category.to_string(), alert.severity)
        })
        .collect();
    assert_eq!(
        alerts,
        [
            (1, "rule 1".to_owned(), "firewall-allow".to_owned(), 3),
            (2, "no way in".to_owned(), "firewall-reject".to_owned(), 2),
            (3, "rule 3".to_owned(), "firewall-deny".to_owned(), 2),
        ]
    );
}

#[test]
fn configurations_are_checked() {
    use functions::firewall::{Config, Firewall};
    use nf::{Setup, stage};
    let wrong = |text: serde_json::Value| match serde_json::from_value::<Config>(text) {
        Ok(config) => stage::load::<Firewall>(config, Setup::new(1, 16)).err().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(wrong(json!({ "rule": "allow" })).starts_with("unknown field `rule`"));
    assert!(wrong(json!({ "rules": 7 })).contains("expected a string, `file(\"...\")`, or a list of them"));
    assert!(
        wrong(json!({ "default": "drop" }))
            .starts_with("unknown variant `drop`, expected one of `allow`, `deny`")
    );
    assert_eq!(wrong(json!({ "tcp": "strict", "stateful": false })), "`tcp: strict` needs `stateful: true`");
    assert_eq!(wrong(json!({ "tags": { "x": 0 } })), "tag `x` is 0, which means no tag: use 1 to 255");
    assert!(wrong(json!({ "tags": { "x": 256 } })).contains("256"));
    assert!(wrong(json!({ "rules": ["allow", "allow tcpp"] })).starts_with("1:7: expected a protocol"));
}

#[test]
fn errors_in_a_rule_file_give_its_line() {
    let located = values::Located::with_origin(
        "allow tcp\n\nallow tcp to any prot 80\n",
        values::Origin { source: "allow.rules".into(), line: 1, column: 1, escapes: vec![] },
    );
    let config = functions::firewall::Config {
        rules: functions::texts::TextList(vec!["allow udp".into(), located]),
        ..Default::default()
    };
    let error =
        nf::stage::load::<functions::firewall::Firewall>(config, nf::Setup::new(1, 16)).err().unwrap();
    assert!(error.to_string().starts_with("allow.rules:3:18: expected one of `state`"), "{error}");
}

#[test]
fn the_example_holds() {
    let mut bench = Bench::json(json!({
        "rules": include_str!("../../../../examples/firewall.rules"),
        "tcp": "strict",
        "pickup": "drop",
        "tags": { "web": 1, "dns": 2 },
    }));
    let web = ("192.168.1.80", 443);
    let visitor = ("203.0.113.7", 50_000);
    assert_eq!(bench.send(Outside, &tcp(visitor, web, SYN, 1, 0, 0)), Passed);
    assert_eq!((bench.tag("safe"), bench.tag("tag")), (1, 1));
    assert_eq!(bench.send(Inside, &tcp(web, visitor, SYN | ACK, 1, 2, 0)), Passed);
    assert_eq!(
        bench.send(Outside, &tcp(visitor, ("192.168.1.80", 22), SYN, 1, 0, 0)),
        Dropped(FirewallDefault)
    );
    assert_eq!(bench.send(Outside, &tcp(("10.1.1.1", 1), web, SYN, 1, 0, 0)), Dropped(FirewallDenied));
    assert_eq!(
        bench.send(Inside, &tcp(("192.168.3.4", 1), visitor, SYN, 1, 0, 0)),
        Dropped(FirewallRejected)
    );
    assert_eq!(bench.send(Outside, &tcp(visitor, ("192.168.3.4", 9), ACK, 1, 1, 0)), Dropped(FirewallDenied));
    let alerts = bench.graph.effects_mut().alerts.iter().map(|alert| alert.signature.to_string());
    assert_eq!(alerts.collect::<Vec<_>>(), ["forged source", "invalid packets"]);
}
