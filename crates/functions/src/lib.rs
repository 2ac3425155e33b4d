//! The built-in network functions.

use nf::Registry;

pub mod nat;

/// All of them, by the names that policies use.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.add::<nat::Nat>(include_str!("nat/README.md"));
    registry
}
