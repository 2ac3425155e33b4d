//! The function `ids` with all rules against the oracle on every capture of the collection.

use crate::compare::{Both, Sum};
use crate::ids_oracle::shared;

/// Packets of a capture that are looked at at most, if nobody asks for all: the oracle is slow.
const PACKETS_MAX: usize = 2000;

#[test]
fn captures_are_reported_as_the_oracle_says() {
    let Some(loaded) = shared::rules(shared::ANYWHERE) else { return };
    let all = std::env::var("RIVULET_IDS_RULES").as_deref() == Ok("all");
    let both = Both::new(&loaded);
    let mut sum = Sum::default();
    for (name, mut frames) in shared::captures() {
        frames.truncate(if all { frames.len() } else { PACKETS_MAX });
        sum.add(&name, both.compare(&frames));
    }
    sum.check(0);
}
