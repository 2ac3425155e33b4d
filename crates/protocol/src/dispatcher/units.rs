//! The units and their states.

use crate::message::UnitId;

/// The state of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitState {
    /// It does not run.
    #[default]
    Off,
    /// It was ordered to start, and is not ready.
    Starting,
    /// It gets packets.
    Active,
    /// It gets no packets, and hands over its flows.
    Draining,
    /// It has crashed, with the flows that it had.
    Lost,
}

impl UnitState {
    /// Returns the name, for the timeline.
    pub(crate) fn name(self) -> &'static str {
        match self {
            UnitState::Off => "off",
            UnitState::Starting => "starting",
            UnitState::Active => "active",
            UnitState::Draining => "draining",
            UnitState::Lost => "lost",
        }
    }
}

/// A unit, as its dispatcher sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitStatus {
    /// The unit.
    pub unit: UnitId,
    /// Its state.
    pub state: UnitState,
    /// Its load over the meter's window, in bits per second (S39).
    pub load_bps: f32,
    /// Number of flows that it owns.
    pub flows: u32,
}

/// All units, by number.
pub(crate) struct Units {
    units: Vec<Unit>,
    /// The active units that take new flows, in order: all of them if all are suspect.
    active: Vec<UnitId>,
    /// Units that are active, suspect or not.
    running: u16,
    starting: u16,
    draining: u16,
    leaving: u16,
    excused: u16,
    first_off: Option<UnitId>,
}

#[derive(Clone, Copy, Default)]
struct Unit {
    state: UnitState,
    /// It runs or starts, and drains as soon as another unit can take its flows.
    is_leaving: bool,
    /// An operator has drained it and wants no other one in its place.
    is_excused: bool,
    /// It is silent.
    is_suspect: bool,
    /// Time of the last `Drain`; `None` if it must be sent again.
    asked_ns: Option<u64>,
    /// Limit on the reports that may still come: one for each `Drain`.
    reports: u32,
    /// Of these, reports for cancelled drains.
    reports_stale: u32,
}

impl Units {
    pub fn new(units_max: u16) -> Units {
        let mut units = Units {
            units: vec![Unit::default(); usize::from(units_max)],
            active: Vec::with_capacity(usize::from(units_max)),
            running: 0,
            starting: 0,
            draining: 0,
            leaving: 0,
            excused: 0,
            first_off: None,
        };
        units.count();
        units
    }

    /// Returns all units.
    pub fn all(&self) -> impl Iterator<Item = UnitId> + use<> {
        // There are no more than `u16` can count: see `new`.
        (0..self.units.len() as u16).map(UnitId)
    }

    /// Returns true if there is such a unit, whatever its state.
    pub fn has(&self, unit: UnitId) -> bool {
        unit.index() < self.units.len()
    }

    /// Returns the active units that take new flows, in order.
    #[inline]
    pub fn active(&self) -> &[UnitId] {
        &self.active
    }

    /// Returns a unit's state; off if there is no such unit.
    #[inline]
    pub fn state(&self, unit: UnitId) -> UnitState {
        self.units.get(unit.index()).map_or(UnitState::Off, |unit| unit.state)
    }

    #[inline]
    pub fn is_active(&self, unit: UnitId) -> bool {
        self.state(unit) == UnitState::Active
    }

    /// Returns true if a unit is active, and not silent.
    #[inline]
    pub fn is_sound(&self, unit: UnitId) -> bool {
        self.units.get(unit.index()).is_some_and(|unit| unit.state == UnitState::Active && !unit.is_suspect)
    }

    /// Returns true if an active unit is silent, and others take new flows.
    #[inline]
    pub fn is_passed_over(&self, unit: UnitId) -> bool {
        let is_suspect = self.units.get(unit.index()).is_some_and(|unit| unit.is_suspect);
        is_suspect && self.is_active(unit) && !self.active.contains(&unit)
    }

    /// Notes that a unit is silent, or no longer.
    pub fn set_suspect(&mut self, unit: UnitId, is_suspect: bool) {
        self.units[unit.index()].is_suspect = is_suspect;
        self.count();
    }

    /// Returns the number of starting units.
    pub fn starting(&self) -> u16 {
        self.starting
    }

    /// Returns the number of draining units.
    pub fn draining(&self) -> u16 {
        self.draining
    }

    /// Returns the number of running and starting units that stay, plus the units that an operator
    /// has drained without replacement.
    pub fn held(&self) -> usize {
        usize::from(self.running + self.starting - self.leaving + self.excused)
    }

