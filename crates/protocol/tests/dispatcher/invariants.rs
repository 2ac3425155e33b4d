//! Invariants for any input, in every mode.

use proptest::prelude::*;
use protocol::dispatcher::*;
use protocol::message::FlowId;

use crate::witness::{Step, Trial};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0u32..40, 40u32..9000).prop_map(|(flow, len)| Step::Packet { flow, len }),
        8 => prop_oneof![0u64..1000, 0u64..800_000, 0u64..60_000_000, 900_000_000u64..1_100_000_000].prop_map(|ns| Step::Wait { ns }),
        8 => Just(Step::Advance),
        3 => (0u16..8).prop_map(|unit| Step::Started { unit }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, is_right)| Step::Expire { nth, is_right }),
        3 => (0u16..8).prop_map(|unit| Step::Drained { unit }),
        1 => (0u16..9, 0u64..20).prop_map(|(unit, count)| Step::Drops { unit, count }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(nth, is_owner)| Step::Refuse { nth, is_owner }),
        1 => (0u64..1000).prop_map(|ns| Step::Back { ns }),
        3 => (any::<usize>(), prop::option::of(0u16..9)).prop_map(|(nth, to)| Step::Migrate { nth, to }),
        1 => (0u16..9).prop_map(|unit| Step::Drain { unit }),
        1 => (0u16..9).prop_map(|unit| Step::Resume { unit }),
        2 => (any::<usize>(), 0u32..60).prop_map(|(nth, flow)| Step::Alias { nth, flow }),
        2 => (0u16..9, 0u32..40, 0u32..3, 0u32..4, 0u64..20).prop_map(|(from, index, generation, epoch, seq)| {
            Step::Claim { from, flow: FlowId { index, generation }, epoch, seq }
        }),
    ]
}

fn mode() -> impl Strategy<Value = Granularity> {
    prop_oneof![
        3 => Just(Granularity::Flowlet),
        1 => Just(Granularity::Flow),
        1 => Just(Granularity::SmartFlow { every_ns: 5_000_000 }),
        1 => Just(Granularity::Packet),
        1 => Just(Granularity::Rss { buckets: 16, every_ns: Some(5_000_000) }),
        1 => Just(Granularity::Rss { buckets: 16, every_ns: None }),
    ]
}

fn targets() -> impl Strategy<Value = TargetChoice> {
    prop_oneof![
        Just(TargetChoice::Weighted),
        Just(TargetChoice::First),
        Just(TargetChoice::LeastLoaded),
        Just(TargetChoice::All),
        Just(TargetChoice::None),
        Just(TargetChoice::Predicted),
    ]
}

fn choice() -> impl Strategy<Value = UnitChoice> {
    prop_oneof![
        Just(UnitChoice::MostUtilised),
        Just(UnitChoice::LowestId),
        Just(UnitChoice::LeastLoaded),
        Just(UnitChoice::RoundRobin),
    ]
}

fn scaling() -> impl Strategy<Value = ScalingRule> {
    prop_oneof![
        Just(ScalingRule::Room),
        Just(ScalingRule::Demand { load: 0.5 }),
        Just(ScalingRule::Demand { load: 1.0 }),
        (1u32..5, 1u64..10_000_000).prop_map(|(step, period_ns)| {
            ScalingRule::Drops(DropRule { drops_max: 10, step, period_ns })
        }),
    ]
}

/// Returns the rule, or another one if flows do not migrate in this mode.
fn possible(scaling: ScalingRule, mode: Granularity) -> ScalingRule {
    match (scaling, mode) {
        (ScalingRule::Drops(_), Granularity::Packet | Granularity::Rss { .. }) => ScalingRule::Room,
        _ => scaling,
    }
}

fn staying() -> impl Strategy<Value = (Option<f32>, Option<f32>)> {
    prop_oneof![
        Just((None, None)),
        Just((Some(0.5), None)),
        Just((Some(1.0), Some(0.3))),
        Just((Some(0.5), Some(0.5))),
    ]
}

fn run(config: &Config, steps: &[Step]) -> Vec<String> {
    let mut trial = Trial::new(config.clone());
    trial.log = Some(Vec::new());
    steps.iter().for_each(|step| trial.step(step));
    trial.log.unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn it_always_holds(
        mode in mode(),
        targets in targets(),
        choice in choice(),
        units_min in 1u16..4,
        more_units in 0u16..5,
        ends_oldest: bool,
        (stay_below, copy_from) in staying(),
        push_at in prop_oneof![Just(None), Just(Some(0.3f32)), Just(Some(0.9))],
        scaling in scaling(),
        forget_after_ns in prop_oneof![Just(None), Just(Some(DISPLACED_AFTER_NS))],
        alarm_buckets in prop_oneof![Just(0usize), Just(3), Just(20)],
        is_mean: bool,
        seed: u64,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let config = Config {
            mode, targets, choice, units_min, units_max: units_min + more_units, seed, stay_below, copy_from, push_at, alarm_buckets, forget_after_ns,
            scaling: possible(scaling, mode),
            when_full: if ends_oldest { WhenFlowsFull::EndOldest } else { WhenFlowsFull::RefuseNew },
            drain_when: if is_mean { DrainCondition::MeanIsBelow } else { DrainCondition::OneIsBelow },
            flows_max: 30,
            capacity_bps: 20_000_000,
            buckets: 20,
            idle_ns: 20_000_000,
            ..Config::default()
        };
        let log = run(&config, &steps);
        prop_assert_eq!(run(&config, &steps), log, "the same again is the same");
    }
}
