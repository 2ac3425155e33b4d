//! Identifiers of flows, units and epochs.

use std::fmt;

/// The number of a compute unit: the lowest are used first (S35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u16);

impl UnitId {
    /// Returns it as an index.
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

/// A flow, as its dispatcher knows it: the index in its table, and the number of earlier flows of
/// that index. No other flow of that dispatcher ever has the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The index.
    pub index: u32,
    /// The number of earlier flows of the index.
    pub generation: u32,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {}.{}", self.index, self.generation)
    }
}

/// The number of a flow's owner, counted from 1.
pub type Epoch = u32;
