//! The report of a run: what went in, what came out, and what became of the rest. Documented in
//! `docs/report.md`.

use std::collections::BTreeMap;

use graph::{Counters, FastPath, FlowClass, Graph};
use hdrhistogram::Histogram;
use nf::{Connection, EndReason, RuleCounters, Shared};
use packet::{DropReason, TunnelKind};
use serde::Serialize;

use crate::shards::counters::Counters as WorkerCounters;
use crate::units_report::UnitsReport;

/// What a run has done. `packets_in + packets_generated = packets_out + sum(drops) + packets_pending`,
/// always.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The report's layout; raised when a field changes its meaning.
    pub version: u32,
    /// The policy's name.
    pub policy: String,
    /// Seed of the run: with it, the same input gives the same output. Absent from live runs for
    /// which it was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Packets received.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Packets that functions made.
    pub packets_generated: u64,
    /// Packets waiting inside when the run ended: fragments whose first one, or the rest of whose
    /// datagram, never came.
    pub packets_pending: u64,
    /// Packets dropped, by reason; reasons without drops are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes received, from the link layer on, as captured.
    pub bytes_in: u64,
    /// Bytes that left.
    pub bytes_out: u64,
    /// Frames that were not IP and passed.
    pub not_ip_passed: u64,
    /// How often code that processes packets panicked outside of functions, and went on: a graph
    /// with empty tables, a thread with its next batch. Absent if it never did.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// Of these, those that a link needs, such as ARP, LLDP and spanning tree.
    pub link_control_passed: u64,
    /// Flows that are tunnels which were not looked into, by kind; kinds without flows are left
    /// out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tunnels_not_looked_into: BTreeMap<&'static str, u64>,
    /// What became of flows.
    pub flows: FlowsReport,
    /// Fragmented datagrams that were forgotten before their time: because the `table` was full, or
    /// their `source` had its share of it; absent if none was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fragments_displaced: BTreeMap<&'static str, u64>,
    /// What became of TCP streams; absent if no function looks into them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<BTreeMap<&'static str, u64>>,
    /// The functions, from the inside to the outside.
    pub functions: Vec<FunctionReport>,
    /// The ports, by name.
    pub ports: BTreeMap<String, PortReport>,
    /// The network interfaces of ports, by port; absent if the run was over captures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceReport>,
    /// Alerts raised and taken.
    pub alerts: u64,
    /// Alerts that found no room: more were raised at once than are held.
    pub alerts_lost: u64,
    /// Events told and taken.
    pub events: u64,
    /// Events that found no room.
    pub events_lost: u64,
    /// Flow reports that found no room.
    pub flow_reports_lost: u64,
    /// Packets that functions could not make, for want of a buffer.
    pub packets_not_generated: u64,
    /// What units did, if the policy ran on several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<UnitsReport>,
    /// What each worker did, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerReport>,
    /// What became of what was to be written, by output; absent if nothing was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputReport>,
    /// What became of operators' commands; absent without commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandsReport>,
    /// First and last packet's time, in nanoseconds since 1970; absent without packets.
    pub first_packet_ns: Option<u64>,
    /// See `first_packet_ns`.
    pub last_packet_ns: Option<u64>,
    /// Stamps of captures that were missing, broken, or jumped; absent without any.
    #[serde(skip_serializing_if = "TimeJumps::is_none")]
    pub time_jumps: TimeJumps,
    /// What depends on the machine: everything else is the same for the same input and seed.
    pub timing: Timing,
}

/// Stamps of captures that were missing, broken, or jumped by more than a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeJumps {
    /// How often time jumped ahead, and stayed there: it has passed.
    pub ahead: u64,
    /// How often time jumped back, and stayed there: it went on from the time before.
    pub back: u64,
    /// Packets whose stamp alone was elsewhere: they came with the packet before them.
    pub broken: u64,
    /// Packets without a time: they came with the packet before them, the first ones with the one
    /// behind them.
    pub without_time: u64,
}

impl TimeJumps {
    /// Whether there were none.
    pub fn is_none(&self) -> bool {
        *self == TimeJumps::default()
    }
}

