//! Units on threads of their own: what comes out is what a single unit makes of the same packets,
//! flow by flow.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::sync::Arc;

use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::transport::{Maker, THREADS_MAX};
use runtime::{Assembly, Report, Runner};

use support::packets::{fragments, frame, udp, v4};
use support::{
    Arriving, SEED, Sink, WITHOUT_FUNCTIONS, assembly, assembly_of, by_flow, conversation, counted,
    frames_without_functions, play, profile, receive, sorted,
};

const MODES: [Granularity; 4] = [
    Granularity::Flowlet,
    Granularity::Flow,
    Granularity::Packet,
    Granularity::Rss { buckets: 64, every_ns: Some(20_000_000) },
];

fn config(mode: Granularity, units_min: u16, copies: u8) -> UnitsConfig {
    UnitsConfig {
        mode,
        units_min,
        units_max: 4,
        capacity_bps: 20_000_000,
        copies,
        ..UnitsConfig::as_published()
    }
}

fn on_threads(name: &str, assemble: &Assemble, config: UnitsConfig) -> Runner {
    let make: Maker = {
        let assemble = Arc::clone(assemble);
        Arc::new(move || Ok(assemble().graph))
    };
    Runner::on_threads(assemble(), name, config, make).unwrap()
}

type Assemble = Arc<dyn Fn() -> Assembly + Send + Sync>;

/// A policy of the examples.
fn example(name: &'static str) -> Assemble {
    Arc::new(move || assembly(name))
}

fn policy(text: &'static str) -> Assemble {
    Arc::new(move || assembly_of("test.rvl", text))
}

/// All of it, whatever order flows are in.
fn check(name: &str, assemble: &Assemble, frames: &[Arriving], config: UnitsConfig) -> Report {
    let (expected, single) = play(Runner::new(assemble(), name), frames);
    let (got, report) = play(on_threads(name, assemble, config), frames);
    let (flows, expected_flows) = (by_flow(&got), by_flow(&expected));
    for (flow, packets) in &expected_flows {
        assert_eq!(flows.get(flow), Some(packets), "{name}, {config:?}");
    }
    assert_eq!(flows.len(), expected_flows.len(), "{name}, {config:?}");
    // The numbers of alerts' packets and the order of flows' ends are those of threads.
    assert_eq!(sorted(got.told), sorted(expected.told), "{name}, {config:?}");
    assert_eq!(counted(&report), counted(&single), "{name}, {config:?}");
    assert!(report.adds_up());
    report
}

fn check_all(name: &'static str, payload: Payload) {
    let frames = conversation(name, &profile(payload, 4_000, 20_000.0, SEED));
    for mode in MODES {
        // On a busy machine all packets may be through before a second unit runs.
        let shows_moves = |_| {
            let units = check(name, &example(name), &frames, config(mode, 1, 0)).units.unwrap();
            println!("{name} {}: {} moves, {} states", units.mode, units.moved, units.states_moved);
            mode != Granularity::Packet || units.states_moved > 100
        };
        assert!((0..10).any(shows_moves), "too few moves to show anything");
    }
    for deltas in [false, true] {
        let config = UnitsConfig { deltas, ..config(Granularity::Flowlet, 4, 2) };
        check(name, &example(name), &frames, config);
    }
    let by_default = UnitsConfig { units_max: 4, capacity_bps: 20_000_000, ..UnitsConfig::default() };
    // Some flowlets stay, and some move.
    let some_move = |_| {
        let units = check(name, &example(name), &frames, by_default).units.unwrap();
        units.units_started > 0 && (1..units.flowlets).contains(&units.moved)
    };
    assert!((0..10).any(some_move), "no flowlet ever moved");
}

#[test]
fn graphs_without_functions() {
    for (number, text) in WITHOUT_FUNCTIONS.into_iter().enumerate() {
        let (frames, _) = frames_without_functions(number);
        for mode in MODES {
            check("bare", &policy(text), &frames, config(mode, 2, 0));
        }
    }
}

