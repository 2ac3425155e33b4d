//! Runs a policy on this machine.
//!
//! [`assemble`] makes a graph of a policy; a [`Runner`] takes frames through it and reports;
//! [`Live`] drives a runner from network interfaces.

mod assembly;
mod backend;
pub mod elastic;
mod live;
pub mod panics;
mod ports;
pub mod report;
mod runner;
pub mod saved;
mod settings;
pub mod shards;
pub mod transport;

pub use assembly::{Assembly, assemble, assemble_part};
pub use backend::Core;
pub use live::{Change, Intake, Live, POLL_SLEEP_NS_MAX, POLL_SLEEP_NS_MIN};
pub use ports::{NotAPrefix, Port, PortConfig, Ports, Prefix};
pub use report::{Report, TimeJumps};
pub use runner::{BATCH, Frame, Ingress, Output, Runner};
pub use settings::{FLOWS_MAX, STREAM_MEMORY_MAX, Settings};