impl std::ops::Add for TimeJumps {
    type Output = TimeJumps;

    fn add(self, other: TimeJumps) -> TimeJumps {
        TimeJumps {
            ahead: self.ahead + other.ahead,
            back: self.back + other.back,
            broken: self.broken + other.broken,
            without_time: self.without_time + other.without_time,
        }
    }
}

/// What became of flows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowsReport {
    /// Flows that began.
    pub started: u64,
    /// Flows that were in the table when the run ended.
    pub live: u64,
    /// Flows in the table at once, at most.
    pub peak: u64,
    /// Flows at most, of all workers or units together.
    pub size: u64,
    /// Flows that were in the table when the run ended, by class.
    pub live_by_class: BTreeMap<&'static str, u64>,
    /// Flows that ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// Flows that gave way to others in a full table, by class; classes without are left out.
    pub evicted: BTreeMap<&'static str, u64>,
    /// Of those, flows whose source held more than its share.
    pub evicted_over_source: u64,
    /// Bytes of a flow's record.
    pub record_bytes: usize,
}

/// What a function has counted.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionReport {
    /// Its name in the policy.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Packets that entered it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// How often it panicked; absent if it never did.
    #[serde(skip_serializing_if = "is_zero")]
    pub panics: u64,
    /// What it said when it did so last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_panic: Option<String>,
    /// Its own counters.
    pub counters: BTreeMap<String, u64>,
    /// What each of its rules has decided about; left out where it has none that operators write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleReport>,
    /// Its pools.
    pub pools: BTreeMap<&'static str, PoolReport>,
    /// Its tables of meters; left out where it has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meters: BTreeMap<&'static str, MetersReport>,
    /// The contents that it keeps; left out where it keeps none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<&'static str, ContentsReport>,
    /// The growing buffers of its flows; left out where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<BuffersReport>,
    /// Packets that it processed itself while cycles were counted; others went by rules of the fast
    /// path.
    #[serde(skip)]
    pub walked: u64,
    /// Processor cycles per packet that it processed itself, where they can be counted; in JSON it
    /// stands in [`Timing::cycles_per_packet`].
    #[serde(skip)]
    pub cycles_per_packet: Option<f64>,
}

/// A rule of a function.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReport {
    /// Its number, from 1; 0: what holds where no rule matches.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Where it is written, such as `x.rules:12`; empty if that is not known.
    pub place: String,
    /// Flows that it decided about.
    pub flows: u64,
    /// Packets that it decided about.
    pub packets: u64,
    /// Their bytes, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The time of the last one; none if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_hit_ns: Option<u64>,
}

impl RuleReport {
    fn of(counters: &RuleCounters) -> RuleReport {
        let RuleCounters { label, flows, packets, bytes, last_hit_ns } = counters;
        RuleReport {
            number: label.number,
            name: label.name.to_string(),
            place: label.place.to_string(),
            flows: *flows,
            packets: *packets,
            bytes: *bytes,
            last_hit_ns: (*last_hit_ns > 0).then_some(*last_hit_ns),
        }
    }

    /// Adds what the same rule decided about elsewhere.
    fn add(&mut self, other: &RuleReport) {
        self.flows += other.flows;
        self.packets += other.packets;
        if let (Some(bytes), Some(others)) = (&mut self.bytes, other.bytes) {
            *bytes += others;
        }
        self.last_hit_ns = self.last_hit_ns.max(other.last_hit_ns);
    }
}

/// A pool of items that flows take.
#[derive(Clone, Debug, Serialize)]
pub struct PoolReport {
    /// Items in all.
    pub size: u32,
    /// Items taken.
    pub in_use: u32,
    /// Items taken at once, at most.
    pub peak: u32,
    /// How many times nothing free was found.
    pub exhausted: u64,
}

/// A table of meters.
#[derive(Clone, Debug, Serialize)]
pub struct MetersReport {
    /// Meters at most.
    pub size: usize,
    /// Meters in use.
    pub in_use: usize,
    /// How many were as good as new, and were forgotten for others.
    pub forgotten: u64,
    /// How many times no meter was free.
    pub refused: u64,
}

