//! Dispatchers and units on virtual time.
//!
//! A [`Scenario`] describes packets, their assignment, the units, and the links. The same scenario
//! and seed give the same [`Report`], byte for byte. Dispatcher and units are the code that runs
//! anywhere else: this crate provides time, packets and links, and checks everything against a
//! single unit ([`Violation`]).
//!
//! ```
//! use sim::{Scenario, Simulation};
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [workload.steady]
//!     rate = "500Mbps"
//!     [run]
//!     time = "50ms"
//!     warm_up = "10ms"
//!     "#,
//! )?;
//! let report = Simulation::new(scenario, 1)?.run()?;
//! assert_eq!(report.checked.processed, report.workload.packets);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
mod arriving;
mod checks;
mod engine;
mod error;
mod event;
pub mod faulty;
mod latency;
mod link;
mod parts;
mod pool;
mod random;
mod report;
pub mod scenario;
mod server;
mod service;
mod simulation;
mod store;
mod tally;
pub mod workload;
mod world;

pub use checks::{CheckCounts, Violation};
pub use error::{INTERVALS_MAX, STATE_MAX, SimulationError};
pub use latency::LatencyReport;
pub use pool::WarmUnits;
pub use report::{AssignmentReport, Report, State};
pub use scenario::{Scenario, ScenarioError};
pub use service::NoQuota;
pub use simulation::{FailedSimulation, Simulation, SimulationProgress};
