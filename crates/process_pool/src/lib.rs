//! Keeps a pool of processes of one machine: busy ones, and a few spare ones.
//!
//! [`Pool`] decides which processes are started and stopped; it has no clock and no process.
//! [`PooledProcess`] is one of them; it outlives its owner, and the next owner adopts it. A process
//! reports by systemd's protocol (`sd_notify(3)`) that it is ready, and by a variable of its own
//! whether it is busy: it runs unchanged under systemd.

#![forbid(unsafe_code)]

mod identity;
mod pool;
mod process;

pub use pool::{Pool, PoolAction, PoolConfig, PoolCounts, RESTART_MAX_NS, STABLE_NS};
pub use process::{Notice, PooledProcess, ProcessEnd};
