//! Effects of an operator's command on connections in each state, and the rule counters.

use crate::firewall_support::*;
use packet::DropReason::{FirewallDefault, FirewallDenied};
use packet::{DropReason, Side};
use serde_json::json;

const CLIENT: (&str, u16) = (IN, 40_000);
const SERVER: (&str, u16) = (OUT, 80);

/// Packets so far, and the next one. The command applies to the next one.
type Flow = (&'static str, Vec<(Side, Vec<u8>)>, (Side, Vec<u8>));

fn flows() -> Vec<Flow> {
    let out = |flags, seq, ack, len| (Inside, tcp(CLIENT, SERVER, flags, seq, ack, len));
    let back = |flags, seq, ack, len| (Outside, tcp(SERVER, CLIENT, flags, seq, ack, len));
    let syn = out(SYN, 100, 0, 0);
    let open = vec![syn.clone(), back(SYN | ACK, 500, 101, 0), out(ACK, 101, 501, 0)];
    let closing = [&open[..], &[out(FIN | ACK, 101, 501, 0)]].concat();
    let closed = [&closing[..], &[back(FIN | ACK, 501, 102, 0), out(ACK, 102, 502, 0)]].concat();
    let reset = [&open[..], &[back(RST | ACK, 501, 101, 0)]].concat();
    let again = out(SYN, 70_000_000, 0, 0);
    let query = udp((IN, 5353), (OUT, 53));
    let error = unreachable("203.0.113.1", IN, &query);
    vec![
        ("new", vec![], syn.clone()),
        ("half-open, from inside", vec![syn.clone()], syn.clone()),
        ("half-open, from outside", vec![syn], back(SYN | ACK, 500, 101, 0)),
        ("open, from inside", open.clone(), out(ACK, 101, 501, 10)),
        ("open, from outside", open.clone(), back(ACK, 501, 101, 10)),
        ("open, and the client begins again", open, again.clone()),
        ("half-closed", closing, back(ACK, 501, 102, 10)),
        ("closed, a straggler", closed.clone(), out(ACK, 102, 502, 0)),
        ("closed, the ports again", closed, again.clone()),
        ("reset, the ports again", reset, again),
        ("UDP", vec![(Inside, query.clone())], (Outside, udp((OUT, 53), (IN, 5353)))),
        ("an ICMP error", vec![(Inside, query)], (Outside, error)),
        ("a ping", vec![(Inside, icmp(IN, OUT, 8, 7))], (Outside, icmp(OUT, IN, 0, 7))),
    ]
}

#[test]
fn a_command_applies_to_the_next_packet_of_every_flow() {
    let decisions: [(&str, &str, &str, &str, DropReason); 3] = [
        ("allow out as \"web\"", "", "rule web disable", "rule web enable", FirewallDefault),
        (
            "deny as \"block\"\nallow out",
            "rule block disable",
            "rule block enable",
            "rule block disable",
            FirewallDenied,
        ),
        ("allow in to 198.51.100.1", "default allow", "default deny", "default allow", FirewallDefault),
    ];
    for tcp_mode in ["loose", "strict"] {
        for (rules, first, decision, back, reason) in decisions {
            for (what, before, (side, next)) in flows() {
                let mut bench = Bench::json(json!({ "rules": rules, "tcp": tcp_mode }));
                if !first.is_empty() {
                    bench.control(first);
                }
                for (side, frame) in before {
                    assert_eq!(bench.send(side, &frame), Passed, "{what}: {rules}");
                }
                bench.control(decision);
                for _ in 0..2 {
                    assert_eq!(bench.send(side, &next), Dropped(reason), "{what}: {decision}, {tcp_mode}");
                }
                bench.control(back);
                assert_eq!(bench.send(side, &next), Passed, "{what}: {back}, {tcp_mode}");
            }
        }
    }
}

/// Returns a bench after both ends have closed, and the server has opened a connection on the same
/// ports.
fn opened_by_the_server(tcp_mode: &str) -> Bench {
    let rules = "allow out as \"out\"\nallow in to 10.0.0.5 as \"in\"";
    let mut bench = Bench::json(json!({ "rules": rules, "tcp": tcp_mode }));
    for (what, before, _) in flows() {
        if what == "closed, the ports again" {
            before.iter().for_each(|(side, frame)| assert_eq!(bench.send(*side, frame), Passed));
        }
    }
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN, 9_000_000, 0, 0)), Passed);
    assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, SYN | ACK, 7, 9_000_001, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, ACK, 9_000_001, 8, 0)), Passed);
    bench
}

#[test]
fn a_connection_opened_by_the_other_end_is_judged_by_its_own_rule() {
    for tcp_mode in ["loose", "strict"] {
        let data = tcp(SERVER, CLIENT, ACK, 9_000_001, 8, 10);
        let mut bench = opened_by_the_server(tcp_mode);
        bench.control("rule out disable");
        assert_eq!(bench.send(Outside, &data), Passed, "{tcp_mode}");
        bench.control("rule in disable");
        assert_eq!(bench.send(Outside, &data), Dropped(FirewallDefault), "{tcp_mode}");
    }
}

