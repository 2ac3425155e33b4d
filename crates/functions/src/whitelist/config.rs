//! The whitelist's configuration, as a policy writes it.

use std::sync::Arc;

use packet::Side;
use values::{ConfigError, Nanos, PacketRate};

use super::FloodAlert;

/// The whitelist's configuration; see its README for what the keys do.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The side that is protected.
    pub protect: ProtectedSide,
    /// Whose requests are recorded; at least one of them.
    pub record: Vec<RecordedRequests>,
    /// What of the other end has to be the same.
    pub strict: PeerMatch,
    /// How long after a request answers may come. Above zero.
    pub expiry: Nanos,
    /// Ends that each set remembers at most: 1 to [`MEMBERS_MAX`].
    pub capacity: u32,
    /// Ports of the protected side to which anybody may send, up to [`SERVICES_MAX`] of them.
    pub services: Vec<u16>,
    /// What happens to packets of other protocols that come from the other side.
    pub others: NonUdpAction,
    /// The rate of unsolicited datagrams above which there is an alert; 0: there are none.
    pub alert_above: PacketRate,
    /// The time between two alerts, at least.
    pub alert_every: Nanos,
}

/// Ends that a set remembers at most, whatever the configuration says.
pub const MEMBERS_MAX: u32 = 16_777_216;
/// Ports of services at most.
pub const SERVICES_MAX: usize = 1_024;

/// The side that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProtectedSide {
    /// The left end of the chain.
    Inside,
    /// The right end.
    Outside,
}

/// Whose requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedRequests {
    /// Those of hosts of the protected side: whom they ask may answer.
    Hosts,
    /// Those of the other side's clients to a service: they may then send to any port.
    Clients,
}

/// What of the other end has to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerMatch {
    /// Its address.
    Address,
    /// Its address and port.
    AddressPort,
}

/// What happens to packets of other protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonUdpAction {
    /// They pass.
    Pass,
    /// They are dropped, but for ICMP errors about what was asked.
    Drop,
}

impl ProtectedSide {
    /// It as a side of the chain.
    pub fn side(self) -> Side {
        match self {
            ProtectedSide::Inside => Side::Inside,
            ProtectedSide::Outside => Side::Outside,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            protect: ProtectedSide::Inside,
            record: vec![RecordedRequests::Hosts],
            strict: PeerMatch::AddressPort,
            expiry: Nanos(30_000_000_000),
            capacity: super::MEMBERS as u32,
            services: Vec::new(),
            others: NonUdpAction::Pass,
            alert_above: PacketRate(1_000),
            alert_every: Nanos(10_000_000_000),
        }
    }
}

impl Config {
    pub(super) fn checked_record(&self) -> Result<&[RecordedRequests], ConfigError> {
        if self.record.is_empty() {
            return Err(ConfigError::new("`record` has to name `hosts`, `clients` or both"));
        }
        if self.record.contains(&RecordedRequests::Clients) && self.services.is_empty() {
            return Err(ConfigError::new("`record: [clients]` needs `services` that they may ask"));
        }
        Ok(&self.record)
    }

    /// The ports, ascending.
    pub(super) fn checked_services(&self) -> Result<Vec<u16>, ConfigError> {
        if self.services.len() > SERVICES_MAX {
            return Err(ConfigError::new(format!("too many `services`: the most is {SERVICES_MAX}")));
        }
        let mut services = self.services.clone();
        services.sort_unstable();
        services.dedup();
        Ok(services)
    }

    pub(super) fn checked_capacity(&self) -> Result<u32, ConfigError> {
        if !(1..=MEMBERS_MAX).contains(&self.capacity) {
            return Err(ConfigError::new(format!("`capacity` has to be from 1 to {MEMBERS_MAX}")));
        }
        Ok(self.capacity)
    }

    pub(super) fn checked_expiry_ns(&self) -> Result<u64, ConfigError> {
        if self.expiry.0 == 0 {
            return Err(ConfigError::new("`expiry` has to be above zero"));
        }
        Ok(self.expiry.0)
    }

    pub(super) fn flood(&self) -> Option<FloodAlert> {
        let rate_pps = self.alert_above.0;
        (rate_pps > 0).then(|| FloodAlert {
            interval_ns: (1_000_000_000 / rate_pps).max(1),
            silence_ns: self.alert_every.0,
            signature: Arc::from(format!("UDP flood: unsolicited packets above {}", self.alert_above)),
        })
    }
}
