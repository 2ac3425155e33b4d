//! The owners of all flows in little memory, to search for flows of draining units.

use std::ops::Range;

use crate::message::UnitId;
use packet::memory::{OutOfMemory, Zeroed};

/// Number of indexes compared in one step.
const STRIDE: usize = 64;

/// The owner of each index's flow plus 1; 0 if there is no flow.
pub(crate) struct OwnerColumn(Zeroed<u16>);

impl OwnerColumn {
    /// Creates a column of this many indexes without flows.
    pub fn new(count: usize) -> Result<OwnerColumn, OutOfMemory> {
        Zeroed::new(count).map(OwnerColumn)
    }

    /// Sets the owner of the index's flow; `None` if there is no flow.
    #[inline]
    pub fn set(&mut self, index: u32, owner: Option<UnitId>) {
        self.0[index as usize] = owner.map_or(0, mark);
    }

    /// Returns the first index of this range, which must be in the table, with a flow of this unit.
    pub fn first_of(&self, unit: UnitId, indexes: Range<u32>) -> Option<u32> {
        let (mark, mut index) = (mark(unit), indexes.start);
        for stride in self.0[indexes.start as usize..indexes.end as usize].chunks(STRIDE) {
            // The whole stride, so that several are compared in one step.
            if stride.iter().fold(false, |found, &owner| found | (owner == mark)) {
                return stride.iter().position(|&owner| owner == mark).map(|place| index + place as u32);
            }
            index += stride.len() as u32;
        }
        None
    }
}

/// Returns the stored form. There are fewer units than `u16` can count:
/// [`Config::units_max`](crate::dispatcher::Config::units_max).
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