/// Payloads that are kept, to be found again.
#[derive(Clone, Debug, Serialize)]
pub struct ContentsReport {
    /// Bytes of payloads at most.
    pub size_bytes: usize,
    /// Bytes of memory for them, and for what finds them.
    pub memory_bytes: usize,
    /// Bytes of payloads that came, in all.
    pub kept_bytes: u64,
    /// Fingerprints that found no place but that of one whose payload was still there.
    pub displaced: u64,
}

/// The growing buffers of a function's flows.
#[derive(Clone, Debug, Serialize)]
pub struct BuffersReport {
    /// Bytes in them.
    pub used_bytes: usize,
    /// Bytes that found no room.
    pub refused_bytes: u64,
    /// Buffers that gave way to others.
    pub gave_way: u64,
}

/// What a port has seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortReport {
    /// Packets received.
    pub packets_in: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

/// What a network interface has done for its port. `received` is the port's `packets_in`; `sent`,
/// `too_long`, `no_room` and `down` together are its `packets_out`; with a host between them,
/// `received` and the host's `returned` together are `packets_in` and the host's `consumed`, and what
/// was sent or not is `packets_out` without the host's `withheld`, and with its `generated`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// The driver in use, and its mode: one of [`io::port::DriverInfo::modes`].
    pub driver: String,
    /// Frames received, each segment of what the kernel had put together counted.
    pub received: u64,
    /// Frames that came with checksums which their sender had left open, and which were completed;
    /// each before it was cut.
    pub completed: u64,
    /// Frames that came faster than they were taken, and that the kernel dropped.
    pub missed: u64,
    /// Frames that could not be read: longer than any packet, or not as the kernel said.
    pub unreadable: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames not sent, as they are longer than the interface takes.
    pub too_long: u64,
    /// Frames not sent, as the interface had no room for more.
    pub no_room: u64,
    /// Frames not sent, as the interface was down or gone.
    pub down: u64,
    /// What the port's host has done; absent if the port has no addresses, and no function has
    /// addresses that it answers for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostReport>,
}

impl InterfaceReport {
    /// Frames that were not received or not sent.
    pub fn lost(&self) -> u64 {
        self.missed + self.unreadable + self.too_long + self.no_room + self.down
    }

    /// Adds what came and went by another part of the interface.
    fn add(&mut self, other: &InterfaceReport) {
        self.received += other.received;
        self.completed += other.completed;
        self.missed += other.missed;
        self.unreadable += other.unreadable;
        self.sent += other.sent;
        self.too_long += other.too_long;
        self.no_room += other.no_room;
        self.down += other.down;
        if let (Some(host), Some(other)) = (&mut self.host, &other.host) {
            host.consumed += other.consumed;
            host.generated += other.generated;
            host.returned += other.returned;
            host.withheld += other.withheld;
            host.unreachable += other.unreachable;
            host.too_big += other.too_big;
            host.expired += other.expired;
            host.pending += other.pending;
            host.announced += other.announced;
        }
    }
}

/// What a router's port has done beside the graph.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostReport {
    /// Frames that did not go through the graph: for the host itself, or for nobody here.
    pub consumed: u64,
    /// Frames that the host made: questions, answers, fragments; and packets that had waited for a
    /// neighbour's address.
    pub generated: u64,
    /// Errors about packets that could not leave, which went back through the graph.
    pub returned: u64,
    /// Packets that did not leave as they came from the graph: they wait, were cut, or are among
    /// the following.
    pub withheld: u64,
    /// Packets without a route, or whose neighbour did not answer.
    pub unreachable: u64,
    /// Packets longer than the link takes, which must not be cut.
    pub too_big: u64,
    /// Packets whose time to live was over, when they arrived or when they were to leave.
    pub expired: u64,
    /// Packets that wait for a neighbour's address.
    pub pending: u64,
    /// Announcements of functions' addresses, that neighbours did not ask for.
    pub announced: u64,
    /// Addresses of functions that are not announced, as they are too many.
    pub unannounced: u64,
}

