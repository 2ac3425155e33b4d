//! Report of units.

use std::collections::BTreeMap;

use protocol::dispatcher::Dispatcher;
use protocol::metering::{Bill, Interval, IntervalMeter, Tariff, Tracking};
use serde::Serialize;
use telemetry::record;

use crate::units_config::UnitsConfig;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

record! {
    /// The units of a run: assignment, handovers, and capacity against demand.
    #[derive(Clone, Debug, Serialize)]
    pub struct UnitsReport [] {
        /// The unit of assignment: `flowlet`, `flow`, and so on.
        pub mode: String,
        /// The choice of a unit: `most-utilised`, `least-loaded`, `round-robin`.
        pub choice: String,
        /// The rule by which units start and stop: `room`, `demand:SHARE`, or `drops:LIMIT:STEP`.
        pub scaling: String,
        /// Limit on the units.
        pub units_max: u16,
        /// A unit's assumed capacity, in bits per second.
        pub capacity_bps: u64,
        /// Flows that began, at the dispatcher.
        pub flows: u64,
        /// Flowlets started.
        pub flowlets: u64 = counter("flowlets"),
        /// Flowlets cut by a gap.
        pub flowlets_by_gap: u64 = counter("flowlets_by_gap"),
        /// Flowlets cut by size.
        pub flowlets_by_size: u64 = counter("flowlets_by_size"),
        /// Choices of a unit.
        pub assignments: u64 = counter("assignments"),
        /// Choices of another unit than before.
        pub moved: u64 = counter("assignments_moved"),
        /// Choices of a unit without room.
        pub without_room: u64 = counter("assignments_without_room"),
        /// Affinity groups moved to another unit.
        pub groups_moved: u64 = counter("groups_moved"),
        /// Packets that waited because the affinity group of their new flow was moving.
        pub packets_waited: u64 = counter("packets_waited_for_groups"),
        /// Sub-flows of Multipath TCP that joined a known connection, and its affinity group.
        #[serde(skip_serializing_if = "is_zero")]
        pub subflows_joined: u64 = counter("subflows_joined"),
        /// Sub-flows of Multipath TCP with a token that the dispatcher does not know: ordinary
        /// flows.
        #[serde(skip_serializing_if = "is_zero")]
        pub subflows_unknown: u64 = counter("subflows_unknown"),
        /// Tokens of Multipath TCP connections that the dispatcher remembers.
        #[serde(skip_serializing_if = "is_zero")]
        pub tokens: u64 = gauge("tokens"),
        /// Tokens forgotten for others while their connections had flows.
        #[serde(skip_serializing_if = "is_zero")]
        pub tokens_displaced: u64 = counter("tokens_displaced"),
        /// Packets of other dispatchers' flows that were passed on, and taken over there.
        #[serde(skip_serializing_if = "is_zero")]
        pub packets_passed_on: u64 = counter("packets_passed_on"),
        /// Packets that other dispatchers passed on to this one.
        #[serde(skip_serializing_if = "is_zero")]
        pub packets_taken_over: u64 = counter("packets_taken_over"),
        /// Flows that ended with a lost unit, and had their hosts reset.
        #[serde(skip_serializing_if = "is_zero")]
        pub flows_reset: u64 = counter("flows_reset"),
        /// Resets to hosts of flows that ended with a lost unit.
        #[serde(skip_serializing_if = "is_zero")]
        pub resets_sent: u64 = counter("resets_sent"),
        /// Lost flows without resets to their hosts: they are old, or too many.
        #[serde(skip_serializing_if = "is_zero")]
        pub lost_flows_forgotten: u64 = counter("lost_flows_forgotten"),
        /// Packets passed on to other dispatchers that have not said whether they took them over:
        /// they are on their way, or with a dispatcher that was lost.
        #[serde(skip_serializing_if = "is_zero")]
        pub packets_unaccounted: u64 = gauge("packets_unaccounted"),
        /// Nodes of the cluster by status; absent without a cluster. See [`rivulet
        /// nodes`](commands/nodes.md).
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub nodes: BTreeMap<&'static str, u64> = gauge("nodes", status),
        /// 1 if the cluster's store answers, 0 if not; absent without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub store_reachable: Option<u64> = gauge("store_reachable"),
        /// Units that have registered themselves in the store; absent without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub store_entries: Option<u64> = gauge("store_entries"),
        /// Units lost, as their nodes crashed or could not be reached.
        #[serde(skip_serializing_if = "is_zero")]
        pub units_lost: u64 = counter("units_lost"),
        /// Flows that ended with a lost unit: no other unit had a replica.
        #[serde(skip_serializing_if = "is_zero")]
        pub flows_lost: u64 = counter("flows_lost"),
        /// Flows of lost units that continue with a replica.
        #[serde(skip_serializing_if = "is_zero")]
        pub flows_recovered: u64 = counter("flows_recovered"),
        /// Packets of recovered flows that the replicas did not cover: their effects are forgotten,
        /// or they were lost with the unit.
        #[serde(skip_serializing_if = "is_zero")]
        pub packets_unrecovered: u64 = counter("packets_unrecovered"),
        /// Flows whose next packet went to a unit with a replica, because their own was silent.
        #[serde(skip_serializing_if = "is_zero")]
        pub flows_sheltered: u64 = counter("flows_sheltered"),
        /// Running units.
        pub units_running: u64 = gauge("units"),
        /// Units started.
        pub units_started: u64 = counter("units_started"),
        /// Units stopped.
        pub units_stopped: u64 = counter("units_stopped"),
        /// Draining units that an operator resumed.
        pub units_resumed: u64 = counter("units_resumed"),
        /// Units that another one relieved because packets to them were dropped.
        pub units_relieved: u64 = counter("units_relieved"),
        /// Flows that an operator migrated.
        pub flows_migrated: u64 = counter("flows_migrated"),
        /// Changes of a unit with a replica in place.
        pub seamless: u64 = counter("handovers_seamless"),
        /// Changes of a unit with a pull.
        pub pulls: u64 = counter("pulls"),
        /// Flow states that the next unit refused, so their flows stayed.
        pub states_refused: u64 = counter("states_refused"),
        /// Refused flow states that could not be taken back, so their flows began again.
        pub states_lost: u64 = counter("states_lost"),
        /// Start time of a unit (median), with `--threads`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub start_ns: Option<u64> = level_ns("unit_start_seconds"),
        /// Time of a pull, by percentile, with `--threads`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pull_ns: Option<BTreeMap<&'static str, u64>> = level_ns("pull_seconds", percentile),
        /// Share of `seamless` in the changes of a unit, `null` without changes.
        pub seamless_share: Option<f64>,
        /// Flow states moved to another unit.
        pub states_moved: u64 = counter("states_moved"),
        /// Bytes of flow states moved to another unit.
        pub state_bytes: u64 = counter("state_bytes_moved"),
        /// Replicas received by units.
        pub replicas: u64 = counter("replicas"),
        /// Bytes of replicas received by units.
        pub replica_bytes: u64 = counter("replica_bytes"),
        /// Replicas sent as deltas (`--deltas`).
        pub deltas: u64 = counter("deltas"),
        /// Deltas without their base, so the whole state was sent after them.
        pub deltas_without_base: u64 = counter("deltas_without_base"),
        /// Capacity against demand; see below.
        pub tracking: Tracking,
        /// Revenue and cost of the units, at the default prices of [`rivulet
        /// sim`](commands/sim.md): `total`, and `intervals`, the same by interval, each with
        /// `per_packet`, `per_packet_and_flowlet` and `per_unit_time` (the tenant's price by
        /// tariff) and `cost`; `intervals_below_cost_per_packet` and
        /// `intervals_below_cost_per_packet_and_flowlet`, intervals that lost money.
        pub bill: Bill,
        /// A list, from the first packet on; see below.
        pub intervals: Vec<Interval>,
    }
}

