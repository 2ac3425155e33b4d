//! A flow bigger than a unit: several units have its packets in turn, and every run holds its
//! checks.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use sim::{Report, Scenario, Simulation};

fn run(scenario: &str, seed: u64) -> Report {
    let scenario = Scenario::parse(scenario).unwrap_or_else(|error| panic!("{error}"));
    Simulation::new(scenario, seed).unwrap().run().unwrap_or_else(|failed| panic!("{failed}"))
}

/// An elephant of three and a half units' capacity, beside mice. Units are filled to four fifths,
/// so that they can make up for what waits.
fn elephant(router: &str) -> String {
    format!(
        r#"
        [workload.steady]
        rate = "1Gbps"
        flows = 200
        spacing = "poisson"
        elephant = "3500Mbps"
        until = "300ms"
        {router}
        [units]
        count = "8"
        state = "256B"
        [run]
        time = "400ms"
        "#
    )
}

#[test]
fn units_have_an_elephant_in_turn() {
    let alone = run(&elephant("[router]\ncapacity = \"800Mbps\"\nstay_below = 0.95"), 1);
    let spread = run(&elephant("[router]\ncapacity = \"800Mbps\"\nstay_below = 0.95\nspread = {}"), 1);
    println!("{:?}\n{:?}", spread.spread, spread.latency_at_unit);
    println!("{:?}", alone.latency_at_unit);
    let of = spread.spread.as_ref().unwrap();
    assert!(of.times >= 1 && of.packets * 10 > 9 * 3_500 / 8 * 300, "{of:?}");
    assert!(spread.drops.is_empty(), "{:?}", spread.drops);
    assert_eq!(spread.checked.processed, spread.workload.packets);
    // Nearly all packets are done as soon as those of a flow that fits; alone, the elephant waits,
    // longer and longer.
    assert!(spread.latency_at_unit.p99_ns < 1_000_000, "{:?}", spread.latency_at_unit);
    assert!(alone.latency_at_unit.p75_ns > 50_000_000, "{:?}", alone.latency_at_unit);
}

/// A flow that asks for four fifths of what all units have, alone. A header takes 550 ns, a packet
/// 8 us: four units can do 0.83 of four times what one does.
#[test]
fn units_do_together_four_fifths_of_what_they_do_apart() {
    for units in [2, 4] {
        let report = run(
            &format!(
                r#"
                [workload.steady]
                rate = "1Mbps"
                flows = 2
                elephant = "{}Mbps"
                [router]
                spread = {{}}
                [units]
                count = "{units}"
                [run]
                time = "400ms"
                "#,
                800 * units,
            ),
            1,
        );
        let processed: u64 = report.epochs[1..].iter().map(|epoch| epoch.processed).sum();
        let of_capacity = processed as f64 * 8_000.0 / (300e6 * f64::from(units));
        println!(
            "{units} units: {of_capacity:.3} of what they can {:?} {:?}",
            report.spread, report.latency_at_unit
        );
        assert!(of_capacity > 0.79 && report.drops.is_empty(), "{units}: {of_capacity}, {:?}", report.drops);
    }
}

#[test]
fn without_an_elephant_nothing_is_spread() {
    let mice = |router: &str| {
        let text = elephant(router).replace("elephant = \"3500Mbps\"", "");
        Report { spread: None, ..run(&text, 2) }
    };
    assert_eq!(mice("[router]\nspread = {}"), mice(""));
}

/// Units wait for states that come late, and drop all that they cannot hold: between the first
/// epoch in which the flow is spread, of which no packet is processed, and the next none is either.
#[test]
fn what_was_lost_while_a_flow_was_spread_counts_when_it_is_spread_again() {
    let report = run(
        r#"
        [workload.steady]
        rate = "325Mbps"
        flows = 20
        spacing = "poisson"
        elephant = [["8ms", "3582Mbps"], ["9ms", "300Mbps"]]
        until = "80ms"
        [router]
        idle = "5ms"
        follow_at = 0.8
        [router.spread]
        units_max = 2
        repeats = 0
        history_max = 22
        begin_at = 0.3
        end_at = 0.05
        window = "3920us"
        [units]
        count = "5..7"
        order = "641us"
        held_per_flow_max = 16
        [links]
        router_to_unit = { loss = 0.031731502033423474, reorder = 0.11089770085346964, jitter = "20us" }
        messages = { loss = 0.004546486448701908, late = 0.363883609049953, late_by = "19430us" }
        [run]
        time = "120ms"
        patience = "60s"
        "#,
        6728200485182326777,
    );
    assert!(report.spread.is_some_and(|spread| spread.times > 1));
}

