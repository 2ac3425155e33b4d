//! The calls for a dispatcher, which numbers flows and divides them among units: its numbers are
//! the flows' *handles*, by which the graph finds them. It learns from [`FlowChange`]s what became
//! of its flows. The crate's head shows the sequence.

use std::sync::Arc;

use nf::{AffinityGroup, AffinityGroups, AffinityKey, EndReason};
use packet::{DropReason, FlowKey, Packet, PacketClass, PacketPool};

use super::Graph;
use crate::classifier::{Classifier, FlowLookup};
use crate::flow_table::Ledger;
use crate::flows::FlowChange;
use crate::pipeline::{BatchRun, Pipeline};
use crate::places::{Places, PortPlace};

impl Graph {
    /// Returns the classifier.
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// Returns the classifier, which must hear from the dispatcher where fragments went.
    pub fn classifier_mut(&mut self) -> &mut Classifier {
        &mut self.classifier
    }

    /// Parses and numbers packets in order of arrival, and calls `prefetch` with the hash of each
    /// one's flow key. Returns nothing about them: [`Classifier::is_refused`] and
    /// [`Graph::flow_of`] answer for each packet, in order.
    #[inline]
    pub fn classify(&mut self, batch: &mut [Packet], prefetch: impl Fn(u64)) {
        self.follow_commands();
        self.classifier.classify(batch, prefetch);
    }

    /// Parses a packet that a dispatcher on another machine classified. `key`: the key of its flow,
    /// and true if the packet goes from its second end to its first, if the packet does not show
    /// them.
    ///
    /// # Errors
    /// If it cannot be parsed: it is not what the dispatcher sent.
    pub fn parse_dispatched(
        &self,
        packet: &mut Packet,
        key: Option<(FlowKey, bool)>,
    ) -> Result<(), DropReason> {
        let meta = packet.meta_mut();
        meta.key.place = self.pipeline.flows.places.of_port(meta.transit.ingress).unwrap_or_default();
        self.classifier.parser().parse(packet)?;
        if let Some(key) = key {
            self.classifier.set_key(packet, key);
        }
        Ok(())
    }

    /// Returns the affinity group of the flow that this packet begins; `None` if it may be at any
    /// node.
    pub fn group_of(&self, packet: &Packet) -> Option<AffinityGroup> {
        self.pipeline.stages.group_of(packet, self.options.affinity_groups?)
    }

    /// Returns the affinity groups if functions deal Multipath TCP connections to them: then all
    /// sub-flows of a connection must be in the group of its first one.
    pub fn connection_groups(&self) -> Option<AffinityGroups> {
        let mut keys = self.pipeline.stages.all.iter().map(|stage| stage.shared().affinity_key);
        self.options.affinity_groups.filter(|_| keys.any(|key| key == Some(AffinityKey::Connection)))
    }

    /// Finds the flow of a classified packet. A later fragment gets its flow's key.
    pub fn flow_of(&mut self, packet: &mut Packet, pool: &mut PacketPool) -> FlowLookup {
        let meta = packet.meta();
        if meta.class == PacketClass::LaterFragment {
            let flows = &mut self.pipeline.flows;
            flows.now_ns = flows.now_ns.max(meta.transit.timestamp_ns);
            self.classifier.handle_timeout(flows.now_ns, pool);
            self.pipeline.expire_datagrams(pool);
        }
        self.classifier.flow_of(packet, pool)
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
        if self.is_wire() {
            let mut run = BatchRun::new(out, pool, self.classifier.parser());
            return batch.drain(..).for_each(|packet| self.pass(packet, &mut run));
        }
        self.look_up_handles(batch, handles);
        let mut run = BatchRun::new(out, pool, self.classifier.parser());
        self.run(batch, &mut run);
    }

    /// Processes packets that this graph classified, or another one with the same seed, in order of
    /// arrival. Their keys name their flows; none was refused.
    pub fn process_classified(
        &mut self,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        if self.is_wire() {
            let mut run = BatchRun::new(out, pool, self.classifier.parser());
            return batch.drain(..).for_each(|packet| self.pass(packet, &mut run));
        }
        self.handles.clear();
        self.look_up_parsed(batch);
        let mut run = BatchRun::new(out, pool, self.classifier.parser());
        self.run(batch, &mut run);
    }

