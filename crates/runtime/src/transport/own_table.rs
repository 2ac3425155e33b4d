//! The engine of a unit with a graph and a flow table of its own.

use std::collections::HashMap;

use graph::{FlowChange, Graph};
use nf::{EffectCause, Effects, EffectsMark};
use packet::{Packet, PacketPool};
use protocol::message::{FlowId, RefuseReason};
use protocol::unit::{Done, Engine, FlowAlias};

use super::FirstFragment;
use crate::saved::{Source, release, restore, save};

/// Flows whose slots others have, before those that are not here are forgotten.
const OLDER_KEPT: usize = 64;

/// A unit's graph. Packets that the unit lets it process wait until a batch is full: then they
/// cross the graph together.
pub(super) struct OwnEngine {
    pub graph: Box<Graph>,
    pub pool: PacketPool,
    waiting: Vec<Packet>,
    /// The homes of the flows of these.
    homes: Vec<u32>,
    /// The same packets, as they are accounted for.
    accepted: Vec<Accepted>,
    /// Packets that have left the graph.
    out: Vec<Packet>,
    /// Outcomes that nobody has taken.
    done: Vec<Outcome>,
    /// Ends of flows of which the output has not been attributed.
    marks: Vec<EffectsMark>,
    /// By slot: the flow whose home has the slot's number.
    current: Vec<Current>,
    /// Homes of flows whose slots others have by now.
    older: HashMap<FlowId, u32>,
    /// Homes from here on are those of such flows.
    slots: u32,
    /// Homes of packets that left no flow in the graph: it had no room, or begins none.
    pub without_flow: Vec<u32>,
    /// Homes of flows that have ended.
    pub ended: Vec<u32>,
    /// First fragments that the dispatcher must know of.
    pub fragments: Vec<FirstFragment>,
    /// Packets that went through the graph, or were dropped in front of it.
    pub through: u64,
    /// Whether the state at hand has come from a unit that has released it.
    pub is_handed: bool,
    /// Nothing is lost between units: a state is released as soon as it is sent.
    pub is_reliable: bool,
}

/// The outcome of a packet.
pub(super) type Outcome = Done<Packet, Box<Effects>>;

/// A packet that the unit lets the graph process.
struct Accepted {
    flow: FlowId,
    seq: u64,
    /// The packet's number in order of arrival.
    sequence: u64,
}

/// The flow whose home has its slot's number.
#[derive(Clone, Copy, Default)]
struct Current {
    generation: u32,
    /// Seq of its last packet here.
    seq: u64,
}

impl OwnEngine {
    /// One with this graph, of flows that have up to so many slots.
    pub fn new(graph: Box<Graph>, slots: u32, is_reliable: bool) -> OwnEngine {
        OwnEngine {
            graph,
            pool: PacketPool::new(0),
            waiting: Vec::new(),
            homes: Vec::new(),
            accepted: Vec::new(),
            out: Vec::new(),
            done: Vec::new(),
            marks: Vec::new(),
            current: Vec::new(),
            older: HashMap::new(),
            slots,
            without_flow: Vec::new(),
            ended: Vec::new(),
            fragments: Vec::new(),
            through: 0,
            is_handed: false,
            is_reliable,
        }
    }

    /// Takes what waits through the graph.
    pub fn run(&mut self) {
        if !self.waiting.is_empty() {
            self.through += self.waiting.len() as u64;
            self.graph.process_batch(&mut self.waiting, &self.homes, &mut self.out, &mut self.pool);
            let graph = &self.graph;
            let has_none = |&home: &u32| graph.flows_of(home).next().is_none();
            self.without_flow.extend(self.homes.drain(..).filter(has_none));
            self.settle();
        }
    }

    /// Attributes what the graph has brought about to packets and to ends of flows.
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

    /// Each packet leaves with the one that caused it. One that a later packet set free leaves with
    /// the next that leaves anyway.
    fn settle_outputs(&mut self, first: usize) {
        let (mut at, mut freed) = (0, Vec::new());
        for packet in self.out.drain(..) {
            let sequence = packet.meta().transit.sequence;
            match self.accepted[at..].iter().position(|accepted| accepted.sequence == sequence) {
                Some(further) => {
                    at += further;
                    let outputs = &mut self.done[first + at].outputs;
                    freed.drain(..).chain([packet]).for_each(|packet| outputs.push(packet));
                }
                None => freed.push(packet),
            }
        }
        if let Some(last) = self.done.last_mut() {
            freed.into_iter().for_each(|packet| last.outputs.push(packet));
        }
    }

