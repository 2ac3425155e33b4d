//! The built-in network functions.

pub mod lb;

use nf::{ConfigSource, Registry};

/// All functions of this crate.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add::<lb::LoadBalancer>(include_str!("lb/README.md"));
    registry
}