impl HostReport {
    pub(crate) fn of(counted: l3::Counters, pending: u64) -> HostReport {
        HostReport {
            consumed: counted.consumed,
            generated: counted.generated,
            returned: counted.returned,
            withheld: counted.withheld,
            unreachable: counted.unreachable,
            too_big: counted.too_big,
            expired: counted.expired,
            pending,
            announced: counted.announced,
            unannounced: counted.unannounced,
        }
    }
}

/// What became of the records of an output: lines, packets or messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputReport {
    /// Records written.
    pub written: u64,
    /// Records that were not written: there was no room for them, or the output failed.
    pub not_written: u64,
    /// Alerts that were not written because there were many of their kind from their source.
    pub suppressed: u64,
}

impl OutputReport {
    /// Adds what became of the records of another output.
    pub fn add(&mut self, other: OutputReport) {
        self.written += other.written;
        self.not_written += other.not_written;
        self.suppressed += other.suppressed;
    }
}

/// What became of operators' commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandsReport {
    /// Commands carried out.
    pub executed: u64,
    /// Commands that functions refused when they were due.
    pub refused: u64,
}

/// What a worker has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerReport {
    /// Packets.
    #[serde(flatten)]
    pub counters: WorkerCounters,
    /// The share of the time that it slept.
    pub asleep_share: f64,
}

/// What depends on the machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timing {
    /// How long the run took, in seconds.
    pub seconds: f64,
    /// Packets per second of processing time.
    pub packets_per_second: f64,
    /// Time from the start of a packet's batch until its batch was done, in nanoseconds, by
    /// percentile.
    pub latency_ns: BTreeMap<&'static str, u64>,
    /// Processor cycles per packet of each function, by its name; empty where they cannot be
    /// counted.
    pub cycles_per_packet: BTreeMap<String, f64>,
    /// Where panics came from since the program began, of functions and of others; absent if there
    /// were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panics: Vec<crate::panics::Panicked>,
    /// How packets went through, which depends on how they came in batches; absent if every packet
    /// walks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastPathReport>,
    /// Rounds of the threads that drive interfaces; absent if the run was over captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polling: Option<PollingReport>,
}

/// Rounds of a thread that drives interfaces. A round receives, processes and sends what is there;
/// after some rounds without a frame, each ends with a sleep. `rounds - sleeps` is bounded by the
/// frames that came, however slow the machine is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PollingReport {
    /// Rounds.
    pub rounds: u64,
    /// Sleeps until a frame, other news, or a time limit.
    pub sleeps: u64,
    /// Sleeps that ended before their time limit.
    pub wakeups: u64,
    /// Notifications of the kernel or a driver that a link may have changed.
    pub link_news: u64,
}

impl PollingReport {
    /// Adds those of another thread.
    pub fn add(&mut self, other: PollingReport) {
        self.rounds += other.rounds;
        self.sleeps += other.sleeps;
        self.wakeups += other.wakeups;
        self.link_news += other.link_news;
    }
}

/// How packets of known flows went through the functions: by rules that stand for the walk, or
/// function by function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FastPathReport {
    /// Packets that followed a rule.
    pub packets: u64,
    /// Of these, those of which the rule was made of what functions foresaw.
    pub predicted: u64,
    /// Packets that were recorded, to make rules of.
    pub recorded: u64,
    /// Of these, those of which no rule could be made.
    pub failed: u64,
    /// Processor cycles of state functions for packets that followed a rule.
    #[serde(skip)]
    pub cycles: u64,
    /// The same per packet that followed a rule, all functions together; absent where they cannot
    /// be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
}

impl FastPathReport {
    fn of(graph: &Graph) -> FastPathReport {
        let FastPath { packets, predicted, recorded, failed, beside: _ } = graph.fast_path();
        let walked: u64 = graph.walked().iter().map(|walked| walked.cycles).sum();
        let cycles = graph.cycles().iter().sum::<u64>().saturating_sub(walked);
        let mut report =
            FastPathReport { packets, predicted, recorded, failed, cycles, cycles_per_packet: None };
        report.set_cycles_per_packet();
        report
    }

