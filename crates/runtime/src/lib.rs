//! Runs a policy on this machine.
//!
//! [`assemble`] makes a graph of a policy. A [`Runner`] processes frames and reports; [`Live`] runs it
//! on network interfaces.

mod assembly;
mod backend;
mod batch;
mod doorbell;
pub mod elastic;
pub mod external;
mod live;
pub mod memory;
pub mod operator;
pub mod panics;
mod policy_change;
mod ports;
pub mod report;
mod runner;
pub mod saved;
mod settings;
pub mod shards;
pub mod transport;
pub mod two_cores;
mod units_config;
mod units_error;
mod units_report;
mod worker;

pub use assembly::{Assembly, assemble, assemble_for_cluster, assemble_part};
pub use batch::{BATCH, Core};
pub use live::{Intake, LinkChange, Live, POLL_SLEEP_NS_MAX, POLL_SLEEP_NS_MIN};
pub use policy_change::RunningPolicy;
pub use ports::{PortConfig, PortEntry, Ports};
pub use report::{Report, TimeJumps};
pub use runner::{ForwardedPacket, Frame, Ingress, Output, Runner, raised, write_effects};
pub use settings::{FLOWS_MAX, STREAM_MEMORY_MAX, Settings};
