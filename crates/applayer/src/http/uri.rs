//! Request targets: their parts, and the normal form of path and query that servers look up.

mod normalise;
mod parts;

pub use normalise::{NormalisedUri, UriAnomalies, UriAnomaly, UriBufferTooSmall, normalise};
pub use parts::{RequestTarget, TargetForm, split, split_authority};
