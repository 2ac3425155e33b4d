//! Errors of setting units up.

use graph::GraphError;
use protocol::dispatcher::DispatcherError;

use crate::units_config::FLOWS_MAX;

/// Units cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ElasticError {
    /// The dispatcher's configuration is invalid.
    #[error(transparent)]
    Dispatcher(#[from] DispatcherError),
    /// More units than the transport can reach.
    #[error("up to {max} units run on threads of their own, not {asked}")]
    Units {
        /// Units requested.
        asked: u16,
        /// Units that are possible.
        max: u16,
    },
    /// More flows than units can number.
    #[error(
        "units know up to {FLOWS_MAX} flows, and the policy asks for {0}: say `settings {{ flows: ... }}`"
    )]
    Flows(u32),
    /// Not enough memory for tables.
    #[error(transparent)]
    Tables(#[from] GraphError),
    /// A unit's graph cannot be set up.
    #[error("cannot make a graph for a unit: {0}")]
    Graph(String),
    /// A thread cannot be started.
    #[error("cannot start a thread for a unit: {0}")]
    Thread(#[from] std::io::Error),
}
