//! The choice of a unit for a flowlet (Pseudocode 1 l.26-39), and of units for replicas of its
//! state (Pseudocode 2).

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
    /// Weights of the active units, in order (S56).
    lottery: WeightedSampler,
}

/// A chosen unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitPick {
    pub unit: UnitId,
    /// It has room for the estimate; otherwise it is the least loaded one (S44).
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

    /// Sets the active units.
    pub fn set_active(&mut self, active: &[UnitId]) {
        if self.targets == TargetChoice::Weighted {
            self.lottery.set(active.iter().map(|unit| 1.0 / (f64::from(unit.0) + 1.0)));
        }
    }

    /// Chooses the unit for a flowlet with this estimated rate, given all loads and the units that
    /// have the state. `None` if no unit is active.
    pub fn choose(
        &self,
        loads: &Loads,
        estimate_bps: f32,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<UnitPick> {
        self.choose_like(self.choice, loads, estimate_bps, having_state, active)
    }

    /// The same for a given choice.
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
            UnitChoice::LeastLoaded | UnitChoice::RoundRobin => self.least_loaded(loads, room, having_state),
        };
        if let Some(unit) = unit {
            return Some(UnitPick { unit, fits: true });
        }
        Some(UnitPick { unit: loads.least_loaded()?, fits: false })
    }

    /// The highest score wins, of equal ones the lowest number (S36). Scores are in bits per
    /// second: load + lambda * P * capacity.
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

    /// The lowest score wins: load - lambda * P * capacity; of equal ones the lowest number.
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

    /// The lowest number with room; or the lowest with the state, if it is near enough.
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

    /// Chooses the targets for the state of a flowlet of `owner` (S54).
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
                let mut hidden = TargetList::NONE;
                hidden.push(owner);
                let hidden_bps = meter.hide(&hidden);
                let chosen = self.choose(meter.loads(), estimate_bps, std::iter::empty(), active.len());
                meter.show(&hidden, hidden_bps);
                chosen.into_iter().for_each(|chosen| list.push(chosen.unit));
            }
        }
        list
    }

    /// Draws units by weight until there are K different ones (S56). There are more than K others.
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
        // Hardly ever, and so that it certainly ends: fills up with the highest weights.
        for &unit in active {
            if list.len() < self.targets_count && unit != owner && !list.contains(unit) {
                list.push(unit);
            }
        }
    }
}

/// Returns true if at most `count` active units are others than the owner.
fn are_at_most(count: usize, owner: UnitId, active: &[UnitId]) -> bool {
    active.len() <= count || active.len() == count + 1 && active.contains(&owner)
}

/// Limit on the draws per target.
const DRAWS_PER_TARGET: usize = 32;

#[cfg(test)]
mod tests;
