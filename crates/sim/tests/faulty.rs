//! Real policies on units connected by faulty links: they release what a single graph releases for
//! the packets that a unit processed, flow by flow.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use io::traffic::{Payload, Protocols, TrafficProfile};
use packet::LinkType;
use protocol::dispatcher::Granularity;
use protocol::trace::failure::check_with;
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Ingress};
use sim::faulty::{FaultCounts, FaultPlan, FaultTrial, TrialFrame};

use support::{Arriving, assembly, conversation, profile};

const LOSSY: &str = r#"
    [packets]
    latency = "65us"
    jitter = "40us"
    loss = 0.01
    reorder = 0.05
    reorder_by = "120us"

    [messages]
    loss = 0.05
    again = 0.05
    late = 0.1
    late_by = "1ms"
"#;

/// Units that come and go while packets flow.
const RESTLESS: &str = r#"
    [[units]]
    event = "join"
    at = "100us"

    [[units]]
    event = "leave"
    at = "300us"
    every = "250us"

    [[units]]
    event = "join"
    at = "400us"
    every = "250us"
"#;

const CRASHES: &str = r#"
    [[units]]
    event = "crash"
    at = "600us"

    [[units]]
    event = "crash"
    at = "1ms"
"#;

const CLEAN: &str = "[packets]\nlatency = \"65us\"";

fn config(mode: Granularity) -> UnitsConfig {
    UnitsConfig { mode, units_max: 4, capacity_bps: 5_000_000, ..UnitsConfig::as_published() }
}

fn trial(
    name: &'static str,
    frames: &[Arriving],
    plan: &str,
    mode: Granularity,
) -> FaultTrial<impl Assemble> {
    let frame = |frame: &Arriving| TrialFrame {
        timestamp_ns: frame.timestamp_ns,
        link: LinkType::Ethernet,
        wire_len: frame.data.len() as u32,
        from: Ingress::Port(frame.port),
        data: frame.data.clone(),
    };
    FaultTrial {
        assemble: move || Ok(assembly(name)),
        name: name.to_owned(),
        frames: frames.iter().map(frame).collect(),
        config: config(mode),
        plan: FaultPlan::parse(plan).unwrap(),
    }
}

trait Assemble: Fn() -> Result<Assembly, String> + Clone + 'static {}

impl<F: Fn() -> Result<Assembly, String> + Clone + 'static> Assemble for F {}

fn check(trial: &FaultTrial<impl Assemble>, seed: u64) -> FaultCounts {
    check_with(&trial.plan, |plan| {
        let report = trial.run_with(plan, seed).unwrap();
        let (name, mode, units) = (&trial.name, trial.config.mode, &plan.units);
        assert_eq!(report.difference, None, "{name}, seed {seed}, {mode:?}, {units:?}");
        assert!(report.released > 0);
        report.outcome
    })
}

/// Traffic that pauses for some time after each number of frames.
fn pausing(mut frames: Vec<Arriving>, after: usize, pause_ns: u64) -> Vec<Arriving> {
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.timestamp_ns += (number / after) as u64 * pause_ns;
    }
    frames
}

/// Traffic without fragments: a pause inside a datagram may outlast its reassembly.
fn whole_packets(packets: u64) -> TrafficProfile {
    let profile = profile(Payload::Random, packets, 800_000.0, 7);
    TrafficProfile { protocols: Protocols { fragments: 0.0, ..profile.protocols }, ..profile }
}

fn check_all(name: &'static str, payload: Payload) {
    // Dense enough that packets of one flow overtake each other.
    let frames = conversation(name, &profile(payload, 1_200, 800_000.0, 7));
    for mode in [Granularity::Flowlet, Granularity::Packet] {
        check(&trial(name, &frames, CLEAN, mode), 1);
        let lossy = trial(name, &frames, LOSSY, mode);
        let mut sum = FaultCounts::default();
        for seed in 1..=3 {
            let outcome = check(&lossy, seed);
            sum.packets_lost += outcome.packets_lost;
            sum.packets_late += outcome.packets_late;
            sum.messages_lost += outcome.messages_lost;
        }
        assert!(sum.packets_lost > 10 && sum.packets_late > 10, "{sum:?}");
        assert!(mode == Granularity::Flowlet || sum.messages_lost > 10, "{sum:?}");
        let restless = trial(name, &frames, &(LOSSY.to_owned() + RESTLESS), mode);
        for seed in 1..=3 {
            let outcome = check(&restless, seed);
            assert!(outcome.leaves > 2 && outcome.joins > 2 && outcome.flows_lost.is_empty(), "{outcome:?}");
        }
        let crashing = trial(name, &frames, &(LOSSY.to_owned() + RESTLESS + CRASHES), mode);
        let (mut crashes, mut flows_lost) = (0, 0);
        for seed in 1..=3 {
            let outcome = check(&crashing, seed);
            crashes += outcome.crashes;
            flows_lost += outcome.flows_lost.len();
        }
        assert!(crashes > 2 && flows_lost > 2, "{crashes} {flows_lost}");
    }
}

#[test]
fn nat_survives_faults() {
    check_all("nat.rvl", Payload::Random);
}

#[test]
fn load_balancer_survives_faults() {
    check_all("lb.rvl", Payload::Random);
}

#[test]
fn firewall_survives_faults() {
    check_all("firewall.rvl", Payload::Random);
}

#[test]
fn policer_survives_faults() {
    check_all("policer.rvl", Payload::Random);
}

#[test]
fn all_functions_survive_faults() {
    check_all("all.rvl", Payload::Http);
}

#[test]
fn explanations_are_the_same_each_time() {
    let frames = conversation("nat.rvl", &profile(Payload::Random, 200, 800_000.0, 7));
    let trial = trial("nat.rvl", &frames, &(LOSSY.to_owned() + RESTLESS), Granularity::Packet);
    let explanation = trial.explain(1).unwrap();
    assert_eq!(trial.explain(1).unwrap(), explanation);
    for word in ["FaultPlan", "lines of other flows", "unit-changed", "state-installed", "processed"] {
        assert!(explanation.contains(word), "{word}: {explanation}");
    }
}

#[test]
fn pauses_of_the_traffic_make_nothing_late() {
    // Flows end, and units come and go, during the pauses.
    const UNITS: &str = r#"
        [[units]]
        event = "join"
        at = "100us"
        every = "30ms"

        [[units]]
        event = "leave"
        at = "300us"
        every = "30ms"
    "#;
    let profile = whole_packets(1_200);
    for (name, after, pause_ns) in
        [("nat.rvl", 7, 1_000_000_000), ("lb.rvl", 7, 1_000_000_000), ("lb.rvl", 150, 61_000_000_000)]
    {
        let frames = pausing(conversation(name, &profile), after, pause_ns);
        let plan = LOSSY.to_owned() + UNITS;
        for mode in [Granularity::Flowlet, Granularity::Packet] {
            for seed in 1..=3 {
                check(&trial(name, &frames, &plan, mode), seed);
            }
        }
    }
}
