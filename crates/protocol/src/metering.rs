//! What was wanted and what was there, interval by interval, and what a tenant pays for it and what it
//! costs (S47, S83, S84, S88).
//!
//! Whoever runs units says what happens to [`IntervalMeter`]; a [`Bill`] is made of what these have come
//! to. Time is given with every call.

mod bill;
mod intervals;
mod tariff;

pub use bill::{Bill, Money};
pub use intervals::{Interval, IntervalMeter, Tracking};
pub use tariff::Tariff;
