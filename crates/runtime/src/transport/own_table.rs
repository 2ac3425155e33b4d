//! The engine of a unit with a graph and a flow table of its own.

use std::collections::HashMap;

use graph::{FlowChange, Graph};
use nf::record::RecordHeader;
use nf::{EffectCause, Effects, EffectsMark};
use packet::{FlowKey, Packet, PacketPool};
use protocol::message::{FlowId, RefuseReason};
use protocol::unit::{Done, Engine, FlowAlias};

use super::FirstFragment;
use crate::saved::{Source, note_lag, release, restore, save};

/// Flows with a handle beyond the indexes, before those without state here are forgotten.
const OLDER_KEPT: usize = 64;

/// A unit's graph. Packets that the unit has accepted are pending until their batch crosses the
/// graph.
pub(super) struct OwnEngine {
    pub graph: Box<Graph>,
    pub pool: PacketPool,
    pending: Vec<Packet>,
    /// Handles of the flows of these.
    handles: Vec<u32>,
    /// The same packets, as they are accounted for.
    accepted: Vec<Accepted>,
    /// Packets that have left the graph.
    out: Vec<Packet>,
    /// Outcomes that were not taken yet.
    done: Vec<Outcome>,
    /// Ends of flows with output that was not attributed yet.
    marks: Vec<EffectsMark>,
    /// By index: the flow with its index as its handle.
    current: Vec<Current>,
    /// Handles of flows after other flows have taken their indexes.
    older: HashMap<FlowId, u32>,
    /// Number of indexes; higher handles are those of `older` flows.
    indexes: u32,
    /// Handles of packets that left no flow in the graph: it had no room, or they begin none.
    pub without_flow: Vec<u32>,
    /// Handles of flows that have ended.
    pub ended: Vec<u32>,
    /// First fragments that the dispatcher must know of.
    pub fragments: Vec<FirstFragment>,
    /// Packets that have crossed the graph, or were dropped before it.
    pub through: u64,
    /// The state being restored was released by its unit.
    pub is_handed: bool,
    /// Nothing is lost between units: a state is released as soon as it is sent.
    pub is_reliable: bool,
}

/// The outcome of a packet.
pub(super) type Outcome = Done<Packet, Box<Effects>>;

/// A packet that the unit has accepted.
struct Accepted {
    flow: FlowId,
    seq: u64,
    /// The packet's number in order of arrival.
    sequence: u64,
}

/// The flow with its index as its handle.
#[derive(Clone, Copy, Default)]
struct Current {
    generation: u32,
    /// Seq of its last packet here.
    seq: u64,
}

impl OwnEngine {
    /// Creates an engine for this graph and this number of indexes.
    pub fn new(graph: Box<Graph>, indexes: u32, is_reliable: bool) -> OwnEngine {
        OwnEngine {
            graph,
            pool: PacketPool::new(0),
            pending: Vec::new(),
            handles: Vec::new(),
            accepted: Vec::new(),
            out: Vec::new(),
            done: Vec::new(),
            marks: Vec::new(),
            current: Vec::new(),
            older: HashMap::new(),
            indexes,
            without_flow: Vec::new(),
            ended: Vec::new(),
            fragments: Vec::new(),
            through: 0,
            is_handed: false,
            is_reliable,
        }
    }

    /// Returns the number of pending packets.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Sends pending packets through the graph.
    pub fn run(&mut self) {
        if !self.pending.is_empty() {
            self.through += self.pending.len() as u64;
            self.graph.process_batch(&mut self.pending, &self.handles, &mut self.out, &mut self.pool);
            let graph = &self.graph;
            let has_none = |&handle: &u32| graph.flows().of_handle(handle).next().is_none();
            self.without_flow.extend(self.handles.drain(..).filter(has_none));
            self.settle();
        }
    }

    /// Attributes the graph's output to packets and to ends of flows.
    pub fn settle(&mut self) {
        let first = self.done.len();
        self.done.extend(self.accepted.iter().map(|packet| Done::new(packet.flow, packet.seq)));
        self.settle_outputs(first);
        if !self.graph.changes().is_empty() {
            self.settle_changes(first);
        }
        if !self.graph.effects().is_empty() {
            self.settle_effects(first);
        }
        self.marks.clear();
        self.accepted.clear();
    }

