//! The configuration of `dos`, and its validation.

use values::{ConfigError, Nanos, PacketRate};

use crate::policer::MeterExhaustion;
use crate::policer::marker::{Marker, PACKET, SIZE_MAX, TokenBucket};
use crate::whitelist::ProtectedSide;

/// The configuration; the README documents the keys. A limit of 0 means unlimited.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The protected side.
    pub protect: ProtectedSide,
    /// Maximum SYNs of a flow before its connection is established.
    pub syns: u32,
    /// Maximum packets of a flow.
    pub packets: u64,
    /// Maximum packets of a flow per second.
    pub flow_rate: PacketRate,
    /// Maximum packets of a flow at once: 1 to [`BURST_MAX`]; by default those of a second.
    pub flow_burst: Option<u64>,
    /// Maximum flows that a source may begin per second.
    pub connections: u64,
    /// Maximum flows that a source may begin at once: 1 to [`BURST_MAX`]; by default those of a
    /// second.
    pub connections_burst: Option<u64>,
    /// Prefix length that identifies an IPv4 source.
    pub prefix4: u8,
    /// Prefix length that identifies an IPv6 source.
    pub prefix6: u8,
    /// Sources metered at once: 1 to [`SOURCES_MAX`].
    pub sources: u32,
    /// The fate of a packet that begins a flow when no meter is free for its source.
    pub when_full: MeterExhaustion,
    /// Minimum time between two alerts of a kind; 0: an alert for each blocked flow and each
    /// refused one.
    pub alert_every: Nanos,
}

/// Maximum of `flow_burst` and `connections_burst`.
pub const BURST_MAX: u64 = SIZE_MAX / PACKET;
/// Maximum of `sources`.
pub const SOURCES_MAX: u32 = 16_777_216;

impl Default for Config {
    fn default() -> Config {
        Config {
            protect: ProtectedSide::Inside,
            syns: 8,
            packets: 0,
            flow_rate: PacketRate(0),
            flow_burst: None,
            connections: 0,
            connections_burst: None,
            prefix4: 32,
            prefix6: 64,
            sources: 65_536,
            when_full: MeterExhaustion::Pass,
            alert_every: Nanos(10_000_000_000),
        }
    }
}

impl Config {
    /// Returns the meter of a flow's packets, if they are limited.
    pub(super) fn checked_flow_rate(&self) -> Result<Option<Marker>, ConfigError> {
        bucket(("flow_rate", self.flow_rate.0), ("flow_burst", self.flow_burst))
    }

    /// Returns the meter of a source's new flows, if they are limited.
    pub(super) fn checked_connections(&self) -> Result<Option<Marker>, ConfigError> {
        bucket(("connections", self.connections), ("connections_burst", self.connections_burst))
    }

    pub(super) fn checked_sources(&self) -> Result<u32, ConfigError> {
        if !(1..=SOURCES_MAX).contains(&self.sources) {
            return Err(ConfigError::new(format!(
                "`sources` is {}, expected 1 to {SOURCES_MAX}",
                self.sources
            )));
        }
        Ok(self.sources)
    }

    /// Checks that at least one limit is set.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let limits = [u64::from(self.syns), self.packets, self.flow_rate.0, self.connections];
        if limits == [0; 4] {
            return Err(ConfigError::new(
                "nothing is limited: set `syns`, `packets`, `flow_rate` or `connections` above 0",
            ));
        }
        Ok(())
    }
}

/// Builds a bucket from a rate and a burst, with the keys for error messages.
fn bucket(
    (rate_key, rate): (&str, u64),
    (burst_key, burst): (&str, Option<u64>),
) -> Result<Option<Marker>, ConfigError> {
    let burst = match burst {
        Some(_) if rate == 0 => {
            return Err(ConfigError::new(format!("`{burst_key}` requires `{rate_key}` above 0")));
        }
        Some(burst) if !(1..=BURST_MAX).contains(&burst) => {
            return Err(ConfigError::new(format!("`{burst_key}` is {burst}, expected 1 to {BURST_MAX}")));
        }
        Some(burst) => burst,
        None => rate.min(BURST_MAX),
    };
    let committed = TokenBucket { rate, size: burst * PACKET };
    Ok((rate > 0).then_some(Marker::SingleRate { committed, excess: 0 }))
}
