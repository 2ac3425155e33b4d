//! The address at which metrics are served and read.

/// Address of the metrics server, unless `--metrics` gives one.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9600";