    /// Attributes each departing packet to the packet that released it. A held packet leaves with
    /// the next one.
    fn settle_outputs(&mut self, first: usize) {
        let (mut at, mut freed) = (0, Vec::new());
        for packet in self.out.drain(..) {
            let sequence = packet.meta().transit.sequence;
            match self.accepted[at..].iter().position(|accepted| accepted.sequence == sequence) {
                Some(further) => {
                    at += further;
                    let outputs = &mut self.done[first + at].outputs;
                    if !freed.is_empty() {
                        freed.drain(..).for_each(|packet| outputs.push(packet));
                    }
                    outputs.push(packet);
                }
                None => freed.push(packet),
            }
        }
        if let Some(last) = self.done.last_mut() {
            freed.into_iter().for_each(|packet| last.outputs.push(packet));
        }
    }

    /// Returns whether the ends of a flow's alias are in another order than those of its key; none
    /// if it has another alias by now.
    fn is_turned(&self, handle: u32, alias: &FlowKey) -> Option<bool> {
        let records = self.graph.flows().records();
        let mut headers = self.graph.flows().of_handle(handle).map(|record| records.header(record));
        let header = headers.find(|header| header.has(RecordHeader::FLAG_ALIAS) && header.alias == *alias)?;
        Some(header.has(RecordHeader::FLAG_REVERSED) != header.has(RecordHeader::FLAG_ALIAS_REVERSED))
    }

    fn settle_changes(&mut self, first: usize) {
        let mut changes = std::mem::take(self.graph.changes_mut());
        for change in changes.drain(..) {
            match change {
                FlowChange::Alias { handle, key, hash } => {
                    let Some(flow) = self.flow_at(handle) else { continue };
                    let alias = Some(FlowAlias { key, hash, is_turned: self.is_turned(handle, &key) });
                    // Before any packet of the flow that may carry it.
                    match self.done[first..].iter_mut().find(|done| done.flow == flow) {
                        Some(done) => done.alias = alias,
                        None => self.done.push(Done { alias, ..Done::new(flow, self.last_seq(flow)) }),
                    }
                }
                FlowChange::FirstFragment { datagram, passed, at_ns } => {
                    self.fragments.push((datagram, passed, at_ns));
                }
                FlowChange::Ended { handle, effects } => {
                    self.ended.push(handle);
                    self.marks.push(effects);
                }
            }
        }
        *self.graph.changes_mut() = changes;
    }

    #[cold]
    fn settle_effects(&mut self, first: usize) {
        let packets = self.accepted.len();
        let ends = self.done.len() - first;
        for at in self.ended.len() - self.marks.len()..self.ended.len() {
            let flow = self.flow_at(self.ended[at]).unwrap_or_default();
            self.done.push(Done::new(flow, self.last_seq(flow)));
        }
        let Some(last) = (self.done.len() - first).checked_sub(1) else { return }; // Effects stay for the next call.
        let part = |cause| match cause {
            EffectCause::Packet(sequence) => {
                let packet = self.accepted.iter().position(|packet| packet.sequence == sequence);
                packet.unwrap_or(packets.saturating_sub(1))
            }
            EffectCause::End(number) => (ends + number).min(last),
        };
        let parts = &mut self.done[first..];
        self.graph.effects_mut().distribute(&self.marks, parts, part, |done| &mut done.effects);
    }

    /// Returns the seq of the flow's last packet here; 0 if it is unknown.
    fn last_seq(&self, flow: FlowId) -> u64 {
        let current = self.current.get(flow.index as usize);
        current.filter(|current| current.generation == flow.generation).map_or(0, |current| current.seq)
    }

    /// Advances the time.
    pub fn advance(&mut self, now_ns: u64) {
        self.run();
        if self.graph.next_timeout_ns() <= now_ns {
            self.graph.handle_timeout(now_ns, &mut self.pool);
            self.settle();
        }
    }

    /// Sends pending packets through the graph and advances the time: the receiver of a replica of
    /// a flow's state then knows which of its fragments were dropped here.
    fn handle_timeout(&mut self, now_ns: u64) {
        self.run();
        self.graph.handle_timeout(now_ns, &mut self.pool);
        self.settle();
    }

    /// Ends flows at the end of the run, until there is no room for their effects. Returns true if
    /// all have ended.
    pub fn finish(&mut self) -> bool {
        let is_done = self.graph.finish(&mut self.pool);
        self.settle();
        self.ended.clear();
        is_done
    }