    fn set_cycles_per_packet(&mut self) {
        let is_counted = self.cycles > 0 && self.packets > 0;
        self.cycles_per_packet = is_counted.then(|| self.cycles as f64 / self.packets as f64);
    }
}

/// The percentiles that a report shows.
const PERCENTILES: [(&str, f64); 6] =
    [("p1", 1.0), ("p25", 25.0), ("p50", 50.0), ("p75", 75.0), ("p99", 99.0), ("p99.9", 99.9)];

impl Report {
    /// The report of a graph, its functions named by `names`.
    pub fn of(policy: &str, seed: Option<u64>, graph: &Graph, names: &[String]) -> Report {
        let (counters, effects) = (graph.counters(), graph.effects());
        let functions = functions(graph, names);
        let cycles = functions.iter().filter_map(|f| Some((f.name.clone(), f.cycles_per_packet?)));
        let timing = Timing {
            cycles_per_packet: cycles.collect(),
            panics: crate::panics::kept(),
            fast_path: graph.consolidates().then(|| FastPathReport::of(graph)),
            ..Timing::default()
        };
        Report {
            version: 2,
            policy: policy.to_owned(),
            seed,
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            packets_generated: counters.packets_generated,
            packets_pending: counters.packets_pending,
            drops: drops(&counters),
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
            not_ip_passed: counters.not_ip_passed,
            restarts: counters.restarts,
            link_control_passed: counters.link_control_passed,
            tunnels_not_looked_into: tunnels(&counters),
            flows: flows(&counters, graph),
            fragments_displaced: fragments_displaced(&counters),
            streams: graph.has_streams().then(|| counters.streams.by_name().into_iter().collect()),
            functions,
            ports: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            alerts: 0,
            alerts_lost: effects.alerts_lost,
            events: 0,
            events_lost: effects.events.lost(),
            flow_reports_lost: effects.reports_lost,
            packets_not_generated: effects.not_generated,
            units: None,
            workers: Vec::new(),
            outputs: BTreeMap::new(),
            commands: None,
            first_packet_ns: None,
            last_packet_ns: None,
            time_jumps: TimeJumps::default(),
            timing,
        }
    }

