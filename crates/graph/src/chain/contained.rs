//! Containing panics: of functions, whose stages catch them, and of the chain's own code.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::EndReason;
use nf::record::{RecordHeader, RecordLayout};
use nf::stage::StageEnv;
use packet::{DropReason, PacketPool};

use super::subscribed::Subscribed;
use super::{Chain, Change, Run};
use crate::flows::Flows;
use crate::queue::Queue;

/// Packets of a batch before it was processed: each has to be accounted for, whatever happens.
pub(super) struct Account {
    packets: u64,
    made: u64,
    sent: u64,
    dropped: u64,
    held: u64,
}

impl Chain {
    /// What a batch of so many packets begins with.
    pub(super) fn account(&self, packets: usize) -> Account {
        Account {
            packets: packets as u64,
            made: self.counters.packets_made,
            sent: self.counters.packets_out + self.classifier.counted().packets_out,
            dropped: self.counters.dropped() + self.classifier.counted().dropped(),
            held: self.packets_held(),
        }
    }

    /// A function panicked at a packet of this flow: it ends, once the packets of its group are
    /// through.
    #[cold]
    pub(super) fn note_failed(&mut self, record: u32) {
        let main = self.flows.passes.get(record).map_or(record, |pass| pass.main);
        if !self.failed.contains(&main) {
            self.failed.push(main);
        }
    }

    /// Ends the flows at whose packets functions panicked.
    #[cold]
    pub(super) fn end_failed(&mut self, pool: &mut PacketPool) {
        let mut failed = std::mem::take(&mut self.failed);
        for record in failed.drain(..) {
            if self.flows.is_live(record) {
                self.end_flow(record, EndReason::Rejected, pool);
            }
        }
        self.failed = failed;
    }

    /// The chain's own code panicked, so that nobody knows in which condition its tables are: what
    /// is left of the batch is dropped, all flows end, and it goes on with empty tables. What its
    /// functions are and have counted stays.
    #[cold]
    #[inline(never)]
    pub(super) fn start_over(&mut self, queue: &mut Queue, before: Account, run: &mut Run<'_, '_>) {
        self.counters.restarts += 1;
        run.is_alone = false;
        run.observer = None;
        self.is_replaying = false;
        self.effects.order_reports(false);
        self.effects.put_reports_in_order();
        for stage in &mut self.stages {
            stage.close();
        }
        self.effects.generated.drain(..).for_each(|made| run.pool.give(made.packet));
        for packet in std::mem::take(&mut self.answers) {
            self.drop_packet(packet, DropReason::Internal, run);
        }
        while queue.rest_len() > 0
            && let Some(packet) = queue.next(run.out)
        {
            self.drop_packet(packet, DropReason::Internal, run);
        }
        let now = self.account(0);
        let came = before.packets + before.held + (now.made - before.made);
        let went = now.held + (now.sent - before.sent) + (now.dropped - before.dropped);
        // Those that were on their way through are gone, and their buffers with them.
        let lost = came.saturating_sub(went);
        self.counters.drops[DropReason::Internal.index()] += lost;
        run.pool.replace_lost(lost as usize);
        self.classifier.forget_refusals();
        self.turned.clear();
        self.failed.clear();
        self.clear_tables(run.pool);
    }

    /// Ends all flows, and goes on with empty tables: whoever gives packets to the chain has
    /// panicked, and what it knew of flows is gone. So are `lost` packets, which did not come to
    /// the chain.
    pub fn start_anew(&mut self, lost: u64, pool: &mut PacketPool) {
        self.counters.drops[DropReason::Internal.index()] += lost;
        self.clear_tables(pool);
        self.changes.clear();
    }

    /// Ends all flows, as far as that can be done, and makes the tables anew.
    fn clear_tables(&mut self, pool: &mut PacketPool) {
        let live: Vec<u32> = self.flows.live().collect();
        for &record in &live {
            if let Some(home) = self.flows.homes.of(record) {
                self.changes.push(Change::Ended { home });
            }
            let second = self.flows.passes.get(record).map(|pass| pass.second);
            for record in [Some(record), second].into_iter().flatten() {
                let mut env =
                    StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
                for stage in &mut self.stages {
                    stage.flow_end(record, EndReason::Evicted, self.now_ns, &mut env);
                }
            }
            // The index may be what failed: then others keep what they have heard of its aliases
            // until those are claimed anew.
            let _ = catch_unwind(AssertUnwindSafe(|| self.flows.drop_alias(record)));
        }
        self.counters.flows_ended[EndReason::Evicted as usize] += live.len() as u64;
        self.drop_held(pool);
        let moved = self.fragments_moved();
        let (streams, seed) = (self.options.streams, self.options.seed);
        if let Ok(subscribed) = Subscribed::new(&self.stages, &mut RecordLayout::default(), streams, seed) {
            self.subscribed = subscribed;
            self.counters.fragments_moved = moved;
        }
        let capacity = self.flows.records.capacity();
        let shares = (&self.options.shares, self.options.seed);
        let cache = self.cache.as_ref();
        self.cache = cache.and_then(|cache| cache.renewed(&self.stages, &self.layout, capacity));
        match Flows::new(capacity, self.layout.clone(), self.classifier.parser().hasher, shares) {
            Ok(mut flows) => {
                flows.ledger = self.flows.ledger.take();
                self.flows = flows;
            }
            // Without memory for others the records stay, and are none of any flow.
            Err(_) => live.iter().for_each(|&record| {
                if self.flows.records.header(record).has(RecordHeader::FLAG_LIVE) {
                    let removed = catch_unwind(AssertUnwindSafe(|| self.flows.remove(record)));
                    drop(removed);
                }
            }),
        }
    }
}
