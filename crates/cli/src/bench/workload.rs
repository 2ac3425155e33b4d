//! The workloads, each a policy.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::ValueEnum;
use graph::Graph;
use packet::{Packet, PacketPool};
use runtime::elastic::{Units, UnitsConfig};

use super::conversation::{Content, Conversations, PAYLOAD};
use super::dispatcher::{DispatcherTarget, ParseTarget};
use super::tape::{Frames, Kind, Tape};
use super::target::{PACE_NS, Target, WARM_UP};
use crate::policies;

/// The workload to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Parse and forward, without functions
    Forward,
    /// NAT
    Nat,
    /// Load balancer: Maglev hashing over 32 servers, destination NAT
    Lb,
    /// Firewall with 100 rules, known flows
    Firewall,
    /// Firewall with 100 rules, every packet starts a flow
    FirewallNew,
    /// Monitor
    Monitor,
    /// Policer with a token bucket per connection
    Policer,
    /// Policer with a token bucket per source address, shared by its flows
    PolicerSource,
    /// UDP whitelister: every packet is a client's request to a service, and is recorded
    Whitelist,
    /// Denial-of-service preventer: packets and rates of flows, flows of sources
    Dos,
    /// Marker with 100 rules, known flows: DSCP and VLAN tag
    Mark,
    /// MSS clamp, packets that are no SYNs
    TcpMss,
    /// Mirror: a copy of every packet, in VXLAN
    Mirror,
    /// HTTP/1: requests of one segment, responses of eight
    Http,
    /// Intrusion detection: HTTP pages that no rule matches
    Ids,
    /// Intrusion detection: the same pages, and rules that all requests and pages match
    IdsMatching,
    /// Intrusion detection: random bytes on port 80
    IdsRandom,
    /// NAT, load balancer, monitor and firewall on the slow path
    Chain4,
    /// The same on the fast path
    Chain4Consolidated,
    /// Two branches of these four functions, flows on both
    Branches8,
    /// The same on the fast path
    Branches8Consolidated,
    /// Dispatcher: parse, look the flow up, stamp; no packet starts a flowlet
    Dispatcher,
    /// Dispatcher, every packet starts a flowlet: estimate, assign, choose units for replicas
    DispatcherFlowlet,
}

