//! The configuration.

use nf::BUFFER_SHARE_PERCENT;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use values::{ByteCount, Located};

use crate::texts::TextList;

/// The configuration; the README documents the keys.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Rule texts.
    pub rules: TextList,
    /// Definitions of variables.
    pub variables: Located,
    /// `HOME_NET`.
    pub home: Vec<String>,
    /// Classifications.
    pub classification: Located,
    /// Treatment of invalid and unsupported rules. Without it, in mode `prevent`, blocking rules
    /// are refused, and others skipped.
    pub unsupported: Option<UnsupportedPolicy>,
    /// Inspected bytes of an HTTP message's first line and headers.
    #[serde(deserialize_with = "length")]
    pub head: ByteCount,
    /// Inspected bytes of an HTTP message's body.
    #[serde(deserialize_with = "length")]
    pub body: ByteCount,
    /// Inspected bytes of a TLS handshake message.
    #[serde(deserialize_with = "length")]
    pub handshake: ByteCount,
    /// Treatment of a message's bytes beyond its inspected part, in mode `prevent`.
    pub beyond: BeyondPolicy,
    /// Memory for the buffers of all flows.
    pub memory: ByteCount,
    /// Share of `memory` that one source's flows may hold once memory runs short, in percent.
    #[serde(deserialize_with = "percent")]
    pub per_source: u8,
    /// Maximum meters for thresholds.
    pub trackers: u32,
    /// True if packets are dropped.
    pub mode: IdsMode,
    /// Messages reported as events, whether rules match or not.
    pub events: Vec<ReportedEvent>,
    /// Treatment of a flow that lost a buffer for lack of memory, in mode `prevent`.
    pub when_full: MemoryFullPolicy,
    /// True if a connection with only one visible direction counts as established.
    pub async_oneside: bool,
    /// The text of a `threshold.config`.
    pub thresholds: Located,
}

/// Maximum of `head`, `body` and `handshake`, in bytes.
pub const LENGTH_MAX: u64 = 1 << 20;

/// Bytes that are inspected of each part of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InspectedLengths {
    pub head: usize,
    pub body: usize,
    pub handshake: usize,
}

impl Config {
    pub(super) fn lengths(&self) -> InspectedLengths {
        let [head, body, handshake] =
            [self.head, self.body, self.handshake].map(|bytes| bytes.0.min(LENGTH_MAX) as usize);
        InspectedLengths { head, body, handshake }
    }

    /// Returns the keys that have no effect, each with its value.
    pub(super) fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        let keys = [
            ("beyond: drop", self.beyond == BeyondPolicy::Drop),
            ("when_full: drop", self.when_full == MemoryFullPolicy::Drop),
        ];
        let detects = self.mode == IdsMode::Detect;
        keys.into_iter().filter(move |(_, is_set)| detects && *is_set).map(|(key, _)| key)
    }
}

/// Reads a length in its range, so that an error is about the value's place.
fn length<'de, D: Deserializer<'de>>(from: D) -> Result<ByteCount, D::Error> {
    let bytes = ByteCount::deserialize(from)?;
    match bytes.0 {
        1..=LENGTH_MAX => Ok(bytes),
        wrong => Err(D::Error::custom(format!("{wrong} bytes, expected 1 to {LENGTH_MAX}"))),
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rules: TextList::default(),
            variables: Located::default(),
            home: Vec::new(),
            classification: Located::default(),
            unsupported: None,
            head: ByteCount(64 << 10),
            body: ByteCount(100 << 10), // As Suricata is shipped.
            handshake: ByteCount(64 << 10),
            beyond: BeyondPolicy::Pass,
            memory: ByteCount(256 << 20),
            per_source: BUFFER_SHARE_PERCENT,
            trackers: 65_536,
            mode: IdsMode::Prevent,
            events: Vec::new(),
            when_full: MemoryFullPolicy::Pass,
            async_oneside: false,
            thresholds: Located::default(),
        }
    }
}

/// Reads a percentage.
fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    match u8::deserialize(from)? {
        percent @ 1..=100 => Ok(percent),
        wrong => Err(D::Error::custom(format!("{wrong}, expected a percentage from 1 to 100"))),
    }
}

/// Treatment of a rule that is invalid or unsupported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnsupportedPolicy {
    /// The rule is skipped with a warning.
    Skip,
    /// The configuration is refused.
    Refuse,
}

/// A kind of message that is reported as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportedEvent {
    /// DNS messages.
    Dns,
    /// TLS handshakes.
    Tls,
}

/// The effect of `drop` and `reject` rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdsMode {
    /// They raise an alert, and the packet passes.
    Detect,
    /// They act as written.
    Prevent,
}

/// Treatment of traffic that cannot be inspected for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryFullPolicy {
    /// It passes.
    Pass,
    /// Its flow is dropped.
    Drop,
}

/// Treatment of a message's bytes beyond its inspected part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BeyondPolicy {
    /// It passes.
    Pass,
    /// Its flow is dropped.
    Drop,
}
