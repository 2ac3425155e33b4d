//! Rules that take many steps.

use signatures::inspect::{FLOW_STEPS_MAX, FLOW_STEPS_PER_PACKET, PACKET_STEPS_MAX};

use crate::ids_support::*;

/// Returns a rule that backtracks in repetitive input, and a rule that does not.
fn rules(count: u32) -> String {
    let slow = |sid: u32| {
        format!(
            "alert tcp any any -> any any (msg:\"slow\"; content:\"start\"; content:\"a\"; byte_extract:1,0,n,relative; \
             pcre:\"/a+/R\"; content:\"b\"; distance:n; within:9; sid:{sid};)\n"
        )
    };
    let plain = "alert tcp any any -> any any (msg:\"plain\"; content:\"start\"; pcre:\"/evil$/\"; sid:1;)\n";
    (0..count).map(|number| slow(100 + number)).chain([plain.to_owned()]).collect()
}

/// Sends pieces that take long.
fn slow(pieces: usize) -> Talk {
    let mut talk = Talk::between(v4(10, 0, 0, 1, 40_000), v4(192, 0, 2, 1, 7_000)).scaled();
    talk.handshake();
    let piece = [&b"start"[..], &[b'a'; 1_390], b"evil"].concat();
    (0..pieces).for_each(|_| _ = talk.says(Client, &piece));
    talk
}

#[test]
fn rules_share_the_steps_of_a_packet() {
    let seen = watch(&rules(20), &slow(1).segments);
    assert_eq!(seen.rules(), [1], "what reads once is looked at");
    assert_eq!(seen.counter("rules_abandoned"), 20);
    let steps = seen.counter("rule_steps") as usize;
    // The last step of each may exceed the budget.
    assert!((PACKET_STEPS_MAX..PACKET_STEPS_MAX + 20 * 10).contains(&steps), "{steps}");
}

#[test]
fn rules_share_the_steps_of_a_flow() {
    let seen = watch(&rules(20), &slow(45).segments);
    assert_eq!(seen.rules(), [1; 45]);
    let steps = seen.counter("rule_steps") as usize;
    let more = 48 * (FLOW_STEPS_PER_PACKET + 20 * 10);
    assert!((FLOW_STEPS_MAX..FLOW_STEPS_MAX + more).contains(&steps), "{steps}");
}

#[test]
fn an_alert_names_the_abandoned_rule() {
    let seen = watch(&rules(1), &slow(3).segments);
    let own =
        seen.bench.alerts.iter().filter(|alert| alert.detail.as_ref().is_some_and(|d| d.group == OWN_GROUP));
    let texts: Vec<&str> = own.map(|alert| &*alert.signature).collect();
    assert_eq!(texts, ["ids: rule 1:100 takes too many steps and is abandoned: slow"]);
    assert_eq!(seen.counter("rules_abandoned"), 3);
}