impl Workload {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Forward => "forward",
            Workload::Nat => "nat",
            Workload::Lb => "lb",
            Workload::Firewall => "firewall",
            Workload::FirewallNew => "firewall-new",
            Workload::Monitor => "monitor",
            Workload::Policer => "policer",
            Workload::PolicerSource => "policer-source",
            Workload::Whitelist => "whitelist",
            Workload::Dos => "dos",
            Workload::Mark => "mark",
            Workload::TcpMss => "tcp-mss",
            Workload::Mirror => "mirror",
            Workload::Http => "http",
            Workload::Ids => "ids",
            Workload::IdsMatching => "ids-matching",
            Workload::IdsRandom => "ids-random",
            Workload::Chain4 => "chain4",
            Workload::Chain4Consolidated => "chain4-consolidated",
            Workload::Branches8 => "branches8",
            Workload::Branches8Consolidated => "branches8-consolidated",
            Workload::Dispatcher => "dispatcher",
            Workload::DispatcherFlowlet => "dispatcher-flowlet",
        }
    }

    /// Returns the kind of frames.
    pub fn frames(self) -> Kind {
        match self {
            Workload::FirewallNew => Kind::Syn,
            Workload::Http | Workload::Ids | Workload::IdsMatching | Workload::IdsRandom => Kind::Segment,
            _ => Kind::Udp,
        }
    }

    /// Returns the default packet size in bytes on the wire.
    pub fn packet_size(self) -> u16 {
        if self.frames() == Kind::Segment { 1518 } else { 64 }
    }

    /// Returns whether flows may end.
    pub fn has_flows_that_end(self) -> bool {
        self.frames() == Kind::Udp
            && !matches!(self, Workload::Forward | Workload::Dispatcher | Workload::DispatcherFlowlet)
    }

    /// Sets the workload up for this many flows.
    pub fn world(
        self,
        flows: u32,
        packet_size: u16,
        batch_len: usize,
        rules: &[PathBuf],
        units: u16,
        on_units: bool,
    ) -> anyhow::Result<Box<dyn Target>> {
        Ok(match self {
            Workload::Dispatcher | Workload::DispatcherFlowlet if on_units => {
                bail!("`{}` has no functions that could be on units", self.name())
            }
            Workload::Dispatcher => Box::new(DispatcherTarget::new(flows, batch_len, units, false)?),
            Workload::DispatcherFlowlet => Box::new(DispatcherTarget::new(flows, batch_len, units, true)?),
            _ => {
                let world = GraphTarget::new(self, flows, packet_size, batch_len, rules)?;
                Box::new(if on_units { world.on_units(units)? } else { world })
            }
        })
    }

    /// Sets up the same work without the subject of the workload, to be subtracted; `None` if the
    /// workload has no such baseline.
    pub fn without(self, batch_len: usize) -> Option<Box<dyn Target>> {
        matches!(self, Workload::Dispatcher | Workload::DispatcherFlowlet)
            .then(|| Box::new(ParseTarget::new(batch_len)) as Box<dyn Target>)
    }

    /// Returns the policy for this many flows.
    fn policy(self, flows: u32, rules: &[PathBuf]) -> String {
        let line = match self {
            Workload::Forward | Workload::Dispatcher | Workload::DispatcherFlowlet => "inside <-> outside",
            Workload::Nat => "inside <-> n <-> outside",
            Workload::Lb => "inside <-> l <-> outside",
            Workload::Firewall | Workload::FirewallNew => "inside <-> f <-> outside",
            Workload::Monitor => "inside <-> m <-> outside",
            Workload::Policer => "inside <-> p <-> outside",
            Workload::PolicerSource => "inside <-> s <-> outside",
            Workload::Whitelist => "inside <-> w <-> outside",
            Workload::Dos => "inside <-> d <-> outside",
            Workload::Mark => "inside <-> k <-> outside",
            Workload::TcpMss => "inside <-> c <-> outside",
            Workload::Mirror => "inside <-> x <-> outside",
            Workload::Http => "inside <-> h <-> outside",
            Workload::Ids | Workload::IdsMatching | Workload::IdsRandom => "inside <-> i <-> outside",
            Workload::Chain4 | Workload::Chain4Consolidated => "inside <-> n <-> l <-> m <-> f <-> outside",
            Workload::Branches8 | Workload::Branches8Consolidated => {
                "inside [src port 0-32767] <-> n <-> l <-> m <-> f <-> outside; inside <-> n2 <-> l2 <-> m2 <-> f2 <-> outside"
            }
        };
        let is_fast = matches!(self, Workload::Chain4Consolidated | Workload::Branches8Consolidated);
        let (flows_max, consolidate) = (flows.max(1), is_fast);
        let mut text = format!(
            "Port<0> inside;\nPort<1> outside;\nsettings {{ flows: {flows_max}, seed: 1, consolidate: {consolidate}, shares: {{ per_source: 100 }} }};\n\
             pipelet {{ {line}; }}\n"
        );
        for branch in ["", "2"] {
            let has = |function: &str| line.contains(&format!(" {function}{branch} "));
            if has("n") {
                text += &nat(branch, flows);
            }
            if has("l") {
                text += &load_balancer(branch);
            }
            if has("m") {
                text += &format!("Monitor m{branch} {{}};\n");
            }
            if has("f") {
                text += &firewall(branch);
            }
        }
        if line.contains(" p ") {
            text += "Policer p { rate: 100Gbps };\n";
        }
        if line.contains(" s ") {
            text += &format!("Policer s {{ rate: 100Gbps, per: source, meters: {} }};\n", flows.max(1));
        }
        if line.contains(" h ") {
            text += "HTTP h {};\n";
        }
        if line.contains(" i ") {
            text += &ids(rules, self == Workload::IdsMatching);
        }
        if line.contains(" k ") {
            text += &marker();
        }
        if line.contains(" c ") {
            text += "TcpMss c { to_path_mtu: { outside: 1492 } };\n";
        }
        if line.contains(" x ") {
            text += "Mirror x { vni: 7, source: 203.0.113.1, collector: 203.0.113.2 };\n";
        }
        if line.contains(" w ") {
            text += &whitelist(flows);
        }
        if line.contains(" d ") {
            text += &preventer(flows);
        }
        text
    }
}

