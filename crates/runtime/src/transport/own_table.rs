//! The engine of a unit with a graph and a flow table of its own.

use std::collections::HashMap;

use graph::Graph;
use packet::{Packet, PacketPool};
use protocol::message::{FlowId, RefuseReason};
use protocol::unit::Engine;

use crate::saved::{Source, release, restore, save};

/// Flows whose slots others have, before those that are not here are forgotten.
const OLDER_KEPT: usize = 64;

/// A unit's graph. Packets that the unit lets it process wait until a batch is full: then they
/// cross the graph together.
pub(super) struct OwnEngine {
    pub graph: Box<Graph>,
    pub pool: PacketPool,
    pub out: Vec<Packet>,
    waiting: Vec<Packet>,
    /// The homes of the flows of these.
    homes: Vec<u32>,
    /// By slot: which flow's home has the slot's number.
    generations: Vec<u32>,
    /// Homes of flows whose slots others have by now.
    older: HashMap<FlowId, u32>,
    /// Homes from here on are those of such flows.
    slots: u32,
    /// Homes of packets that left no flow in the graph: it had no room, or begins none.
    pub without_flow: Vec<u32>,
    /// Packets that went through the graph, or were dropped in front of it.
    pub through: u64,
    /// Whether the state at hand has come from a unit that has released it.
    pub is_handed: bool,
    /// Nothing is lost between units: a state is released as soon as it is sent.
    pub is_reliable: bool,
}

impl OwnEngine {
    /// One with this graph, of flows that have up to so many slots.
    pub fn new(graph: Box<Graph>, slots: u32, is_reliable: bool) -> OwnEngine {
        OwnEngine {
            graph,
            pool: PacketPool::new(0),
            out: Vec::new(),
            waiting: Vec::new(),
            homes: Vec::new(),
            generations: Vec::new(),
            older: HashMap::new(),
            slots,
            without_flow: Vec::new(),
            through: 0,
            is_handed: false,
            is_reliable,
        }
    }

    /// Takes what waits through the graph.
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.through += self.waiting.len() as u64;
            self.graph.process_batch(&mut self.waiting, &self.homes, &mut self.out, &mut self.pool);
            let graph = &self.graph;
            let has_none = |&home: &u32| graph.flows_of(home).next().is_none();
            self.without_flow.extend(self.homes.drain(..).filter(has_none));
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_ns: u64) {
        self.flush();
        if self.graph.next_timeout_ns() <= now_ns {
            self.graph.handle_timeout(now_ns, &mut self.pool);
        }
    }

    /// What waits is through, and time has passed: whoever takes over a copy of a flow's state from
    /// then on knows which of its fragments were dropped here.
    fn pass_time(&mut self, now_ns: u64) {
        self.flush();
        self.graph.handle_timeout(now_ns, &mut self.pool);
    }

    /// Ends all flows, and forgets what waits; `lost` is how many packets are gone that did not
    /// come to the graph.
    pub fn start_over(&mut self, lost: u64) {
        self.waiting.clear();
        self.homes.clear();
        self.generations.clear();
        self.older.clear();
        self.without_flow.clear();
        self.is_handed = false;
        self.graph.start_anew(lost, &mut self.pool);
    }

    /// The flow that has this home.
    pub fn flow_at(&self, home: u32) -> Option<FlowId> {
        if home < self.slots {
            return self.generations.get(home as usize).map(|&generation| FlowId { index: home, generation });
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
        self.flush();
        let home = self.home(flow);
        release(&mut self.graph, home);
    }

    /// Which home a flow has: its slot, if no later flow has that.
    #[inline]
    fn home(&mut self, flow: FlowId) -> u32 {
        match self.generations.get(flow.index as usize) {
            Some(&generation) if generation == flow.generation => flow.index,
            _ => self.home_of_another(flow),
        }
    }

    #[cold]
    fn home_of_another(&mut self, flow: FlowId) -> u32 {
        let slot = flow.index as usize;
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        let known = self.generations[slot];
        if flow.generation > known {
            self.flush();
            if self.has(flow.index) {
                let home = self.new_home(FlowId { index: flow.index, generation: known });
                self.graph.change_handle(flow.index, home);
            }
            self.generations[slot] = flow.generation;
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

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, packet: Packet) {
        let home = self.home(flow);
        self.waiting.push(packet);
        self.homes.push(home);
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        self.flush();
        let home = self.home(flow);
        save(&mut self.graph, home, out);
    }

    fn restore(&mut self, now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        self.pass_time(now_ns);
        let home = self.home(flow);
        let source = if self.is_handed { Source::Handed } else { Source::Copied };
        restore(&mut self.graph, home, (state, source), &mut self.pool)
    }

    fn forget(&mut self, now_ns: u64, flow: FlowId, ended: bool) {
        self.pass_time(now_ns);
        let home = self.home(flow);
        match ended {
            true => self.graph.end_flows_of(home, &mut self.pool),
            false => release(&mut self.graph, home),
        }
    }
}
