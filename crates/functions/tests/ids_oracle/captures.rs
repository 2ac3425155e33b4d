//! `ids` with all rules against the oracle on every capture of the collection.

use crate::compare::{Both, Sum};
use crate::ids_oracle::shared;

/// Maximum packets of a capture, unless all are requested, as in CI: the oracle is slow.
const PACKETS_MAX: usize = 2000;

/// The collection has about 600 reports that both must have; without any, nothing would be
/// compared.
const REPORTS_MIN: usize = 500;

/// Maximum reports of flows without a beginning; content may determine their server.
const PICKED_UP_MAX: usize = 85;
/// Per mille of packets that are fragments, or come after ambiguous bytes in their flow.
const VAGUE_MAX: usize = 6;

#[test]
fn captures_are_reported_as_the_oracle_says() {
    let Some(loaded) = shared::rules(shared::ANYWHERE) else { return };
    let asks = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    let all = asks("RIVULET_IDS_RULES", "all") || asks("CI", "true");
    let both = Both::new(&loaded);
    let mut sum = Sum::default();
    for (name, mut frames) in shared::captures() {
        frames.truncate(if all { frames.len() } else { PACKETS_MAX });
        sum.add(&name, both.compare(&frames));
    }
    // Captures of fragments are small.
    let (reports_min, vague_max) =
        if all { (REPORTS_MIN, VAGUE_MAX + PICKED_UP_MAX) } else { (0, 4 * VAGUE_MAX + PICKED_UP_MAX) };
    sum.check(reports_min, vague_max);
}
