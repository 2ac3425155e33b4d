//! `ids` against the oracle on planted traffic and near misses of every rule, in several
//! segmentations.
//!
//! `RIVULET_IDS_RULES=all` selects all rules, as in CI; otherwise one of each [`STEP`].

use signatures::LoadedRule;

use crate::compare::{Both, Sum};
use crate::ids_oracle::plant::{self, Rendering};
use crate::ids_oracle::shared;

/// Seed of the planted traffic.
const SEED: u64 = 7;
/// Per mille of packets that come after an ambiguous near miss of an HTTP message.
const VAGUE_MAX: usize = 1;
/// One of this many rules is selected by default.
const STEP: usize = 8;

#[test]
fn planted_traffic_is_reported_as_the_oracle_says() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let asks = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    let step = if asks("RIVULET_IDS_RULES", "all") || asks("CI", "true") { 1 } else { STEP };
    let (mut sum, mut whole) = (Sum::default(), 0);
    for rule in loaded.iter().step_by(step) {
        let Some(planted) = plant::plant(&loaded, rule, SEED) else {
            sum.not_planted += 1;
            continue;
        };
        let both = Both::new(&planted.rules(rule));
        let size = 1 + rule.rule.sid as usize % 37;
        let renderings = [
            Rendering::Whole,
            Rendering::At(size),
            Rendering::Cut(1),
            Rendering::Cut(size),
            Rendering::Backwards(size),
            Rendering::Overlapping(size),
            Rendering::Twice(size),
        ];
        // Rules that need many conversations do not depend on segmentation.
        let count = if planted.conversations.len() > 3 { 1 } else { renderings.len() };
        for rendering in &renderings[..count] {
            let compared = both.compare(&plant::frames(&planted.conversations, *rendering));
            if let [one] = &planted.conversations[..]
                && let Some(said) = one.said()
            {
                whole += 1;
                let streams: Vec<_> = compared.streams.streams.values().collect();
                assert_eq!(streams, [&said], "{}", name(rule, rendering));
            }
            sum.add(&name(rule, rendering), compared);
        }
        for miss in plant::near_misses(&rule.rule, &planted, SEED) {
            for rendering in [renderings[0], renderings[count.min(3) - 1]] {
                let what = format!("{}, {}", name(rule, &rendering), miss.what);
                sum.add(&what, both.compare(&plant::frames(&miss.conversations, rendering)));
            }
        }
    }
    sum.check(1, VAGUE_MAX);
    println!("{whole} conversations put together as they were planted");
    assert!(whole > 1000);
}

/// All rules at once, on the traffic planted for some: rules must not affect one another.
#[test]
fn all_rules_together_report_as_the_oracle_says() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let both = Both::new(&loaded);
    let mut sum = Sum::default();
    let mut conversations = Vec::new();
    for rule in loaded.iter().step_by(40) {
        match plant::plant(&loaded, rule, SEED) {
            Some(planted) if planted.conversations.len() == 1 => conversations.extend(planted.conversations),
            _ => sum.not_planted += 1,
        }
    }
    for (number, conversation) in conversations.iter_mut().enumerate() {
        conversation.client.1 = conversation.client.1.wrapping_add(number as u16);
    }
    for rendering in [Rendering::Whole, Rendering::Backwards(11)] {
        sum.add(&format!("{rendering:?}"), both.compare(&plant::frames(&conversations, rendering)));
    }
    sum.check(1, VAGUE_MAX);
}

fn name(rule: &LoadedRule, rendering: &Rendering) -> String {
    format!("{}:{} ({}), {rendering:?}", rule.rule.gid, rule.rule.sid, rule.place)
}
