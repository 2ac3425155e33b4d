//! Configuration of units.

use graph::{Options, WhenFull};
use nf::AffinityGroups;
use protocol::dispatcher::{DropRule, Granularity, ScalingRule, TargetChoice, UnitChoice};
use protocol::message::UnitId;

/// Limit on units.
pub const UNITS_MAX: u16 = 1_000;

/// Configuration of units: their number, and what is assigned to them.
///
/// Everything else is as published, see [`protocol::dispatcher::Config`]. The default needs fewer
/// units and moves fewer states than the published scheme, [`UnitsConfig::as_published`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitsConfig {
    /// Granularity of assignments.
    pub mode: Granularity,
    /// Choice among the units with room (S38, A13).
    pub choice: UnitChoice,
    /// Units that run from the beginning; at least 1.
    pub units_min: u16,
    /// Limit on units, up to [`UNITS_MAX`].
    pub units_max: u16,
    /// Assumed capacity of a unit in bits per second (S41).
    pub capacity_bps: u64,
    /// T: a longer gap between two packets of a flow begins a new flowlet, in nanoseconds (S30).
    /// Slow units need a longer gap: a flowlet of maximum size within T would fill one.
    pub gap_ns: u64,
    /// Target load of units, above 0 and up to 1: their number follows the demand. `None`: a unit
    /// is started for flowlets without room, and an idle one stopped. For flowlets only.
    pub follow_at: Option<f32>,
    /// Limit on a unit's dropped packets, beyond which another one relieves it: NFActor's rule. For
    /// units at nodes and live traffic only: elsewhere packets wait, and nothing is dropped.
    pub relief: Option<DropRule>,
    /// A flowlet stays at its flow's unit while that is loaded below this share, above 0 and up to
    /// 1. `None`: it is always assigned again. For flowlets only.
    pub stay_below: Option<f32>,
    /// Number of units that get replicas of a flow's state once it pauses (K, S55). On one thread
    /// state is available immediately, and replicas only cost time.
    pub copies: u8,
    /// Replicas are sent as deltas to units that have an earlier one.
    pub deltas: bool,
    /// Length of the intervals of demand and capacity in reports, in nanoseconds (S47).
    pub interval_ns: u64,
    /// Packets arrive live: an answer arrives after the packet that it answers has left. In a
    /// capture it may be the next packet, so there a packet that begins a flow waits until all
    /// earlier ones have left.
    pub is_live: bool,
    /// Hosts of TCP flows that end with a lost unit get resets. For units at nodes and live
    /// traffic.
    pub resets: bool,
}

impl Default for UnitsConfig {
    fn default() -> UnitsConfig {
        UnitsConfig {
            mode: Granularity::Flowlet,
            choice: UnitChoice::MostUtilised,
            units_min: 1,
            units_max: 10,
            capacity_bps: 1_000_000_000,
            gap_ns: 500_000,
            follow_at: Some(0.93),
            relief: None,
            stay_below: Some(0.95),
            copies: 0,
            deltas: false,
            interval_ns: 100_000_000,
            is_live: false,
            resets: false,
        }
    }
}

/// Flows of the dispatcher per flow of the graph: a flow that ended in the graph stays known until
/// the dispatcher is notified.
const DISPATCHER_FLOWS: u32 = 2;

/// No timeout.
const NEVER_NS: u64 = u64::MAX;

/// Limit on flows of a graph on units; it has that many handles.
pub const FLOWS_MAX: u32 = protocol::unit::FLOWS_MAX / DISPATCHER_FLOWS;

/// Buckets over which the load of units at nodes is measured besides: 5 ms.
pub const ALARM_BUCKETS: usize = 10;

impl UnitsConfig {
    /// Returns the default, but with flowlets and units as published (S35, S42, S43); replicas are
    /// left to [`UnitsConfig::copies`].
    pub fn as_published() -> UnitsConfig {
        UnitsConfig { follow_at: None, stay_below: None, ..UnitsConfig::default() }
    }

    /// Returns NFActor's assignment: whole flows, to units in turn as published first (A13), or to
    /// the least loaded one as published later, which take load from units that drop packets.
    pub fn nfactor(choice: UnitChoice) -> UnitsConfig {
        UnitsConfig {
            mode: Granularity::Flow,
            choice,
            relief: Some(DropRule::default()),
            ..UnitsConfig::as_published()
        }
    }

    /// Returns the dispatcher's configuration for graphs with these options.
    pub fn dispatcher(&self, options: &Options) -> protocol::dispatcher::Config {
        protocol::dispatcher::Config {
            mode: self.mode,
            choice: self.choice,
            capacity_bps: self.capacity_bps,
            gap_ns: self.gap_ns,
            units_min: self.units_min,
            units_max: self.units_max,
            scaling: ScalingRule::following(self.follow_at.filter(|_| self.mode == Granularity::Flowlet)),
            stay_below: self.stay_below.filter(|_| self.mode == Granularity::Flowlet),
            targets: if self.copies == 0 { TargetChoice::None } else { TargetChoice::Weighted },
            targets_count: self.copies,
            flows_max: options.flows_max * DISPATCHER_FLOWS,
            when_full: match options.when_full {
                WhenFull::RefuseNew => protocol::dispatcher::WhenFlowsFull::RefuseNew,
                WhenFull::EvictOldest => protocol::dispatcher::WhenFlowsFull::EndOldest,
            },
            seed: options.seed,
            ..protocol::dispatcher::Config::default()
        }
    }

    /// Returns the dispatcher's configuration for units with flow tables of their own: all together
    /// have no more flows than one graph may have.
    pub fn dispatcher_of_threads(&self, options: &Options) -> protocol::dispatcher::Config {
        protocol::dispatcher::Config { flows_max: options.flows_max, ..self.dispatcher(options) }
    }

    /// Returns the configuration for units at several nodes, each with pools of its own: flows of
    /// an affinity group stay together.
    pub fn dispatcher_of_nodes(&self, options: &Options) -> protocol::dispatcher::Config {
        let affinity_groups = options.affinity_groups.map(AffinityGroups::count);
        let config = self.dispatcher_of_threads(options);
        let relief = self.relief.filter(|_| self.is_live);
        let scaling = relief.map_or(config.scaling, ScalingRule::Drops);
        // A burst would fill a unit's queue long before it shows in the load of 100 ms.
        let follows = matches!(scaling, ScalingRule::Demand { .. });
        let alarm_buckets = if follows { ALARM_BUCKETS } else { 0 };
        let pre_copy = self.is_live; // A capture does not wait for replicas.
        let replaces_drained = true; // By spare nodes.
        protocol::dispatcher::Config {
            affinity_groups,
            scaling,
            alarm_buckets,
            pre_copy,
            replaces_drained,
            ..config
        }
    }

    /// Returns a unit's configuration. The graph decides when flows end.
    pub fn unit(&self, id: UnitId) -> protocol::unit::Config {
        protocol::unit::Config {
            replicate_after_ns: (self.copies > 0).then_some(self.gap_ns / 2), // S51
            deltas: self.deltas,
            expire_after_ns: None,
            ..protocol::unit::Config::new(id)
        }
    }

    /// Returns the configuration of a unit on a transport that loses nothing, such as a thread or a
    /// process of its own. It may be slow compared with the time of a capture: so nothing times
    /// out, and nothing is retransmitted. Up to `in_flight_max` packets are at units.
    pub fn unit_on_reliable_transport(&self, id: UnitId, in_flight_max: usize) -> protocol::unit::Config {
        let pending_max = 2 * in_flight_max;
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
