//! Units that join, leave, are drained, or are lost.

use telemetry::event;

use crate::dispatcher::clock::Clock;
use crate::dispatcher::counters::Counters;
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::UnitState;
use crate::message::UnitId;

/// The reason not to drain or resume a unit.
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

/// Commands and events that change a dispatcher's units.
pub struct Membership<'a> {
    clock: &'a mut Clock,
    fleet: &'a mut Fleet,
    owners: &'a mut Owners,
    counters: &'a mut Counters,
    /// Others take the places of units that an operator drains.
    replaces_drained: bool,
}

impl<'a> Membership<'a> {
    pub(crate) fn new(
        clock: &'a mut Clock,
        fleet: &'a mut Fleet,
        owners: &'a mut Owners,
        counters: &'a mut Counters,
        replaces_drained: bool,
    ) -> Membership<'a> {
        Membership { clock, fleet, owners, counters, replaces_drained }
    }

    /// Begins with the units that are ready: the others of the first `units_min` are starting, and
    /// ready ones beyond them are active as well. Must be called before the first packet.
    pub fn begin_with(&mut self, is_ready: impl Fn(UnitId) -> bool) {
        self.fleet.begin_with(is_ready);
    }

    /// Starts the first unit that is off. Does nothing if none is, or one is starting already.
    pub fn add(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        let mut step = Step::new(self.clock.now_ns(), self.counters, outputs);
        self.fleet.start_one(&mut step);
    }

    /// Notes that a unit is ready for packets. Does nothing unless it was ordered to start.
    pub fn started(&mut self, now_ns: u64, unit: UnitId) {
        let now_ns = self.clock.at(now_ns);
        if self.fleet.units().state(unit) == UnitState::Starting {
            self.counters.buckets_moved += self.fleet.activate(unit, now_ns);
            self.owners.level_from_now();
            self.owners.renew_scarce_targets();
            if self.owners.flows().count() == 0 {
                self.fleet.deal_buckets();
            }
            self.clock.wake(now_ns);
        }
    }

    /// Drains a unit: it gets no new packets, hands its flows over, and stops. If no other one is
    /// active, that begins as soon as one is; until then it works on. Does nothing if it neither
    /// runs nor starts.
    pub fn remove(&mut self, now_ns: u64, unit: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        if self.drain_active(now_ns, unit, false, outputs).is_err()
            && matches!(self.fleet.units().state(unit), UnitState::Active | UnitState::Starting)
        {
            self.fleet.set_leaving(unit, true);
            self.fleet.hold_minimum(&mut Step::new(self.clock.now_ns(), self.counters, outputs));
            self.clock.wake(now_ns);
        }
    }

    /// Drains a unit for an operator: it gets no new packets, hands its flows over, and stops. If
    /// fewer than `units_min` are left, others are started where that is
    /// [configured](crate::dispatcher::Config::replaces_drained).
    ///
    /// # Errors
    ///
    /// If it is not active, or is the last one: see [`remove`](Membership::remove).
    pub fn drain(
        &mut self,
        now_ns: u64,
        unit: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<(), UnitRefused> {
        self.drain_active(now_ns, unit, !self.replaces_drained, outputs)
    }

    /// Drains an active unit. `may_be_fewer`: no other one takes its place among the `units_min`.
    fn drain_active(
        &mut self,
        now_ns: u64,
        unit: UnitId,
        may_be_fewer: bool,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Result<(), UnitRefused> {
        let now_ns = self.clock.at(now_ns);
        match self.fleet.units().state(unit) {
            UnitState::Active if self.fleet.units().has_other_active(unit) => {
                let mut step = Step::new(now_ns, self.counters, outputs);
                self.fleet.drain(unit, &mut step);
                self.fleet.excuse(unit, may_be_fewer);
                self.fleet.hold_minimum(&mut step);
                self.clock.wake(now_ns);
                Ok(())
            }
            UnitState::Active => Err(UnitRefused::Last(unit)),
            _ if !self.fleet.units().has(unit) => Err(UnitRefused::Unknown(unit)),
            _ => Err(UnitRefused::NotActive(unit)),
        }
    }

    /// Makes a draining unit active again; the flows that have left stay where they are.
    ///
    /// # Errors
    ///
    /// If it is not draining. A stopped unit starts when it is needed.
    pub fn resume(&mut self, now_ns: u64, unit: UnitId) -> Result<(), UnitRefused> {
        let now_ns = self.clock.at(now_ns);
        match self.fleet.units().state(unit) {
            UnitState::Draining => {
                self.counters.buckets_moved += self.fleet.resume(unit, now_ns);
                self.owners.level_from_now();
                self.owners.renew_scarce_targets();
                self.clock.wake(now_ns);
            }
            UnitState::Active if self.fleet.units().is_leaving(unit) => self.fleet.set_leaving(unit, false),
            _ if !self.fleet.units().has(unit) => return Err(UnitRefused::Unknown(unit)),
            _ => return Err(UnitRefused::NotDraining(unit)),
        }
        self.counters.units_resumed += 1;
        event::unit_resumed(unit.0.into());
        Ok(())
    }

    /// A unit has crashed: its flows end, and it never runs again; a replacement has another
    /// number. A flow of another unit that waits for a state of the lost one ends once its owner
    /// [reports](crate::message::FromUnit::Lost) it. Units are started if fewer than `units_min`
    /// are left.
    pub fn lose(&mut self, now_ns: u64, unit: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        let now_ns = self.clock.at(now_ns);
        let mut step = Step::new(now_ns, self.counters, outputs);
        if self.fleet.lose(unit, &mut step) {
            self.owners.recoveries(self.fleet.units()).lose_all_of(unit, &mut step);
            self.fleet.hold_minimum(&mut step);
            self.clock.wake(now_ns);
        }
    }

    /// Notes that a unit is silent, or no longer. While it is suspect, its flows stay, and new ones
    /// go to other units, if there are any.
    pub fn suspect(&mut self, unit: UnitId, is_suspect: bool) {
        if self.fleet.units().has(unit) {
            let now_ns = self.clock.now_ns();
            self.counters.buckets_moved += self.fleet.suspect(now_ns, unit, is_suspect);
        }
    }

    /// A unit that was drained never runs again; a replacement has another number. Does nothing if
    /// it still runs.
    pub fn retire(&mut self, unit: UnitId) {
        self.fleet.retire(unit);
    }
}
