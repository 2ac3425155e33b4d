//! The doubt whether a host accepts a segment: of two for the same offset, the less doubtful one
//! counts.

/// Hosts accept it.
pub const NONE: u8 = 0;
/// Hosts accept it unless the connection has ended.
pub const UNSURE: u8 = 1;
/// Few hosts accept it.
pub const UNLIKELY: u8 = 2;
/// No host accepts it.
pub const IGNORED: u8 = 3;
