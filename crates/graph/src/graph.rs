//! The graph: functions in order, over flows.
//!
//! Packets arrive in batches. A batch is classified and looked up in passes, so that memory is
//! prefetched before it is used (`arrivals`). Packets of known flows form groups, slices of the
//! batch ([`crate::groups`]). The pipeline processes a whole group at once, and settles it. A
//! packet that may begin or end a flow, or depends on another packet's outcome, is a group of its
//! own.
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

mod arrivals;
mod batch_handles;
mod building;
mod flows_view;
mod recovering;
mod report;
mod sharing;

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::stage::{PacketTotals, Stage};
use nf::{AffinityGroup, AffinityGroups, AffinityKey, Effects, Verdict};
use packet::memory::OutOfMemory;
use packet::{DropReason, FlowKey, Packet, PacketClass, PacketPool};

use crate::cache::{FlowCache, Path};
use crate::classifier::{Classifier, FlowLookup};
use crate::flows::FlowChange;
use crate::groups::{GatheredGroup, Groups};
use crate::observer::Observer;
use crate::pipeline::{BatchRun, Pipeline};
use crate::queue::{GROUP_MAX, Queue};
use crate::topology::Topology;
use crate::{Counters, Options, SideBySide};
use arrivals::Arrivals;
pub use flows_view::{FlowsMut, FlowsView};
use recovering::PacketAccount;
pub use report::{Branches, GraphReport};
pub use sharing::Sharing;

