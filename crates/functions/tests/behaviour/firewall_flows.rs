//! Flows: later packets follow the verdict on the first one, until the rules change.

use crate::firewall_support::*;
use graph::Observer;
use nf::{Recording, Verdict};
use packet::DropReason::{FirewallDefault, FirewallInvalid, FragmentOfDropped};
use packet::{DropReason, Packet};
use serde_json::json;

const CLIENT: (&str, u16) = (IN, 40_000);
const SERVER: (&str, u16) = (OUT, 80);

/// Opens a connection from inside, by three packets.
fn open(bench: &mut Bench) {
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN, 100, 0, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101, 0)), Passed);
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 501, 0)), Passed);
}

/// Closes the connection: both sides send FIN.
fn close(bench: &mut Bench) {
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, FIN | ACK, 101, 501, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, FIN | ACK, 501, 102, 0)), Passed);
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 102, 502, 0)), Passed);
}

#[test]
fn replies_of_allowed_flows_pass() {
    for tcp_mode in ["loose", "strict"] {
        let mut bench =
            Bench::json(json!({ "rules": "allow out tcp to any port 80 flags SYN,!ACK", "tcp": tcp_mode }));
        open(&mut bench);
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 501, 101, 1000)), Passed);
        assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 1501, 0)), Passed);
        assert_eq!(bench.send(Outside, &tcp(SERVER, (IN, 40_001), ACK, 1, 1, 9)), Dropped(FirewallDefault));
        assert_eq!(bench.counter("judged"), 2, "one lookup per flow");
    }
}

#[test]
fn replies_need_rules_in_a_stateless_firewall() {
    let rules = "allow out tcp flags SYN,!ACK\nallow state established";
    let mut bench = Bench::json(json!({ "rules": rules, "stateful": false }));
    open(&mut bench);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 501, 101, 1000)), Passed);
    let mut bench = Bench::json(json!({ "rules": "allow out", "stateful": false }));
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN, 100, 0, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101, 0)), Dropped(FirewallDefault));
}

#[test]
fn a_closed_connection_admits_no_new_one() {
    for tcp_mode in ["loose", "strict"] {
        let config = |rules: &str| json!({ "rules": rules, "tcp": tcp_mode });
        let syn = tcp(SERVER, CLIENT, SYN, 9_000_000, 0, 0);
        let mut bench = Bench::json(config("allow out"));
        open(&mut bench);
        assert_eq!(bench.send(Outside, &syn), Dropped(FirewallDefault), "{tcp_mode}: in its middle");
        close(&mut bench);
        assert_eq!(bench.send(Outside, &syn), Dropped(FirewallDefault), "{tcp_mode}: at its end");
        bench.control("default deny");
        assert_eq!(bench.send(Outside, &syn), Dropped(FirewallDefault), "{tcp_mode}: under new rules");
        let mut bench = Bench::json(config("allow out\nallow in to 10.0.0.5"));
        open(&mut bench);
        close(&mut bench);
        assert_eq!(bench.send(Outside, &syn), Passed, "{tcp_mode}: where a rule allows it");
        assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN | ACK, 7, 9_000_001, 0)), Passed);
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 9_000_001, 8, 0)), Passed);
    }
}

#[test]
fn both_ends_may_open_at_once() {
    for tcp_mode in ["loose", "strict"] {
        let mut bench = Bench::json(json!({ "rules": "allow out", "tcp": tcp_mode }));
        assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN, 100, 0, 0)), Passed);
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN, 500, 0, 0)), Passed);
        assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN | ACK, 100, 501, 0)), Passed);
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101, 0)), Passed);
    }
}

#[test]
fn strict_tracking_drops_segments_outside_the_window() {
    let strict = json!({ "rules": "allow out", "tcp": "strict" });
    let mut bench = Bench::json(strict.clone());
    open(&mut bench);
    let invalid = Dropped(FirewallInvalid);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 501, 101, 1000)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 900_000, 101, 10)), invalid);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 1501, 999_999, 10)), invalid);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, RST, 400, 0, 0)), invalid, "RFC 5961 3.2");
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN | FIN | ACK, 1501, 101, 0)), invalid);
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 1501, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, RST, 1501, 0, 0)), Passed);
    assert_eq!(bench.counter("invalid"), 4);
    // A reset that refuses the connection must acknowledge its SYN.
    let mut bench = Bench::json(strict);
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN, 100, 0, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, RST | ACK, 0, 999, 0)), invalid);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, RST | ACK, 0, 101, 0)), Passed);
}

