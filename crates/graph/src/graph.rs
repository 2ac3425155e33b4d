//! The graph: functions in order, over flows.
//!
//! Packets arrive in batches. A batch is classified and looked up in passes, so that memory is
//! prefetched before it is used (`entering`). Packets of known flows form groups, slices of the
//! batch ([`crate::groups`]); the pipeline processes a whole group at once, and settles it. A
//! packet that may begin or end a flow, or depends on another packet's outcome, goes alone, after
//! the group before it.
//!
//! The result is that of one packet after the other, however packets are batched. A packet that
//! functions may answer is a group of its own, so that the answer passes the other functions before
//! the next packet does. A group's alerts, events and flow reports are put in the order of packets.
//! Three differences are left:
//!
//! - when the memory of all streams, or of all growing buffers of a function, is used up, another
//!   flow may be the one that gets none;
//! - the first packet that is turned back within a known flow may reach the functions on
//!   its way back after packets that arrived later;
//! - a flow at whose packet a function panics ends with its group.
//!
//! Time is the latest timestamp of any packet: a packet with an earlier one is late, and counts as
//! arriving now.

mod dispatched;
mod entering;
mod recovering;

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::record::{FlowRecords, RecordLayout};
use nf::stage::{PacketTotals, Stage};
use nf::{Effects, SharedHandle, Verdict};
use packet::memory::OutOfMemory;
use packet::{Direction, FlowKey, Packet, PacketPool};

use crate::cache::{FastPath, FlowCache, Path, RuleView};
use crate::classifier::Classifier;
use crate::flow_table::{Joining, RestoreError};
use crate::flows::{Flows, SavedLayout};
use crate::groups::{GatheredGroup, Groups};
use crate::observer::Observer;
use crate::pipeline::{BatchRun, Pipeline};
use crate::queue::{GROUP_MAX, Queue};
use crate::reassembly::Reassembly;
use crate::routing::{AttributeField, EdgeCounters, Routing};
use crate::stages::{Stages, Walked};
use crate::topology::Topology;
use crate::{Counters, Options, SideBySide};

/// Runs network functions in order over flows, from the inside to the outside and back in reverse
/// order.
pub struct Graph {
    options: Options,
    classifier: Classifier,
    /// A command may have changed what passes unjudged.
    is_commanded: bool,
    groups: Groups,
    pipeline: Pipeline,
    /// The handles of the batch's flows, by the packets' numbers, if the caller passed any.
    handles: Vec<(u64, u32)>,
    /// Memory that is reused.
    waited: Vec<Packet>,
}

/// A graph could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Not enough memory for the flow table.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The attributes of all functions and external nodes together do not fit a packet's tag word.
    #[error("the attributes of the functions up to `{0}` take more than 64 bits")]
    TooManyTags(&'static str),
    /// A function [changes flows](nf::Descriptor::changes_flows), and is not alone.
    #[error(
        "`{0}` ends tunnels and stands alone between its ports: behind it a packet belongs to another flow than it came with, \
         whose state other functions would not have"
    )]
    NotAlone(&'static str),
}

impl Graph {
    /// Creates a graph of these functions, a line: the first one inside.
    ///
    /// # Errors
    /// If they cannot form a graph, or memory is short.
    pub fn new(stages: Vec<Box<dyn Stage>>, options: Options) -> Result<Graph, GraphError> {
        Graph::create(stages, None, options)
    }

    /// Creates a graph with branches, of the functions [of the topology](Topology::nfs).
    ///
    /// # Errors
    /// As for [`Graph::new`].
    pub fn branching(
        stages: Vec<Box<dyn Stage>>,
        topology: Topology,
        options: Options,
    ) -> Result<Graph, GraphError> {
        Graph::create(stages, Some(topology), options)
    }

