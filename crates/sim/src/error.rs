//! Errors of scenarios.

use std::path::PathBuf;

/// A scenario that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The dispatcher's settings are invalid.
    #[error("[dispatcher] and [units]: {0}")]
    Dispatcher(#[from] protocol::dispatcher::DispatcherError),
    /// Units have a quota, but packets have no cost.
    #[error("[units]: {0}")]
    Quota(#[from] crate::service::NoQuota),
    /// More flows than units can number.
    #[error("[dispatcher]: `flows_max` is {wanted}, and units know {most} flows at most")]
    Flows {
        /// The scenario's value.
        wanted: u32,
        /// The limit.
        most: u32,
    },
    /// The states of flows are too large.
    #[error("[units]: `state` is {0} bytes, and at most {STATE_MAX}")]
    State(u64),
    /// The workload has more flows than units can know.
    #[error("[workload.steady]: there are {wanted} `flows`, and at most {most}")]
    Workload {
        /// The scenario's value.
        wanted: u32,
        /// The limit.
        most: u32,
    },
    /// The scenario's capture has not been read.
    #[error("[workload.capture]: {} was not read", .0.display())]
    Unread(PathBuf),
    /// The run or its intervals have length 0, or there are too many intervals.
    #[error(
        "[run]: `time` and `interval` are longer than 0, and there are at most {INTERVALS_MAX} intervals"
    )]
    Time,
}

/// Limit on the bytes of a flow's state.
pub const STATE_MAX: u64 = 16 << 20;

/// Limit on the intervals of a run.
pub const INTERVALS_MAX: u64 = 1_000_000;
