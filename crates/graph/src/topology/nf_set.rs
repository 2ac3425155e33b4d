//! Sets of functions.

use packet::Side;

use super::BRANCHING_NFS_MAX;

/// A set of functions of a graph. A graph without branches may have more than
/// [`BRANCHING_NFS_MAX`]; then [`NfSet::ALL`] has them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfSet(pub u64);

impl NfSet {
    /// All functions.
    pub const ALL: NfSet = NfSet(u64::MAX);

    /// Checks if the set has a function.
    #[inline(always)]
    pub fn has(self, stage: usize) -> bool {
        stage >= BRANCHING_NFS_MAX || self.0 >> stage & 1 != 0
    }

    /// Adds a function.
    #[inline(always)]
    pub fn add(&mut self, stage: usize) {
        self.0 |= NfSet::only(stage).0;
    }

    /// Returns the functions that packets of this side visit after `stage`.
    #[inline]
    pub fn after(self, stage: usize, side: Side) -> NfSet {
        let below = NfSet::only(stage).0.wrapping_sub(1);
        match side {
            Side::Inside => NfSet(self.0 & !below & !NfSet::only(stage).0),
            Side::Outside => NfSet(self.0 & below),
        }
    }

    /// Returns the functions that packets of this side have visited after `stage`.
    #[inline]
    pub fn up_to(self, stage: usize, side: Side) -> NfSet {
        NfSet(self.0 & !self.after(stage, side).0)
    }

    /// Returns the function that packets of this side visit first.
    #[inline]
    pub fn first(self, side: Side) -> Option<usize> {
        let first = match side {
            Side::Inside => self.0.trailing_zeros(),
            Side::Outside => 63_u32.wrapping_sub(self.0.leading_zeros()),
        };
        (self.0 != 0).then_some(first as usize)
    }

    /// Returns the functions in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let stage = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(stage)
        })
    }

    fn only(stage: usize) -> NfSet {
        NfSet(1_u64.checked_shl(stage as u32).unwrap_or(0))
    }
}