    fn create(
        mut stages: Vec<Box<dyn Stage>>,
        topology: Option<Topology>,
        options: Options,
    ) -> Result<Graph, GraphError> {
        let changes_flows = stages.iter().map(|stage| stage.descriptor()).find(|d| d.changes_flows);
        if let Some(descriptor) = changes_flows.filter(|_| stages.len() > 1) {
            return Err(GraphError::NotAlone(descriptor.name));
        }
        let (mut layout, mut tag_bit) = (RecordLayout::default(), 0);
        let reassembly = Reassembly::new(&stages, &mut layout, options.streams, options.seed)?;
        stages.iter_mut().for_each(|stage| stage.set_on_panic(options.on_panic));
        let (lead_len, routing);
        if let Some(topology) = topology {
            let placed = Routing::place(topology, &mut stages, &mut layout, options.timeouts)
                .map_err(GraphError::TooManyTags)?;
            lead_len = placed.0.lead_len();
            (routing, tag_bit) = (Some(Box::new(placed.0)), placed.1);
        } else {
            (lead_len, routing) = (layout.len(), None);
            for (number, stage) in stages.iter_mut().enumerate() {
                let name = stage.descriptor().name;
                tag_bit =
                    stage.place(number as u16, &mut layout, tag_bit).ok_or(GraphError::TooManyTags(name))?;
            }
        }
        let joining = Joining {
            timeouts: options.timeouts,
            keeps_flows: stages.iter().any(|stage| stage.descriptor().keeps_flows),
            tags: tag_bit > 0,
            has_aliases: changes_flows.is_none(),
        };
        // What a packet says about how long its flow is kept is heeded when its group is through:
        // so no group takes longer than the shortest that a flow can be kept.
        let group_span_ns = match joining.keeps_flows {
            true => 1_000_000,
            false => u64::from(options.timeouts.shortest_ms()) * 1_000_000,
        };
        let order_felt = stages.iter().any(|stage| stage.shared().is_order_sensitive());
        let stages = Stages::new(stages, options.cycles);
        let mut classifier = Classifier::new(&options);
        classifier.set_passes_unjudged(stages.pass_unjudged());
        let (layout, hasher) = ((layout, lead_len), classifier.parser().hasher);
        let mut groups = Groups::new(group_span_ns, order_felt);
        if let Some(routing) = &routing {
            let streams = stages.all.iter().filter(|stage| stage.descriptor().stream).count();
            groups.branch(routing.topology.reads().is_any(), streams > 1);
        }
        let flows = Flows::new(&stages, layout, (reassembly, routing), joining, (&options, hasher))?;
        Ok(Graph {
            options,
            classifier,
            is_commanded: false,
            groups,
            pipeline: Pipeline::new(stages, flows),
            handles: Vec::new(),
            waited: Vec::new(),
        })
    }

