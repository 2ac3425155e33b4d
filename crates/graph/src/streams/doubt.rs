//! The doubt that a host takes a segment: of two for the same place, the less doubtful one
//! counts.

/// It does.
pub const NONE: u8 = 0;
/// It does, unless the connection has ended.
pub const UNSURE: u8 = 1;
/// Few do.
pub const UNLIKELY: u8 = 2;
/// It does not.
pub const IGNORED: u8 = 3;
