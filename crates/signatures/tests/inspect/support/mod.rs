//! Shared parts of the tests.

#![allow(dead_code, clippy::unwrap_used, reason = "not every test uses all of it; a test fails by panicking")]

use signatures::inspect::{Inspection, InspectionScratch};
use signatures::{Buffer, Classifications, Rule, RuleVariables, Ruleset};

pub mod oracle;

/// Returns the rule with these options, or its fault.
pub fn try_rule(options: &str) -> Result<Rule, String> {
    let text = format!("alert tcp any any -> any any ({options} sid:1;)");
    let report = Ruleset::read("test.rules", &text, &RuleVariables::default(), &Classifications::default());
    match report.ruleset.rules() {
        [one] => Ok(one.rule.clone()),
        _ => Err(format!("{text}: {:?}", report.faults)),
    }
}

pub fn rule(options: &str) -> Rule {
    try_rule(options).unwrap()
}

/// Returns whether all buffers of a rule match, each with the same bytes.
pub fn holds_at(options: &str, bytes: &[u8], start: u64) -> bool {
    all_hold(&Inspection::new(&rule(options)).unwrap(), bytes, start)
}

/// Returns whether the rule is supported and matches.
pub fn tries(options: &str, bytes: &[u8]) -> bool {
    Inspection::new(&rule(options)).is_ok_and(|inspection| all_hold(&inspection, bytes, 0))
}

pub fn all_hold(inspection: &Inspection, bytes: &[u8], start: u64) -> bool {
    let mut scratch = InspectionScratch::new();
    scratch.begin();
    inspection.buffers().iter().all(|one| match one.buffer() {
        Buffer::Base64Data => one.holds_decoded(&mut scratch),
        _ => one.holds_at(bytes, start, &mut scratch),
    })
}

pub fn holds(options: &str, bytes: &[u8]) -> bool {
    holds_at(options, bytes, 0)
}
