//! `dos` in a graph: which packets pass, and when a flow is blocked.

use std::collections::HashMap;

use crate::meter_support::*;
use graph::{Options, Timeouts};
use packet::{Addr, Endpoint, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const FIN_ACK: u8 = 0x11;

fn host(number: u8) -> Endpoint {
    v4(10, 0, 0, number, 80)
}

fn client(number: u8, port: u16) -> Endpoint {
    v4(192, 0, 2, number, port)
}

/// Returns whether a datagram passes inwards.
fn comes_in(bench: &mut Bench, now_ns: u64, from: Endpoint, to: Endpoint) -> bool {
    !bench.one(now_ns, Side::Outside, &udp(from, to, b"datagram")).is_empty()
}

/// Returns whether a segment passes from this side.
fn segment(bench: &mut Bench, side: Side, from: Endpoint, to: Endpoint, flags: u8) -> bool {
    !bench.one(0, side, &tcp(from, to, flags, b"")).is_empty()
}

fn counts<const N: usize>(bench: &Bench, names: [&str; N]) -> [u64; N] {
    names.map(|name| counter(bench, name))
}

/// Returns the alerts, by number.
fn alerts(bench: &Bench) -> Vec<(u32, String)> {
    bench.alerts.iter().map(|alert| (alert.signature_id, alert.category.to_string())).collect()
}

// E31
#[test]
fn a_flow_above_its_rate_is_blocked_after_the_offending_packet() {
    let mut bench = bench("dos", &json!({ "flow_rate": "100pps", "flow_burst": 5 }));
    let (from, to) = (client(1, 9), host(1));
    for number in 0..6 {
        assert!(comes_in(&mut bench, 0, from, to), "{number}: five at once, and the one that is too fast");
    }
    for now_ns in [0, 1, SECOND_NS, 3_600 * SECOND_NS] {
        assert!(!comes_in(&mut bench, now_ns, from, to), "it is blocked, however long it waits");
    }
    assert!(comes_in(&mut bench, 3_600 * SECOND_NS, client(1, 10), to), "other flows are not");
    assert_eq!(bench.one(3_600 * SECOND_NS, Side::Inside, &udp(to, from, b"x")).len(), 1);
    assert_eq!(bench.drops(), [("dos-flow", 4)]);
    assert_eq!(
        counts(&bench, ["blocked_by_rate", "blocked_by_packets", "blocked_by_syns", "dropped"]),
        [1, 0, 0, 4]
    );
    assert_eq!(alerts(&bench), [(1, "dos-flow".to_owned())]);
    assert!(bench.alerts[0].blocked);
    assert_eq!(&*bench.alerts[0].signature, "DoS: a flow sends more than 100pps");
}

#[test]
fn a_flow_at_its_rate_is_never_blocked() {
    let mut bench = bench("dos", &json!({ "flow_rate": "3pps", "flow_burst": 1 }));
    let (from, to) = (client(1, 9), host(1));
    // A third of a second is not a whole number of nanoseconds.
    let gap_ns = SECOND_NS.div_ceil(3);
    for number in 0..1_000 {
        assert!(comes_in(&mut bench, number * gap_ns, from, to), "{number}");
    }
    assert!(comes_in(&mut bench, 1_000 * gap_ns - 1, from, to), "a nanosecond early");
    assert!(!comes_in(&mut bench, 1_100 * gap_ns, from, to));
}

#[test]
fn packets_of_a_flow_pass_up_to_the_limit() {
    let mut bench = bench("dos", &json!({ "packets": 20 }));
    let (from, to) = (client(1, 9), host(1));
    for number in 0..60u64 {
        assert_eq!(comes_in(&mut bench, number, from, to), number < 20);
        assert_eq!(bench.one(number, Side::Inside, &udp(to, from, b"x")).len(), 1, "the host may send");
    }
    assert_eq!(counts(&bench, ["blocked_by_packets", "dropped"]), [1, 40]);
    assert_eq!(alerts(&bench), [(2, "dos-flow".to_owned())]);
}

#[test]
fn a_flow_of_syns_is_blocked() {
    let mut bench = bench("dos", &json!({ "syns": 3 }));
    let (from, to) = (client(1, 9), host(1));
    for number in 0..5 {
        assert_eq!(segment(&mut bench, Side::Outside, from, to, SYN), number < 3);
    }
    assert!(!segment(&mut bench, Side::Outside, from, to, ACK), "nothing of it passes any more");
    assert!(segment(&mut bench, Side::Outside, client(1, 10), to, SYN));
    assert!(segment(&mut bench, Side::Inside, to, from, SYN_ACK));
    assert_eq!(counts(&bench, ["blocked_by_syns", "dropped"]), [1, 3]);
    assert_eq!(alerts(&bench), [(3, "dos-flow".to_owned())]);
}

/// Acknowledgements in between do not make room for further SYNs.
#[test]
fn syns_of_an_open_connection_count() {
    let mut bench = bench("dos", &json!({ "syns": 2 }));
    let (from, to) = (client(1, 9), host(1));
    assert!(segment(&mut bench, Side::Outside, from, to, SYN));
    assert!(segment(&mut bench, Side::Inside, to, from, SYN_ACK));
    assert!(segment(&mut bench, Side::Outside, from, to, ACK));
    for number in 0..6 {
        assert_eq!(segment(&mut bench, Side::Outside, from, to, SYN), number < 2, "{number}");
        assert_eq!(segment(&mut bench, Side::Outside, from, to, ACK), number < 2, "{number}");
    }
    assert_eq!(counter(&bench, "blocked_by_syns"), 1);
}

#[test]
fn ports_may_be_used_again_and_again() {
    let mut bench = bench("dos", &json!({ "syns": 2 }));
    let (from, to) = (client(1, 9), host(1));
    for number in 0..10 {
        for (side, flags) in [
            (Side::Outside, SYN),
            (Side::Outside, SYN),
            (Side::Inside, SYN_ACK),
            (Side::Outside, ACK),
            (Side::Outside, ACK),
            (Side::Inside, ACK),
            (Side::Outside, FIN_ACK),
            (Side::Inside, FIN_ACK),
            (Side::Outside, ACK),
        ] {
            let (source, destination) = if side == Side::Outside { (from, to) } else { (to, from) };
            assert!(segment(&mut bench, side, source, destination, flags), "{number}: {flags:#x}");
        }
    }
    assert_eq!(counter(&bench, "blocked_by_syns"), 0);
    // Responses to connections of the host itself count, too.
    for number in 0..4 {
        assert_eq!(segment(&mut bench, Side::Outside, from, to, SYN), number < 2);
    }
}

#[test]
fn the_outside_can_be_protected() {
    let mut bench = bench("dos", &json!({ "protect": "outside", "packets": 1 }));
    let (from, to) = (client(1, 9), host(1));
    for _ in 0..5 {
        assert!(comes_in(&mut bench, 0, from, to));
    }
    let sent: Vec<_> = (0..3).map(|_| bench.one(0, Side::Inside, &udp(to, from, b"x")).len()).collect();
    assert_eq!(sent, [1, 0, 0]);
}

#[test]
fn new_flows_of_a_source_are_limited() {
    let mut bench = bench("dos", &json!({ "connections": 2, "connections_burst": 3 }));
    for port in 1..=5 {
        assert_eq!(comes_in(&mut bench, 0, client(1, port), host(1)), port <= 3);
    }
    assert_eq!(bench.graph.flows().records().live(), 3, "of those refused nothing is kept");
    for port in 1..=3 {
        assert!(comes_in(&mut bench, 1, client(1, port), host(1)), "flows that have begun go on");
    }
    assert!(comes_in(&mut bench, 1, client(2, 1), host(1)), "another source");
    assert!(!comes_in(&mut bench, SECOND_NS / 2 - 1, client(1, 4), host(1)));
    assert!(comes_in(&mut bench, SECOND_NS / 2, client(1, 4), host(1)), "it is judged again");
    for port in 1..=9 {
        assert_eq!(
            bench.one(SECOND_NS / 2, Side::Inside, &udp(host(1), client(1, 99 + port), b"x")).len(),
            1
        );
        assert!(comes_in(&mut bench, SECOND_NS / 2, client(1, 99 + port), host(1)), "those are answers");
    }
    assert_eq!(bench.drops(), [("dos-source", 3)]);
    assert_eq!(counts(&bench, ["refused", "dropped", "unmetered"]), [3, 0, 0]);
    assert_eq!(alerts(&bench), [(4, "dos-source".to_owned())]);
}

#[test]
fn a_source_is_a_prefix() {
    let mut bench = bench("dos", &json!({ "connections": 1, "prefix4": 24 }));
    let mut begins = |from, to| comes_in(&mut bench, 0, from, to);
    assert!(begins(client(1, 1), host(1)) && !begins(client(2, 2), host(1)));
    assert!(begins(v6(1, 1), v6(9, 1)) && !begins(v6(2, 2), v6(9, 1)), "an IPv6 host has a /64");
}

#[test]
fn a_source_without_a_meter_passes_or_not() {
    for (when_full, passes) in [("pass", true), ("drop", false)] {
        let mut bench = bench("dos", &json!({ "connections": 1, "sources": 2, "when_full": when_full }));
        assert!(
            comes_in(&mut bench, 0, client(1, 1), host(1)) && comes_in(&mut bench, 0, client(2, 1), host(1))
        );
        assert_eq!(comes_in(&mut bench, 0, client(3, 1), host(1)), passes);
        assert_eq!(counter(&bench, "unmetered"), 1);
        let drops: &[_] = if passes { &[] } else { &[("dos-no-meter", 1)] };
        assert_eq!(bench.drops(), drops);
        // A full meter is evicted.
        assert!(comes_in(&mut bench, SECOND_NS, client(4, 1), host(1)));
        assert_eq!(counter(&bench, "unmetered"), 1);
    }
}

#[test]
fn dropped_packets_keep_no_flow() {
    let timeouts = Timeouts { udp_ms: 1_000, udp_unreplied_ms: 1_000, ..Timeouts::default() };
    let config = json!({ "packets": 2 });
    let mut bench = Bench::new(vec![stage("dos", &config)], Options { timeouts, ..options() });
    let passed: Vec<_> =
        (0..40).map(|tenth| comes_in(&mut bench, tenth * 100 * MS_NS, client(1, 1), host(1))).collect();
    // Two pass, the second one at 100 ms; its time ends after 1,100 ms.
    let wanted: Vec<_> = (0..40).map(|tenth| tenth % 12 < 2).collect();
    assert_eq!(passed, wanted);
}

#[test]
fn alerts_of_a_kind_are_rate_limited_by_default() {
    let run = |every: Value| {
        let mut bench = bench("dos", &json!({ "packets": 1, "alert_every": every }));
        for (second, port) in (1..=10).enumerate() {
            for _ in 0..3 {
                comes_in(&mut bench, second as u64 * SECOND_NS, client(1, port), host(1));
            }
        }
        assert_eq!(counts(&bench, ["blocked_by_packets", "dropped"]), [10, 20]);
        bench.alerts.len()
    };
    assert_eq!(run(json!("5s")), 2);
    assert_eq!(run(json!(0)), 10, "once a flow");
}

#[test]
fn fragments_go_the_way_of_their_flow() {
    let mut bench = bench("dos", &json!({ "packets": 4 }));
    let whole = udp(client(1, 9), host(1), &[7; 100]);
    let passed: Vec<usize> = (1..=3)
        .map(|id| fragments(&whole, id, 48).iter().map(|p| bench.one(5, Side::Outside, p).len()).sum())
        .collect();
    assert_eq!(passed, [3, 1, 0]);
}

/// A second implementation: virtual scheduling (GCRA, ITU-T I.371) instead of a bucket.
struct Slow {
    syns: u64,
    packets: u64,
    rate: u128,
    burst: u128,
    connections: u128,
    connections_burst: u128,
    flows: HashMap<(Endpoint, Endpoint), SlowFlow>,
    sources: HashMap<Addr, Schedule>,
}

#[derive(Default)]
struct SlowFlow {
    packets: u64,
    syns: u64,
    schedule: Schedule,
    blocked: bool,
}

/// The time at which the next packet is expected, in nanoseconds times the rate, and the latest
/// one.
#[derive(Clone, Copy, Default)]
struct Schedule(u128, u128);

impl Schedule {
    fn conforms(&mut self, rate: u128, burst: u128, now_ns: u64) -> bool {
        self.1 = self.1.max(now_ns.into());
        let second = u128::from(SECOND_NS);
        let next = self.0.max(self.1 * rate) + second;
        let conforms = next - self.1 * rate <= burst * second;
        if conforms {
            self.0 = next;
        }
        conforms
    }
}

impl Slow {
    fn passes(&mut self, side: Side, from: Endpoint, to: Endpoint, syn: bool, now_ns: u64) -> bool {
        if side == Side::Inside {
            self.flows.entry((to, from)).or_default();
            return true;
        }
        if !self.flows.contains_key(&(from, to)) {
            let source = self.sources.entry(from.addr).or_default();
            if self.connections > 0 && !source.conforms(self.connections, self.connections_burst, now_ns) {
                return false;
            }
        }
        let flow = self.flows.entry((from, to)).or_default();
        let beyond = self.packets > 0 && flow.packets == self.packets;
        flow.blocked |= beyond || syn && self.syns > 0 && flow.syns == self.syns;
        if flow.blocked {
            return false;
        }
        flow.packets += 1;
        flow.syns += u64::from(syn);
        flow.blocked = self.rate > 0 && !flow.schedule.conforms(self.rate, self.burst, now_ns);
        true
    }
}

fn configs() -> impl Strategy<Value = Value> {
    let some = |most: u32| prop_oneof![Just(0), 1..=most];
    (some(6), some(20), some(50), 1u32..10, some(20), 1u32..5, any::<bool>()).prop_map(
        |(syns, packets, rate, burst, connections, connections_burst, outside)| {
            let mut config = json!({ "syns": syns, "packets": packets, "flow_rate": rate,
                "connections": connections, "alert_every": "50ms" });
            if rate > 0 {
                config["flow_burst"] = json!(burst);
            }
            if connections > 0 {
                config["connections_burst"] = json!(connections_burst);
            }
            if (syns, packets, rate, connections) == (0, 0, 0, 0) {
                config["syns"] = json!(1);
            }
            if outside {
                config["sources"] = json!(3);
            }
            config
        },
    )
}

proptest! {
    #[test]
    fn dos_passes_the_same_packets_as_virtual_scheduling(
        config in configs(),
        packets in prop::collection::vec((-30i64..60, any::<bool>(), 0u8..2, 0u16..3, prop_oneof![Just(SYN), Just(ACK)]), 1..120),
    ) {
        let mut config = config;
        config["sources"] = json!(100);
        let number = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0);
        let mut slow = Slow {
            syns: number("syns"),
            packets: number("packets"),
            rate: number("flow_rate").into(),
            burst: number("flow_burst").into(),
            connections: number("connections").into(),
            connections_burst: number("connections_burst").into(),
            flows: HashMap::new(),
            sources: HashMap::new(),
        };
        let mut bench = bench("dos", &config);
        let mut now_ns = 10 * SECOND_NS;
        for (step_ms, out, number, port, flags) in packets {
            now_ns = now_ns.saturating_add_signed(step_ms * MS_NS as i64);
            let (far, near) = (client(number, 1_000 + port), host(1));
            // Incoming packets are SYNs and acknowledgements of nothing: flags never establish a
            // connection.
            let (side, network) = match (out, flags) {
                (true, _) => (Side::Inside, tcp(near, far, 4, b"")),
                (false, flags) => (Side::Outside, tcp(far, near, flags, b"")),
            };
            let (from, to) = if out { (near, far) } else { (far, near) };
            let passed = bench.one(now_ns, side, &network).len() == 1;
            prop_assert_eq!(passed, slow.passes(side, from, to, flags == SYN, now_ns), "{} {:?} {}", config, side, now_ns);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_do_not_matter(config in configs(), traffic in traffic(120)) {
        batches_change_nothing("dos", &config, &traffic);
    }
}
