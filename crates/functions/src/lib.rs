//! The built-in network functions.

use nf::{ConfigSource, Registry};

/// All functions of this crate.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    Registry::new()
}
