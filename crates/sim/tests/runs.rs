//! Whole runs: they repeat, agree with queueing theory and with a trivial model, and hold their
//! checks in every mode.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use sim::workload::Packets;
use sim::{Report, Scenario, Simulation};

fn run(scenario: &str, seed: u64) -> Report {
    let scenario = Scenario::parse(scenario).unwrap_or_else(|error| panic!("{error}"));
    Simulation::new(scenario, seed).unwrap().run().unwrap_or_else(|failed| panic!("{failed}"))
}

const TRACE: &str = r#"
    [workload.trace]
    curve = [["0s", "1Gbps"], ["100ms", "5Gbps"], ["300ms", "500Mbps"]]
    [run]
    time = "400ms"
"#;

#[test]
fn the_same_seed_gives_the_same_report() {
    let (first, second, other) = (run(TRACE, 1), run(TRACE, 1), run(TRACE, 2));
    println!("{first:#?}");
    assert_eq!(first, second);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    assert!(first != other);
}

#[test]
fn units_come_and_go_with_the_demand() {
    let report = run(TRACE, 1);
    assert!(report.tracking.units_max > 5.0 && report.tracking.units_min < 4.0);
    assert!(report.assignment.units_stopped > 0 && report.state.seamless > 0);
    let total: u64 = report.drops.values().sum();
    assert_eq!(report.checked.processed + total, report.workload.packets);
}

/// A cold start: one unit has to do with what takes five, and nothing is copied yet.
#[test]
fn changes_within_the_warm_up_do_not_count() {
    let share = |warm_up: &str| {
        let scenario = format!(
            "[workload.trace]\ncurve = [[\"0s\", \"4Gbps\"]]\n[dispatcher]\nstay_below = 0.95\n[units]\ncount = \"1..20\"\n\
             [run]\ntime = \"300ms\"\nwarm_up = \"{warm_up}\""
        );
        run(&scenario, 1).state
    };
    let (cold, warm) = (share("0s"), share("100ms"));
    assert_eq!(
        (cold.seamless, cold.pulls),
        (warm.seamless, warm.pulls),
        "both are counted from the beginning"
    );
    let share_of_all = cold.seamless as f64 / (cold.seamless + cold.pulls) as f64;
    assert_eq!(cold.seamless_share, Some(share_of_all));
    assert!(share_of_all < 0.9, "{cold:?}");
    assert_eq!(warm.seamless_share, None, "flows stay once there are units enough");
}

/// One unit, Poisson arrivals, each packet takes 8 us: the mean wait is rho * service / (2 (1 -
/// rho)) (Pollaczek and Khinchine).
#[test]
fn a_unit_is_a_queue_as_in_the_books() {
    for rho in [0.5, 0.8] {
        let mbps = rho * 1_000.0;
        let report = run(
            &format!(
                r#"
                [workload.steady]
                rate = "{mbps}Mbps"
                packet_size = "1000B"
                spacing = "poisson"
                [units]
                count = "1"
                [run]
                time = "10s"
                "#
            ),
            3,
        );
        let expected = 8_000.0 + rho * 8_000.0 / (2.0 * (1.0 - rho));
        let mean = report.latency_at_unit.mean_ns;
        assert!((mean / expected - 1.0).abs() < 0.03, "{rho}: {mean} {expected}");
        assert!((report.latency.mean_ns - mean - 65_000.0).abs() < 1.0);
    }
}

#[test]
fn one_unit_is_the_trivial_model() {
    let text = r#"
        [workload.trace]
        curve = [["0s", "2Gbps"], ["50ms", "200Mbps"]]
        [units]
        count = "1"
        [links]
        dispatcher_to_unit = { latency = "0us" }
        [run]
        time = "100ms"
        warm_up = "0s"
    "#;
    let report = run(text, 5);
    let (mut free_ns, mut sum_ns, mut packets) = (0, 0, 0u64);
    for packet in Packets::new(&Scenario::parse(text).unwrap().workload, 5) {
        if packet.time_ns >= 100_000_000 {
            break;
        }
        free_ns = packet.time_ns.max(free_ns) + u64::from(packet.len) * 8;
        sum_ns += free_ns - packet.time_ns;
        packets += 1;
    }
    assert_eq!(report.latency.count, packets);
    assert_eq!(report.latency.mean_ns, sum_ns as f64 / packets as f64);
    assert_eq!((report.checked.processed, report.state.pulls), (packets, 0));
}

