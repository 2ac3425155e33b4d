//! Errors of traffic profiles.

use thiserror::Error;

/// Error of a traffic profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// A field is out of its range.
    #[error("traffic profile: `{field}` must be {expected}")]
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// Its range.
        expected: &'static str,
    },
    /// There are fewer pairs of client address and port than flows.
    #[error("traffic profile: {flows} flows need more client addresses: `{prefix}` has room for {room}")]
    TooFewClients {
        /// The number of flows.
        flows: u32,
        /// The name of the prefix that is too small.
        prefix: &'static str,
        /// The number of flows that fit.
        room: u64,
    },
    /// A text is not a prefix.
    #[error("expected a network prefix like 10.0.0.0/8, found `{text}`")]
    AddressPrefix {
        /// The text.
        text: String,
    },
}
