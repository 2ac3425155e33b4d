//! Which unit gets a flowlet (Pseudocode 1 l.26-39), and which ones get a copy of its state (Pseudocode 2).

use packet::split_mix;
use proto::UnitId;

use crate::config::{Choice, Config, TargetChoice};
use crate::flow::TargetList;
use crate::load::{LANES, Meter};

/// Chooses units by their loads.
pub(crate) struct Assigner {
    choice: Choice,
    capacity_bps: f32,
    lambda: f32,
    targets: TargetChoice,
    targets_count: usize,
    random: u64,
    /// For each active unit, in order, the sum of the weights up to its own (S56).
    weights: Vec<f32>,
}

/// A unit that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
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
            weights: Vec::with_capacity(config.units_max.into()),
        }
    }

    /// These units are active from now on.
    pub fn set_active(&mut self, active: &[UnitId]) {
        self.weights.clear();
        let mut sum = 0.0;
        self.weights.extend(active.iter().map(|unit| {
            sum += 1.0 / (f32::from(unit.0) + 1.0);
            sum
        }));
    }

    /// The unit for what is expected to bring so much, given all units' loads (infinite: not active) and those that have the
    /// state. None if no unit is active.
    pub fn choose(
        &self,
        loads_bps: &[f32],
        estimate_bps: f32,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<Chosen> {
        self.choose_like(self.choice, loads_bps, estimate_bps, having_state, active)
    }

    /// The same, for a given manner of choosing.
    pub fn choose_like(
        &self,
        choice: Choice,
        loads_bps: &[f32],
        estimate_bps: f32,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<Chosen> {
        let room = Room { estimate_bps, capacity_bps: self.capacity_bps };
        let unit = match choice {
            Choice::MostUtilised => self.most_utilised(loads_bps, room, having_state),
            Choice::LowestId => self.lowest(loads_bps, room, having_state, active),
        };
        if let Some(unit) = unit {
            return Some(Chosen { unit, fits: true });
        }
        Some(Chosen { unit: least_loaded(loads_bps)?, fits: false })
    }

    /// The highest score wins, and of equal ones the lowest number (S36). Scores are compared in bits per second: load +
    /// lambda * P * capacity.
    fn most_utilised(
        &self,
        loads_bps: &[f32],
        room: Room,
        having_state: impl Iterator<Item = UnitId>,
    ) -> Option<UnitId> {
        let (mut best, mut score) = fullest(loads_bps, room)?;
        let bonus = self.lambda * self.capacity_bps;
        for unit in having_state {
            let Some(&load) = loads_bps.get(unit.index()).filter(|&&load| room.is_at(load)) else {
                continue;
            };
            if load + bonus > score || (load + bonus == score && unit < best) {
                (best, score) = (unit, load + bonus);
            }
        }
        Some(best)
    }

    /// The lowest number that has room; or the lowest of those that have the state, if it is near enough.
    fn lowest(
        &self,
        loads_bps: &[f32],
        room: Room,
        having_state: impl Iterator<Item = UnitId>,
        active: usize,
    ) -> Option<UnitId> {
        let first = first_with_room(loads_bps, room)?;
        let has_room = |unit: &UnitId| loads_bps.get(unit.index()).is_some_and(|&load| room.is_at(load));
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
            TargetChoice::Weighted if others().take(self.targets_count + 1).count() <= self.targets_count => {
                others().for_each(|unit| list.push(unit));
            }
            TargetChoice::Weighted => self.draw(owner, active, &mut list),
            TargetChoice::LeastLoaded => {
                least(self.targets_count, others(), meter.loads_bps(), &mut list);
            }
            TargetChoice::Predicted => {
                let chosen = meter.without(owner, |loads_bps| {
                    self.choose(loads_bps, estimate_bps, std::iter::empty(), active.len())
                });
                chosen.into_iter().for_each(|chosen| list.push(chosen.unit));
            }
        }
        list
    }

    /// Draws units by their weights until there are K different ones (S56). There are more than K others.
    fn draw(&mut self, owner: UnitId, active: &[UnitId], list: &mut TargetList) {
        let sum = self.weights.last().copied().unwrap_or_default();
        for _ in 0..DRAWS_PER_TARGET * self.targets_count {
            if list.len() == self.targets_count {
                return;
            }
            let at = unit_interval(split_mix(&mut self.random)) * sum;
            let place = self.weights.partition_point(|&up_to| up_to <= at);
            if let Some(&unit) = active.get(place).filter(|&&unit| unit != owner && !list.contains(unit)) {
                list.push(unit);
            }
        }
        // Hardly ever, and so that it ends for certain: the rest are those with the highest weights.
        for &unit in active {
            if list.len() < self.targets_count && unit != owner && !list.contains(unit) {
                list.push(unit);
            }
        }
    }
}

