//! The flows, each with all that belongs to it: its record, its cached rules, its TCP streams.
//!
//! A flow begins with a packet, ends when it expires or another one needs its place, and moves
//! between tables as one run of bytes (`saving`). The functions are notified of each.

mod aliases;
mod clock;
mod ending;
mod saving;
mod second_passes;

use nf::record::RecordLayout;
use nf::stage::StageEnv;
use nf::{AffinityGroups, EffectsMark, EndReason};
use packet::memory::{OutOfMemory, reserve};
use packet::{Direction, DropReason, FlowHasher, FlowKey, Packet, PacketPool, Parser, Side, TunnelKind};

use crate::cache::{FlowCache, RuleGuards};
use crate::flow_table::{FlowTable, Joining};
use crate::fragments::Datagram;
use crate::places::Places;
use crate::reassembly::Reassembly;
use crate::routing::Routing;
use crate::stages::Stages;
use crate::topology::NfSet;
use crate::{Counters, FlowClass, Options, WhenFull};
use clock::Clock;
pub(crate) use saving::FlowTransfer;
pub use saving::{RestoreError, SavedLayout};

/// A change of a flow that the dispatcher must apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowChange {
    /// Packets with this key belong to the flow, too. It replaces the flow's earlier alias.
    Alias {
        /// The flow's handle.
        handle: u32,
        /// The key; the flow's own key if it has no alias any more.
        key: FlowKey,
        /// The key's hash.
        hash: u64,
    },
    /// The first fragment of a datagram passed or was dropped; the later ones follow it.
    FirstFragment {
        /// The datagram.
        datagram: Datagram,
        /// The flow's key, and true if it is reversed; none if the fragment was dropped.
        passed: Option<(FlowKey, bool)>,
        /// The time of its arrival.
        at_ns: u64,
    },
    /// A flow of this handle ended.
    Ended {
        /// The flow's handle.
        handle: u32,
        /// The output when it had ended: what its end brought about is before this.
        effects: EffectsMark,
    },
}

/// All flows, and what they own.
pub(crate) struct Flows {
    pub table: FlowTable,
    /// The cached rules, if they pay.
    pub cache: Option<FlowCache>,
    /// The flows' TCP streams, if a function subscribes to them.
    pub reassembly: Option<Reassembly>,
    /// The flows' routes, if the graph has branches.
    pub routing: Option<Box<Routing>>,
    changes: Vec<FlowChange>,
    /// The time of packets.
    pub clock: Clock,
    /// Flows that end once their group is through: a function panicked at one of their packets.
    failed: Vec<u32>,
    counters: FlowCounters,
    /// True if a function may evict flows for new ones.
    makes_room: bool,
    when_full: WhenFull,
    affinity_groups: Option<AffinityGroups>,
    /// The places of ports: aliases are keys of the place where packets leave.
    places: Places,
    /// Memory that is reused.
    due: Vec<u32>,
}

/// Flows that began, ended and moved; see [`Counters`].
#[derive(Clone, Copy, Default)]
struct FlowCounters {
    started: u64,
    peak: u64,
    ended: [u64; 5],
    evicted_by_class: [u64; FlowClass::COUNT],
    evicted_over_source: u64,
    tunnels: [u64; TunnelKind::COUNT],
}

impl Flows {
    /// Creates tables for the flows of these functions, with records of this layout.
    pub fn new(
        stages: &Stages,
        layout: RecordLayout,
        (reassembly, routing): (Option<Reassembly>, Option<Box<Routing>>),
        joining: Joining,
        (options, hasher): (&Options, FlowHasher),
    ) -> Result<Flows, OutOfMemory> {
        let has_flows = !stages.all.is_empty() || routing.is_some();
        let flows_max = if has_flows { options.flows_max } else { 1 };
        let table = FlowTable::new(
            flows_max,
            layout,
            hasher,
            (options.shares, options.seed),
            (joining, options.remembers_ports),
        )?;
        let capacity = table.records.capacity();
        let cache = match options.consolidate {
            true => FlowCache::new(&stages.all, table.layout(), capacity, guards(routing.as_deref()))?,
            false => None,
        };
        Ok(Flows {
            table,
            cache,
            reassembly,
            routing,
            changes: Vec::new(),
            clock: Clock::default(),
            failed: Vec::new(),
            counters: FlowCounters::default(),
            makes_room: stages.all.iter().any(|stage| stage.makes_room()),
            when_full: options.when_full,
            affinity_groups: options.affinity_groups,
            places: Places::default(),
            due: Vec::new(),
        })
    }