    /// Adds what another graph of the same functions has counted.
    pub fn add(&mut self, other: Report) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.packets_generated += other.packets_generated;
        self.packets_pending += other.packets_pending;
        add(&mut self.drops, other.drops);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.not_ip_passed += other.not_ip_passed;
        self.restarts += other.restarts;
        self.link_control_passed += other.link_control_passed;
        add(&mut self.tunnels_not_looked_into, other.tunnels_not_looked_into);
        self.flows.started += other.flows.started;
        self.flows.live += other.flows.live;
        self.flows.size += other.flows.size;
        add(&mut self.flows.live_by_class, other.flows.live_by_class);
        add(&mut self.flows.ended, other.flows.ended);
        add(&mut self.flows.evicted, other.flows.evicted);
        self.flows.evicted_over_source += other.flows.evicted_over_source;
        add(&mut self.fragments_displaced, other.fragments_displaced);
        if let (Some(streams), Some(others)) = (&mut self.streams, other.streams) {
            add(streams, others);
        }
        for (function, other) in self.functions.iter_mut().zip(other.functions) {
            let cycles = [(&*function, function.walked), (&other, other.walked)]
                .map(|(of, packets)| of.cycles_per_packet.unwrap_or(0.0) * packets as f64);
            function.cycles_per_packet = function.cycles_per_packet.or(other.cycles_per_packet);
            if let Some(per_packet) = &mut function.cycles_per_packet {
                *per_packet = (cycles[0] + cycles[1]) / (function.walked + other.walked).max(1) as f64;
                self.timing.cycles_per_packet.insert(function.name.clone(), *per_packet);
            }
            function.walked += other.walked;
            function.packets += other.packets;
            function.bytes += other.bytes;
            function.drops += other.drops;
            function.panics += other.panics;
            function.last_panic = function.last_panic.take().or(other.last_panic);
            add(&mut function.counters, other.counters);
            function.rules.iter_mut().zip(&other.rules).for_each(|(rule, other)| rule.add(other));
            if let (Some(buffers), Some(others)) = (&mut function.buffers, other.buffers) {
                buffers.used_bytes += others.used_bytes;
                buffers.refused_bytes += others.refused_bytes;
                buffers.gave_way += others.gave_way;
            }
        }
        self.alerts_lost += other.alerts_lost;
        self.events_lost += other.events_lost;
        self.flow_reports_lost += other.flow_reports_lost;
        self.packets_not_generated += other.packets_not_generated;
        if let (Some(path), Some(other)) = (&mut self.timing.fast_path, other.timing.fast_path) {
            path.packets += other.packets;
            path.predicted += other.predicted;
            path.recorded += other.recorded;
            path.failed += other.failed;
            path.cycles += other.cycles;
            path.set_cycles_per_packet();
        }
        if let (Some(polling), Some(other)) = (&mut self.timing.polling, other.timing.polling) {
            polling.add(other);
        }
    }

    /// Adds what another worker has counted, which has another part of the same interfaces; but for
    /// latencies, which cannot be added.
    pub fn add_worker(&mut self, mut other: Report) {
        // When each had the most, nobody knows: at once, they had no more than this.
        self.flows.peak += other.flows.peak;
        self.alerts += other.alerts;
        self.events += other.events;
        self.first_packet_ns = self.first_packet_ns.into_iter().chain(other.first_packet_ns).min();
        self.last_packet_ns = self.last_packet_ns.max(other.last_packet_ns);
        for (name, counted) in std::mem::take(&mut other.ports) {
            let port = self.ports.entry(name).or_default();
            port.packets_in += counted.packets_in;
            port.bytes_in += counted.bytes_in;
            port.packets_out += counted.packets_out;
            port.bytes_out += counted.bytes_out;
        }
        for (name, counted) in std::mem::take(&mut other.interfaces) {
            match self.interfaces.get_mut(&name) {
                Some(interface) => interface.add(&counted),
                None => drop(self.interfaces.insert(name, counted)),
            }
        }
        self.add(other);
    }

    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Frames that interfaces did not take or send: they are in no count of packets.
    pub fn frames_lost(&self) -> u64 {
        self.interfaces.values().map(InterfaceReport::lost).sum()
    }

    /// Records that outputs did not write.
    pub fn records_not_written(&self) -> u64 {
        self.outputs.values().map(|output| output.not_written).sum()
    }

    /// Flows that went for new ones.
    pub fn flows_evicted(&self) -> u64 {
        self.flows.ended.get(EndReason::Evicted.name()).copied().unwrap_or(0)
    }

    /// Whether every packet is accounted for.
    pub fn adds_up(&self) -> bool {
        self.packets_in + self.packets_generated == self.packets_out + self.dropped() + self.packets_pending
    }

    /// Takes a histogram of latencies in.
    pub fn set_latency(&mut self, latency: &Histogram<u64>) {
        self.timing.latency_ns = percentiles(latency);
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn drops(counters: &Counters) -> BTreeMap<&'static str, u64> {
    let counted = DropReason::ALL.iter().map(|reason| (reason.name(), counters.drops[reason.index()]));
    counted.filter(|&(_, count)| count > 0).collect()
}

fn tunnels(counters: &Counters) -> BTreeMap<&'static str, u64> {
    let counted = TunnelKind::ALL.iter().map(|&kind| (kind.name(), counters.tunnels[kind as usize]));
    counted.filter(|&(_, count)| count > 0).collect()
}

fn flows(counters: &Counters, graph: &Graph) -> FlowsReport {
    let reasons =
        [EndReason::Idle, EndReason::Closed, EndReason::Rejected, EndReason::Evicted, EndReason::Shutdown];
    FlowsReport {
        started: counters.flows_started,
        live: counters.flows_live,
        peak: counters.flows_peak,
        size: u64::from(graph.options().flows_max),
        live_by_class: by_class(&counters.flows_by_class).collect(),
        evicted: by_class(&counters.evicted_by_class).filter(|&(_, count)| count > 0).collect(),
        evicted_over_source: counters.evicted_over_source,
        ended: reasons.iter().map(|&reason| (reason.name(), counters.ended(reason))).collect(),
        record_bytes: graph.record_len(),
    }
}

