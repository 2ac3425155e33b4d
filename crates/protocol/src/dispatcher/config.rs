//! Configuration and limits of a dispatcher.

use core::time::Duration;
use std::fmt;

use packet::memory::OutOfMemory;

/// Limit on the units that a flowlet's state is replicated to, unless to all: as many as fit into a
/// flow's entry.
pub const TARGETS_COUNT_MAX: u8 = 11;

/// Limit on the buckets of the load meter.
pub const BUCKETS_MAX: usize = 10_000;

/// Limit on the flows of a dispatcher.
pub const FLOWS_MAX: u32 = 1 << 30;

/// Silence after which a flow may end for a new one, in ns: long enough for everything in flight to
/// arrive.
pub const DISPLACED_AFTER_NS: u64 = 1_000_000_000;

/// Limit on the buckets that flows are hashed to.
pub const RSS_BUCKETS_MAX: u32 = 4096;

/// Configuration of a dispatcher. The defaults are those of the papers where they state them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The unit of assignment.
    pub mode: Granularity,
    /// T, in ns: a longer gap between two packets of a flow begins a new flowlet (S29, S30). At
    /// least 1.
    pub gap_ns: u64,
    /// B, in bytes on the wire: a flowlet ends before the packet that would exceed this (S29, S31).
    /// At least 1; `u64::MAX` disables cuts by size.
    pub size_max: u64,
    /// Weight of the newest flowlet in a flow's estimate, above 0 and up to 1 (S34).
    pub alpha: f32,
    /// The time over which a flowlet's rate is measured (S34).
    pub rate_over: RateWindow,
    /// Weight of having the state against utilisation, 0 to 1; 0 ignores it (S36, S37).
    pub lambda: f32,
    /// The choice among units with room for a flowlet (S38).
    pub choice: UnitChoice,
    /// The choice of units that get replicas (S54).
    pub targets: TargetChoice,
    /// K, the number of such units (S55); at most [`TARGETS_COUNT_MAX`]. Fewer if fewer units are
    /// active.
    pub targets_count: u8,
    /// Share of B above which every packet of a flowlet repeats the targets, with the mark to
    /// replicate [at once](crate::message::ReplicaTargets::at_once): a flowlet cut by its size
    /// leaves no silence for replication (S62). With 15 KB and packets of 1,500 bytes, 0.9 marks
    /// the last one. Above 0, below 1; `None` marks no packet, as in the papers.
    pub push_at: Option<f32>,
    /// Load, as a share of capacity, below which a unit keeps the next flowlets of its flows,
    /// without a choice; above 0, up to 1. No room is needed: the load contains the flow's rate. At
    /// higher load, a flowlet after a gap goes to the least loaded unit below `stay_below` that has
    /// the state, if there is one. A flowlet after a cut by size stays until its unit is
    /// overloaded, unless its state is [pushed](Config::push_at): the state could not be elsewhere
    /// in time (S62). `None` assigns every flowlet again, as in the papers.
    pub stay_below: Option<f32>,
    /// Load, as a share of capacity, above which the states of a unit's flowlets are replicated;
    /// above 0, up to [`stay_below`](Config::stay_below), which it requires: below that load
    /// flowlets stay, and replicas would be useless. For [`Granularity::Flowlet`] only. `None`
    /// replicates all (S51).
    pub copy_from: Option<f32>,
    /// Capacity of a unit, in bits per second on the wire (S41). At least 1.
    pub capacity_bps: u64,
    /// Number of units that are always active. At least 1.
    pub units_min: u16,
    /// Limit on the number of units; they are numbered from 0.
    pub units_max: u16,
    /// Load, as a share of capacity, above which all active units must be for another one to start
    /// (S42); above 0, up to 1.
    pub start_at: f32,
    /// The rule for starting and draining units.
    pub scaling: ScalingRule,
    /// Time without packets after which a unit is drained, in ns (S43). At least 1.
    pub idle_ns: u64,
    /// Condition on the other units for draining an idle one, so that none starts again at once.
    pub drain_when: DrainCondition,
    /// Length of a bucket of the load meter, in ns (S40). At least 1.
    pub bucket_ns: u64,
    /// Number of buckets that a unit's load is measured over (S40); 1 to [`BUCKETS_MAX`].
    pub buckets: usize,
    /// Number of buckets of a second, shorter measurement. The higher of both loads counts, so that
    /// a burst keeps flowlets away from its unit at once. Starting and draining use the long one. 0
    /// disables it, as in the papers (a limitation, S105); at most [`buckets`](Config::buckets).
    pub alarm_buckets: usize,
    /// Capacity of the flow table; 1 to [`FLOWS_MAX`].
    pub flows_max: u32,
    /// Policy for new flows when the table is full.
    pub when_full: WhenFlowsFull,
    /// Silence after which a flow ends without a proposal, in ns: if all packets of a flow were
    /// lost, no unit knows it. At least [`DISPLACED_AFTER_NS`]; it should exceed the time after
    /// which units propose ends. `None` disables it.
    pub forget_after_ns: Option<u64>,
    /// Seed of the random choice of targets (S56).
    pub seed: u64,
    /// Number of affinity groups; `None` if all flows may be anywhere. Flows of a group have one
    /// owner, whatever the mode.
    pub affinity_groups: Option<u16>,
    /// The state of a flow is copied to its next owner before it moves from a draining unit, while
    /// packets continue (pre-copy). Useful if the transfer of a state takes long.
    pub pre_copy: bool,
    /// Another unit starts if an operator drains a unit and fewer than `units_min` would stay.
    /// Otherwise the operator may leave fewer, as on one machine.
    pub replaces_drained: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Granularity::Flowlet,
            gap_ns: 500_000,  // S30
            size_max: 15_000, // S31
            alpha: 0.5,
            rate_over: RateWindow::Burst,
            lambda: 0.25, // S37
            choice: UnitChoice::MostUtilised,
            targets: TargetChoice::Weighted,
            targets_count: 3, // S55
            push_at: None,
            stay_below: None,
            copy_from: None,
            capacity_bps: 1_000_000_000, // S41
            units_min: 1,
            units_max: 10, // S41
            start_at: 0.9, // S42
            scaling: ScalingRule::Room,
            idle_ns: 200_000_000,
            drain_when: DrainCondition::MeanIsBelow,
            bucket_ns: 500_000, // S40
            buckets: 200,       // S40
            alarm_buckets: 0,
            flows_max: 1_000_000,
            when_full: WhenFlowsFull::RefuseNew,
            forget_after_ns: None,
            seed: 0,
            affinity_groups: None,
            pre_copy: false,
            replaces_drained: false,
        }
    }
}