#[test]
fn a_nat() {
    check_all("nat.rvl", Payload::Random);
}

#[test]
fn a_load_balancer() {
    check_all("lb.rvl", Payload::Random);
}

#[test]
fn a_monitor() {
    check_all("monitor.rvl", Payload::Random);
}

#[test]
fn http() {
    check_all("http.rvl", Payload::Http);
}

#[test]
fn a_meter_of_redundancy() {
    check_all("redundancy.rvl", Payload::Http);
}

#[test]
fn an_ids() {
    check_all("ids.rvl", Payload::Http);
}

#[test]
fn a_firewall() {
    check_all("firewall.rvl", Payload::Random);
}

#[test]
fn a_policer() {
    check_all("policer.rvl", Payload::Random);
}

#[test]
fn a_whitelist() {
    check_all("whitelist.rvl", Payload::Random);
}

#[test]
fn all_functions_in_one_graph() {
    check_all("all.rvl", Payload::Http);
}

/// Refusal of flows does not depend on units. If old flows are evicted instead, every packet is
/// accounted for, also when an index changes its flow during a handover.
#[test]
fn flow_limit_holds_for_all_units_together() {
    let refuse = policy(
        "settings { flows: 40, when_full: refuse_new } Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }",
    );
    let evict =
        policy("settings { flows: 40 } Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }");
    let frames = conversation("monitor.rvl", &profile(Payload::Random, 4_000, 20_000.0, SEED));
    for mode in MODES {
        let report = check("full", &refuse, &frames, config(mode, 2, 0));
        assert!(report.drops["flow-table-full"] > 0, "the table was never full");
    }
    // Slower, so that there are flows which have been silent for a second, and may go.
    let frames = conversation("monitor.rvl", &profile(Payload::Random, 4_000, 40.0, SEED));
    for mode in MODES {
        let (_, report) = play(on_threads("full", &evict, config(mode, 2, 0)), &frames);
        assert!(report.adds_up() && !report.drops.contains_key("internal"), "{mode:?}: {:?}", report.drops);
        assert!(report.flows.ended["evicted"] > 100, "{mode:?}: {:?}", report.flows);
        assert_eq!(
            report.flows.started,
            report.flows.ended.values().sum::<u64>(),
            "{mode:?}: each flow ends once"
        );
    }
}

/// Packets that leave no flow in the graph take no room at the dispatcher.
#[test]
fn a_wire_has_no_flows() {
    let wire =
        policy("settings { flows: 10, when_full: refuse_new } Port<0> a; Port<1> b; pipelet { a <-> b; }");
    let frames = conversation("monitor.rvl", &profile(Payload::Random, 1_000, 20_000.0, SEED));
    let report = check("wire", &wire, &frames, config(Granularity::Flowlet, 2, 0));
    assert_eq!(report.packets_in, report.packets_out);
}

/// Two connections that go to one server from one port of the client have the same reverse key. A
/// graph refuses the second one. Units that have one each do not know of it: then the second one
/// gets the answers. Nothing is stuck when both move.
#[test]
fn two_flows_want_one_key() {
    let balance = policy(
        "Port<0> a; Port<1> b; LoadBalancer lb { services: [ \
           { name: one, vip: 203.0.113.1, port: 80, protocol: udp, servers: [ { name: s, address: 10.0.0.1 } ] }, \
           { name: two, vip: 203.0.113.2, port: 80, protocol: udp, servers: [ { name: s, address: 10.0.0.1 } ] } ] }; \
         pipelet { a <-> lb <-> b; }",
    );
    let frame_to = |number: u64| {
        let client = v4(198, 51, 100, 1, 1_000 + (number / 2 % 50) as u16);
        let vip = v4(203, 0, 113, 1 + (number % 2) as u8, 80);
        Arriving {
            timestamp_ns: 1_000_000_000 + number * 10_000,
            port: 0,
            data: frame(&udp(client, vip, &vec![7; 100 + (number * 7919 % 1_000) as usize])),
        }
    };
    let frames: Vec<Arriving> = (0..10_000).map(frame_to).collect();
    let mut refused = 0;
    for mode in [Granularity::Packet, Granularity::Rss { buckets: 64, every_ns: Some(1_000_000) }] {
        let (_, report) = play(on_threads("balance", &balance, config(mode, 4, 0)), &frames);
        assert!(report.adds_up() && report.packets_out >= 1_000, "{:?}", report.drops);
        refused += report.units.unwrap().states_refused;
    }
    assert!(refused > 0, "no two such flows met");
}

