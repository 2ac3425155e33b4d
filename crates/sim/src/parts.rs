//! What a scenario says, in the words of the router and the units.

use std::num::NonZeroU32;

use protocol::message::UnitId;

use crate::scenario::{Choice, DrainWhen, Mode, RateOver, Scenario, Targets, WhenFull};

/// The router of this scenario.
pub fn router_config(scenario: &Scenario, seed: u64) -> protocol::dispatcher::Config {
    let (router, units) = (&scenario.router, &scenario.units);
    protocol::dispatcher::Config {
        mode: router.mode.into(),
        gap_ns: router.gap.0,
        size_max: router.size_max.map_or(u64::MAX, |size| size.0),
        alpha: router.alpha.0 as f32,
        rate_over: match router.rate_over {
            RateOver::Burst => protocol::dispatcher::RateOver::Burst,
            RateOver::Interval => protocol::dispatcher::RateOver::Interval,
            RateOver::Window => protocol::dispatcher::RateOver::Window,
        },
        lambda: router.lambda.0 as f32,
        choice: match router.choice {
            Choice::MostUtilised => protocol::dispatcher::Choice::MostUtilised,
            Choice::LowestId => protocol::dispatcher::Choice::LowestId,
            Choice::LeastLoaded => protocol::dispatcher::Choice::LeastLoaded,
        },
        targets: match scenario.targets() {
            Targets::Weighted => protocol::dispatcher::TargetChoice::Weighted,
            Targets::First => protocol::dispatcher::TargetChoice::First,
            Targets::LeastLoaded => protocol::dispatcher::TargetChoice::LeastLoaded,
            Targets::All => protocol::dispatcher::TargetChoice::All,
            Targets::None => protocol::dispatcher::TargetChoice::None,
            Targets::Predicted => protocol::dispatcher::TargetChoice::Predicted,
        },
        targets_count: router.targets_count,
        stay_below: router.stay_below.map(|share| share.0 as f32),
        copy_from: router.copy_from.map(|share| share.0 as f32),
        follow_at: router.follow_at.map(|share| share.0 as f32),
        push_at: router.push_at.map(|share| share.0 as f32),
        capacity_bps: router.capacity.unwrap_or(units.capacity).0,
        units_min: units.count.min,
        units_max: units.count.max,
        start_at: router.start_at.0 as f32,
        idle_ns: router.idle.0,
        drain_when: match router.drain_when {
            DrainWhen::MeanIsBelow => protocol::dispatcher::DrainWhen::MeanIsBelow,
            DrainWhen::OneIsBelow => protocol::dispatcher::DrainWhen::OneIsBelow,
        },
        bucket_ns: router.bucket.0,
        buckets: router.buckets,
        alarm_buckets: router.alarm_buckets,
        flows_max: router.flows_max.get(),
        when_full: match router.when_full {
            WhenFull::RefuseNew => protocol::dispatcher::WhenFull::RefuseNew,
            WhenFull::EndOldest => protocol::dispatcher::WhenFull::EndOldest,
        },
        forget_after_ns: router.forget_after.map(|time| time.0),
        seed,
    }
}

impl From<Mode> for protocol::dispatcher::Mode {
    fn from(mode: Mode) -> protocol::dispatcher::Mode {
        match mode {
            Mode::Flowlet => protocol::dispatcher::Mode::Flowlet,
            Mode::Flow => protocol::dispatcher::Mode::Flow,
            Mode::SmartFlow { every } => protocol::dispatcher::Mode::SmartFlow { every_ns: every.0 },
            Mode::Packet => protocol::dispatcher::Mode::Packet,
            Mode::Rss { buckets, every } => protocol::dispatcher::Mode::Rss {
                buckets: NonZeroU32::get(buckets),
                every_ns: every.map(|every| every.0),
            },
        }
    }
}

/// A unit of this scenario.
pub fn unit_config(scenario: &Scenario) -> protocol::unit::Config {
    let (router, units) = (&scenario.router, &scenario.units);
    protocol::unit::Config {
        id: UnitId(0),
        replicate_after_ns: scenario
            .copies()
            .then(|| units.replicate_after.map_or(router.gap.0 / 2, |time| time.0)),
        deltas: units.deltas && !scenario.state.place.is_store(),
        order_ns: units.order.0,
        pull_again_ns: units.pull_again.0,
        held_max: units.held_max,
        held_per_flow_max: units.held_per_flow_max,
        replicas_max_bytes: usize::try_from(units.replicas_max.0).unwrap_or(usize::MAX),
        expire_after_ns: units.expire_after.map(|time| time.0),
    }
}