/// Rules that match all pages: a request's target, a response's stream and body.
const MATCHING: &str = r#"
alert http any any -> any any (msg:"target"; http.uri; content:"search=network"; sid:9100001;)
alert tcp any any -> any any (msg:"stream"; flow:to_client; content:"<title>Wiki</title>"; sid:9100002;)
alert http any any -> any any (msg:"body"; file.data; content:"<html>"; content:"</a>"; distance:0; sid:9100003;)
"#;

/// Returns an IDS with the rules of these files, or with a few built-in ones; with `matching`, also
/// with rules that match. All addresses are in both nets, so addresses exclude no rule.
fn ids(files: &[PathBuf], matching: bool) -> String {
    let files = files.iter().map(|file| format!("file({:?})", file.display().to_string()));
    let mut rules: Vec<_> = files.collect();
    if rules.is_empty() {
        rules.push(format!("{:?}", include_str!("../../../../examples/ids.rules")));
    }
    if matching {
        rules.push(format!("{MATCHING:?}"));
    }
    format!(
        "IDS i {{ rules: [{}], variables: \"HOME_NET = any\\nEXTERNAL_NET = any\", mode: detect }};\n",
        rules.join(", ")
    )
}

/// Returns a NAT with enough external addresses for the flows; each has about 64,000 ports.
fn nat(branch: &str, flows: u32) -> String {
    let (addresses, net) = (flows / 50_000 + 1, branch.len());
    format!("NAT n{branch} {{ external: [198.18.{net}.1-198.18.{net}.{addresses}] }};\n")
}

fn load_balancer(branch: &str) -> String {
    let servers = (1..=32).map(|i| format!("{{ name: s{i}, address: 172.16.0.{i} }}"));
    let servers: Vec<_> = servers.collect();
    format!(
        "LB l{branch} {{ services: [ {{ name: web, vip: 192.0.2.80, port: 80, protocol: udp, servers: [{}] }} ] }};\n",
        servers.join(", ")
    )
}

/// Returns a whitelister of a service that can record a client for each flow.
fn whitelist(flows: u32) -> String {
    let capacity = flows.max(1);
    format!("Whitelist w {{ protect: outside, record: [clients], services: [80], capacity: {capacity} }};\n")
}

/// Returns a preventer before a service that counts and meters each packet, and each flow of its
/// source, and drops none.
fn preventer(flows: u32) -> String {
    let sources = flows.max(1);
    format!(
        "DosPreventer d {{ protect: outside, packets: 4_000_000_000, flow_rate: 100Mpps, flow_burst: 1M, connections: 1M, \
         connections_burst: 1M, sources: {sources} }};\n"
    )
}

/// Returns a firewall with 99 rules that do not match, and a last rule that does.
fn firewall(branch: &str) -> String {
    let mut rules: Vec<_> = (0..99)
        .map(|i| format!("deny tcp from 172.{}.0.0/16 to 203.0.113.{i} port {}", 16 + i % 16, 1000 + i))
        .collect();
    rules.push("allow any from any to any".to_owned());
    format!("Firewall f{branch} {{ rules: \"{}\" }};\n", rules.join("\\n"))
}

