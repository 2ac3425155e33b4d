//! The state of a flow.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::chunk::PartialChunk;

/// The state of a flow's two streams. All zeros is a connection without data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    pub(super) halves: [DirectionState; 2],
}

/// The state of one direction's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectionState {
    pub(super) begun: PartialChunk,
    /// Bytes seen.
    pub(super) bytes: u64,
    /// Redundant bytes among them.
    pub(super) redundant: u64,
}
