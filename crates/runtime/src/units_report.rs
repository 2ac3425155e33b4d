//! Report of units.

use std::collections::BTreeMap;

use protocol::metering::{Bill, Interval, IntervalMeter, Tariff, Tracking};
use serde::Serialize;

use crate::units_config::UnitsConfig;

/// What a run's units did: assignment, states on their way, and how capacity followed demand.
#[derive(Clone, Debug, Serialize)]
pub struct UnitsReport {
    /// What was given to units: `flowlet`, `flow`, and so on.
    pub mode: String,
    /// Units at most.
    pub units_max: u16,
    /// What one is taken to process, in bits per second.
    pub capacity_bps: u64,
    /// Flows that began, at the dispatcher.
    pub flows: u64,
    /// Flowlets that began.
    pub flowlets: u64,
    /// Of these, behind a gap.
    pub flowlets_by_gap: u64,
    /// Of these, because the one before was too large.
    pub flowlets_by_size: u64,
    /// Times that a unit was chosen.
    pub assignments: u64,
    /// Times that it was another than before.
    pub moved: u64,
    /// Times that no unit had room.
    pub without_room: u64,
    /// Units that run.
    pub units_running: u64,
    /// Units that were started.
    pub units_started: u64,
    /// Units that were stopped.
    pub units_stopped: u64,
    /// Changes of a unit for which a copy of the state was there.
    pub seamless: u64,
    /// Changes for which the state was asked for.
    pub pulls: u64,
    /// States that the next owner refused: their flows stayed where they were.
    pub states_refused: u64,
    /// Refused states that could not be taken back: their flows began again.
    pub states_lost: u64,
    /// How long a unit took to start, in nanoseconds (median), where each has a thread of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// Time from when a state was asked for until it was there, in nanoseconds, by percentile,
    /// where each has a thread of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_ns: Option<BTreeMap<&'static str, u64>>,
    /// Share of changes for which a copy was there; none if there were no changes.
    pub seamless_share: Option<f64>,
    /// States that were handed over.
    pub states_moved: u64,
    /// Bytes of them.
    pub state_bytes: u64,
    /// Copies that were sent ahead.
    pub replicas: u64,
    /// Bytes of them.
    pub replica_bytes: u64,
    /// Of these copies, those that told only what had changed.
    pub deltas: u64,
    /// And of those, the ones whose base was not there: the whole state was sent after them.
    pub deltas_without_base: u64,
    /// How what was there followed what was wanted.
    pub tracking: Tracking,
    /// What it earns and costs, at the default prices.
    pub bill: Bill,
    /// Interval by interval, from the first packet on.
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
