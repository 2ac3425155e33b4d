//! A request's target: its parts, and its path and query in the form in which servers look them up.

mod normalise;
mod parts;

pub use normalise::{NoRoom, Normalised, Oddities, Oddity, normalise};
pub use parts::{Form, Target, split, split_authority};
