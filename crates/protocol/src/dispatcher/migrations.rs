//! An operator's migrations: flows, and affinity groups, move by hand (A16).

use nf::AffinityGroup;

use crate::dispatcher::clock::Clock;
use crate::dispatcher::config::Granularity;
use crate::dispatcher::counters::Counters;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::Units;
use crate::message::{Epoch, FlowId, UnitId};

/// A flow that has a new owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratedFlow {
    /// The owner before.
    pub from: UnitId,
    /// The owner.
    pub to: UnitId,
    /// The new owner's epoch.
    pub epoch: Epoch,
}

/// The reason for which a flow does not migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// The flow has ended.
    #[error("the flow has ended")]
    Ended,
    /// The flow is there already.
    #[error("the flow is at {0} already")]
    Owned(UnitId),
    /// The flow has another owner than was expected.
    #[error("the flow has moved to {0}")]
    Elsewhere(UnitId),
    /// The unit gets no flows.
    #[error("{0} is not active")]
    NotActive(UnitId),
    /// No other unit is active.
    #[error("no other unit is active")]
    NoOther,
    /// The flow's next packet would go elsewhere.
    #[error("mode {0} assigns units by itself; flows migrate in modes flow, smart-flow and flowlet")]
    Mode(Granularity),
    /// The flow's affinity group is on its way to a unit.
    #[error("the affinity group of the flow is moving")]
    GroupMoving,
    /// The flow's epochs are exhausted.
    #[error("the flow has had too many owners")]
    Exhausted,
}

/// Migrations of a dispatcher's flows, without waiting for packets.
pub struct Migrations<'a> {
    clock: &'a mut Clock,
    owners: &'a mut Owners,
    units: &'a Units,
    counters: &'a mut Counters,
    mode: Granularity,
}

impl<'a> Migrations<'a> {
    pub(crate) fn new(
        clock: &'a mut Clock,
        owners: &'a mut Owners,
        units: &'a Units,
        counters: &'a mut Counters,
        mode: Granularity,
    ) -> Migrations<'a> {
        Migrations { clock, owners, units, counters, mode }
    }

    /// Migrates a flow to a unit; without `to`, to the other active unit with the fewest flows.
    /// Adds two outputs. The flow stays there at least until its next flowlet. All flows of its
    /// affinity group migrate with it, with two outputs each.
    ///
    /// # Errors
    ///
    /// If the flow cannot migrate; nothing has changed then.
    pub fn migrate(
        &mut self,
        now_ns: u64,
        flow: FlowId,
        to: Option<UnitId>,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<MigratedFlow, MigrateError> {
        let now_ns = self.clock.at(now_ns);
        let (from, to) = self.check(flow, to)?;
        let mut step = Step::new(now_ns, self.counters, outputs);
        self.owners.forget_refuser(flow.index, to);
        let epoch = match self.owners.group_of(flow.index) {
            Some(group) => {
                step.counters().flows_migrated += 1;
                self.owners.migrate_group((group, flow), to, self.units, &mut step)
            }
            None => {
                let epoch = self.owners.hand_over_at_rest(flow.index, to, &mut step);
                step.counters().flows_migrated += u64::from(epoch.is_some());
                epoch
            }
        };
        Ok(MigratedFlow { from, to, epoch: epoch.ok_or(MigrateError::Exhausted)? })
    }

    /// Asks for a replica of a flow, or of all flows of its affinity group, at the unit to which
    /// the flow is about to [migrate](Migrations::migrate), while packets go on (pre-copy). Returns
    /// the unit, and adds the flows to those of which [`DispatcherOutput::Replicated`] will say
    /// that the replica has come, unless a message is lost or the flow ends.
    ///
    /// # Errors
    ///
    /// If the flow cannot migrate.
    pub fn replicate(
        &mut self,
        now_ns: u64,
        flow: FlowId,
        to: Option<UnitId>,
        outputs: &mut Vec<DispatcherOutput>,
        asked: &mut impl Extend<FlowId>,
    ) -> Result<UnitId, MigrateError> {
        self.clock.at(now_ns);
        let (_, to) = self.check(flow, to)?;
        self.owners.ask_for_replicas(flow.index, to, outputs, asked);
        Ok(to)
    }

    /// Returns the unit to which a flow would [migrate](Migrations::migrate).
    ///
    /// # Errors
    ///
    /// If the flow cannot migrate.
    pub fn next_owner(&self, flow: FlowId, to: Option<UnitId>) -> Result<UnitId, MigrateError> {
        self.check(flow, to).map(|(_, to)| to)
    }

    /// Moves all flows of a group to another unit. Does nothing while the group is moving, if the
    /// unit owns it, or does not run.
    pub fn move_group(&mut self, group: AffinityGroup, to: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        let mut step = Step::new(self.clock.now_ns(), self.counters, outputs);
        self.owners.move_group(group, to, self.units, &mut step);
    }

    /// Returns the owner of a flow that is about to migrate, and the next one.
    fn check(&self, flow: FlowId, to: Option<UnitId>) -> Result<(UnitId, UnitId), MigrateError> {
        if let mode @ (Granularity::Packet | Granularity::Rss { .. }) = self.mode {
            return Err(MigrateError::Mode(mode));
        }
        let live = self.owners.flows().live(flow).ok_or(MigrateError::Ended)?;
        let from = live.owner();
        let to = match to {
            Some(to) => to,
            None => self.emptiest_other(flow, from).ok_or(MigrateError::NoOther)?,
        };
        if to == from {
            return Err(MigrateError::Owned(to));
        }
        if !self.units.is_active(to) {
            return Err(MigrateError::NotActive(to));
        }
        if self.owners.group_of(flow.index).is_some_and(|group| self.owners.is_moving(group)) {
            return Err(MigrateError::GroupMoving);
        }
        Ok((from, to))
    }

    /// Returns the active unit with the fewest flows that is not the owner, and has not refused the
    /// flow; the lowest of equal ones.
    fn emptiest_other(&self, flow: FlowId, owner: UnitId) -> Option<UnitId> {
        let refusers = self.owners.flows().flowlet(flow.index).refusers();
        let others = self.units.active().iter().copied();
        let others = others.filter(|&unit| unit != owner && !refusers.contains(unit));
        others.min_by_key(|&unit| (self.owners.count_of(unit), unit))
    }
}
