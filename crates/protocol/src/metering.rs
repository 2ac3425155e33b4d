//! Demand and allocation per interval, and the price and cost that follow from them (S47, S83, S84,
//! S88).
//!
//! The driver of units notifies an [`IntervalMeter`]; a [`Bill`] is computed from its intervals.
//! Time is given with every call.

mod bill;
mod intervals;
mod tariff;

pub use bill::{Bill, Money};
pub use intervals::{Interval, IntervalMeter, Tracking};
pub use tariff::Tariff;
