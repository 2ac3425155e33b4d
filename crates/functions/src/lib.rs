//! The built-in network functions.

pub mod monitor;

/// All built-in functions, by the names that policies use.
pub fn registry() -> nf::Registry {
    let mut registry = nf::Registry::new();
    registry.add::<monitor::Monitor>(include_str!("monitor/README.md"));
    registry
}