#[test]
fn a_refused_attempt_does_not_affect_the_old_connection() {
    for tcp_mode in ["loose", "strict"] {
        let mut bench = Bench::json(json!({ "rules": "allow out", "tcp": tcp_mode }));
        let (_, before, _) = flows().into_iter().find(|(what, ..)| *what == "closed, a straggler").unwrap();
        before.iter().for_each(|(side, frame)| assert_eq!(bench.send(*side, frame), Passed));
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, SYN, 9_000, 0, 0)), Dropped(FirewallDefault));
        assert_eq!(bench.send(Outside, &tcp(SERVER, CLIENT, FIN | ACK, 501, 102, 0)), Passed);
        assert_eq!(bench.send(Inside, &tcp(CLIENT, SERVER, ACK, 102, 502, 0)), Passed);
    }
}

/// Returns flows, packets and bytes of each rule: the default, rule 1, rule 2, ..., invalid
/// packets.
fn counted(bench: &Bench) -> Vec<(u64, u64, Option<u64>)> {
    let rules = &bench.graph.stages()[0].shared().rules;
    rules.iter().map(|rule| (rule.flows, rule.packets, rule.bytes)).collect()
}

const RULES: &str =
    "allow out udp to any port 53 as \"dns\"\n\ndeny out udp log\nallow in icmp state related";

fn send_queries(bench: &mut Bench) {
    let query = udp((IN, 5353), (OUT, 53));
    for _ in 0..5 {
        assert_eq!(bench.send(Inside, &query), Passed);
        assert_eq!(bench.send(Outside, &udp((OUT, 53), (IN, 5353))), Passed);
    }
    for port in 0..3 {
        assert_eq!(bench.send(Inside, &udp((IN, 5353), (OUT, 100 + port))), Dropped(FirewallDenied));
    }
    assert_eq!(bench.send(Outside, &udp((OUT, 53), (IN, 9))), Dropped(FirewallDefault));
    assert_eq!(bench.send(Outside, &icmp(OUT, IN, 0, 9)), Dropped(DropReason::FirewallInvalid));
}

#[test]
fn rules_count_their_flows_packets_and_bytes() {
    let mut bench = Bench::rules(RULES);
    send_queries(&mut bench);
    let denied = [(3, 3, None), (0, 0, None), (1, 1, None)];
    assert_eq!(
        counted(&bench),
        [&[(1, 1, None), (1, 0, None)][..], &denied].concat(),
        "a flow counts at its end"
    );
    let places: Vec<_> =
        bench.graph.stages()[0].shared().rules.iter().map(|rule| rule.label.to_string()).collect();
    let want = ["default", "rule 1 `dns` (line 1)", "rule 2 (line 3)", "rule 3 (line 4)", "invalid"];
    assert_eq!(places, want);
    // Packets before a command count for the previous rule.
    bench.control("rule dns disable");
    assert_eq!(bench.send(Inside, &udp((IN, 5353), (OUT, 53))), Dropped(FirewallDenied));
    let now_ns = bench.now_ns;
    assert_eq!(counted(&bench)[1..3], [(1, 10, None), (4, 3, None)]);
    bench.graph.finish(&mut bench.pool);
    assert_eq!(counted(&bench)[1..3], [(1, 10, None), (4, 4, None)]);
    let hits: Vec<_> = bench.graph.stages()[0].shared().rules.iter().map(|rule| rule.last_hit_ns).collect();
    assert_eq!((hits[2], hits[3]), (now_ns, 0));
    assert!(hits[1] > 0 && hits[1] < now_ns);
    let alerts = &bench.graph.effects_mut().alerts;
    assert_eq!(alerts.len(), 4);
    assert_eq!(alerts[0].place.as_deref(), Some("line 3"));
    assert_eq!((alerts[0].signature_id, alerts[0].signature.as_ref()), (2, "rule 2"));
}

#[test]
fn count_packets_counts_every_packet() {
    for consolidate in [false, true] {
        let config = json!({ "rules": RULES, "count": "packets" });
        let mut bench = Bench::json(config.clone());
        if consolidate {
            let load = || {
                nf::stage::load::<functions::firewall::Firewall>(
                    crate::firewall_support::config(config.clone()),
                    nf::Setup::new(1, 4096),
                )
            };
            let stages = vec![load().unwrap(), load().unwrap()];
            bench.graph =
                graph::Graph::new(stages, graph::Options { flows_max: 4096, ..Default::default() }).unwrap();
        }
        send_queries(&mut bench);
        let want =
            [(1, 1, Some(32)), (1, 10, Some(320)), (3, 3, Some(96)), (0, 0, Some(0)), (1, 1, Some(28))];
        // Of two firewalls, the inner one does not see packets dropped by the outer one.
        let seen = if consolidate { 1..4 } else { 0..5 };
        assert_eq!(counted(&bench)[seen.clone()], want[seen.clone()], "{consolidate}");
        if consolidate {
            assert!(bench.graph.report().fast_path().packets > 0);
        }
        bench.graph.finish(&mut bench.pool);
        assert_eq!(counted(&bench)[seen.clone()], want[seen], "the end of flows adds nothing");
    }
}

#[test]
fn a_stateless_firewall_counts_every_packet() {
    let mut bench = Bench::json(json!({ "rules": "allow out\nallow in", "stateful": false }));
    for _ in 0..3 {
        assert_eq!(bench.send(Inside, &udp((IN, 5353), (OUT, 53))), Passed);
    }
    assert_eq!(bench.send(Outside, &udp((OUT, 53), (IN, 5353))), Passed);
    assert_eq!(counted(&bench)[1..3], [(0, 3, Some(96)), (0, 1, Some(32))]);
}
