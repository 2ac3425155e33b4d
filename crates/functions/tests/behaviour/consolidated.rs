//! The fast path equals the slow path: packets that follow rules yield the same output and effects
//! as if every function had run (B4).
//!
//! Random graphs of all functions process random traffic and conversations, in batches of any size,
//! with commands in between. Bytes, verdicts, alerts, reports, counters and every flow's state must
//! equal those of the slow path.

use crate::consolidated_support::tunnels::in_tunnel;
use crate::consolidated_support::variations::{age, between, enclose, live, notify, tag};
use crate::meter_support::support::bench::{Arrival, Bench, Outcome};
use crate::meter_support::support::packets::{tagged, tcp, udp, v4};
use crate::meter_support::support::traffic::{START_NS, traffic};
use crate::side_by_side::{self, Order};
use graph::{FastPath, Options, RuleStep, RuleView, WhenFull};
use io::traffic::{
    AddressPrefix, FrameRate, Generator, Payload, Responder, TrafficAddresses, TrafficProfile,
};
use nf::record::RecordHeader;
use nf::stage::Stage;
use nf::{FlowReport, Setup};
use packet::{Direction, Side, TagKind, split_mix};
use proptest::prelude::*;

const FLOWS: u32 = 512;

/// Functions by name and configuration, each with commands.
pub type Function = (&'static str, &'static str, &'static [&'static str]);

