//! Rates of alerts.

/// `threshold`: limits the alerts. Other effects of a rule (drop, flowbits) occur at every match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// The selection of matches that alert.
    pub kind: ThresholdKind,
    /// The scope of the count.
    pub track: TrackBy,
    /// Number of matches; at least 1.
    pub count: u32,
}

/// The selection of matches that alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThresholdKind {
    /// `limit`: the first `count` in this time.
    Limit {
        /// At least 1 second.
        seconds: u32,
    },
    /// `threshold`: each `count`th in this time; counting then restarts.
    Each {
        /// At least 1 second.
        seconds: u32,
    },
    /// `both`: the `count`th in this time, and no other.
    Once {
        /// At least 1 second.
        seconds: u32,
    },
    /// `backoff`: the `count`th, then each time the count has grown by this factor.
    Backoff {
        /// At least 2.
        multiplier: u32,
    },
}

/// `detection_filter`: a match counts only after `count` others in this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DetectionFilter {
    /// The scope of the count.
    pub track: TrackBy,
    /// At least 1.
    pub count: u32,
    /// At least 1.
    pub seconds: u32,
    /// Counts distinct ports instead of matches.
    pub unique_on: Option<UniqueOn>,
}

/// The ports counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UniqueOn {
    /// `src_port`.
    SourcePort,
    /// `dst_port`.
    DestinationPort,
}

/// The scope of a count of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackBy {
    /// `by_src`: the packet's source address.
    Source,
    /// `by_dst`: its destination address.
    Destination,
    /// `by_both`: both addresses.
    Both,
    /// `by_rule`: all matches of the rule.
    Rule,
    /// `by_flow`: the flow.
    Flow,
}

/// `tag`: packets to record after a match. It does not affect matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagOption {
    /// The packets to record.
    pub scope: TagScope,
    /// Number of units.
    pub count: u32,
    /// The unit.
    pub unit: TagUnit,
}

/// Default number of packets of a tag.
pub const DEFAULT_TAG_PACKETS: u32 = 256;

/// The packets that a tag records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagScope {
    /// `session`: those of the flow.
    Session,
    /// `host,...,src`: those of the source of the matching packet.
    Source,
    /// `host`, `host,...,dst`: those of its destination.
    Destination,
}

/// The unit of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}