/// Returns a marker with the same conditions.
fn marker() -> String {
    let mut rules: Vec<_> = (0..99)
        .map(|i| format!("keep tcp from 172.{}.0.0/16 to 203.0.113.{i} port {}", 16 + i % 16, 1000 + i))
        .collect();
    rules.push("dscp ef push_vlan 7".to_owned());
    format!("Mark k {{ rules: \"{}\" }};\n", rules.join("\\n"))
}

/// A graph under measurement.
pub struct GraphTarget {
    graph: Box<Graph>,
    /// The units that it runs on, unless it runs inline.
    units: Option<Units>,
    pool: PacketPool,
    batch: Vec<Packet>,
    out: Vec<Packet>,
    batch_len: usize,
    now_ns: u64,
    fresh: bool,
    /// Payloads, in the workloads that have any.
    conversations: Option<Conversations>,
    said: Content,
    /// Rules match the payloads.
    matching: bool,
}

impl GraphTarget {
    /// Creates the workload's graph.
    pub fn new(
        workload: Workload,
        flows: u32,
        packet_size: u16,
        batch_len: usize,
        rules: &[PathBuf],
    ) -> anyhow::Result<GraphTarget> {
        let policy = workload.policy(flows, rules);
        let assembly = policies::parse(workload.name(), &policy, Path::new(""), None)?;
        let said = match workload {
            Workload::Ids | Workload::IdsMatching => Content::Pages,
            Workload::IdsRandom => Content::Noise,
            _ => Content::Padding,
        };
        Ok(GraphTarget {
            graph: assembly.graph,
            units: None,
            pool: PacketPool::new(4 * batch_len),
            batch: Vec::with_capacity(batch_len),
            out: Vec::with_capacity(2 * batch_len),
            batch_len,
            now_ns: 1_000_000_000,
            fresh: workload.frames() == Kind::Syn,
            conversations: (workload.frames() == Kind::Segment)
                .then(|| Conversations::new(said, flows, packet_size as usize - 4 - PAYLOAD)),
            said,
            matching: workload == Workload::IdsMatching,
        })
    }

    /// Moves it to up to `units_max` units.
    pub fn on_units(mut self, units_max: u16) -> anyhow::Result<GraphTarget> {
        let config = UnitsConfig { units_max, ..UnitsConfig::default() };
        self.units = Some(Units::new(config, &self.graph)?);
        Ok(self)
    }

    /// Processes a batch: receives the frames, processes the packets, and frees the output.
    #[inline]
    fn run(&mut self, frames: Frames<'_>) {
        self.pool.take_small(frames.len(), &mut self.batch);
        let first_ns = self.now_ns;
        for (i, (packet, frame)) in self.batch.iter_mut().zip(frames).enumerate() {
            let received = packet.receive(frame);
            debug_assert!(received.is_ok(), "frames are shorter than buffers");
            packet.meta_mut().transit.timestamp_ns = first_ns + i as u64 * PACE_NS;
        }
        self.now_ns += self.batch.len() as u64 * PACE_NS;
        if let Some(conversations) = &mut self.conversations {
            self.batch.iter_mut().for_each(|packet| conversations.fill(packet));
        }
        match &mut self.units {
            Some(units) => units.process(&mut self.graph, &mut self.batch, &mut self.out, &mut self.pool),
            None => self.graph.process(&mut self.batch, &mut self.out, &mut self.pool),
        }
        std::hint::black_box(&mut self.out);
        self.pool.give_all(&mut self.out);
        let effects = self.graph.effects_mut();
        effects.reports.clear();
        effects.alerts.clear();
        effects.events.clear();
    }
}

impl Target for GraphTarget {
    fn warm_up(&mut self, tape: &Tape) -> anyhow::Result<()> {
        for opening in tape.openings() {
            self.run(opening.chunks_exact(opening.len()));
        }
        let counters = self.graph.counters();
        ensure!(
            counters.dropped() == 0,
            "the warm-up dropped packets: {:?}",
            packet::DropReason::ALL.iter().find(|reason| counters.drops[reason.index()] > 0)
        );
        self.play(tape, 0, WARM_UP);
        Ok(())
    }

