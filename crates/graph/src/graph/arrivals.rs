//! Arriving packets: parsing, looking up a batch, and packets that are groups of their own.

use packet::{DropReason, Meta, Packet, PacketClass, PacketPool};

use super::batch_handles::BatchHandles;
use crate::cache::FlowCache;
use crate::classifier::{Classifier, LaterFragment};
use crate::flow_table::FlowTable;
use crate::flows::{FlowChange, Flows};
use crate::fragments::Datagram;
use crate::pipeline::{BatchRun, Pipeline};
use crate::stages::Stages;

/// A record number that no record has.
const NO_RECORD: u32 = u32::MAX;

/// Parses packets, looks up their flows, and processes single packets.
pub(super) struct Arrivals {
    classifier: Classifier,
    /// True if a command may have changed which functions forward what they cannot classify.
    is_commanded: bool,
    handles: BatchHandles,
    /// Memory that is reused.
    waited: Vec<Packet>,
}

impl Arrivals {
    /// Creates arrivals with this classifier.
    pub fn new(classifier: Classifier) -> Arrivals {
        Arrivals { classifier, is_commanded: false, handles: BatchHandles::default(), waited: Vec::new() }
    }

    /// Returns the classifier.
    #[inline]
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// Returns the classifier, to be changed.
    #[inline]
    pub fn classifier_mut(&mut self) -> &mut Classifier {
        &mut self.classifier
    }

    /// An operator may have commanded a function.
    pub fn note_command(&mut self) {
        self.is_commanded = true;
    }

    /// Applies commands to functions: they may pass or drop what they cannot classify.
    #[inline]
    pub fn follow_commands(&mut self, stages: &Stages) {
        if self.is_commanded {
            self.is_commanded = false;
            self.classifier.set_passes_unjudged(stages.pass_unjudged());
        }
    }

    /// Parses and sends the packets of a graph without functions.
    pub fn pass_through(
        &mut self,
        batch: &mut Vec<Packet>,
        pipeline: &mut Pipeline,
        run: &mut BatchRun<'_, '_>,
    ) {
        self.follow_commands(pipeline.stages());
        let bytes = self.classifier.classify(batch, |_| {});
        if self.classifier.refuses_none()
            && batch.iter().all(|packet| packet.meta().class != PacketClass::NotIp)
        {
            for packet in batch.iter_mut() {
                packet.meta_mut().transit.side = packet.meta().transit.side.other();
            }
            pipeline.exit_mut().count_sent(batch.len() as u64, bytes);
            run.out.append(batch);
            return;
        }
        for packet in batch.drain(..) {
            match self.classifier.take_refusal(&packet) {
                Ok(()) => self.pass(packet, pipeline, run),
                Err(reason) => pipeline.exit_mut().drop_packet(packet, reason, run),
            }
        }
    }

    /// Sends a packet of a graph without functions.
    pub fn pass(&mut self, packet: Packet, pipeline: &mut Pipeline, run: &mut BatchRun<'_, '_>) {
        if packet.meta().class == PacketClass::NotIp {
            self.process_not_ip(packet, pipeline, run);
        } else {
            pipeline.exit_mut().send(packet, run);
        }
    }

    /// Parses packets, and looks up the probable flow of each. Memory is prefetched for all before
    /// any is used. Returns true if packets may be of both sides.
    pub fn look_up(&mut self, batch: &mut [Packet], pipeline: &Pipeline) -> bool {
        self.follow_commands(pipeline.stages());
        self.handles.clear();
        let flows = pipeline.flows();
        self.classifier.classify(batch, |hash| flows.table.prefetch_index(hash));
        look_up_keys(batch, flows)
    }

    /// Looks up packets that were parsed before.
    pub fn look_up_parsed(&mut self, batch: &mut [Packet], flows: &Flows) -> bool {
        self.handles.clear();
        batch.iter().for_each(|packet| flows.table.prefetch_index(packet.meta().hash));
        look_up_keys(batch, flows)
    }

    /// Looks up packets that were parsed before, of flows with these handles, one for each.
    pub fn look_up_handles(&mut self, batch: &mut [Packet], handles: &[u32], flows: &Flows) -> bool {
        debug_assert_eq!(batch.len(), handles.len());
        self.handles.set(batch, handles);
        let found = (&flows.table, flows.cache.as_ref());
        let mixed = find_records(found, batch, |(flows, cache), number, _| {
            flows.prefetch_handle(*handles.get(number)?, cache)
        });
        is_mixed(mixed, batch, flows)
    }

    /// Processes a packet that may begin a flow, that is not a whole packet of one, or that could
    /// not be parsed.
    #[inline(never)]
    pub fn process_single(
        &mut self,
        packet: Packet,
        parsed: Result<(), DropReason>,
        pipeline: &mut Pipeline,
        run: &mut BatchRun<'_, '_>,
    ) {
        if let Err(reason) = parsed {
            return pipeline.exit_mut().drop_packet(packet, reason, run);
        }
        self.handle_timeout(packet.meta().transit.timestamp_ns, pipeline, run.pool);
        match packet.meta().class {
            PacketClass::NotIp => return self.process_not_ip(packet, pipeline, run),
            PacketClass::Whole => {
                let handle = self.handles.of(&packet);
                pipeline.walk(packet, handle, run);
            }
            PacketClass::IcmpError => self.process_icmp_error(packet, pipeline, run),
            PacketClass::FirstFragment => self.process_first_fragment(packet, pipeline, run),
            PacketClass::LaterFragment => self.process_later_fragment(packet, pipeline, run),
        }
        let (flows, stages) = pipeline.parts();
        if flows.has_failed() {
            flows.end_failed(stages, run.pool);
        }
    }