/// The unit of assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A flowlet (S3, S29).
    Flowlet,
    /// A flow, for its whole life: the vanilla baseline (S6, S88).
    Flow,
    /// A flow, which may move if its unit is overloaded, but only with its first packet after a
    /// multiple of `every_ns` (S88).
    SmartFlow {
        /// The period, in ns. At least 1.
        every_ns: u64,
    },
    /// A packet, round robin: the bad extreme (S5).
    Packet,
    /// A bucket of flows by their hash, as in a network card.
    Rss {
        /// The number of buckets; 1 to [`RSS_BUCKETS_MAX`].
        buckets: u32,
        /// Time between moves of buckets that balance the units' loads, in ns, at least 1; `None`
        /// never moves any. Then no units start either: nothing would reach them.
        every_ns: Option<u64>,
    },
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Granularity::Flowlet => write!(f, "flowlet"),
            Granularity::Flow => write!(f, "flow"),
            Granularity::SmartFlow { every_ns } => {
                write!(f, "smart-flow:{:?}", Duration::from_nanos(every_ns))
            }
            Granularity::Packet => write!(f, "packet"),
            Granularity::Rss { buckets, every_ns: None } => write!(f, "rss:{buckets}"),
            Granularity::Rss { buckets, every_ns: Some(every_ns) } => {
                write!(f, "rss:{buckets}:{:?}", Duration::from_nanos(every_ns))
            }
        }
    }
}