/// 2 Gbit/s for a unit that is given 1 Gbit/s of a processor: in each period it processes 12,500
/// packets at full speed, and then none until the next.
#[test]
fn a_quota_lets_through_what_it_is_period_by_period() {
    let report = run(
        r#"
        [workload.steady]
        rate = "2Gbps"
        until = "500ms"
        [units]
        count = "1"
        service = "quota"
        packet_cost = "440ns"
        [links]
        dispatcher_to_unit = { latency = "0us" }
        [run]
        time = "1s"
        warm_up = "0s"
        "#,
        1,
    );
    assert!(report.intervals.iter().all(|interval| interval.processed == 12_500));
    assert!(
        report.intervals[..5].iter().all(|interval| (interval.utilisation[0].1 - 2.0).abs() < 1e-3),
        "S92"
    );
    // Half of the first period's packets find quota, and then each period's first in the queue did
    // long ago.
    assert_eq!((report.latency_at_unit.count, report.latency_at_unit.p1_ns), (125_000, 440));
    let waits = |percent: u64| (450..550).contains(&(percent / 1_000_000));
    assert!(waits(report.latency_at_unit.max_ns), "{:?}", report.latency_at_unit);
    // The same with half the load: no packet waits for quota.
    let light = run(
        r#"
        [workload.steady]
        rate = "900Mbps"
        [units]
        count = "1"
        service = "quota"
        packet_cost = "440ns"
        "#,
        1,
    );
    assert_eq!((light.latency_at_unit.p50_ns, light.latency_at_unit.max_ns), (440, 440));
    assert!((light.intervals[5].utilisation[0].1 - 0.9).abs() < 1e-3);
}

#[test]
fn a_full_queue_drops_and_says_so() {
    let report = run(
        r#"
        [workload.steady]
        rate = "2Gbps"
        [units]
        count = "1"
        queue = 10
        [run]
        time = "20ms"
        "#,
        1,
    );
    let dropped = report.drops["queue-full"];
    assert!((dropped as f64 / report.workload.packets as f64 - 0.5).abs() < 0.02);
    assert_eq!(report.intervals[0].queue_peak, 10);
}

/// Each packet goes to another unit, and its flow's state with it (S5): that takes a round trip for
/// each.
#[test]
fn packet_by_packet_states_are_always_on_their_way() {
    let report = run(
        r#"
        [workload.steady]
        flows = 7
        rate = "50Mbps"
        spacing = "poisson"
        [dispatcher]
        mode = "packet"
        targets = "none"
        [units]
        count = "4"
        [links]
        dispatcher_to_unit = { loss = 0.01, reorder = 0.01 }
        [run]
        time = "500ms"
        "#,
        1,
    );
    assert!(report.state.pulls as f64 > 0.7 * report.workload.packets as f64);
    assert!(report.latency_at_unit.p50_ns > 130_000, "{:?}", report.latency_at_unit);
}

/// Deltas change no decision, and are smaller than whole replicas.
#[test]
fn copies_of_what_has_changed_do_what_whole_ones_do() {
    let copies = |units: &str| {
        run(
            &format!(
                r#"
                [workload.trace]
                curve = [["0s", "1Gbps"], ["100ms", "5Gbps"]]
                [units]
                count = "1..6"
                state = "96B"
                changes = "8B"
                {units}
                [links]
                dispatcher_to_unit = {{ loss = 0.001, reorder = 0.01 }}
                bandwidth = "1000Gbps"
                [run]
                time = "100ms"
                "#
            ),
            1,
        )
    };
    let [whole, changes] = ["", "deltas = true"].map(copies);
    let same = |report: &Report| {
        let state = &report.state;
        (
            report.checked,
            report.assignment.clone(),
            state.seamless,
            state.pulls,
            state.replicas,
            report.latency.clone(),
        )
    };
    assert_eq!(same(&whole), same(&changes));
    assert_eq!((whole.state.deltas, changes.state.deltas_without_base), (0, 0));
    let rest = changes.state.replica_bytes - 96 * (changes.state.replicas - changes.state.deltas);
    assert!(changes.state.deltas * 3 > changes.state.replicas, "{:?}", changes.state);
    assert!((12..16).contains(&(rest / changes.state.deltas)), "{:?}", changes.state);

    // Units with little room discard replicas, and holders of deltas request the whole state.
    let forgetful = copies("deltas = true\nreplicas_max = \"20KB\"");
    assert!(forgetful.state.deltas_without_base > 0 && forgetful.state.deltas > 0, "{:?}", forgetful.state);
    assert_eq!(forgetful.checked.processed, whole.checked.processed);
}

