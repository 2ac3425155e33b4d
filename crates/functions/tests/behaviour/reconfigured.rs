//! Flows that move to instances with another configuration: state that refers to the former one is
//! not taken for state of the present one.

use crate::flow_support::{FLOWS, Outcome, SEED};
use crate::meter_support::{SECOND_NS, fragments, frame, packet, udp, v4};
use graph::{Graph, Options};
use nf::record::RecordHeader;
use nf::{Registry, Setup};
use packet::{PacketPool, Side};

/// One function in a graph, with its configuration's digest set as for a policy.
struct Unit {
    graph: Graph,
    pool: PacketPool,
    at_ns: u64,
}

impl Unit {
    fn new(name: &str, config: &serde_json::Value) -> Unit {
        let registry: Registry<serde_json::Value> = functions::registry();
        let mut setup = Setup::new(SEED, FLOWS);
        setup.config_digest =
            config.to_string().bytes().fold(7, |digest, byte| digest * 31 % 65_521 + u32::from(byte));
        let stage = registry.find(name).unwrap().make(config, setup).unwrap();
        let options = Options { flows_max: FLOWS, seed: SEED, ..Options::default() };
        Unit { graph: Graph::new(vec![stage], options).unwrap(), pool: PacketPool::new(8), at_ns: SECOND_NS }
    }

    fn send(&mut self, network: &[u8]) -> Outcome {
        let mut packet = self.pool.take(&frame(network)).unwrap();
        self.at_ns += 1_000;
        packet.meta_mut().transit.timestamp_ns = self.at_ns;
        packet.meta_mut().transit.side = Side::Inside;
        let mut out = vec![];
        self.graph.process(&mut vec![packet], &mut out, &mut self.pool);
        Outcome::take(&mut self.graph, &mut out, &mut self.pool)
    }

    /// Takes the only flow over.
    fn take_over(&mut self, from: &mut Unit) {
        let records = from.graph.flows().records();
        let live = |record: &u32| records.header(*record).has(RecordHeader::FLAG_LIVE);
        let record = records.used().find(live).unwrap();
        let mut saved = vec![];
        from.graph.flows_mut().save(record, &mut saved);
        self.at_ns = from.at_ns;
        self.graph.flows_mut().restore(&saved, &mut self.pool).unwrap();
        from.graph.flows_mut().release(record);
    }

    /// Learns that the first fragment of a datagram has passed.
    fn learn_datagram(&mut self, first: &[u8]) {
        let mut first = [packet(self.at_ns, Side::Inside, first)];
        self.graph.classify(&mut first, |_| {});
        self.graph.classifier_mut().learn_elsewhere(&first[0], &mut vec![]);
    }

    /// Returns the flows of the default, of each rule, and of invalid packets.
    fn flows(&self) -> Vec<u64> {
        self.graph.stages()[0].shared().rules.iter().map(|rule| rule.flows).collect()
    }
}

fn question(port: u16) -> Vec<u8> {
    udp(v4(10, 0, 0, 1, 5_000), v4(192, 0, 2, 1, port), b"question")
}

fn firewall(rules: &str) -> Unit {
    Unit::new("firewall", &serde_json::json!({ "rules": rules, "default": "deny" }))
}

#[test]
fn firewall_judges_flows_by_its_own_rules() {
    let mut before = firewall("deny udp to any port 99\nallow udp to any port 53");
    for _ in 0..3 {
        assert_eq!(before.send(&question(53)).sent.len(), 1);
    }
    let mut same = firewall("deny udp to any port 99\nallow udp to any port 53");
    same.take_over(&mut before);
    assert_eq!(same.send(&question(53)).sent.len(), 1);
    let mut turned = firewall("allow udp to any port 53\nallow udp to any port 99");
    turned.take_over(&mut same);
    assert_eq!(turned.send(&question(53)).sent.len(), 1);
    let mut closed = firewall("deny udp to any port 53\nallow udp to any port 99");
    closed.take_over(&mut turned);
    assert_eq!(closed.send(&question(53)).sent.len(), 0);
    assert_eq!(closed.flows(), [0, 1, 0, 0], "that of the rule here");
}

#[test]
fn ids_forgets_flowbits_of_other_rules() {
    let ids = |rules: &str| Unit::new("ids", &serde_json::json!({ "rules": rules }));
    let mut before =
        ids(r#"alert udp any any -> any any (msg:"sets"; content:"question"; flowbits:set,asked; sid:1;)"#);
    assert_eq!(before.send(&question(53)).told.len(), 1);
    let test = r#"alert udp any any -> any any (msg:"tests"; flowbits:isset,another; dsize:>0; sid:2;)"#;
    let set = r#"alert udp any any -> any any (msg:"sets another"; content:"nothing"; flowbits:set,another; sid:3;)"#;
    let mut after = ids(&format!("{test}\n{set}"));
    after.take_over(&mut before);
    assert_eq!(after.send(&question(53)).told, Vec::<String>::new());
}

#[test]
fn marker_forgets_rules_of_fragments() {
    let mark = |rules: &str| Unit::new("mark", &serde_json::json!({ "rules": rules }));
    let mut before = mark("dscp ef");
    let parts = fragments(&udp(v4(10, 0, 0, 1, 5_000), v4(192, 0, 2, 1, 53), &[7; 100]), 3, 40);
    assert_eq!(before.send(&parts[0]).sent[0].1[15], 46 << 2);
    let mut after = mark("dscp ef from any port 1");
    after.take_over(&mut before);
    after.learn_datagram(&parts[0]);
    assert_eq!(after.send(&parts[1]).sent[0].1[15], 0);
}
