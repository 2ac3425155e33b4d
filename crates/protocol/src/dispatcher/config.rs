//! What a dispatcher is told before it runs.

use core::time::Duration;
use std::fmt;

use packet::memory::OutOfMemory;

/// The most units that a flowlet's state may be copied to, other than to all: so many fit into a
/// flow's index.
pub const TARGETS_COUNT_MAX: u8 = 11;

/// The most buckets of the load meter.
pub const BUCKETS_MAX: usize = 10_000;

/// The most flows of a dispatcher.
pub const FLOWS_MAX: u32 = 1 << 30;

/// A flow that is silent for so long may end for a new one, in ns: long enough for what is under
/// way to have arrived.
pub const DISPLACED_AFTER_NS: u64 = 1_000_000_000;

/// The most buckets that flows are hashed to.
pub const RSS_BUCKETS_MAX: u32 = 4096;

/// What a dispatcher is told before it runs. The default is what the papers use where they say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is given to a unit at a time.
    pub mode: Granularity,
    /// T, in ns: a longer gap between two packets of a flow begins a new flowlet (S29, S30). At
    /// least 1.
    pub gap_ns: u64,
    /// B, in bytes on the wire: a flowlet that a packet would make longer ends before it (S29,
    /// S31). At least 1; `u64::MAX`: none is cut by its size.
    pub size_max: u64,
    /// Weight of the newest flowlet in a flow's estimate, above 0 and up to 1 (S34).
    pub alpha: f32,
    /// Over which time a flowlet's rate is measured (S34).
    pub rate_over: RateOver,
    /// What having the state is worth against utilisation, 0 to 1: 0 ignores it (S36, S37).
    pub lambda: f32,
    /// Which of the units that have room gets a flowlet (S38).
    pub choice: UnitChoice,
    /// How the units that get a copy of the state are chosen (S54).
    pub targets: TargetChoice,
    /// K, how many these are (S55); at most [`TARGETS_COUNT_MAX`]. Fewer if fewer units are active.
    pub targets_count: u8,
    /// From this share of B on, every packet of a flowlet says its targets once more, with the mark
    /// that the state is to be copied there [at once](crate::message::Targets::at_once): a
    /// flowlet that is cut by its size leaves no silence in which to do so (S62). With 15 KB and
    /// packets of 1,500 bytes, 0.9 marks the last one. Above 0, below 1; none: no packet, as in the
    /// papers.
    pub push_at: Option<f32>,
    /// A flowlet of a known flow stays with its unit, without a choice, as long as that one is
    /// loaded to less than this share of its capacity; above 0, up to 1. No room is asked for: what
    /// the flow brings is in that load already. From that load on, one behind a gap goes to the
    /// least loaded unit that has its state and is itself loaded to less, if there is one; one
    /// behind a cut by size, whose state could not be elsewhere in time (S62) unless it is
    /// [pushed](Config::push_at), stays until the unit has more than it can take. None: it is
    /// assigned anew, as in the papers.
    pub stay_below: Option<f32>,
    /// Only states of flowlets whose units are loaded to this share of their capacity or more are
    /// copied ahead; above 0, up to [`stay_below`](Config::stay_below), without which it means
    /// nothing: the others' flowlets stay where they are, and nobody would ask for the copies. Of
    /// flowlets only ([`Granularity::Flowlet`]). None: all are (S51).
    pub copy_from: Option<f32>,
    /// What a unit can take, in bits per second on the wire (S41). At least 1.
    pub capacity_bps: u64,
    /// So many units are active from the beginning, and never fewer. At least 1.
    pub units_min: u16,
    /// No more units than this; they are numbered from 0.
    pub units_max: u16,
    /// When all active units' loads are above this part of their capacity, one more is started
    /// (S42); above 0, up to 1.
    pub start_at: f32,
    /// Units are as many as all that comes asks for: such that they are loaded to this share of
    /// their capacity; above 0, up to 1. One is started when it takes more, and the last one is
    /// drained when it took less for a while, idle or not; a flowlet that has no room starts none,
    /// and stays where it is unless its unit is full. None: as in the papers, where what counts as
    /// room is what a flowlet brings while it lasts, and that is two hundred times what it adds to
    /// a load over [`buckets`](Config::buckets): units start at four fifths of their load (S35,
    /// S42, S43).
    pub follow_at: Option<f32>,
    /// A unit that got no packet for so long is drained, in ns (S43). At least 1.
    pub idle_ns: u64,
    /// What the others' loads must be for an idle unit to be drained, so that none is started again
    /// at once.
    pub drain_when: DrainWhen,
    /// Time of one bucket of the load meter, in ns (S40). At least 1.
    pub bucket_ns: u64,
    /// Buckets that a unit's load is measured over (S40); 1 to [`BUCKETS_MAX`].
    pub buckets: usize,
    /// Buckets that a unit's load is measured over as well, so that a burst that the others hide
    /// keeps flowlets away from its unit at once: where that load is the higher one, it counts
    /// instead. Starting and draining units goes by the other. 0: none, as in the papers, whose
    /// limit this is (S105); at most [`buckets`](Config::buckets).
    pub alarm_buckets: usize,
    /// Flows that there is room for; 1 to [`FLOWS_MAX`].
    pub flows_max: u32,
    /// What becomes of a flow that there is no room for.
    pub when_full: WhenFull,
    /// A flow that is silent for so long ends, in ns, whether its unit proposes that or not: one
    /// whose packets were all lost is known to no unit. At least [`DISPLACED_AFTER_NS`]; it should
    /// be longer than what units wait before they propose it. None: no flow ends by itself.
    pub forget_after_ns: Option<u64>,
    /// Seed of what is random: the targets (S56).
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Granularity::Flowlet,
            gap_ns: 500_000,  // S30
            size_max: 15_000, // S31
            alpha: 0.5,
            rate_over: RateOver::Burst,
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
            follow_at: None,
            idle_ns: 200_000_000,
            drain_when: DrainWhen::MeanIsBelow,
            bucket_ns: 500_000, // S40
            buckets: 200,       // S40
            alarm_buckets: 0,
            flows_max: 1_000_000,
            when_full: WhenFull::RefuseNew,
            forget_after_ns: None,
            seed: 0,
        }
    }
}