    /// Processes packets in order; those that leave are added to `out`, their metadata's `side` now
    /// being the side that they leave by. The receiver must have set what [`packet::Parser::parse`]
    /// asks for.
    pub fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        if self.is_wire() {
            self.follow_commands();
            return self.pass_through(batch, &mut BatchRun::new(out, pool, self.classifier.parser()));
        }
        self.handles.clear();
        self.look_up(batch);
        let mut run = BatchRun::new(out, pool, self.classifier.parser());
        self.run(batch, &mut run);
        debug_assert!(self.classifier.refuses_none(), "each was dropped in its turn");
    }

    /// Takes packets that were looked up through.
    fn run(&mut self, batch: &mut Vec<Packet>, run: &mut BatchRun<'_, '_>) {
        let account = self.account(batch.len());
        self.groups.set_apart(&self.pipeline.stages.all);
        let mut queue = Queue::enter(batch);
        let all = || {
            self.run_queue(&mut queue, run);
            self.handle_timeout(self.pipeline.flows.now_ns, run.pool);
        };
        if catch_unwind(AssertUnwindSafe(all)).is_err() {
            self.start_over(&mut queue, account, run);
        }
        queue.leave(batch, run.out);
    }

    /// Takes the packets of a queue through.
    fn run_queue(&mut self, queue: &mut Queue, run: &mut BatchRun<'_, '_>) {
        while queue.rest_len() > 0 {
            let Pipeline { flows, stages, .. } = &mut self.pipeline;
            let GatheredGroup { load, path, uniform } = self.groups.gather(queue.rest(), flows, &stages.all);
            let count = load.packets as usize;
            if count > 0 {
                let verdicts = &mut [Verdict::Forward; GROUP_MAX][..count];
                let packets = &mut queue.rest()[..count];
                if uniform {
                    let loads = match self.groups.mixed {
                        true => PacketTotals::by_side(packets, verdicts),
                        false => load.of(packets),
                    };
                    self.pipeline.cross(packets, verdicts, loads, path.program(), run);
                } else {
                    self.pipeline.cross_mixed(packets, verdicts, &self.groups.paths[..count], run);
                }
                self.pipeline.settle_group(queue, verdicts, run);
                if !self.pipeline.flows.failed.is_empty() {
                    self.pipeline.flows.end_failed(&mut self.pipeline.stages, run.pool);
                }
            } else if path == Path::REVALIDATE {
                if let Some(cache) = &mut flows.cache {
                    cache.review(&stages.all, &flows.table.records, &queue.rest()[0]);
                }
            } else if let Some(packet) = queue.next(run.out) {
                let parsed = self.classifier.take_refusal(&packet);
                self.alone(packet, parsed, run);
            }
        }
    }

    /// Processes one packet, and reports to `observer` what every function did to it.
    pub fn observe(
        &mut self,
        mut packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        observer: &mut dyn Observer,
    ) {
        let parsed = self.classifier.classify_one(&mut packet);
        observer.arrived(&packet);
        let mut run = BatchRun::new(out, pool, self.classifier.parser());
        run.observer = Some(observer);
        match parsed {
            Ok(()) if self.is_wire() => self.pass(packet, &mut run),
            parsed => self.alone(packet, parsed, &mut run),
        }
        self.handle_timeout(self.pipeline.flows.now_ns, pool);
    }

    /// Advances the time to `now_ns`: expired flows and fragments are cleared.
    pub fn handle_timeout(&mut self, now_ns: u64, pool: &mut PacketPool) {
        self.pipeline.handle_timeout(now_ns, pool);
        self.classifier.give_up_fragments(self.pipeline.flows.now_ns);
        self.drop_given_up(pool);
    }

    /// Drops fragments that waited for their first one in vain; functions that ask for such see
    /// them before.
    fn drop_given_up(&mut self, pool: &mut PacketPool) {
        for (packet, _) in self.classifier.given_up() {
            self.pipeline.show_lone_fragment(packet, pool);
        }
        self.classifier.drop_given_up(pool);
    }

    /// Ends all flows, at the end of a run. Fragments that still wait stay counted as held.
    ///
    /// False if there are more flows than room for what their ends bring about: then alerts, events
    /// and reports must be taken (see [`Graph::effects_mut`]), and the rest ends with the next
    /// call.
    pub fn finish(&mut self, pool: &mut PacketPool) -> bool {
        self.pipeline.flows.finish(&mut self.pipeline.stages, pool)
    }

    /// Returns what was counted.
    pub fn counters(&self) -> Counters {
        let (own, classified) = (&self.pipeline.counters, self.classifier.counters());
        let displaced = self.pipeline.displaced();
        let mut counters = Counters {
            packets_out: own.packets_out + classified.packets_out,
            bytes_out: own.bytes_out + classified.bytes_out,
            packets_generated: own.packets_generated,
            packets_pending: classified.packets_pending + self.pipeline.packets_pending(),
            fragments_moved: self.pipeline.fragments_moved(),
            drops: std::array::from_fn(|reason| own.drops[reason] + classified.drops[reason]),
            fragments_displaced: classified.fragments_displaced + displaced.table,
            fragments_displaced_by_source: classified.fragments_displaced_by_source + displaced.source,
            restarts: own.restarts,
            ..classified
        };
        self.pipeline.flows.count(&mut counters);
        counters
    }

    /// Returns how packets took the fast path.
    pub fn fast_path(&self) -> FastPath {
        self.pipeline.flows.cache.as_ref().map(FlowCache::counters).unwrap_or_default()
    }

    /// Returns true if packets of known flows may follow cached rules.
    pub fn consolidates(&self) -> bool {
        self.pipeline.flows.cache.is_some()
    }

    /// Returns the current cached rule for packets of one direction of a flow, by its record's
    /// number.
    pub fn rule_of(&self, record: u32, direction: Direction) -> Option<RuleView> {
        self.pipeline.flows.cache.as_ref()?.rule_of(record, direction)
    }

    /// Returns true if there is no function and no branch: packets have no flows, and leave by the
    /// other side.
    pub fn is_wire(&self) -> bool {
        self.pipeline.stages.all.is_empty() && self.pipeline.flows.routing.is_none()
    }

    /// Returns the topology, if the graph has branches, and what its edges have counted.
    pub fn topology(&self) -> Option<(&Topology, &[EdgeCounters])> {
        self.pipeline.flows.routing.as_ref().map(|routing| (&routing.topology, &routing.edges[..]))
    }

    /// Returns the place in packets' tags of an attribute of an NF or an external node's program;
    /// `owner` as in [`policy::TravellingAttribute::owner`]. `None` if the graph has no branches or
    /// no use for the attribute.
    pub fn attribute_field(&self, owner: usize, name: &str) -> Option<AttributeField> {
        self.pipeline.flows.routing.as_ref()?.attribute_field(owner, name, &self.pipeline.stages.all)
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns what each function's flows share, for graphs of the same functions on other threads
    /// to [`join`](Graph::join).
    pub fn share(&mut self) -> Vec<SharedHandle> {
        self.pipeline.stages.share()
    }

    /// Shares state with the graph that returned this. The graph must have no flows yet.
    pub fn join(&mut self, commons: Vec<SharedHandle>) {
        self.pipeline.stages.join(commons);
    }

    /// Fetches what functions share with those of other graphs. Those wait for it until
    /// [`Graph::give_shared_back`].
    pub fn fetch_shared(&mut self) {
        self.pipeline.stages.all.iter_mut().for_each(|stage| stage.open());
    }

    /// Gives it back.
    pub fn give_shared_back(&mut self) {
        self.pipeline.stages.all.iter_mut().for_each(|stage| stage.close());
    }

    /// Ends the sharing: the graphs that joined this one are gone.
    pub fn part(&mut self) {
        self.pipeline.stages.all.iter_mut().for_each(|stage| stage.part());
    }

    /// Returns the functions, from the inside to the outside.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.pipeline.stages.all
    }

    /// See [`Classifier::expect_offloaded`]: packets come from captures.
    pub fn expect_offloaded(&mut self) {
        self.options.offloaded = true;
        self.classifier.expect_offloaded();
    }

    /// Returns a function, to be commanded by an operator.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut (dyn Stage + 'static)> {
        self.is_commanded = true;
        self.pipeline.flows.cache.iter_mut().for_each(FlowCache::raise_version);
        self.groups.apart = None;
        self.pipeline.stages.all.get_mut(stage).map(|stage| &mut **stage)
    }

    /// Returns the processor cycles spent in each function, if [`Options::cycles`] counts them.
    pub fn cycles(&self) -> &[u64] {
        &self.pipeline.stages.cycles
    }

    /// Returns the part of them spent on the slow path. The rest was spent in state functions, on
    /// the fast path.
    pub fn walked(&self) -> &[Walked] {
        &self.pipeline.stages.walked
    }

    /// Returns the functions' output other than packets.
    pub fn effects(&self) -> &Effects {
        &self.pipeline.stages.effects
    }

    /// Returns alerts, events and flow reports, to be taken.
    pub fn effects_mut(&mut self) -> &mut Effects {
        &mut self.pipeline.stages.effects
    }

    /// Returns the bytes of a flow's record.
    pub fn record_len(&self) -> usize {
        self.pipeline.flows.table.records.record_len()
    }

    /// Returns true if a function subscribes to TCP streams.
    pub fn has_streams(&self) -> bool {
        self.pipeline.flows.reassembly.is_some()
    }

    /// Adds what a flow's TCP streams have come to, with all bytes that wait, to `out`, to go on
    /// from there elsewhere; nothing if no function wants streams. See
    /// [`crate::streams::Reassembler::restore`].
    pub fn save_streams(&self, record: u32, out: &mut Vec<u8>) {
        self.pipeline.flows.save_streams(record, out);
    }

    /// Returns the flows' records.
    pub fn records(&self) -> &FlowRecords {
        &self.pipeline.flows.table.records
    }

    /// State functions that commute run side by side from now on where that is worth it: what comes
    /// out is the same. Programs of the fast path that were written before stay as they are.
    ///
    /// # Errors
    /// If there is no memory for the copies of records: one for each packet of a group.
    pub fn run_side_by_side(&mut self, how: SideBySide) -> Result<(), OutOfMemory> {
        self.pipeline.run_side_by_side(how)
    }

    /// Returns the flow with this key or alias.
    pub fn flow(&self, hash: u64, key: &FlowKey, reversed: bool) -> Option<u32> {
        self.pipeline.flows.table.find(hash, key, reversed).map(|(record, _)| record)
    }

    /// Adds everything that a flow owns to `out`: the record, what its functions keep beside it,
    /// its TCP streams and datagrams in fragments with all that waits in them. It stays as it is.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn save_flow(&mut self, record: u32, out: &mut Vec<u8>) {
        self.pipeline.flows.save(record, &mut self.pipeline.stages, out);
    }

    /// Takes a saved flow over, and says which record it has here. If that fails, nothing of it is
    /// kept.
    ///
    /// A flow of the same key or alias that is here already is not touched. If the table is full,
    /// another flow goes only where the graph's options say so.
    pub fn restore_flow(&mut self, saved: &[u8], pool: &mut PacketPool) -> Result<u32, RestoreError> {
        self.pipeline.restore_flow(saved, false, pool)
    }

    /// The same for a flow that somebody else had since it was saved, who has seen as much time
    /// pass as this graph: fragments that were held back then, and have expired, were dropped
    /// there.
    pub fn restore_copy(&mut self, saved: &[u8], pool: &mut PacketPool) -> Result<u32, RestoreError> {
        self.pipeline.restore_flow(saved, true, pool)
    }

    /// A flow has gone elsewhere: it is forgotten here, which is not its end. What it holds of
    /// pools stays held, unless the place where it goes has pools of its own.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn release_flow(&mut self, record: u32) {
        self.pipeline.flows.release(record, &mut self.pipeline.stages);
    }

    /// Returns the layout of saved flows.
    pub fn saved_layout(&self) -> SavedLayout {
        self.pipeline.flows.saved_layout().clone()
    }

    /// Flows that a graph with other versions of the functions saved are taken over, too, from now
    /// on: each function brings its states over ([`nf::NetworkFunction::upgrade`]).
    ///
    /// # Errors
    /// If it is a graph of other functions, or in another order.
    pub fn accept_states_of(&mut self, other: SavedLayout) -> Result<(), RestoreError> {
        self.pipeline.flows.accept_states_of(other)
    }
}