impl UnitsReport {
    pub(crate) fn of<'a>(
        config: &UnitsConfig,
        dispatcher: &Dispatcher,
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
        let (dispatcher, scaling) = (dispatcher.counters(), dispatcher.config().scaling.to_string());
        UnitsReport {
            mode: config.mode.to_string(),
            choice: config.choice.to_string(),
            scaling,
            units_max: config.units_max,
            capacity_bps: config.capacity_bps,
            flows: dispatcher.flows,
            flowlets: dispatcher.flowlets(),
            flowlets_by_gap: dispatcher.flowlets_by_gap,
            flowlets_by_size: dispatcher.flowlets_by_size,
            assignments: dispatcher.assignments,
            moved: dispatcher.assignments_moved,
            without_room: dispatcher.assignments_without_room,
            groups_moved: dispatcher.groups_moved,
            packets_waited: 0,
            subflows_joined: 0,
            subflows_unknown: 0,
            tokens: 0,
            tokens_displaced: 0,
            packets_passed_on: 0,
            packets_taken_over: 0,
            flows_reset: 0,
            resets_sent: 0,
            lost_flows_forgotten: dispatcher.flows_lost_unnoted,
            packets_unaccounted: 0,
            nodes: BTreeMap::new(),
            store_reachable: None,
            store_entries: None,
            units_lost: dispatcher.units_lost,
            flows_lost: dispatcher.flows_lost,
            flows_recovered: dispatcher.flows_recovered,
            packets_unrecovered: dispatcher.packets_unrecovered,
            flows_sheltered: dispatcher.flowlets_by_silence,
            units_running: running as u64,
            units_started: dispatcher.units_started,
            units_stopped: dispatcher.units_stopped,
            units_resumed: dispatcher.units_resumed,
            units_relieved: dispatcher.units_relieved,
            flows_migrated: dispatcher.flows_migrated,
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
