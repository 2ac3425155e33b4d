//! How many units there are, and what is given to them.

use graph::{Options, WhenFull};
use protocol::dispatcher::{Granularity, TargetChoice};
use protocol::message::UnitId;

/// The most units of a machine.
pub const UNITS_MAX: u16 = 1_000;

/// How many units there are, and what is given to them. The rest is as the papers have it; see
/// [`protocol::dispatcher::Config`]. The default takes fewer units than what is published, and
/// moves fewer states; [`UnitsConfig::as_published`] is that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitsConfig {
    /// What is given to a unit at a time.
    pub mode: Granularity,
    /// Units that run from the beginning. At least 1.
    pub units_min: u16,
    /// Units at most, up to [`UNITS_MAX`].
    pub units_max: u16,
    /// What a unit is taken to process, in bits per second (S41).
    pub capacity_bps: u64,
    /// T: a longer gap between two packets of a flow begins a new flowlet, in nanoseconds (S30).
    /// With units that are slower than usual it should be longer: a flowlet of the greatest size
    /// within T would fill one.
    pub gap_ns: u64,
    /// Units are as many as all that comes asks for, loaded to this share, above 0 and up to 1;
    /// none: one more is started for flowlets that find no room, and one stopped that is idle. Of
    /// flowlets only.
    pub follow_at: Option<f32>,
    /// A flowlet stays with its flow's unit as long as that is loaded to less than this share,
    /// above 0 and up to 1; none: it is assigned anew. Of flowlets only.
    pub stay_below: Option<f32>,
    /// To how many units a flow's state is copied when it falls silent (K, S55). On one thread a
    /// state is there as soon as it is asked for, and copies only take time.
    pub copies: u8,
    /// Whether copies tell only what has changed since one that the other unit has.
    pub deltas: bool,
    /// Demand and capacity are told for each epoch of this length, in nanoseconds (S47).
    pub epoch_ns: u64,
}

impl Default for UnitsConfig {
    fn default() -> UnitsConfig {
        UnitsConfig {
            mode: Granularity::Flowlet,
            units_min: 1,
            units_max: 10,
            capacity_bps: 1_000_000_000,
            gap_ns: 500_000,
            follow_at: Some(0.93),
            stay_below: Some(0.95),
            copies: 0,
            deltas: false,
            epoch_ns: 100_000_000,
        }
    }
}

/// The router knows so many times the flows of the graph: those that ended in the graph stay with
/// it until it has heard so.
const ROUTER_FLOWS: u32 = 2;

/// Longer than any run, and short enough to be added to any time: more than two years.
const NEVER_NS: u64 = u64::MAX >> 8;

/// The most flows that a graph may have which runs on units: they number no more.
pub const FLOWS_MAX: u32 = protocol::unit::FLOWS_MAX / ROUTER_FLOWS;

impl UnitsConfig {
    /// The default, but with flowlets and units as in the papers (S35, S42, S43).
    pub fn as_published() -> UnitsConfig {
        UnitsConfig { follow_at: None, stay_below: None, ..UnitsConfig::default() }
    }

    /// The router, over a graph with these options.
    pub fn router(&self, options: &Options) -> protocol::dispatcher::Config {
        protocol::dispatcher::Config {
            mode: self.mode,
            capacity_bps: self.capacity_bps,
            gap_ns: self.gap_ns,
            units_min: self.units_min,
            units_max: self.units_max,
            follow_at: self.follow_at.filter(|_| self.mode == Granularity::Flowlet),
            stay_below: self.stay_below.filter(|_| self.mode == Granularity::Flowlet),
            targets: if self.copies == 0 { TargetChoice::None } else { TargetChoice::Weighted },
            targets_count: self.copies,
            flows_max: options.flows_max * ROUTER_FLOWS,
            when_full: match options.when_full {
                WhenFull::RefuseNew => protocol::dispatcher::WhenFull::RefuseNew,
                WhenFull::EvictOldest => protocol::dispatcher::WhenFull::EndOldest,
            },
            seed: options.seed,
            ..protocol::dispatcher::Config::default()
        }
    }

    /// The router of units on threads: it sees to it that all of them together have no more flows
    /// than the graph may have.
    pub fn router_of_threads(&self, options: &Options) -> protocol::dispatcher::Config {
        protocol::dispatcher::Config { flows_max: options.flows_max, ..self.router(options) }
    }

    /// A unit. Its flows end when the graph says so.
    pub fn unit(&self, id: UnitId) -> protocol::unit::Config {
        protocol::unit::Config {
            replicate_after_ns: (self.copies > 0).then_some(self.gap_ns / 2), // S51
            deltas: self.deltas,
            expire_after_ns: None,
            ..protocol::unit::Config::new(id)
        }
    }

    /// The same on a thread of its own. Between threads nothing is lost: what a unit waits for
    /// comes, be it late, as threads take turns on few cores; time in a capture may go by much
    /// faster than that. So nothing is given up or said again.
    pub(crate) fn unit_on_thread(&self, id: UnitId) -> protocol::unit::Config {
        let pending_max = 2 * crate::transport::IN_FLIGHT_MAX as usize;
        let unit = self.unit(id);
        protocol::unit::Config {
            reorder_timeout_ns: NEVER_NS,
            retransmit_ns: NEVER_NS,
            pending_max,
            pending_per_flow_max: pending_max,
            ..unit
        }
    }
}
