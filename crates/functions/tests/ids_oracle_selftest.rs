//! The oracle of the function `ids` on itself: tables, and traffic that is planted for each rule.

mod ids_oracle;

use ids_oracle::Oracle;

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