    /// Adds the counters of flows.
    pub fn count(&self, counters: &mut Counters) {
        counters.flows_live = self.live();
        counters.flows_by_class = self.table.classes.live().map(u64::from);
        counters.flows_started = self.counters.started;
        counters.flows_peak = self.counters.peak;
        counters.flows_ended = self.counters.ended;
        counters.evicted_by_class = self.counters.evicted_by_class;
        counters.evicted_over_source = self.counters.evicted_over_source;
        counters.tunnels = self.counters.tunnels;
        counters.streams = self.reassembly.as_ref().map(Reassembly::counters).unwrap_or_default();
    }

    /// Returns the changes of flows with handles.
    pub fn changes(&self) -> &[FlowChange] {
        &self.changes
    }

    /// Returns the changes of flows with handles, to be taken.
    pub fn changes_mut(&mut self) -> &mut Vec<FlowChange> {
        &mut self.changes
    }

    /// Returns the places of ports.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Sets the places of ports.
    pub fn set_places(&mut self, places: Places) {
        self.places = places;
    }

    /// Returns the number of flows.
    pub fn live(&self) -> u64 {
        u64::from(self.table.records.live() - self.table.passes.count())
    }

    fn note_peak(&mut self) {
        self.counters.peak = self.counters.peak.max(self.live());
    }

    /// Returns true if all records are in use.
    fn is_full(&self) -> bool {
        self.table.records.live() >= self.table.records.capacity()
    }

    /// Forgets the flow's cached rules.
    #[inline]
    pub fn forget_rules(&mut self, record: u32) {
        if let Some(cache) = &mut self.cache {
            cache.forget(record);
        }
    }

    /// Forgets the rules of flows with other attributes than when their packets entered: filters on
    /// their paths may decide otherwise now.
    #[inline]
    pub fn forget_rules_of_tagged(&mut self, side: Side, packets: &[Packet]) {
        let Some(routing) = &self.routing else { return };
        if !routing.topology().reads().attributes {
            return;
        }
        for (packet, journey) in packets.iter().zip(routing.journeys()) {
            let transit = packet.meta().transit;
            let tags = self.table.records.header(transit.flow).tags;
            if transit.side == side && tags != journey.tags {
                self.cache.iter_mut().for_each(|cache| cache.forget(transit.flow));
            }
        }
    }

