//! What flows, units and epochs are called.

use std::fmt;

/// A compute unit, by its number: the lowest are used first (S35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u16);

impl UnitId {
    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {}", self.0)
    }
}

/// A flow, as its dispatcher knows it: the index in its table, and how many flows had the index before.
/// No other flow of that dispatcher ever has the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The index.
    pub index: u32,
    /// How many flows had it before.
    pub generation: u32,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {}.{}", self.index, self.generation)
    }
}

/// Counts the owners that a flow has had; the first one's is 1.
pub type Epoch = u32;
