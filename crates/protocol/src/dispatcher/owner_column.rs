//! Whose each flow is, in little memory: a unit that drains has its flows looked for among all of
//! them.

use std::ops::Range;

use crate::message::UnitId;
use packet::memory::{OutOfMemory, Zeroed};

/// Slots that are compared at a time, without a look at what came of each.
const STRIDE: usize = 64;

/// The owner of the flow in each index of the table, and 1; 0 if there is no flow.
pub(crate) struct OwnerColumn(Zeroed<u16>);

impl OwnerColumn {
    /// Nobody's, each of so many indexes.
    pub fn new(count: usize) -> Result<OwnerColumn, OutOfMemory> {
        Zeroed::new(count).map(OwnerColumn)
    }

    /// The flow in this index is the unit's from now on; none: there is no flow.
    #[inline]
    pub fn set(&mut self, index: u32, owner: Option<UnitId>) {
        self.0[index as usize] = owner.map_or(0, mark);
    }

    /// The first of these indexes, which must be the table's, with a flow of this unit.
    pub fn first_of(&self, unit: UnitId, indexes: Range<u32>) -> Option<u32> {
        let (mark, mut index) = (mark(unit), indexes.start);
        for stride in self.0[indexes.start as usize..indexes.end as usize].chunks(STRIDE) {
            // All of them, so that several are compared in one step.
            if stride.iter().fold(false, |found, &owner| found | (owner == mark)) {
                return stride.iter().position(|&owner| owner == mark).map(|place| index + place as u32);
            }
            index += stride.len() as u32;
        }
        None
    }
}

/// As it stands in a index. There are fewer units than a u16 says:
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
            let mut table = OwnerColumn::new(owners.len()).unwrap();
            (0..).zip(&owners).for_each(|(index, owner)| table.set(index, owner.map(UnitId)));
            let until = until.min(owners.len() as u32);
            let indexes = from.min(until)..until;
            let expected = indexes.clone().find(|&index| owners[index as usize] == Some(1));
            prop_assert_eq!(table.first_of(UnitId(1), indexes), expected);
        }
    }
}