    fn process_not_ip(&mut self, packet: Packet, pipeline: &mut Pipeline, run: &mut BatchRun<'_, '_>) {
        if !self.classifier.passes_not_ip(&packet) {
            return pipeline.exit_mut().drop_packet(packet, DropReason::NotIp, run);
        }
        pipeline.traversal().send_unjudged(packet, run);
    }

    /// Processes an ICMP error as a packet of the flow that it quotes; if there is none, as a flow
    /// of its own.
    fn process_icmp_error(
        &mut self,
        mut packet: Packet,
        pipeline: &mut Pipeline,
        run: &mut BatchRun<'_, '_>,
    ) {
        let (flows, stages) = pipeline.parts();
        if flows.find(&packet, stages, run.pool).is_none() {
            self.classifier.set_portless_key(&mut packet);
        }
        let handle = self.handles.of(&packet);
        pipeline.walk(packet, handle, run);
    }

    fn process_first_fragment(
        &mut self,
        packet: Packet,
        pipeline: &mut Pipeline,
        run: &mut BatchRun<'_, '_>,
    ) {
        let datagram = Datagram::of(&packet);
        let (key, reversed) = (packet.meta().key, packet.meta().reversed);
        let handle = self.handles.of(&packet);
        let passed = pipeline.walk(packet, handle, run).then_some((key, reversed));
        let (flows, _) = pipeline.parts();
        let at_ns = flows.clock.now_ns();
        if handle.is_some() {
            flows.changes_mut().push(FlowChange::FirstFragment { datagram, passed, at_ns });
        }
        let mut waited = std::mem::take(&mut self.waited);
        self.classifier.learn_first(datagram, passed, at_ns, &mut waited);
        for packet in waited.drain(..) {
            self.process_later_fragment(packet, pipeline, run);
        }
        self.waited = waited;
    }

    fn process_later_fragment(
        &mut self,
        packet: Packet,
        pipeline: &mut Pipeline,
        run: &mut BatchRun<'_, '_>,
    ) {
        // With a handle, the packet has its flow's key already.
        let handle = self.handles.of(&packet);
        if handle.is_some() {
            return pipeline.follow(packet, handle, run);
        }
        match self.classifier.place_fragment(packet) {
            LaterFragment::Follows(packet) => pipeline.follow(packet, None, run),
            LaterFragment::Held => self.drop_given_up(pipeline, run.pool),
            LaterFragment::Refused(mut packet, reason) => {
                if reason != DropReason::FragmentOfDropped {
                    pipeline.traversal().show_lone_fragment(&mut packet, run.pool);
                }
                pipeline.exit_mut().drop_packet(packet, reason, run);
            }
        }
    }

    /// Advances the time to `now_ns`: expired flows and fragments are cleared.
    pub fn handle_timeout(&mut self, now_ns: u64, pipeline: &mut Pipeline, pool: &mut PacketPool) {
        pipeline.handle_timeout(now_ns, pool);
        self.classifier.give_up_fragments(pipeline.flows().clock.now_ns());
        self.drop_given_up(pipeline, pool);
    }

    /// Drops fragments without their first one. Functions that want them see them before.
    fn drop_given_up(&mut self, pipeline: &mut Pipeline, pool: &mut PacketPool) {
        for (packet, _) in self.classifier.given_up() {
            pipeline.traversal().show_lone_fragment(packet, pool);
        }
        self.classifier.drop_given_up(pool);
    }
}

/// Looks up parsed packets by their keys. Returns true if packets may be of both sides.
fn look_up_keys(batch: &mut [Packet], flows: &Flows) -> bool {
    let found = (&flows.table, flows.cache.as_ref());
    let mixed = find_records(found, batch, |(flows, cache), _, meta| {
        flows.prefetch_record(meta.hash, meta.reversed, cache)
    });
    is_mixed(mixed, batch, flows)
}

/// Returns true if packets may be of both sides. In a graph with branches, the sides seen at ports
/// may not be those of their flows.
fn is_mixed(seen: bool, batch: &[Packet], flows: &Flows) -> bool {
    flows.routing.as_ref().map_or(seen, |routing| routing.is_mixed(batch))
}

/// Stores each packet's probable record, which `record` looks up by the packet's number and
/// metadata. Returns true if packets came from both sides.
// Not inlined, so that the compiler knows that stores to packets do not change `flows`.
#[inline(never)]
fn find_records(
    flows: (&FlowTable, Option<&FlowCache>),
    batch: &mut [Packet],
    record: impl Fn((&FlowTable, Option<&FlowCache>), usize, &Meta) -> Option<u32>,
) -> bool {
    let mut sides = [false; 2];
    for (number, packet) in batch.iter_mut().enumerate() {
        let meta = packet.meta_mut();
        meta.transit.flow = record(flows, number, meta).unwrap_or(NO_RECORD);
        sides[meta.transit.side as usize] = true;
    }
    sides == [true; 2]
}
