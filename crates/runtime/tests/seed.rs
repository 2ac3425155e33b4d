//! Visibility of a run's seed.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;

use runtime::Runner;

use support::{SEED, assembly_of};

fn report(settings: &str, is_hidden: bool) -> serde_json::Value {
    let text = format!(
        "Port<0> inside; Port<1> outside; Monitor m;\npipelet {{ inside <-> m <-> outside; }}\n{settings}"
    );
    let mut assembly = assembly_of("seed.rvl", &text);
    if is_hidden {
        assembly.hide_seed();
    }
    serde_json::to_value(Runner::new(assembly, "seed.rvl").report()).unwrap()
}

#[test]
fn a_hidden_seed_is_in_no_report_unless_the_policy_names_it() {
    assert_eq!(report("", false)["seed"], SEED);
    assert_eq!(report("settings { seed: 42 };", false)["seed"], 42);
    let hidden = report("", true);
    assert!(!hidden.as_object().unwrap().contains_key("seed"), "{hidden}");
    assert_eq!(report("settings { seed: 42 };", true)["seed"], 42);
}
