//! The units' loads, as choosing a unit reads them: many at once.

use proto::UnitId;

use crate::flow::TargetList;

/// Units that are looked at together.
const LANES: usize = 16;

/// All units' loads, in bits per second; infinite for those that are not active, which therefore never have room.
///
/// Of each group of units the highest and the lowest load are known, so that of a thousand units some sixty groups are looked
/// at, and within these only where some units of a group have room and others do not.
pub(crate) struct Loads {
    /// By number, padded with infinite ones.
    bps: Vec<[f32; LANES]>,
    /// Of each group the highest load that is finite, or infinite if none is; padded with infinite ones.
    highest: Vec<[f32; LANES]>,
    /// Of each group the lowest load; padded with infinite ones.
    lowest: Vec<[f32; LANES]>,
}

/// What it takes for a unit to be a candidate (S35).
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub estimate_bps: f32,
    pub capacity_bps: f32,
}

impl Room {
    /// A unit with a higher load has none if one with a lower load has none: rounding does not change that.
    #[inline(always)]
    pub fn is_at(self, load_bps: f32) -> bool {
        self.estimate_bps + load_bps < self.capacity_bps
    }
}

impl Loads {
    /// So many units, none of which is active.
    pub fn new(units_max: u16) -> Loads {
        let groups = usize::from(units_max).div_ceil(LANES);
        let off = [f32::INFINITY; LANES];
        let of_groups = vec![off; groups.div_ceil(LANES)];
        Loads { bps: vec![off; groups], highest: of_groups.clone(), lowest: of_groups }
    }

    /// A unit's load.
    #[inline]
    pub fn of(&self, unit: UnitId) -> f32 {
        self.get(unit).unwrap_or(f32::INFINITY)
    }

    /// A unit's load; none if there is no such unit.
    #[inline]
    pub fn get(&self, unit: UnitId) -> Option<f32> {
        Some(self.bps.get(unit.index() / LANES)?[unit.index() % LANES])
    }

    /// A unit's load is this from now on. The unit must be one of them.
    #[inline]
    pub fn set(&mut self, unit: UnitId, load_bps: f32) {
        let (at, lane) = (unit.index() / LANES, unit.index() % LANES);
        let old_bps = std::mem::replace(&mut self.bps[at][lane], load_bps);
        let highest = &mut self.highest[at / LANES][at % LANES];
        let lowest = &mut self.lowest[at / LANES][at % LANES];
        // Most often it goes up a little and is not the lowest, or down and is not the highest.
        if old_bps <= load_bps && load_bps < f32::INFINITY && old_bps > *lowest {
            *highest = greater(*highest, load_bps);
        } else if load_bps <= old_bps && old_bps < *highest {
            *lowest = less(*lowest, load_bps);
        } else {
            (*lowest, *highest) = bounds(&self.bps[at]);
        }
    }

    /// The unit with the highest load that has room, the lowest number of equal ones; and that load.
    pub fn fullest(&self, room: Room) -> Option<(UnitId, f32)> {
        let mut tops = [-1.0f32; LANES];
        for (at, (highest, lowest)) in self.highest.iter().zip(&self.lowest).enumerate() {
            let mut some_are_mixed = false;
            for lane in 0..LANES {
                let fits = room.is_at(highest[lane]);
                tops[lane] = greater(tops[lane], if fits { highest[lane] } else { -1.0 });
                some_are_mixed |= !fits & room.is_at(lowest[lane]);
            }
            if some_are_mixed {
                let is_mixed = |&lane: &usize| !room.is_at(highest[lane]) && room.is_at(lowest[lane]);
                for lane in (0..LANES).filter(is_mixed) {
                    for (top, &load) in tops.iter_mut().zip(&self.bps[at * LANES + lane]) {
                        *top = greater(*top, if room.is_at(load) { load } else { -1.0 });
                    }
                }
            }
        }
        let top = fold(tops, greater);
        if top < 0.0 {
            return None;
        }
        Some((self.first(|lowest, highest| lowest <= top && top <= highest, |load| load == top)?, top))
    }

    /// The unit with the lowest number that has room.
    pub fn first_with_room(&self, room: Room) -> Option<UnitId> {
        self.first(|lowest, _| room.is_at(lowest), |load| room.is_at(load))
    }

