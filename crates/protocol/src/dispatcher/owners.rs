//! Whose each flow is, in little memory: a unit that drains has its flows looked for among all of
//! them.

use std::ops::Range;

use crate::message::UnitId;
use packet::memory::{OutOfMemory, Zeroed};

/// Slots that are compared at a time, without a look at what came of each.
const STRIDE: usize = 64;

/// The owner of the flow in each slot of the table, and 1; 0 if there is no flow.
pub(crate) struct Owners(Zeroed<u16>);

impl Owners {
    /// Nobody's, each of so many slots.
    pub fn new(count: usize) -> Result<Owners, OutOfMemory> {
        Zeroed::new(count).map(Owners)
    }

    /// The flow in this slot is the unit's from now on; none: there is no flow.
    #[inline]
    pub fn set(&mut self, slot: u32, owner: Option<UnitId>) {
        self.0[slot as usize] = owner.map_or(0, mark);
    }

    /// The first of these slots, which must be the table's, with a flow of this unit.
    pub fn first_of(&self, unit: UnitId, slots: Range<u32>) -> Option<u32> {
        let (mark, mut slot) = (mark(unit), slots.start);
        for stride in self.0[slots.start as usize..slots.end as usize].chunks(STRIDE) {
            // All of them, so that several are compared in one step.
            if stride.iter().fold(false, |found, &owner| found | (owner == mark)) {
                return stride.iter().position(|&owner| owner == mark).map(|place| slot + place as u32);
            }
            slot += stride.len() as u32;
        }
        None
    }
}

/// As it stands in a slot. There are fewer units than a u16 says:
/// [`Config::units_max`](crate::dispatcher::Config::units_max) of them.
fn mark(unit: UnitId) -> u16 {
    unit.0 + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_one_is_found(
            owners in prop::collection::vec(prop::option::weighted(0.2, 0u16..3), 1..300),
            (from, until) in (0u32..300, 0u32..300),
        ) {
            let mut table = Owners::new(owners.len()).unwrap();
            (0..).zip(&owners).for_each(|(slot, owner)| table.set(slot, owner.map(UnitId)));
            let until = until.min(owners.len() as u32);
            let slots = from.min(until)..until;
            let expected = slots.clone().find(|&slot| owners[slot as usize] == Some(1));
            prop_assert_eq!(table.first_of(UnitId(1), slots), expected);
        }
    }
}
