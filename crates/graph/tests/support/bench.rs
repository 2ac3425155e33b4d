//! Runs a graph over traffic, and writes down everything that can be seen of it from outside.

use graph::streams::Streams;
use graph::{Counters, Graph, Observer, Options, Topology};
use nf::record::RecordHeader;
use nf::stage::{Stage, StageCounters};
use nf::{Alert, Event, EventValue, FlowReport};
use packet::{Packet, PacketPool, Side};
use policy::Policy;

use super::packets;

/// A packet that arrives.
#[derive(Clone)]
pub struct Arrival {
    pub at_ns: u64,
    pub side: Side,
    /// From the IP header on.
    pub network: Vec<u8>,
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex: String = self.network.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(f, "{} ns {:?} {hex}", self.at_ns, self.side)
    }
}

/// A packet that left: its number in the order of arrival, the side, and all bytes.
pub type Sent = (u64, Side, Vec<u8>);

/// Everything that a run leaves.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub sent: Vec<Sent>,
    pub counters: Counters,
    pub alerts: Vec<Alert>,
    /// Alerts and events, in their common order.
    pub told: Vec<String>,
    pub reports: Vec<String>,
    /// Number and bytes of every flow's record.
    pub flows: Vec<(u32, Vec<u8>)>,
    pub stages: Vec<StageCounters>,
    /// Shared state: counters, members of sets, items of pools in use.
    pub shared: Vec<String>,
}

/// A graph with its buffers, fed packet by packet or batch by batch.
pub struct Bench {
    pub graph: Graph,
    pub pool: PacketPool,
    pub sent: Vec<Sent>,
    pub alerts: Vec<Alert>,
    /// Alerts and events, in their common order.
    pub told: Vec<String>,
    pub reports: Vec<FlowReport>,
    out: Vec<Packet>,
    buffers: usize,
    /// True if the graph may start over: then packets are lost inside of it.
    starts_over: bool,
}

/// The bytes of a flow's record. Where its streams stand in it, which names blocks that any other
/// could be in the place of, there is instead what waits in them.
fn flow(graph: &Graph, record: u32) -> Vec<u8> {
    const STREAMS: std::ops::Range<usize> =
        size_of::<RecordHeader>()..size_of::<RecordHeader>() + size_of::<Streams>();
    let mut bytes = graph.flows().records().bytes(record).unwrap().to_vec();
    if graph.stages().iter().any(|stage| stage.descriptor().stream) {
        let mut streams = vec![];
        graph.flows().save_streams(record, &mut streams);
        bytes.splice(STREAMS, streams);
    }
    bytes
}

/// Small buffers of a bench.
const BUFFERS: usize = 512;

impl Bench {
    pub fn new(stages: Vec<Box<dyn Stage>>, options: Options) -> Bench {
        Bench::of(Graph::new(stages, options).unwrap())
    }

    /// One whose line is a graph that could have branches: packets follow routes.
    pub fn routed(stages: Vec<Box<dyn Stage>>, options: Options) -> Bench {
        let names: Vec<String> = (0..stages.len()).map(|stage| format!("f{stage}")).collect();
        let nfs: String = names.iter().map(|name| format!("Nf {name};\n")).collect();
        let line: String = names.iter().map(|name| format!("{name} <-> ")).collect();
        let text = format!("Port<0> in;\nPort<1> out;\n{nfs}pipelet {{ in <-> {line}out; }}\n");
        Bench::branching(stages, &text, options)
    }

    /// One whose graph is that of a policy, with these functions in topological order.
    pub fn branching(stages: Vec<Box<dyn Stage>>, text: &str, options: Options) -> Bench {
        let policy = Policy::read("graph", text, &mut |_: &str| Err(String::new())).unwrap();
        Bench::of(Graph::branching(stages, Topology::new(&policy).unwrap(), options).unwrap())
    }

    fn of(graph: Graph) -> Bench {
        Bench {
            graph,
            pool: PacketPool::new(BUFFERS),
            sent: vec![],
            alerts: vec![],
            told: vec![],
            reports: vec![],
            out: vec![],
            buffers: BUFFERS,
            starts_over: false,
        }
    }

    /// One whose graph may start over.
    pub fn starting_over(stages: Vec<Box<dyn Stage>>, options: Options) -> Bench {
        Bench { starts_over: true, ..Bench::new(stages, options) }
    }

    /// Processes these packets as one batch.
    pub fn batch(&mut self, arrivals: &[Arrival]) {
        let mut batch: Vec<Packet> = arrivals.iter().map(|a| self.receive(a)).collect();
        self.graph.process(&mut batch, &mut self.out, &mut self.pool);
        assert!(batch.is_empty());
        self.settle();
    }

    /// Processes one packet; what left for it, as (side, bytes from the IP header on).
    pub fn one(&mut self, at_ns: u64, side: Side, network: &[u8]) -> Vec<(Side, Vec<u8>)> {
        let before = self.sent.len();
        self.batch(&[Arrival { at_ns, side, network: network.to_vec() }]);
        self.sent[before..].iter().map(|(_, side, frame)| (*side, frame[14..].to_vec())).collect()
    }