/// Units cannot hold all that comes while they wait for states: headers are missing then, and when
/// they ask for a state that makes up for them the anchor has gone on. What is still on its way to
/// them when they give up has not come too late.
#[test]
fn what_helpers_have_given_up_has_lapsed() {
    let report = run(
        r#"
        [workload.steady]
        rate = "1480Mbps"
        flows = 20
        spacing = "poisson"
        elephant = [["8ms", "4006Mbps"], ["9ms", "4129Mbps"]]
        until = "80ms"
        [router]
        idle = "5ms"
        follow_at = 0.8
        [router.spread]
        units_max = 9
        history_max = 60
        begin_at = 0.3
        end_at = 0.05
        window = "4461us"
        [units]
        count = "4..8"
        order = "91us"
        [links]
        router_to_unit = { jitter = "20us" }
        unit_to_unit = { latency = "160us" }
        messages = { late = 0.1935237817835292, late_by = "839us" }
        [run]
        time = "120ms"
        patience = "60s"
        "#,
        3,
    );
    assert!(report.drops.keys().copied().eq(["held-full", "lapsed"]), "{:?}", report.drops);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost and overtaken, however few headers are kept: the run holds its checks, and
    /// all packets have a fate.
    #[test]
    fn all_is_right_on_any_links(
        seed in any::<u64>(),
        (units_min, units_more) in (1u16..=6, 0u16..=6),
        (elephant_mbps, later_mbps, mice_mbps) in (300u32..6_000, 300u32..6_000, 10u32..1_500),
        changes_ms in 5u32..35,
        (units_max, repeats, more) in (2u8..=12, 0u8..=3, 0u16..=64),
        (loss, reorder) in (prop_oneof![Just(0.0), 0.0..0.2], prop_oneof![Just(0.0), 0.0..0.2]),
        (begin, end) in (0.3..1.0, 0.05..0.29),
        (window_us, order_us) in (500u32..5_000, 10u32..2_000),
        (expire, bounded, follow) in any::<(bool, bool, bool)>(),
        (mute, again, late) in (
            prop_oneof![Just(0.0), 0.0..0.3], prop_oneof![Just(0.0), 0.0..0.3], prop_oneof![Just(0.0), 0.0..0.5],
        ),
        late_us in prop_oneof![1u32..1_000, 1_000u32..30_000],
    ) {
        let history_max = u16::from(units_max) * (u16::from(repeats) + 1) + more;
        let expire = if expire { "expire_after = \"3ms\"" } else { "" };
        let held = if bounded { "held_per_flow_max = 16" } else { "" };
        let follow = if follow { "follow_at = 0.8" } else { "" };
        let report = run(
            &format!(
                r#"
                [workload.steady]
                rate = "{mice_mbps}Mbps"
                flows = 20
                spacing = "poisson"
                elephant = [["{changes_ms}ms", "{elephant_mbps}Mbps"], ["{}ms", "{later_mbps}Mbps"]]
                until = "80ms"
                [router]
                idle = "5ms"
                {follow}
                [router.spread]
                units_max = {units_max}
                repeats = {repeats}
                history_max = {history_max}
                begin_at = {begin}
                end_at = {end}
                window = "{window_us}us"
                [units]
                count = "{units_min}..{}"
                order = "{order_us}us"
                {expire}
                {held}
                [links]
                router_to_unit = {{ loss = {loss}, reorder = {reorder}, jitter = "20us" }}
                messages = {{ loss = {mute}, again = {again}, late = {late}, late_by = "{late_us}us" }}
                [run]
                time = "120ms"
                patience = "60s"
                "#,
                changes_ms + 1,
                units_min + units_more,
            ),
            seed,
        );
        let total: u64 = report.drops.values().sum();
        prop_assert_eq!(report.checked.processed + total, report.workload.packets);
        if loss == 0.0 && reorder == 0.0 && !bounded {
            // An anchor that is far behind lets its helpers wait for the state that they begin
            // with.
            let waited = |(&reason, _): (&&str, &u64)| reason == "held-full" || reason == "lapsed";
            prop_assert!(report.drops.iter().all(waited), "{:?}", report.drops);
        }
    }
}