fn fragments_displaced(counters: &Counters) -> BTreeMap<&'static str, u64> {
    let counts =
        [("table", counters.fragments_displaced), ("source", counters.fragments_displaced_by_source)];
    counts.into_iter().filter(|&(_, count)| count > 0).collect()
}

fn by_class(counts: &[u64; FlowClass::COUNT]) -> impl Iterator<Item = (&'static str, u64)> {
    FlowClass::ALL.into_iter().map(|class| (class.name(), counts[class as usize]))
}

fn functions(graph: &Graph, names: &[String]) -> Vec<FunctionReport> {
    let stages = graph.stages().iter().zip(names).enumerate();
    stages
        .map(|(number, (stage, name))| {
            let (descriptor, counted, shared) = (stage.descriptor(), stage.counters(), stage.shared());
            let names = descriptor.shared.iter().filter_map(|kind| match kind {
                Shared::Counter(name) => Some((*name).to_owned()),
                _ => None,
            });
            let groups = shared.groups.iter();
            let grouped = groups.flat_map(|g| g.names.iter().cloned().zip(g.values.iter().copied()));
            let pools = shared.pools.iter().map(|pool| {
                let report = PoolReport {
                    size: pool.size(),
                    in_use: pool.in_use(),
                    peak: pool.peak(),
                    exhausted: pool.exhausted(),
                };
                (pool.name(), report)
            });
            let meters = shared.meters.iter().filter(|meters| meters.capacity() > 0).map(|meters| {
                let report = MetersReport {
                    size: meters.capacity(),
                    in_use: meters.in_use(),
                    forgotten: meters.forgotten(),
                    refused: meters.refused(),
                };
                (meters.name(), report)
            });
            let contents = shared.contents.iter().map(|contents| {
                let report = ContentsReport {
                    size_bytes: contents.capacity(),
                    memory_bytes: contents.memory(),
                    kept_bytes: contents.kept_bytes(),
                    displaced: contents.displaced(),
                };
                (contents.name(), report)
            });
            let walked = graph.walked().get(number).copied().unwrap_or_default();
            FunctionReport {
                name: name.clone(),
                kind: descriptor.name,
                packets: counted.packets,
                bytes: counted.bytes,
                drops: counted.drops,
                panics: counted.panics,
                last_panic: stage.last_panic(),
                counters: names.zip(shared.counters.iter().copied()).chain(grouped).collect(),
                rules: shared.rules.iter().map(RuleReport::of).collect(),
                pools: pools.collect(),
                meters: meters.collect(),
                contents: contents.collect(),
                buffers: shared.buffers.as_ref().map(|buffers| BuffersReport {
                    used_bytes: buffers.used_bytes(),
                    refused_bytes: buffers.refused_bytes(),
                    gave_way: buffers.evictions(),
                }),
                walked: walked.packets,
                cycles_per_packet: (walked.cycles > 0 && walked.packets > 0)
                    .then(|| walked.cycles as f64 / walked.packets as f64),
            }
        })
        .collect()
}

/// Latencies from 1 ns to 10 s with two significant digits.
#[allow(clippy::expect_used)]
pub(crate) fn new_histogram() -> Histogram<u64> {
    // Proof: the bounds are constants that the histogram accepts; `runner` tests make one.
    Histogram::new_with_bounds(1, 10_000_000_000, 2).expect("constant bounds are valid")
}

/// What a report shows of latencies.
pub(crate) fn percentiles(latency: &Histogram<u64>) -> BTreeMap<&'static str, u64> {
    let percentiles = PERCENTILES.iter().map(|&(name, p)| (name, latency.value_at_percentile(p)));
    percentiles.chain([("max", latency.max())]).collect()
}

fn add<K: Ord>(counters: &mut BTreeMap<K, u64>, others: BTreeMap<K, u64>) {
    for (name, count) in others {
        *counters.entry(name).or_default() += count;
    }
}

/// The phases of connections, for whoever shows them.
pub fn connection_name(phase: u8) -> &'static str {
    Connection::from_phase(phase).name()
}