/// Units are drawn so many times, for each that is wanted.
const DRAWS_PER_TARGET: usize = 32;

/// From 0 up to, and without, 1.
fn unit_interval(random: u64) -> f32 {
    (random >> 40) as f32 / (1u64 << 24) as f32
}

/// What it takes for a unit to be a candidate (S35).
#[derive(Clone, Copy)]
struct Room {
    estimate_bps: f32,
    capacity_bps: f32,
}

impl Room {
    #[inline(always)]
    fn is_at(self, load_bps: f32) -> bool {
        self.estimate_bps + load_bps < self.capacity_bps
    }
}

/// The unit with the highest load that has room, the lowest number of equal ones; and that load. In two passes that are
/// each without branches within a group of units, so that they become vector instructions.
fn fullest(loads_bps: &[f32], room: Room) -> Option<(UnitId, f32)> {
    let mut tops = [-1.0f32; LANES];
    for group in loads_bps.as_chunks::<LANES>().0 {
        for (top, &load) in tops.iter_mut().zip(group) {
            let load = if room.is_at(load) { load } else { -1.0 };
            *top = if load > *top { load } else { *top };
        }
    }
    let top = tops.into_iter().fold(-1.0, f32::max);
    if top < 0.0 {
        return None;
    }
    Some((first(loads_bps, |load| load == top)?, top))
}

/// The unit with the lowest number that has room.
fn first_with_room(loads_bps: &[f32], room: Room) -> Option<UnitId> {
    first(loads_bps, |load| room.is_at(load))
}

/// The active unit with the lowest load, and of equal ones the lowest number.
fn least_loaded(loads_bps: &[f32]) -> Option<UnitId> {
    let mut lows = [f32::INFINITY; LANES];
    for group in loads_bps.as_chunks::<LANES>().0 {
        for (low, &load) in lows.iter_mut().zip(group) {
            *low = if load < *low { load } else { *low };
        }
    }
    let low = lows.into_iter().fold(f32::INFINITY, f32::min);
    if low.is_infinite() { None } else { first(loads_bps, |load| load == low) }
}

/// The first unit with such a load.
#[inline(always)]
fn first(loads_bps: &[f32], is_it: impl Fn(f32) -> bool) -> Option<UnitId> {
    let (groups, _) = loads_bps.as_chunks::<LANES>(); // There is no rest: see `Meter`.
    let at = groups.iter().position(|group| group.iter().fold(false, |any, &load| any | is_it(load)))?;
    let within = groups[at].iter().position(|&load| is_it(load))?;
    Some(UnitId((at * LANES + within) as u16))
}

/// Pushes the `count` least loaded of these units, of equal ones those with the lowest numbers first.
fn least(count: usize, units: impl Iterator<Item = UnitId>, loads_bps: &[f32], list: &mut TargetList) {
    let mut least = [(f32::INFINITY, UnitId(u16::MAX)); crate::TARGETS_COUNT_MAX as usize];
    let Some(last) = count.min(least.len()).checked_sub(1) else {
        return;
    };
    let mut found = 0;
    for unit in units {
        let load = loads_bps[unit.index()];
        if found > last && load >= least[last].0 {
            continue;
        }
        let place = least[..found.min(last + 1)].partition_point(|&(other, _)| other <= load);
        least[place..=last].rotate_right(1);
        least[place] = (load, unit);
        found += 1;
    }
    least[..found.min(last + 1)].iter().for_each(|&(_, unit)| list.push(unit));
}

#[cfg(test)]
mod tests;
