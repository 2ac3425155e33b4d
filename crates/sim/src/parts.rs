//! Configurations of dispatcher and units, from a scenario.

use std::num::NonZeroU32;

use protocol::message::UnitId;

use crate::scenario::{AssignmentMode, Scenario};

/// Returns the dispatcher's configuration in this scenario.
pub fn dispatcher_config(scenario: &Scenario, seed: u64) -> protocol::dispatcher::Config {
    let (dispatcher, units) = (&scenario.dispatcher, &scenario.units);
    protocol::dispatcher::Config {
        affinity_groups: None,
        pre_copy: false,
        replaces_drained: false,
        mode: dispatcher.mode.into(),
        gap_ns: dispatcher.gap.0,
        size_max: dispatcher.size_max.map_or(u64::MAX, |size| size.0),
        alpha: dispatcher.alpha.0 as f32,
        rate_over: dispatcher.rate_over,
        lambda: dispatcher.lambda.0 as f32,
        choice: dispatcher.choice,
        targets: scenario.targets(),
        targets_count: dispatcher.targets_count,
        stay_below: dispatcher.stay_below.map(|share| share.0 as f32),
        copy_from: dispatcher.copy_from.map(|share| share.0 as f32),
        scaling: dispatcher.scaling(),
        push_at: dispatcher.push_at.map(|share| share.0 as f32),
        capacity_bps: dispatcher.capacity.unwrap_or(units.capacity).0,
        units_min: units.count.min,
        units_max: units.count.max,
        start_at: dispatcher.start_at.0 as f32,
        idle_ns: dispatcher.idle.0,
        drain_when: dispatcher.drain_when,
        bucket_ns: dispatcher.bucket.0,
        buckets: dispatcher.buckets,
        alarm_buckets: dispatcher.alarm_buckets,
        flows_max: dispatcher.flows_max.get(),
        when_full: dispatcher.when_full,
        forget_after_ns: dispatcher.forget_after.map(|time| time.0),
        seed,
    }
}

impl From<AssignmentMode> for protocol::dispatcher::Granularity {
    fn from(mode: AssignmentMode) -> protocol::dispatcher::Granularity {
        match mode {
            AssignmentMode::Flowlet => protocol::dispatcher::Granularity::Flowlet,
            AssignmentMode::Flow => protocol::dispatcher::Granularity::Flow,
            AssignmentMode::SmartFlow { every } => {
                protocol::dispatcher::Granularity::SmartFlow { every_ns: every.0 }
            }
            AssignmentMode::Packet => protocol::dispatcher::Granularity::Packet,
            AssignmentMode::Rss { buckets, every } => protocol::dispatcher::Granularity::Rss {
                buckets: NonZeroU32::get(buckets),
                every_ns: every.map(|every| every.0),
            },
        }
    }
}

/// Returns the units' configuration in this scenario.
pub fn unit_config(scenario: &Scenario) -> protocol::unit::Config {
    let (dispatcher, units) = (&scenario.dispatcher, &scenario.units);
    protocol::unit::Config {
        has_groups: false,
        id: UnitId(0),
        replicate_after_ns: scenario
            .copies()
            .then(|| units.replicate_after.map_or(dispatcher.gap.0 / 2, |time| time.0)),
        deltas: units.deltas && !scenario.state.place.is_store(),
        reorder_timeout_ns: units.reorder_timeout.0,
        retransmit_ns: units.retransmit.0,
        pending_max: units.pending_max,
        pending_per_flow_max: units.pending_per_flow_max,
        replica_bytes_max: usize::try_from(units.replicas_max.0).unwrap_or(usize::MAX),
        expire_after_ns: units.expire_after.map(|time| time.0),
    }
}