const FUNCTIONS: &[Function] = &[
    ("nat", r#"{"external": ["198.51.100.7"]}"#, &["drain 198.51.100.7", "resume 198.51.100.7"]),
    (
        "nat",
        r#"{"external": ["198.51.100.1-198.51.100.2"], "filtering": "address_and_port_dependent",
            "forwards": [{"protocol": "both", "external": "198.51.100.1:53", "internal": "10.0.0.3:53"}]}"#,
        &[],
    ),
    (
        "lb",
        r#"{"services": [{"name": "web", "vip": "198.18.0.1", "servers": [
            {"name": "one", "address": "198.51.100.11"}, {"name": "two", "address": "198.51.100.12", "weight": 2}]}]}"#,
        &["server one down", "server one up", "server two drain", "weight two 1", "server two up"],
    ),
    (
        "lb",
        r#"{"services": [{"name": "dns", "vip": "192.0.2.1", "mode": "ipip", "servers": [
            {"name": "far", "address": "198.51.100.21"}]}], "tunnel": {"source4": "192.0.2.254"}}"#,
        &["server far down", "server far up"],
    ),
    (
        "firewall",
        r#"{"rules": "allow out\nallow in udp"}"#,
        &["rule 1 disable", "rule 1 enable", "default allow"],
    ),
    ("firewall", r#"{"rules": "deny out tcp to any port 53\nallow", "tcp": "strict"}"#, &["rule 1 disable"]),
    (
        "firewall",
        r#"{"rules": "allow", "stateful": false, "default": "reject"}"#,
        &["rule 1 disable", "rule 1 enable"],
    ),
    ("monitor", r#"{"active_timeout": "20ms"}"#, &[]),
    ("monitor", r#"{"sample": 2}"#, &[]),
    (
        "policer",
        r#"{"rate": "20kbps", "yellow": {"remark": "af12"}, "burst": "2KB", "excess_burst": "2KB"}"#,
        &["rate 100kbps"],
    ),
    ("whitelist", r#"{"protect": "inside"}"#, &[]),
    ("http", r#"{"methods": ["GET", "POST"], "anomalies": "alert"}"#, &[]),
    ("redundancy", r#"{"window": 16, "sample": 16, "events_from": 1}"#, &[]),
    ("dos", r#"{"packets": 9}"#, &[]),
    (
        "dos",
        r#"{"protect": "outside", "flow_rate": "50pps", "flow_burst": 4, "syns": 2, "alert_every": "100ms"}"#,
        &[],
    ),
    (
        "dos",
        r#"{"packets": 20, "flow_rate": "1pps", "connections": 3, "sources": 2, "when_full": "drop"}"#,
        &[],
    ),
    ("dos", r#"{"protect": "outside", "syns": 1, "connections": 10, "alert_every": 0}"#, &[]),
    ("tunnel", r#"{"protocol": "gre", "local": "192.0.2.5", "remote": "192.0.2.4", "mtu": 1350}"#, &[]),
    (
        "tunnel",
        r#"{"protocol": "vxlan", "vni": 7, "local": "2001:db8::5", "remote": "2001:db8::4", "dscp": 46,
            "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02", "others": "pass"}"#,
        &[],
    ),
    ("remark", "{}", &[]),
    ("stamp", "{}", &[]),
    ("hop", "{}", &[]),
    ("enter", "{}", &[]),
    ("leave", "{}", &[]),
    ("tag", "{}", &[]),
    ("tag", r#"{"predicts": true}"#, &[]),
    ("untag", "{}", &[]),
    ("untag", r#"{"labels": true}"#, &[]),
    ("untag", r#"{"even": true}"#, &[]),
    ("untag", r#"{"labels": true, "even": true}"#, &[]),
    ("probe", r#"{"alerts": true}"#, &[]),
    ("probe", r#"{"reads_payload": true, "reads_dscp": true, "predicts": true}"#, &[]),
    ("probe", r#"{"writes_payload": true, "alerts": true, "predicts": true}"#, &[]),
    ("sharing-probe", r#"{"reads_payload": true, "alerts": true}"#, &[]),
    (
        "firewall",
        r#"{"rules": "allow out\nreject out udp to any port 1-30000\nallow in udp", "default": "reject"}"#,
        &["rule 1 disable", "rule 1 enable"],
    ),
    (
        "ids",
        r#"{"rules": "reject ip any any -> any any (msg:\"long\"; dsize:>300; sid:1;)\nreject tcp any any -> any any (msg:\"text\"; content:\"e\"; sid:2;)", "mode": "prevent"}"#,
        &[],
    ),
    ("tcp-mss", r#"{"max": 1000}"#, &[]),
    (
        "mirror",
        r#"{"source": "198.51.100.1", "collector": "198.51.100.2", "protocol": "erspan3", "session": 3}"#,
        &[],
    ),
    (
        "mirror",
        r#"{"source": "198.51.100.1", "collector": "198.51.100.2", "vni": 3, "first": 4, "side": "inside"}"#,
        &[],
    ),
    ("mark", MARKS, &[]),
    ("mark", r#"{"rules": "vlan 9 in\npop_vlan out from 10.0.0.0/9\npcp 3 dscp 7"}"#, &[]),
];

/// Rules that differ by direction, ends and protocol.
const MARKS: &str = r#"{"rules": "keep out udp\ndscp ef push_vlan 7 pcp 5 tenant 3 out\ndscp 1 in tcp from any port 1-30000"}"#;

/// Path of packets through a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Walking,
    /// On the fast path.
    InOrder,
    /// On the fast path, with commuting state functions in parallel.
    SideBySide(Order),
}

fn stages(functions: &[Function]) -> Vec<Box<dyn Stage>> {
    let registry = crate::consolidated_support::registry();
    let make = |&(name, config, _): &Function| {
        let config = serde_json::from_str(config).unwrap();
        let entry = registry.find(name).unwrap();
        let mut setup = Setup::new(7, FLOWS);
        setup.inner = true; // Tunnels need it, even where they are never reached.
        entry.make(&config, setup).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    functions.iter().map(make).collect()
}

/// Creates a graph of these functions.
fn bench(functions: &[Function], options: Options, how: How) -> Bench {
    let mut bench = Bench::new(stages(functions), Options { consolidate: how != How::Walking, ..options });
    if let How::SideBySide(order) = how {
        bench.graph.run_side_by_side(side_by_side::in_order(order)).unwrap();
    }
    bench
}

/// Outcome of traffic.
struct Played {
    outcome: Outcome,
    /// Flow reports, in order.
    reports: Vec<FlowReport>,
    followed: Followed,
}

/// Use of the fast path.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    /// Counters of paths.
    pub path: FastPath,
    /// Rules that decapsulate at the end of the traffic.
    pub taking_off: usize,
}

/// Plays traffic in batches with occasional commands, determined by the seed.
fn play(
    functions: &[Function],
    options: Options,
    (traffic, how): (&[Arrival], How),
    mut seed: u64,
) -> Played {
    let mut bench = bench(functions, options, how);
    let mut rest = traffic;
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(rest.len().min(1 + split_mix(&mut seed) as usize % 70));
        bench.batch(batch);
        rest = behind;
        let at = split_mix(&mut seed) as usize % functions.len();
        let commands = functions[at].2;
        if split_mix(&mut seed).is_multiple_of(4) && !commands.is_empty() {
            let command = commands[split_mix(&mut seed) as usize % commands.len()];
            let _ = bench.graph.stage_mut(at).unwrap().control(command);
        }
    }
    let takes_off = |step: &RuleStep| matches!(step, RuleStep::Decap(..) | RuleStep::PopTag(..));
    let rules = (0..options.flows_max)
        .flat_map(|record| [Direction::Original, Direction::Reply].map(|direction| (record, direction)))
        .filter_map(|(record, direction)| bench.graph.flows().rule(record, direction));
    let taking_off = rules.filter(|rule| rule.steps.iter().any(takes_off)).count();
    let followed = Followed { path: bench.graph.report().fast_path(), taking_off };
    let reports = bench.reports.clone();
    // A record refers to a growing buffer by a number, which may differ.
    let buffered = bench.graph.stages().iter().any(|stage| stage.descriptor().buffers.is_some());
    let mut outcome = bench.outcome();
    if buffered {
        outcome.flows.iter_mut().for_each(|(_, bytes)| bytes.truncate(size_of::<RecordHeader>()));
    }
    Played { outcome, reports, followed }
}

/// Plays traffic on the slow path, on the fast path, and on the fast path with commuting functions
/// in parallel. Returns the number of packets on the fast path.
fn check(functions: &[Function], options: Options, traffic: &[Arrival], seed: u64) -> u64 {
    check_all(functions, options, traffic, seed).path.packets
}

/// Does the same, and returns the last outcome.
pub fn check_all(functions: &[Function], options: Options, traffic: &[Arrival], seed: u64) -> Followed {
    let walking = play(functions, options, (traffic, How::Walking), seed);
    let in_order = play(functions, options, (traffic, How::InOrder), seed);
    let order = Order::ALL[seed as usize % Order::ALL.len()];
    let beside = play(functions, options, (traffic, How::SideBySide(order)), seed);
    assert_eq!((walking.followed.path.packets, walking.followed.taking_off), (0, 0));
    assert_eq!(in_order.followed.path.beside, 0);
    assert_eq!(beside.followed.path.packets, in_order.followed.path.packets);
    compare(&in_order.outcome, &walking.outcome, functions);
    compare(&beside.outcome, &walking.outcome, functions);
    assert_eq!(in_order.reports, walking.reports, "flow reports are in the order of packets");
    assert_eq!(beside.reports, in_order.reports, "flow reports are in the order of packets");
    beside.followed
}

fn compare(short: &Outcome, plain: &Outcome, functions: &[Function]) {
    let names = || functions.iter().map(|&(name, config, _)| format!("{name} {config}")).collect::<Vec<_>>();
    for (a, b) in short.sent.iter().zip(&plain.sent) {
        assert_eq!(a, b, "{:#?}", names());
    }
    assert_eq!(short.told, plain.told, "{:#?}", names());
    for ((record, a), (_, b)) in short.flows.iter().zip(&plain.flows) {
        let differ: Vec<usize> = (0..a.len().min(b.len())).filter(|&i| a[i] != b[i]).collect();
        assert!(a == b, "record {record} differs at {differ:?}: {:#?}", names());
    }
    assert!(short == plain, "{:#?}\n{short:#?}\n{plain:#?}", names());
}

fn graph_of(mut seed: u64) -> Vec<Function> {
    let count = 1 + split_mix(&mut seed) as usize % 6;
    (0..count).map(|_| FUNCTIONS[split_mix(&mut seed) as usize % FUNCTIONS.len()]).collect()
}

pub fn options(bits: u8) -> Options {
    Options {
        flows_max: if bits & 1 != 0 { 5 } else { FLOWS },
        when_full: if bits & 2 != 0 { WhenFull::RefuseNew } else { WhenFull::EvictOldest },
        inner: bits & 4 != 0,
        ..Options::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_packets_through_random_graphs(mut traffic in traffic(120), seed: u64, bits: u8) {
        age(&mut traffic, seed);
        if bits & 8 != 0 {
            enclose(&mut traffic, seed);
        }
        tag(&mut traffic, seed);
        check(&graph_of(seed), options(bits), &traffic, seed);
    }
}

/// Conversations with servers that answer the slow path's output.
pub fn conversations(functions: &[Function], seed: u64, payload: Payload) -> Vec<Arrival> {
    let profile = TrafficProfile {
        seed,
        start_ns: START_NS,
        packets: Some(800),
        flows: 12,
        rate: FrameRate::PacketsPerSecond(400.0),
        addresses: TrafficAddresses {
            servers_v4: AddressPrefix { address: [198, 18, 0, 0].into(), length: 30 },
            ..TrafficAddresses::default()
        },
        payload,
        replies: false,
        ..TrafficProfile::default()
    };
    let mut plain = Bench::new(stages(functions), Options { consolidate: false, ..options(0) });
    let mut responder = Responder::new(profile.answer);
    let mut generator = Generator::new(&profile).unwrap();
    let mut arrivals = vec![];
    while let Some(frame) = generator.next() {
        let mut next = vec![Arrival {
            at_ns: frame.timestamp_ns,
            side: Side::Inside,
            network: frame.data[14..].to_vec(),
        }];
        while let Some(arrival) = next.pop() {
            let before = plain.sent.len();
            plain.batch(std::slice::from_ref(&arrival));
            for (_, _, sent) in plain.sent[before..].iter().filter(|(_, side, _)| *side == Side::Outside) {
                let answers = responder.respond(sent).ok();
                next.extend(answers.map(|answer| Arrival {
                    at_ns: arrival.at_ns,
                    side: Side::Outside,
                    network: answer[14..].to_vec(),
                }));
            }
            arrivals.push(arrival);
        }
    }
    arrivals
}

#[test]
fn conversations_through_random_graphs() {
    let mut seed = 1;
    let (mut followed, mut all) = (0, 0);
    for case in 0..120 {
        let seed = split_mix(&mut seed);
        let functions = graph_of(seed);
        let payload = if case % 2 == 0 { Payload::Random } else { Payload::Http };
        let mut traffic = conversations(&functions, seed, payload);
        age(&mut traffic, seed);
        if case % 4 == 0 {
            tag(&mut traffic, seed);
        }
        if case % 3 == 0 {
            // As if both ends were at one port.
            traffic.iter_mut().for_each(|arrival| arrival.side = Side::Inside);
        }
        followed += check(&functions, options(0), &traffic, seed);
        all += traffic.len() as u64;
    }
    assert!(followed * 6 > all, "{followed} of {all} packets took the fast path: too few to show anything");
}

/// Conversations in tunnels, and with tags and labels, that functions remove in front of others.
/// Rules remove them from packets with the same headers (B11, B14); other packets take the slow
/// path.
#[test]
fn conversations_that_come_through_tunnels() {
    let in_front: [Function; 7] = [
        FUNCTIONS[16],
        FUNCTIONS[17],
        ("leave", "{}", &[]),
        ("untag", "{}", &[]),
        ("untag", r#"{"labels": true}"#, &[]),
        ("untag", r#"{"even": true}"#, &[]),
        ("untag", r#"{"labels": true, "even": true}"#, &[]),
    ];
    let mut seed = 1;
    let (mut followed, mut taking_off, mut all) = (0, 0, 0);
    for case in 0..150u64 {
        let seed = split_mix(&mut seed);
        let mut functions = graph_of(seed);
        let taking = in_front[case as usize % in_front.len()];
        let mut traffic = conversations(&[("monitor", "{}", &[])], seed, Payload::Random);
        age(&mut traffic, seed);
        for Arrival { network, side, .. } in &mut traffic {
            let own =
                split_mix(&mut { seed ^ u64::from(network[network.len() - 1]) << 32 ^ network.len() as u64 });
            match taking.0 {
                "tunnel" if *side == Side::Inside => {}
                "untag" => {}
                _ => {
                    // Headers that the configured tunnel decapsulates, or common headers of all
                    // hosts of a pair.
                    let kind = match taking {
                        _ if taking == FUNCTIONS[16] => 0,
                        _ if taking == FUNCTIONS[17] => 1,
                        _ => between(network, seed),
                    };
                    notify(network, [2, 2, 1, 0][own as usize >> 4 & 3]);
                    *network = in_tunnel(kind, own, network);
                }
            }
        }
        if taking.0 == "untag" || case % 3 == 0 {
            tag(&mut traffic, seed);
        }
        // Packets from the tunnel reach the last function first.
        match taking.0 {
            "tunnel" => functions.push(taking),
            _ => functions.insert(0, taking),
        }
        let done = check_all(&functions, options(4), &traffic, seed);
        followed += done.path.packets;
        taking_off += done.taking_off;
        all += traffic.len() as u64;
    }
    assert!(followed * 6 > all, "{followed} of {all} packets took the fast path: too few to show anything");
    assert!(taking_off > 200, "{taking_off} rules take something off: too few to show anything");
}

/// SpeedyBox's first real chain (B34), and packets that are dropped on the fast path.
#[test]
fn most_packets_of_speedybox_chain_1_take_the_fast_path() {
    let real = [FUNCTIONS[0], FUNCTIONS[2], FUNCTIONS[7], FUNCTIONS[4]]
        .map(|(name, config, _)| (name, config, &[][..]));
    let traffic = conversations(&real, 5, Payload::Random);
    let followed = check(&real, options(0), &traffic, 5);
    assert!(followed * 2 > traffic.len() as u64, "{followed} of {}", traffic.len());
}

/// Both ends are at one port, so both directions of a flow, each with its own rule, meet in a
/// group. They keep their order.
#[test]
fn directions_with_rules_of_their_own_keep_their_order() {
    let graph = [("remark", "{}", &[][..]), FUNCTIONS[7]];
    let mut traffic = conversations(&graph, 5, Payload::Random);
    traffic.iter_mut().for_each(|arrival| arrival.side = Side::Inside);
    let followed = check(&graph, options(0), &traffic, 5);
    assert!(followed * 2 > traffic.len() as u64, "{followed} of {}", traffic.len());
}

/// If all functions plan their actions, rules are built from the plans, and hardly any packet is
/// recorded.
#[test]
fn planned_actions_are_not_recorded() {
    let graph =
        [FUNCTIONS[0], FUNCTIONS[2], FUNCTIONS[7], ("dos", r#"{"packets": 1000}"#, &[]), FUNCTIONS[4]]
            .map(|(name, config, _)| (name, config, &[][..]));
    let traffic = conversations(&graph, 5, Payload::Random);
    check(&graph, options(0), &traffic, 5);
    let mut bench = Bench::new(stages(&graph), options(0));
    traffic.chunks(32).for_each(|batch| bench.batch(batch));
    let path = bench.graph.report().fast_path();
    assert!(path.predicted > 50 && path.recorded * 20 < path.predicted, "{path:?}");
}

/// After a command, plans are made again (B7). Flows that the command does not concern continue on
/// rules, which have no events.
#[test]
fn plans_are_made_again_after_a_command() {
    let graph = [FUNCTIONS[0], FUNCTIONS[2], FUNCTIONS[7], FUNCTIONS[4]];
    let traffic = conversations(&graph, 5, Payload::Random);
    let run = |command: Option<&str>| {
        let mut bench = Bench::new(stages(&graph), options(0));
        for batch in traffic.chunks(32) {
            if let Some(command) = command {
                bench.graph.stage_mut(1).unwrap().control(command).unwrap();
            }
            bench.batch(batch);
        }
        let rules = (0..FLOWS).filter_map(|record| bench.graph.flows().rule(record, Direction::Original));
        assert!(rules.into_iter().all(|rule| rule.events.is_empty()));
        bench.graph.report().fast_path()
    };
    let (undisturbed, commanded) = (run(None), run(Some("weight two 1")));
    assert!(commanded.predicted > undisturbed.predicted + 20, "{undisturbed:?}, {commanded:?}");
    let all_but_few = commanded.packets * 20 > undisturbed.packets * 19;
    assert!(all_but_few && commanded.recorded <= undisturbed.recorded, "{undisturbed:?}, {commanded:?}");
}

/// State functions on the fast path block flows (B7), and then the drops follow rules too.
#[test]
fn blocked_flows_take_the_fast_path() {
    for limit in [r#""packets": 9"#, r#""flow_rate": "5pps", "flow_burst": 5"#] {
        let config = format!(r#"{{"protect": "outside", {limit}}}"#);
        let blocking: &'static str = config.leak();
        let graph = [FUNCTIONS[0], ("dos", blocking, &[]), FUNCTIONS[7]];
        let traffic = conversations(&[("monitor", "{}", &[])], 5, Payload::Random);
        let followed = check(&graph, options(0), &traffic, 5);
        assert!(followed * 3 > traffic.len() as u64, "{limit}: {followed} of {}", traffic.len());
        let mut bench = Bench::new(stages(&graph), options(0));
        traffic.chunks(32).for_each(|batch| bench.batch(batch));
        assert!(bench.drops().iter().any(|&(reason, count)| reason == "dos-flow" && count > 20));
        // A packet that will be dropped is not rewritten first (B13).
        let rules = (0..FLOWS).filter_map(|record| bench.graph.flows().rule(record, Direction::Original));
        let drops = |rule: &RuleView| matches!(rule.steps.last(), Some(RuleStep::Drop(1, _)));
        let (dropping, passing): (Vec<_>, Vec<_>) = rules.partition(drops);
        let rewrites = |rule: &RuleView| rule.steps.iter().any(|step| matches!(step, RuleStep::SetEnds(_)));
        assert!(!dropping.is_empty() && !dropping.iter().any(rewrites), "{dropping:?}");
        assert!(passing.iter().any(rewrites), "{passing:?}");
    }
}

/// A function that marks or decapsulates each packet differently sees all of them, and the other
/// functions of its graph follow rules.
#[test]
fn packets_that_a_function_handles_one_by_one_take_the_fast_path() {
    for varying in [("stamp", "{}", &[][..]), ("hop", "{}", &[]), ("leave", "{}", &[])] {
        let graph = [("monitor", "{}", &[][..]), ("remark", "{}", &[]), varying, FUNCTIONS[4]];
        let (client, vip) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
        let packet = |number: u64| Arrival {
            at_ns: START_NS + number * 1_000_000,
            side: Side::Inside,
            network: tcp(client, vip, 0x10, &vec![0; number as usize * 14]),
        };
        let traffic: Vec<_> = (0..100).map(packet).collect();
        let followed = check(&graph, options(0), &traffic, 5);
        assert!(followed > 50, "{}: {followed}", varying.0);
    }
}

/// Returns the steps of rules for packets of one flow, which have 40 to 376 bytes.
fn steps_of(graph: &[Function]) -> Vec<RuleStep> {
    steps(graph, How::InOrder, |network, _| network)
}

/// Returns the same with commuting functions in parallel.
pub fn steps_side_by_side(graph: &[Function]) -> Vec<RuleStep> {
    steps(graph, How::SideBySide(Order::HereFirst), |network, _| network)
}

/// Returns the same in order, with packets transformed by `as_it_comes`, given the packet and its
/// number.
fn steps_of_packets(graph: &[Function], as_it_comes: impl Fn(Vec<u8>, u64) -> Vec<u8>) -> Vec<RuleStep> {
    steps(graph, How::InOrder, as_it_comes)
}

fn steps(graph: &[Function], how: How, as_it_comes: impl Fn(Vec<u8>, u64) -> Vec<u8>) -> Vec<RuleStep> {
    let (client, vip) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let packet = |number: u64| Arrival {
        at_ns: START_NS + number * 1_000_000,
        side: Side::Inside,
        network: as_it_comes(tcp(client, vip, 0x10, &vec![7; number as usize % 25 * 14]), number),
    };
    let traffic: Vec<_> = (0..200).map(packet).collect();
    let mut bench = bench(graph, options(4), how);
    traffic.chunks(32).for_each(|batch| bench.batch(batch));
    let followed = check(graph, options(4), &traffic, 5);
    assert!(followed > 100, "{followed}: {graph:?}");
    bench.graph.flows().rule(0, Direction::Original).unwrap().steps
}

/// A function that only forwards leaves no action (B12). Of several rewrites of a field the last
/// remains, and checksums are adjusted once (B15, B16).
#[test]
fn forwarding_vanishes_and_rewrites_become_one() {
    let first: Function = ("nat", r#"{"external": ["198.51.100.7"], "tcp_opens_with": "any"}"#, &[]);
    let second: Function = ("nat", r#"{"external": ["198.51.100.8"], "tcp_opens_with": "any"}"#, &[]);
    let forwards: Function = (
        "nat",
        r#"{"external": ["198.51.100.9"], "inside": ["172.16.0.0/12"], "untranslated": "pass"}"#,
        &[],
    );
    let steps = steps_of(&[first, forwards, second]);
    let rewrites: Vec<_> = steps.iter().filter(|step| matches!(step, RuleStep::SetEnds(_))).collect();
    let [RuleStep::SetEnds(ends)] = rewrites[..] else { panic!("{steps:?}") };
    let addresses: Vec<_> = ends.iter().map(|(_, end)| end.addr).collect();
    assert_eq!(addresses, [v4(198, 51, 100, 8, 0).addr], "{steps:?}");
    let passes = (0..3).map(RuleStep::Pass);
    assert!(passes.eq(steps.iter().filter(|step| !rewrites.contains(step)).cloned()), "{steps:?}");
}

/// A FIN or a reset ends the rules of both directions of its flow (B10).
#[test]
fn a_fin_or_a_reset_ends_the_rules_of_its_flow() {
    let (client, server) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    for flags in [0x11, 0x14] {
        let mut bench = Bench::new(stages(&[("monitor", "{}", &[]), ("remark", "{}", &[])]), options(0));
        let rules = |bench: &Bench| {
            [Direction::Original, Direction::Reply]
                .map(|direction| bench.graph.flows().rule(0, direction).is_some())
        };
        for number in 0..100 {
            let at_ns = START_NS + number * 1_000_000;
            bench.one(at_ns, Side::Inside, &tcp(client, server, 0x10, b"ask"));
            bench.one(at_ns, Side::Outside, &tcp(server, client, 0x10, b"answer"));
        }
        assert_eq!(rules(&bench), [true; 2]);
        bench.one(START_NS + 100_000_000, Side::Inside, &tcp(client, server, flags, b""));
        assert_eq!(rules(&bench), [false; 2], "flags {flags:#x}");
    }
}

/// A rule adds a function's outer headers in its place; packets that are too long take the slow
/// path.
#[test]
fn rules_encapsulate_packets() {
    for of in [FUNCTIONS[3], ("enter", "{}", &[])] {
        let steps = steps_of(&[("monitor", "{}", &[]), of, FUNCTIONS[7]]);
        assert!(steps.iter().any(|step| matches!(step, RuleStep::Encap(1, ..))), "{steps:?}");
        assert!(!steps.contains(&RuleStep::Process(1)), "{steps:?}");
    }
}

/// A rule decapsulates packets with the same outer headers (B11, B14).
#[test]
fn rules_decapsulate_packets() {
    let (leave, remark): (Function, Function) = (("leave", "{}", &[]), ("remark", "{}", &[]));
    for kind in 0..6 {
        let steps = steps_of_packets(&[FUNCTIONS[7], leave, remark], |mut network, number| {
            notify(&mut network, 2);
            in_tunnel(kind, number, &network)
        });
        assert!(steps.iter().any(|step| matches!(step, RuleStep::Decap(1, 20..))), "{kind}: {steps:?}");
        assert!(!steps.iter().any(|step| matches!(step, RuleStep::Process(_))), "{kind}: {steps:?}");
    }
    let twice = steps_of_packets(&[FUNCTIONS[7], leave], |network, number| in_tunnel(7, number, &network));
    assert!(twice.contains(&RuleStep::Process(1)), "it sees every packet of nested tunnels: {twice:?}");
    let (vlan, label): (Function, Function) = (("untag", "{}", &[]), ("untag", r#"{"labels": true}"#, &[]));
    for count in 0..3 {
        let graph = [FUNCTIONS[7], vlan, label, vlan, remark];
        let steps = steps_of_packets(&graph, |network, _| {
            tagged(&[[0x81, 0, 0x20, 1], [0x81, 0, 0, 2]][..count], &[[0, 1, 1, 64]], &network)
        });
        let off = |stage, kind| steps.contains(&RuleStep::PopTag(stage, kind));
        assert_eq!([off(1, TagKind::Vlan), off(3, TagKind::Vlan)], [count > 0, count > 1], "{steps:?}");
        assert!(off(2, TagKind::Label) && !steps.iter().any(|step| matches!(step, RuleStep::Process(_))));
    }
}

/// A flow gets another rule when its outer headers change.
#[test]
fn rules_follow_changes_of_outer_headers() {
    let leave: Function = ("leave", "{}", &[]);
    for kinds in [[0, 2], [4, 1], [5, 4]] {
        let graph = [FUNCTIONS[7], leave];
        let packet = |number: u64| Arrival {
            at_ns: START_NS + number * 1_000_000,
            side: Side::Inside,
            network: in_tunnel(
                kinds[usize::from(number >= 200)],
                number,
                &udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), b"x"),
            ),
        };
        let traffic: Vec<_> = (0..400).map(packet).collect();
        let done = check_all(&graph, options(4), &traffic, 5);
        assert!((200..380).contains(&done.path.packets), "{kinds:?}: {done:?}");
    }
}

/// Outer headers that are removed again are not added (B14), unless a function reads them in
/// between.
#[test]
fn outer_headers_cancel() {
    let (enter, leave): (Function, Function) = (("enter", "{}", &[]), ("leave", "{}", &[]));
    let (remark, monitor): (Function, Function) = (("remark", "{}", &[]), ("monitor", "{}", &[]));
    for graph in
        [&[enter, leave][..], &[monitor, enter, remark, leave, monitor], &[enter, leave, enter, leave]]
    {
        let steps = steps_of(graph);
        let cancelled = steps.iter().filter(|step| matches!(step, RuleStep::Cancelled(..))).count();
        assert_eq!(cancelled, graph.iter().filter(|function| function.0 == "enter").count(), "{steps:?}");
        assert!(
            !steps.iter().any(|step| matches!(step, RuleStep::Encap(..) | RuleStep::Process(_))),
            "{steps:?}"
        );
    }
    let steps = steps_of(&[enter, monitor, leave]);
    assert!(matches!(steps[..], [_, RuleStep::Encap(0, ..), _, RuleStep::Process(2)]), "{steps:?}");
}

/// Rules add tags in place of functions, planned or not, and add none that are removed before a
/// function reads them (B14).
#[test]
fn rules_add_tags_and_cancel_them() {
    let (remark, monitor): (Function, Function) = (("remark", "{}", &[]), ("monitor", "{}", &[]));
    let untag: Function = ("untag", r#"{"labels": true}"#, &[]);
    for config in ["{}", r#"{"predicts": true}"#] {
        let tag: Function = ("tag", config, &[]);
        let steps = steps_of(&[monitor, tag]);
        assert!(matches!(steps[..], [.., RuleStep::PushTag(1, _)]), "{steps:?}");
        let steps = steps_of(&[tag, remark, untag, untag]); // This flow gets two labels.
        assert!(steps.iter().any(|step| matches!(step, RuleStep::Cancelled(0, 4))), "{steps:?}");
        assert!(
            !steps.iter().any(|step| matches!(step, RuleStep::Process(_) | RuleStep::PushTag(..))),
            "{steps:?}"
        );
        let steps = steps_of(&[tag, monitor, untag]);
        assert!(matches!(steps[..], [_, RuleStep::PushTag(0, _), .., RuleStep::Process(2)]), "{steps:?}");
    }
}

/// Packets of a flow that leaves with a tag return with it, and those of a flow that leaves a
/// tunnel return without: they belong to the flow, with or without rules.
#[test]
fn replies_have_the_tags_of_the_packets_they_answer() {
    let server = v4(192, 0, 2, 1, 53);
    let mut tagged = 0;
    for port in 1000..1020 {
        let mut bench = Bench::new(stages(&[("tag", "{}", &[]), FUNCTIONS[7]]), options(0));
        let client = v4(10, 0, 0, 1, port);
        let asked = udp(client, server, b"ask");
        bench.through(START_NS, Side::Inside, &asked);
        let frame = bench.sent[0].2.clone();
        let tags = &frame[12..frame.len() - asked.len()];
        tagged += u32::from(tags.len() > 2);
        let answered = [tags, &udp(server, client, b"answer")].concat();
        for _ in 0..20 {
            bench.through(START_NS, Side::Outside, &answered);
        }
        assert_eq!(bench.graph.counters().flows_started, 1, "{tags:02x?}");
    }
    assert_eq!(tagged, 20);
    let mut bench = Bench::new(stages(&[("leave", "{}", &[]), FUNCTIONS[7]]), options(4));
    let (client, inside) = (v4(10, 0, 0, 1, 1000), udp(v4(10, 0, 0, 1, 1000), server, b"ask"));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 0][..], &inside].concat();
    let outer = udp(v4(192, 0, 2, 4, 50_000), v4(192, 0, 2, 5, 4789), &vxlan);
    assert_eq!(bench.through(START_NS, Side::Inside, &outer), inside);
    bench.through(START_NS, Side::Outside, &udp(server, client, b"answer"));
    assert_eq!(bench.graph.counters().flows_started, 1);
}

/// A function counts the bytes of packets as it receives them, regardless of batches and of other
/// packets' fate: after the start of a tunnel, with the outer header.
#[test]
fn bytes_are_counted_as_a_function_receives_them() {
    let graph =
        [FUNCTIONS[3], ("firewall", r#"{"rules": "deny out tcp to any port 99\nallow"}"#, &[]), FUNCTIONS[7]];
    let at_ns = START_NS;
    let packet = |port: u16, to: u16| Arrival {
        at_ns,
        side: Side::Inside,
        network: tcp(v4(10, 0, 0, 1, port), v4(192, 0, 2, 1, to), 0x10, b"data"),
    };
    let traffic: Vec<_> = (0..64).map(|i| packet(1000 + i % 8, if i % 8 == 3 { 99 } else { 53 })).collect();
    for of in [1, 7, 64] {
        let mut bench = Bench::new(stages(&graph), Options { consolidate: false, ..options(0) });
        traffic.chunks(of).for_each(|batch| bench.batch(batch));
        let bytes: Vec<_> = bench.graph.stages().iter().map(|stage| stage.counters().bytes).collect();
        let (len, outer) = (14 + 20 + 20 + 4, 20);
        assert_eq!(bytes, [64 * len, 64 * (len + outer), 56 * (len + outer)], "in batches of {of}");
    }
}

/// A flow is moved by a packet that is dropped after the load balancer, so that its alias stays.
/// Packets from the lost server are no longer answers, although their rule was built before.
#[test]
fn a_dropped_packet_can_move_its_flow() {
    let policer = r#"{"rate": "8kbps", "burst": "800B"}"#;
    let (vip, one) = (v4(198, 18, 0, 1, 80), v4(198, 51, 100, 11, 80));
    let run = |consolidate| {
        let functions: [Function; 4] = [FUNCTIONS[2], ("policer", policer, &[]), FUNCTIONS[7], FUNCTIONS[7]];
        let mut bench = Bench::new(stages(&functions), Options { consolidate, ..options(0) });
        let said = |bench: &mut Bench, side, network: &[u8]| bench.one(START_NS, side, network);
        let clients: Vec<_> = (1000..1012).map(|port| v4(10, 0, 0, 1, port)).collect();
        let mut sent = vec![];
        for &client in &clients {
            for flags in [2, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10] {
                sent.push(said(&mut bench, Side::Inside, &tcp(client, vip, flags, b"")));
                let answer = if flags == 2 { 0x12 } else { 0x10 };
                sent.push(said(&mut bench, Side::Outside, &tcp(one, client, answer, b"")));
            }
        }
        bench.graph.stage_mut(0).unwrap().control("server one down").unwrap();
        for &client in &clients {
            let moving = said(&mut bench, Side::Inside, &tcp(client, vip, 0x10, &[0; 900]));
            assert!(moving.is_empty(), "the policer drops it");
            sent.push(said(&mut bench, Side::Outside, &tcp(one, client, 0x10, b"")));
        }
        (sent, bench.graph.report().fast_path().packets)
    };
    let ((plain, _), (fast, followed)) = (run(false), run(true));
    assert_eq!(fast, plain);
    assert!(followed > 0);
}

/// Failure to build rules for a record's previous flows says nothing about its current flow.
#[test]
fn a_reused_record_starts_fresh() {
    let options = Options { flows_max: 1, when_full: WhenFull::EvictOldest, ..options(0) };
    let mut bench = Bench::new(stages(&[FUNCTIONS[1], FUNCTIONS[7]]), options);
    let (mapped, at_ns) = (v4(198, 51, 100, 1, 53), START_NS);
    for port in 0..10 {
        bench.one(at_ns, Side::Inside, &udp(v4(10, 0, 0, 3, 53), v4(192, 0, 2, 1, 1000 + port), b"x"));
    }
    for port in 0..10 {
        bench.one(at_ns, Side::Outside, &udp(v4(192, 0, 2, 1, 2000 + port), mapped, b"x"));
    }
    let before = bench.graph.report().fast_path().packets;
    for _ in 0..100 {
        bench.one(at_ns, Side::Inside, &udp(v4(10, 0, 0, 3, 53), v4(192, 0, 2, 2, 9), b"x"));
    }
    assert!(bench.graph.report().fast_path().packets - before > 80);
}

/// Packets from a lost server no longer belong to the flow once a packet has moved it, even in the
/// same batch, and even if client and server are on one side.
#[test]
fn a_flow_is_moved_within_a_batch() {
    let clients: Vec<_> = (1000..1008).map(|port| v4(10, 0, 0, 1, port)).collect();
    let (vip, one) = (v4(198, 18, 0, 1, 80), v4(198, 51, 100, 11, 80));
    let run = |batch_len| {
        let mut bench = Bench::new(stages(&FUNCTIONS[2..3]), Options { consolidate: false, ..options(0) });
        let say = |bench: &mut Bench, asked: u8, answered: u8| {
            let both = clients
                .iter()
                .flat_map(|&client| [tcp(client, vip, asked, b"x"), tcp(one, client, answered, b"x")]);
            let at_ns = START_NS;
            let arrivals: Vec<_> =
                both.map(|network| Arrival { at_ns, side: Side::Inside, network }).collect();
            arrivals.chunks(batch_len).for_each(|batch| bench.batch(batch));
        };
        say(&mut bench, 2, 0x12);
        say(&mut bench, 0x10, 0x10);
        bench.graph.stage_mut(0).unwrap().control("server one down").unwrap();
        say(&mut bench, 0x10, 0x10);
        bench.outcome()
    };
    assert_eq!(run(64), run(1));
}

/// A NAT turns a packet back to a host on its own side, and also the ICMP error of a router between
/// them.
#[test]
fn an_error_about_a_packet_that_was_turned_back_comes_to_its_sender() {
    let mut bench = Bench::new(stages(&[("hop", "{}", &[]), FUNCTIONS[1]]), options(0));
    let client = v4(10, 0, 0, 1, 1000);
    let mut network = udp(client, v4(198, 51, 100, 1, 53), b"question");
    live(&mut network, 2);
    let sent = bench.one(START_NS, Side::Inside, &network);
    let [(Side::Inside, frame)] = &sent[..] else { panic!("{sent:?}: {:?}", bench.drops()) };
    let error = &frame[frame.len() - (20 + 8 + network.len())..];
    assert_eq!(
        (error[9], error[20], &error[16..20]),
        (1, 11, &[10, 0, 0, 1][..]),
        "time exceeded, to the client"
    );
    let quoted = &error[28..];
    assert_eq!(
        (&quoted[12..16], &quoted[16..20]),
        (&[10, 0, 0, 1][..], &[198, 51, 100, 1][..]),
        "what it sent"
    );
}