    /// The active unit with the lowest load, and of equal ones the lowest number.
    pub fn least_loaded(&self) -> Option<UnitId> {
        let lows = self.lowest.iter().fold([f32::INFINITY; LANES], |mut lows, lowest| {
            lows.iter_mut().zip(lowest).for_each(|(low, &load)| *low = less(*low, load));
            lows
        });
        let low = fold(lows, less);
        if low.is_infinite() {
            return None;
        }
        self.first(|lowest, _| lowest == low, |load| load == low)
    }

    /// Pushes the `count` least loaded active units but for `owner`, of equal ones those with the lowest numbers first.
    pub fn least(&self, count: usize, owner: UnitId, list: &mut TargetList) {
        let mut least = [(f32::INFINITY, UnitId(u16::MAX)); crate::TARGETS_COUNT_MAX as usize];
        let Some(last) = count.min(least.len()).checked_sub(1) else {
            return;
        };
        for (group, (at, &lowest)) in self.bps.iter().zip(self.lowest.as_flattened().iter().enumerate()) {
            if lowest >= least[last].0 {
                continue;
            }
            for (lane, &load) in group.iter().enumerate() {
                let unit = UnitId((at * LANES + lane) as u16);
                if load >= least[last].0 || unit == owner {
                    continue;
                }
                let place = least[..last].partition_point(|&(other, _)| other <= load);
                least[place..=last].rotate_right(1);
                least[place] = (load, unit);
            }
        }
        least.iter().filter(|(load, _)| load.is_finite()).for_each(|&(_, unit)| list.push(unit));
    }

    /// The first unit with such a load, in a group with such a lowest and such a highest one.
    #[inline(always)]
    fn first(&self, may_be_in: impl Fn(f32, f32) -> bool, is_it: impl Fn(f32) -> bool) -> Option<UnitId> {
        let bounds = self.lowest.as_flattened().iter().zip(self.highest.as_flattened());
        for (at, (group, (&lowest, &highest))) in self.bps.iter().zip(bounds).enumerate() {
            if !may_be_in(lowest, highest) {
                continue;
            }
            if let Some(lane) = group.iter().position(|&load| is_it(load)) {
                return Some(UnitId((at * LANES + lane) as u16));
            }
        }
        None
    }
}

/// The lowest load, and the highest of those that are finite, or infinite if none is.
fn bounds(group: &[f32; LANES]) -> (f32, f32) {
    let highest = fold(group.map(|load| if load < f32::INFINITY { load } else { -1.0 }), greater);
    (fold(*group, less), if highest < 0.0 { f32::INFINITY } else { highest })
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn less(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// All lanes to one, by halves: that takes vectors.
#[inline(always)]
fn fold(mut lanes: [f32; LANES], both: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = both(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
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
            sets in prop::collection::vec((any::<u16>(), prop_oneof![0u8..110, Just(u8::MAX)]), 0..900),
            estimate in 0u8..100,
            count in 0usize..12,
            owner: u16,
        ) {
            let mut loads = Loads::new(units);
            let mut list = vec![f32::INFINITY; units.into()];
            for (unit, load) in sets {
                let load = if load == u8::MAX { f32::INFINITY } else { load.into() };
                list[usize::from(unit % units)] = load;
                loads.set(UnitId(unit % units), load);
            }
            let room = Room { estimate_bps: estimate.into(), capacity_bps: 100.0 };
            let numbered = || (0u16..).map(UnitId).zip(list.iter().copied());
            let with_room = || numbered().filter(|&(_, load)| f32::from(estimate) + load < 100.0);
            let fullest = with_room().reduce(|best, next| if next.1 > best.1 { next } else { best });
            prop_assert_eq!(loads.fullest(room), fullest);
            prop_assert_eq!(loads.first_with_room(room), with_room().next().map(|(unit, _)| unit));
            let mut active: Vec<_> = numbered().filter(|(_, load)| load.is_finite()).collect();
            active.sort_by(|a, b| a.1.total_cmp(&b.1));
            prop_assert_eq!(loads.least_loaded(), active.first().map(|&(unit, _)| unit));
            let mut least = TargetList::NONE;
            loads.least(count, UnitId(owner % units), &mut least);
            let others = active.iter().map(|&(unit, _)| unit).filter(|&unit| unit != UnitId(owner % units));
            prop_assert!(least.units().eq(others.take(count.min(11))));
        }
    }
}
