//! State functions side by side on two cores that really are two (B18, B20): what comes out is the
//! plain chain's, and a group on its way allocates nothing.
#![allow(clippy::unwrap_used)] // A test that panics fails.

#[path = "../../graph/tests/support/allocations.rs"]
#[allow(dead_code)]
mod allocations;
#[path = "../../graph/tests/support"]
#[allow(dead_code)]
mod support {
    pub mod bench;
    pub mod packets;
}

use graph::Options;
use nf::Setup;
use nf::stage::Stage;
use packet::{Side, split_mix};
use runtime::two_cores::TwoCores;

use support::bench::{Arrival, Bench};
use support::packets::{frame, tcp, udp, v4};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const START_NS: u64 = 1_700_000_000_000_000_000;
const FLOWS: u32 = 4096;

/// Three of them have state functions that commute; their commands.
const CHAIN: [(&str, &str, &[&str]); 4] = [
    ("monitor", r#"{"sample": 2}"#, &[]),
    (
        "lb",
        r#"{"services": [{"name": "web", "vip": "192.0.2.80", "servers": [
            {"name": "one", "address": "198.51.100.1"}, {"name": "two", "address": "198.51.100.2"}]}]}"#,
        &["server one down", "server one up", "weight two 3"],
    ),
    ("monitor", r#"{"active_timeout": "5ms"}"#, &[]),
    ("firewall", r#"{"rules": "allow"}"#, &["rule 1 disable", "rule 1 enable"]),
];

fn stages() -> Vec<Box<dyn Stage>> {
    let registry = functions::registry();
    let make = |&(name, config, _): &(&str, &str, &[&str])| {
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        registry.find(name).unwrap().make(&config, Setup::new(7, FLOWS)).unwrap()
    };
    CHAIN.iter().map(make).collect()
}

/// Packets of a few flows, so that one has several in a batch, to the balanced service and past it.
fn traffic(seed: &mut u64) -> Vec<Arrival> {
    let mut draw = |below: u64| split_mix(seed) % below;
    let packets = (0..3_000).map(|number| {
        let client = v4(10, 0, 0, 1, 1000 + draw(40) as u16);
        let server = if draw(3) == 0 { v4(192, 0, 2, 9, 53) } else { v4(192, 0, 2, 80, 80) };
        let payload = vec![draw(256) as u8; draw(700) as usize];
        let network = if client.port.is_multiple_of(2) {
            udp(client, server, &payload)
        } else {
            tcp(client, server, if draw(20) == 0 { 2 } else { 0x10 }, &payload)
        };
        Arrival { at_ns: START_NS + number * 10_000, side: Side::Inside, network }
    });
    packets.collect()
}

/// Plays traffic in batches with commands in between.
fn play(bench: &mut Bench, traffic: &[Arrival], mut seed: u64) {
    let mut rest = traffic;
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(rest.len().min(1 + split_mix(&mut seed) as usize % 70));
        bench.batch(batch);
        rest = behind;
        let at = split_mix(&mut seed) as usize % CHAIN.len();
        if let (true, [_, ..]) = (split_mix(&mut seed).is_multiple_of(8), CHAIN[at].2) {
            let command = CHAIN[at].2[split_mix(&mut seed) as usize % CHAIN[at].2.len()];
            bench.graph.stage_mut(at).unwrap().control(command).unwrap();
        }
    }
}

#[test]
fn on_two_cores_a_graph_is_the_plain_one() {
    let mut cores = TwoCores::new().unwrap();
    let (mut seed, mut taken) = (1, 0);
    for _ in 0..20 {
        let (traffic, commands) = (traffic(&mut seed), seed);
        let mut plain = Bench::new(stages(), Options { consolidate: false, ..Options::default() });
        let mut beside = Bench::new(stages(), Options::default());
        beside.graph.run_side_by_side(cores.always()).unwrap();
        play(&mut plain, &traffic, commands);
        cores.wake();
        let before = cores.taken();
        play(&mut beside, &traffic, commands);
        taken += cores.taken() - before;
        assert!(beside.graph.report().fast_path().beside > 300, "{:?}", beside.graph.report().fast_path());
        let (plain, beside) = (plain.outcome(), beside.outcome());
        assert!(beside == plain, "{beside:#?}\n{plain:#?}");
    }
    assert!(taken > 0, "the second core never had a group");
}

/// Work that is too short for two cores stays on one.
#[test]
fn short_functions_are_not_handed_over() {
    let cores = TwoCores::new().unwrap();
    let mut bench = Bench::new(stages(), Options::default());
    bench.graph.run_side_by_side(graph::SideBySide { group_ns: u64::MAX, ..cores.when_worth_it() }).unwrap();
    play(&mut bench, &traffic(&mut 3), 3);
    assert!(bench.graph.report().fast_path().packets > 1_000);
    assert_eq!((bench.graph.report().fast_path().beside, cores.taken()), (0, 0));
}

#[test]
fn groups_that_are_handed_over_allocate_next_to_nothing() {
    let mut cores = TwoCores::new().unwrap();
    let mut graph = graph::Graph::new(stages(), Options { flows_max: FLOWS, ..Options::default() }).unwrap();
    graph.run_side_by_side(cores.always()).unwrap();
    let frames: Vec<_> = (0..64)
        .map(|port| {
            (Side::Inside, frame(&udp(v4(10, 0, 0, 1, 1000 + port), v4(192, 0, 2, 80, 80), b"hello")))
        })
        .collect();
    cores.wake();
    // Of the pool's own there may be some, where the second core is late: of 1,000 groups and more,
    // none as a rule.
    let allocations = allocations::through(&mut graph, &frames, 1_000);
    assert!(allocations < 20, "{allocations}");
    assert!(graph.report().fast_path().beside > 20_000);
}
