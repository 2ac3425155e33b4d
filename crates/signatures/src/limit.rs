//! How often a rule reports.

/// `threshold`: which matches are reported. What else a rule does (drop, set marks), it does for
/// every match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// Which of the matches are reported.
    pub kind: ThresholdKind,
    /// What is counted apart.
    pub track: Track,
    /// How many matches; at least 1.
    pub count: u32,
}

/// Which matches a [`Threshold`] lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThresholdKind {
    /// `limit`: the first `count` within so many seconds.
    Limit {
        /// The time that is looked at; at least 1 second.
        seconds: u32,
    },
    /// `threshold`: each `count`th within so many seconds; counting starts anew after it.
    Each {
        /// The time.
        seconds: u32,
    },
    /// `both`: the `count`th within so many seconds and no other in that time.
    Once {
        /// The time.
        seconds: u32,
    },
    /// `backoff`: the `count`th, then each time that the number has grown by this factor.
    Backoff {
        /// The factor; at least 2.
        multiplier: u32,
    },
}

/// `detection_filter`: a match counts as one only where `count` others came before it within so
/// many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DetectionFilter {
    /// What is counted apart.
    pub track: Track,
    /// How many; at least 1.
    pub count: u32,
    /// The time; at least 1 second.
    pub seconds: u32,
    /// Count different ports instead of matches.
    pub unique_on: Option<UniqueOn>,
}

/// Which ports are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UniqueOn {
    /// `src_port`.
    SourcePort,
    /// `dst_port`.
    DestinationPort,
}

/// What matches are counted apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// `by_src`: the packet's source address.
    Source,
    /// `by_dst`: its destination address.
    Destination,
    /// `by_both`: the two together.
    Both,
    /// `by_rule`: all matches of the rule together.
    Rule,
    /// `by_flow`: the flow.
    Flow,
}

/// `tag`: packets to record after a match. It has no part in matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Whose packets.
    pub scope: TagScope,
    /// How many of the unit.
    pub count: u32,
    /// The unit.
    pub unit: TagUnit,
}

/// How many packets a tag covers if the rule does not say.
pub const DEFAULT_TAG_PACKETS: u32 = 256;

/// Whose packets are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagScope {
    /// `session`: those of the flow.
    Session,
    /// `host,...,src`: those of the source of the packet that matched.
    Source,
    /// `host`, `host,...,dst`: those of its destination.
    Destination,
}

/// What a tag counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}