/// What is given to a unit at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A flowlet (S3, S29).
    Flowlet,
    /// A flow, for its whole life: the vanilla baseline (S6, S88).
    Flow,
    /// A flow, which may be moved if its unit is overloaded, but only with its first packet after a
    /// multiple of `every_ns` (S88).
    SmartFlow {
        /// The period, in ns. At least 1.
        every_ns: u64,
    },
    /// A packet, round robin: the bad extreme (S5).
    Packet,
    /// A bucket of flows by their hash, as a network card does it.
    Rss {
        /// How many there are; 1 to [`RSS_BUCKETS_MAX`].
        buckets: u32,
        /// How often buckets are moved so that units are loaded alike, in ns, at least 1; none:
        /// never. Then no units are started either, for nothing would come to them.
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

/// What the others' loads must be for an idle unit to be drained. The papers say "inactivating",
/// and nothing of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainWhen {
    /// All that comes, over all others, is below [`DRAIN_BELOW`](crate::dispatcher::DRAIN_BELOW) of
    /// what starts a unit.
    MeanIsBelow,
    /// One of the others at least is below that: a unit is started when all are above.
    OneIsBelow,
}

/// Over which time a flowlet's rate is measured: T at least, for a lone packet is no burst. The
/// papers say "the previous flowlet's measured rate", and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOver {
    /// From its first packet to its last one: what it brings while it lasts.
    Burst,
    /// From its first packet to the next one's, or to the flow's end: what its flow brings on
    /// average.
    Interval,
    /// Over the window that a unit's load is measured over ([`buckets`](Config::buckets)): what it
    /// adds to that load.
    Window,
}

/// Which of the units that have room gets a flowlet (S38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// The one with the highest score, as in the pseudocode: its utilisation, and lambda if it has
    /// the state. The lowest number wins ties.
    MostUtilised,
    /// The one with the lowest number, as in the text; or, if its number is not higher by lambda
    /// times the active units, the lowest one that has the state. Lambda 0 ignores state, lambda 1
    /// puts state above all but room, as for the other choice.
    LowestId,
    /// The one with the least load, of which lambda is taken off if it has the state. The lowest
    /// number wins ties. Not in the papers: what spreads flows whose baselines would otherwise fill
    /// one unit after the other.
    LeastLoaded,
}

/// How the units that get a copy of a flowlet's state are chosen: distinct, active, never the owner
/// itself, which has it. They are of use to what comes behind a gap; a flowlet that is cut by its
/// size leaves no time to copy anything (S62), unless that begins before it ends: see
/// [`Config::push_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetChoice {
    /// At random, with weights inverse to the unit's number, counted from 1 (S56).
    Weighted,
    /// Those with the lowest numbers (S57).
    First,
    /// Those with the least load, the lowest numbers first (S57).
    LeastLoaded,
    /// All (S57).
    All,
    /// None: state is only fetched.
    None,
    /// The one that would get the flow's next flowlet now if its owner could not: one, whatever K
    /// is.
    Predicted,
}

/// What becomes of a flow that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Its packets are refused, unless one of a few flows is silent for
    /// [`Config::forget_after_ns`].
    RefuseNew,
    /// Of a few flows, the one silent longest ends, if it is silent for [`DISPLACED_AFTER_NS`] at
    /// least; else the new one's packets are refused. A flow of which packets may be on their way
    /// still, or whose state is, cannot end.
    EndOldest,
}

/// A dispatcher cannot be made like this.
#[derive(Debug, thiserror::Error)]
pub enum DispatcherError {
    /// A value must not be zero.
    #[error("{0} must not be 0")]
    Zero(&'static str),
    /// A value is not within its range.
    #[error("{name} must be {range}, and is {value}")]
    OutOfRange {
        /// Which one.
        name: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it is.
        value: f64,
    },
    /// There are to be fewer units at most than at least.
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
    /// How long a flow has to be silent to end for a new one that there is no room for; none: none
    /// does.
    pub(crate) fn displaced_after_ns(&self) -> Option<u64> {
        match self.when_full {
            WhenFull::RefuseNew => self.forget_after_ns,
            WhenFull::EndOldest => Some(DISPLACED_AFTER_NS),
        }
    }

    /// A flowlet with more bytes than this is likely to be cut by its size.
    pub(crate) fn push_above(&self) -> u64 {
        match (self.mode, self.push_at) {
            (Granularity::Flowlet, Some(share)) if self.size_max < u64::MAX => {
                (f64::from(share) * self.size_max as f64).round() as u64
            }
            _ => u64::MAX,
        }
    }

    /// Whether a dispatcher can be made like this.
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
        let zero = [
            ("gap_ns", self.gap_ns),
            ("size_max", self.size_max),
            ("capacity_bps", self.capacity_bps),
            ("units_min", self.units_min.into()),
            ("idle_ns", self.idle_ns),
            ("bucket_ns", self.bucket_ns),
            ("every_ns", period_ns),
        ];
        if let Some(&(name, _)) = zero.iter().find(|(_, value)| *value == 0) {
            return Err(DispatcherError::Zero(name));
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
        let follow_at = self.follow_at.unwrap_or(1.0);
        in_range("follow_at", "above 0, up to 1", follow_at.into(), follow_at > 0.0 && follow_at <= 1.0)?;
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
