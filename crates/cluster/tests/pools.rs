//! Functions with shared state on several nodes: a NAT translates packets as on one machine with as
//! many affinity groups, and allocates no port twice, whatever moves.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use cluster::remote::{NodeCommand, NodeInfo, NodeStatus};
use io::traffic::Payload;
use packet::{Endpoint, Packet};
use protocol::dispatcher::Granularity;
use runtime::Runner;

use common::support::packets::{frame, udp, v4};
use common::support::{Arriving, SEED, Sink, assembly_of, conversation_with, play, profile, receive};
use common::{Cluster, assert_same, assert_same_counts, config, end, play_until};

const NAT: &str = "
    settings { flows: 20k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    NAT n { external: [203.0.113.0/30] };
    Monitor m { report: [] };
    pipelet { inside <-> m <-> n <-> f <-> outside; }";

fn frames(policy: &str, packets: u64) -> Vec<Arriving> {
    conversation_with(assembly_of("test.rvl", policy), &profile(Payload::Random, packets, 20_000.0, SEED))
}

#[test]
fn nat_on_three_units_is_that_of_one_machine() {
    let (cluster, frames) = (Cluster::new(NAT), frames(NAT, 3_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", NAT), "test"), &frames);
    for mode in [Granularity::Packet, Granularity::Flowlet, Granularity::Flow] {
        let units = cluster.units(3);
        let (runner, _) = cluster.runner(config(mode, 3), &units);
        let (got, report) = play(runner, &frames);
        assert_same_counts(&report, &single);
        assert_same(&got, &expected);
        let of_units = report.units.unwrap();
        println!("{mode}: {} groups moved, {} waited", of_units.groups_moved, of_units.packets_waited);
        let figures = end(units);
        let processed: Vec<u64> = figures.iter().map(|unit| unit.counters.processed).collect();
        assert!(processed.iter().all(|&packets| packets > 100), "{processed:?}");
    }
}

#[test]
fn mappings_hold_while_units_join_and_leave() {
    let (cluster, frames) = (Cluster::new(NAT), frames(NAT, 8_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", NAT), "test"), &frames);
    let mut units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 2), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    let late = cluster.unit("unit-late");
    handle.send(NodeCommand::Add { name: late.name.clone(), address: late.address.clone() });
    units.push(late);
    play_until(
        &mut runner,
        &mut frames,
        &mut sink,
        &handle,
        ("unit-late", |node| node.status == NodeStatus::Active),
    );
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    handle.send(NodeCommand::Drain { name: "unit-0".to_owned() });
    play_until(
        &mut runner,
        &mut frames,
        &mut sink,
        &handle,
        ("unit-0", |node| node.status == NodeStatus::Drained),
    );
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    assert_same_counts(&report, &single);
    assert_same(&sink, &expected);
    let of_units = report.units.unwrap();
    println!("{} groups moved, {} waited", of_units.groups_moved, of_units.packets_waited);
    assert!(of_units.groups_moved > 0 && of_units.states_moved > 0);
    assert_eq!(end(units)[0].flows[1], 0, "a drained unit has no flows");
}

/// An inside endpoint has one external endpoint towards all hosts (RFC 4787 REQ-1), and is
/// reachable there by all hosts, whatever units join and leave. No other inside endpoint has it.
#[test]
fn endpoint_is_mapped_once_wherever_its_group_is() {
    const POLICY: &str = "
        settings { flows: 20k, affinity_groups: 16 }
        Port<0> inside; Port<1> outside;
        NAT n { external: [203.0.113.0/30] };
        pipelet { inside <-> n <-> outside; }";
    let cluster = Cluster::new(POLICY);
    let mut units = cluster.units(2);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flowlet, 2), &units);
    let (mut sink, mut at_ns) = (Sink::default(), 1_000_000_000);
    let inside = |host: u8| v4(10, 0, 0, host, 5000 + u16::from(host % 3));
    let mut externals: BTreeMap<u8, Endpoint> = BTreeMap::new();
    for phase in 0..6 {
        for host in 1..80 {
            // To a new host each time, and from a host without a packet to it.
            for to_inside in [false, true] {
                at_ns += 100_000;
                let remote = v4(198, 51, 100, if to_inside { 200 } else { phase }, 53 + u16::from(phase));
                let (port, network) = match (to_inside, externals.get(&host)) {
                    (false, _) => (0, udp(inside(host), remote, &[host])),
                    (true, Some(&external)) => (1, udp(remote, external, &[host])),
                    (true, None) => panic!("{host} has no external endpoint"),
                };
                receive(
                    &mut runner,
                    &Arriving { timestamp_ns: at_ns, port, data: frame(&network) },
                    &mut sink,
                );
                runner.settle(&mut sink).unwrap();
                let [(left_by, _, data)] = &sink.sent[..] else { panic!("{host}: {:?}", sink.sent) };
                let mut packet = Packet::from_bytes(data);
                packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
                let (source, destination) = packet.meta().key.ends(packet.meta().reversed);
                assert_eq!((*left_by, data.last()), (1 - port, Some(&host)));
                match to_inside {
                    true => assert_eq!(destination, inside(host)),
                    false => assert_eq!(*externals.entry(host).or_insert(source), source, "{host}"),
                }
                sink.sent.clear();
            }
        }
        match phase {
            1 => {
                let late = cluster.unit("unit-late");
                handle.send(NodeCommand::Add { name: late.name.clone(), address: late.address.clone() });
                units.push(late);
            }
            3 => _ = handle.send(NodeCommand::Drain { name: "unit-0".to_owned() }),
            _ => {}
        }
        let expected: (&str, fn(&NodeInfo) -> bool) = match phase {
            1 => ("unit-late", |node| node.status == NodeStatus::Active),
            3 => ("unit-0", |node| node.status == NodeStatus::Drained),
            _ => continue,
        };
        let mut more = (1..).map(|number| Arriving {
            timestamp_ns: at_ns + number * 1_000_000,
            port: 0,
            data: frame(&udp(inside((number % 79) as u8 + 1), v4(198, 51, 100, 0, 53), &[0])),
        });
        play_until(&mut runner, &mut more, &mut sink, &handle, expected);
        at_ns += 100_000_000_000;
        runner.settle(&mut sink).unwrap();
        sink.sent.clear();
    }
    let distinct: BTreeSet<(u128, u16)> =
        externals.values().map(|external| (external.addr.to_u128(), external.port)).collect();
    assert_eq!(distinct.len(), 79, "an external endpoint was handed out twice");
    let report = runner.finish(&mut sink).unwrap();
    assert_eq!(report.drops, Default::default());
    assert!(report.units.unwrap().groups_moved >= 5);
    end(units);
}

/// Subscribers behind a NAT, each with a rate.
const RATED: &str = "
    settings { flows: 20k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    Policer p { rate: 1Mbps, burst: 16KiB, per: inside };
    NAT n { external: [203.0.113.0/30] };
    pipelet { inside <-> p <-> n <-> outside; }";

#[test]
fn rate_of_a_subscriber_is_that_of_one_machine() {
    let (cluster, frames) = (Cluster::new(RATED), frames(RATED, 6_000));
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", RATED), "test"), &frames);
    assert!(single.drops["policer-rate"] > 100, "{:?}", single.drops);
    let units = cluster.units(3);
    let (runner, _) = cluster.runner(config(Granularity::Packet, 3), &units);
    let (got, report) = play(runner, &frames);
    assert_same_counts(&report, &single);
    assert_same(&got, &expected);
    end(units);
    // A drained unit's buckets move: its subscribers do not get another burst each.
    let units = cluster.units(3);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 3), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(3_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    handle.send(NodeCommand::Drain { name: "unit-1".to_owned() });
    play_until(
        &mut runner,
        &mut frames,
        &mut sink,
        &handle,
        ("unit-1", |node| node.status == NodeStatus::Drained),
    );
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.units.as_ref().unwrap().groups_moved > 0 && report.adds_up());
    let (dropped, of_one) = (report.drops["policer-rate"], single.drops["policer-rate"]);
    assert!(dropped.abs_diff(of_one) * 100 < of_one, "{dropped} dropped, {of_one} by one machine");
    end(units);
}

#[test]
fn lost_unit_frees_its_ports_and_no_others() {
    let (cluster, frames) = (Cluster::new(NAT), frames(NAT, 6_000));
    let units = cluster.units(3);
    let (mut runner, handle) = cluster.runner(config(Granularity::Flow, 3), &units);
    let (mut sink, mut frames) = (Sink::default(), frames.into_iter());
    for frame in frames.by_ref().take(2_000) {
        receive(&mut runner, &frame, &mut sink);
    }
    runner.settle(&mut sink).unwrap();
    units[1].order.aborts.store(true, std::sync::atomic::Ordering::Relaxed);
    play_until(&mut runner, &mut frames, &mut sink, &handle, ("unit-1", |node| node.unit.is_none()));
    let sent_before = sink.sent.len();
    for frame in frames {
        receive(&mut runner, &frame, &mut sink);
    }
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up(), "{report:?}");
    assert_eq!(report.drops.get("nat-ports-exhausted"), None);
    assert_eq!(report.drops.get("alias-conflict"), None, "two flows have one external endpoint");
    assert!(sink.sent.len() > sent_before + 500, "flows begin again");
    for unit in units {
        unit.thread.join().unwrap();
    }
}

#[test]
fn functions_that_cannot_are_refused_with_the_reason() {
    let cases = [
        ("Whitelist f;", "`f` (whitelist) runs on one machine only: it shares the set `asked`"),
        ("Policer f { rate: 1Mbps, per: all };", "only buckets `per` host `inside` or `connection`"),
        (
            "NAT f { external: [203.0.113.1] }; Policer p { rate: 1Mbps, per: inside };",
            "`f` rewrites the addresses by which `p` deals flows to nodes; expected the latter at the inside",
        ),
        (
            "Policer p { rate: 1Mbps, per: inside, prefix4: 24 }; NAT f { external: [203.0.113.1] };",
            "`p` and `f` deal flows to nodes by different addresses",
        ),
    ];
    for (functions, expected) in cases {
        let chain = if functions.contains("Policer p") && functions.starts_with("Policer") {
            "p <-> f"
        } else if functions.contains("Policer p") {
            "f <-> p"
        } else {
            "f"
        };
        let settings = "settings { affinity_groups: 16 } Port<0> inside; Port<1> outside;";
        let policy = format!("{settings} {functions} pipelet {{ inside <-> {chain} <-> outside; }}");
        let error = Cluster::new(&policy).try_runner(0, config(Granularity::Flow, 1), &[]).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let ungrouped = NAT.replace(", affinity_groups: 16", "");
    let error = Cluster::new(&ungrouped).try_runner(0, config(Granularity::Flow, 1), &[]).err().unwrap();
    assert!(error.to_string().contains("expected a policy with groups"), "{error}");
}