/// Fragments that arrive before their first one wait for it, and take its path; fragments without a
/// first one give way to others.
#[test]
fn fragments_wait_for_their_first_one() {
    let server = v4(192, 0, 2, 1, 53);
    let monitor = policy(
        "settings { fragments: 10000 } Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }",
    );
    let arriving = |number: u16, data: &[u8]| Arriving {
        timestamp_ns: 1_700_000_000_000_000_000 + u64::from(number) * 10_000,
        port: 0,
        data: frame(data),
    };
    let mut frames = Vec::new();
    for number in 0..12_000 {
        // No source has more than its share of the table.
        let client = v4(10, 0, (number % 64) as u8, 1, 1000);
        let whole = fragments(&udp(client, server, &[7; 64]), number, 32);
        frames.push(arriving(number, &whole[1]));
        if number % 100 == 0 {
            frames.push(arriving(number, &whole[0]));
            frames.push(arriving(number, &whole[2]));
        }
    }
    let report = check("fragments", &monitor, &frames, config(Granularity::Packet, 3, 0));
    assert!(report.drops["fragment-table-full"] > 0);
}

/// A fragment that waited for its first one counts once.
#[test]
fn every_packet_is_in_an_epoch() {
    let (client, server) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let pieces = fragments(&udp(client, server, &[7; 64]), 1, 32);
    let arriving = |piece: &Vec<u8>| Arriving { timestamp_ns: 1_000_000_000, port: 0, data: frame(piece) };
    let frames: Vec<Arriving> = pieces.iter().rev().map(arriving).collect();
    let report = check("monitor.rvl", &example("monitor.rvl"), &frames, config(Granularity::Flowlet, 2, 0));
    let intervals = report.units.unwrap().intervals;
    assert_eq!(intervals.iter().map(|epoch| epoch.packets).sum::<u64>(), frames.len() as u64);
}

