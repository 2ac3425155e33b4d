//! The units' loads, prepared for a choice.

use crate::message::UnitId;

use crate::dispatcher::flow::TargetList;
use crate::dispatcher::load_index::LoadIndex;

/// Number of units compared in one step.
const LANES: usize = 16;

/// All units' loads, in bits per second; infinite for inactive units, which thus never have room.
pub(crate) struct Loads {
    /// By number.
    bps: Vec<f32>,
    /// The active units, by their loads.
    shelves: LoadIndex,
}

/// The condition for a candidate (S35).
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub estimate_bps: f32,
    pub capacity_bps: f32,
}

impl Room {
    /// Returns true if a unit with this load has room. Rounding keeps that monotone in the load.
    #[inline(always)]
    pub fn is_at(self, load_bps: f32) -> bool {
        self.estimate_bps + load_bps < self.capacity_bps
    }
}

impl Loads {
    /// Creates the loads of this many units of this capacity, none of them active.
    pub fn new(units_max: u16, capacity_bps: f32) -> Loads {
        let units = usize::from(units_max);
        Loads { bps: vec![f32::INFINITY; units], shelves: LoadIndex::new(units, capacity_bps) }
    }

    /// Returns a unit's load.
    #[inline]
    pub fn of(&self, unit: UnitId) -> f32 {
        self.get(unit).unwrap_or(f32::INFINITY)
    }

    /// Returns a unit's load; `None` if there is no such unit.
    #[inline]
    pub fn get(&self, unit: UnitId) -> Option<f32> {
        self.bps.get(unit.index()).copied()
    }

    /// Sets the load of a unit, which must exist.
    #[inline]
    pub fn set(&mut self, unit: UnitId, load_bps: f32) {
        let old_bps = std::mem::replace(&mut self.bps[unit.index()], load_bps);
        let (from, to) = (self.shelves.of(old_bps), self.shelves.of(load_bps));
        let (was_active, is_active) = (old_bps < f32::INFINITY, load_bps < f32::INFINITY);
        if from == to && was_active == is_active {
            return;
        }
        if was_active {
            self.shelves.take(unit, from);
        }
        if is_active {
            self.shelves.put(unit, to);
        }
    }

    /// Returns the most loaded unit with room, of equal ones the lowest number; and its load.
    pub fn fullest(&self, room: Room) -> Option<(UnitId, f32)> {
        if room.estimate_bps >= room.capacity_bps {
            return None;
        }
        // Rounding may let a little more fit.
        let mut from = self.shelves.of(room.capacity_bps - room.estimate_bps) + 1;
        while let Some(shelf) = self.shelves.highest(from) {
            let fitting = self.on(shelf).filter(|&(_, load)| room.is_at(load));
            let best = fitting.reduce(|a, b| if b.1 > a.1 || b.1 == a.1 && b.0 < a.0 { b } else { a });
            if best.is_some() {
                return best;
            }
            from = shelf.checked_sub(1)?;
        }
        None
    }

    /// Returns the unit with the lowest number that has room.
    pub fn first_with_room(&self, room: Room) -> Option<UnitId> {
        // A whole group at a time, so that several are compared in one step.
        let mut groups = self.bps.chunks(LANES);
        let group =
            groups.position(|group| group.iter().fold(false, |some, &load| some | room.is_at(load)))?;
        let place = self.bps[group * LANES..].iter().position(|&load| room.is_at(load))?;
        Some(UnitId((group * LANES + place) as u16))
    }

    /// Returns the least loaded active unit, of equal ones the lowest number.
    pub fn least_loaded(&self) -> Option<UnitId> {
        let least = self.on(self.shelves.lowest(0)?).reduce(|a, b| if is_before(b, a) { b } else { a });
        least.map(|(unit, _)| unit)
    }

    /// Pushes the `count` least loaded active candidates, of equal ones the lowest numbers first.
    pub fn least(&self, count: usize, is_candidate: impl Fn(UnitId) -> bool, list: &mut TargetList) {
        let mut least = [(UnitId(0), 0.0); crate::dispatcher::TARGETS_COUNT_MAX as usize];
        let (count, mut found, mut from) = (count.min(least.len()), 0, 0);
        while let Some(shelf) = self.shelves.lowest(from).filter(|_| found < count) {
            for one in self.on(shelf).filter(|&(unit, _)| is_candidate(unit)) {
                let place = least[..found].partition_point(|&other| is_before(other, one));
                if place < count {
                    found = (found + 1).min(count);
                    least[place..found].rotate_right(1);
                    least[place] = one;
                }
            }
            from = shelf + 1;
        }
        least[..found].iter().for_each(|&(unit, _)| list.push(unit));
    }

    /// Returns the units of a shelf, with their loads.
    #[inline(always)]
    fn on(&self, shelf: usize) -> impl Iterator<Item = (UnitId, f32)> + '_ {
        self.shelves.units(shelf).map(|unit| (unit, self.bps[unit.index()]))
    }
}

/// Returns true if one is less loaded than the other, or as much with a lower number.
#[inline(always)]
fn is_before(one: (UnitId, f32), other: (UnitId, f32)) -> bool {
    one.1 < other.1 || one.1 == other.1 && one.0 < other.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain list, whatever was set before.
        #[test]
        fn it_is_a_list(
            units in 1u16..600,
            // Equal ones, and different ones on one shelf.
            sets in prop::collection::vec(
                (any::<u16>(), prop_oneof![(0u8..150).prop_map(f32::from), 0.0f32..0.1, 59.9f32..60.1, Just(f32::INFINITY)]),
                0..900,
            ),
            estimate in prop_oneof![(0u8..100).prop_map(f32::from), 39.9f32..40.1],
            count in 0usize..12,
            owner: u16,
        ) {
            let mut loads = Loads::new(units, 100.0);
            let mut list = vec![f32::INFINITY; units.into()];
            for (unit, load) in sets {
                list[usize::from(unit % units)] = load;
                loads.set(UnitId(unit % units), load);
            }
            let room = Room { estimate_bps: estimate, capacity_bps: 100.0 };
            let numbered = || (0u16..).map(UnitId).zip(list.iter().copied());
            let with_room = || numbered().filter(|&(_, load)| estimate + load < 100.0);
            let fullest = with_room().reduce(|best, next| if next.1 > best.1 { next } else { best });
            prop_assert_eq!(loads.fullest(room), fullest);
            prop_assert_eq!(loads.first_with_room(room), with_room().next().map(|(unit, _)| unit));
            let mut active: Vec<_> = numbered().filter(|(_, load)| load.is_finite()).collect();
            active.sort_by(|a, b| a.1.total_cmp(&b.1));
            prop_assert_eq!(loads.least_loaded(), active.first().map(|&(unit, _)| unit));
            let mut least = TargetList::NONE;
            loads.least(count, |unit| unit != UnitId(owner % units), &mut least);
            let others = active.iter().map(|&(unit, _)| unit).filter(|&unit| unit != UnitId(owner % units));
            prop_assert!(least.units().eq(others.take(count.min(11))));
        }
    }
}
