//! The course of a migration: flows are selected, moved, and looked at once more.

use std::sync::Arc;
use std::time::Duration;

use protocol::dispatcher::{FlowStatus, MigrateError, MigratedFlow};
use protocol::message::{FlowId, UnitId};
use runtime::operator::{FLOWS_MIGRATED_MAX, MigrationTarget};

use super::batch_size::BatchSize;
use super::{MIGRATION_FLOWS_MAX, Migration};
use crate::dispatcher::DispatcherClient;
use crate::filter::FlowFilter;
use crate::problem::Problem;
use crate::resources::MigrationState;

/// Time after which units have refused states that they cannot take.
const REFUSALS_AFTER: Duration = Duration::from_millis(100);

/// Limit on the attempts to move a flow while its affinity group is moving, and the pause between
/// two.
const GROUP_ATTEMPTS: u32 = 20;
const GROUP_MOVES: Duration = Duration::from_millis(20);

/// The flows that a migration selects, and where they go.
pub(super) struct Selection {
    /// These flows; `None` for all.
    pub named: Option<Vec<FlowId>>,
    pub from: Option<UnitId>,
    pub to: Option<UnitId>,
    pub filter: Option<FlowFilter>,
    pub count: usize,
}

/// A flow that has moved.
#[derive(Clone, Copy)]
pub(super) struct MovedFlow {
    flow: FlowId,
    from: UnitId,
    to: UnitId,
}

/// A migration under way.
pub(super) struct Course {
    dispatcher: DispatcherClient,
    migration: Arc<Migration>,
    batch_size: BatchSize,
}

impl Selection {
    fn selects(&self, flow: &FlowStatus) -> bool {
        self.from.is_none_or(|from| from == flow.owner)
            && self.to != Some(flow.owner)
            && self.filter.as_ref().is_none_or(|filter| filter.matches(&flow.key))
    }
}

impl Course {
    pub fn new(dispatcher: DispatcherClient, migration: Arc<Migration>) -> Course {
        Course { dispatcher, migration, batch_size: BatchSize::default() }
    }

    /// Moves the selected flows.
    pub async fn run(mut self, selection: Selection) {
        let mut done = self.move_all(&selection).await;
        if done.is_ok() {
            done = self.count_refusals().await;
        }
        let is_cancelled = self.migration.is_cancelled();
        let mut progress = self.migration.progress();
        progress.state = match done {
            Ok(()) if is_cancelled => MigrationState::Cancelled,
            Ok(()) => MigrationState::Done,
            Err(problem) => {
                progress.reason = Some(problem.detail);
                MigrationState::Failed
            }
        };
    }

    /// Moves the flows back that are still where they were moved to.
    pub async fn revert(mut self) {
        // The last one first, as they came.
        let moved: Vec<MovedFlow> = self.migration.moved().iter().rev().copied().collect();
        let mut left = &moved[..];
        while !left.is_empty() && !self.migration.is_cancelled() {
            let (batch, rest) = left.split_at(left.len().min(self.batch_size.get()));
            left = rest;
            let target = |moved: &MovedFlow| MigrationTarget {
                flow: moved.flow,
                from: Some(moved.to),
                to: Some(moved.from),
            };
            let results = self.copy_and_move(batch.iter().map(target).collect()).await;
            let mut progress = self.migration.progress();
            match results {
                Ok(results) => {
                    for (moved, result) in batch.iter().zip(results) {
                        match result {
                            Ok(_) => progress.reverted += 1,
                            // Its group has moved back with another flow.
                            Err(MigrateError::Elsewhere(owner)) if owner == moved.from => {
                                progress.reverted += 1;
                            }
                            Err(error) => progress.reason = Some(error.to_string()),
                        }
                    }
                }
                Err(problem) => {
                    progress.reason = Some(problem.detail);
                    break;
                }
            }
        }
        self.migration.moved().clear();
        self.migration.progress().state = MigrationState::Reverted;
    }

    async fn move_all(&mut self, selection: &Selection) -> Result<(), Problem> {
        match &selection.named {
            Some(named) => self.move_named(named, selection).await,
            None => self.move_found(selection).await,
        }
    }

    async fn move_named(&mut self, named: &[FlowId], selection: &Selection) -> Result<(), Problem> {
        let mut batch = Vec::new();
        for &flow in named {
            match self.dispatcher.flow(flow).await? {
                Some(status) if selection.selects(&status) => batch.push(status),
                Some(_) => continue,
                None => {
                    let mut progress = self.migration.progress();
                    progress.wanted += 1;
                    progress.failed += 1;
                    progress.reason = Some(format!("{flow} has ended"));
                    continue;
                }
            }
            if !self.move_full(&mut batch, selection).await? {
                return Ok(());
            }
        }
        self.move_batch(&mut batch, selection).await
    }

    /// Looks through the flow table, and moves what it finds.
    async fn move_found(&mut self, selection: &Selection) -> Result<(), Problem> {
        let (mut from, mut batch) = (Some(0), Vec::new());
        while let Some(index) = from {
            let list = self.dispatcher.flows(index).await?;
            from = list.next;
            for flow in list.flows {
                if selection.selects(&flow) {
                    batch.push(flow);
                }
                if !self.move_full(&mut batch, selection).await? {
                    return Ok(());
                }
            }
        }
        self.move_batch(&mut batch, selection).await
    }

