//! Coming in: parsing and looking up a batch, and packets that go alone.

use packet::{DropReason, Meta, Packet, PacketClass};

use super::Graph;
use crate::cache::FlowCache;
use crate::classifier::LaterFragment;
use crate::flow_table::FlowTable;
use crate::flows::FlowChange;
use crate::fragments::Datagram;
use crate::pipeline::{BatchRun, Pipeline};

/// A record number that no record has.
const NO_RECORD: u32 = u32::MAX;

impl Graph {
    /// A graph without functions is a wire that parses.
    pub(super) fn pass_through(&mut self, batch: &mut Vec<Packet>, run: &mut BatchRun<'_, '_>) {
        self.follow_commands();
        let bytes = self.classifier.classify(batch, |_| {});
        if self.classifier.refuses_none()
            && batch.iter().all(|packet| packet.meta().class != PacketClass::NotIp)
        {
            for packet in batch.iter_mut() {
                packet.meta_mut().transit.side = packet.meta().transit.side.other();
            }
            self.pipeline.counters.packets_out += batch.len() as u64;
            self.pipeline.counters.bytes_out += bytes;
            run.out.append(batch);
            return;
        }
        for packet in batch.drain(..) {
            match self.classifier.take_refusal(&packet) {
                Ok(()) => self.pass(packet, run),
                Err(reason) => self.pipeline.drop_packet(packet, reason, run),
            }
        }
    }

    /// Sends a packet on that no function is to see.
    pub(super) fn pass(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        if packet.meta().class == PacketClass::NotIp {
            self.not_ip(packet, run);
        } else {
            self.pipeline.send(packet, run);
        }
    }

    /// Parses packets, and looks up which flow each probably belongs to. All asks for memory go out
    /// before any is used.
    pub(super) fn look_up(&mut self, batch: &mut [Packet]) {
        self.follow_commands();
        self.classifier.classify(batch, |hash| self.pipeline.flows.table.prefetch_index(hash));
        let found = (&self.pipeline.flows.table, self.pipeline.flows.cache.as_ref());
        let mixed = find_records(found, batch, |(flows, cache), _, meta| {
            flows.prefetch_record(meta.hash, meta.reversed, cache)
        });
        self.groups.mixed = self.is_mixed(mixed, batch);
    }

    /// The same for packets that were parsed before.
    pub(super) fn look_up_parsed(&mut self, batch: &mut [Packet]) {
        batch.iter().for_each(|packet| self.pipeline.flows.table.prefetch_index(packet.meta().hash));
        let found = (&self.pipeline.flows.table, self.pipeline.flows.cache.as_ref());
        let mixed = find_records(found, batch, |(flows, cache), _, meta| {
            flows.prefetch_record(meta.hash, meta.reversed, cache)
        });
        self.groups.mixed = self.is_mixed(mixed, batch);
    }

    /// The same for packets that were parsed before, of flows with these handles, one for each.
    pub(super) fn look_up_handles(&mut self, batch: &mut [Packet], handles: &[u32]) {
        debug_assert_eq!(batch.len(), handles.len());
        self.handles.clear();
        let sequences = batch.iter().map(|packet| packet.meta().transit.sequence);
        self.handles.extend(sequences.zip(handles.iter().copied()));
        let found = (&self.pipeline.flows.table, self.pipeline.flows.cache.as_ref());
        let mixed = find_records(found, batch, |(flows, cache), number, _| {
            flows.prefetch_handle(*handles.get(number)?, cache)
        });
        self.groups.mixed = self.is_mixed(mixed, batch);
    }

    /// Returns true if packets may be of both sides. In a graph with branches, those that they came
    /// with are not known to be theirs.
    fn is_mixed(&self, seen: bool, batch: &[Packet]) -> bool {
        self.pipeline.flows.routing.as_ref().map_or(seen, |routing| routing.is_mixed(batch))
    }

    /// Applies commands to functions: they may pass or drop what they cannot classify.
    #[inline]
    pub(super) fn follow_commands(&mut self) {
        if self.is_commanded {
            self.is_commanded = false;
            self.classifier.set_passes_unjudged(self.pipeline.stages.pass_unjudged());
        }
    }

    /// A packet that may begin a flow, that is not a plain packet of one, or that could not be
    /// parsed.
    #[inline(never)]
    pub(super) fn alone(
        &mut self,
        packet: Packet,
        parsed: Result<(), DropReason>,
        run: &mut BatchRun<'_, '_>,
    ) {
        if let Err(reason) = parsed {
            return self.pipeline.drop_packet(packet, reason, run);
        }
        self.handle_timeout(packet.meta().transit.timestamp_ns, run.pool);
        match packet.meta().class {
            PacketClass::NotIp => return self.not_ip(packet, run),
            PacketClass::Whole => {
                self.walk(packet, run);
            }
            PacketClass::IcmpError => self.icmp_error(packet, run),
            PacketClass::FirstFragment => self.first_fragment(packet, run),
            PacketClass::LaterFragment => self.later_fragment(packet, run),
        }
        if !self.pipeline.flows.failed.is_empty() {
            self.pipeline.flows.end_failed(&mut self.pipeline.stages, run.pool);
        }
    }

    fn not_ip(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        if !self.classifier.passes_not_ip(&packet) {
            return self.pipeline.drop_packet(packet, DropReason::NotIp, run);
        }
        self.pipeline.send_unjudged(packet, run);
    }

    /// An ICMP error goes with the flow that it speaks of; if there is none, it is a flow of its
    /// own.
    fn icmp_error(&mut self, mut packet: Packet, run: &mut BatchRun<'_, '_>) {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        if flows.find(&packet, stages, run.pool).is_none() {
            self.classifier.set_portless_key(&mut packet);
        }
        self.walk(packet, run);
    }

    fn first_fragment(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        let datagram = Datagram::of(&packet);
        let (key, reversed) = (packet.meta().key, packet.meta().reversed);
        let has_handle = self.handle_of(&packet).is_some();
        let passed = self.walk(packet, run).then_some((key, reversed));
        if has_handle {
            self.pipeline.flows.changes.push(FlowChange::FirstFragment {
                datagram,
                passed,
                at_ns: self.pipeline.flows.now_ns,
            });
        }
        let mut waited = std::mem::take(&mut self.waited);
        self.classifier.learn_first(datagram, passed, self.pipeline.flows.now_ns, &mut waited);
        for packet in waited.drain(..) {
            self.later_fragment(packet, run);
        }
        self.waited = waited;
    }

    fn later_fragment(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) {
        // Who says whose it is has given it that flow's key.
        let handle = self.handle_of(&packet);
        if handle.is_some() {
            return self.pipeline.follow(packet, handle, run);
        }
        match self.classifier.place_fragment(packet) {
            LaterFragment::Follows(packet) => self.pipeline.follow(packet, None, run),
            LaterFragment::Held => self.drop_given_up(run.pool),
            LaterFragment::Refused(mut packet, reason) => {
                if reason != DropReason::FragmentOfDropped {
                    self.pipeline.show_lone_fragment(&mut packet, run.pool);
                }
                self.pipeline.drop_packet(packet, reason, run);
            }
        }
    }

    /// Takes one packet through the functions, with its flow found or begun; whether it passed.
    fn walk(&mut self, packet: Packet, run: &mut BatchRun<'_, '_>) -> bool {
        let handle = self.handle_of(&packet);
        self.pipeline.walk(packet, handle, run)
    }
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
