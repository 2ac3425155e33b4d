//! A function that panics at random: on one thread, on units, on units with threads, and on
//! workers, packets are accounted for, other flows continue, and nothing is printed.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::sync::Arc;

use io::traffic::Payload;
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Registry, Scaling, Setup,
    Shared, Verdict,
};
use packet::split_mix;
use policy::Policy;
use runtime::elastic::UnitsConfig;
use runtime::shards::parts;
use runtime::transport::Maker;
use runtime::{Assembly, Report, Runner};
use values::ConfigError;

use support::{Arriving, SEED, Sink, generated, play, profile, receive};

/// Panics at one of 64 packets, by their bytes.
struct Fragile;

#[derive(serde::Deserialize)]
struct NoConfig {}

nf::counters! {
    /// Panics.
    panicked: panics,
}

impl NetworkFunction for Fragile {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "fragile",
        aliases: &["Fragile"],
        summary: "Panics at random.",
        maturity: Maturity::Experimental,
        state_version: 1,
        payload: Access::Read,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        counters: Counters::DECLARED,
        shared: &[Shared::Set { name: "sources", capacity: 1024 }],
        cycles_per_packet: 10,
        ..Descriptor::DEFAULT
    };
    type Config = NoConfig;
    /// Packets of the flow.
    type State = u64;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Fragile, ConfigError> {
        Ok(Fragile)
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut u64, context: &mut Context<'_>) -> Verdict {
        *state += 1;
        let now_ns = context.now_ns();
        // What instances share is theirs while it is used: others must not wait for it forever.
        context.set(0).add(packet.ends().0.addr.to_u128() as u64, now_ns);
        let mut mixed =
            packet.payload().iter().fold(*state, |mixed, &byte| mixed.rotate_left(8) ^ u64::from(byte));
        if split_mix(&mut mixed).is_multiple_of(64) {
            context.count(COUNTERS.panicked, 1);
            panic!("packet {state} of its flow");
        }
        Verdict::Forward
    }
}

fn assemble(settings: &str) -> Assembly {
    let text = format!(
        "Port<0> inside; Port<1> outside;\n\
         NAT n {{ external: [203.0.113.1-203.0.113.4] }};\nFragile f {{}};\nMonitor m {{}};\n\
         pipelet {{ inside <-> n <-> f <-> m <-> outside; }}\nsettings {{ {settings} }};"
    );
    let policy = Policy::read("fragile.rvl", &text, &mut |_| Err("no files".into()));
    let policy = policy.map_err(|report| report.render(policy::Colour::Off)).unwrap();
    let mut registry: Registry<_> = functions::registry();
    registry.add(nf::loader!(Fragile), "");
    runtime::assemble(&policy, &registry, SEED, None).map_err(|wrong| format!("{wrong:?}")).unwrap()
}

fn frames() -> Vec<Arriving> {
    generated(&profile(Payload::Random, 6_000, 20_000.0, SEED))
}

/// Checks the result of a run on any backend.
fn check(way: &str, report: &Report, sink: &Sink) {
    let function = &report.functions[1];
    assert!(report.adds_up(), "{way}: {report:#?}");
    assert!(function.panics > 20, "{way}: {} panics", function.panics);
    assert_eq!(function.panics, function.counters["panicked"].count, "{way}");
    assert_eq!(report.drops["function-panic"], function.panics, "{way}");
    assert!(function.last_panic.as_ref().unwrap().ends_with("of its flow"), "{way}");
    assert_eq!(report.restarts, 0, "{way}");
    assert_eq!(sink.sent.len() as u64, report.packets_out, "{way}");
    assert!(report.packets_out > 5_000, "{way}: {} left", report.packets_out);
    assert_eq!(report.flows.started, report.flows.ended.values().sum::<u64>(), "{way}");
    let place = report.timing.panics.iter().find(|panicked| panicked.place.contains("panics.rs")).unwrap();
    assert!(place.count >= function.panics, "{way}");
    for pool in report.functions[0].pools.values() {
        assert_eq!(pool.in_use, 0, "{way}: what flows had of pools came back");
    }
}

#[test]
fn panics_are_contained_however_the_policy_runs() {
    runtime::panics::keep();
    let frames = frames();
    let (sink, report) = play(Runner::new(assemble("seed: 1"), "inline"), &frames);
    check("inline", &report, &sink);
    let plain = play(Runner::new(assemble("seed: 1, consolidate: false"), "walking"), &frames);
    check("walking", &plain.1, &plain.0);

    let config =
        UnitsConfig { units_min: 2, units_max: 3, capacity_bps: 20_000_000, ..UnitsConfig::as_published() };
    let (sink, report) = play(Runner::on_units(assemble("seed: 1"), "units", config).unwrap(), &frames);
    check("units", &report, &sink);

    let make: Maker = Arc::new(|| Ok(assemble("seed: 1").graph));
    let on_threads = Runner::on_threads(assemble("seed: 1"), "threads", config, make).unwrap();
    let (sink, report) = play(on_threads, &frames);
    check("threads", &report, &sink);

    let parts = parts((0..3).map(|_| assemble("seed: 1")).collect(), "workers").unwrap();
    let mut runners: Vec<Runner> = parts.into_iter().map(Runner::of_part).collect();
    let mut sink = Sink::default();
    for (number, arriving) in frames.iter().enumerate() {
        receive(&mut runners[number % 3], arriving, &mut sink);
        if number % 16 == 0 || number + 1 == frames.len() {
            runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
            while runners.iter().any(Runner::has_pending) {
                runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
            }
        }
    }
    let mut reports: Vec<Report> =
        runners.into_iter().rev().map(|mut runner| runner.finish(&mut sink).unwrap()).collect();
    let mut all = reports.pop().unwrap();
    reports.into_iter().for_each(|report| all.add_worker(&report));
    check("workers", &all, &sink);
}

/// Passed by where it fails, it stops nothing.
#[test]
fn a_policy_can_have_the_function_passed_by() {
    runtime::panics::keep();
    let (sink, report) = play(Runner::new(assemble("seed: 1, on_panic: bypass"), "bypass"), &frames());
    assert!(report.functions[1].panics > 20);
    assert!(!report.drops.contains_key("function-panic"));
    assert_eq!(sink.sent.len() as u64, report.packets_out);
}