    /// Moves a batch that is full, or has all flows that are left to move. Returns false if there
    /// is nothing more to do.
    async fn move_full(
        &mut self,
        batch: &mut Vec<FlowStatus>,
        selection: &Selection,
    ) -> Result<bool, Problem> {
        if self.migration.is_cancelled() {
            return Ok(false);
        }
        let left = self.left(selection);
        if left == 0 {
            return Ok(false);
        }
        if batch.len() >= self.batch_size.get().min(left) {
            self.move_batch(batch, selection).await?;
        }
        Ok(self.left(selection) > 0)
    }

    /// Returns the number of flows that may still move.
    fn left(&self, selection: &Selection) -> usize {
        let moved = self.migration.moved().len();
        if moved >= MIGRATION_FLOWS_MAX {
            self.migration.progress().is_truncated = true;
        }
        selection.count.min(MIGRATION_FLOWS_MAX).saturating_sub(moved)
    }

    /// Moves a batch. Flows are tried again while their affinity group is moving.
    async fn move_batch(
        &mut self,
        batch: &mut Vec<FlowStatus>,
        selection: &Selection,
    ) -> Result<(), Problem> {
        batch.truncate(self.left(selection));
        for attempt in (0..GROUP_ATTEMPTS).rev() {
            if batch.is_empty() {
                return Ok(());
            }
            let target = |flow: &FlowStatus| MigrationTarget {
                flow: flow.flow,
                from: Some(flow.owner),
                to: selection.to,
            };
            let targets = batch.iter().map(target).collect();
            let results = match attempt + 1 == GROUP_ATTEMPTS {
                true => self.copy_and_move(targets).await?,
                false => self.dispatcher.migrate(targets).await?,
            };
            let moving = self.count(batch, &results, attempt > 0);
            *batch = moving;
            if !batch.is_empty() {
                tokio::time::sleep(GROUP_MOVES).await;
            }
        }
        Ok(())
    }

    /// Moves flows after their states have been copied, and adapts the size of the next batch.
    async fn copy_and_move(
        &mut self,
        mut targets: Vec<MigrationTarget>,
    ) -> Result<Vec<Result<MigratedFlow, MigrateError>>, Problem> {
        let copied = self.dispatcher.copy(targets.clone()).await?;
        self.batch_size.adapt(&copied);
        {
            let mut progress = self.migration.progress();
            progress.copies_late += copied.late as u64;
            progress.batch_size = self.batch_size.get() as u64;
        }
        for (target, to) in targets.iter_mut().zip(copied.to) {
            // If the flow cannot move, the dispatcher reports that again.
            target.to = to.ok().or(target.to);
        }
        self.dispatcher.migrate(targets).await
    }

    /// Counts the results of a batch. Returns the flows to try again, if that `is_wanted`.
    fn count(
        &self,
        batch: &[FlowStatus],
        results: &[Result<MigratedFlow, MigrateError>],
        is_wanted: bool,
    ) -> Vec<FlowStatus> {
        let (mut moved, mut progress) = (self.migration.moved(), self.migration.progress());
        let mut again = Vec::new();
        let has_moved = |from: UnitId, to: UnitId| {
            results.iter().flatten().any(|migrated| (migrated.from, migrated.to) == (from, to))
        };
        for (flow, result) in batch.iter().zip(results) {
            let to = match result {
                Ok(migrated) => Some(migrated.to),
                // Its group has moved with another flow of the batch.
                Err(MigrateError::Elsewhere(to)) if has_moved(flow.owner, *to) => Some(*to),
                Err(MigrateError::GroupMoving) if is_wanted => {
                    again.push(*flow);
                    continue;
                }
                Err(error) => {
                    progress.failed += 1;
                    progress.reason = Some(error.to_string());
                    None
                }
            };
            progress.wanted += 1;
            if let Some(to) = to {
                progress.moved += 1;
                moved.push(MovedFlow { flow: flow.flow, from: flow.owner, to });
            }
        }
        again
    }

    /// Counts the flows with a refused state: they did not move.
    async fn count_refusals(&self) -> Result<(), Problem> {
        if self.migration.moved().is_empty() {
            return Ok(());
        }
        tokio::time::sleep(REFUSALS_AFTER).await;
        let moved = self.migration.moved().clone();
        let mut refused = Vec::with_capacity(moved.len());
        for batch in moved.chunks(FLOWS_MIGRATED_MAX) {
            let flows = batch.iter().map(|moved| (moved.flow, moved.to)).collect();
            refused.extend(self.dispatcher.refusals(flows).await?);
        }
        let count = refused.iter().filter(|&&is_refused| is_refused).count() as u64;
        let mut refused = refused.into_iter();
        self.migration.moved().retain(|_| refused.next() == Some(false));
        let mut progress = self.migration.progress();
        progress.moved -= count.min(progress.moved);
        progress.refused += count;
        Ok(())
    }
}
