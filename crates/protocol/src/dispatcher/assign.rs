//! Which unit gets a flowlet (Pseudocode 1 l.26-39), and which ones get a copy of its state
//! (Pseudocode 2).

use crate::message::UnitId;
use packet::split_mix;

use crate::dispatcher::config::{Config, TargetChoice, UnitChoice};
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::load::Meter;
use crate::dispatcher::loads::{Loads, Room};
use crate::dispatcher::sampler::WeightedSampler;

/// Chooses units by their loads.
pub(crate) struct Assigner {
    choice: UnitChoice,
    capacity_bps: f32,
    lambda: f32,
    targets: TargetChoice,
    targets_count: usize,
    random: u64,
    /// Of the active units, in order (S56).
    lottery: WeightedSampler,
}

/// A unit that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitPick {
    pub unit: UnitId,
    /// Whether it has room for what is expected; else it is the least loaded one (S44).
    pub fits: bool,
}

impl Assigner {
    pub fn new(config: &Config) -> Assigner {
        Assigner {
            choice: config.choice,
            capacity_bps: config.capacity_bps as f32,
            lambda: config.lambda,
            targets: config.targets,
            targets_count: config.targets_count.into(),
            random: config.seed,
            lottery: WeightedSampler::with_capacity(config.units_max.into()),
        }
    }

    /// These units are active from now on.
    pub fn set_active(&mut self, active: &[UnitId]) {
        if self.targets == TargetChoice::Weighted {
            self.lottery.set(active.iter().map(|unit| 1.0 / (f64::from(unit.0) + 1.0)));
        }
    }

    /// The unit for what is expected to bring so much, given all units' loads and those that have
    /// the state. None if no unit is active.
    pub fn choose(
        &self,
        loads: &Loads,
        estimate_bps: f32,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<UnitPick> {
        self.choose_like(self.choice, loads, estimate_bps, having_state, active)
    }

    /// The same, for a given manner of choosing.
    pub fn choose_like(
        &self,
        choice: UnitChoice,
        loads: &Loads,
        estimate_bps: f32,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<UnitPick> {
        let room = Room { estimate_bps, capacity_bps: self.capacity_bps };
        let unit = match choice {
            UnitChoice::MostUtilised => self.most_utilised(loads, room, having_state),
            UnitChoice::LowestId => self.lowest(loads, room, having_state, active),
            UnitChoice::LeastLoaded => self.least_loaded(loads, room, having_state),
        };
        if let Some(unit) = unit {
            return Some(UnitPick { unit, fits: true });
        }
        Some(UnitPick { unit: loads.least_loaded()?, fits: false })
    }

    /// The highest score wins, and of equal ones the lowest number (S36). Scores are compared in
    /// bits per second: load + lambda * P * capacity.
    fn most_utilised(
        &self,
        loads: &Loads,
        room: Room,
        having_state: impl Iterator<Item = UnitId>,
    ) -> Option<UnitId> {
        let (mut best, mut score) = loads.fullest(room)?;
        let bonus = self.lambda * self.capacity_bps;
        having_state.for_each(|unit| {
            let Some(load) = loads.get(unit).filter(|&load| room.is_at(load)) else {
                return;
            };
            if load + bonus > score || (load + bonus == score && unit < best) {
                (best, score) = (unit, load + bonus);
            }
        });
        Some(best)
    }

    /// The lowest score wins: load - lambda * P * capacity; and of equal ones the lowest number.
    fn least_loaded(
        &self,
        loads: &Loads,
        room: Room,
        having_state: impl Iterator<Item = UnitId>,
    ) -> Option<UnitId> {
        let mut best = loads.least_loaded()?;
        let mut score = loads.get(best).filter(|&load| room.is_at(load))?;
        let bonus = self.lambda * self.capacity_bps;
        having_state.for_each(|unit| {
            let Some(load) = loads.get(unit).filter(|&load| room.is_at(load)) else {
                return;
            };
            if load - bonus < score || (load - bonus == score && unit < best) {
                (best, score) = (unit, load - bonus);
            }
        });
        Some(best)
    }

    /// The lowest number that has room; or the lowest of those that have the state, if it is near
    /// enough.
    fn lowest(
        &self,
        loads: &Loads,
        room: Room,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<UnitId> {
        let first = loads.first_with_room(room)?;
        let has_room = |unit: &UnitId| loads.get(*unit).is_some_and(|load| room.is_at(load));
        let with_state = having_state.filter(has_room).min();
        let is_near = |unit: &UnitId| f32::from(unit.0 - first.0) < self.lambda * active as f32;
        Some(with_state.filter(is_near).unwrap_or(first))
    }

    /// The units that the state of a flowlet of `owner` is to be copied to (S54).
    pub fn targets(
        &mut self,
        owner: UnitId,
        estimate_bps: f32,
        active: &[UnitId],
        meter: &mut Meter,
    ) -> TargetList {
        let others = || active.iter().copied().filter(|&unit| unit != owner);
        let mut list = TargetList::NONE;
        match self.targets {
            TargetChoice::None => {}
            TargetChoice::All => list = TargetList::ALL,
            TargetChoice::First => others().take(self.targets_count).for_each(|unit| list.push(unit)),
            TargetChoice::Weighted if are_at_most(self.targets_count, owner, active) => {
                others().for_each(|unit| list.push(unit));
            }
            TargetChoice::Weighted => self.draw(owner, active, &mut list),
            TargetChoice::LeastLoaded => {
                meter.loads().least(self.targets_count, |unit| unit != owner, &mut list);
            }
            TargetChoice::Predicted => {
                let chosen = meter.without(owner, |loads| {
                    self.choose(loads, estimate_bps, std::iter::empty(), active.len())
                });
                chosen.into_iter().for_each(|chosen| list.push(chosen.unit));
            }
        }
        list
    }

    /// Draws units by their weights until there are K different ones (S56). There are more than K
    /// others.
    fn draw(&mut self, owner: UnitId, active: &[UnitId], list: &mut TargetList) {
        for _ in 0..DRAWS_PER_TARGET * self.targets_count {
            if list.len() == self.targets_count {
                return;
            }
            let place = self.lottery.draw(split_mix(&mut self.random));
            if let Some(&unit) = active.get(place).filter(|&&unit| unit != owner && !list.contains(unit)) {
                list.push(unit);
            }
        }
        // Hardly ever, and so that it ends for certain: the rest are those with the highest
        // weights.
        for &unit in active {
            if list.len() < self.targets_count && unit != owner && !list.contains(unit) {
                list.push(unit);
            }
        }
    }
}

/// Whether at most `count` of the active units are others than the owner.
fn are_at_most(count: usize, owner: UnitId, active: &[UnitId]) -> bool {
    active.len() <= count || active.len() == count + 1 && active.contains(&owner)
}

/// Units are drawn so many times, for each that is wanted.
const DRAWS_PER_TARGET: usize = 32;

#[cfg(test)]
mod tests;
