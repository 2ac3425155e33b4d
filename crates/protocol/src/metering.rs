//! What was wanted and what was there, epoch by epoch, and what a tenant pays for it and what it
//! costs (S47, S83, S84, S88).
//!
//! Whoever runs units says what happens to [`Epochs`]; a [`Bill`] is made of what these have come
//! to. Time is given with every call.

mod bill;
mod epochs;
mod tariff;

pub use bill::{Bill, Money};
pub use epochs::{Epoch, Epochs, Tracking};
pub use tariff::Tariff;
