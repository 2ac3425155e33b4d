//! Sub-flows of Multipath TCP connections (A38): all sub-flows of a connection are at one unit at
//! all times, so a function recognizes data that several of them carry.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use cluster::remote::{RemoteHandle, RemoteOptions, remote_runner};
use packet::mptcp::MptcpVersion;
use packet::{Endpoint, FlowKey, split_mix};
use protocol::dispatcher::{FlowStatus, Granularity};
use protocol::message::UnitId;
use runtime::Runner;
use runtime::operator::{MigrationTarget, OperatorRequest};

use common::support::multipath::{MultipathConnection, Subflow, parsed};
use common::support::packets::{frame, v4};
use common::support::{Arriving, SEED, Sink, assembly_of, play, receive};
use common::{Cluster, ask, assert_same, assert_same_counts, config, end, fixed_desk};

const POLICY: &str = "
    settings { flows: 20k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    Mptcp m { duplicates: drop };
    pipelet { inside <-> m <-> outside; }";

const INSIDE: u16 = 0;
const CONNECTIONS: usize = 60;
const SUBFLOWS: usize = 3;

/// Clients that send all data over each of their sub-flows.
struct Redundant {
    connections: Vec<(MultipathConnection, Vec<Subflow>)>,
    /// Bytes sent by both hosts.
    sent: Vec<[u32; 2]>,
    random: u64,
    at_ns: u64,
}

impl Redundant {
    fn new() -> Redundant {
        let connection = |number: usize| {
            let version = [MptcpVersion::V0, MptcpVersion::V1][number % 2];
            // Several clients have the same server, and one port at it.
            let server = v4(198, 51, 100, (number % 3) as u8, 443);
            let ends = |subflow: usize| v4(10, subflow as u8, 0, number as u8, 40_000 + number as u16);
            let subflow = |subflow| Subflow::new(ends(subflow), server, (number * SUBFLOWS + subflow) as u32);
            let subflows = (0..SUBFLOWS).map(subflow).collect();
            (MultipathConnection::new(version, number as u64), subflows)
        };
        Redundant {
            connections: (0..CONNECTIONS).map(connection).collect(),
            sent: vec![[0; 2]; CONNECTIONS],
            random: SEED,
            at_ns: 1_000_000_000,
        }
    }

    fn arriving(&mut self, side: u16, network: &[u8]) -> Arriving {
        self.at_ns += 100_000;
        Arriving { timestamp_ns: self.at_ns, port: side, data: frame(network) }
    }

    /// Returns the handshakes of all connections, or of a further sub-flow of each.
    fn join(&mut self, subflow: usize) -> Vec<Arriving> {
        let mut frames = Vec::new();
        for number in 0..CONNECTIONS {
            let (connection, subflows) = &self.connections[number];
            let packets = match subflow {
                0 => connection.begin(&subflows[0]),
                _ => connection.join(&subflows[subflow], 0),
            };
            for (packet, side) in packets.iter().zip([INSIDE, 1 - INSIDE, INSIDE]) {
                let arriving = self.arriving(side, packet);
                frames.push(arriving);
            }
        }
        frames
    }

    /// Returns data of random connections, over each of these sub-flows in a random order.
    fn data(&mut self, count: usize, subflows: usize) -> Vec<Arriving> {
        let mut frames = Vec::new();
        for _ in 0..count {
            let mut random = |below: usize| (split_mix(&mut self.random) % below as u64) as usize;
            let (number, host, len, first) =
                (random(CONNECTIONS), random(2), 1 + random(900), random(subflows));
            let offset = self.sent[number][host];
            self.sent[number][host] += len as u32;
            for subflow in (first..subflows).chain(0..first) {
                let (connection, all) = &mut self.connections[number];
                let packet =
                    connection.data(&mut all[subflow], (host, host), offset, &vec![number as u8; len]);
                let arriving = self.arriving(host as u16, &packet);
                frames.push(arriving);
            }
        }
        frames
    }

    /// Returns the unit of each connection, where all of its sub-flows must be.
    fn units(&self, flows: &[FlowStatus]) -> BTreeMap<usize, UnitId> {
        let owners: BTreeMap<_, _> = flows.iter().map(|flow| (ends_of(&flow.key), flow.owner)).collect();
        let connections = self.connections.iter().enumerate();
        let unit = |(number, (connection, subflows)): (usize, &(MultipathConnection, Vec<Subflow>))| {
            let key = |subflow: &Subflow| parsed(&connection.begin(subflow)[0]).meta().key;
            let at: BTreeSet<UnitId> =
                subflows.iter().filter_map(|subflow| owners.get(&ends_of(&key(subflow)))).copied().collect();
            assert_eq!(at.len(), 1, "connection {number} is at {at:?}");
            (number, *at.first().unwrap())
        };
        connections.map(unit).collect()
    }
}

fn ends_of(key: &FlowKey) -> (Endpoint, Endpoint) {
    key.ends(false)
}

#[test]
fn duplicates_are_those_of_one_machine() {
    let cluster = Cluster::new(POLICY);
    let mut redundant = Redundant::new();
    let mut frames = redundant.join(0);
    frames.extend(redundant.data(100, 1));
    for subflows in 2..=SUBFLOWS {
        frames.extend(redundant.join(subflows - 1));
        frames.extend(redundant.data(500, subflows));
    }
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", POLICY), "test"), &frames);
    assert_eq!(single.drops["mptcp-duplicate"], 500 + 2 * 500, "each copy but the first");
    for mode in [Granularity::Packet, Granularity::Flowlet, Granularity::Flow] {
        let units = cluster.units(3);
        let (mut runner, _) = cluster.runner(config(mode, 3), &units);
        let handle = runner.open_to_operators();
        let mut sink = Sink::default();
        frames.iter().for_each(|frame| receive(&mut runner, frame, &mut sink));
        runner.settle(&mut sink).unwrap();
        let list = |reply| OperatorRequest::Flows(0..1_000, reply);
        let flows = ask((&mut runner, &handle, &mut sink), list).flows;
        let at: BTreeSet<UnitId> = redundant.units(&flows).into_values().collect();
        assert_eq!(at.len(), 3, "{mode}: all units have connections");
        let report = runner.finish(&mut sink).unwrap();
        assert_same_counts(&report, &single);
        assert_same(&sink, &expected);
        let of_units = report.units.unwrap();
        let joined = (CONNECTIONS * (SUBFLOWS - 1)) as u64;
        assert_eq!((of_units.subflows_joined, of_units.subflows_unknown), (joined, 0));
        assert_eq!(of_units.tokens, 2 * CONNECTIONS as u64);
        end(units);
    }
}

/// An operator moves one sub-flow: the others of its connection follow, and their data is
/// recognized at their new unit.
#[test]
fn subflows_move_together() {
    let (cluster, mut redundant) = (Cluster::new(POLICY), Redundant::new());
    let units = cluster.units(3);
    let (mut runner, _) = cluster.runner(config(Granularity::Flow, 3), &units);
    let handle = runner.open_to_operators();
    let mut sink = Sink::default();
    let mut frames = redundant.join(0);
    frames.extend(redundant.join(1));
    let (mut copies, mut moved) = (0, 0);
    for round in 0..12 {
        frames.extend(redundant.data(200, 2));
        copies += 200;
        if round == 6 {
            frames.extend(redundant.join(2)); // By tokens of connections that have moved.
        }
        frames.drain(..).for_each(|frame| receive(&mut runner, &frame, &mut sink));
        runner.settle(&mut sink).unwrap();
        let list = |reply| OperatorRequest::Flows(0..1_000, reply);
        let flows = ask((&mut runner, &handle, &mut sink), list).flows;
        let before = redundant.units(&flows);
        let chosen = &flows[(split_mix(&mut redundant.random) % flows.len() as u64) as usize];
        let to = Some(UnitId((chosen.owner.0 + 1) % 3));
        let targets = vec![MigrationTarget { flow: chosen.flow, from: None, to }];
        let migrate = |reply| OperatorRequest::Migrate(targets, reply);
        let results = ask((&mut runner, &handle, &mut sink), migrate);
        assert_eq!(results[0].as_ref().map(|moved| Some(moved.to)), Ok(to));
        let after = redundant.units(&ask((&mut runner, &handle, &mut sink), list).flows);
        moved += before.iter().filter(|&(connection, unit)| after[connection] != *unit).count();
        // Later packets begin no flow, so nothing waits for the move.
        runner.settle(&mut sink).unwrap();
    }
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up());
    assert!(moved >= 12, "{moved} connections moved");
    let of_units = report.units.unwrap();
    assert_eq!(of_units.groups_moved, 12);
    let dropped = report.drops["mptcp-duplicate"];
    println!("{moved} connections moved, {dropped} of {copies} copies dropped");
    // Packets that arrive while a connection is at two units may pass.
    assert!(dropped <= copies && dropped * 100 >= copies * 95, "{dropped} of {copies}");
    end(units);
}

