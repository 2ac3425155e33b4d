//! Flows of an affinity group begin just before their group moves, on links that lose and reorder
//! datagrams: the group moves as a whole, and once. On virtual time.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;
#[path = "common/texts.rs"]
mod texts;

use std::collections::BTreeSet;

use cluster::policies::GraphMaker;
use cluster::remote::{NodeCommand, NodeStatus};
use cluster::simulated::{LinkFaults, SimulatedCluster, SimulatedFaults};
use packet::Packet;
use protocol::dispatcher::{FlowStatus, Granularity, UnitChoice};
use protocol::message::UnitId;
use runtime::Report;
use runtime::elastic::UnitsConfig;
use runtime::operator::{MigrationTarget, OperatorHandle, OperatorRequest};

use common::ask;
use common::support::packets::{frame, udp, v4};
use common::support::{Arriving, Sink, assembly_of, receive};
use texts::NAT_ALONE;

const MS: u64 = 1_000_000;
const FAULTS: [LinkFaults; 3] = [
    LinkFaults::NONE,
    LinkFaults { reordering: 0.3, reordered_by_ns: 2 * MS, ..LinkFaults::NONE },
    LinkFaults { loss: 0.1, ..LinkFaults::NONE },
];

/// A NAT on two units, and hosts that send datagrams from one port.
struct Rig {
    cluster: SimulatedCluster,
    operators: OperatorHandle,
    sink: Sink,
    now_ns: u64,
}

impl Rig {
    fn start(links: LinkFaults, seed: u64) -> Rig {
        let config = UnitsConfig {
            mode: Granularity::Flow,
            choice: UnitChoice::RoundRobin,
            units_min: 2,
            units_max: 8,
            ..UnitsConfig::as_published()
        };
        let make = || -> GraphMaker { Box::new(|_| Ok(assembly_of("test.rvl", NAT_ALONE).graph)) };
        let faults = SimulatedFaults { links, ..SimulatedFaults::NONE };
        let assembly = assembly_of("test.rvl", NAT_ALONE);
        let mut cluster = SimulatedCluster::start(assembly, config, 2, make, faults, (seed, 0)).unwrap();
        let operators = cluster.runner().open_to_operators();
        Rig { cluster, operators, sink: Sink::default(), now_ns: 0 }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.cluster.run_to(self.now_ns, &mut self.sink).unwrap();
    }

    fn send(&mut self, host: u8, remote: u8) {
        let data = frame(&udp(v4(10, 0, 0, host, 5000), v4(198, 51, 100, remote, 53), &[remote; 40]));
        receive(
            self.cluster.runner(),
            &Arriving { timestamp_ns: self.now_ns, port: 0, data },
            &mut self.sink,
        );
        self.cluster.runner().flush(&mut self.sink).unwrap();
        self.cluster.runner().flush(&mut self.sink).unwrap();
    }

    fn flows(&mut self) -> Vec<FlowStatus> {
        let list = |reply| OperatorRequest::Flows(0..1_000, reply);
        ask((self.cluster.runner(), &self.operators, &mut self.sink), list).flows
    }

    fn migrate(&mut self, target: MigrationTarget) {
        let migrate = |reply| OperatorRequest::Migrate(vec![target], reply);
        let results = ask((self.cluster.runner(), &self.operators, &mut self.sink), migrate);
        assert!(results[0].is_ok(), "{results:?}");
    }

    fn finish(mut self) -> (Sink, Report) {
        let report = self.cluster.finish(&mut self.sink).unwrap().report;
        (self.sink, report)
    }
}

/// Returns the external endpoints of sent packets.
fn externals(sink: &Sink) -> BTreeSet<String> {
    let external = |data: &[u8]| {
        let mut packet = Packet::from_bytes(data);
        packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
        packet.meta().key.ends(packet.meta().reversed).0.to_string()
    };
    sink.sent.iter().filter(|(port, ..)| *port == 1).map(|(_, _, data)| external(data)).collect()
}

#[test]
fn group_moves_whole_though_packets_of_its_new_flows_are_late() {
    for links in FAULTS {
        for seed in 0..25 {
            let mut rig = Rig::start(links, seed);
            rig.pass(10 * MS);
            rig.send(1, 1);
            rig.pass(100 * MS);
            let flows = rig.flows();
            let [first] = &flows[..] else { panic!("{flows:?}") };
            let (flow, to) = (first.flow, UnitId(1 - first.owner.0));
            (2..6).for_each(|remote| rig.send(1, remote));
            rig.migrate(MigrationTarget { flow, from: None, to: Some(to) });
            for _ in 0..20 {
                rig.pass(50 * MS);
                (1..6).for_each(|remote| rig.send(1, remote));
            }
            rig.pass(2_000 * MS);
            let (sink, report) = rig.finish();
            let units = report.units.as_ref().unwrap();
            assert_eq!(externals(&sink).len(), 1, "seed {seed}: {report:?}");
            assert_eq!((units.groups_moved, units.states_refused), (1, 0), "seed {seed}");
            assert_eq!(sink.sent.len() as u64, report.packets_in, "seed {seed}: {:?}", report.drops);
        }
    }
}

/// Hosts send to new remote hosts from the same port all the time, as applications do while they
/// search for peers.
#[test]
fn drained_unit_gives_groups_away_whole_though_datagrams_are_lost() {
    for seed in 0..20 {
        let mut rig = Rig::start(LinkFaults { loss: 0.03, ..LinkFaults::NONE }, seed);
        rig.pass(10 * MS);
        for number in 0..1_800_u64 {
            rig.pass(MS / 10);
            rig.send((number % 16) as u8 + 1, (number / 16) as u8 + 1);
            if number == 40 {
                rig.cluster.handle().send(NodeCommand::Drain { name: "unit-0".to_owned() });
            }
        }
        rig.pass(3_000 * MS);
        assert_eq!(rig.cluster.handle().status()[0].status, NodeStatus::Drained, "seed {seed}");
        let (sink, report) = rig.finish();
        assert_eq!(report.units.as_ref().unwrap().states_refused, 0, "seed {seed}");
        assert_eq!(sink.sent.len() as u64, report.packets_in, "seed {seed}: {:?}", report.drops);
    }
}