    /// Processes one packet that must leave unaccompanied, by the other side.
    pub fn through(&mut self, at_ns: u64, side: Side, network: &[u8]) -> Vec<u8> {
        let mut sent = self.one(at_ns, side, network);
        assert_eq!(sent.len(), 1, "one packet leaves; drops: {:?}", self.drops());
        let (left_by, bytes) = sent.remove(0);
        assert_eq!(left_by, side.other());
        bytes
    }

    /// Processes one packet under an observer's eyes.
    pub fn watched(&mut self, arrival: &Arrival, observer: &mut dyn Observer) {
        let packet = self.receive(arrival);
        self.graph.observe(packet, &mut self.out, &mut self.pool, observer);
        self.settle();
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_ns: u64) {
        self.graph.handle_timeout(now_ns, &mut self.pool);
        self.settle();
    }

    /// The names of the reasons for which packets were dropped so far, with their counts.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let counters = self.graph.counters();
        let counted = packet::DropReason::ALL.iter().map(|r| (r.name(), counters.drops[r.index()]));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Ends the run.
    pub fn outcome(mut self) -> Outcome {
        self.settle();
        let records = self.graph.flows().records();
        let live = records.used().filter(|&r| records.header(r).has(RecordHeader::FLAG_LIVE));
        let reports = self.reports.iter().map(|r| format!("{r:?}")).collect();
        Outcome {
            flows: live.map(|record| (record, flow(&self.graph, record))).collect(),
            counters: self.graph.counters(),
            stages: self.graph.stages().iter().map(|stage| stage.counters()).collect(),
            shared: self.graph.stages().iter().map(|stage| shared(&**stage)).collect(),
            sent: self.sent,
            alerts: self.alerts,
            told: self.told,
            reports,
        }
    }

    fn receive(&mut self, arrival: &Arrival) -> Packet {
        let mut packet = self.pool.take(&packets::frame(&arrival.network)).unwrap();
        packet.meta_mut().transit.timestamp_ns = arrival.at_ns;
        packet.meta_mut().transit.side = arrival.side;
        packet.meta_mut().transit.ingress = arrival.side as u16;
        packet
    }

    /// Takes what the graph put out, and checks what must hold between batches.
    fn settle(&mut self) {
        for packet in self.out.drain(..) {
            self.sent.push((
                packet.meta().transit.sequence,
                packet.meta().transit.side,
                packet.data().to_vec(),
            ));
            self.pool.give(packet);
        }
        let effects = self.graph.effects_mut();
        let mut given = 0;
        for event in effects.events.iter() {
            let before = &effects.alerts[given..event.alerts_before];
            self.told.extend(before.iter().map(|alert| format!("{alert:?}")));
            self.told.push(show(&event));
            given = event.alerts_before;
        }
        self.told.extend(effects.alerts[given..].iter().map(|alert| format!("{alert:?}")));
        effects.events.clear();
        self.alerts.append(&mut effects.alerts);
        self.reports.append(&mut effects.reports);
        assert!(effects.generated.is_empty());
        let counters = self.graph.counters();
        assert!(counters.add_up(), "{counters:?}");
        let ended: u64 = counters.flows_ended.iter().sum();
        assert_eq!(
            counters.flows_started + counters.flows_moved_in,
            counters.flows_live + ended + counters.flows_moved_out
        );
        let records = self.graph.flows().records();
        let live = records.used().filter(|&r| records.header(r).has(RecordHeader::FLAG_LIVE)).count() as u64;
        assert_eq!(counters.flows_live, live);
        // Flows that turn back have a second record.
        assert!((live..=2 * live).contains(&u64::from(records.live())));
        if !self.starts_over {
            assert_eq!(counters.drops[packet::DropReason::Internal.index()], 0);
        }
        let held = counters.packets_pending as usize;
        assert_eq!(self.pool.free() + held, self.buffers, "no buffer is lost or doubled");
    }
}

/// Runs traffic through a graph in batches of this size.
pub fn run(stages: Vec<Box<dyn Stage>>, options: Options, traffic: &[Arrival], batch: usize) -> Outcome {
    let mut bench = Bench::new(stages, options);
    for arrivals in traffic.chunks(batch) {
        bench.batch(arrivals);
    }
    bench.outcome()
}

/// An event as a line: who, when, which way, and its fields.
fn show(event: &Event<'_>) -> String {
    let (source, destination) = event.key.ends(event.reversed);
    let mut line = format!("{} {:?} at {} ns", event.kind, event.sequence, event.timestamp_ns);
    line += &format!(" by {} {source:?} -> {destination:?}:", event.stage);
    for (name, value) in event.fields() {
        match value {
            EventValue::Number(number) => line += &format!(" {name}={number}"),
            EventValue::Flag(flag) => line += &format!(" {name}={flag}"),
            EventValue::Text(text) | EventValue::Json(text) => {
                line += &format!(" {name}={}", text.escape_ascii());
            }
        }
    }
    line
}

fn shared(stage: &dyn Stage) -> String {
    let shared = stage.shared();
    let sets: Vec<usize> = shared.sets.iter().map(|set| set.len()).collect();
    let pools: Vec<_> = shared.pools.iter().map(|p| (p.in_use(), p.peak(), p.exhausted())).collect();
    let meters: Vec<_> = shared.meters.iter().map(|m| (m.in_use(), m.forgotten(), m.refused())).collect();
    format!("{:?} {sets:?} {pools:?} {meters:?}", shared.counters)
}
