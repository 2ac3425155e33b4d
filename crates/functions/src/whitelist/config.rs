//! Configuration as written in a policy.

use std::sync::Arc;

use packet::Side;
use values::{ConfigError, Nanos, PacketRate};

use super::FloodAlert;

/// Configuration of the whitelist; the README documents each key.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Protected side.
    pub protect: ProtectedSide,
    /// Kinds of requests to record, at least one.
    pub record: Vec<RecordedRequests>,
    /// Properties of the peer that an answer must match.
    pub strict: PeerMatch,
    /// Time after a request during which answers may arrive. Above zero.
    pub expiry: Nanos,
    /// Capacity of each set of peers: 1 to [`MEMBERS_MAX`].
    pub capacity: u32,
    /// Ports of the protected side that are open to all, up to [`SERVICES_MAX`] of them.
    pub services: Vec<u16>,
    /// Action for packets of other protocols from the other side.
    pub others: NonUdpAction,
    /// Rate of unsolicited datagrams above which an alert is raised; 0: never.
    pub alert_above: PacketRate,
    /// Minimum interval between two alerts.
    pub alert_every: Nanos,
}

/// Maximum capacity of a set.
pub const MEMBERS_MAX: u32 = 16_777_216;
/// Maximum number of service ports.
pub const SERVICES_MAX: usize = 1_024;

/// Protected side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProtectedSide {
    /// Left end of the graph.
    Inside,
    /// Right end of the graph.
    Outside,
}

/// Kind of requests to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedRequests {
    /// Requests of hosts on the protected side: the peers may answer.
    Hosts,
    /// Requests of outside clients to a service: the clients may then send to any port.
    Clients,
}

/// Properties of the peer that an answer must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerMatch {
    /// Address.
    Address,
    /// Address and port.
    AddressPort,
}

/// Action for packets of other protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonUdpAction {
    /// Pass.
    Pass,
    /// Drop, except for ICMP errors about requests.
    Drop,
}

impl ProtectedSide {
    /// Returns the side of the graph.
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
            return Err(ConfigError::new("`record` must contain `hosts`, `clients` or both"));
        }
        if self.record.contains(&RecordedRequests::Clients) && self.services.is_empty() {
            return Err(ConfigError::new("`record: [clients]` needs `services`"));
        }
        Ok(&self.record)
    }

    /// Returns the ports, sorted and without duplicates.
    pub(super) fn checked_services(&self) -> Result<Vec<u16>, ConfigError> {
        if self.services.len() > SERVICES_MAX {
            return Err(ConfigError::new(format!("too many `services`: the maximum is {SERVICES_MAX}")));
        }
        let mut services = self.services.clone();
        services.sort_unstable();
        services.dedup();
        Ok(services)
    }

    pub(super) fn checked_capacity(&self) -> Result<u32, ConfigError> {
        if !(1..=MEMBERS_MAX).contains(&self.capacity) {
            return Err(ConfigError::new(format!("`capacity` must be from 1 to {MEMBERS_MAX}")));
        }
        Ok(self.capacity)
    }

    pub(super) fn checked_expiry_ns(&self) -> Result<u64, ConfigError> {
        if self.expiry.0 == 0 {
            return Err(ConfigError::new("`expiry` must be above zero"));
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