/// The condition on the other units for draining an idle one. The papers do not state any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCondition {
    /// Total load, over all other units, is below [`DRAIN_BELOW`](crate::dispatcher::DRAIN_BELOW)
    /// of the load that starts a unit.
    MeanIsBelow,
    /// At least one of the others is below that: a unit starts when all are above.
    OneIsBelow,
}

/// The time over which a flowlet's rate is measured, at least T: a single packet is no burst. The
/// papers say only "the previous flowlet's measured rate".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateWindow {
    /// From its first packet to its last: the rate while it lasts.
    Burst,
    /// From its first packet to the next flowlet's, or to the flow's end: the flow's average rate.
    Interval,
    /// The window of a unit's load ([`buckets`](Config::buckets)): what the flowlet adds to that
    /// load.
    Window,
}

/// The choice among units with room for a flowlet (S38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// The highest score, as in the pseudocode: utilisation, plus lambda if it has the state. The
    /// lowest number wins ties.
    MostUtilised,
    /// The lowest number, as in the text; or the lowest that has the state, if its number is less
    /// than lambda times the active units higher. Lambda 0 ignores state; with lambda 1 only room
    /// counts more, as for the other choice.
    LowestId,
    /// The lowest load, minus lambda if it has the state. The lowest number wins ties. With lambda
    /// 0 and whole flows, the choice of NFActor's later version.
    LeastLoaded,
    /// The next unit in turn, whatever its load (A13). [`TargetChoice::Predicted`] takes the least
    /// loaded instead.
    RoundRobin,
}

impl fmt::Display for UnitChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnitChoice::MostUtilised => "most-utilised",
            UnitChoice::LowestId => "lowest-id",
            UnitChoice::LeastLoaded => "least-loaded",
            UnitChoice::RoundRobin => "round-robin",
        })
    }
}

/// The rule for starting and draining units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalingRule {
    /// As published for flowlets: a unit starts for a flowlet without room, or if all are nearly
    /// full; an idle one is drained (S42, S43). A flowlet's rate counts as needed room, two hundred
    /// times what it adds to a load over [`buckets`](Config::buckets), so units start at four
    /// fifths of their load (S35).
    Room,
    /// The number of units follows total demand. A unit starts when demand needs more, and the last
    /// one is drained when demand has needed fewer for a while, idle or not. A flowlet without room
    /// starts none, and stays unless its unit is full.
    Demand {
        /// Load, as a share of capacity, that units should have; above 0, up to 1.
        load: f32,
    },
    /// A unit that drops packets is relieved by another one (A39).
    Drops(DropRule),
}

impl ScalingRule {
    /// Returns [`ScalingRule::Demand`] with this load; without one, [`ScalingRule::Room`].
    pub fn following(load: Option<f32>) -> ScalingRule {
        load.map_or(ScalingRule::Room, |load| ScalingRule::Demand { load })
    }
}

impl fmt::Display for ScalingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScalingRule::Room => f.write_str("room"),
            ScalingRule::Demand { load } => write!(f, "demand:{load}"),
            ScalingRule::Drops(rule) => write!(f, "drops:{}:{}", rule.drops_max, rule.step),
        }
    }
}

