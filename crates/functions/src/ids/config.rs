//! The configuration.

use nf::BUFFER_SHARE_PERCENT;
use values::{ByteCount, Located};

use crate::texts::TextList;

/// The configuration; see the README for what the keys do.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Rules, as text.
    pub rules: TextList,
    /// Definitions of variables.
    pub variables: Located,
    /// `HOME_NET`.
    pub home: Vec<String>,
    /// Class types.
    pub classification: Located,
    /// What becomes of a rule that asks for something that is not supported.
    pub unsupported: Unsupported,
    /// The bytes of a message's body that are looked at.
    pub body: ByteCount,
    /// Bytes that are kept of streams and messages of all flows.
    pub memory: ByteCount,
    /// What the flows of one source may hold of it once it runs short, in percent.
    pub per_source: u8,
    /// Addresses and flows that thresholds count apart, at most.
    pub trackers: u32,
    /// Whether packets are dropped.
    pub mode: Mode,
    /// What is told as events, whether rules hold or not.
    pub events: Vec<Told>,
    /// What becomes of a flow of which something is not kept for lack of memory, if packets are
    /// dropped.
    pub when_full: WhenFull,
    /// Whether a connection of which one direction alone is seen counts as established.
    pub async_oneside: bool,
    /// A `threshold.config`.
    pub thresholds: Located,
}

/// The most that `body` may say, in bytes.
pub const BODY_MAX: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Config {
        Config {
            rules: TextList::default(),
            variables: Located::default(),
            home: Vec::new(),
            classification: Located::default(),
            unsupported: Unsupported::Skip,
            body: ByteCount(16 << 10),
            memory: ByteCount(256 << 20),
            per_source: BUFFER_SHARE_PERCENT,
            trackers: 65_536,
            mode: Mode::Prevent,
            events: Vec::new(),
            when_full: WhenFull::Pass,
            async_oneside: false,
            thresholds: Located::default(),
        }
    }
}

/// What becomes of a rule that is wrong, or that asks for something that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unsupported {
    /// It is left out, with a warning.
    Skip,
    /// The configuration is refused.
    Refuse,
}

/// What is told as events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// DNS messages.
    Dns,
    /// TLS handshakes.
    Tls,
}

/// What is done where a rule says to drop or reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// An alert is raised, and the packet passes.
    Detect,
    /// What the rule says.
    Prevent,
}

/// What becomes of what cannot be looked at for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// It passes.
    Pass,
    /// Its flow is dropped.
    Drop,
}
