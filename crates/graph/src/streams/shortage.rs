//! Memory shortages of streams. Inline, nothing passes that a host may read and functions do not,
//! unless the operator says so.

use nf::MemoryShortage;

/// Memory of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOf {
    /// Out-of-order segments.
    Early,
    /// Unacknowledged segments.
    Sent,
}

/// A memory shortage, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortOf {
    /// The memory that is short.
    pub memory: MemoryOf,
    /// The cause.
    pub kind: MemoryShortage,
}

impl ShortOf {
    /// Number of kinds.
    pub const COUNT: usize = 6;

    /// Returns its number among these.
    pub fn number(self) -> usize {
        self.memory as usize * 3 + self.kind as usize
    }
}
