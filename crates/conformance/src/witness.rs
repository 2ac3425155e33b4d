//! Observations of a graph from outside, to be compared with another one's (B4).

use std::fmt;

use graph::Graph;
use nf::record::RecordHeader;
use nf::stage::Stage;
use packet::{Packet, PacketPool, Side};

use super::{GraphForm, Tape};

/// A step of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialStep {
    /// A batch of n packets.
    Batch(usize),
    /// A command to a function, which may refuse it.
    Command(usize, String),
    /// All flows move to another graph of the same functions. Shared state does not move.
    Move,
}

impl fmt::Display for TrialStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialStep::Batch(1) => f.write_str("1 packet"),
            TrialStep::Batch(len) => write!(f, "{len} packets"),
            TrialStep::Command(function, command) => write!(f, "`{command}` to function {function}"),
            TrialStep::Move => f.write_str("all flows move"),
        }
    }
}

/// The observations of a run.
#[derive(Default)]
pub struct Witness {
    /// Packets: their numbers in the order of arrival, sides, and bytes.
    pub sent: Vec<(u64, Side, Vec<u8>)>,
    /// Packets on the fast path. Not compared.
    pub followed: u64,
    /// Results of commands, alerts in order, and the number of events with them; then counters of
    /// the graph and its functions, shared state, and flow reports.
    told: Vec<String>,
    /// The number of functions that are observed.
    functions: usize,
    reports: Vec<String>,
    events: usize,
    /// Records of live flows. Only the headers if a function keeps streams or growing buffers: such
    /// records name blocks, and any other block could be in their place.
    flows: Vec<(u32, Vec<u8>)>,
}

impl Witness {
    /// Plays a tape through a graph, step by step, and ends all flows that are left. `replace`
    /// creates another graph of the same functions, which flows move to; without one, they stay.
    pub fn of(
        graph: &mut Graph,
        tape: &Tape,
        steps: &[TrialStep],
        replace: &mut dyn FnMut() -> Option<Graph>,
    ) -> Witness {
        Witness::of_first(usize::MAX, graph, tape, steps, replace)
    }

    /// Plays a tape likewise, and observes the first n functions only.
    pub(crate) fn of_first(
        functions: usize,
        graph: &mut Graph,
        tape: &Tape,
        steps: &[TrialStep],
        replace: &mut dyn FnMut() -> Option<Graph>,
    ) -> Witness {
        let mut witness = Witness { functions, ..Witness::default() };
        let mut pool = PacketPool::new(512);
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        let (mut at, mut now_ns) = (0, 0);
        for step in steps {
            match step {
                TrialStep::Command(function, command) => {
                    // Both graphs refuse the same commands. Copies on other branches get them as
                    // well: frames that are not IP pass only if all functions agree.
                    let copies = (*function..graph.stages().len()).step_by(functions);
                    let refused = copies
                        .rev()
                        .fold(None, |_, at| graph.stage_mut(at).map(|stage| stage.control(command).is_err()));
                    witness.told.push(format!("{command}: {refused:?}"));
                }
                TrialStep::Batch(len) => {
                    let arrivals = tape.arrivals(at..(at + len).min(tape.len()));
                    at += arrivals.len();
                    now_ns = arrivals.iter().map(|arrival| arrival.at_ns).fold(now_ns, u64::max);
                    batch.extend(arrivals.iter().filter_map(|arrival| tape.packet(arrival, &mut pool)));
                    graph.process(&mut batch, &mut out, &mut pool);
                }
                TrialStep::Move => {
                    if let Some(mut other) = replace() {
                        other.handle_timeout(now_ns, &mut pool);
                        witness.see_off(graph, &mut other, &mut pool);
                        *graph = other;
                    }
                }
            }
            for packet in out.drain(..) {
                witness.sent.push(bytes(&packet));
                pool.give(packet);
            }
            witness.hear(graph);
        }
        witness.flows = flows(graph);
        while !graph.finish(&mut pool) {
            witness.hear(graph);
        }
        witness.hear(graph);
        witness.take_leave(graph);
        witness
    }

    /// Moves all flows of a graph to another one, except where that refuses them.
    fn see_off(&mut self, graph: &mut Graph, other: &mut Graph, pool: &mut PacketPool) {
        let mut saved = Vec::new();
        for (record, _) in flows(graph) {
            saved.clear();
            graph.flows_mut().save(record, &mut saved);
            let restored = other.flows_mut().restore(&saved, pool).map_err(|error| error.to_string());
            self.told.push(format!("a flow moves: {restored:?}"));
            graph.flows_mut().release(record);
        }
        self.take_leave(graph);
    }

