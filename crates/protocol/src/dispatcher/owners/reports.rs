//! Reports of units about their flows: ends, arrivals, refusals and losses.

use super::Owners;
use crate::dispatcher::config::DISPLACED_AFTER_NS;
use crate::dispatcher::flow::Flow;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};
use crate::message::{Epoch, FlowId, FromDispatcher, UnitId};

impl Owners {
    /// Ends a flow if its owner has seen all of it (design.md 3.9). Packets that the owner of a
    /// flow that is silent for [`DISPLACED_AFTER_NS`] has not seen were lost. An owner that
    /// proposes again has not received the `End`.
    pub fn expire(
        &mut self,
        from: UnitId,
        (id, epoch, seq): (FlowId, Epoch, u64),
        units: &Units,
        step: &mut Step<'_>,
    ) {
        let now_ns = step.now_ns();
        let is_all = |flow: &Flow| flow.seq() == seq || now_ns - flow.last_seen_ns() >= DISPLACED_AFTER_NS;
        match self.flows.live(id) {
            Some(flow) if flow.owner() == from && flow.epoch() == epoch && is_all(flow) => {
                step.counters().flows_expired += 1;
                self.end(id.index, units, step);
            }
            None if self.flows.is_over(id) => {
                step.counters().expiries_repeated += 1;
                step.send(from, FromDispatcher::End { flow: id });
            }
            _ => step.counters().expiries_refused += 1,
        }
    }

    /// Notes that a flow's state has arrived at its owner.
    pub fn arrived(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        units: &Units,
        step: &mut Step<'_>,
    ) {
        let is_owner = self.flows.live(id).is_some_and(|flow| flow.owner() == from && flow.epoch() == epoch);
        if let Some(groups) = self.groups.as_mut().filter(|_| is_owner) {
            let after = groups.arrive(id.index);
            self.follow_up(after, units, step);
        }
    }

    /// Makes the holder of a flow's state the owner, if the present owner cannot take the state.
    pub fn refused(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        holder: UnitId,
        units: &Units,
        step: &mut Step<'_>,
    ) {
        let is_owner = |flow: &&Flow| flow.owner() == from && flow.epoch() == epoch && epoch > 1;
        let Some(last) = self.flows.live(id).filter(is_owner).map(|flow| flow.seq()) else { return };
        match units.state(holder) {
            UnitState::Active | UnitState::Draining if holder != from => {}
            UnitState::Lost => return self.recoveries(units).report_lost(from, (id, epoch), step),
            _ => return,
        }
        if let Some(epoch) = self.hand_over(id.index, holder, step) {
            step.counters().states_refused += 1;
            self.flows.add_refuser(id.index, from);
            self.group_refused(id.index, from, holder);
            self.renew_targets(id.index);
            step.send(holder, FromDispatcher::Adopt { flow: id, epoch, previous: from, last });
        }
    }
}
