//! The built-in network functions.

pub mod monitor;

use nf::{ConfigSource, Registry};

/// All functions of this crate.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add::<monitor::Monitor>(include_str!("monitor/README.md"));
    registry
}