#[test]
fn icmp_errors_about_known_flows_pass() {
    let mut bench = Bench::rules("allow out");
    let query = udp((IN, 5353), (OUT, 53));
    assert_eq!(bench.send(Inside, &query), Passed);
    // From the host, and from a router that no rule covers.
    assert_eq!(bench.send(Outside, &unreachable(OUT, IN, &query)), Passed);
    assert_eq!(bench.send(Outside, &unreachable("203.0.113.1", IN, &query)), Passed);
    let other = udp((IN, 5354), (OUT, 53));
    assert_eq!(bench.send(Outside, &unreachable(OUT, IN, &other)), Dropped(FirewallInvalid));
    let query = udp((IN6, 5353), (OUT6, 53));
    assert_eq!(bench.send(Inside, &query), Passed);
    assert_eq!(bench.send(Outside, &unreachable(OUT6, IN6, &query)), Passed);
    bench.control("rule 1 disable");
    assert_eq!(bench.send(Inside, &query), Dropped(FirewallDefault));
    assert_eq!(bench.send(Outside, &unreachable(OUT6, IN6, &query)), Dropped(FirewallDefault));
    // A stateless firewall judges them as related, by their own addresses.
    let rules = "allow out\nallow in icmp from 192.0.2.9 state related";
    let mut bench = Bench::json(json!({ "rules": rules, "stateful": false }));
    let query = udp((IN, 5353), (OUT, 53));
    assert_eq!(bench.send(Inside, &query), Passed);
    assert_eq!(bench.send(Outside, &unreachable(OUT, IN, &query)), Passed);
    assert_eq!(bench.send(Outside, &unreachable("203.0.113.1", IN, &query)), Dropped(FirewallDefault));
    assert_eq!(bench.send(Outside, &unreachable(OUT, IN, &other)), Dropped(FirewallInvalid));
}

#[test]
fn only_echo_replies_answer_echo_requests() {
    for (here, there, ask, answer, rule) in [
        (IN, OUT, 8, 0, "allow out icmp icmp_type 8"),
        (IN6, OUT6, 128, 129, "allow out icmp6 icmp_type 128"),
    ] {
        let mut bench = Bench::rules(rule);
        assert_eq!(bench.send(Outside, &icmp(there, here, answer, 7)), Dropped(FirewallInvalid), "not asked");
        assert_eq!(bench.send(Outside, &icmp(there, here, ask, 7)), Dropped(FirewallDefault));
        assert_eq!(bench.send(Inside, &icmp(here, there, ask, 7)), Passed);
        assert_eq!(bench.send(Outside, &icmp(there, here, answer, 7)), Passed);
        assert_eq!(
            bench.send(Outside, &icmp(there, here, answer, 8)),
            Dropped(FirewallInvalid),
            "another ping's"
        );
        assert_eq!(
            bench.send(Outside, &icmp(there, here, ask, 7)),
            Dropped(FirewallDefault),
            "asked in its name"
        );
        assert_eq!(bench.send(Inside, &icmp(here, there, ask, 7)), Passed);
    }
    let mut bench = Bench::rules("allow out icmp icmp_type 8");
    assert_eq!(bench.send(Inside, &icmp(IN, OUT, 8, 7)), Passed);
    assert_eq!(bench.send(Inside, &icmp(IN, OUT, 13, 7)), Dropped(FirewallDefault), "another request");
}

#[test]
fn later_fragments_follow_the_first() {
    let long = [udp((IN, 5353), (OUT, 53)), vec![0; 36]].concat();
    let mut whole = long.clone();
    whole[16..18].copy_from_slice(&68u16.to_be_bytes());
    whole[38..40].copy_from_slice(&48u16.to_be_bytes());
    let (first, later) = (fragment(&whole, 24, true), fragment(&whole, 24, false));
    for stateful in [true, false] {
        let config = |rules: &str| json!({ "rules": rules, "stateful": stateful });
        let mut bench = Bench::json(config("allow udp to any port 53"));
        assert_eq!(bench.send(Inside, &first), Passed);
        assert_eq!(bench.send(Inside, &later), Passed);
        let mut bench = Bench::json(config("allow udp to any port 54"));
        assert_eq!(bench.send(Inside, &first), Dropped(FirewallDefault));
        assert_eq!(bench.send(Inside, &later), Dropped(FragmentOfDropped));
        // The later fragment comes first, and is held.
        let mut bench = Bench::json(config("allow udp to any port 53"));
        assert_eq!(bench.send(Inside, &later), Fate::Held);
        assert_eq!(bench.send(Inside, &first), Passed);
        assert_eq!(bench.graph.counters().packets_out, 2);
    }
}

