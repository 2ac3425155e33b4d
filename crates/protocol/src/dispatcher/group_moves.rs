//! The dispatcher's moves of affinity groups: all flows of a group at once.

use nf::AffinityGroup;

use crate::dispatcher::groups::AfterArrival;
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::operate::MigrateError;
use crate::dispatcher::units::UnitState;
use crate::message::{Epoch, FlowId, UnitId};

impl Dispatcher {
    /// Returns the owner for a flow of this group that begins; `None` if it has to wait, or no unit
    /// is active.
    pub(crate) fn owner_in_group(&mut self, group: AffinityGroup) -> Option<UnitId> {
        let groups = self.groups.as_ref().filter(|groups| !groups.is_moving(group))?;
        match groups.owner(group) {
            // A draining one keeps it until the group has moved.
            Some(owner) => Some(owner),
            None => {
                groups.fewest(group, self.units.active()).or_else(|| self.units.active().first().copied())
            }
        }
    }

    /// Moves all flows of a group to another unit. Does nothing while the group is moving, if the
    /// unit owns it, or does not run.
    pub fn move_group(&mut self, group: AffinityGroup, to: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        let Some(groups) = &mut self.groups else { return };
        let runs = matches!(self.units.state(to), UnitState::Active | UnitState::Draining);
        if groups.is_moving(group) || !runs || groups.owner(group).is_none_or(|owner| owner == to) {
            return;
        }
        groups.set_owner(group, to);
        self.counters.groups_moved += 1;
        for index in groups.flows(group).collect::<Vec<u32>>() {
            if self.flows.get(index).owner() != to {
                self.move_member(index, to, outputs);
            }
        }
    }

    fn move_member(&mut self, index: u32, to: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        if self.hand_over_at_rest(index, to, outputs).is_none() {
            return self.end(index, outputs); // It cannot move, and must not stay behind.
        }
        self.counters.flows_moved += 1;
        if let Some(groups) = &mut self.groups {
            groups.await_flow(index);
        }
    }

    /// After a unit has come, moves groups from the unit with most to the one with fewest, until
    /// they have as many: one group at a time, and none while a unit drains.
    pub(crate) fn level_groups(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        let is_draining = self.units.draining() > 0;
        let Some(groups) = self.groups.as_mut().filter(|groups| groups.levels && !is_draining) else {
            return;
        };
        if groups.are_moving() {
            return;
        }
        match groups.uneven(self.units.active()) {
            Some((group, to)) => self.move_group(group, to, outputs),
            None => groups.levels = false,
        }
    }

    /// Moves a group because an operator migrates one of its flows. Returns the flow's new epoch.
    pub(crate) fn migrate_group(
        &mut self,
        group: AffinityGroup,
        flow: FlowId,
        to: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<Epoch, MigrateError> {
        if let Some(groups) = &mut self.groups {
            groups.forget_refuser(group, to);
        }
        self.move_group(group, to, outputs);
        self.counters.flows_migrated += 1;
        self.flows.live(flow).map(|live| live.epoch).ok_or(MigrateError::Exhausted)
    }

    /// Notes that a flow's state has arrived at its owner.
    pub(crate) fn arrived(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let is_owner = self.flows.live(id).is_some_and(|flow| flow.owner() == from && flow.epoch == epoch);
        if let Some(groups) = self.groups.as_mut().filter(|_| is_owner) {
            let after = groups.arrive(id.index);
            self.follow_up(after, outputs);
        }
    }

    /// Notes that a flow of a group goes on at a unit because its owner refused it: the others of
    /// the group follow once they have arrived.
    pub(crate) fn group_refused(&mut self, index: u32, refuser: UnitId, holder: UnitId) {
        if let Some(groups) = &mut self.groups {
            groups.refuse(index, refuser, holder);
            groups.await_flow(index);
        }
    }

    /// Removes a flow that ends from its group.
    pub(crate) fn leave_group(&mut self, index: u32, outputs: &mut Vec<DispatcherOutput>) {
        if let Some(groups) = &mut self.groups {
            let after = groups.remove(index);
            self.follow_up(after, outputs);
        }
    }

    fn follow_up(&mut self, after: AfterArrival, outputs: &mut Vec<DispatcherOutput>) {
        match after {
            AfterArrival::Nothing => {}
            AfterArrival::Settled(group) => outputs.push(DispatcherOutput::GroupSettled(group)),
            AfterArrival::GoesBack(group, to) => {
                self.move_group(group, to, outputs);
                // If that unit does not run any more, the group stays.
                if self.groups.as_ref().is_some_and(|groups| !groups.is_moving(group)) {
                    outputs.push(DispatcherOutput::GroupSettled(group));
                }
            }
        }
    }
}