#[test]
fn policies_that_cannot_keep_connections_together_are_refused() {
    let cases = [
        ("NAT n { external: [203.0.113.1] };", "`m` and `n` deal flows to nodes by different addresses"),
        (
            "LB n { services: [{ name: web, vip: 198.18.0.1, servers: [{ name: a, address: 172.16.0.1 }] }] };",
            "`n` rewrites the addresses by which `m` deals flows to nodes",
        ),
    ];
    for (function, expected) in cases {
        let policy =
            POLICY.replace("pipelet", &format!("{function} pipelet")).replace("m <-> o", "m <-> n <-> o");
        let error = Cluster::new(&policy).try_runner(0, config(Granularity::Flow, 1), &[]).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Each dispatcher sees only a part of the handshakes.
    let (_, control) = RemoteHandle::new();
    let dispatchers =
        ["dispatcher-1", "dispatcher-2"].map(|name| (name.to_owned(), "127.0.0.1:1".to_owned()));
    let options = RemoteOptions {
        identity: Cluster::new(POLICY).identity("dispatcher-1"),
        policy: fixed_desk(),
        incarnation: 1,
        control,
        dispatchers: dispatchers.to_vec(),
        listening: None,
    };
    let assembly = assembly_of("test.rvl", POLICY);
    let error = remote_runner(assembly, "test", config(Granularity::Flow, 1), options, None).err().unwrap();
    assert!(error.to_string().contains("`m` (mptcp) deals sub-flows to nodes"), "{error}");
}
