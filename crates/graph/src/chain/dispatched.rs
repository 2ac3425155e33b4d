//! Packets of flows that somebody else numbers, who divides them among units: their numbers are
//! *homes*, by which the chain finds the flows. What that one must know of flows comes out as
//! [`Change`]s.

use std::sync::Arc;

use nf::EndReason;
use packet::{DropReason, FlowKey, Packet, PacketClass, PacketPool};

use super::Chain;
use crate::classifier::{Classifier, FlowLookup};
use crate::flow_table::Ledger;
use crate::flows::Change;
use crate::fragments::Datagram;
use crate::pipeline::{Pipeline, Run};

impl Chain {
    /// Which flow each packet belongs to.
    pub fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// The same, to be changed.
    pub fn classifier_mut(&mut self) -> &mut Classifier {
        &mut self.classifier
    }

    /// Parses and numbers packets, in the order in which they came: what [`Chain::process`] begins
    /// with. `prefetch` hears of each one's hash. Each packet is then given to
    /// [`Chain::process_admitted`] or [`Chain::process_aside`].
    #[inline]
    pub fn admit(&mut self, batch: &mut [Packet], prefetch: impl Fn(u64)) {
        self.follow_commands();
        self.classifier.classify(batch, prefetch);
    }

    /// Whether an admitted packet could not be parsed; to be asked in order.
    pub fn is_refused(&self, packet: &Packet) -> bool {
        self.classifier.is_refused(packet)
    }

    /// Which flow an admitted packet goes with. A later fragment has that flow's key from now on.
    pub fn way(&mut self, packet: &mut Packet, pool: &mut PacketPool) -> FlowLookup {
        let meta = packet.meta();
        if meta.class == PacketClass::LaterFragment {
            self.pipeline.flows.now_ns = self.pipeline.flows.now_ns.max(meta.transit.timestamp_ns);
            self.classifier.handle_timeout(self.pipeline.flows.now_ns, pool);
            self.pipeline.expire_datagrams(pool);
        }
        self.classifier.flow_of(packet, pool)
    }

    /// Processes admitted packets in the order in which they came. `homes` has the homes of their
    /// flows, one for each.
    pub fn process_admitted(
        &mut self,
        batch: &mut Vec<Packet>,
        homes: &[u32],
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        if self.pipeline.stages.all.is_empty() {
            let mut run = Run::new(out, pool, self.classifier.parser());
            return batch.drain(..).for_each(|packet| self.pass(packet, &mut run));
        }
        self.look_up_homes(batch, homes);
        let mut run = Run::new(out, pool, self.classifier.parser());
        self.run(batch, &mut run);
    }

    /// Processes packets that this chain admitted, or another one with the same seed, in the order
    /// in which they come. Whose they are, their keys say; none could not be parsed.
    pub fn process_parsed(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        if self.pipeline.stages.all.is_empty() {
            let mut run = Run::new(out, pool, self.classifier.parser());
            return batch.drain(..).for_each(|packet| self.pass(packet, &mut run));
        }
        self.homes.clear();
        self.look_up_parsed(batch);
        let mut run = Run::new(out, pool, self.classifier.parser());
        self.run(batch, &mut run);
    }

    /// This chain has a part of the flows: which aliases are its, it tells here, where it also
    /// hears which are others'. It has no flows yet.
    pub fn tell_aliases(&mut self, ledger: Arc<dyn Ledger>) {
        self.pipeline.flows.table.ledger = Some(ledger);
    }

    /// The hash of what all fragments of this one's datagram have in common.
    pub fn datagram_hash(&self, packet: &Packet) -> u64 {
        self.classifier.datagram_hash(packet)
    }

    /// See [`Classifier::learn_first`].
    pub fn learn_first(
        &mut self,
        datagram: Datagram,
        passed: Option<(FlowKey, bool)>,
        at_ns: u64,
        waited: &mut Vec<Packet>,
    ) {
        self.classifier.learn_first(datagram, passed, at_ns, waited);
    }

    /// See [`Classifier::learn_elsewhere`].
    pub fn learn_elsewhere(&mut self, packet: &Packet, waited: &mut Vec<Packet>) {
        self.classifier.learn_elsewhere(packet, waited);
    }

    /// Processes an admitted packet that goes with no flow that is known: one that could not be
    /// parsed, is not IP, or is a fragment whose first one has not come or was dropped. In their
    /// order, and behind all packets that came before.
    pub fn process_aside(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let parsed = self.classifier.take_refusal(&packet);
        let mut run = Run::new(out, pool, self.classifier.parser());
        if self.pipeline.stages.all.is_empty() && parsed.is_ok() {
            return self.pass(packet, &mut run);
        }
        self.alone(packet, parsed, &mut run);
    }

    /// Drops an admitted packet; with a first fragment, those that wait for it.
    pub fn drop_admitted(&mut self, packet: Packet, reason: DropReason, pool: &mut PacketPool) {
        self.classifier.discard(packet, reason, pool);
    }

    /// When flows are to end, or datagrams in fragments to be given up.
    pub fn due_ns(&self) -> u64 {
        self.pipeline.next_timeout_ns()
    }

    /// What has become of flows that have homes, in order, since this was emptied last.
    pub fn changes(&self) -> &[Change] {
        &self.pipeline.flows.changes
    }

    /// The same, to be emptied.
    pub fn changes_mut(&mut self) -> &mut Vec<Change> {
        &mut self.pipeline.flows.changes
    }

    /// The flows that have this home.
    pub fn flows_of(&self, home: u32) -> impl Iterator<Item = u32> + '_ {
        self.pipeline.flows.table.homes.records(home)
    }

    /// A flow has this home; it has none yet.
    pub fn set_home(&mut self, record: u32, home: u32) {
        self.pipeline.flows.table.homes.add(home, record);
    }

    /// The flows that had one home have another one, which no flow has.
    pub fn rehome(&mut self, home: u32, new: u32) {
        let records: Vec<u32> = self.flows_of(home).collect();
        for record in records {
            self.pipeline.flows.table.homes.remove(record);
            self.pipeline.flows.table.homes.add(new, record);
        }
    }

    /// Ends the flows that have this home.
    pub fn end_flows_of(&mut self, home: u32, pool: &mut PacketPool) {
        let newest = |chain: &Chain| chain.flows_of(home).next();
        while let Some(record) = newest(self) {
            let Pipeline { flows, stages, .. } = &mut self.pipeline;
            flows.end(record, EndReason::Evicted, stages, pool);
        }
    }

    /// Ends the flows of this home whose time is over. Time alone clears them away a little later,
    /// and until then nobody finds them.
    pub fn end_expired_of(&mut self, home: u32, now_ns: u64, pool: &mut PacketPool) {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        flows.now_ns = flows.now_ns.max(now_ns);
        let is_over = |&record: &u32| flows.table.records.header(record).has_expired(flows.now_ns);
        let over: Vec<u32> = flows.table.homes.records(home).filter(is_over).collect();
        over.into_iter().for_each(|record| flows.end_in_time(record, stages, pool));
    }

    /// The home of the flow that this packet begins, if the chain was told.
    pub(super) fn home_of(&self, packet: &Packet) -> Option<u32> {
        let sequence = packet.meta().transit.sequence;
        self.homes.iter().find(|&&(of, _)| of == sequence).map(|&(_, home)| home)
    }
}
