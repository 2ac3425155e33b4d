//! Flows that turn back within the graph: the record of each of their two passes.
//!
//! A packet that a function turns back (a hairpin through a NAT) passes the previous functions a
//! second time, from the other side. Each pass has its own record, so that functions treat both as
//! separate flows. The record of the second pass is in no index and on no timer: it lives and moves
//! with the flow's.
//!
//! ```text
//!             near side                    turning function
//! original    first pass:  flow's record         |
//!             second pass: second record    <----+
//! reply       first pass:  second record         |
//!             second pass: flow's record    <----+
//! ```

use packet::{Direction, Side};

/// A flow that turns back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondPass {
    /// The flow's record, which the turning function has, too.
    pub main: u32,
    /// The record of the second pass.
    pub second: u32,
    /// The function that turns its packets back.
    pub stage: u16,
    /// The side that both ends are on.
    pub near: Side,
    /// The direction in which the first pass has the flow's record.
    pub direction: Direction,
}

impl SecondPass {
    /// Returns the record for a packet that reaches this function from `side`.
    pub fn record_at(&self, stage: usize, side: Side, direction: Direction) -> u32 {
        let turning = usize::from(self.stage);
        let is_near = if self.near == Side::Inside { stage < turning } else { stage > turning };
        let is_first_pass = side == self.near;
        if is_near && is_first_pass != (direction == self.direction) { self.second } else { self.main }
    }
}

/// The flows of a table that turn back. Takes no memory if none does.
#[derive(Default)]
pub(crate) struct SecondPasses {
    /// For each record, of either pass.
    of: Vec<Option<SecondPass>>,
    count: u32,
}

impl SecondPasses {
    /// Returns the number of flows that turn back, each with a record for its second pass.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the flow with this record, if it turns back.
    #[inline]
    pub fn get(&self, record: u32) -> Option<SecondPass> {
        self.of.get(record as usize).copied().flatten()
    }

    /// Adds the second record of a flow. `capacity`: the maximum number of records.
    pub fn add(&mut self, pass: SecondPass, capacity: u32) {
        if self.of.is_empty() {
            self.of = vec![None; capacity as usize];
        }
        for record in [pass.main, pass.second] {
            if let Some(of) = self.of.get_mut(record as usize) {
                *of = Some(pass);
            }
        }
        self.count += 1;
    }

    /// Removes a flow that ended or moved; returns its second record, if it has one.
    pub fn remove(&mut self, main: u32) -> Option<u32> {
        let pass = self.get(main)?;
        for record in [pass.main, pass.second] {
            if let Some(of) = self.of.get_mut(record as usize) {
                *of = None;
            }
        }
        self.count -= 1;
        Some(pass.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_has_its_record_and_the_turning_function_the_flows() {
        let pass =
            SecondPass { main: 1, second: 2, stage: 2, near: Side::Inside, direction: Direction::Original };
        let at = |stage, side, direction| pass.record_at(stage, side, direction);
        let (i, o) = (Side::Inside, Side::Outside);
        assert_eq!([0, 1, 2, 3].map(|stage| at(stage, i, Direction::Original)), [1, 1, 1, 1]);
        assert_eq!([1, 0].map(|stage| at(stage, o, Direction::Original)), [2, 2]);
        assert_eq!([0, 1, 2, 3].map(|stage| at(stage, i, Direction::Reply)), [2, 2, 1, 1]);
        assert_eq!([1, 0].map(|stage| at(stage, o, Direction::Reply)), [1, 1]);
        let outside = SecondPass { near: o, ..pass };
        assert_eq!([3, 2].map(|stage| outside.record_at(stage, o, Direction::Reply)), [2, 1]);
        assert_eq!(outside.record_at(3, i, Direction::Reply), 1);
    }

    #[test]
    fn a_flow_is_found_by_either_record_until_it_is_removed() {
        let pass =
            SecondPass { main: 3, second: 0, stage: 1, near: Side::Outside, direction: Direction::Reply };
        let mut passes = SecondPasses::default();
        assert_eq!((passes.get(3), passes.remove(3), passes.count()), (None, None, 0));
        passes.add(pass, 4);
        assert_eq!((passes.get(3), passes.get(0), passes.get(1)), (Some(pass), Some(pass), None));
        assert_eq!((passes.remove(3), passes.remove(3), passes.count()), (Some(0), None, 0));
    }
}
