//! Observations of a running policy, for people and for other tools.
//!
//! - [`sinks`]: the outputs of a run: captures, alerts and events as [`eve`] lines, flow records
//!   and NAT events as IPFIX ([`export`]). Each is written through a [`spool`], so that no disk or
//!   reader delays packets.
//! - [`explain`]: what each function did to a packet, and why.
//! - [`annotated`]: captures with such explanations as comments.
//! - [`summary`]: a run's report as text; [`picture`]: demand and capacity over time.
//! - [`live`]: rates between reports, and a screen that shows them.
//!
//! The crate writes files and sends datagrams. It reads no arguments and prints nothing: the
//! `rivulet` command does, and so may a dashboard or a test.

pub mod annotated;
pub mod error;
pub mod eve;
pub mod explain;
pub mod export;
pub mod live;
mod nat_record;
pub mod notice;
pub mod picture;
pub mod port_file;
pub mod sinks;
pub mod spool;
pub mod summary;
pub mod text;
