//! Starting over after a panic of the graph's own code; stages catch those of their functions.

use packet::{DropReason, PacketPool};

use super::Graph;
use crate::pipeline::BatchRun;
use crate::queue::Queue;

/// Packets of a batch before it was processed: each has to be accounted for, whatever happens.
pub(super) struct PacketAccount {
    packets: u64,
    made: u64,
    sent: u64,
    dropped: u64,
    held: u64,
}

impl Graph {
    /// Returns the account at the beginning of a batch of n packets.
    pub(super) fn account(&self, packets: usize) -> PacketAccount {
        PacketAccount {
            packets: packets as u64,
            made: self.pipeline.counters.packets_generated,
            sent: self.pipeline.counters.packets_out + self.classifier.counted().packets_out,
            dropped: self.pipeline.counters.dropped() + self.classifier.counted().dropped(),
            held: self.pipeline.packets_pending() + self.classifier.counted().packets_pending,
        }
    }

    /// The graph's own code panicked, so that nobody knows in which condition its tables are: what
    /// is left of the batch is dropped, all flows end, and it goes on with empty tables. What its
    /// functions are and have counted stays.
    #[cold]
    #[inline(never)]
    pub(super) fn start_over(
        &mut self,
        queue: &mut Queue,
        before: PacketAccount,
        run: &mut BatchRun<'_, '_>,
    ) {
        self.pipeline.abort(run);
        while queue.rest_len() > 0
            && let Some(packet) = queue.next(run.out)
        {
            self.pipeline.drop_packet(packet, DropReason::Internal, run);
        }
        let now = self.account(0);
        let came = before.packets + before.held + (now.made - before.made);
        let went = now.held + (now.sent - before.sent) + (now.dropped - before.dropped);
        // Those that were on their way through are gone, and their buffers with them.
        let lost = came.saturating_sub(went);
        self.pipeline.counters.drops[DropReason::Internal.index()] += lost;
        run.pool.replace_lost(lost as usize);
        self.classifier.forget_refusals();
        self.pipeline.clear_tables(&self.options, run.pool);
    }

    /// Ends all flows, and goes on with empty tables: the caller has
    /// panicked, and what it knew of flows is gone. So are `lost` packets, which did not come to
    /// the graph.
    pub fn start_anew(&mut self, lost: u64, pool: &mut PacketPool) {
        self.pipeline.counters.drops[DropReason::Internal.index()] += lost;
        self.pipeline.clear_tables(&self.options, pool);
        self.pipeline.flows.changes.clear();
    }
}
