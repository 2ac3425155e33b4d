//! Reports of runs.

use std::collections::BTreeMap;

use protocol::metering::{Bill, Interval, Tracking};
use serde::Serialize;

use crate::checks::CheckCounts;
use crate::latency::LatencyReport;
use crate::pool::WarmUnits;
use crate::scenario::Scenario;
use crate::tally::REASONS;
use crate::workload::Statistics;
use crate::world::WorldOutcome;

/// The report of a run. The same scenario and seed give the same report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The unit of assignment, as in `--mode`.
    pub mode: String,
    /// Virtual time of the workload.
    pub time_ns: u64,
    /// Virtual time when the last packet was processed.
    pub end_ns: u64,
    /// Statistics of the packets.
    pub workload: Statistics,
    /// Decisions of the dispatcher.
    pub assignment: AssignmentReport,
    /// Handovers and replicas of states.
    pub state: State,
    /// Benefit and cost of warm units; `None` if the scenario has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmUnits>,
    /// Packets that were not processed, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// From a packet's arrival at its unit until it was processed: queue, waiting for state,
    /// service (S91).
    pub latency_at_unit: LatencyReport,
    /// From a packet's arrival at the dispatcher until it was processed.
    pub latency: LatencyReport,
    /// Provisioned capacity against demand.
    pub tracking: Tracking,
    /// Revenue and cost.
    pub bill: Bill,
    /// Counts of checks that held (R8).
    pub checked: CheckCounts,
    /// Demand and capacity by interval.
    pub intervals: Vec<Interval>,
}

/// Decisions of the dispatcher.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssignmentReport {
    /// Flows that began.
    pub flows: u64,
    /// Flowlets that began.
    pub flowlets: u64,
    /// Flowlets that began after a gap.
    pub flowlets_by_gap: u64,
    /// Flowlets that began because their predecessor was too large.
    pub flowlets_by_size: u64,
    /// Flowlets per flow (S89, S99).
    pub flowlets_per_flow: f64,
    /// Choices of a unit.
    pub assignments: u64,
    /// Choices of another unit than before.
    pub moved: u64,
    /// Choices without a unit that had room.
    pub without_room: u64,
    /// Units that were started.
    pub units_started: u64,
    /// Units that were stopped.
    pub units_stopped: u64,
}

/// Handovers and replicas of states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    /// Changes of unit with the state already there.
    pub seamless: u64,
    /// Changes of unit that had to pull the state.
    pub pulls: u64,
    /// Pulls overtaken by a replica in flight (S53).
    pub overtaken: u64,
    /// Share of changes without waiting (S95), after the warm-up; `None` if there were none.
    pub seamless_share: Option<f64>,
    /// States that were handed over, pulled or pushed.
    pub moved: u64,
    /// Bytes of these states.
    pub moved_bytes: u64,
    /// Replicas sent.
    pub replicas: u64,
    /// Bytes of state in them.
    pub replica_bytes: u64,
    /// Replicas that were deltas.
    pub deltas: u64,
    /// Deltas to units without their base version, which requested the whole state.
    pub deltas_without_base: u64,
    /// Bytes of replicas at units at the end, including their overhead.
    pub replicas_kept_bytes: u64,
    /// Reads of the store.
    pub store_reads: u64,
    /// Writes of the store.
    pub store_writes: u64,
    /// Backlog of the store at the end: the time that its pending writes would take. Nothing waits
    /// for them.
    pub store_behind_ns: u64,
    /// Bits per second of replicas and states (S103), or of reads and writes.
    pub rate_bps: f64,
    /// Pulls and states that were retransmitted.
    pub repeated: u64,
    /// Packets that had to wait for a state, or for packets before them.
    pub pending: u64,
    /// Mean time that a packet was pending.
    pub pending_mean_ns: f64,
    /// Late packets that were forwarded to the new owner.
    pub forwarded: u64,
    /// Packets that were given up for lost.
    pub given_up: u64,
    /// Flows that ended while a unit still waited for their state.
    pub ends_given_up: u64,
    /// Tombstones that units discarded ([`protocol::unit::TOMBSTONES_MAX`]).
    pub tombstones_forgotten: u64,
}

impl Report {
    pub(crate) fn new(scenario: &Scenario, seed: u64, outcome: WorldOutcome) -> Report {
        let WorldOutcome {
            workload,
            dispatcher,
            tally,
            warm,
            pool,
            at_unit,
            end_to_end,
            intervals,
            checked,
            end_ns,
        } = outcome;
        let mut drops: BTreeMap<_, _> =
            REASONS.iter().zip(tally.dropped).map(|(&(_, name), count)| (name, count)).collect();
        drops.extend([
            ("table-full", tally.refused),
            ("queue-full", tally.queue_full),
            ("lost-on-link", tally.lost),
        ]);
        drops.retain(|_, &mut count| count > 0);
        let time_ns = scenario.run.time.0;
        let state_bytes = match scenario.state.place.is_store() {
            true => tally.store.bytes,
            false => tally.replica_bytes + tally.state_bytes,
        };
        let (seamless, pulls) = (tally.seamless - warm.seamless, tally.pulls - warm.pulls);
        let changes = seamless + pulls;
        Report {
            seed,
            mode: scenario.dispatcher.mode.to_string(),
            time_ns,
            end_ns,
            workload,
            assignment: AssignmentReport {
                flows: dispatcher.flows,
                flowlets: dispatcher.flowlets(),
                flowlets_by_gap: dispatcher.flowlets_by_gap,
                flowlets_by_size: dispatcher.flowlets_by_size,
                flowlets_per_flow: dispatcher.flowlets() as f64 / dispatcher.flows.max(1) as f64,
                assignments: dispatcher.assignments,
                moved: dispatcher.assignments_moved,
                without_room: dispatcher.assignments_without_room,
                units_started: dispatcher.units_started,
                units_stopped: dispatcher.units_stopped,
            },
            state: State {
                seamless: tally.seamless,
                pulls: tally.pulls,
                overtaken: tally.overtaken,
                seamless_share: (changes > 0).then(|| seamless as f64 / changes as f64),
                moved: tally.states,
                moved_bytes: tally.state_bytes,
                replicas: tally.replicas,
                replica_bytes: tally.replica_bytes,
                deltas: tally.deltas,
                deltas_without_base: tally.deltas_without_base,
                replicas_kept_bytes: tally.replicas_kept_bytes,
                store_reads: tally.store.reads,
                store_writes: tally.store.writes,
                store_behind_ns: tally.store_behind_ns,
                rate_bps: state_bytes as f64 * 8e9 / time_ns.max(1) as f64,
                repeated: tally.repeated,
                pending: tally.pending,
                pending_mean_ns: tally.pending_ns as f64 / tally.pending.max(1) as f64,
                forwarded: tally.forwarded,
                given_up: tally.given_up,
                ends_given_up: tally.ends_given_up,
                tombstones_forgotten: tally.tombstones_forgotten,
            },
            warm: (scenario.units.warm > 0).then(|| WarmUnits::of(pool, &scenario.tariff)),
            drops,
            latency_at_unit: at_unit,
            latency: end_to_end,
            tracking: Tracking::of(&intervals),
            bill: Bill::of(&scenario.tariff, &intervals),
            checked,
            intervals,
        }
    }
}
