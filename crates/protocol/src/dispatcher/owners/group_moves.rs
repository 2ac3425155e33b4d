//! Moves of affinity groups: all flows of a group at once.

use nf::AffinityGroup;

use super::Owners;
use crate::dispatcher::groups::AfterArrival;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};
use crate::message::{Epoch, FlowId, UnitId};

impl Owners {
    /// Returns the owner for a flow of this group that begins; `None` if it has to wait, or no unit
    /// is active.
    pub fn owner_in_group(&self, group: AffinityGroup, active: &[UnitId]) -> Option<UnitId> {
        let groups = self.groups.as_ref().filter(|groups| !groups.is_moving(group))?;
        match groups.owner(group) {
            // A draining one keeps it until the group has moved.
            Some(owner) => Some(owner),
            None => groups.fewest(group, active).or_else(|| active.first().copied()),
        }
    }

    /// Returns true if flows of the group must not begin now.
    pub fn is_moving(&self, group: AffinityGroup) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.is_moving(group))
    }

    /// Moves all flows of a group to another unit. Does nothing while the group is moving, if the
    /// unit owns it, or does not run.
    pub fn move_group(&mut self, group: AffinityGroup, to: UnitId, units: &Units, step: &mut Step<'_>) {
        let Some(groups) = &mut self.groups else { return };
        let runs = matches!(units.state(to), UnitState::Active | UnitState::Draining);
        if groups.is_moving(group) || !runs || groups.owner(group).is_none_or(|owner| owner == to) {
            return;
        }
        groups.set_owner(group, to);
        step.counters().groups_moved += 1;
        for index in groups.flows(group).collect::<Vec<u32>>() {
            if self.flows.get(index).owner() != to {
                self.move_member(index, to, units, step);
            }
        }
    }

    fn move_member(&mut self, index: u32, to: UnitId, units: &Units, step: &mut Step<'_>) {
        if self.hand_over_at_rest(index, to, step).is_none() {
            return self.end(index, units, step); // It cannot move, and must not stay.
        }
        step.counters().flows_moved += 1;
        if let Some(groups) = &mut self.groups {
            groups.await_flow(index);
        }
    }

    /// Notes that a unit has come, which lacks its part of the groups.
    pub fn level_from_now(&mut self) {
        if let Some(groups) = &mut self.groups {
            groups.level_from_now();
        }
    }

    /// After a unit has come, moves groups from the unit with most to the one with fewest, until
    /// they have as many: one group at a time, and none while a unit drains.
    pub fn level_groups(&mut self, units: &Units, step: &mut Step<'_>) {
        if units.draining() > 0 {
            return;
        }
        if let Some((group, to)) =
            self.groups.as_mut().and_then(|groups| groups.next_to_level(units.active()))
        {
            self.move_group(group, to, units, step);
        }
    }

    /// Moves a group because an operator migrates one of its flows. Returns the flow's new epoch;
    /// `None` if it has had too many owners.
    pub fn migrate_group(
        &mut self,
        (group, flow): (AffinityGroup, FlowId),
        to: UnitId,
        units: &Units,
        step: &mut Step<'_>,
    ) -> Option<Epoch> {
        if let Some(groups) = &mut self.groups {
            groups.forget_refuser(group, to);
        }
        self.move_group(group, to, units, step);
        self.flows.live(flow).map(|live| live.epoch())
    }

    /// Notes that a flow of a group continues at a unit because its owner refused it: the others of
    /// the group follow once they have arrived.
    pub(super) fn group_refused(&mut self, index: u32, refuser: UnitId, holder: UnitId) {
        if let Some(groups) = &mut self.groups {
            groups.refuse(index, refuser, holder);
            groups.await_flow(index);
        }
    }

    /// Removes a flow that ends from its group.
    pub(super) fn leave_group(&mut self, index: u32, units: &Units, step: &mut Step<'_>) {
        if let Some(groups) = &mut self.groups {
            let after = groups.remove(index);
            self.follow_up(after, units, step);
        }
    }

    pub(super) fn follow_up(&mut self, after: AfterArrival, units: &Units, step: &mut Step<'_>) {
        match after {
            AfterArrival::Nothing => {}
            AfterArrival::Settled(group) => step.push(DispatcherOutput::GroupSettled(group)),
            AfterArrival::GoesBack(group, to) => {
                self.move_group(group, to, units, step);
                // If that unit does not run any more, the group stays.
                if !self.is_moving(group) {
                    step.push(DispatcherOutput::GroupSettled(group));
                }
            }
        }
    }
}
