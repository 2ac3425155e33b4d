//! Leaving: what becomes of packets, and of their flows, once all functions had them.

use nf::record::RecordHeader;
use nf::stage::StageEnv;
use nf::{Connection, EndReason, Verdict};
use packet::{Direction, DropReason, Packet, PacketClass, PacketPool, Side};

use super::{Chain, Change, Run};
use crate::classes::Victim;
use crate::flows::Taken;
use crate::queue::Queue;

impl Chain {
    /// Settles the group at the front of the queue, in order.
    #[inline(never)]
    pub(super) fn settle_group(&mut self, queue: &mut Queue, verdicts: &[Verdict], run: &mut Run<'_, '_>) {
        let mut settled = 0;
        while settled < verdicts.len() {
            if run.observer.is_none() && self.answers.is_empty() {
                let plain = self.settle_plain(queue.rest(), &verdicts[settled..]);
                queue.pass(plain);
                settled += plain;
            }
            let Some(&verdict) = verdicts.get(settled) else { return };
            if let Some(packet) = queue.next(run.out) {
                self.settle(packet, verdict, run);
            }
            settled += 1;
        }
    }

    /// Settles packets from the front of `packets` as long as nothing but their flows' timers
    /// changes: nearly all are such. Returns how many.
    #[inline(always)]
    fn settle_plain(&mut self, packets: &mut [Packet], verdicts: &[Verdict]) -> usize {
        let (mut count, mut bytes, mut settled_ns) = (0, 0, self.settled_ns);
        for (packet, &verdict) in packets.iter_mut().zip(verdicts) {
            let meta = packet.meta_mut();
            if verdict != Verdict::Forward || meta.transit.relearn_alias {
                break;
            }
            let at_ns = settled_ns.max(meta.transit.timestamp_ns);
            if !self.flows.go_on(meta.transit.flow, at_ns, meta.transit.keep_ms) {
                break;
            }
            settled_ns = at_ns;
            meta.transit.side = meta.transit.side.other();
            count += 1;
            bytes += packet.len() as u64;
        }
        self.settled_ns = settled_ns;
        self.counters.packets_out += count as u64;
        self.counters.bytes_out += bytes;
        count
    }

