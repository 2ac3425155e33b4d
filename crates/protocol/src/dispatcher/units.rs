//! What units there are, and what each is doing.

use crate::message::UnitId;

/// What a unit is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitState {
    /// Nothing: it does not run.
    #[default]
    Off,
    /// It was ordered to start, and is not ready.
    Starting,
    /// It gets packets.
    Active,
    /// It gets no packets, and hands over its flows.
    Draining,
}

/// A unit, as its dispatcher sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitStatus {
    /// Which one.
    pub unit: UnitId,
    /// What it is doing.
    pub state: UnitState,
    /// What it was sent within the meter's window, in bits per second (S39).
    pub load_bps: f32,
    /// Flows that it owns.
    pub flows: u32,
}

/// All units, by number.
pub(crate) struct Units {
    units: Vec<Unit>,
    /// Those that are active, in order.
    active: Vec<UnitId>,
    starting: u16,
    draining: u16,
    first_off: Option<UnitId>,
}

#[derive(Clone, Copy, Default)]
struct Unit {
    state: UnitState,
    flows: u32,
    /// When it was last told to hand over its flows; none: it is to be told again.
    asked_ns: Option<u64>,
}

impl Units {
    pub fn new(units_max: u16) -> Units {
        let mut units = Units {
            units: vec![Unit::default(); usize::from(units_max)],
            active: Vec::with_capacity(usize::from(units_max)),
            starting: 0,
            draining: 0,
            first_off: None,
        };
        units.count();
        units
    }

    /// Every unit's number.
    pub fn all(&self) -> impl Iterator<Item = UnitId> + use<> {
        // As many as a u16 says: see `new`.
        (0..self.units.len() as u16).map(UnitId)
    }

    /// Those that are active, in order.
    #[inline]
    pub fn active(&self) -> &[UnitId] {
        &self.active
    }

    /// A unit's state; off if there is no such unit.
    #[inline]
    pub fn state(&self, unit: UnitId) -> UnitState {
        self.units.get(unit.index()).map_or(UnitState::Off, |unit| unit.state)
    }

    #[inline]
    pub fn is_active(&self, unit: UnitId) -> bool {
        self.state(unit) == UnitState::Active
    }

    /// How many are starting.
    pub fn starting(&self) -> u16 {
        self.starting
    }

    /// How many are draining.
    pub fn draining(&self) -> u16 {
        self.draining
    }

    /// The first one that is off.
    pub fn first_off(&self) -> Option<UnitId> {
        self.first_off
    }

    pub fn set_state(&mut self, unit: UnitId, state: UnitState) {
        self.units[unit.index()].state = state;
        self.count();
    }

    /// The first so many are active.
    pub fn activate_first(&mut self, count: u16) {
        self.units.iter_mut().take(count.into()).for_each(|unit| unit.state = UnitState::Active);
        self.count();
    }

    fn count(&mut self) {
        let count = |state| self.units.iter().filter(|unit| unit.state == state).count() as u16;
        (self.starting, self.draining) = (count(UnitState::Starting), count(UnitState::Draining));
        self.first_off = self.all().find(|&unit| self.state(unit) == UnitState::Off);
        self.active.clear();
        let active = (0..).zip(&self.units).filter(|(_, unit)| unit.state == UnitState::Active);
        self.active.extend(active.map(|(number, _)| UnitId(number)));
    }

    /// Flows that the unit owns.
    pub fn flows(&self, unit: UnitId) -> u32 {
        self.units[unit.index()].flows
    }

    /// The unit owns one flow more.
    #[inline]
    pub fn gains(&mut self, unit: UnitId) {
        self.units[unit.index()].flows += 1;
    }

    /// The unit owns one flow less.
    #[inline]
    pub fn loses(&mut self, unit: UnitId) {
        self.units[unit.index()].flows -= 1; // It owned that one.
    }

    /// When the unit was last told to hand over its flows; none: it is to be told again.
    pub fn asked_ns(&self, unit: UnitId) -> Option<u64> {
        self.units[unit.index()].asked_ns
    }

    pub fn set_asked_ns(&mut self, unit: UnitId, at_ns: Option<u64>) {
        self.units[unit.index()].asked_ns = at_ns;
    }
}
