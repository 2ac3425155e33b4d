//! What `redundancy` keeps of each flow.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::chunk::Begun;

/// What is kept of each flow, of the streams in both directions. All zeros is a connection that
/// nothing was said on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    pub(super) halves: [Half; 2],
}

/// What is kept of one direction's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Half {
    pub(super) begun: Begun,
    /// Bytes that came.
    pub(super) bytes: u64,
    /// Of these, bytes that were there before.
    pub(super) redundant: u64,
}