    /// Notes that an operator has drained a unit and wants no other one in its place, until it
    /// starts or works again.
    pub fn set_excused(&mut self, unit: UnitId, is_excused: bool) {
        self.units[unit.index()].is_excused = is_excused;
        self.count();
    }

    /// Returns true if the unit runs or starts, and drains as soon as another one can take its
    /// flows.
    pub fn is_leaving(&self, unit: UnitId) -> bool {
        self.units.get(unit.index()).is_some_and(|unit| unit.is_leaving)
    }

    /// Notes that a unit that runs or starts drains as soon as another one can take its flows, or
    /// that it stays.
    pub fn set_leaving(&mut self, unit: UnitId, is_leaving: bool) {
        self.units[unit.index()].is_leaving = is_leaving;
        self.count();
    }

    /// Returns the first leaving unit, if another active one can take its flows.
    pub fn first_to_drain(&self) -> Option<UnitId> {
        if self.leaving == 0 {
            return None;
        }
        let stays = |unit: &&UnitId| !self.is_leaving(**unit);
        self.active.iter().find(stays)?;
        self.active.iter().copied().find(|&unit| self.is_leaving(unit))
    }

    /// Returns the draining units, in order.
    pub fn all_draining(&self) -> impl Iterator<Item = UnitId> + '_ {
        let all = if self.draining > 0 { Some(self.all()) } else { None };
        all.into_iter().flatten().filter(|&unit| self.state(unit) == UnitState::Draining)
    }

    /// Returns true if another unit is active, and stays.
    pub fn has_other_active(&self, unit: UnitId) -> bool {
        self.active.iter().any(|&active| active != unit && !self.is_leaving(active))
    }

    /// Returns the first unit that is off.
    pub fn first_off(&self) -> Option<UnitId> {
        self.first_off
    }

    pub fn set_state(&mut self, unit: UnitId, state: UnitState) {
        let changed = &mut self.units[unit.index()];
        changed.state = state;
        changed.is_leaving &= matches!(state, UnitState::Starting | UnitState::Active);
        changed.is_excused &= matches!(state, UnitState::Draining | UnitState::Off);
        self.count();
    }

    /// Makes the first `count` units active.
    pub fn activate_first(&mut self, count: u16) {
        self.units.iter_mut().take(count.into()).for_each(|unit| unit.state = UnitState::Active);
        self.count();
    }

    fn count(&mut self) {
        let count = |state| self.units.iter().filter(|unit| unit.state == state).count() as u16;
        (self.starting, self.draining) = (count(UnitState::Starting), count(UnitState::Draining));
        self.running = count(UnitState::Active);
        self.leaving = self.units.iter().filter(|unit| unit.is_leaving).count() as u16;
        self.excused = self.units.iter().filter(|unit| unit.is_excused).count() as u16;
        self.first_off = self.all().find(|&unit| self.state(unit) == UnitState::Off);
        self.active.clear();
        let active = || (0..).zip(&self.units).filter(|(_, unit)| unit.state == UnitState::Active);
        self.active.extend(active().filter(|(_, unit)| !unit.is_suspect).map(|(number, _)| UnitId(number)));
        if self.active.is_empty() {
            self.active.extend(active().map(|(number, _)| UnitId(number)));
        }
    }

    /// Returns the time of the last `Drain`; `None` if it must be sent again.
    pub fn asked_ns(&self, unit: UnitId) -> Option<u64> {
        self.units[unit.index()].asked_ns
    }

    /// Notes the time of a `Drain`, or that it must be sent again.
    pub fn set_asked_ns(&mut self, unit: UnitId, at_ns: Option<u64>) {
        let unit = &mut self.units[unit.index()];
        unit.asked_ns = at_ns;
        unit.reports += u32::from(at_ns.is_some());
    }

    /// Reports that are still on their way answer a drain that has ended.
    pub fn expect_stale_reports(&mut self, unit: UnitId) {
        let unit = &mut self.units[unit.index()];
        unit.reports_stale = unit.reports;
    }

    /// Takes a report of a unit that drains. Returns true if it may answer a drain that has ended.
    pub fn take_report(&mut self, unit: UnitId) -> bool {
        let Some(unit) = self.units.get_mut(unit.index()) else { return true };
        unit.reports = unit.reports.saturating_sub(1);
        let is_stale = unit.reports_stale > 0;
        unit.reports_stale = unit.reports_stale.saturating_sub(1);
        is_stale
    }
}