    /// Records what the graph reported since the last call.
    fn hear(&mut self, graph: &mut Graph) {
        let effects = graph.effects_mut();
        self.told.extend(effects.alerts.drain(..).map(|alert| format!("{alert:?}")));
        self.events += effects.events.iter().count();
        effects.events.clear();
        self.reports.extend(effects.reports.drain(..).map(|report| format!("{report:?}")));
    }

    /// Records the counters of a graph that is replaced.
    fn take_leave(&mut self, graph: &Graph) {
        self.told.push(format!("{} events, {:?}", self.events, graph.counters()));
        self.told.extend(graph.stages().iter().take(self.functions).map(|stage| shared(&**stage)));
        self.followed += graph.report().fast_path().packets;
    }

    /// Returns the number of packets that differ from another run's, or are in one of them only.
    pub fn other_packets(&self, other: &Witness) -> u64 {
        let differing = self.sent.iter().zip(&other.sent).filter(|(ours, theirs)| ours != theirs).count();
        (differing + self.sent.len().abs_diff(other.sent.len())) as u64
    }

    /// Returns true if everything but packets is the same.
    pub fn same_state(&self, other: &Witness) -> bool {
        self.told == other.told && self.reports == other.reports && self.flows == other.flows
    }

    /// Keeps the headers of flows' records only.
    pub fn forget_states(&mut self) {
        self.flows.iter_mut().for_each(|(_, record)| record.truncate(size_of::<RecordHeader>()));
    }

    /// Returns the first difference from another run, if there is one.
    pub fn difference(&self, other: &Witness, form: GraphForm) -> Option<String> {
        let packet = |sent: Option<&(u64, Side, Vec<u8>)>| {
            sent.map_or("no packet".to_owned(), |(number, side, bytes)| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("packet {number} leaves by {side:?}: {hex}")
            })
        };
        let line = |line: Option<&String>| line.map_or("nothing".to_owned(), String::clone);
        let flow = |flow: Option<&(u32, Vec<u8>)>| {
            flow.map_or("no flow".to_owned(), |(record, bytes)| format!("record {record}: {bytes:02x?}"))
        };
        let sent = || first_of(form, &self.sent, &other.sent, packet);
        let told = || first_of(form, &self.told, &other.told, line);
        let reports = || first_of(form, &self.reports, &other.reports, line);
        sent().or_else(told).or_else(reports).or_else(|| first_of(form, &self.flows, &other.flows, flow))
    }
}

/// Returns the first of these that differ.
fn first_of<T: PartialEq>(
    form: GraphForm,
    ours: &[T],
    theirs: &[T],
    show: impl Fn(Option<&T>) -> String,
) -> Option<String> {
    let at = (0..ours.len().max(theirs.len())).find(|&at| ours.get(at) != theirs.get(at))?;
    Some(format!("{form}: {}\nplain: {}", show(ours.get(at)), show(theirs.get(at))))
}

fn bytes(packet: &Packet) -> (u64, Side, Vec<u8>) {
    let transit = &packet.meta().transit;
    (transit.sequence, transit.side, packet.data().to_vec())
}

fn flows(graph: &Graph) -> Vec<(u32, Vec<u8>)> {
    let descriptors = || graph.stages().iter().map(|stage| stage.descriptor());
    let has_blocks = descriptors().any(|descriptor| descriptor.stream || descriptor.buffers.is_some());
    let records = graph.flows().records();
    let live = records.used().filter(|&record| records.header(record).has(RecordHeader::FLAG_LIVE));
    let bytes = live.map(|record| {
        let bytes = records.bytes(record).unwrap_or_default();
        let len = if has_blocks { size_of::<RecordHeader>() } else { bytes.len() };
        (record, bytes[..len.min(bytes.len())].to_vec())
    });
    bytes.collect()
}

fn shared(stage: &dyn Stage) -> String {
    let (counters, shared) = (stage.counters(), stage.shared());
    let sets: Vec<usize> = shared.sets.iter().map(|set| set.len()).collect();
    let pools: Vec<_> =
        shared.pools.iter().map(|pool| (pool.in_use(), pool.peak(), pool.exhausted())).collect();
    let meters: Vec<_> =
        shared.meters.iter().map(|meters| (meters.in_use(), meters.forgotten(), meters.refused())).collect();
    let contents: Vec<_> =
        shared.contents.iter().map(|contents| (contents.kept_bytes(), contents.displaced())).collect();
    let counters = (counters.packets, counters.bytes, counters.drops);
    format!("{counters:?} {:?} {sets:?} {pools:?} {meters:?} {contents:?}", shared.counters)
}
