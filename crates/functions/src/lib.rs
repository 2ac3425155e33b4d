//! The built-in network functions.

pub mod firewall;

use nf::{ConfigSource, Registry};

/// All functions of this crate.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add::<firewall::Firewall>(include_str!("firewall/README.md"));
    registry
}
