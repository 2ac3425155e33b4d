//! `[dispatcher]`: assignment of packets to units.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use protocol::dispatcher::{
    DrainCondition, DropRule, RateWindow, ScalingRule, TargetChoice, UnitChoice, WhenFlowsFull,
};
use serde::de::{Deserialize, Deserializer, Error};

use values::{ByteCount, Nanos, Picos, PositiveBitRate, Share};

/// Assignment of packets to units.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DispatcherSettings {
    /// The unit of assignment: flowlets, flows, packets, or buckets of flows.
    pub mode: AssignmentMode,
    /// T: silence after which a packet begins a flowlet: 500 us (S30).
    pub gap: Nanos,
    /// B: size limit of a flowlet: 15 KB (S31). `None`: no limit.
    #[serde(deserialize_with = "size_or_none")]
    pub size_max: Option<ByteCount>,
    /// Weight of a flow's newest flowlet in the estimate of its next: 0.5 (S34).
    pub alpha: Share,
    /// Period of the measurement of a flowlet's rate: its duration (S34).
    #[serde(with = "RateWindowKey")]
    pub rate_over: RateWindow,
    /// Worth of having the flow's state at a unit: 0.25 (S37).
    pub lambda: Share,
    /// Choice among the units with room (S38).
    #[serde(with = "UnitChoiceKey")]
    pub choice: UnitChoice,
    /// Units that get replicas of a flow's state (S54).
    #[serde(with = "TargetChoiceKey")]
    pub targets: TargetChoice,
    /// K: number of these units: 3 (S55).
    pub targets_count: u8,
    /// Share of B after which a flowlet's packets request replication at once (S62). `None`: they
    /// never do.
    pub push_at: Option<Share>,
    /// Load below which a flowlet stays at its unit, as a share of capacity. `None`: each is
    /// assigned again, as published.
    pub stay_below: Option<Share>,
    /// Load of a unit, as a share of capacity, at which its flowlets' states are replicated.
    /// `None`: all are, as published.
    pub copy_from: Option<Share>,
    /// Capacity that the dispatcher assumes for a unit; by default the unit's own (S41). A smaller
    /// one leaves room for bursts that its load meter does not see (S105).
    pub capacity: Option<PositiveBitRate>,
    /// Units are started ahead when all are loaded to this share: 0.9 (S42).
    pub start_at: Share,
    /// Units are provisioned to have this load, as a share of capacity, whether flowlets find room
    /// or not. `None`: as published.
    pub follow_at: Option<Share>,
    /// Limit on a unit's dropped packets within `drops_period`; above it, another unit takes half
    /// its load (A39). Replaces `follow_at`. `None`: drops have no consequence.
    pub drops_max: Option<u64>,
    /// Period over which drops count: 100 ms.
    pub drops_period: Nanos,
    /// Flows that then migrate at once: 500.
    pub drops_step: u32,
    /// Time without a packet after which a unit is stopped: 200 ms (S43).
    pub idle: Nanos,
    /// Condition on the other units' loads: by default, their mean is below a limit.
    #[serde(with = "DrainConditionKey")]
    pub drain_when: DrainCondition,
    /// Load is measured in buckets of this time: 500 us (S40).
    pub bucket: Nanos,
    /// Buckets of the load window: 200 (S40).
    pub buckets: usize,
    /// Length of a second, shorter window: a burst within it keeps flowlets away (S105). 0: none.
    pub alarm_buckets: usize,
    /// Flows at once.
    pub flows_max: NonZeroU32,
    /// Policy for a new flow when the table is full.
    #[serde(with = "WhenFlowsFullKey")]
    pub when_full: WhenFlowsFull,
    /// Silence after which a flow ends, even if a unit knows it. `None`: no limit.
    pub forget_after: Option<Nanos>,
    /// Time of the dispatcher per packet: 0.
    pub packet_cost: Picos,
    /// Additional time to assign a flowlet: 0.
    pub flowlet_cost: Picos,
}

/// The unit of assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignmentMode {
    /// Flowlets (S3).
    Flowlet,
    /// Flows, for all of their life (S6).
    Flow,
    /// Flows, reassigned after each interval if their unit is overloaded (S88).
    SmartFlow {
        /// The interval.
        every: Nanos,
    },
    /// Single packets (S5).
    Packet,
    /// Buckets of flows by their hash.
    Rss {
        /// Buckets.
        buckets: NonZeroU32,
        /// Interval at which buckets are moved to balance the load; `None`: never.
        every: Option<Nanos>,
    },
}

/// Condition on the other units' loads for an idle unit to be stopped.
#[derive(serde::Deserialize)]
#[serde(remote = "DrainCondition", rename_all = "snake_case")]
enum DrainConditionKey {
    /// Below a limit on average.
    MeanIsBelow,
    /// At least one of them is below the limit.
    OneIsBelow,
}

/// Period of the measurement of a flowlet's rate (S34).
#[derive(serde::Deserialize)]
#[serde(remote = "RateWindow", rename_all = "snake_case")]
enum RateWindowKey {
    /// From its first packet to its last one.
    Burst,
    /// From its first packet to the next flowlet's.
    Interval,
    /// The window of the load meter.
    Window,
}

