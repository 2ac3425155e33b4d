//! The whitelist in a graph: the datagrams that pass, and when.

use std::collections::HashMap;

use crate::meter_support::*;
use io::traffic::{Attacks, FrameKind, Generator, TrafficProfile};
use packet::{Addr, Endpoint, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

const EXPIRY_NS: u64 = 30 * SECOND_NS;

fn host(number: u8) -> Endpoint {
    v4(10, 0, 0, number, 5_000)
}

fn server(number: u8, port: u16) -> Endpoint {
    v4(192, 0, 2, number, port)
}

fn at(end: Endpoint, port: u16) -> Endpoint {
    Endpoint::new(end.addr, port)
}

fn asks(bench: &mut Bench, now_ns: u64, from: Endpoint, to: Endpoint) {
    bench.through(now_ns, Side::Inside, &udp(from, to, b"question"));
}

/// Returns whether a datagram enters.
fn comes_in(bench: &mut Bench, now_ns: u64, from: Endpoint, to: Endpoint) -> bool {
    !bench.one(now_ns, Side::Outside, &udp(from, to, b"answer")).is_empty()
}

// S26
#[test]
fn only_peers_that_were_asked_may_send_until_expiry() {
    let mut bench = bench("whitelist", &json!({}));
    let (dns, other) = (server(1, 53), server(2, 53));
    assert!(!comes_in(&mut bench, 0, dns, host(1)));
    asks(&mut bench, 1, host(1), dns);
    assert!(comes_in(&mut bench, 2, dns, host(1)), "in the same flow");
    assert!(comes_in(&mut bench, 2, dns, at(host(1), 6_000)), "to another port");
    assert!(comes_in(&mut bench, 2, dns, host(2)), "and another host");
    assert!(!comes_in(&mut bench, 2, other, host(1)));
    assert!(!comes_in(&mut bench, 2, at(dns, 54), host(1)));
    for to in [host(1), host(2)] {
        assert!(comes_in(&mut bench, 1 + EXPIRY_NS, dns, to));
        assert!(!comes_in(&mut bench, 2 + EXPIRY_NS, dns, to));
    }
    asks(&mut bench, 2 + EXPIRY_NS, host(3), dns);
    assert!(comes_in(&mut bench, 2 + 2 * EXPIRY_NS, dns, host(1)));
    assert!(!comes_in(&mut bench, 3 + 2 * EXPIRY_NS, dns, host(1)));
    assert_eq!(bench.drops(), [("whitelist-unsolicited", 6)]);
    let counts = ["requests", "answers", "unsolicited", "served", "displaced", "floods"];
    assert_eq!(counts.map(|name| counter(&bench, name)), [2, 6, 6, 0, 0, 0]);
}

#[test]
fn strict_address_admits_any_port_of_a_peer() {
    let mut bench = bench("whitelist", &json!({ "strict": "address", "expiry": "1s" }));
    asks(&mut bench, 0, host(1), server(1, 53));
    assert!(comes_in(&mut bench, SECOND_NS, server(1, 99), host(2)));
    assert!(!comes_in(&mut bench, SECOND_NS, server(2, 53), host(2)));
    assert!(!comes_in(&mut bench, SECOND_NS + 1, server(1, 99), host(2)));
}

#[test]
fn services_are_open_and_their_answers_are_not_requests() {
    let mut bench = bench("whitelist", &json!({ "services": [53, 123] }));
    let client = server(7, 4_000);
    assert!(comes_in(&mut bench, 0, client, at(host(1), 53)));
    assert!(!comes_in(&mut bench, 0, client, host(1)));
    asks(&mut bench, 0, at(host(1), 53), client);
    assert!(!comes_in(&mut bench, 0, client, host(1)), "that was an answer");
    assert_eq!(["served", "requests"].map(|name| counter(&bench, name)), [1, 0]);
}

#[test]
fn clients_of_a_service_may_send_to_other_ports() {
    let config = json!({ "record": ["clients"], "services": [5060], "strict": "address", "expiry": "10s" });
    let mut bench = bench("whitelist", &config);
    let client = server(7, 5_060);
    let media = at(client, 9_000);
    assert!(!comes_in(&mut bench, 0, media, host(1)));
    assert!(!bench.one(0, Side::Outside, &udp(client, at(host(1), 5_060), b"")).is_empty());
    assert!(!comes_in(&mut bench, 0, media, host(1)), "an empty datagram asks nothing");
    assert!(comes_in(&mut bench, 5, client, at(host(1), 5_060)));
    assert!(comes_in(&mut bench, 5 + 10 * SECOND_NS, media, host(1)));
    assert!(!comes_in(&mut bench, 6 + 10 * SECOND_NS, media, host(1)));
    asks(&mut bench, 7 + 10 * SECOND_NS, host(1), media);
    assert!(!comes_in(&mut bench, 7 + 10 * SECOND_NS, media, host(1)), "hosts are not recorded");
    assert_eq!(["served", "from_clients", "requests"].map(|name| counter(&bench, name)), [2, 1, 0]);
}

#[test]
fn the_other_side_can_be_protected() {
    let mut bench = bench("whitelist", &json!({ "protect": "outside" }));
    assert!(bench.one(0, Side::Inside, &udp(host(1), server(1, 53), b"x")).is_empty());
    assert!(comes_in(&mut bench, 0, server(1, 53), host(1)));
    assert_eq!(bench.one(0, Side::Inside, &udp(host(1), server(2, 53), b"x")).len(), 1);
}

#[test]
fn other_protocols_pass_by_default() {
    let syn = tcp(server(1, 80), host(1), 2, b"");
    let ping = echo(server(1, 0).addr, host(1).addr, 7, false, b"");
    let asked = udp(host(1), server(1, 53), b"question");
    let stranger = udp(host(1), server(2, 53), b"question");
    for (others, passes) in [("pass", true), ("drop", false)] {
        let mut bench = bench("whitelist", &json!({ "others": others }));
        let mut enters = |now_ns, network: &[u8]| !bench.one(now_ns, Side::Outside, network).is_empty();
        assert_eq!([enters(0, &syn), enters(0, &ping)], [passes; 2]);
        assert_eq!(enters(0, &unreachable(server(2, 0).addr, &stranger)), passes);
        bench.through(1, Side::Inside, &asked);
        let mut enters = |now_ns, network: &[u8]| !bench.one(now_ns, Side::Outside, network).is_empty();
        assert!(
            enters(2, &unreachable(server(9, 0).addr, &asked)),
            "a router reports an error about a request"
        );
        assert_eq!(enters(2 + EXPIRY_NS, &unreachable(server(9, 0).addr, &asked)), passes);
        assert_eq!(bench.one(3, Side::Inside, &tcp(host(1), server(1, 80), 2, b"")).len(), 1);
        assert_eq!(counter(&bench, "others_dropped"), if passes { 0 } else { 4 });
    }
}

#[test]
fn later_fragments_follow_the_first() {
    let mut bench = bench("whitelist", &json!({}));
    let whole = udp(server(1, 53), host(1), &[7; 100]);
    let enter = |bench: &mut Bench, id: u16| -> usize {
        let pieces = fragments(&whole, id, 48);
        pieces.iter().map(|piece| bench.one(5, Side::Outside, piece).len()).sum()
    };
    assert_eq!(enter(&mut bench, 1), 0);
    asks(&mut bench, 5, host(2), server(1, 53));
    assert_eq!(enter(&mut bench, 2), 3);
}

#[test]
fn an_unsolicited_datagram_leaves_no_state() {
    let mut bench = bench("whitelist", &json!({ "record": ["hosts", "clients"], "services": [53] }));
    for number in 0..10_000u32 {
        let [_, b, c, d] = number.to_be_bytes();
        assert!(!comes_in(&mut bench, u64::from(number), v4(100, b, c, d, 53), host(1)));
    }
    let shared = bench.graph.stages()[0].shared();
    assert_eq!((shared.sets[0].len(), shared.sets[1].len(), bench.graph.flows().records().live()), (0, 0, 0));
}

#[test]
fn a_full_set_forgets_the_oldest_member() {
    let mut bench = bench("whitelist", &json!({ "capacity": 2 }));
    for number in [1, 2, 3] {
        asks(&mut bench, u64::from(number), host(1), server(number, 53));
    }
    let answers: Vec<bool> = [1, 2, 3].map(|n| comes_in(&mut bench, 9, server(n, 53), host(2))).to_vec();
    assert_eq!(answers, [false, true, true]);
    assert!(comes_in(&mut bench, 9, server(1, 53), host(1)), "a flow remembers its own request");
    assert_eq!(counter(&bench, "displaced"), 1);
    // A flood at a service displaces no requests of hosts, which have a set of their own.
    let config = json!({ "capacity": 2, "record": ["hosts", "clients"], "services": [53] });
    let mut bench = crate::meter_support::bench("whitelist", &config);
    asks(&mut bench, 0, host(1), server(1, 99));
    for number in 0..200 {
        assert!(comes_in(&mut bench, 1, server(number, 7), at(host(1), 53)));
    }
    assert!(comes_in(&mut bench, 2, server(1, 99), host(2)));
}

#[test]
fn a_flood_raises_alerts_at_intervals() {
    let mut bench = bench("whitelist", &json!({ "alert_above": "100pps", "alert_every": "5s" }));
    let strange = udp(server(1, 53), host(1), b"x");
    let flood = |bench: &mut Bench, from_ns: u64, count: u64, gap_ns: u64| {
        (0..count).for_each(|i| assert!(bench.one(from_ns + i * gap_ns, Side::Outside, &strange).is_empty()));
        bench.alerts.len()
    };
    assert_eq!(flood(&mut bench, 0, 1_000, 10 * MS_NS), 0, "at the threshold");
    assert_eq!(flood(&mut bench, 20 * SECOND_NS, 100, 0), 0, "a second's worth");
    assert_eq!(flood(&mut bench, 20 * SECOND_NS, 1, 0), 1, "one more");
    assert_eq!(flood(&mut bench, 20 * SECOND_NS, 4_999, MS_NS), 1, "5 s at ten times the threshold");
    assert_eq!(flood(&mut bench, 25 * SECOND_NS, 2_000, MS_NS), 2);
    assert_eq!(flood(&mut bench, 60 * SECOND_NS, 1_000, 10 * MS_NS), 2, "the flood has ended");
    assert_eq!(counter(&bench, "floods"), 2);
    let alert = &bench.alerts[0];
    assert_eq!(
        (&*alert.signature, &*alert.category),
        ("UDP flood: unsolicited packets above 100pps", "udp-flood")
    );
    assert!(alert.blocked);
}

/// Servers with two services under a flood of datagrams from spoofed sources to all of their ports.
#[test]
fn exchanges_continue_during_a_flood() {
    let mut profile = TrafficProfile {
        packets: Some(20_000),
        attacks: Attacks { udp_flood: 0.8, ..Attacks::default() },
        ..TrafficProfile::preset("mix").unwrap()
    };
    profile.addresses.server_ports = vec![53, 443];
    let mut generator = Generator::new(&profile).unwrap();
    let config = json!({ "protect": "outside", "services": [53, 443] });
    let mut bench = bench("whitelist", &config);
    let (mut floods, mut exchanges) = (0u64, 0u64);
    let mut lost = 0u64;
    while let Some(frame) = generator.next() {
        let at_ns = frame.timestamp_ns;
        let network = &frame.data[14..];
        let side = if frame.port == 0 { Side::Inside } else { Side::Outside };
        let kind = frame.kind;
        let passed = bench.one(at_ns, side, network).len() as u64;
        match kind {
            FrameKind::UdpFlood => {
                let port = u16::from_be_bytes([network[22], network[23]]);
                assert_eq!(passed, u64::from(port == 53 || port == 443));
                floods += 1 - passed;
            }
            FrameKind::Udp => {
                exchanges += 1;
                lost += 1 - passed;
            }
            _ => {}
        }
    }
    assert!(floods > 15_000 && exchanges > 500, "{floods} {exchanges}");
    assert_eq!(lost, 0);
    assert_eq!(bench.drops(), [("whitelist-unsolicited", floods)]);
    assert_eq!(counter(&bench, "requests"), 0);
    assert!(counter(&bench, "floods") > 0);
}

/// A model of the whitelist as lists that are searched linearly.
struct Slow {
    strict: bool,
    expiry_ns: u64,
    capacity: usize,
    services: Vec<u16>,
    clients: bool,
    asked: Vec<((Addr, u16), u64)>,
    served: Vec<((Addr, u16), u64)>,
    flows: HashMap<(Endpoint, Endpoint), u64>,
}

impl Slow {
    fn name(&self, end: Endpoint) -> (Addr, u16) {
        (end.addr, if self.strict { end.port } else { 0 })
    }

    fn add(list: &mut Vec<((Addr, u16), u64)>, name: (Addr, u16), now_ns: u64, capacity: usize) {
        if let Some((_, at_ns)) = list.iter_mut().find(|(known, _)| *known == name) {
            *at_ns = (*at_ns).max(now_ns);
            return;
        }
        if list.len() == capacity {
            list.remove(0);
        }
        list.push((name, now_ns));
    }

    fn passes(&mut self, side: Side, from: Endpoint, to: Endpoint, now_ns: u64) -> bool {
        let (expiry_ns, capacity) = (self.expiry_ns, self.capacity);
        let fresh = |at_ns: u64| now_ns.saturating_sub(at_ns) <= expiry_ns;
        if side == Side::Inside {
            if !self.services.contains(&from.port) {
                let name = self.name(to);
                Slow::add(&mut self.asked, name, now_ns, capacity);
                let flow = self.flows.entry((from, to)).or_insert(now_ns);
                *flow = (*flow).max(now_ns);
            }
            return true;
        }
        let name = self.name(from);
        let known = |list: &[((Addr, u16), u64)]| list.iter().any(|&(n, at_ns)| n == name && fresh(at_ns));
        if self.flows.get(&(to, from)).is_some_and(|&at_ns| fresh(at_ns)) {
            return true;
        }
        if self.services.contains(&to.port) {
            if self.clients {
                Slow::add(&mut self.served, name, now_ns, capacity);
            }
            return true;
        }
        known(&self.asked) || (self.clients && known(&self.served))
    }
}

fn configs() -> impl Strategy<Value = Value> {
    (any::<bool>(), any::<bool>(), prop_oneof![Just(2u32), Just(3), Just(1_000)]).prop_map(
        |(strict, clients, capacity)| {
            let strict = if strict { "address_port" } else { "address" };
            let (record, services) = if clients {
                (json!(["hosts", "clients"]), json!([53]))
            } else {
                (json!(["hosts"]), json!([]))
            };
            json!({ "strict": strict, "record": record, "services": services, "capacity": capacity,
                    "expiry": "100ms", "alert_above": "20pps", "alert_every": "1s" })
        },
    )
}

proptest! {
    #[test]
    fn whitelist_agrees_with_linear_lists(
        config in configs(),
        packets in prop::collection::vec((-30i64..60, any::<bool>(), 0u16..3, 0u16..3, 0u16..2, 0u16..2, any::<bool>()), 1..120),
    ) {
        let mut bench = bench("whitelist", &config);
        let services: Vec<u16> = serde_json::from_value(config["services"].clone()).unwrap();
        let mut slow = Slow {
            strict: config["strict"] == "address_port",
            expiry_ns: 100 * MS_NS,
            capacity: config["capacity"].as_u64().unwrap() as usize,
            clients: !services.is_empty(),
            services,
            asked: vec![],
            served: vec![],
            flows: HashMap::new(),
        };
        let mut now_ns = 10 * SECOND_NS;
        for (step_ms, out, near, far, near_port, far_port, version4) in packets {
            now_ns = now_ns.saturating_add_signed(step_ms * MS_NS as i64);
            let ports = (53 + near_port, 53 + far_port);
            let (near, far) = if version4 {
                (v4(10, 0, 0, near as u8, ports.0), v4(192, 0, 2, far as u8, ports.1))
            } else {
                (v6(near, ports.0), v6(far + 100, ports.1))
            };
            let (from, to, side) = if out { (near, far, Side::Inside) } else { (far, near, Side::Outside) };
            let passed = bench.one(now_ns, side, &udp(from, to, b"x")).len();
            prop_assert_eq!(passed == 1, slow.passes(side, from, to, now_ns), "{} {:?} {} {}", config, side, from, to);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn output_does_not_depend_on_batches(config in configs(), drop in any::<bool>(), traffic in traffic(120)) {
        let mut config = config;
        config["others"] = json!(if drop { "drop" } else { "pass" });
        batches_change_nothing("whitelist", &config, &traffic);
    }
}