// A29: later packets of a denied flow are dropped; SpeedyBox's event of a changed list (B23).
#[test]
fn new_rules_apply_to_known_flows() {
    for (tcp_mode, from_inside) in [("loose", true), ("loose", false), ("strict", true), ("strict", false)] {
        let mut bench = Bench::json(json!({
            "rules": "allow out tcp to any port 80 flags SYN,!ACK state new as \"web\"\ndeny in log",
            "tcp": tcp_mode,
        }));
        open(&mut bench);
        let next = |bench: &mut Bench| match from_inside {
            true => bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 501, 0)),
            false => bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 501, 101, 0)),
        };
        assert_eq!(next(&mut bench), Passed);
        bench.control("rule web disable");
        assert_eq!(next(&mut bench), Dropped(FirewallDefault), "judged as its first packet was: out, a SYN");
        assert_eq!(next(&mut bench), Dropped(FirewallDefault), "and so are later ones");
        assert_eq!(bench.counter("judged"), 2);
        bench.control("default allow");
        assert_eq!(next(&mut bench), Passed);
        bench.control("default deny");
        bench.control("rule 1 enable");
        assert_eq!(next(&mut bench), Passed, "the flow was kept in the meantime");
        assert_eq!(bench.graph.counters().flows_started, 1);
        assert!(bench.graph.effects_mut().alerts.is_empty());
    }
}

#[test]
fn invalid_commands_change_nothing() {
    let mut bench = Bench::rules("allow out");
    open(&mut bench);
    let usage = "expected `default allow|deny|reject` or `rule NUMBER|NAME enable|disable`";
    let rows = [
        ("", usage),
        ("reload", usage),
        ("default drop", usage),
        ("rule 1", usage),
        ("rule 0 disable", "unknown rule `0`: expected a name or a number from 1 to 1"),
        ("rule 2 disable", "unknown rule `2`: expected a name or a number from 1 to 1"),
        ("rule web disable", "unknown rule `web`: expected a name or a number from 1 to 1"),
    ];
    for (command, want) in rows {
        let stage = bench.graph.stage_mut(0).unwrap();
        assert_eq!(stage.check_command(command), stage.control(command));
        let error = stage.control(command).unwrap_err().to_string();
        assert!(error.ends_with(want), "{error}");
    }
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 501, 0)), Passed);
    assert_eq!(bench.counter("judged"), 1);
    bench.control("rule \"rule 1\" disable");
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 101, 501, 0)), Dropped(FirewallDefault));
}

/// Keeps the recorded actions.
#[derive(Default)]
struct Recorder(Vec<Recording>);

impl Observer for Recorder {
    fn arrived(&mut self, _packet: &Packet) {}
    fn before(&mut self, _stage: usize, _packet: &Packet) {}
    fn after(&mut self, _stage: usize, _packet: &Packet, _verdict: Verdict, recording: &Recording) {
        self.0.push(recording.clone());
    }
    fn sent(&mut self, _packet: &Packet) {}
    fn dropped(&mut self, _packet: &Packet, _reason: DropReason) {}
}

#[test]
fn recorded_actions_are_stale_after_the_rules_change() {
    for (config, repeats) in [
        (json!({ "rules": "allow out" }), true),
        (json!({ "rules": "allow out", "tcp": "strict" }), false),
        (json!({ "rules": "allow", "stateful": false }), false),
    ] {
        let mut bench = Bench::json(config);
        let mut recorder = Recorder::default();
        let frame = tcp(CLIENT, SERVER, SYN, 100, 0, 0);
        let packet = packet_of(&mut bench.pool, Inside, &frame, bench.now_ns);
        bench.graph.observe(packet, &mut Vec::new(), &mut bench.pool, &mut recorder);
        let recording = &recorder.0[0];
        assert_eq!((recording.repeats(), recording.functions.len()), (repeats, 0));
        let event = recording.events[0];
        let holds =
            |bench: &Bench| bench.graph.stages()[0].event_holds(event, 0, bench.graph.flows().records());
        assert!(!holds(&bench));
        bench.control("default reject");
        assert!(holds(&bench));
    }
}
