//! The end of packets' way: they leave or are dropped, and their flows are updated.

use nf::record::RecordHeader;
use nf::{EndReason, Verdict};
use packet::{DropReason, Packet, PacketClass};

use super::traversal::Traversal;
use super::{BatchRun, Pipeline};
use crate::queue::Queue;

impl Pipeline {
    /// Settles the group at the front of the queue, in order.
    #[inline(never)]
    pub fn settle_group(&mut self, queue: &mut Queue, verdicts: &[Verdict], run: &mut BatchRun<'_, '_>) {
        let mut settled = 0;
        while settled < verdicts.len() {
            if run.observer.is_none() && !self.traversal.exit.has_answers() {
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

    /// Settles packets from the front of `packets` as long as only their flows' timers change, as
    /// for nearly all packets. Returns their number.
    #[inline(always)]
    fn settle_plain(&mut self, packets: &mut [Packet], verdicts: &[Verdict]) -> usize {
        let Traversal { flows, exit, .. } = &mut self.traversal;
        let (mut count, mut bytes, mut settled_ns) = (0, 0, flows.clock.settled_ns());
        for (packet, &verdict) in packets.iter_mut().zip(verdicts) {
            let meta = packet.meta_mut();
            if !verdict.is_forward() || meta.transit.relearn_alias {
                break;
            }
            let at_ns = settled_ns.max(meta.transit.timestamp_ns);
            if !flows.table.go_on(meta.transit.flow, at_ns, meta.transit.keep_ms) {
                break;
            }
            settled_ns = at_ns;
            meta.transit.side = meta.transit.side.other();
            count += 1;
            bytes += packet.len() as u64;
        }
        flows.clock.settle(settled_ns);
        exit.count_sent(count as u64, bytes);
        count
    }

    /// Settles a packet, and its flow, after all functions; returns true if it passed.
    pub(super) fn settle(&mut self, packet: Packet, verdict: Verdict, run: &mut BatchRun<'_, '_>) -> bool {
        let Traversal { flows, stages, .. } = &mut self.traversal;
        let (record, sequence) = (packet.meta().transit.flow, packet.meta().transit.sequence);
        if packet.meta().transit.relearn_alias {
            flows.forget_rules(record); // Of both directions, and even if the packet is dropped.
        }
        flows.clock.settle(packet.meta().transit.timestamp_ns);
        let verdict = match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Forward | Verdict::TurnBack => {
                flows.accept(record, &packet, &run.parser, stages, run.pool)
            }
        };
        let passed = verdict.is_ok();
        let is_fragment =
            matches!(packet.meta().class, PacketClass::FirstFragment | PacketClass::LaterFragment);
        match verdict {
            Ok(()) if is_fragment && let Some(mut held) = self.traversal.held_fragments() => {
                held.send(packet, run);
            }
            Ok(()) => self.traversal.exit.send(packet, run),
            Err(reason) => {
                if is_fragment && let Some(mut held) = self.traversal.held_fragments() {
                    held.drop_rest(&packet, run);
                }
                let Traversal { flows, stages, exit, .. } = &mut self.traversal;
                exit.drop_packet(packet, reason, run);
                if reason == DropReason::FunctionPanic {
                    flows.note_failed(record);
                }
                // A flow without accepted packets is not kept.
                let header = flows.table.records.header(record);
                if header.has(RecordHeader::FLAG_LIVE) && !header.has(RecordHeader::FLAG_ACCEPTED) {
                    flows.end(record, EndReason::Rejected, stages, run.pool);
                }
            }
        }
        if self.traversal.exit.has_answers() {
            self.traversal.exit.send_answers(sequence, run);
        }
        passed
    }
}
