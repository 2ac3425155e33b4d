//! Leaving: what becomes of packets, and of their flows, once all functions had them.

use nf::record::RecordHeader;
use nf::{EndReason, Verdict};
use packet::{DropReason, Packet, PacketClass};

use super::{BatchRun, Pipeline};
use crate::queue::Queue;

impl Pipeline {
    /// Settles the group at the front of the queue, in order.
    #[inline(never)]
    pub fn settle_group(&mut self, queue: &mut Queue, verdicts: &[Verdict], run: &mut BatchRun<'_, '_>) {
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
        let (mut count, mut bytes, mut settled_ns) = (0, 0, self.flows.settled_ns);
        for (packet, &verdict) in packets.iter_mut().zip(verdicts) {
            let meta = packet.meta_mut();
            if !verdict.is_forward() || meta.transit.relearn_alias {
                break;
            }
            let at_ns = settled_ns.max(meta.transit.timestamp_ns);
            if !self.flows.table.go_on(meta.transit.flow, at_ns, meta.transit.keep_ms) {
                break;
            }
            settled_ns = at_ns;
            meta.transit.side = meta.transit.side.other();
            count += 1;
            bytes += packet.len() as u64;
        }
        self.flows.settled_ns = settled_ns;
        self.counters.packets_out += count as u64;
        self.counters.bytes_out += bytes;
        count
    }

    /// Settles a packet, and its flow, after all functions; returns true if it passed.
    pub(super) fn settle(&mut self, packet: Packet, verdict: Verdict, run: &mut BatchRun<'_, '_>) -> bool {
        let (record, sequence) = (packet.meta().transit.flow, packet.meta().transit.sequence);
        if packet.meta().transit.relearn_alias {
            self.flows.forget_rules(record); // Of both directions, and even if the packet is dropped.
        }
        self.flows.settled_ns = self.flows.settled_ns.max(packet.meta().transit.timestamp_ns);
        let verdict = match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Forward | Verdict::TurnBack => {
                self.flows.accept(record, &packet, &run.parser, &mut self.stages, run.pool)
            }
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
                    self.flows.note_failed(record);
                }
                // Of a flow none of whose packets passed, nothing is kept.
                let header = self.flows.table.records.header(record);
                if header.has(RecordHeader::FLAG_LIVE) && !header.has(RecordHeader::FLAG_ACCEPTED) {
                    self.flows.end(record, EndReason::Rejected, &mut self.stages, run.pool);
                }
            }
        }
        if !self.answers.is_empty() {
            self.send_answers(sequence, run);
        }
        passed
    }

    /// Packets made in answer to packet `sequence` leave right behind it.
    #[cold]
    fn send_answers(&mut self, sequence: u64, run: &mut BatchRun<'_, '_>) {
        let mut answers = std::mem::take(&mut self.answers);
        for packet in answers.extract_if(.., |packet| packet.meta().transit.sequence == sequence) {
            self.send(packet, run);
        }
        self.answers = answers;
    }

    pub fn send(&mut self, mut packet: Packet, run: &mut BatchRun<'_, '_>) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        let meta = packet.meta_mut();
        meta.transit.side = meta.transit.side.other();
        if let Some(observer) = &mut run.observer {
            observer.sent(&packet);
        }
        run.out.push(packet);
    }

    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason, run: &mut BatchRun<'_, '_>) {
        self.counters.drops[reason.index()] += 1;
        if let Some(observer) = &mut run.observer {
            observer.dropped(&packet, reason);
        }
        run.pool.give(packet);
    }
}