/// A flow with a packet each 2 ms, and one unit.
fn sparse(state: &str) -> Report {
    run(
        &format!(
            r#"
            [workload.steady]
            flows = 1
            packet_size = "1000B"
            rate = "4Mbps"
            [units]
            count = "1"
            [dispatcher]
            size_max = "none"
            [state]
            {state}
            [links]
            unit_to_store = {{ latency = "40us" }}
            [run]
            time = "500ms"
            "#
        ),
        1,
    )
}

/// A packet each 2 ms, alone in its flowlet, takes 8 us; to read or write takes 2 x 40 us on the
/// way, and 1 us there.
#[test]
fn packets_wait_for_the_store() {
    let p50_ns = |state| sparse(state).latency_at_unit.p50_ns;
    let about = |us: u64| us * 999..us * 1_001;
    assert!(about(8).contains(&p50_ns("where = \"unit\"")));
    assert!(about(8).contains(&p50_ns("where = \"reactive\"")));
    assert!(about(81 + 8 + 81).contains(&p50_ns("where = \"store_naive\"")));
    assert!(about(81 + 8).contains(&p50_ns("where = \"store\"")));
    assert!(about(8).contains(&p50_ns("where = \"store\"\nreread = false")));
    let naive = sparse("where = \"store_naive\"").state;
    // The flow's first packet has nothing to read; after the last the flow falls silent, and
    // nothing is left to write.
    assert_eq!((naive.store_reads, naive.store_writes), (249, 250));
    let store = sparse("where = \"store\"").state;
    assert_eq!((store.store_reads, store.store_writes), (249, 250));
}

/// The last packet is processed 73 us after its arrival; states are written 250 us later, and each
/// takes the store 1 ms.
#[test]
fn a_run_does_not_wait_for_what_is_written_behind_its_packets() {
    let report = run(
        r#"
        [workload.steady]
        rate = "900Mbps"
        flows = 300
        [units]
        count = "1"
        [state]
        where = "store"
        store_time = "1ms"
        reread = false
        [run]
        time = "100ms"
        patience = "100us"
        "#,
        1,
    );
    assert_eq!(report.checked.processed, report.workload.packets);
    assert!(report.state.store_writes > 1_000 && report.state.store_behind_ns > 1_000_000_000);
    assert!(report.end_ns < 100_100_000);
}

/// Every flow's owner changes now and then, and writes the state to the store before a pull would
/// reach it.
#[test]
fn states_go_by_way_of_the_store() {
    let scenario = |state: &str| {
        format!(
            r#"
            [workload.trace]
            curve = [["0s", "1Gbps"], ["100ms", "4Gbps"], ["200ms", "1Gbps"]]
            [state]
            where = "{state}"
            [run]
            time = "200ms"
            "#
        )
    };
    let [unit, reactive, store, naive] =
        ["unit", "reactive", "store", "store_naive"].map(|state| run(&scenario(state), 1));
    assert!(unit.state.seamless > 0 && unit.state.store_writes == 0);
    assert!(reactive.state.pulls > 0 && (reactive.state.seamless, reactive.state.replicas) == (0, 0));
    assert!(store.state.store_reads > store.state.pulls && store.state.store_writes > 0);
    assert_eq!((store.state.seamless, naive.state.seamless), (0, 0));
    assert!(naive.state.store_writes >= naive.workload.packets);
    let p50 = |report: &Report| report.latency_at_unit.p50_ns;
    assert!(p50(&naive) > 2 * 131_000 + p50(&unit), "{} {}", p50(&naive), p50(&unit));
}

