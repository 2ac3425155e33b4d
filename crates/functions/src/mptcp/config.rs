//! Configuration as written in a policy.

use serde::Deserialize;
use values::ConfigError;

/// Configuration of the function; the README documents each key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Action for packets with data that another sub-flow has carried before.
    pub duplicates: DuplicateAction,
    /// Limit on connections, up to [`CONNECTIONS_MAX`].
    pub connections: u32,
}

/// Maximum of `connections`.
pub const CONNECTIONS_MAX: u32 = 1_048_576;

/// Action for packets with data that another sub-flow has carried before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateAction {
    /// They pass, and are counted.
    Pass,
    /// They pass with the attribute `duplicate`.
    #[default]
    Mark,
    /// They are dropped.
    Drop,
}

impl Default for Config {
    fn default() -> Config {
        Config { duplicates: DuplicateAction::default(), connections: 16_384 }
    }
}

impl Config {
    /// Checks the limits.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.connections {
            1..=CONNECTIONS_MAX => Ok(()),
            other => Err(ConfigError::new(format!(
                "`connections` is {other}, expected from 1 to {CONNECTIONS_MAX}"
            ))),
        }
    }
}
