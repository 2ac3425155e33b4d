//! One unit is N units: whatever units packets are given to, what comes out is what a single one
//! makes of them.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;

use io::traffic::Payload;
use packet::Endpoint;
use proptest::prelude::*;
use protocol::dispatcher::Granularity;
use runtime::elastic::{FLOWS_MAX, UnitsConfig};
use runtime::{Assembly, Report, Runner};

use support::packets::{fragments, frame, udp, unreachable, v4};
use support::{
    Arriving, SEED, Sink, WITHOUT_FUNCTIONS, assembly, assembly_of, conversation, counted,
    frames_without_functions, generated, play, profile, receive,
};

/// Units as many as there can be for such traffic, which go from hand to hand.
fn config(mode: Granularity, units_max: u16, capacity_bps: u64, copies: u8) -> UnitsConfig {
    UnitsConfig { mode, units_max, capacity_bps, copies, ..UnitsConfig::as_published() }
}

/// The same, and copies tell only what has changed.
fn with_deltas(config: UnitsConfig) -> UnitsConfig {
    UnitsConfig { deltas: true, ..config }
}

fn check(name: &str, frames: &[Arriving], config: UnitsConfig) -> Report {
    check_assembled(name, || assembly(name), frames, config)
}

fn check_assembled(
    name: &str,
    assemble: impl Fn() -> Assembly,
    frames: &[Arriving],
    config: UnitsConfig,
) -> Report {
    let (expected, single) = play(Runner::new(assemble(), name), frames);
    let (got, report) = play(Runner::on_units(assemble(), name, config).unwrap(), frames);
    for (number, (got, expected)) in got.sent.iter().zip(&expected.sent).enumerate() {
        assert_eq!(got, expected, "packet {number} that leaves, {name}, {config:?}");
    }
    assert_eq!(got.sent.len(), expected.sent.len(), "{name}, {config:?}");
    for (got, expected) in [(got.told, expected.told), (got.ends, expected.ends)] {
        let differ = got.iter().zip(&expected).find(|(got, expected)| got != expected);
        assert!(got.len() == expected.len() && differ.is_none(), "{name}, {config:?}: {differ:?}");
    }
    assert_eq!(counted(&report), counted(&single), "{name}, {config:?}");
    assert!(report.adds_up());
    report
}

const MODES: [Granularity; 6] = [
    Granularity::Flowlet,
    Granularity::Flow,
    Granularity::SmartFlow { every_ns: 50_000_000 },
    Granularity::Packet,
    Granularity::Rss { buckets: 64, every_ns: Some(20_000_000) },
    Granularity::Rss { buckets: 64, every_ns: None },
];

/// All modes, at a rate that several units are needed for, and flows that idle and end.
fn check_all(name: &str, payload: Payload) {
    for (packets, rate) in [(4_000, 20_000.0), (3_000, 4.0)] {
        let frames = conversation(name, &profile(payload, packets, rate, SEED));
        let by_default = UnitsConfig { units_max: 6, capacity_bps: 20_000_000, ..UnitsConfig::default() };
        for config in MODES.map(|mode| config(mode, 6, 20_000_000, 0)).into_iter().chain([by_default]) {
            let report = check(name, &frames, config);
            let units = report.units.unwrap();
            println!(
                "{name} {}: {} packets, {} flows, {} flowlets, {} moves, {:.1} units",
                units.mode,
                report.packets_in,
                units.flows,
                units.flowlets,
                units.states_moved,
                units.tracking.units_mean
            );
            if config.mode == Granularity::Packet && rate > 100.0 {
                assert!(units.states_moved > 100, "too few moves to show anything");
            }
        }
        let copies = config(Granularity::Flowlet, 6, 20_000_000, 3);
        let [whole, changes] =
            [copies, with_deltas(copies)].map(|config| check(name, &frames, config).units.unwrap());
        println!(
            "{name}: {} copies of {:.1} bytes; with deltas {} of {:.1}, {} of them deltas",
            whole.replicas,
            whole.replica_bytes as f64 / whole.replicas as f64,
            changes.replicas,
            changes.replica_bytes as f64 / changes.replicas as f64,
            changes.deltas
        );
        assert_eq!((whole.replicas, whole.deltas), (changes.replicas, 0));
        assert!(changes.deltas <= changes.replicas && changes.replica_bytes <= whole.replica_bytes * 4 / 5);
    }
}

