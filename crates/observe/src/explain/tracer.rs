//! An observer of packets in the graph, which keeps the trace of each until it is shown.

use std::collections::{BTreeMap, HashMap};

use graph::{EdgeChoice, EdgeId, Observer, RuleView};
use nf::record::RecordHeader;
use nf::{Alert, Event, FlowReport, Recording, Verdict};
use packet::{DropReason, FlowKey, Meta, Packet};
use runtime::{Frame, Ingress, Output, Runner};

use crate::eve;

/// Maximum number of pending fragments with a trace: as many as a runner has buffers. The oldest
/// are forgotten first.
const PENDING_MAX: usize = 8 * 1024;

/// Maximum number of refused flows that keep their number for later packets; further ones get new
/// numbers.
const REFUSED_MAX: usize = 1 << 20;

/// The processing of a packet by a function.
pub struct ProcessingStep {
    /// Number of the function.
    pub stage: usize,
    /// The packet before.
    pub before: Packet,
    /// The packet after; `None` if the function has not finished.
    pub after: Option<Packet>,
    /// The verdict of the function.
    pub verdict: Verdict,
    /// The actions and events that it recorded.
    pub recording: Recording,
}

/// An edge that a packet took.
#[derive(Clone, Copy)]
pub struct TakenEdge {
    /// The edge.
    pub edge: EdgeId,
    /// The reason why it took it.
    pub choice: EdgeChoice,
    /// Number of the functions that processed it before.
    pub steps: usize,
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// Pending: it waits for its first fragment or the rest of its datagram.
    Pending,
    /// Sent, as the packet with this number among those sent at this time.
    Sent(usize),
    /// Dropped.
    Dropped(DropReason),
}

/// The path of a packet through the graph.
pub struct PacketTrace {
    /// Number in order of arrival, from 1; for a generated packet, that of the packet that it
    /// answers.
    pub number: Option<u64>,
    /// Sequence number in the graph.
    pub sequence: u64,
    /// A function generated it.
    pub generated: bool,
    /// The external program after which it continues, as if the program had forwarded it.
    pub after_program: Option<String>,
    /// Number of its flow, in order of first packets.
    pub flow: Option<u64>,
    /// The packet on arrival; `None` if no longer known.
    pub arrived: Option<Packet>,
    /// Its metadata after the flow lookup, as the first function saw it.
    pub joined: Option<Meta>,
    /// The functions that processed it, in order.
    pub steps: Vec<ProcessingStep>,
    /// The edges that it took, in order; none in a graph without branches.
    pub edges: Vec<TakenEdge>,
    /// The packet on departure.
    pub left: Option<Packet>,
    /// Its fate.
    pub outcome: PacketOutcome,
    /// The alias that the flow got with this packet: the key of its replies, if that is not the
    /// flow's own.
    pub alias: Option<FlowKey>,
    /// The cached rule that this packet led to.
    pub rule: Option<RuleView>,
    /// It was dropped, and its TCP connection began before the capture.
    pub is_midstream: bool,
}

/// An observer of the packets of one call.
#[derive(Default)]
pub struct Tracer {
    number: u64,
    after_program: Option<String>,
    traces: Vec<PacketTrace>,
    /// Pending fragments: their numbers and the packets on arrival.
    pending: BTreeMap<u64, (u64, Packet)>,
    sent: usize,
    flows: FlowNumbers,
}

impl Tracer {
    /// Sets the number of the next packet to arrive, and the external program after which it
    /// continues, as if the program had forwarded it.
    pub fn expect(&mut self, number: u64, after_program: Option<&str>) {
        self.number = number;
        self.after_program = after_program.map(str::to_owned);
        self.sent = 0;
    }

    /// Returns the packets since [`Tracer::expect`].
    pub fn take(&mut self, frame: &Frame<'_>, from: Ingress, runner: &Runner) -> Vec<PacketTrace> {
        let mut traces = std::mem::take(&mut self.traces);
        if traces.is_empty() {
            traces.push(self.refused(frame, from, runner));
        }
        for trace in &mut traces {
            if matches!(trace.outcome, PacketOutcome::Sent(_)) && runner.has_dropped_at_node(trace.sequence) {
                (trace.outcome, trace.left) = (PacketOutcome::Dropped(DropReason::NodeDown), None);
            }
            if trace.outcome == PacketOutcome::Pending
                && let Some(arrived) = &trace.arrived
            {
                if self.pending.len() == PENDING_MAX {
                    self.pending.pop_first();
                }
                self.pending.insert(trace.sequence, (self.number, copy(arrived)));
            }
            if let Some(joined) = &trace.joined {
                let graph = &runner.assembly().graph;
                let header = graph.flows().records().header(joined.transit.flow);
                let lives = header.has(RecordHeader::FLAG_LIVE);
                if lives && !trace.generated {
                    trace.rule = graph.flows().rule(joined.transit.flow, joined.transit.direction);
                }
                let learned = joined.transit.seq == 1
                    || trace.left.as_ref().is_some_and(|left| left.meta().transit.relearn_alias);
                if lives && learned && header.has(RecordHeader::FLAG_ALIAS) {
                    trace.alias = Some(header.alias);
                }
                self.flows.settle(joined, trace.flow, lives);
            }
        }
        traces
    }

