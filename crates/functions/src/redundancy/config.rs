//! The configuration of `redundancy`.

use values::{ByteCount, ConfigError};

use super::chunk::Chunker;
use crate::numbers::{power_of_two, within};
use crate::rabin::{WINDOW_MAX, WINDOW_MIN};

/// The configuration; the README documents the keys.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Bytes of streams remembered per direction, [`CACHE_MIN`] to [`CACHE_MAX`].
    pub cache: ByteCount,
    /// Bytes of a fingerprint's window, [`super::WINDOW_MIN`] to [`super::WINDOW_MAX`].
    pub window: u8,
    /// A stream is cut after one of this many windows: a power of two from [`SAMPLE_MIN`] to
    /// [`SAMPLE_MAX`].
    pub sample: u16,
    /// Server ports, up to [`super::PORTS_MAX`]; without any, flows of all ports are measured.
    pub ports: Vec<u16>,
    /// Minimum redundant bytes of a flow that is reported at its end; 0: none is.
    pub events_from: ByteCount,
}

/// Minimum of `cache`, in bytes.
pub const CACHE_MIN: u64 = 64 << 10;
/// Maximum of `cache`, in bytes.
pub const CACHE_MAX: u64 = 64 << 30;
/// The densest cuts.
pub const SAMPLE_MIN: u16 = 16;
/// The sparsest cuts.
pub const SAMPLE_MAX: u16 = 4_096;
/// Maximum chunks remembered per direction, whatever the configuration says.
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
    /// Returns the chunker, and the number of chunks to remember per direction.
    pub(super) fn checked(&self) -> Result<(Chunker, u32), ConfigError> {
        within("cache", self.cache.0, CACHE_MIN..=CACHE_MAX)?;
        within("window", self.window.into(), WINDOW_MIN.into()..=WINDOW_MAX.into())?;
        within("sample", self.sample.into(), SAMPLE_MIN.into()..=SAMPLE_MAX.into())?;
        power_of_two("sample", self.sample.into())?;
        let cutter = Chunker::new(self.window.into(), self.sample.into());
        let chunks = self.cache.0 / cutter.expected_len();
        match u32::try_from(chunks) {
            Ok(chunks @ ..=CHUNKS_MAX) => Ok((cutter, chunks)),
            _ => Err(ConfigError::new(format!(
                "`cache` allows {chunks} chunks, expected at most {CHUNKS_MAX}: increase `sample` or `window`"
            ))),
        }
    }
}