/// Runs network functions over flows, from the inside to the outside and in reverse order.
pub struct Graph {
    options: Options,
    arrivals: Arrivals,
    groups: Groups,
    pipeline: Pipeline,
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
        building::build(stages, None, options)
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
        building::build(stages, Some(topology), options)
    }

    /// Processes packets in order. Those that leave are added to `out`, with the side where they
    /// leave in their metadata. The receiver must have set what [`packet::Parser::parse`] needs.
    pub fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let mut run = BatchRun::new(out, pool, self.arrivals.classifier().parser());
        if self.is_wire() {
            return self.arrivals.pass_through(batch, &mut self.pipeline, &mut run);
        }
        let is_mixed = self.arrivals.look_up(batch, &self.pipeline);
        self.run(batch, is_mixed, &mut run);
        debug_assert!(self.arrivals.classifier().refuses_none(), "each was dropped in its turn");
    }

    /// Parses and numbers packets in order of arrival, and calls `prefetch` with the hash of each
    /// one's flow key. [`Classifier::is_refused`] and [`Graph::flow_of`] return the result for each
    /// packet, in order.
    #[inline]
    pub fn classify(&mut self, batch: &mut [Packet], prefetch: impl Fn(u64)) {
        self.arrivals.follow_commands(self.pipeline.stages());
        self.arrivals.classifier_mut().classify(batch, prefetch);
    }

    /// Finds the flow of a classified packet. A later fragment gets its flow's key.
    pub fn flow_of(&mut self, packet: &mut Packet, pool: &mut PacketPool) -> FlowLookup {
        let meta = packet.meta();
        if meta.class == PacketClass::LaterFragment {
            let (flows, _) = self.pipeline.parts();
            flows.clock.advance(meta.transit.timestamp_ns);
            self.arrivals.classifier_mut().handle_timeout(flows.clock.now_ns(), pool);
            self.pipeline.expire_datagrams(pool);
        }
        self.arrivals.classifier_mut().flow_of(packet, pool)
    }

    /// Parses a packet that a dispatcher on another machine classified. `key`: the key of its flow,
    /// and true if the packet goes from its second end to its first, if the packet itself does not
    /// have them.
    ///
    /// # Errors
    /// If it cannot be parsed: it is not what the dispatcher sent.
    pub fn parse_dispatched(
        &self,
        packet: &mut Packet,
        key: Option<(FlowKey, bool)>,
    ) -> Result<(), DropReason> {
        let (meta, classifier) = (packet.meta_mut(), self.arrivals.classifier());
        meta.key.place = self.pipeline.flows().places().of_port(meta.transit.ingress).unwrap_or_default();
        classifier.parser().parse(packet)?;
        if let Some(key) = key {
            classifier.set_key(packet, key);
        }
        Ok(())
    }

    /// Processes classified packets in order of arrival. `handles` has the handle of each one's
    /// flow; a handle without a flow begins one.
    pub fn process_batch(
        &mut self,
        batch: &mut Vec<Packet>,
        handles: &[u32],
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        let mut run = BatchRun::new(out, pool, self.arrivals.classifier().parser());
        if self.is_wire() {
            return batch
                .drain(..)
                .for_each(|packet| self.arrivals.pass(packet, &mut self.pipeline, &mut run));
        }
        let is_mixed = self.arrivals.look_up_handles(batch, handles, self.pipeline.flows());
        self.run(batch, is_mixed, &mut run);
    }

    /// Processes packets that this graph classified, or another one with the same seed, in order of
    /// arrival. Their keys name their flows; none was refused.
    pub fn process_classified(
        &mut self,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        let mut run = BatchRun::new(out, pool, self.arrivals.classifier().parser());
        if self.is_wire() {
            return batch
                .drain(..)
                .for_each(|packet| self.arrivals.pass(packet, &mut self.pipeline, &mut run));
        }
        let is_mixed = self.arrivals.look_up_parsed(batch, self.pipeline.flows());
        self.run(batch, is_mixed, &mut run);
    }

    /// Processes a classified packet of no known flow: one that could not be parsed or is not IP,
    /// or a fragment with a first one that was dropped or has not arrived. Packets must come in
    /// order, after all packets that arrived before them.
    pub fn process_without_flow(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let parsed = self.arrivals.classifier_mut().take_refusal(&packet);
        let mut run = BatchRun::new(out, pool, self.arrivals.classifier().parser());
        self.process_single(packet, parsed, &mut run);
    }

    /// Processes one packet, and reports to `observer` what each function did to it.
    pub fn observe(
        &mut self,
        mut packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        observer: &mut dyn Observer,
    ) {
        let parsed = self.arrivals.classifier_mut().classify_one(&mut packet);
        observer.arrived(&packet);
        let mut run = BatchRun::new(out, pool, self.arrivals.classifier().parser());
        run.observer = Some(observer);
        self.process_single(packet, parsed, &mut run);
        self.handle_timeout(self.pipeline.flows().clock.now_ns(), pool);
    }

    fn process_single(&mut self, packet: Packet, parsed: Result<(), DropReason>, run: &mut BatchRun<'_, '_>) {
        if self.is_wire() && parsed.is_ok() {
            return self.arrivals.pass(packet, &mut self.pipeline, run);
        }
        self.arrivals.process_single(packet, parsed, &mut self.pipeline, run);
    }

    /// Processes packets that were looked up. `is_mixed`: they may be of both sides.
    fn run(&mut self, batch: &mut Vec<Packet>, is_mixed: bool, run: &mut BatchRun<'_, '_>) {
        let account = PacketAccount::of(&self.arrivals, &self.pipeline, batch.len());
        self.groups.begin_batch(&self.pipeline.stages().all, is_mixed);
        let mut queue = Queue::enter(batch);
        let all = || {
            self.run_queue(&mut queue, run);
            self.handle_timeout(self.pipeline.flows().clock.now_ns(), run.pool);
        };
        if catch_unwind(AssertUnwindSafe(all)).is_err() {
            self.recover(&mut queue, &account, run);
        }
        queue.leave(batch, run.out);
    }

    /// Processes the packets of a queue.
    fn run_queue(&mut self, queue: &mut Queue, run: &mut BatchRun<'_, '_>) {
        let Graph { groups, pipeline, arrivals, .. } = self;
        while queue.rest_len() > 0 {
            let (flows, stages) = pipeline.parts();
            let GatheredGroup { load, path, uniform } = groups.gather(queue.rest(), flows, &stages.all);
            let count = load.packets as usize;
            if count > 0 {
                let verdicts = &mut [Verdict::Forward; GROUP_MAX][..count];
                let packets = &mut queue.rest()[..count];
                if uniform {
                    let loads = match groups.is_mixed() {
                        true => PacketTotals::by_side(packets, verdicts),
                        false => load.of(packets),
                    };
                    pipeline.cross(packets, verdicts, loads, path.program(), run);
                } else {
                    pipeline.cross_mixed(packets, verdicts, groups.paths(count), run);
                }
                pipeline.settle_group(queue, verdicts, run);
                let (flows, stages) = pipeline.parts();
                if flows.has_failed() {
                    flows.end_failed(stages, run.pool);
                }
            } else if path == Path::REVALIDATE {
                if let Some(cache) = &mut flows.cache {
                    cache.review(&stages.all, &flows.table.records, &queue.rest()[0]);
                }
            } else if let Some(packet) = queue.next(run.out) {
                let parsed = arrivals.classifier_mut().take_refusal(&packet);
                arrivals.process_single(packet, parsed, pipeline, run);
            }
        }
    }

    /// The graph's own code panicked, so the condition of its tables is unknown. Drops the rest of
    /// the batch, ends all flows, and empties the tables. Functions keep their state and counters.
    #[cold]
    #[inline(never)]
    fn recover(&mut self, queue: &mut Queue, before: &PacketAccount, run: &mut BatchRun<'_, '_>) {
        self.pipeline.traversal().abort(run);
        while queue.rest_len() > 0
            && let Some(packet) = queue.next(run.out)
        {
            self.pipeline.exit_mut().drop_packet(packet, DropReason::Internal, run);
        }
        // Packets on their way are lost, and their buffers with them.
        let lost = PacketAccount::of(&self.arrivals, &self.pipeline, 0).lost_since(before);
        self.pipeline.exit_mut().count_dropped(DropReason::Internal, lost);
        run.pool.replace_lost(lost as usize);
        self.arrivals.classifier_mut().forget_refusals();
        self.pipeline.clear_tables(&self.options, run.pool);
    }

    /// Ends all flows and empties the tables after a panic of the caller, which does not know its
    /// flows any more. `lost` packets did not reach the graph.
    pub fn restart(&mut self, lost: u64, pool: &mut PacketPool) {
        self.pipeline.exit_mut().count_dropped(DropReason::Internal, lost);
        self.pipeline.clear_tables(&self.options, pool);
        self.changes_mut().clear();
    }

    /// Advances the time to `now_ns`: expired flows and fragments are cleared.
    pub fn handle_timeout(&mut self, now_ns: u64, pool: &mut PacketPool) {
        self.arrivals.handle_timeout(now_ns, &mut self.pipeline, pool);
    }

    /// Returns the next time at which a flow or a datagram in fragments expires.
    pub fn next_timeout_ns(&self) -> u64 {
        self.pipeline.next_timeout_ns()
    }

    /// Ends all flows, at the end of a run. Waiting fragments stay counted as pending.
    ///
    /// Returns false if there is no room for the output of all ends: then alerts, events and
    /// reports must be taken (see [`Graph::effects_mut`]), and the next call ends the rest.
    pub fn finish(&mut self, pool: &mut PacketPool) -> bool {
        let (flows, stages) = self.pipeline.parts();
        flows.finish(stages, pool)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let (own, classified) = (self.pipeline.counters(), self.arrivals.classifier().counters());
        let displaced_by_source =
            classified.fragments_displaced_by_source + own.fragments_displaced_by_source;
        Counters {
            packets_in: classified.packets_in,
            bytes_in: classified.bytes_in,
            packets_out: own.packets_out + classified.packets_out,
            bytes_out: own.bytes_out + classified.bytes_out,
            packets_pending: classified.packets_pending + own.packets_pending,
            drops: std::array::from_fn(|reason| own.drops[reason] + classified.drops[reason]),
            fragments_displaced: classified.fragments_displaced + own.fragments_displaced,
            fragments_displaced_by_source: displaced_by_source,
            not_ip_passed: classified.not_ip_passed,
            link_control_passed: classified.link_control_passed,
            ..own
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns true if there is no function and no branch: packets have no flows, and leave by the
    /// other side.
    pub fn is_wire(&self) -> bool {
        self.stages().is_empty() && self.pipeline.flows().routing.is_none()
    }

    /// Returns the functions, from the inside to the outside.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.pipeline.stages().all
    }

    /// Returns a function for an operator's command.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut (dyn Stage + 'static)> {
        self.arrivals.note_command();
        self.groups.note_command();
        let (flows, stages) = self.pipeline.parts();
        flows.cache.iter_mut().for_each(FlowCache::raise_version);
        stages.all.get_mut(stage).map(|stage| &mut **stage)
    }

    /// Expects packets from captures; see [`Classifier::expect_offloaded`].
    pub fn expect_offloaded(&mut self) {
        self.options.offloaded = true;
        self.arrivals.classifier_mut().expect_offloaded();
    }

    /// Runs state functions that commute in parallel from now on where that is worth it. The result
    /// is the same. Programs of the fast path from before do not change.
    ///
    /// # Errors
    /// If there is no memory for the copies of records: one for each packet of a group.
    pub fn run_side_by_side(&mut self, how: SideBySide) -> Result<(), OutOfMemory> {
        self.pipeline.run_side_by_side(how)
    }

    /// Returns the classifier.
    pub fn classifier(&self) -> &Classifier {
        self.arrivals.classifier()
    }

    /// Returns the classifier, to learn from the dispatcher where fragments went.
    pub fn classifier_mut(&mut self) -> &mut Classifier {
        self.arrivals.classifier_mut()
    }

    /// Returns the functions' output other than packets.
    pub fn effects(&self) -> &Effects {
        &self.pipeline.stages().effects
    }

    /// Returns alerts, events and flow reports, to be taken.
    pub fn effects_mut(&mut self) -> &mut Effects {
        &mut self.pipeline.parts().1.effects
    }

    /// Returns the changes of flows with handles, in order, since this was emptied last.
    pub fn changes(&self) -> &[FlowChange] {
        self.pipeline.flows().changes()
    }

    /// Returns the changes of flows, to be taken.
    pub fn changes_mut(&mut self) -> &mut Vec<FlowChange> {
        self.pipeline.parts().0.changes_mut()
    }

    /// Returns the affinity group of the flow that this packet begins; `None` if it may be at any
    /// node.
    pub fn group_of(&self, packet: &Packet) -> Option<AffinityGroup> {
        self.pipeline.stages().group_of(packet, self.options.affinity_groups?)
    }

    /// Returns the affinity groups if functions assign Multipath TCP connections to them: then all
    /// sub-flows of a connection must be in the group of its first one.
    pub fn connection_groups(&self) -> Option<AffinityGroups> {
        let mut keys = self.stages().iter().map(|stage| stage.shared().affinity_key);
        self.options.affinity_groups.filter(|_| keys.any(|key| key == Some(AffinityKey::Connection)))
    }
}
