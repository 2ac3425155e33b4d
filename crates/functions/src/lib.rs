//! The built-in network functions.

use nf::{ConfigSource, Registry};

pub mod nat;

/// All functions of this crate.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add::<nat::Nat>(include_str!("nat/README.md"));
    registry
}
