//! Units that start, and the numbers that must run.

use telemetry::event;

use super::Fleet;
use crate::dispatcher::assign::UnitPick;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::UnitState;
use crate::message::UnitId;

impl Fleet {
    /// Counts the choice of a unit for a flowlet, and starts another one if it has no room (S42,
    /// S44), unless another rule applies.
    pub fn count_assignment(&mut self, chosen: UnitPick, step: &mut Step<'_>) {
        step.counters().assignments += 1;
        event::flow_assigned(chosen.unit.0.into(), chosen.fits);
        if !chosen.fits {
            step.counters().assignments_without_room += 1;
            self.start_for_room(step);
        }
    }

    /// Starts a unit for a flowlet without room (S42, S44), unless another rule applies.
    pub fn start_for_room(&mut self, step: &mut Step<'_>) {
        if self.starts_for_room {
            self.start_one(step);
        }
    }

    /// Starts the first unit that is off, and returns it, unless one is starting or nothing would
    /// reach it.
    pub fn start_one(&mut self, step: &mut Step<'_>) -> Option<UnitId> {
        if self.units.starting() > 0 { None } else { self.start_next(step) }
    }

    /// Starts units until `units_min` of them run or start, whatever the load. Those that leave do
    /// not count, those that an operator wants fewer do.
    pub fn hold_minimum(&mut self, step: &mut Step<'_>) {
        while self.units.held() < usize::from(self.units_min) {
            if self.start_next(step).is_none() {
                return;
            }
        }
    }

    /// Starts the first unit that is off, and returns it, unless nothing would reach it.
    fn start_next(&mut self, step: &mut Step<'_>) -> Option<UnitId> {
        let is_fixed = self.rss.as_ref().is_some_and(|rss| !rss.is_balanced());
        if is_fixed && !self.units.active().is_empty() {
            return None;
        }
        let unit = self.units.first_off()?;
        self.units.set_state(unit, UnitState::Starting);
        step.counters().units_started += 1;
        event::unit_started(unit.0.into(), self.units.active().len() as u64);
        step.push(DispatcherOutput::Start(unit));
        Some(unit)
    }

    /// Returns true if more units are active than must be.
    pub fn has_more_than_minimum(&self) -> bool {
        self.units.active().len() > usize::from(self.units_min)
    }

    /// Returns true if one unit less would have at most this load on average, in bits per second,
    /// and that unit may go.
    pub fn is_one_too_many(&self, below_bps: f32) -> bool {
        let active = self.units.active();
        let total_bps: f32 = active.iter().map(|&unit| self.meter.sustained_bps(unit)).sum();
        self.has_more_than_minimum() && total_bps / (active.len() - 1) as f32 <= below_bps
    }

    /// Returns true if units change without packets.
    pub fn has_more_to_do(&self) -> bool {
        self.units.draining() > 0
            || self.has_more_than_minimum()
            || self.units.active().iter().any(|&unit| self.meter.sustained_bps(unit) > 0.0)
    }
}