/// A runner that is not wanted any more takes its threads with it.
#[test]
fn threads_end_with_their_runner() {
    let assemble = example("nat.rvl");
    let (made, alive) = (Arc::clone(&assemble), Arc::new(()));
    let weak = Arc::downgrade(&alive);
    let make: Maker = Arc::new(move || {
        let _alive = &alive;
        Ok(made().graph)
    });
    let mut runner =
        Runner::on_threads(assemble(), "nat", config(Granularity::Packet, 3, 0), Arc::clone(&make)).unwrap();
    drop(make);
    for frame in &conversation("nat.rvl", &profile(Payload::Random, 500, 20_000.0, SEED)) {
        receive(&mut runner, frame, &mut Sink::default());
    }
    drop(runner);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while weak.upgrade().is_some() {
        assert!(std::time::Instant::now() < deadline, "threads go on without their runner");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A command reaches every unit, at its place among the packets, and units that start later.
#[test]
fn commands_reach_all_units() {
    let frames = conversation("lb.rvl", &profile(Payload::Random, 3_000, 20_000.0, SEED));
    let play = |mut runner: Runner| {
        let mut sink = Sink::default();
        for (number, frame) in frames.iter().enumerate() {
            if number == 500 {
                runner.settle(&mut sink).unwrap();
                runner.control(0, "server web1 down").unwrap();
                assert!(
                    runner.control(0, "server web1 sideways").is_err() && runner.control(9, "x").is_err()
                );
            }
            receive(&mut runner, frame, &mut sink);
        }
        (runner.finish(&mut sink).unwrap(), sink)
    };
    let (single, expected) = play(Runner::new(assembly("lb.rvl"), "lb.rvl"));
    let (report, got) = play(on_threads("lb.rvl", &example("lb.rvl"), config(Granularity::Packet, 1, 0)));
    assert_eq!(by_flow(&got), by_flow(&expected));
    assert_eq!(counted(&report), counted(&single));
    assert!(report.units.unwrap().units_started > 0, "no unit came later");
}

/// A report shortly after a request has the units' counters.
#[test]
fn units_report_counters_while_they_run() {
    let mut runner = on_threads("lb.rvl", &example("lb.rvl"), config(Granularity::Packet, 3, 0));
    let mut sink = Sink::default();
    for frame in &conversation("lb.rvl", &profile(Payload::Random, 3_000, 20_000.0, SEED)) {
        receive(&mut runner, frame, &mut sink);
    }
    runner.settle(&mut sink).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    let live = loop {
        runner.ask_for_figures();
        runner.settle(&mut sink).unwrap();
        let report = runner.report();
        if report.adds_up() && report.functions[0].packets > 0 {
            break report;
        }
        assert!(std::time::Instant::now() < deadline, "units do not tell: {:?}", report.functions);
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(live.flows.live > 0 && live.flows.started >= live.flows.live);
    let units = live.units.as_ref().unwrap();
    assert!(units.states_moved > 0, "{units:?}");
    assert_eq!(units.units_running, 3 + units.units_started - units.units_stopped);
    let report = runner.finish(&mut sink).unwrap();
    for (live, ended) in live.functions.iter().zip(&report.functions) {
        assert_eq!((live.packets, live.drops), (ended.packets, ended.drops), "each once");
    }
    assert_eq!(live.packets_out, report.packets_out);
    assert_eq!(live.flows.started, report.flows.started);
}

#[test]
fn what_cannot_run_is_refused() {
    let many = UnitsConfig { units_max: THREADS_MAX + 1, ..UnitsConfig::as_published() };
    let make: Maker = Arc::new(|| Ok(assembly("nat.rvl").graph));
    let Err(error) = Runner::on_threads(assembly("nat.rvl"), "nat", many, make) else {
        panic!("too many threads were accepted")
    };
    assert!(error.to_string().contains("up to 64"), "{error}");
    let make: Maker = Arc::new(|| Err("no memory".to_owned()));
    let runner = Runner::on_threads(assembly("nat.rvl"), "nat", UnitsConfig::default(), make);
    assert!(runner.is_err_and(|error| error.to_string().contains("no memory")));
}

/// Units that cannot be started later are done without.
#[test]
fn units_that_cannot_start_are_done_without() {
    runtime::panics::keep();
    for panics in [false, true] {
        let first = std::sync::atomic::AtomicBool::new(true);
        let make: Maker = Arc::new(move || match first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            true => Ok(assembly("nat.rvl").graph),
            false if panics => panic!("no function can be made"),
            false => Err("no memory".to_owned()),
        });
        let frames = conversation("nat.rvl", &profile(Payload::Random, 2_000, 20_000.0, SEED));
        let config = config(Granularity::Flowlet, 1, 0);
        let runner = Runner::on_threads(assembly("nat.rvl"), "nat", config, make).unwrap();
        let (got, report) = play(runner, &frames);
        let (expected, single) = play(Runner::new(assembly("nat.rvl"), "nat"), &frames);
        assert_eq!(by_flow(&got), by_flow(&expected));
        assert_eq!(counted(&report), counted(&single));
    }
}