/// Scaling by dropped packets, as in NFActor's later version: a unit is overloaded if packets to it
/// [are dropped](crate::dispatcher::Dispatcher::count_drops). Another one starts, and flows migrate
/// to it, step by step, until it has half the load. If there are no more units, the least loaded
/// one takes them, unless it has more than half the load already.
///
/// The published rule drains the unit with the least load, and does not say when. Here it is when
/// the others would have room, as for [`DrainCondition::MeanIsBelow`], for
/// [`idle_ns`](Config::idle_ns), and nothing was dropped in that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRule {
    /// Limit on a unit's dropped packets within a period; with more it is overloaded.
    pub drops_max: u64,
    /// Flows that migrate at once, at the end of a period. At least 1.
    pub step: u32,
    /// The period, in ns. At least 1.
    pub period_ns: u64,
}

impl Default for DropRule {
    /// Returns the published numbers. The period is not among them.
    fn default() -> DropRule {
        DropRule { drops_max: 100, step: 500, period_ns: 100_000_000 }
    }
}

/// The choice of units that get replicas of a flowlet's state: distinct, active, never the owner.
/// Replicas serve flowlets after a gap; a cut by size leaves no time for one (S62) unless it is
/// sent before the cut: see [`Config::push_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetChoice {
    /// At random, with weights inverse to the units' numbers, counted from 1 (S56).
    Weighted,
    /// The lowest numbers (S57).
    First,
    /// The lowest loads, then the lowest numbers (S57).
    LeastLoaded,
    /// All units (S57).
    All,
    /// None: state is only pulled.
    None,
    /// The one unit that would get the flow's next flowlet now if its owner could not.
    Predicted,
}

/// The policy for new flows when the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFlowsFull {
    /// Refuses the new flow, unless one of a few sampled flows has been silent for
    /// [`Config::forget_after_ns`].
    RefuseNew,
    /// Ends the longest silent of a few sampled flows, if it has been silent for at least
    /// [`DISPLACED_AFTER_NS`]; otherwise refuses the new one. Packets or state of the ended flow
    /// must not be in flight.
    EndOldest,
}