    /// Returns the flow of a packet. An expired one is not found, and ends.
    pub fn find(
        &mut self,
        packet: &Packet,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Option<(u32, Direction)> {
        let meta = packet.meta();
        let (record, direction) = self.table.find(meta.hash, &meta.key, meta.reversed)?;
        if self.table.records.header(record).has_expired(self.clock.now_ns()) {
            self.end_in_time(record, stages, pool);
            return None;
        }
        Some((record, direction))
    }

    /// Creates a record for the flow that this packet begins. Another flow may be evicted.
    ///
    /// # Errors
    /// If there is no room, or no memory for the functions.
    pub fn begin(
        &mut self,
        packet: &Packet,
        handle: Option<u32>,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<u32, DropReason> {
        if reserve::is_short() {
            return Err(DropReason::NoMemory);
        }
        if self.is_full() && !self.make_room(stages, pool) {
            return Err(DropReason::FlowTableFull);
        }
        let record = self.table.create(packet, self.clock.now_ns()).ok_or(DropReason::FlowTableFull)?;
        self.forget_rules(record);
        if let Some(groups) = self.affinity_groups {
            let group = stages.group_of(packet, groups);
            self.table.records.header_mut(record).set_affinity_group(group);
        }
        if let Some(handle) = handle {
            self.table.handles.add(handle, record);
        }
        Ok(record)
    }

    /// Notifies functions that the flow of this packet begins. Returns false if one of them
    /// panicked.
    pub fn start(
        &mut self,
        packet: &Packet,
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> bool {
        self.counters.started += 1;
        if let Some(kind) = parser.tunnel_kind(packet) {
            self.counters.tunnels[kind as usize] += 1;
        }
        self.note_peak();
        if self.routing.is_some() {
            return true; // Functions are notified when they get its first packet.
        }
        let Stages { all, effects, .. } = stages;
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        // All of them, because each will be notified of its end.
        let started = all.iter_mut().map(|stage| stage.flow_start(packet.meta().transit, &mut env));
        let all = started.fold(true, |all, started| all & started);
        if all && self.makes_room {
            self.let_give_way(packet, stages, pool);
        }
        all
    }

    /// Notifies a function of a graph with branches of a flow, before its first packet there.
    /// Returns false if the function panicked.
    pub fn start_at(
        &mut self,
        stage: usize,
        packet: &mut Packet,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> bool {
        let record = packet.meta().transit.flow;
        let records = &mut self.table.records;
        let Some(routing) = &self.routing else { return true };
        let Some(replaced) = routing.routes().replaced_by(stage, record, records) else { return true };
        let Stages { all, effects, .. } = &mut *stages;
        for left in replaced.iter() {
            let mut env = StageEnv { records, effects, buffers: pool };
            all[left].flow_end(record, EndReason::Closed, self.clock.now_ns(), &mut env);
        }
        packet.meta_mut().transit.tags &= !routing.routes().start(stage, replaced, record, records);
        let mut env = StageEnv { records, effects, buffers: pool };
        let has_started = all[stage].flow_start(packet.meta().transit, &mut env);
        if has_started && all[stage].makes_room() {
            self.let_give_way_at(stage, packet, stages, pool);
        }
        has_started
    }

    /// Returns the functions that have state of a flow.
    fn started(&self, record: u32) -> NfSet {
        self.routing
            .as_ref()
            .map_or(NfSet::ALL, |routing| routing.routes().started(record, &self.table.records))
    }

    /// Evicts a flow for another one, if the options say so. Returns true if there is room now.
    fn make_room(&mut self, stages: &mut Stages, pool: &mut PacketPool) -> bool {
        if self.when_full == WhenFull::RefuseNew {
            return false;
        }
        match self.table.victim(self.clock.now_ns()) {
            Some(victim) => self.evict(victim, stages, pool),
            None => return false,
        }
        true
    }

    /// Ends flows that functions evict for the one that begins with this packet.
    #[cold]
    fn let_give_way(&mut self, packet: &Packet, stages: &mut Stages, pool: &mut PacketPool) {
        for stage in 0..stages.all.len() {
            if stages.all[stage].makes_room() {
                self.let_give_way_at(stage, packet, stages, pool);
            }
        }
    }

    #[cold]
    fn let_give_way_at(&mut self, stage: usize, packet: &Packet, stages: &mut Stages, pool: &mut PacketPool) {
        let mut victims = Vec::new();
        let Stages { all, effects, .. } = &mut *stages;
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        all[stage].make_room(packet, &mut env, &mut victims);
        for victim in victims {
            if self.table.is_live(victim) {
                self.end(victim, EndReason::Evicted, stages, pool);
            }
        }
    }
}

/// Returns the fields of packets that a rule must distinguish because branches read them, and true
/// if there are branches.
fn guards(routing: Option<&Routing>) -> (RuleGuards, bool) {
    let reads = routing.map(|routing| routing.topology().reads()).unwrap_or_default();
    (RuleGuards { tcp_flags: reads.tcp_flags, dscp: reads.dscp }, routing.is_some())
}