/// Choice of a flowlet's unit among those with room (S38).
#[derive(serde::Deserialize)]
#[serde(remote = "UnitChoice", rename_all = "snake_case")]
enum UnitChoiceKey {
    /// The most utilised one.
    MostUtilised,
    /// The one with the lowest number.
    LowestId,
    /// The one with the least load.
    LeastLoaded,
    /// The next one in turn.
    RoundRobin,
}

/// Units that get replicas of a flow's state.
#[derive(serde::Deserialize)]
#[serde(remote = "TargetChoice", rename_all = "snake_case")]
enum TargetChoiceKey {
    /// At random, units with low numbers more often (S56).
    Weighted,
    /// The units with the lowest numbers (S57).
    First,
    /// The units with the least load (S57).
    LeastLoaded,
    /// All active units (S57).
    All,
    /// None: the next owner pulls the state.
    None,
    /// The unit that the dispatcher would choose now.
    Predicted,
}

/// Policy for a new flow when the table is full.
#[derive(serde::Deserialize)]
#[serde(remote = "WhenFlowsFull", rename_all = "snake_case")]
enum WhenFlowsFullKey {
    /// Its packets are dropped.
    RefuseNew,
    /// The flow that was silent for longest ends for it.
    EndOldest,
}

impl Default for DispatcherSettings {
    fn default() -> DispatcherSettings {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        DispatcherSettings {
            mode: AssignmentMode::Flowlet,
            gap: Nanos(500_000),
            size_max: Some(ByteCount(15_000)),
            alpha: Share(0.5),
            rate_over: RateWindow::Burst,
            lambda: Share(0.25),
            choice: UnitChoice::MostUtilised,
            targets: TargetChoice::Weighted,
            targets_count: 3,
            push_at: None,
            stay_below: None,
            copy_from: None,
            capacity: None,
            start_at: Share(0.9),
            follow_at: None,
            drops_max: None,
            drops_period: ms(100),
            drops_step: 500,
            idle: ms(200),
            drain_when: DrainCondition::MeanIsBelow,
            bucket: Nanos(500_000),
            buckets: 200,
            alarm_buckets: 0,
            flows_max: const { NonZeroU32::new(1 << 20).unwrap() },
            when_full: WhenFlowsFull::RefuseNew,
            forget_after: None,
            packet_cost: Picos(0),
            flowlet_cost: Picos(0),
        }
    }
}

impl DispatcherSettings {
    /// Returns the scaling rule.
    pub fn scaling(&self) -> ScalingRule {
        match self.drops_max {
            None => ScalingRule::following(self.follow_at.map(|share| share.0 as f32)),
            Some(drops_max) => {
                let (step, period_ns) = (self.drops_step, self.drops_period.0);
                ScalingRule::Drops(DropRule { drops_max, step, period_ns })
            }
        }
    }
}

/// Reads a size, or `none`.
fn size_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteCount>, D::Error> {
    match Cow::<'de, str>::deserialize(from)?.as_ref() {
        "none" => Ok(None),
        text => text.parse().map(Some).map_err(D::Error::custom),
    }
}

/// An unknown mode of assignment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode: flowlet, flow, smart-flow:TIME, packet, rss:BUCKETS or rss:BUCKETS:TIME")]
pub struct AssignmentModeError(String);

impl FromStr for AssignmentMode {
    type Err = AssignmentModeError;

    fn from_str(text: &str) -> Result<AssignmentMode, AssignmentModeError> {
        let wrong = || AssignmentModeError(text.to_owned());
        let time = |time: &str| time.parse().ok().filter(|&time| time > Nanos(0)).ok_or_else(wrong);
        let number = |number: &str| number.parse().map_err(|_| wrong());
        match text.split([':', '=']).collect::<Vec<_>>()[..] {
            ["flowlet"] => Ok(AssignmentMode::Flowlet),
            ["flow"] => Ok(AssignmentMode::Flow),
            ["smart-flow", every] => Ok(AssignmentMode::SmartFlow { every: time(every)? }),
            ["packet"] => Ok(AssignmentMode::Packet),
            ["rss", buckets] => Ok(AssignmentMode::Rss { buckets: number(buckets)?, every: None }),
            ["rss", buckets, every] => {
                Ok(AssignmentMode::Rss { buckets: number(buckets)?, every: Some(time(every)?) })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for AssignmentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssignmentMode::Flowlet => write!(f, "flowlet"),
            AssignmentMode::Flow => write!(f, "flow"),
            AssignmentMode::SmartFlow { every } => write!(f, "smart-flow:{every}"),
            AssignmentMode::Packet => write!(f, "packet"),
            AssignmentMode::Rss { buckets, every: None } => write!(f, "rss:{buckets}"),
            AssignmentMode::Rss { buckets, every: Some(every) } => write!(f, "rss:{buckets}:{every}"),
        }
    }
}

impl<'de> Deserialize<'de> for AssignmentMode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AssignmentMode, D::Error> {
        Cow::<'de, str>::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for text in ["flowlet", "flow", "smart-flow:100ms", "packet", "rss:128", "rss:64:1.5ms"] {
            let mode: AssignmentMode = text.parse().unwrap();
            assert_eq!(mode.to_string(), text);
        }
        for text in ["", "smart-flow", "smart-flow:0s", "smart-flow:5", "rss", "rss:0", "flow:1s", "rss:8:x"]
        {
            assert!(text.parse::<AssignmentMode>().is_err(), "{text}");
        }
    }
}