    /// Claims aliases in this ledger, which graphs with other shares of the flows use, too. The
    /// graph must have no flows yet.
    pub fn tell_aliases(&mut self, ledger: Arc<dyn Ledger>) {
        self.pipeline.flows.table.ledger = Some(ledger);
    }

    /// Sets the places of ports. A flow's alias is a key of the place of the port that its packets
    /// leave by: there its replies arrive. Without places, all ports have the same. The graph must
    /// have no flows yet.
    pub fn set_places(&mut self, places: &[PortPlace]) {
        self.pipeline.flows.places = Places::new(places);
    }

    /// Returns a flow's alias as a unit sends it to a dispatcher on another machine.
    pub fn alias_to_send(&self, alias: FlowKey) -> FlowKey {
        self.pipeline.flows.places.alias_to_send(alias)
    }

    /// Returns the alias that a unit on another machine sent of the flow with this key, and its
    /// hash.
    pub fn sent_alias(&self, alias: FlowKey, key: &FlowKey) -> (FlowKey, u64) {
        let alias = self.pipeline.flows.places.sent_alias(alias, key);
        (alias, self.classifier.hash_of(&alias))
    }

    /// Processes a classified packet of no known flow: one that could not be parsed or is not IP,
    /// or a fragment whose first one was dropped or has not arrived. Packets must come in order,
    /// after all packets that arrived before them.
    pub fn process_without_flow(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let parsed = self.classifier.take_refusal(&packet);
        let mut run = BatchRun::new(out, pool, self.classifier.parser());
        if self.is_wire() && parsed.is_ok() {
            return self.pass(packet, &mut run);
        }
        self.alone(packet, parsed, &mut run);
    }

    /// Returns when a flow or a datagram in fragments expires next.
    pub fn next_timeout_ns(&self) -> u64 {
        self.pipeline.next_timeout_ns()
    }

    /// Returns the changes of flows that have handles, in order, since this was emptied last.
    pub fn changes(&self) -> &[FlowChange] {
        &self.pipeline.flows.changes
    }

    /// Returns the changes of flows, to be taken.
    pub fn changes_mut(&mut self) -> &mut Vec<FlowChange> {
        &mut self.pipeline.flows.changes
    }

    /// Returns the records of the flows with this handle.
    pub fn flows_of(&self, handle: u32) -> impl Iterator<Item = u32> + '_ {
        self.pipeline.flows.table.handles.records(handle)
    }

    /// Gives a flow, which has no handle yet, this one.
    pub fn set_handle(&mut self, record: u32, handle: u32) {
        self.pipeline.flows.table.handles.add(handle, record);
    }

    /// Gives the flows with one handle another one, which no flow has.
    pub fn change_handle(&mut self, handle: u32, new: u32) {
        let records: Vec<u32> = self.flows_of(handle).collect();
        for record in records {
            self.pipeline.flows.table.handles.remove(record);
            self.pipeline.flows.table.handles.add(new, record);
        }
    }

    /// Ends the flows with this handle.
    pub fn end_flows_of(&mut self, handle: u32, pool: &mut PacketPool) {
        let newest = |graph: &Graph| graph.flows_of(handle).next();
        while let Some(record) = newest(self) {
            let Pipeline { flows, stages, .. } = &mut self.pipeline;
            flows.end(record, EndReason::Evicted, stages, pool);
        }
    }

    /// Ends the expired flows with this handle. [`Graph::handle_timeout`] clears them a little
    /// later; until then no lookup finds them.
    pub fn end_expired_of(&mut self, handle: u32, now_ns: u64, pool: &mut PacketPool) {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        flows.now_ns = flows.now_ns.max(now_ns);
        let is_over = |&record: &u32| flows.table.records.header(record).has_expired(flows.now_ns);
        let over: Vec<u32> = flows.table.handles.records(handle).filter(is_over).collect();
        over.into_iter().for_each(|record| flows.end_in_time(record, stages, pool));
    }

    /// Returns the handle of the flow that this packet begins, if the caller passed one.
    pub(super) fn handle_of(&self, packet: &Packet) -> Option<u32> {
        let sequence = packet.meta().transit.sequence;
        self.handles.iter().find(|&&(of, _)| of == sequence).map(|&(_, handle)| handle)
    }
}
