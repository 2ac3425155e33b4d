//! What the tests share.

#![allow(dead_code, clippy::unwrap_used, reason = "not every test uses all of it; a test fails by panicking")]

use signatures::inspect::{Inspection, Scratch};
use signatures::{Buffer, Classifications, Rule, Ruleset, Variables};

pub mod oracle;

/// The rule with these options, or what is wrong with it.
pub fn try_rule(options: &str) -> Result<Rule, String> {
    let text = format!("alert tcp any any -> any any ({options} sid:1;)");
    let report = Ruleset::read("test.rules", &text, &Variables::default(), &Classifications::default());
    match report.ruleset.rules() {
        [one] => Ok(one.rule.clone()),
        _ => Err(format!("{text}: {:?}", report.faults)),
    }
}

pub fn rule(options: &str) -> Rule {
    try_rule(options).unwrap()
}

/// Whether all buffers of a rule hold, each with the same bytes.
pub fn holds_at(options: &str, bytes: &[u8], start: u64) -> bool {
    all_hold(&Inspection::new(&rule(options)).unwrap(), bytes, start)
}

/// Whether the rule can be carried out, and holds.
pub fn tries(options: &str, bytes: &[u8]) -> bool {
    Inspection::new(&rule(options)).is_ok_and(|inspection| all_hold(&inspection, bytes, 0))
}

pub fn all_hold(inspection: &Inspection, bytes: &[u8], start: u64) -> bool {
    let mut scratch = Scratch::new();
    scratch.begin();
    inspection.buffers().iter().all(|one| match one.buffer() {
        Buffer::Base64Data => one.holds_decoded(&mut scratch),
        _ => one.holds_at(bytes, start, &mut scratch),
    })
}

pub fn holds(options: &str, bytes: &[u8]) -> bool {
    holds_at(options, bytes, 0)
}