/// Packets arrive faster than states can follow: some are dropped, as no more can wait, and all the
/// others are processed.
#[test]
fn packet_by_packet_under_too_much_load_nothing_is_left_behind() {
    let report = run(
        r#"
        [workload.steady]
        flows = 7
        rate = "2Gbps"
        spacing = "poisson"
        until = "100ms"
        [dispatcher]
        mode = "packet"
        targets = "none"
        [units]
        count = "4"
        pending_max = 1000
        expire_after = "30ms"
        [run]
        time = "2s"
        warm_up = "0s"
        "#,
        1,
    );
    let held_full = report.drops["pending-full"];
    println!("{held_full} of {} dropped, {:?}", report.workload.packets, report.latency);
    assert_eq!(report.drops.len(), 1, "{:?}", report.drops);
    assert!(report.latency.p50_ns > 1_000_000);
    assert_eq!(report.checked.processed + held_full, report.workload.packets);
    // All flows have expired.
    assert_eq!(report.checked.states, report.assignment.flows);
}

/// Units are overloaded, and messages between them are late or lost: replicas of an index's next
/// flow reach units that do not yet know that the flow before has moved.
#[test]
fn a_flow_ends_once_although_units_have_not_heard_where_it_is() {
    let report = run(
        r#"
        [workload.trace]
        curve = [["0s", "500Mbps"], ["15ms", "4Gbps"], ["30ms", "100Mbps"]]
        [dispatcher]
        mode = "rss:32:3ms"
        choice = "lowest_id"
        targets = "predicted"
        bucket = "100us"
        buckets = 20
        idle = "5ms"
        flows_max = 10000
        [units]
        count = "1..6"
        start = "2ms"
        expire_after = "4ms"
        [links]
        messages = { loss = 0.2, again = 0.1, late = 0.2, late_by = "200us" }
        dispatcher_to_unit = { latency = "20us", reorder = 0.01 }
        unit_to_unit = { latency = "30us", reorder = 0.01 }
        [run]
        time = "40ms"
        warm_up = "0s"
        interval = "10ms"
        "#,
        17076637770213084121,
    );
    assert!(report.checked.states > 100);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// A run that is not right ends with the violation.
    #[test]
    fn every_mode_holds_its_checks(
        seed in any::<u64>(),
        mode in prop::sample::select(vec![
            "flowlet", "flow", "smart-flow:5ms", "packet", "rss:16", "rss:32:3ms",
        ]),
        choice in prop::sample::select(vec!["most_utilised", "lowest_id", "least_loaded"]),
        targets in prop::sample::select(vec!["weighted", "first", "least_loaded", "all", "none", "predicted"]),
        staying in prop::sample::select(vec!["", "stay_below = 0.9", "stay_below = 0.8\ncopy_from = 0.5"]),
        workload in prop::sample::select(vec![
            "[workload.trace]\ncurve = [[\"0s\", \"500Mbps\"], [\"15ms\", \"4Gbps\"], [\"30ms\", \"100Mbps\"]]",
            "[workload.trace]\nprofile = \"W-A\"\nadversary = { every = 5 }",
            "[workload.steady]\nflows = 7\nrate = \"1500Mbps\"\nspacing = \"poisson\"",
        ]),
        state in prop::sample::select(vec!["unit", "unit", "reactive", "store", "store_naive"]),
        (loss, reorder, jitter) in (0..3u32, 0..3u32, 0..3u64),
        (start, idle, expire) in (0..3u64, 1..10u64, prop::sample::select(vec!["", "expire_after = \"4ms\""])),
        (queue, flows_max) in (prop::sample::select(vec![20, 100_000]), prop::sample::select(vec![50, 10_000])),
        load in 1..3u64,
        (deltas, replicas_max) in (any::<bool>(), prop::sample::select(vec!["2KB", "256MB"])),
        (held_per_flow, pull_again) in (prop::sample::select(vec![3, 4_096]), prop::sample::select(vec!["200us", "10ms"])),
        message_cost in prop::sample::select(vec!["0ns", "440ns", "3us"]),
        service in prop::sample::select(vec!["", "service = \"quota\"\nquota_period = \"5ms\"\npacket_cost = \"440ns\""]),
        messages in prop::sample::select(vec![
            "", "messages = { loss = 0.2, again = 0.1, late = 0.2, late_by = \"200us\" }",
            "messages = { loss = 0.05, again = 0.3, late = 0.3, late_by = \"3ms\" }",
        ]),
    ) {
        // With states in a store, no unit retransmits.
        let messages = if state.starts_with("store") { "" } else { messages };
        let scenario = format!(
            r#"
            {workload}
            [dispatcher]
            mode = "{mode}"
            choice = "{choice}"
            targets = "{targets}"
            {staying}
            bucket = "{load}00us"
            buckets = 20
            idle = "{idle}ms"
            flows_max = {flows_max}
            [units]
            count = "1..6"
            queue = {queue}
            pending_per_flow_max = {held_per_flow}
            deltas = {deltas}
            changes = "8B"
            replicas_max = "{replicas_max}"
            retransmit = "{pull_again}"
            {service}
            message_cost = "{message_cost}"
            start = "{start}ms"
            {expire}
            [state]
            where = "{state}"
            [links]
            {messages}
            unit_to_store = {{ latency = "25us", jitter = "{jitter}0us" }}
            dispatcher_to_unit = {{ latency = "20us", jitter = "{jitter}0us", loss = 0.0{loss}, reorder = 0.0{reorder} }}
            unit_to_unit = {{ latency = "30us", jitter = "{jitter}0us", loss = 0.0{loss}, reorder = 0.0{reorder} }}
            [run]
            time = "40ms"
            warm_up = "0s"
            interval = "10ms"
            "#
        );
        let report = Simulation::new(Scenario::parse(&scenario).unwrap(), seed).unwrap().run();
        let report = match report {
            Ok(report) => report,
            Err(failed) => return Err(TestCaseError::fail(format!("{failed}\n{scenario}"))),
        };
        let unprocessed: u64 = report.drops.values().sum();
        prop_assert_eq!(report.checked.processed + unprocessed, report.workload.packets);
    }
}