    /// Returns the trace of a frame that never reached the graph.
    fn refused(&self, frame: &Frame<'_>, from: Ingress, runner: &Runner) -> PacketTrace {
        let reason = match () {
            () if frame.data.len() + packet::HEADROOM > packet::LARGE_ROOM => DropReason::TooBig,
            () if !runner.assembly().both_ways => DropReason::Policy,
            () => DropReason::NoBuffer,
        };
        let mut arrived = Packet::from_bytes(frame.data);
        let meta = arrived.meta_mut();
        (meta.transit.timestamp_ns, meta.wire_len, meta.link) =
            (frame.timestamp_ns, frame.wire_len, frame.link);
        if let Some(port) = from.port(&runner.assembly().ports, &mut arrived) {
            let transit = &mut arrived.meta_mut().transit;
            (transit.ingress, transit.side) = (port.number, port.side.unwrap_or_default());
        }
        PacketTrace {
            outcome: PacketOutcome::Dropped(reason),
            after_program: self.after_program.clone(),
            ..PacketTrace::new(Some(self.number), u64::MAX, Some(arrived))
        }
    }

    /// Finds the trace of a packet in progress. A generated or formerly pending packet starts a
    /// trace.
    fn trace(&mut self, packet: &Packet) -> usize {
        let meta = packet.meta();
        // A generated packet has the sequence number of the packet that it answers, and the
        // opposite direction.
        let goes_otherwise = |joined: &Meta| {
            (joined.transit.direction, joined.transit.seq) != (meta.transit.direction, meta.transit.seq)
        };
        let mut same = self.traces.iter().filter(|p| p.sequence == meta.transit.sequence && !p.generated);
        let answered = same.find(|p| p.joined.as_ref().is_some_and(goes_otherwise));
        let (generated, number, flow) = match answered {
            Some(answered) => (true, answered.number, answered.flow),
            None => (false, None, None),
        };
        let known = self
            .traces
            .iter()
            .position(|p| p.sequence == meta.transit.sequence && p.generated == generated && !p.is_over());
        known.unwrap_or_else(|| {
            let trace = if generated {
                PacketTrace {
                    generated,
                    flow,
                    ..PacketTrace::new(number, meta.transit.sequence, Some(copy(packet)))
                }
            } else {
                let (number, arrived) = self.pending.remove(&meta.transit.sequence).unzip();
                PacketTrace::new(number, meta.transit.sequence, arrived)
            };
            self.traces.push(trace);
            self.traces.len() - 1
        })
    }
}

impl PacketTrace {
    fn new(number: Option<u64>, sequence: u64, arrived: Option<Packet>) -> PacketTrace {
        PacketTrace {
            number,
            sequence,
            generated: false,
            after_program: None,
            flow: None,
            arrived,
            joined: None,
            steps: Vec::new(),
            edges: Vec::new(),
            left: None,
            outcome: PacketOutcome::Pending,
            alias: None,
            rule: None,
            is_midstream: false,
        }
    }

    fn is_over(&self) -> bool {
        self.outcome != PacketOutcome::Pending
    }
}

impl Observer for Tracer {
    fn arrived(&mut self, packet: &Packet) {
        let trace = PacketTrace::new(Some(self.number), packet.meta().transit.sequence, Some(copy(packet)));
        self.traces.push(PacketTrace { after_program: self.after_program.clone(), ..trace });
    }

    fn edge(&mut self, edge: EdgeId, choice: EdgeChoice, packet: &Packet) {
        let at = self.trace(packet);
        let trace = &mut self.traces[at];
        trace.edges.push(TakenEdge { edge, choice, steps: trace.steps.len() });
    }

