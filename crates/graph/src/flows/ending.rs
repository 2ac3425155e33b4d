//! Ends of flows: expired, evicted, failed, or at the end of a run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::EndReason;
use nf::record::RecordLayout;
use nf::stage::StageEnv;
use packet::PacketPool;

use super::{FlowChange, Flows};
use crate::Options;
use crate::flow_table::Victim;
use crate::reassembly::Reassembly;
use crate::stages::Stages;

impl Flows {
    /// Ends an expired flow.
    pub fn end_in_time(&mut self, record: u32, stages: &mut Stages, pool: &mut PacketPool) {
        let over = self.table.records.header(record).connection.is_over();
        self.end(record, if over { EndReason::Closed } else { EndReason::Idle }, stages, pool);
    }

    /// Ends the expired flows.
    pub fn expire(&mut self, stages: &mut Stages, pool: &mut PacketPool) {
        let mut due = std::mem::take(&mut self.due);
        self.table.expired(self.clock.now_ns(), &mut due);
        for &record in &due {
            self.end_in_time(record, stages, pool);
        }
        self.due = due;
    }

    /// Ends all flows, unless there is no room for the output of their ends. Returns false if some
    /// are left.
    pub fn finish(&mut self, stages: &mut Stages, pool: &mut PacketPool) -> bool {
        let mut live = std::mem::take(&mut self.due);
        live.clear();
        live.extend(self.table.live());
        let mut ended = 0;
        for &record in &live {
            if stages.effects.is_half_full() {
                break;
            }
            self.end(record, EndReason::Shutdown, stages, pool);
            ended += 1;
        }
        let all = ended == live.len();
        self.due = live;
        all
    }

    /// Evicts a flow for another one.
    #[cold]
    pub(super) fn evict(&mut self, victim: Victim, stages: &mut Stages, pool: &mut PacketPool) {
        self.counters.evicted_by_class[victim.class as usize] += 1;
        self.counters.evicted_over_source += u64::from(victim.over_source);
        self.end(victim.record, EndReason::Evicted, stages, pool);
    }

    /// Ends a flow.
    pub fn end(&mut self, record: u32, reason: EndReason, stages: &mut Stages, pool: &mut PacketPool) {
        self.counters.ended[reason as usize] += 1;
        let started = self.started(record);
        self.end_at(|number| started.has(number), (record, reason), stages, pool);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.forget(record, &mut self.table.records);
        }
        self.end_second_pass(record, reason, stages, pool);
        if let Some(handle) = self.table.remove(record) {
            self.changes.push(FlowChange::Ended { handle, effects: stages.effects.mark() });
        }
    }

    /// Notifies the functions with these numbers of a flow's end.
    pub(super) fn end_at(
        &mut self,
        hears: impl Fn(usize) -> bool,
        (record, reason): (u32, EndReason),
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) {
        let Stages { all, effects, .. } = stages;
        let reports = effects.begin_flow_end();
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        for (number, stage) in all.iter_mut().enumerate() {
            if hears(number) {
                stage.flow_end(record, reason, self.clock.now_ns(), &mut env);
            }
        }
        effects.complete_flow_end(reports);
    }

    /// Ends a flow once the packets of its group are through: a function panicked at one of its
    /// packets.
    #[cold]
    pub fn note_failed(&mut self, record: u32) {
        let main = self.table.passes.get(record).map_or(record, |pass| pass.main);
        if !self.failed.contains(&main) {
            self.failed.push(main);
        }
    }

    /// Returns true if flows end once their group is through.
    #[inline]
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Forgets the flows that would end.
    pub fn forget_failed(&mut self) {
        self.failed.clear();
    }

    /// Ends the flows with packets at which functions panicked.
    #[cold]
    pub fn end_failed(&mut self, stages: &mut Stages, pool: &mut PacketPool) {
        let mut failed = std::mem::take(&mut self.failed);
        for record in failed.drain(..) {
            if self.table.is_live(record) {
                self.end(record, EndReason::Rejected, stages, pool);
            }
        }
        self.failed = failed;
    }

    /// Ends all flows, as far as possible, and empties the tables. Returns true if the memory of
    /// streams is new, too.
    pub fn clear(&mut self, stages: &mut Stages, options: &Options, pool: &mut PacketPool) -> bool {
        let live: Vec<u32> = self.table.live().collect();
        for &record in &live {
            let second = self.table.passes.get(record).map(|pass| pass.second);
            for record in [Some(record), second].into_iter().flatten() {
                let started = self.started(record);
                self.end_at(|number| started.has(number), (record, EndReason::Evicted), stages, pool);
            }
            if let Some(handle) = self.table.handles.of(record) {
                self.changes.push(FlowChange::Ended { handle, effects: stages.effects.mark() });
            }
            // The index may be at fault. Then other graphs keep its aliases until they are claimed
            // again.
            let _ = catch_unwind(AssertUnwindSafe(|| self.table.drop_alias(record)));
        }
        self.counters.ended[EndReason::Evicted as usize] += live.len() as u64;
        let (capacity, cache) = (self.table.records.capacity(), self.cache.as_ref());
        self.cache = cache.and_then(|cache| {
            cache.renewed(&stages.all, self.table.layout(), (capacity, self.routing.is_some()))
        });
        let new = Reassembly::new(&stages.all, &mut RecordLayout::default(), options.streams, options.seed);
        let is_replaced = new.is_ok();
        if let Ok(new) = new {
            self.reassembly = new;
        }
        self.table.renew(&live, (options.shares, options.seed));
        is_replaced
    }
}
