//! The preventer's configuration, as a policy writes it, and what becomes of it.

use values::{ConfigError, Nanos, PacketRate};

use crate::policer::MeterExhaustion;
use crate::policer::marker::{Marker, PACKET, SIZE_MAX, TokenBucket};
use crate::whitelist::ProtectedSide;

/// The preventer's configuration; see its README for what the keys do. A limit of 0 is none.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The side that is protected.
    pub protect: ProtectedSide,
    /// SYNs that a flow may send before its connection is established.
    pub syns: u32,
    /// Packets that a flow may send.
    pub packets: u64,
    /// Packets that a flow may send per second.
    pub flow_rate: PacketRate,
    /// Packets that it may send at once: 1 to [`BURST_MAX`]; a second's worth unless said.
    pub flow_burst: Option<u64>,
    /// Flows that a source may begin per second.
    pub connections: u64,
    /// Flows that it may begin at once: likewise.
    pub connections_burst: Option<u64>,
    /// Bits of an IPv4 source that count.
    pub prefix4: u8,
    /// Bits of an IPv6 source that count.
    pub prefix6: u8,
    /// Sources that are metered at once: 1 to [`SOURCES_MAX`].
    pub sources: u32,
    /// What happens to a packet that begins a flow and whose source finds no meter.
    pub when_full: MeterExhaustion,
    /// The time between two alerts of a kind, at least; 0: each flow that is blocked, and each that
    /// is refused, is told of.
    pub alert_every: Nanos,
}

/// Packets, or flows, at once at most.
pub const BURST_MAX: u64 = SIZE_MAX / PACKET;
/// Sources that are metered at once, whatever the configuration says.
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
    /// How a flow's packets are measured, if they are.
    pub(super) fn checked_flow_rate(&self) -> Result<Option<Marker>, ConfigError> {
        bucket(("flow_rate", self.flow_rate.0), ("flow_burst", self.flow_burst))
    }

    /// How the flows are that a source begins, if they are.
    pub(super) fn checked_connections(&self) -> Result<Option<Marker>, ConfigError> {
        bucket(("connections", self.connections), ("connections_burst", self.connections_burst))
    }

    pub(super) fn checked_sources(&self) -> Result<u32, ConfigError> {
        if !(1..=SOURCES_MAX).contains(&self.sources) {
            return Err(ConfigError::new(format!("`sources` has to be from 1 to {SOURCES_MAX}")));
        }
        Ok(self.sources)
    }

    /// That something is limited.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let limits = [u64::from(self.syns), self.packets, self.flow_rate.0, self.connections];
        if limits == [0; 4] {
            return Err(ConfigError::new(
                "nothing is limited: at least one of `syns`, `packets`, `flow_rate` and `connections` has to be above zero",
            ));
        }
        Ok(())
    }
}

/// A bucket that so many tokens per second fill, if there are any, by the keys that say so.
fn bucket(
    (rate_key, rate): (&str, u64),
    (burst_key, burst): (&str, Option<u64>),
) -> Result<Option<Marker>, ConfigError> {
    let burst = match burst {
        Some(_) if rate == 0 => {
            return Err(ConfigError::new(format!("`{burst_key}` needs `{rate_key}` to be above zero")));
        }
        Some(burst) if !(1..=BURST_MAX).contains(&burst) => {
            return Err(ConfigError::new(format!("`{burst_key}` has to be from 1 to {BURST_MAX}")));
        }
        Some(burst) => burst,
        None => rate.min(BURST_MAX),
    };
    let committed = TokenBucket { rate, size: burst * PACKET };
    Ok((rate > 0).then_some(Marker::SingleRate { committed, excess: 0 }))
}
