//! Flows with a state that was lost with its unit: those with replicas continue elsewhere, the
//! others end.

use nf::AffinityGroup;

use super::Owners;
use crate::dispatcher::flow::Flow;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};
use crate::message::{Epoch, FlowId, FromDispatcher, UnitId};

/// The recovery of flows at the units that are left.
pub(crate) struct Recoveries<'a> {
    owners: &'a mut Owners,
    units: &'a Units,
}

impl Owners {
    /// Lets a flow's next packet name the units that get replicas: its owner does not know them, or
    /// one of them is lost.
    pub(super) fn renew_targets(&mut self, index: u32) {
        if self.wanted.is_some() {
            self.flows.get_mut(index).end_flowlet();
        }
    }

    /// The same for all flows with fewer replicas than wanted: another unit can have one.
    pub fn renew_scarce_targets(&mut self) {
        let Some(wanted) = self.wanted else { return };
        for index in 0..self.flows.used() {
            let targets = self.flows.flowlet(index).targets();
            if self.flows.get(index).is_live() && !targets.is_all() && targets.len() < wanted {
                self.renew_targets(index);
            }
        }
    }

    /// Returns the recovery of flows at these units.
    pub fn recoveries<'a>(&'a mut self, units: &'a Units) -> Recoveries<'a> {
        Recoveries { owners: self, units }
    }
}

/// Returns the sound target of a flow's replicas with the fewest flows, if it has not refused the
/// flow.
pub(crate) fn sound_target(owners: &Owners, index: u32, units: &Units) -> Option<UnitId> {
    let (flow, flowlet) = (owners.flows.get(index), owners.flows.flowlet(index));
    let may_take = |unit: &UnitId| {
        let is_target = *unit != flow.owner() && flowlet.targets().contains(*unit);
        is_target && units.is_sound(*unit) && !flowlet.refusers().contains(*unit)
    };
    units.active().iter().copied().filter(may_take).min_by_key(|&unit| (owners.count_of(unit), unit))
}

impl Recoveries<'_> {
    /// Recovers the flows of a unit that has crashed, or ends them.
    pub fn lose_all_of(&mut self, unit: UnitId, step: &mut Step<'_>) {
        for index in 0..self.owners.flows.used() {
            let flow = self.owners.flows.get(index);
            if !flow.is_live() {
                continue;
            }
            if flow.owner() != unit {
                let targets = self.owners.flows.flowlet(index).targets();
                if !targets.is_all() && targets.contains(unit) {
                    self.owners.renew_targets(index);
                }
                continue;
            }
            match self.owners.group_of(index) {
                Some(group) => self.lose_group(group, step),
                None => match self.rescuer(index) {
                    Some(to) => self.take_over(index, to, step),
                    None => self.lose(index, step),
                },
            }
        }
    }

    /// Recovers a flow after its owner reported that the state was lost with the unit that had it,
    /// or ends it.
    pub fn report_lost(&mut self, from: UnitId, (id, epoch): (FlowId, Epoch), step: &mut Step<'_>) {
        if !self.is_owner(from, (id, epoch)) {
            return;
        }
        // The owner may have a replica itself.
        let may_be_recovered = self.owners.has_replicas || self.holders(id.index).next().is_some();
        match may_be_recovered {
            true => self.recover(id.index, step),
            false => self.lose(id.index, step),
        }
    }

    /// Notes that a flow continues with a replica; `lacks` packets are missing in it. Ends the flow
    /// if there was none.
    pub fn report_recovered(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        lacks: Option<u64>,
        step: &mut Step<'_>,
    ) {
        match lacks {
            Some(lacks) => {
                step.counters().flows_recovered += 1;
                step.counters().packets_unrecovered += lacks;
            }
            None if self.is_owner(from, (id, epoch)) => self.lose(id.index, step),
            None => {}
        }
    }

    /// Recovers all flows of a group at one unit. Flows without replicas end.
    fn lose_group(&mut self, group: AffinityGroup, step: &mut Step<'_>) {
        let Some(groups) = &self.owners.groups else { return };
        let members: Vec<u32> = groups.flows(group).collect();
        let to = members.iter().find_map(|&index| self.rescuer(index));
        if let Some((to, groups)) = to.zip(self.owners.groups.as_mut()) {
            groups.set_owner(group, to);
            step.counters().groups_moved += 1;
        }
        for index in members {
            match to.filter(|_| self.holders(index).next().is_some()) {
                Some(to) => self.take_over(index, to, step),
                None => self.lose(index, step),
            }
        }
    }

    /// Makes a unit the owner of a flow with a state that was lost with the owner.
    fn take_over(&mut self, index: u32, to: UnitId, step: &mut Step<'_>) {
        if self.owners.name_owner(index, to, step).is_none() {
            return self.lose(index, step); // It cannot move, and must not stay.
        }
        self.owners.renew_targets(index);
        if let Some(groups) = &mut self.owners.groups {
            groups.await_flow(index);
        }
        self.recover(index, step);
    }

    /// Lets the owner of a flow collect replicas of its state.
    fn recover(&self, index: u32, step: &mut Step<'_>) {
        let holders: Vec<UnitId> = self.holders(index).collect();
        let flow = self.owners.flows.get(index);
        let (epoch, last, owner) = (flow.epoch(), flow.last(), flow.owner());
        // Those that have a replica already, or will have one soon.
        let wanted = self.owners.flows.flowlet(index).targets();
        let targets = self.units.active().iter().copied();
        let targets = targets.filter(|&unit| unit != owner && wanted.contains(unit)).collect();
        step.counters().recoveries += 1;
        let flow = self.owners.flows.id(index);
        step.send(owner, FromDispatcher::Recover { flow, epoch, last, holders, targets });
    }

    /// Returns the units that may have a replica of a flow's state: the targets of its flowlet, and
    /// the owner before the present one, which may not have handed the state over yet.
    fn holders(&self, index: u32) -> impl Iterator<Item = UnitId> + '_ {
        let flow = self.owners.flows.get(index);
        let targets = self.owners.flows.flowlet(index).targets();
        let before = (flow.epoch() > 1).then(|| flow.previous());
        let runs = |unit: UnitId| matches!(self.units.state(unit), UnitState::Active | UnitState::Draining);
        self.units.all().filter(move |&unit| runs(unit) && (targets.contains(unit) || before == Some(unit)))
    }

    /// Returns the unit that takes a flow over: of those that may have a replica, the active one
    /// with the fewest flows. `None` if there is none.
    fn rescuer(&self, index: u32) -> Option<UnitId> {
        let active = self.units.active();
        let holders = self.holders(index).filter(|unit| active.contains(unit));
        let first = holders.min_by_key(|&unit| (self.owners.count_of(unit), unit));
        let any = || self.holders(index).next().and(active.first().copied());
        first.or_else(any)
    }

    fn is_owner(&self, unit: UnitId, (id, epoch): (FlowId, Epoch)) -> bool {
        let is_owner = |flow: &&Flow| flow.owner() == unit && flow.epoch() == epoch;
        self.owners.flows.live(id).filter(is_owner).is_some()
    }

    /// Ends a flow with a state that is lost.
    fn lose(&mut self, index: u32, step: &mut Step<'_>) {
        step.counters().flows_lost += 1;
        self.owners.lost.note(index, &self.owners.flows, step.counters());
        self.owners.end(index, self.units, step);
    }
}