/// A dispatcher cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum DispatcherError {
    /// A value must not be zero.
    #[error("{0} must not be 0")]
    Zero(&'static str),
    /// A value is not within its range.
    #[error("{name} must be {range}, and is {value}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// The valid range.
        range: &'static str,
        /// The given value.
        value: f64,
    },
    /// Flows do not migrate in this mode, so a unit cannot be relieved.
    #[error("mode {0} assigns units by itself; scaling by drops needs mode flow, smart-flow or flowlet")]
    ScalingMode(Granularity),
    /// The limits on units contradict each other.
    #[error("units_max ({max}) must not be less than units_min ({min})")]
    UnitsCrossed {
        /// `units_min`.
        min: u16,
        /// `units_max`.
        max: u16,
    },
    /// There is no memory for the tables.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Config {
    /// Returns the silence after which a flow may end for a new one; `None` if none may.
    pub(crate) fn displaced_after_ns(&self) -> Option<u64> {
        match self.when_full {
            WhenFlowsFull::RefuseNew => self.forget_after_ns,
            WhenFlowsFull::EndOldest => Some(DISPLACED_AFTER_NS),
        }
    }

    /// Returns the number of units that are to have replicas of a flow for as long as it lasts;
    /// `None` if flows have none, or choose them again with each flowlet.
    pub(crate) fn lasting_targets(&self) -> Option<usize> {
        let lasts = matches!(self.mode, Granularity::Flow | Granularity::Rss { .. });
        (lasts && self.targets != TargetChoice::None).then_some(self.targets_count.into())
    }

    /// Returns the size above which a flowlet is likely to be cut.
    pub(crate) fn push_above(&self) -> u64 {
        match (self.mode, self.push_at) {
            (Granularity::Flowlet, Some(share)) if self.size_max < u64::MAX => {
                (f64::from(share) * self.size_max as f64).round() as u64
            }
            _ => u64::MAX,
        }
    }

    /// Checks the configuration.
    pub(crate) fn check(&self) -> Result<(), DispatcherError> {
        let period_ns = match self.mode {
            Granularity::SmartFlow { every_ns } | Granularity::Rss { every_ns: Some(every_ns), .. } => {
                every_ns
            }
            Granularity::Flowlet
            | Granularity::Flow
            | Granularity::Packet
            | Granularity::Rss { every_ns: None, .. } => 1,
        };
        let rule = match self.scaling {
            ScalingRule::Drops(rule) => rule,
            ScalingRule::Room | ScalingRule::Demand { .. } => DropRule::default(),
        };
        let zero = [
            ("gap_ns", self.gap_ns),
            ("size_max", self.size_max),
            ("capacity_bps", self.capacity_bps),
            ("units_min", self.units_min.into()),
            ("idle_ns", self.idle_ns),
            ("bucket_ns", self.bucket_ns),
            ("every_ns", period_ns),
            ("scaling.step", rule.step.into()),
            ("scaling.period_ns", rule.period_ns),
        ];
        if let Some(&(name, _)) = zero.iter().find(|(_, value)| *value == 0) {
            return Err(DispatcherError::Zero(name));
        }
        if let (ScalingRule::Drops(_), Granularity::Packet | Granularity::Rss { .. }) =
            (self.scaling, self.mode)
        {
            return Err(DispatcherError::ScalingMode(self.mode));
        }
        if self.units_max < self.units_min {
            return Err(DispatcherError::UnitsCrossed { min: self.units_min, max: self.units_max });
        }
        let in_range = |name, range, value: f64, is_in: bool| {
            if is_in { Ok(()) } else { Err(DispatcherError::OutOfRange { name, range, value }) }
        };
        in_range("alpha", "above 0, up to 1", self.alpha.into(), self.alpha > 0.0 && self.alpha <= 1.0)?;
        in_range("lambda", "0 to 1", self.lambda.into(), (0.0..=1.0).contains(&self.lambda))?;
        in_range(
            "start_at",
            "above 0, up to 1",
            self.start_at.into(),
            self.start_at > 0.0 && self.start_at <= 1.0,
        )?;
        let stay_below = self.stay_below.unwrap_or(1.0);
        in_range("stay_below", "above 0, up to 1", stay_below.into(), stay_below > 0.0 && stay_below <= 1.0)?;
        let copy_from = self.copy_from.unwrap_or(stay_below);
        in_range(
            "copy_from",
            "above 0, up to stay_below, which must be given",
            copy_from.into(),
            copy_from > 0.0
                && copy_from <= stay_below
                && (self.copy_from.is_none() || self.stay_below.is_some()),
        )?;
        if let ScalingRule::Demand { load } = self.scaling {
            in_range("scaling.load", "above 0, up to 1", load.into(), load > 0.0 && load <= 1.0)?;
        }
        in_range(
            "targets_count",
            "0 to 11",
            self.targets_count.into(),
            self.targets_count <= TARGETS_COUNT_MAX,
        )?;
        let push_at = self.push_at.unwrap_or(0.5);
        in_range("push_at", "above 0, below 1", push_at.into(), push_at > 0.0 && push_at < 1.0)?;
        in_range("buckets", "1 to 10000", self.buckets as f64, (1..=BUCKETS_MAX).contains(&self.buckets))?;
        in_range(
            "alarm_buckets",
            "0 to buckets",
            self.alarm_buckets as f64,
            self.alarm_buckets <= self.buckets,
        )?;
        in_range("flows_max", "1 to 2^30", self.flows_max.into(), (1..=FLOWS_MAX).contains(&self.flows_max))?;
        let forget_after_ns = self.forget_after_ns.unwrap_or(u64::MAX);
        in_range(
            "forget_after_ns",
            "at least 10^9",
            forget_after_ns as f64,
            forget_after_ns >= DISPLACED_AFTER_NS,
        )?;
        if let Granularity::Rss { buckets, .. } = self.mode {
            in_range("mode.buckets", "1 to 4096", buckets.into(), (1..=RSS_BUCKETS_MAX).contains(&buckets))?;
        }
        Ok(())
    }
}
