//! The flows, each with all that belongs to it: its record, its cached rules, its TCP streams.
//!
//! A flow begins with a packet, ends when it expires or another one needs its place, and moves
//! between tables as one run of bytes (`saving`). The functions are notified of each.

mod saving;

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::record::{RecordHeader, RecordLayout};
use nf::stage::StageEnv;
use nf::{AffinityGroups, Connection, EffectsMark, EndReason};
use packet::memory::{OutOfMemory, reserve};
use packet::{
    Direction, DropReason, FlowHasher, FlowKey, Packet, PacketClass, PacketPool, Parser, Side, TunnelKind,
    parse,
};

use crate::cache::{FlowCache, RuleGuards};
use crate::flow_table::{AliasHolder, FlowTable, Joining, SecondPass, Victim};
use crate::fragments::Datagram;
use crate::places::Places;
use crate::reassembly::Reassembly;
use crate::routing::Routing;
use crate::stages::Stages;
use crate::topology::NfSet;
use crate::{Counters, FlowClass, Options, WhenFull};
pub use saving::SavedLayout;
use saving::SavedLayouts;

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
    /// The cached rules, if they are worth it.
    pub cache: Option<FlowCache>,
    /// The flows' TCP streams, if a function wants them.
    pub reassembly: Option<Reassembly>,
    /// The flows' routes, if the graph has branches.
    pub routing: Option<Box<Routing>>,
    pub changes: Vec<FlowChange>,
    /// The latest time that any packet had.
    pub now_ns: u64,
    /// The same as of the last packet that is settled.
    pub settled_ns: u64,
    /// Flows that end once their group is through: a function panicked at a packet of theirs.
    pub failed: Vec<u32>,
    counters: FlowCounters,
    layouts: SavedLayouts,
    /// True if a function may end flows for new ones.
    makes_room: bool,
    when_full: WhenFull,
    affinity_groups: Option<AffinityGroups>,
    /// The places of ports: aliases are keys of the place where packets leave.
    pub places: Places,
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
    moved_in: u64,
    moved_out: u64,
    tunnels: [u64; TunnelKind::COUNT],
}

impl Flows {
    /// Creates tables for the flows of these functions, whose records have this layout, the parts
    /// of the functions from `lead_len` on.
    pub fn new(
        stages: &Stages,
        (layout, lead_len): (RecordLayout, usize),
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
        let layouts = SavedLayouts::new((stages, routing.as_deref()), &table, lead_len);
        let capacity = table.records.capacity();
        let cache = match options.consolidate {
            true => FlowCache::new(&stages.all, &table.layout, capacity, guards(routing.as_deref()))?,
            false => None,
        };
        Ok(Flows {
            table,
            cache,
            reassembly,
            routing,
            changes: Vec::new(),
            now_ns: 0,
            settled_ns: 0,
            failed: Vec::new(),
            counters: FlowCounters::default(),
            layouts,
            makes_room: stages.all.iter().any(|stage| stage.makes_room()),
            when_full: options.when_full,
            affinity_groups: options.affinity_groups,
            places: Places::default(),
            due: Vec::new(),
        })
    }

    /// Adds what was counted of flows.
    pub fn count(&self, counters: &mut Counters) {
        counters.flows_live = self.live();
        counters.flows_by_class = self.table.classes.live().map(u64::from);
        counters.flows_started = self.counters.started;
        counters.flows_peak = self.counters.peak;
        counters.flows_ended = self.counters.ended;
        counters.evicted_by_class = self.counters.evicted_by_class;
        counters.evicted_over_source = self.counters.evicted_over_source;
        counters.flows_moved_in = self.counters.moved_in;
        counters.flows_moved_out = self.counters.moved_out;
        counters.tunnels = self.counters.tunnels;
        counters.streams = self.reassembly.as_ref().map(Reassembly::counters).unwrap_or_default();
    }