#[test]
fn all_examples_are_scenarios() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim");
    let mut scenarios = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        scenario.run.time.0 = 20_000_000;
        Simulation::new(scenario, 1).unwrap().run().unwrap_or_else(|failed| panic!("{failed}"));
        scenarios += 1;
    }
    assert!(scenarios >= 5);
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let refused = |text: &str| Simulation::new(Scenario::parse(text).unwrap(), 1).err().unwrap().to_string();
    assert!(refused("[run]\ntime = \"0s\"").contains("`time`"));
    assert!(refused("[units]\nservice = \"quota\"").contains("`packet_cost`"));
    assert!(refused("[dispatcher]\ngap = \"0s\"").contains("gap_ns"));
    assert!(refused("[dispatcher]\nflows_max = 4294967295").contains("`flows_max`"));
}

#[test]
fn warm_units_are_ready_sooner_and_cost_while_they_wait() {
    // S106
    let run_with = |units: &str| {
        let demand = "[workload.trace]\ncurve = [[\"0s\", \"500Mbps\"], [\"60ms\", \"2500Mbps\"]]\n";
        let rest = "[dispatcher]\nfollow_at = 0.9\n[run]\ntime = \"250ms\"\nwarm_up = \"0s\"\n";
        run(&format!("{demand}{rest}[units]\ncount = \"1..6\"\nstart = \"40ms\"\n{units}"), 1)
    };
    let (cold, warm) = (run_with(""), run_with("warm = 2\nwarm_start = \"1ms\"\n"));
    assert!(cold.warm.is_none());
    let pool = warm.warm.as_ref().unwrap();
    assert_eq!(pool.warm_starts + pool.cold_starts, warm.assignment.units_started);
    assert!(pool.warm_starts >= 2, "{pool:?}");
    assert!(warm.tracking.under_bits < cold.tracking.under_bits, "{:?} {:?}", warm.tracking, cold.tracking);
    assert!(warm.latency_at_unit.p99_ns < cold.latency_at_unit.p99_ns);
    // Two that wait, or are started to wait, all of the time.
    assert!((0.45..0.75).contains(&pool.unit_seconds), "{pool:?}");
}
