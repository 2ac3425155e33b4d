//! Scenarios that cannot be simulated.

use std::path::PathBuf;

/// A scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The dispatcher refuses what the scenario says about it.
    #[error("[dispatcher] and [units]: {0}")]
    Dispatcher(#[from] protocol::dispatcher::DispatcherError),
    /// Units have a quota, and nothing says what a packet takes.
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
    /// Flows have states that are too large.
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
    /// The run takes no time, or its intervals do not, or there would be too many of them.
    #[error(
        "[run]: `time` and `interval` are longer than 0, and there are at most {INTERVALS_MAX} intervals"
    )]
    Time,
}

/// The most bytes of a flow's state.
pub const STATE_MAX: u64 = 16 << 20;

/// The most intervals of a run.
pub const INTERVALS_MAX: u64 = 1_000_000;
