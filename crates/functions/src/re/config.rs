//! The configuration; the README documents the keys.

use values::{ByteCount, ConfigError, Located, Nanos};

use crate::networks::IpNetwork;
use crate::numbers::{power_of_two, within};
use crate::rabin::{WINDOW_MAX, WINDOW_MIN};

/// The configuration of one end of a link. The other end's differs only in that local and remote
/// networks are swapped.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The networks at this end, 1 to [`NETWORKS_MAX`].
    pub local_networks: Vec<Located>,
    /// The networks at the other end, 1 to [`NETWORKS_MAX`].
    pub remote_networks: Vec<Located>,
    /// Bytes of payloads cached per direction, [`CACHE_MIN`] to [`CACHE_MAX`].
    #[serde(default = "default_cache")]
    pub cache: ByteCount,
    /// Bytes of a fingerprint's window, [`WINDOW_MIN`] to [`WINDOW_MAX`].
    #[serde(default = "default_window")]
    pub window: u8,
    /// One of this many fingerprints is selected: a power of two from [`SAMPLE_MIN`] to
    /// [`SAMPLE_MAX`].
    #[serde(default = "default_sample")]
    pub sample: u16,
    /// The IP protocol number of encoded packets, unused otherwise: [`PROTOCOL_MIN`] to 254.
    #[serde(default = "default_protocol")]
    pub protocol: u8,
    /// Packets are encoded only if a report of the other end arrived within this time; 0: always.
    #[serde(default = "default_patience")]
    pub patience: Nanos,
}

/// Maximum networks at one end.
pub const NETWORKS_MAX: usize = 256;

/// Minimum of `cache`, in bytes.
pub const CACHE_MIN: u64 = 64 << 10;

/// Maximum of `cache`, in bytes.
pub const CACHE_MAX: u64 = 4 << 30;

/// The densest sampling.
pub const SAMPLE_MIN: u16 = 4;

/// The sparsest sampling.
pub const SAMPLE_MAX: u16 = 1_024;

/// The first protocol number that IANA has not assigned. Up to 252 they are unassigned, 253 and 254
/// are for experiments (RFC 3692), and 255 is reserved.
pub const PROTOCOL_MIN: u8 = 148;

impl Config {
    /// Returns both ends' networks, the local ones first.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn check(&self) -> Result<[Vec<IpNetwork>; 2], ConfigError> {
        within("cache", self.cache.0, CACHE_MIN..=CACHE_MAX)?;
        within("window", self.window.into(), WINDOW_MIN.into()..=WINDOW_MAX.into())?;
        within("sample", self.sample.into(), SAMPLE_MIN.into()..=SAMPLE_MAX.into())?;
        within("protocol", self.protocol.into(), PROTOCOL_MIN.into()..=254)?;
        power_of_two("sample", self.sample.into())?;
        Ok([
            networks("local_networks", &self.local_networks)?,
            networks("remote_networks", &self.remote_networks)?,
        ])
    }
}

fn networks(key: &str, texts: &[Located]) -> Result<Vec<IpNetwork>, ConfigError> {
    if !(1..=NETWORKS_MAX).contains(&texts.len()) {
        let message = format!("`{key}` has {} networks, expected 1 to {NETWORKS_MAX}", texts.len());
        return Err(ConfigError::new(message));
    }
    texts.iter().map(IpNetwork::parse).collect()
}

fn default_cache() -> ByteCount {
    ByteCount(16 << 20)
}

fn default_window() -> u8 {
    32
}

fn default_sample() -> u16 {
    32
}

fn default_protocol() -> u8 {
    254
}

fn default_patience() -> Nanos {
    Nanos(5_000_000_000)
}