    fn play(&mut self, tape: &Tape, from: usize, count: usize) {
        tape.play(from, count, self.batch_len).for_each(|frames| self.run(frames));
    }

    fn check(&self, tape: &Tape) -> anyhow::Result<()> {
        let counters = self.graph.counters();
        ensure!(counters.add_up(), "counters do not add up: {counters:?}");
        ensure!(counters.dropped() == 0, "packets were dropped: {counters:?}");
        let came = counters.packets_in + counters.packets_generated;
        ensure!(self.fresh || counters.packets_out == came, "packets were lost");
        ensure!(
            !self.fresh || counters.flows_started == counters.packets_in,
            "not every packet started a flow"
        );
        if let Some(length) = tape.flow_length() {
            let (started, expected) = (counters.flows_started, counters.packets_in / u64::from(length));
            // Flows opened in the warm-up have one packet more, and those at the tape's end, up to
            // a quarter, are cut. A flow that is evicted before its end starts again.
            let at_most = expected + expected / 2 + tape.openings().len() as u64;
            ensure!(
                (expected / 2..=at_most).contains(&started),
                "{started} flows started, expected about {expected}"
            );
        }
        if self.conversations.is_some() && self.said == Content::Padding {
            let http = &self.graph.stages()[0].shared().counters;
            let anomalies = http.iter().filter(|counter| counter.declared.name == "anomalies");
            let anomalies: u64 = anomalies.map(|counter| counter.count).sum();
            ensure!(http.get("flows") == Some(counters.flows_started), "not every flow carries HTTP");
            ensure!(anomalies == 0, "the HTTP parser found anomalies");
        }
        if let (true, Some(conversations)) = (self.matching, &self.conversations) {
            let alerts = self.graph.stages()[0].shared().counters.get("alerts").unwrap_or(0);
            // Pages of the shortest packets have no title; every conversation raises one alert.
            let least = conversations.completed_at_least(counters.packets_in);
            ensure!(alerts >= least, "{alerts} alerts, expected at least {least}");
        }
        Ok(())
    }

    fn record_len(&self) -> usize {
        self.graph.flows().record_len()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn every_workload_runs_and_drops_nothing() -> anyhow::Result<()> {
        for workload in Workload::value_variants() {
            let tape = Tape::new(100, 64, None, workload.frames());
            let mut world = workload.world(100, 64, 16, &[], 10, false).with_context(|| workload.name())?;
            world.warm_up(&tape).with_context(|| workload.name())?;
            world.play(&tape, WARM_UP, 1000);
            world.check(&tape).with_context(|| workload.name())?;
        }
        Ok(())
    }

    fn run(workload: Workload, length: u32, packets: usize) -> anyhow::Result<()> {
        let name = || format!("{}, flows of {length} packets", workload.name());
        let tape = Tape::of_length(100, 64, length);
        let mut world = workload.world(200, 64, 16, &[], 10, false).with_context(name)?;
        world.warm_up(&tape).with_context(name)?;
        world.play(&tape, WARM_UP, packets);
        world.check(&tape).with_context(name)
    }

    #[test]
    fn flows_end_and_others_start() -> anyhow::Result<()> {
        for workload in Workload::value_variants().iter().filter(|workload| workload.has_flows_that_end()) {
            run(*workload, 1, 1000)?;
            run(*workload, 3, 1000)?;
        }
        Ok(())
    }

    /// Half of the table's flows continue. The others have ended and are evicted.
    #[test]
    fn flows_of_any_length_start_once() -> anyhow::Result<()> {
        for workload in [Workload::Nat, Workload::Firewall, Workload::Chain4Consolidated] {
            for length in [2, 16, 64, 256] {
                run(workload, length, 600 * length as usize)?;
            }
        }
        Ok(())
    }
}
