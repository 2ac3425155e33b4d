//! An operator's commands: flows migrate by hand, units are drained and resumed (A16).

use nf::AffinityGroup;
use packet::FlowKey;
use std::ops::Range;

use telemetry::event;

use crate::message::{Epoch, FlowId, FromDispatcher, UnitId};

use crate::dispatcher::config::Granularity;
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::units::UnitState;

/// A flow, as its dispatcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    /// The flow.
    pub flow: FlowId,
    /// The key of its first packet.
    pub key: FlowKey,
    /// Its owner.
    pub owner: UnitId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Number of its packets.
    pub packets: u64,
    /// Arrival time of its last packet.
    pub last_seen_ns: u64,
}

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

/// The reason for which a unit is not drained or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitRefused {
    /// There is no such unit.
    #[error("there is no {0}")]
    Unknown(UnitId),
    /// It is the last one.
    #[error("{0} is the last active unit")]
    Last(UnitId),
    /// It is not active.
    #[error("{0} is not active")]
    NotActive(UnitId),
    /// It is not draining, and cannot start.
    #[error("{0} is not draining")]
    NotDraining(UnitId),
}

impl Dispatcher {
    /// Returns the affinity group of a live flow, if it is in one.
    pub fn group(&self, flow: FlowId) -> Option<AffinityGroup> {
        self.groups.as_ref()?.of_flow(flow.index)
    }

    /// Returns a live flow.
    pub fn flow_status(&self, flow: FlowId) -> Option<FlowStatus> {
        self.flows.live(flow).map(|_| self.status_at(flow.index))
    }

