//! Configuration as written in a policy; the README documents each key.

use crate::texts::TextList;

/// Configuration of a marker.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The rules, in order.
    pub rules: TextList,
}