    fn settle_changes(&mut self, first: usize) {
        let mut changes = std::mem::take(self.graph.changes_mut());
        for change in changes.drain(..) {
            match change {
                FlowChange::Alias { handle, key, hash } => {
                    let Some(flow) = self.flow_at(handle) else { continue };
                    let alias = Some(FlowAlias { key, hash });
                    // Before any packet of the flow that may have it leaves.
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
        let Some(last) = (self.done.len() - first).checked_sub(1) else { return }; // They stay.
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

    /// Returns the seq of the flow's last packet here; 0 if that is not known.
    fn last_seq(&self, flow: FlowId) -> u64 {
        let current = self.current.get(flow.index as usize);
        current.filter(|current| current.generation == flow.generation).map_or(0, |current| current.seq)
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_ns: u64) {
        self.run();
        if self.graph.next_timeout_ns() <= now_ns {
            self.graph.handle_timeout(now_ns, &mut self.pool);
            self.settle();
        }
    }

    /// What waits is through, and time has passed: whoever takes over a copy of a flow's state from
    /// then on knows which of its fragments were dropped here.
    fn pass_time(&mut self, now_ns: u64) {
        self.run();
        self.graph.handle_timeout(now_ns, &mut self.pool);
        self.settle();
    }

    /// Ends flows at the end of the run, as far as there is room for what that brings about.
    /// Returns true if all have ended.
    pub fn finish(&mut self) -> bool {
        let is_done = self.graph.finish(&mut self.pool);
        self.settle();
        self.ended.clear();
        is_done
    }

    /// Ends all flows, and forgets what waits; `lost` is how many packets are gone that did not
    /// come to the graph.
    pub fn start_over(&mut self, lost: u64) {
        self.waiting.clear();
        self.homes.clear();
        self.graph.start_anew(lost, &mut self.pool);
        self.settle();
        self.current.clear();
        self.older.clear();
        self.without_flow.clear();
        self.ended.clear();
        self.is_handed = false;
    }

    /// The flow that has this home.
    pub fn flow_at(&self, home: u32) -> Option<FlowId> {
        if home < self.slots {
            let current = self.current.get(home as usize)?;
            return Some(FlowId { index: home, generation: current.generation });
        }
        self.older.iter().find(|&(_, &other)| other == home).map(|(&flow, _)| flow)
    }

    /// Whether the graph has anything of this home.
    pub fn has(&self, home: u32) -> bool {
        self.graph.flows_of(home).next().is_some()
    }

    /// The flow's state is on its way to another unit, where it goes on. Nothing is lost on the
    /// way: so it is not kept until it is there, when its time might run out here.
    pub fn sent(&mut self, flow: FlowId) {
        if !self.is_reliable {
            return;
        }
        self.run();
        let home = self.home(flow);
        release(&mut self.graph, home);
    }

    /// Which home a flow has: its slot, if no later flow has that.
    #[inline]
    fn home(&mut self, flow: FlowId) -> u32 {
        match self.current.get(flow.index as usize) {
            Some(current) if current.generation == flow.generation => flow.index,
            _ => self.home_of_another(flow),
        }
    }

    #[cold]
    fn home_of_another(&mut self, flow: FlowId) -> u32 {
        let slot = flow.index as usize;
        if self.current.len() <= slot {
            self.current.resize(slot + 1, Current::default());
        }
        let known = self.current[slot].generation;
        if flow.generation > known {
            self.run();
            if self.has(flow.index) {
                let home = self.new_home(FlowId { index: flow.index, generation: known });
                self.graph.change_handle(flow.index, home);
            }
            self.current[slot] = Current { generation: flow.generation, seq: 0 };
            return flow.index;
        }
        match self.older.get(&flow) {
            Some(&home) => home,
            None if flow.generation == known => flow.index,
            None => self.new_home(flow),
        }
    }

    /// A home for a flow whose slot another has.
    fn new_home(&mut self, flow: FlowId) -> u32 {
        if self.older.len() >= OLDER_KEPT {
            let graph = &self.graph;
            self.older.retain(|_, home| graph.flows_of(*home).next().is_some());
        }
        let taken: Vec<u32> = self.older.values().copied().collect();
        let home = (self.slots..).find(|home| !taken.contains(home)).unwrap_or(self.slots);
        self.older.insert(flow, home);
        home
    }
}

impl Engine for OwnEngine {
    type Packet = Packet;
    type Effects = Box<Effects>;

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, seq: u64, packet: Packet) {
        let home = self.home(flow);
        if home == flow.index
            && let Some(current) = self.current.get_mut(home as usize)
        {
            current.seq = seq;
        }
        self.accepted.push(Accepted { flow, seq, sequence: packet.meta().transit.sequence });
        self.waiting.push(packet);
        self.homes.push(home);
    }

    fn flush(&mut self, done: impl FnMut(Outcome)) {
        self.run();
        self.done.drain(..).for_each(done);
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.run();
        let home = self.home(flow);
        save(&mut self.graph, home, out);
    }

    fn restore(&mut self, now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        self.pass_time(now_ns);
        let home = self.home(flow);
        let source = if self.is_handed { Source::Handed } else { Source::Copied };
        let restored = restore(&mut self.graph, home, (state, source), &mut self.pool);
        self.settle();
        restored
    }

    fn forget(&mut self, now_ns: u64, flow: FlowId, ended: bool) {
        self.pass_time(now_ns);
        let home = self.home(flow);
        match ended {
            true => self.graph.end_flows_of(home, &mut self.pool),
            false => release(&mut self.graph, home),
        }
        self.settle();
    }
}
