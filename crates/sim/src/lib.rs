//! Routers and units on virtual time.
//!
//! A [`Scenario`](scenario::Scenario) says which packets come, how they are assigned, what processes them and what lies in
//! between. The same scenario and seed give the same report, byte for byte.

pub mod event;
pub mod random;
pub mod scenario;
pub mod workload;