    /// Returns the live flows with these indexes.
    pub fn flow_statuses(&self, indexes: Range<u32>) -> impl Iterator<Item = FlowStatus> + '_ {
        let indexes = indexes.start..indexes.end.min(self.flows.used());
        indexes.filter(|&index| self.flows.get(index).is_live()).map(|index| self.status_at(index))
    }

    /// Returns the end of the indexes that were ever used.
    pub fn indexes_used(&self) -> u32 {
        self.flows.used()
    }

    /// Returns true if a unit has refused the flow's state since the flow last migrated to it.
    pub fn has_refused(&self, flow: FlowId, unit: UnitId) -> bool {
        self.flows.live(flow).is_some() && self.flows.flowlet(flow.index).refusers.contains(unit)
    }

    /// Migrates a flow to a unit, without waiting for a packet; without `to`, to the other active
    /// unit with the fewest flows. Adds two outputs. The flow stays there at least until its next
    /// flowlet. All flows of its affinity group migrate with it, with two outputs each.
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
        self.at(now_ns);
        let (from, to) = self.check_move(flow, to)?;
        self.flows.forget_refuser(flow.index, to);
        if let Some(group) = self.groups.as_ref().and_then(|groups| groups.of_flow(flow.index)) {
            let epoch = self.migrate_group(group, flow, to, outputs)?;
            return Ok(MigratedFlow { from, to, epoch });
        }
        let epoch = self.hand_over_at_rest(flow.index, to, outputs).ok_or(MigrateError::Exhausted)?;
        self.counters.flows_migrated += 1;
        Ok(MigratedFlow { from, to, epoch })
    }

    /// Asks for a replica of a flow, or of all flows of its affinity group, at the unit to which
    /// the flow is about to [migrate](Dispatcher::migrate), while packets go on (pre-copy). Returns
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
        self.at(now_ns);
        let (_, to) = self.check_move(flow, to)?;
        self.ask_for_replicas(flow.index, to, outputs, asked);
        Ok(to)
    }

    /// Returns true if states are copied to their next owners before flows move.
    pub fn copies_before_moves(&self) -> bool {
        self.config.pre_copy
    }

    /// Returns the unit to which a flow would [migrate](Dispatcher::migrate).
    ///
    /// # Errors
    ///
    /// If the flow cannot migrate.
    pub fn next_owner(&self, flow: FlowId, to: Option<UnitId>) -> Result<UnitId, MigrateError> {
        self.check_move(flow, to).map(|(_, to)| to)
    }

    /// Returns the owner of a flow that is about to migrate, and the next one.
    fn check_move(&self, flow: FlowId, to: Option<UnitId>) -> Result<(UnitId, UnitId), MigrateError> {
        if let mode @ (Granularity::Packet | Granularity::Rss { .. }) = self.config.mode {
            return Err(MigrateError::Mode(mode));
        }
        let from = self.flows.live(flow).map(|live| live.owner()).ok_or(MigrateError::Ended)?;
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
        let group = self.groups.as_ref().and_then(|groups| Some((groups, groups.of_flow(flow.index)?)));
        if group.is_some_and(|(groups, group)| groups.is_moving(group)) {
            return Err(MigrateError::GroupMoving);
        }
        Ok((from, to))
    }

    /// Drains a unit for an operator: it gets no new packets, hands its flows over, and stops. If
    /// fewer than `units_min` are left, others are started where that is
    /// [configured](crate::dispatcher::Config::replaces_drained).
    ///
    /// # Errors
    ///
    /// If it is not active, or is the last one: see
    /// [`remove_unit`](Dispatcher::remove_unit).
    pub fn drain_unit(
        &mut self,
        now_ns: u64,
        unit: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<(), UnitRefused> {
        let may_be_fewer = !self.config.replaces_drained;
        self.drain_active(now_ns, unit, may_be_fewer, outputs)
    }

    /// Drains an active unit. `may_be_fewer`: no other one takes its place among the `units_min`.
    pub(crate) fn drain_active(
        &mut self,
        now_ns: u64,
        unit: UnitId,
        may_be_fewer: bool,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<(), UnitRefused> {
        let now_ns = self.at(now_ns);
        match self.units.state(unit) {
            UnitState::Active if self.has_other_active(unit) => {
                self.drain(now_ns, unit, outputs);
                let is_below = self.units.held() < usize::from(self.config.units_min);
                self.units.set_excused(unit, may_be_fewer && is_below);
                self.hold_minimum(outputs);
                self.wake(now_ns);
                Ok(())
            }
            UnitState::Active => Err(UnitRefused::Last(unit)),
            _ if !self.units.has(unit) => Err(UnitRefused::Unknown(unit)),
            _ => Err(UnitRefused::NotActive(unit)),
        }
    }

    /// Makes a draining unit active again; the flows that have left stay where they are.
    ///
    /// # Errors
    ///
    /// If it is not draining: one that has stopped starts when it is needed.
    pub fn resume_unit(&mut self, now_ns: u64, unit: UnitId) -> Result<(), UnitRefused> {
        let now_ns = self.at(now_ns);
        match self.units.state(unit) {
            UnitState::Draining => {
                self.units.expect_stale_reports(unit);
                self.activate(unit, now_ns);
                self.counters.units_resumed += 1;
                event::unit_resumed(unit.0.into());
                self.wake(now_ns);
                Ok(())
            }
            UnitState::Active if self.units.is_leaving(unit) => {
                self.units.set_leaving(unit, false);
                self.counters.units_resumed += 1;
                event::unit_resumed(unit.0.into());
                Ok(())
            }
            _ if !self.units.has(unit) => Err(UnitRefused::Unknown(unit)),
            _ => Err(UnitRefused::NotDraining(unit)),
        }
    }

    /// Makes another unit the flow's owner between two packets: it fetches the state at once.
    /// Returns the new epoch; `None`, and nothing has changed, if the epochs are exhausted.
    pub(crate) fn hand_over_at_rest(
        &mut self,
        index: u32,
        to: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<Epoch> {
        let (flow, live) = (self.flows.id(index), self.flows.get(index));
        let (previous, last) = (live.owner(), live.seq);
        let epoch = self.hand_over(index, to, outputs)?;
        let message = FromDispatcher::Adopt { flow, epoch, previous, last };
        outputs.push(DispatcherOutput::Send { to, message });
        Some(epoch)
    }

    /// Returns the active unit with the fewest flows that is not the owner, and has not refused the
    /// flow; the lowest of equal ones.
    fn emptiest_other(&self, flow: FlowId, owner: UnitId) -> Option<UnitId> {
        let refusers = &self.flows.flowlet(flow.index).refusers;
        let others = self.units.active().iter().copied();
        let others = others.filter(|&unit| unit != owner && !refusers.contains(unit));
        others.min_by_key(|&unit| (self.units.flows(unit), unit))
    }

    fn status_at(&self, index: u32) -> FlowStatus {
        let live = self.flows.get(index);
        FlowStatus {
            flow: self.flows.id(index),
            key: self.flows.key(index),
            owner: live.owner(),
            epoch: live.epoch,
            packets: live.seq,
            last_seen_ns: live.last_seen_ns,
        }
    }
}