    /// Ends all flows and discards pending packets. `lost` is the number of packets that were lost
    /// before the graph.
    pub fn start_over(&mut self, lost: u64) {
        self.pending.clear();
        self.handles.clear();
        self.graph.restart(lost, &mut self.pool);
        self.settle();
        self.current.clear();
        self.older.clear();
        self.without_flow.clear();
        self.ended.clear();
        self.is_handed = false;
    }

    /// Returns the flow with this handle.
    pub fn flow_at(&self, handle: u32) -> Option<FlowId> {
        if handle < self.indexes {
            let current = self.current.get(handle as usize)?;
            return Some(FlowId { index: handle, generation: current.generation });
        }
        self.older.iter().find(|&(_, &other)| other == handle).map(|(&flow, _)| flow)
    }

    /// Returns whether the graph has a flow with this handle.
    pub fn has(&self, handle: u32) -> bool {
        self.graph.flows().of_handle(handle).next().is_some()
    }

    /// Notes that the flow's state was sent to another unit. A reliable transport does not lose it,
    /// so it is released here at once, before it could expire.
    pub fn sent(&mut self, flow: FlowId) {
        if !self.is_reliable {
            return;
        }
        self.run();
        let handle = self.handle(flow);
        release(&mut self.graph, handle);
    }

    /// Returns the flow's handle: its index, unless a later flow has that.
    #[inline]
    fn handle(&mut self, flow: FlowId) -> u32 {
        match self.current.get(flow.index as usize) {
            Some(current) if current.generation == flow.generation => flow.index,
            _ => self.other_handle(flow),
        }
    }

    #[cold]
    fn other_handle(&mut self, flow: FlowId) -> u32 {
        let index = flow.index as usize;
        if self.current.len() <= index {
            self.current.resize(index + 1, Current::default());
        }
        let known = self.current[index].generation;
        if flow.generation > known {
            self.run();
            if self.has(flow.index) {
                let handle = self.new_handle(FlowId { index: flow.index, generation: known });
                self.graph.flows_mut().change_handle(flow.index, handle);
            }
            self.current[index] = Current { generation: flow.generation, seq: 0 };
            return flow.index;
        }
        match self.older.get(&flow) {
            Some(&handle) => handle,
            None if flow.generation == known => flow.index,
            None => self.new_handle(flow),
        }
    }

    /// Assigns a handle to a flow after another flow has taken its index.
    fn new_handle(&mut self, flow: FlowId) -> u32 {
        if self.older.len() >= OLDER_KEPT {
            let graph = &self.graph;
            self.older.retain(|_, handle| graph.flows().of_handle(*handle).next().is_some());
        }
        let taken: Vec<u32> = self.older.values().copied().collect();
        let handle = (self.indexes..).find(|handle| !taken.contains(handle)).unwrap_or(self.indexes);
        self.older.insert(flow, handle);
        handle
    }
}

impl Engine for OwnEngine {
    type Packet = Packet;
    type Effects = Box<Effects>;

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, seq: u64, packet: Packet) {
        let handle = self.handle(flow);
        if handle == flow.index
            && let Some(current) = self.current.get_mut(handle as usize)
        {
            current.seq = seq;
        }
        self.accepted.push(Accepted { flow, seq, sequence: packet.meta().transit.sequence });
        self.pending.push(packet);
        self.handles.push(handle);
    }

    fn flush(&mut self, done: impl FnMut(Outcome)) {
        self.run();
        self.done.drain(..).for_each(done);
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.run();
        let handle = self.handle(flow);
        save(&mut self.graph, handle, out);
    }

    fn restore(&mut self, now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        self.handle_timeout(now_ns);
        let handle = self.handle(flow);
        let source = if self.is_handed { Source::Handed } else { Source::Copied };
        let restored = restore(&mut self.graph, handle, (state, source), &mut self.pool);
        self.settle();
        restored
    }

    fn miss(&mut self, now_ns: u64, flow: FlowId, _packets: u64) {
        self.handle_timeout(now_ns);
        let handle = self.handle(flow);
        note_lag(&mut self.graph, handle, &mut self.pool);
    }

    fn forget(&mut self, now_ns: u64, flow: FlowId, ended: bool) {
        self.handle_timeout(now_ns);
        let handle = self.handle(flow);
        match ended {
            true => self.graph.flows_mut().end(handle, &mut self.pool),
            false => release(&mut self.graph, handle),
        }
        self.settle();
    }
}
