//! The configuration of `redundancy`, as a policy writes it.

use values::{ByteCount, ConfigError};

use super::chunk::Cutter;
use crate::numbers::{power_of_two, within};
use crate::rabin::{WINDOW_MAX, WINDOW_MIN};

/// The configuration; see the README for what the keys do.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Bytes of streams that are remembered in each direction, [`CACHE_MIN`] to [`CACHE_MAX`].
    pub cache: ByteCount,
    /// Bytes that a fingerprint is made of, [`super::WINDOW_MIN`] to [`super::WINDOW_MAX`].
    pub window: u8,
    /// A stream is cut behind one of so many windows: a power of two from [`SAMPLE_MIN`] to
    /// [`SAMPLE_MAX`].
    pub sample: u16,
    /// Ports of servers; without any, flows of all ports are looked at. Up to [`super::PORTS_MAX`].
    pub ports: Vec<u16>,
    /// Flows of which at least so many bytes were there before are told when they are over; 0:
    /// none.
    pub events_from: ByteCount,
}

/// The least that is remembered of one direction, in bytes.
pub const CACHE_MIN: u64 = 64 << 10;
/// The most that is remembered of one direction, in bytes.
pub const CACHE_MAX: u64 = 64 << 30;
/// The densest cuts: behind one of so many windows.
pub const SAMPLE_MIN: u16 = 16;
/// The sparsest cuts: behind one of so many windows.
pub const SAMPLE_MAX: u16 = 4_096;
/// Chunks that are remembered of one direction at most, whatever the configuration says.
pub const CHUNKS_MAX: u32 = 16_777_216;

impl Default for Config {
    fn default() -> Config {
        Config {
            cache: ByteCount(16 << 20),
            window: 32,
            sample: 64,
            ports: Vec::new(),
            events_from: ByteCount(1 << 20),
        }
    }
}

impl Config {
    /// What cuts streams, and how many chunks are remembered of each direction.
    pub(super) fn checked(&self) -> Result<(Cutter, u32), ConfigError> {
        within("cache", self.cache.0, CACHE_MIN..=CACHE_MAX)?;
        within("window", self.window.into(), WINDOW_MIN.into()..=WINDOW_MAX.into())?;
        within("sample", self.sample.into(), SAMPLE_MIN.into()..=SAMPLE_MAX.into())?;
        power_of_two("sample", self.sample.into())?;
        let cutter = Cutter::new(self.window.into(), self.sample.into());
        let chunks = self.cache.0 / cutter.expected_len();
        match u32::try_from(chunks) {
            Ok(chunks @ ..=CHUNKS_MAX) => Ok((cutter, chunks)),
            _ => Err(ConfigError::new(format!(
                "`cache` has {chunks} chunks of `window` and `sample` bytes, and {CHUNKS_MAX} are the most: take a larger `sample`"
            ))),
        }
    }
}