    /// Flows that there are.
    pub fn live(&self) -> u64 {
        u64::from(self.table.records.live() - self.table.passes.count())
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

    /// Returns the flow that the packet belongs to. An expired one is not found, and ends.
    pub fn find(
        &mut self,
        packet: &Packet,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Option<(u32, Direction)> {
        let meta = packet.meta();
        let (record, direction) = self.table.find(meta.hash, &meta.key, meta.reversed)?;
        if self.table.records.header(record).has_expired(self.now_ns) {
            self.end_in_time(record, stages, pool);
            return None;
        }
        Some((record, direction))
    }

    /// A record for the flow that this packet begins; another flow may have to go for it.
    ///
    /// # Errors
    /// If there is no room, or no memory for what functions keep of it.
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
        let record = self.table.create(packet, self.now_ns).ok_or(DropReason::FlowTableFull)?;
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

    /// Notifies functions that the flow of this packet begins; false if one of them panicked.
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
        self.counters.peak = self.counters.peak.max(self.live());
        if self.routing.is_some() {
            return true; // Functions hear of it when they get its first packet.
        }
        let Stages { all, effects, .. } = stages;
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        // All of them, as each will be told of its end.
        let started = all.iter_mut().map(|stage| stage.flow_start(packet.meta().transit, &mut env));
        let all = started.fold(true, |all, started| all & started);
        if all && self.makes_room {
            self.let_give_way(packet, stages, pool);
        }
        all
    }

    /// A function of a graph with branches is about to get this packet: it hears of the flow, if it
    /// has no state of it. False if it panicked.
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
        let Some(replaced) = routing.replaced_by(stage, record, records) else { return true };
        let Stages { all, effects, .. } = &mut *stages;
        for left in replaced.iter() {
            let mut env = StageEnv { records, effects, buffers: pool };
            all[left].flow_end(record, EndReason::Closed, self.now_ns, &mut env);
        }
        packet.meta_mut().transit.tags &= !routing.start(stage, replaced, record, records);
        let mut env = StageEnv { records, effects, buffers: pool };
        let has_started = all[stage].flow_start(packet.meta().transit, &mut env);
        if has_started && all[stage].makes_room() {
            self.let_give_way_at(stage, packet, stages, pool);
        }
        has_started
    }

    /// Returns the functions that have state of a flow.
    fn started(&self, record: u32) -> NfSet {
        self.routing.as_ref().map_or(NfSet::ALL, |routing| routing.started(record, &self.table.records))
    }

    /// Ends a flow for another one, if the options say so; whether there is room now.
    fn make_room(&mut self, stages: &mut Stages, pool: &mut PacketPool) -> bool {
        if self.when_full == WhenFull::RefuseNew {
            return false;
        }
        match self.table.victim(self.now_ns) {
            Some(victim) => self.evict(victim, stages, pool),
            None => return false,
        }
        true
    }

    /// Ends flows that functions give up for the one that begins with this packet.
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