    fn before(&mut self, stage: usize, packet: &Packet) {
        let meta = packet.meta();
        let at = self.trace(packet);
        let trace = &mut self.traces[at];
        if matches!(trace.steps.last(), Some(ProcessingStep { verdict: Verdict::Drop(_), .. })) {
            return; // Later functions do not see a dropped packet.
        }
        if trace.steps.is_empty() && meta.transit.seq > 0 && !trace.generated {
            trace.flow = Some(self.flows.of(meta));
            trace.joined = Some(meta.clone());
        }
        trace.steps.push(ProcessingStep {
            stage,
            before: copy(packet),
            after: None,
            verdict: Verdict::Forward,
            recording: Recording::default(),
        });
    }

    fn after(&mut self, stage: usize, packet: &Packet, verdict: Verdict, recording: &Recording) {
        let at = self.trace(packet);
        let steps = &mut self.traces[at].steps;
        if let Some(step) = steps.iter_mut().find(|step| step.stage == stage && step.after.is_none()) {
            step.after = Some(copy(packet));
            step.verdict = verdict;
            step.recording = recording.clone();
        }
    }

    fn sent(&mut self, packet: &Packet) {
        let place = self.sent;
        self.sent += 1;
        let at = self.trace(packet);
        let trace = &mut self.traces[at];
        trace.left = Some(copy(packet));
        trace.outcome = PacketOutcome::Sent(place);
    }

    fn dropped(&mut self, packet: &Packet, reason: DropReason) {
        let at = self.trace(packet);
        self.traces[at].outcome = PacketOutcome::Dropped(reason);
    }
}

/// Copies the current packet.
fn copy(packet: &Packet) -> Packet {
    let mut copy = Packet::from_bytes(packet.data());
    *copy.meta_mut() = packet.meta().clone();
    copy
}

/// Numbers flows in order of their first packets.
#[derive(Default)]
struct FlowNumbers {
    last: u64,
    /// Numbers by record.
    live: HashMap<u32, u64>,
    /// Flows with only dropped packets so far: in the graph, each such packet starts a flow.
    refused: HashMap<FlowKey, u64>,
}

impl FlowNumbers {
    fn of(&mut self, meta: &Meta) -> u64 {
        if meta.transit.seq > 1
            && let Some(&number) = self.live.get(&meta.transit.flow)
        {
            return number;
        }
        let number = match self.refused.get(&meta.key) {
            Some(&number) => number,
            None => {
                self.last += 1;
                self.last
            }
        };
        self.live.insert(meta.transit.flow, number);
        number
    }

    /// Handles the end of a flow's packet: the flow lives, or was refused with it.
    fn settle(&mut self, joined: &Meta, flow: Option<u64>, lives: bool) {
        if lives {
            self.refused.remove(&joined.key);
        } else if let Some(flow) = flow
            && self.refused.len() < REFUSED_MAX
        {
            self.refused.insert(joined.key, flow);
        }
    }
}

/// An event reported by a function.
#[derive(Clone, serde::Serialize)]
pub struct ExplainedEvent {
    /// Name of the function in the policy.
    pub function: String,
    /// Kind, such as `http`.
    pub kind: &'static str,
    /// Fields, as JSON.
    pub fields: serde_json::Value,
}

impl ExplainedEvent {
    fn new(function: &str, event: Event<'_>) -> Result<ExplainedEvent, serde_json::Error> {
        let fields: Vec<_> = event.fields().collect();
        let fields = serde_json::to_value(eve::EveFields(&fields))?;
        Ok(ExplainedEvent { function: function.to_owned(), kind: event.kind, fields })
    }
}

/// Output that the observer does not see: alerts, events, reports, and the ports of sent packets.
#[derive(Default)]
pub struct CollectedOutput {
    /// Port of each sent packet, in order.
    pub ports: Vec<u16>,
    /// Alerts, each with its function.
    pub alerts: Vec<(String, Alert)>,
    /// Events, each with the number of its packet.
    pub events: Vec<(Option<u64>, ExplainedEvent)>,
    /// Number of reported flow records.
    pub reports: usize,
}

impl CollectedOutput {
    /// Clears everything for the next packet.
    pub fn clear(&mut self) {
        self.ports.clear();
        self.alerts.clear();
        self.events.clear();
        self.reports = 0;
    }
}

impl Output for CollectedOutput {
    type Error = serde_json::Error;

    fn packet(&mut self, port: u16, _packet: &Packet) -> Result<(), serde_json::Error> {
        self.ports.push(port);
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), serde_json::Error> {
        self.alerts.push((function.to_owned(), alert.clone()));
        Ok(())
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), serde_json::Error> {
        self.events.push((event.sequence, ExplainedEvent::new(function, event)?));
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> Result<(), serde_json::Error> {
        self.reports += 1;
        Ok(())
    }
}
