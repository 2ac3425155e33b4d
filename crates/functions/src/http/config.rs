//! The configuration of `http`.

use values::ConfigError;

/// The configuration; the README documents the keys.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Server ports, up to [`super::PORTS_MAX`]; without any, flows of all ports are inspected.
    pub ports: Vec<u16>,
    /// The response to request smuggling.
    pub smuggling: SmugglingPolicy,
    /// True if other anomalies raise alerts.
    pub anomalies: AnomalyPolicy,
    /// True if transactions are reported as events.
    pub events: bool,
    /// The allowed methods, up to [`METHODS_MAX`]; empty for all.
    pub methods: Vec<String>,
    /// The response to other methods.
    pub method_policy: MethodPolicy,
}

/// Maximum allowed methods.
pub const METHODS_MAX: usize = 64;

/// The response to messages with an end that client and server may place differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmugglingPolicy {
    /// They are counted.
    Off,
    /// They also raise an alert.
    Alert,
    /// They raise an alert, and this and all later packets of the connection are dropped.
    Drop,
}

/// The response to other anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnomalyPolicy {
    /// They are counted.
    Off,
    /// They also raise alerts.
    Alert,
}

/// The response to a request with a method that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MethodPolicy {
    /// It raises an alert.
    Alert,
    /// It raises an alert, and this and all later packets of the connection are dropped.
    Drop,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ports: Vec::new(),
            smuggling: SmugglingPolicy::Alert,
            anomalies: AnomalyPolicy::Off,
            events: true,
            methods: Vec::new(),
            method_policy: MethodPolicy::Alert,
        }
    }
}

impl Config {
    /// Returns the allowed methods: tokens (RFC 9110 9.1), case-sensitive.
    pub(super) fn checked_methods(&self) -> Result<Vec<Vec<u8>>, ConfigError> {
        if self.methods.len() > METHODS_MAX {
            return Err(ConfigError::new(format!(
                "`methods` has {} entries, expected at most {METHODS_MAX}",
                self.methods.len()
            )));
        }
        let is_token = |name: &String| !name.is_empty() && name.bytes().all(super::recognise::is_token_byte);
        match self.methods.iter().find(|name| !is_token(name)) {
            Some(wrong) => Err(ConfigError::new(format!("`{wrong}` is not a method (RFC 9110 9.1)"))),
            None => Ok(self.methods.iter().map(|name| name.clone().into_bytes()).collect()),
        }
    }
}
