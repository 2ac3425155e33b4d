//! The configuration of `http`, as a policy writes it.

use values::ConfigError;

/// The configuration; see the README for what the keys do.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Ports of servers; without any, flows of all ports are looked at. Up to [`super::PORTS_MAX`].
    pub ports: Vec<u16>,
    /// What happens where client and server might disagree about where messages end.
    pub smuggling: Smuggling,
    /// Whether other anomalies are told.
    pub anomalies: Anomalies,
    /// Whether transactions are told as events.
    pub events: bool,
    /// Methods that are allowed; without any, all are. Up to [`METHODS_MAX`].
    pub methods: Vec<String>,
    /// What happens to requests with other methods.
    pub method_policy: MethodPolicy,
}

/// Allowed methods at most.
pub const METHODS_MAX: usize = 64;

/// What happens where client and server might disagree about where messages end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Smuggling {
    /// It is counted.
    Off,
    /// There is an alert, too.
    Alert,
    /// There is an alert, and the packet and all further ones of its connection are dropped.
    Drop,
}

/// Whether anomalies are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anomalies {
    /// They are counted.
    Off,
    /// There are alerts, too.
    Alert,
}

/// What happens to requests whose method is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MethodPolicy {
    /// There is an alert.
    Alert,
    /// There is an alert, and the packet and all further ones of its connection are dropped.
    Drop,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ports: Vec::new(),
            smuggling: Smuggling::Alert,
            anomalies: Anomalies::Off,
            events: true,
            methods: Vec::new(),
            method_policy: MethodPolicy::Alert,
        }
    }
}

impl Config {
    /// The allowed methods: tokens (RFC 9110 9.1), whose case counts.
    pub(super) fn checked_methods(&self) -> Result<Vec<Vec<u8>>, ConfigError> {
        if self.methods.len() > METHODS_MAX {
            return Err(ConfigError::new(format!("too many `methods`: the most is {METHODS_MAX}")));
        }
        let is_token = |name: &String| !name.is_empty() && name.bytes().all(super::recognise::is_token_byte);
        match self.methods.iter().find(|name| !is_token(name)) {
            Some(wrong) => Err(ConfigError::new(format!("`{wrong}` is not a method (RFC 9110 9.1)"))),
            None => Ok(self.methods.iter().map(|name| name.clone().into_bytes()).collect()),
        }
    }
}