    /// A packet of the flow passed: the flow lives on, and its alias is learned when it is new.
    pub fn accept(
        &mut self,
        record: u32,
        packet: &Packet,
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<(), DropReason> {
        let meta = packet.meta();
        let known = self.table.records.header(record).has(RecordHeader::FLAG_ACCEPTED);
        if known && !meta.transit.relearn_alias {
            self.table.refresh(record, self.settled_ns, meta.transit.keep_ms);
            return Ok(());
        }
        if !self.learn_alias(packet, !known, parser, stages, pool) {
            return Err(DropReason::AliasConflict);
        }
        self.table.refresh(record, self.settled_ns, meta.transit.keep_ms);
        if !known {
            self.table.records.header_mut(record).flags |= RecordHeader::FLAG_ACCEPTED;
            self.table.watch(record);
        }
        Ok(())
    }

    /// Learns the key that the flow's packets have behind the functions, from one of them; false if
    /// another flow has it.
    fn learn_alias(
        &mut self,
        packet: &Packet,
        begins: bool,
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> bool {
        let meta = packet.meta();
        if !self.table.joining.has_aliases
            || meta.transit.direction != Direction::Original
            || !matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
        {
            return true;
        }
        let (mut key, reversed) = parser.current_key(packet);
        self.places.leave(&mut key, &meta.transit);
        let record = meta.transit.flow;
        let other = match self.set_alias(record, key, reversed) {
            Ok(()) => return true,
            Err(AliasHolder::Elsewhere) => return false,
            Err(AliasHolder::ByFlow(other)) => other,
        };
        let at_ns = self.settled_ns;
        let may_evict = begins && meta.transit.side == Side::Inside;
        if self.table.records.header(other).has_expired(at_ns) {
            self.end_in_time(other, stages, pool);
        } else if may_evict && self.gives_way(other) {
            self.end(other, EndReason::Evicted, stages, pool);
        } else {
            return false;
        }
        self.set_alias(record, key, reversed).is_ok()
    }

    /// Gives a flow an alias, or says who has it.
    fn set_alias(&mut self, record: u32, key: FlowKey, reversed: bool) -> Result<(), AliasHolder> {
        // A flow of which nothing has passed has no rules.
        if self.table.records.header(record).has(RecordHeader::FLAG_ACCEPTED) {
            self.forget_rules(record);
        }
        self.table.set_alias(record, key, reversed)?;
        if let Some(handle) = self.table.handles.of(record) {
            let hash = self.table.hash(&key);
            self.changes.push(FlowChange::Alias { handle, key, hash });
        }
        Ok(())
    }

    /// Returns true if an outside host opened the flow and nobody answered: then it does not keep
    /// its key from a flow that an inside host begins. Else an outside host that sends to a NAT's
    /// ports first could keep inside hosts from using them.
    fn gives_way(&self, record: u32) -> bool {
        let header = self.table.records.header(record);
        let unanswered =
            matches!(header.connection, Connection::NEW | Connection::UNREPLIED | Connection::SYN_SENT);
        unanswered && header.origin() == Side::Outside
    }

    /// Ends an expired flow.
    pub fn end_in_time(&mut self, record: u32, stages: &mut Stages, pool: &mut PacketPool) {
        let over = self.table.records.header(record).connection.is_over();
        self.end(record, if over { EndReason::Closed } else { EndReason::Idle }, stages, pool);
    }

    /// Ends the expired flows.
    pub fn expire(&mut self, stages: &mut Stages, pool: &mut PacketPool) {
        let mut due = std::mem::take(&mut self.due);
        self.table.expired(self.now_ns, &mut due);
        for &record in &due {
            self.end_in_time(record, stages, pool);
        }
        self.due = due;
    }

    /// Ends all flows, as far as there is room for what their ends bring about; false if some are
    /// left.
    pub fn finish(&mut self, stages: &mut Stages, pool: &mut PacketPool) -> bool {
        let mut live = std::mem::take(&mut self.due);
        live.clear();
        live.extend(self.table.live());
        let mut ended = 0;
        for &record in &live {
            if stages.effects.is_half_full() {
                break;
            }
            self.end(record, EndReason::Shutdown, stages, pool);
            ended += 1;
        }
        let all = ended == live.len();
        self.due = live;
        all
    }

    /// Ends a flow for another one, and counts what it was.
    #[cold]
    fn evict(&mut self, victim: Victim, stages: &mut Stages, pool: &mut PacketPool) {
        self.counters.evicted_by_class[victim.class as usize] += 1;
        self.counters.evicted_over_source += u64::from(victim.over_source);
        self.end(victim.record, EndReason::Evicted, stages, pool);
    }

    /// Ends a flow.
    pub fn end(&mut self, record: u32, reason: EndReason, stages: &mut Stages, pool: &mut PacketPool) {
        self.counters.ended[reason as usize] += 1;
        let started = self.started(record);
        self.end_at(|number| started.has(number), (record, reason), stages, pool);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.forget(record, &mut self.table.records);
        }
        self.end_second_pass(record, reason, stages, pool);
        if let Some(handle) = self.table.remove(record) {
            self.changes.push(FlowChange::Ended { handle, effects: stages.effects.mark() });
        }
    }

    /// The functions with these numbers hear of a flow's end.
    fn end_at(
        &mut self,
        hears: impl Fn(usize) -> bool,
        (record, reason): (u32, EndReason),
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) {
        let Stages { all, effects, .. } = stages;
        let reports = effects.begin_flow_end();
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        for (number, stage) in all.iter_mut().enumerate() {
            if hears(number) {
                stage.flow_end(record, reason, self.now_ns, &mut env);
            }
        }
        effects.complete_flow_end(reports);
    }

    /// A function panicked at a packet of this flow: it ends, once the packets of its group are
    /// through.
    #[cold]
    pub fn note_failed(&mut self, record: u32) {
        let main = self.table.passes.get(record).map_or(record, |pass| pass.main);
        if !self.failed.contains(&main) {
            self.failed.push(main);
        }
    }

    /// Ends the flows at whose packets functions panicked.
    #[cold]
    pub fn end_failed(&mut self, stages: &mut Stages, pool: &mut PacketPool) {
        let mut failed = std::mem::take(&mut self.failed);
        for record in failed.drain(..) {
            if self.table.is_live(record) {
                self.end(record, EndReason::Rejected, stages, pool);
            }
        }
        self.failed = failed;
    }

    /// Makes a record for the second pass of the flow that this packet is of, which the function at
    /// `stage` turns back for the first time. Another flow may go for it if `may_evict`.
    ///
    /// # Errors
    /// If there is no room, or a function panics.
    pub fn begin_second_pass(
        &mut self,
        packet: &Packet,
        (stage, may_evict): (usize, bool),
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<SecondPass, DropReason> {
        let meta = packet.meta();
        let (main, near, direction) = (meta.transit.flow, meta.transit.side, meta.transit.direction);
        if self.is_full() {
            let may_evict = may_evict && self.when_full != WhenFull::RefuseNew;
            let victim = if may_evict { self.table.victim(self.now_ns) } else { None };
            let victim = victim.filter(|victim| victim.record != main).ok_or(DropReason::FlowTableFull)?;
            self.evict(victim, stages, pool);
        }
        let key = match meta.class {
            PacketClass::IcmpError => parse::portless_key(packet),
            _ => parser.current_key(packet),
        };
        let second = self.table.begin_second(packet, key, self.now_ns).ok_or(DropReason::FlowTableFull)?;
        self.forget_rules(second);
        if self.affinity_groups.is_some() {
            let group = self.table.records.header(main).affinity_group();
            self.table.records.header_mut(second).set_affinity_group(group);
        }
        let pass = SecondPass { main, second, stage: stage as u16, near, direction };
        self.table.passes.add(pass, self.table.records.capacity());
        if self.routing.is_some() {
            return Ok(pass);
        }
        let mut transit = meta.transit;
        (transit.flow, transit.side) = (second, near.other());
        let Stages { all, effects, .. } = stages;
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        let mut has_failed = false;
        for (number, stage) in all.iter_mut().enumerate() {
            if number != usize::from(pass.stage) {
                has_failed |= !stage.flow_start(transit, &mut env);
            }
        }
        if has_failed { Err(DropReason::FunctionPanic) } else { Ok(pass) }
    }

    /// The flow with this record ends, and with it its second pass, if it has one.
    fn end_second_pass(&mut self, main: u32, reason: EndReason, stages: &mut Stages, pool: &mut PacketPool) {
        let Some(pass) = self.table.passes.get(main) else { return };
        let (started, is_line) = (self.started(pass.second), self.routing.is_none());
        let is_turning = |number: usize| number == usize::from(pass.stage) && is_line;
        let hears = |number: usize| started.has(number) && !is_turning(number);
        self.end_at(hears, (pass.second, reason), stages, pool);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.forget(pass.second, &mut self.table.records);
        }
        self.table.forget_second(main);
    }

    /// Ends all flows, as far as that can be done, and empties the tables; returns true if the
    /// streams' memory is new, too.
    pub fn clear(&mut self, stages: &mut Stages, options: &Options, pool: &mut PacketPool) -> bool {
        let live: Vec<u32> = self.table.live().collect();
        for &record in &live {
            let second = self.table.passes.get(record).map(|pass| pass.second);
            for record in [Some(record), second].into_iter().flatten() {
                let started = self.started(record);
                self.end_at(|number| started.has(number), (record, EndReason::Evicted), stages, pool);
            }
            if let Some(handle) = self.table.handles.of(record) {
                self.changes.push(FlowChange::Ended { handle, effects: stages.effects.mark() });
            }
            // The index may be what failed: then others keep what they have heard of its aliases
            // until those are claimed again.
            let _ = catch_unwind(AssertUnwindSafe(|| self.table.drop_alias(record)));
        }
        self.counters.ended[EndReason::Evicted as usize] += live.len() as u64;
        let (capacity, cache) = (self.table.records.capacity(), self.cache.as_ref());
        self.cache = cache.and_then(|cache| {
            cache.renewed(&stages.all, &self.table.layout, (capacity, self.routing.is_some()))
        });
        let new = Reassembly::new(&stages.all, &mut RecordLayout::default(), options.streams, options.seed);
        let is_replaced = new.is_ok();
        if let Ok(new) = new {
            self.reassembly = new;
        }
        self.table.renew(&live, (options.shares, options.seed));
        is_replaced
    }
}

/// Returns the fields that a rule must know of packets, because branches ask for them, and true if
/// there are branches.
fn guards(routing: Option<&Routing>) -> (RuleGuards, bool) {
    let reads = routing.map(|routing| routing.topology.reads()).unwrap_or_default();
    (RuleGuards { tcp_flags: reads.tcp_flags, dscp: reads.dscp }, routing.is_some())
}
