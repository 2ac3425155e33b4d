//! Report of units.

use std::collections::BTreeMap;

use protocol::metering::{Bill, Interval, IntervalMeter, Tariff, Tracking};
use serde::Serialize;

use crate::units_config::UnitsConfig;

/// Assignments, handovers, and capacity of a run's units.
#[derive(Clone, Debug, Serialize)]
pub struct UnitsReport {
    /// Granularity of assignments: `flowlet`, `flow`, and so on.
    pub mode: String,
    /// Limit on units.
    pub units_max: u16,
    /// Assumed capacity of a unit in bits per second.
    pub capacity_bps: u64,
    /// Flows that began at the dispatcher.
    pub flows: u64,
    /// Flowlets that began.
    pub flowlets: u64,
    /// Flowlets that began after a gap.
    pub flowlets_by_gap: u64,
    /// Flowlets that began because the previous one reached its maximum size.
    pub flowlets_by_size: u64,
    /// Assignments of flowlets to units.
    pub assignments: u64,
    /// Assignments to another unit than before.
    pub moved: u64,
    /// Assignments for which no unit had room.
    pub without_room: u64,
    /// Running units.
    pub units_running: u64,
    /// Started units.
    pub units_started: u64,
    /// Stopped units.
    pub units_stopped: u64,
    /// Handovers for which a replica was available.
    pub seamless: u64,
    /// Handovers for which the state was pulled.
    pub pulls: u64,
    /// States that the next owner refused; their flows stayed.
    pub states_refused: u64,
    /// Refused states that could not be restored; their flows began again.
    pub states_lost: u64,
    /// Median time to start a unit in nanoseconds, if units have threads of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// Percentiles of the time from a pull to the arrival of the state, in nanoseconds, if units have
    /// threads of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_ns: Option<BTreeMap<&'static str, u64>>,
    /// Share of handovers for which a replica was available; absent without handovers.
    pub seamless_share: Option<f64>,
    /// States handed over.
    pub states_moved: u64,
    /// Bytes of states handed over.
    pub state_bytes: u64,
    /// Replicas sent.
    pub replicas: u64,
    /// Bytes of replicas.
    pub replica_bytes: u64,
    /// Replicas sent as deltas.
    pub deltas: u64,
    /// Deltas whose base was missing; the whole state followed.
    pub deltas_without_base: u64,
    /// Capacity compared with demand.
    pub tracking: Tracking,
    /// Revenue and cost at the default prices.
    pub bill: Bill,
    /// Intervals from the first packet on.
    pub intervals: Vec<Interval>,
}

impl UnitsReport {
    pub(crate) fn of<'a>(
        config: &UnitsConfig,
        dispatcher: &protocol::dispatcher::Counters,
        units: impl Iterator<Item = &'a protocol::unit::Counters>,
        running: usize,
        intervals: &IntervalMeter,
    ) -> UnitsReport {
        let units = units.fold(protocol::unit::Counters::default(), |sum, unit| protocol::unit::Counters {
            seamless: sum.seamless + unit.seamless,
            pulls_sent: sum.pulls_sent + unit.pulls_sent,
            states_taken: sum.states_taken + unit.states_taken,
            states_refused: sum.states_refused + unit.states_refused,
            states_lost: sum.states_lost + unit.states_lost,
            state_bytes_sent: sum.state_bytes_sent + unit.state_bytes_sent,
            replicas_received: sum.replicas_received + unit.replicas_received,
            replica_bytes_received: sum.replica_bytes_received + unit.replica_bytes_received,
            deltas_sent: sum.deltas_sent + unit.deltas_sent,
            deltas_without_base: sum.deltas_without_base + unit.deltas_without_base,
            ..sum
        });
        let changes = units.seamless + units.pulls_sent;
        UnitsReport {
            mode: config.mode.to_string(),
            units_max: config.units_max,
            capacity_bps: config.capacity_bps,
            flows: dispatcher.flows,
            flowlets: dispatcher.flowlets(),
            flowlets_by_gap: dispatcher.flowlets_by_gap,
            flowlets_by_size: dispatcher.flowlets_by_size,
            assignments: dispatcher.assignments,
            moved: dispatcher.assignments_moved,
            without_room: dispatcher.assignments_without_room,
            units_running: running as u64,
            units_started: dispatcher.units_started,
            units_stopped: dispatcher.units_stopped,
            seamless: units.seamless,
            pulls: units.pulls_sent,
            states_refused: units.states_refused,
            states_lost: units.states_lost,
            start_ns: None,
            pull_ns: None,
            seamless_share: (changes > 0).then(|| units.seamless as f64 / changes as f64),
            states_moved: units.states_taken,
            state_bytes: units.state_bytes_sent,
            replicas: units.replicas_received,
            replica_bytes: units.replica_bytes_received,
            deltas: units.deltas_sent,
            deltas_without_base: units.deltas_without_base,
            tracking: Tracking::of(intervals.done()),
            bill: Bill::of(&Tariff::default(), intervals.done()),
            intervals: intervals.done().to_vec(),
        }
    }
}