#[test]
fn graphs_without_functions() {
    for (number, text) in WITHOUT_FUNCTIONS.into_iter().enumerate() {
        let (frames, _) = frames_without_functions(number);
        for mode in MODES {
            check_assembled("bare", || assembly_of("bare", text), &frames, config(mode, 4, 20_000_000, 0));
        }
    }
    // A program's own frames leave by the port on the other side of it.
    let (text, (frames, left_by)) = (WITHOUT_FUNCTIONS[1], frames_without_functions(1));
    let units = Runner::on_units(assembly_of("bare", text), "bare", UnitsConfig::default()).unwrap();
    let (sink, _) = play(units, &frames);
    assert_eq!(sink.sent.iter().map(|(port, ..)| *port).collect::<Vec<_>>(), left_by);
}

#[test]
fn a_nat() {
    check_all("nat.rvl", Payload::Random);
}

#[test]
fn a_firewall() {
    check_all("firewall.rvl", Payload::Random);
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
fn a_policer() {
    check_all("policer.rvl", Payload::Random);
}

#[test]
fn a_whitelist() {
    check_all("whitelist.rvl", Payload::Random);
}

/// The gateway of site 1 or 2 of the traffic's clients and servers.
fn gateway(site: usize) -> String {
    let (ends, networks) =
        (["192.0.2.1", "192.0.2.2"], ["10.0.0.0/8, 2001:db8:c::/48", "198.18.0.0/15, 2001:db8:5::/48"]);
    let (here, there) = (site - 1, 2 - site);
    let key = |of: usize| format!("{of:02x}").repeat(20);
    format!(
        "Port<0> inside; Port<1> outside; pipelet {{ inside <-> gateway <-> outside; }}\n\
         VPN gateway {{ gateway4: 10.0.0.1, tunnels: [{{ name: t, local: {}, remote: {}, local_networks: [{}], remote_networks: [{}],\n\
         outbound: {{ spi: 999, key: \"{}\" }}, inbound: [{{ spi: 999, key: \"{}\" }}] }}] }};",
        ends[here],
        ends[there],
        networks[here],
        networks[there],
        key(here),
        key(there),
    )
}

/// One end of a link between the same two sites, over which nothing goes twice.
fn redundancy_eliminator(site: usize) -> String {
    let networks = ["10.0.0.0/8, 2001:db8:c::/48", "198.18.0.0/15, 2001:db8:5::/48"];
    format!(
        "Port<0> inside; Port<1> outside; pipelet {{ inside <-> end <-> outside; }}\n\
         Re end {{ local_networks: [{}], remote_networks: [{}], cache: 64KiB, patience: 0s }};",
        networks[site - 1],
        networks[2 - site],
    )
}

/// Packets between two sites, through a function with state that all flows share: packets sent from
/// here, and packets from a site with this policy. Some of the latter arrive twice.
fn between_sites(policy_there: &str, packets: u64, rate: f64) -> Vec<Arriving> {
    let here = profile(Payload::Random, packets, rate, SEED);
    let mut there = profile(Payload::Random, packets, rate, SEED + 1);
    let addresses = &mut there.addresses;
    (addresses.clients_v4, addresses.servers_v4) = (here.addresses.servers_v4, here.addresses.clients_v4);
    (addresses.clients_v6, addresses.servers_v6) = (here.addresses.servers_v6, here.addresses.clients_v6);
    let mut frames = generated(&here);
    let (sent, _) = play(Runner::new(assembly_of("there", policy_there), "there"), &generated(&there));
    let sent = sent.sent.into_iter().filter(|(port, ..)| *port == 1).enumerate();
    frames.extend(sent.flat_map(|(number, (port, timestamp_ns, data))| {
        let times = if number % 9 == 0 { 2 } else { 1 };
        (0..times).map(move |_| Arriving { timestamp_ns, port, data: data.clone() })
    }));
    frames.sort_by_key(|frame| frame.timestamp_ns);
    frames
}

#[test]
fn a_vpn() {
    for (packets, rate) in [(3_000, 20_000.0), (2_000, 4.0)] {
        let frames = between_sites(&gateway(2), packets, rate);
        for mode in MODES {
            let assemble = || assembly_of("here", &gateway(1));
            let report = check_assembled("here", assemble, &frames, config(mode, 6, 20_000_000, 0));
            let counted = |name: &str| {
                let counters = &report.functions[0].counters;
                counters
                    .iter()
                    .find(|(known, _)| known.ends_with(name))
                    .map_or(0, |(_, counter)| counter.count)
            };
            let [out, back, again] = ["packets_out", "packets_in", "replayed"].map(counted);
            println!("{mode:?}: {out} out, {back} in, {again} again, {:?}", report.drops);
            assert!(out > packets / 2 && back > packets / 2 && again > packets / 20);
        }
    }
}

#[test]
fn a_redundancy_eliminator() {
    for (packets, rate) in [(3_000, 20_000.0), (2_000, 4.0)] {
        let frames = between_sites(&redundancy_eliminator(2), packets, rate);
        for mode in MODES {
            let assemble = || assembly_of("here", &redundancy_eliminator(1));
            let report = check_assembled("here", assemble, &frames, config(mode, 6, 20_000_000, 0));
            let counters = &report.functions[0].counters;
            let [out, back] = ["packets_encoded", "packets_decoded"].map(|name| counters[name].count);
            println!("{mode:?}: {out} encoded, {back} decoded, {:?}", report.drops);
            assert!(out > packets / 10 && back > packets / 10);
            let moves = report.units.unwrap().states_moved;
            assert!(
                mode != Granularity::Packet || rate < 100.0 || moves > 100,
                "too few moves to show anything"
            );
        }
    }
}

#[test]
fn a_preventer_of_denial_of_service() {
    check_all("dos.rvl", Payload::Random);
}

#[test]
fn http() {
    check_all("http.rvl", Payload::Http);
}

#[test]
fn marks_clamps_and_mirrors() {
    for name in ["mark.rvl", "tcp-mss.rvl", "mirror.rvl"] {
        check_all(name, Payload::Random);
    }
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
fn all_functions_in_one_graph() {
    check_all("all.rvl", Payload::Http);
}

/// The policy's flows are those of all units together: which flows find no room depends on no unit.
/// Where old flows go instead, any unit has room for the new one.
#[test]
fn a_full_table_is_full_for_all_units_together() {
    let policy = |when_full| {
        format!(
            "settings {{ flows: 40, when_full: {when_full} }} Port<0> a; Port<1> b; Monitor m {{}}; \
             pipelet main {{ a <-> m <-> b; }}"
        )
    };
    let frames = conversation("monitor.rvl", &profile(Payload::Random, 4_000, 20_000.0, SEED));
    for mode in MODES {
        let config = config(mode, 6, 20_000_000, 0);
        let refuse = || assembly_of("full.rvl", &policy("refuse_new"));
        let report = check_assembled("full.rvl", refuse, &frames, config);
        assert!(report.drops["flow-table-full"] > 0, "the table was never full");
        let evict = assembly_of("full.rvl", &policy("evict_oldest"));
        let (_, report) = play(Runner::on_units(evict, "full.rvl", config).unwrap(), &frames);
        assert!(!report.drops.contains_key("flow-table-full"), "{mode:?}: {:?}", report.drops);
        assert!(report.adds_up() && report.flows.ended["evicted"] > 0);
    }
}

#[test]
fn more_flows_than_units_can_number_are_refused() {
    let policy = |flows: u32| {
        format!("settings {{ flows: {flows} }} Port<0> a; Port<1> b; pipelet main {{ a <-> b; }}")
    };
    let on_units =
        |flows| Runner::on_units(assembly_of("many.rvl", &policy(flows)), "many.rvl", UnitsConfig::default());
    assert!(on_units(FLOWS_MAX).is_ok());
    let Err(error) = on_units(FLOWS_MAX + 1) else { panic!("too many flows were accepted") };
    assert!(error.to_string().contains("2097152"), "{error}");
}

/// An ICMP error about an expired flow belongs to no known flow, even before the flow is removed.
#[test]
fn errors_about_an_expired_flow_are_flows_of_their_own() {
    let (client, server) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let request = udp(client, server, b"request");
    let unknown = udp(Endpoint { port: 1001, ..client }, server, b"never sent");
    let after_ms = |at_ms: u64, port, network: &[u8]| Arriving {
        timestamp_ns: 1_700_000_000_000_000_000 + at_ms * 1_000_000,
        port,
        data: frame(network),
    };
    let policy = "settings { timeouts: { udp_unreplied: 2s } } Port<0> a; Port<1> b; Monitor m {}; pipelet main { a <-> m <-> b; }";
    let mut frames = vec![after_ms(0, 0, &request), after_ms(1, 0, &request)];
    let errors = [(2_002, &request), (2_003, &unknown), (2_004, &request), (2_060, &unknown)];
    frames.extend(errors.map(|(at_ms, quoted)| after_ms(at_ms, 1, &unreachable(server.addr, quoted))));
    for mode in MODES {
        let config = UnitsConfig { units_min: 6, ..config(mode, 6, 20_000_000, 0) };
        let report = check_assembled("m.rvl", || assembly_of("m.rvl", policy), &frames, config);
        assert_eq!(report.flows.started, 2, "{mode:?}");
    }
}

/// When buffers run out, time advances to that of the frame that needs one; an earlier frame does
/// not turn it back.
#[test]
fn time_does_not_go_back_when_buffers_run_out() {
    let (client, server) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let start_ns = 1_700_000_000_000_000_000;
    let later_fragment = |id: u16| frame(&fragments(&udp(client, server, &[7; 64]), id, 32)[1]);
    let arriving = |timestamp_ns, data| Arriving { timestamp_ns, port: 0, data };
    let waiting = (0..9_000).map(|id| arriving(start_ns, later_fragment(id)));
    let before = std::iter::once(arriving(start_ns - 1_000_000_000, frame(&udp(client, server, b"late"))));
    let frames: Vec<Arriving> = waiting.chain(before).collect();
    let policy =
        "settings { fragments: 10000 } Port<0> a; Port<1> b; Monitor m {}; pipelet main { a <-> m <-> b; }";
    check_assembled("m.rvl", || assembly_of("m.rvl", policy), &frames, UnitsConfig::default());
}

/// Even the only packet is in an interval.
#[test]
fn every_packet_is_in_an_interval() {
    let frames = conversation("monitor.rvl", &profile(Payload::Random, 200, 1_000.0, SEED));
    for count in [0, 1, 2, frames.len()] {
        let runner =
            Runner::on_units(assembly("monitor.rvl"), "monitor.rvl", UnitsConfig::default()).unwrap();
        let (_, report) = play(runner, &frames[..count]);
        let intervals = report.units.unwrap().intervals;
        assert_eq!(intervals.iter().map(|epoch| epoch.packets).sum::<u64>(), count as u64);
        assert_eq!(intervals.is_empty(), count == 0);
    }
}

/// Packets may come one by one or many at once: units start, stop and get flows at the same times.
#[test]
fn batches_of_any_size_are_alike() {
    let frames = conversation("nat.rvl", &profile(Payload::Random, 3_000, 20_000.0, SEED));
    // Continuously; and in bursts after a silence that stops all units but one: three packets
    // within one bucket of the load meter, and one after it.
    let burst = [0, 100_000, 200_000, 700_000];
    let pause_ns = |number: u64| number / 4 * 3_000_000_000 + burst[(number % 4) as usize];
    let paces: [(u64, &dyn Fn(u64) -> u64); 2] =
        [(2_000_000, &|number| number * 500_000), (50_000, &pause_ns)];
    for (capacity_bps, pace) in paces {
        let at = |number| 1_000_000_000 + pace(number);
        let frames: Vec<Arriving> = (0..)
            .zip(&frames)
            .map(|(number, frame)| Arriving {
                timestamp_ns: at(number),
                port: frame.port,
                data: frame.data.clone(),
            })
            .collect();
        for follow_at in [None, Some(0.9)] {
            let config = UnitsConfig { follow_at, ..config(Granularity::Flowlet, 6, capacity_bps, 0) };
            let units = |batch: usize| {
                let mut runner = Runner::on_units(assembly("nat.rvl"), "nat.rvl", config).unwrap();
                let mut sink = Sink::default();
                for (number, frame) in frames.iter().enumerate() {
                    receive(&mut runner, frame, &mut sink);
                    if (number + 1) % batch == 0 {
                        runner.flush(&mut sink).unwrap();
                    }
                }
                serde_json::to_value(runner.finish(&mut sink).unwrap().units).unwrap()
            };
            let expected = units(1);
            assert!(expected["units_started"].as_u64() > Some(2), "{expected}");
            for batch in [2, 7, 64] {
                assert_eq!(units(batch), expected, "{batch}, {config:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random units and random traffic.
    #[test]
    fn any_units(
        seed in 0u64..1_000,
        rate in prop_oneof![Just(3.0), Just(2_000.0), Just(50_000.0)],
        mode in prop::sample::select(MODES.to_vec()),
        units_max in 1u16..12,
        capacity_mbps in 1u64..60,
        (copies, deltas) in (0u8..5, any::<bool>()),
        follow_at in prop_oneof![Just(None), Just(Some(0.5f32)), Just(Some(1.0))],
        stay_below in prop_oneof![Just(None), Just(Some(0.5f32)), Just(Some(1.0))],
        name in prop::sample::select(vec!["nat.rvl", "all.rvl", "lb.rvl"]),
    ) {
        let frames = conversation(name, &profile(Payload::Random, 600, rate, seed));
        let config = config(mode, units_max, capacity_mbps * 1_000_000, copies);
        check(name, &frames, UnitsConfig { deltas, follow_at, stay_below, ..config });
    }
}