    /// What becomes of a packet, and of its flow, once all functions had it; whether it passed.
    pub(super) fn settle(&mut self, packet: Packet, verdict: Verdict, run: &mut Run<'_, '_>) -> bool {
        let (record, sequence) = (packet.meta().transit.flow, packet.meta().transit.sequence);
        if packet.meta().transit.relearn_alias {
            self.forget_rules(record); // Of both directions, and even if the packet is dropped.
        }
        self.settled_ns = self.settled_ns.max(packet.meta().transit.timestamp_ns);
        let verdict = match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Forward | Verdict::TurnBack => self.accept(record, &packet, run.pool),
        };
        let passed = verdict.is_ok();
        let is_fragment =
            matches!(packet.meta().class, PacketClass::FirstFragment | PacketClass::LaterFragment);
        match verdict {
            Ok(()) if is_fragment => self.send_fragment(packet, run),
            Ok(()) => self.send(packet, run),
            Err(reason) => {
                if is_fragment {
                    self.drop_rest_of_datagram(&packet, run);
                }
                self.drop_packet(packet, reason, run);
                if reason == DropReason::FunctionPanic {
                    self.note_failed(record);
                }
                // Of a flow none of whose packets passed, nothing is kept.
                let header = self.flows.records.header(record);
                if header.has(RecordHeader::FLAG_LIVE) && !header.has(RecordHeader::FLAG_ACCEPTED) {
                    self.end_flow(record, EndReason::Rejected, run.pool);
                }
            }
        }
        if !self.answers.is_empty() {
            self.send_answers(sequence, run);
        }
        passed
    }

    /// A packet of the flow passed: the flow lives on, and its alias is learned when it is new.
    pub(super) fn accept(
        &mut self,
        record: u32,
        packet: &Packet,
        pool: &mut PacketPool,
    ) -> Result<(), DropReason> {
        let meta = packet.meta();
        let known = self.flows.records.header(record).has(RecordHeader::FLAG_ACCEPTED);
        if known && !meta.transit.relearn_alias {
            self.flows.refresh(record, self.settled_ns, meta.transit.keep_ms);
            return Ok(());
        }
        if !self.learn_alias(packet, !known, pool) {
            return Err(DropReason::AliasConflict);
        }
        self.flows.refresh(record, self.settled_ns, meta.transit.keep_ms);
        if !known {
            self.flows.records.header_mut(record).flags |= RecordHeader::FLAG_ACCEPTED;
            self.flows.watch(record);
        }
        Ok(())
    }

    /// Learns the key that the flow's packets have behind the chain, from one of them; false if
    /// another flow has it.
    fn learn_alias(&mut self, packet: &Packet, begins: bool, pool: &mut PacketPool) -> bool {
        let meta = packet.meta();
        if !self.joining.has_aliases
            || meta.transit.direction != Direction::Original
            || !matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
        {
            return true;
        }
        let (key, reversed) = self.classifier.parser().current_key(packet);
        let record = meta.transit.flow;
        let other = match self.set_alias(record, key, reversed) {
            Ok(()) => return true,
            Err(Taken::Elsewhere) => return false,
            Err(Taken::ByFlow(other)) => other,
        };
        let at_ns = self.settled_ns;
        let may_evict = begins && meta.transit.side == Side::Inside;
        if self.flows.records.header(other).has_expired(at_ns) {
            self.end_in_time(other, pool);
        } else if may_evict && self.gives_way(other) {
            self.end_flow(other, EndReason::Evicted, pool);
        } else {
            return false;
        }
        self.set_alias(record, key, reversed).is_ok()
    }

    /// Whether an outside host opened the flow and nobody answered: then it does not keep its key
    /// from a flow that an inside host begins. Else whoever sends to a NAT's ports first could keep
    /// inside hosts from using them.
    fn gives_way(&self, record: u32) -> bool {
        let header = self.flows.records.header(record);
        let unanswered =
            matches!(header.connection, Connection::NEW | Connection::UNREPLIED | Connection::SYN_SENT);
        unanswered && header.origin() == Side::Outside
    }

    /// A flow's time is over.
    pub(super) fn end_in_time(&mut self, record: u32, pool: &mut PacketPool) {
        let over = self.flows.records.header(record).connection.is_over();
        self.end_flow(record, if over { EndReason::Closed } else { EndReason::Idle }, pool);
    }

    /// Ends a flow for another one, and counts what it was.
    #[cold]
    pub(super) fn evict(&mut self, victim: Victim, pool: &mut PacketPool) {
        self.counters.evicted_by_class[victim.class as usize] += 1;
        self.counters.evicted_over_source += u64::from(victim.over_source);
        self.end_flow(victim.record, EndReason::Evicted, pool);
    }

    pub(super) fn end_flow(&mut self, record: u32, reason: EndReason, pool: &mut PacketPool) {
        self.counters.flows_ended[reason as usize] += 1;
        let mut env =
            StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        for stage in &mut self.stages {
            stage.flow_end(record, reason, self.now_ns, &mut env);
        }
        if let Some(subscribed) = &mut self.subscribed {
            subscribed.forget(record, &mut self.flows.records);
        }
        self.end_second_pass(record, reason, pool);
        if let Some(home) = self.flows.remove(record) {
            self.changes.push(Change::Ended { home });
        }
    }

    /// Packets made in answer to packet `sequence` leave right behind it.
    #[cold]
    fn send_answers(&mut self, sequence: u64, run: &mut Run<'_, '_>) {
        let mut answers = std::mem::take(&mut self.answers);
        for packet in answers.extract_if(.., |packet| packet.meta().transit.sequence == sequence) {
            self.send(packet, run);
        }
        self.answers = answers;
    }

    pub(super) fn send(&mut self, mut packet: Packet, run: &mut Run<'_, '_>) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        let meta = packet.meta_mut();
        meta.transit.side = meta.transit.side.other();
        if let Some(observer) = &mut run.observer {
            observer.sent(&packet);
        }
        run.out.push(packet);
    }

    pub(super) fn drop_packet(&mut self, packet: Packet, reason: DropReason, run: &mut Run<'_, '_>) {
        if !self.is_replaying {
            self.counters.drops[reason.index()] += 1;
        }
        if let Some(observer) = &mut run.observer {
            observer.dropped(&packet, reason);
        }
        run.pool.give(packet);
    }
}
