//! Answers to the senders of rejected packets, and their rate.

use crate::firewall_support::*;
use functions::firewall::{ANSWERS_BURST, ANSWERS_PER_S, SOURCE_ANSWERS_BURST, SOURCE_ANSWERS_PER_S};
use packet::DropReason::{FirewallDenied, FirewallRejected};
use packet::checksum::{checksum, verify};

const REJECTED: Fate = Dropped(FirewallRejected);
const SILENT: Fate = Dropped(FirewallDenied);

#[test]
fn rejected_tcp_gets_a_reset_and_other_packets_an_icmp_error() {
    let mut bench = Bench::rules("reject");
    assert_eq!(bench.send(Outside, &tcp((OUT, 40_000), (IN, 80), SYN, 100, 0, 0)), REJECTED);
    let reset = bench.answers.pop().unwrap();
    let want = tcp((IN, 80), (OUT, 40_000), RST | ACK, 0, 101, 0);
    assert_eq!(
        reset.data()[..12],
        [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1],
        "addressed to the sender on the link"
    );
    assert_eq!(reset.data()[26..34], want[26..34], "from the destination to the source");
    assert_eq!(reset.data()[34..48], want[34..48]);
    assert_eq!(reset.len(), 54);
    assert!(verify(u32::from(!checksum(&reset.data()[14..34]))));
    let query = udp((IN, 5353), (OUT, 53));
    assert_eq!(bench.send(Inside, &query), REJECTED);
    let error = bench.answers.pop().unwrap();
    assert_eq!(error.data()[34..36], [3, 13], "administratively prohibited");
    assert_eq!(error.data()[42..], query[14..], "quotes the packet");
    assert_eq!(bench.send(Inside, &udp((IN6, 5353), (OUT6, 53))), REJECTED);
    assert_eq!(bench.answers.pop().unwrap().data()[54..56], [1, 1]);
    assert_eq!((bench.counter("answered"), bench.counter("unanswered"), bench.counter("denied")), (3, 0, 3));
}

#[test]
fn some_packets_get_no_answer() {
    let mut bench = Bench::rules("reject");
    let rows = [
        ("a reset", tcp((OUT, 40_000), (IN, 80), RST, 100, 0, 0)),
        ("to a group", udp((OUT, 5353), ("224.0.0.251", 5353))),
        ("to a group, IPv6", udp((OUT6, 5353), ("ff02::fb", 5353))),
    ];
    for (what, frame) in rows {
        assert_eq!(bench.send(Outside, &frame), SILENT, "{what}");
    }
    let from_nobody = udp(("0.0.0.0", 68), (IN, 67));
    assert_eq!(bench.send(Outside, &from_nobody), Dropped(packet::DropReason::Martian));
    assert!(bench.answers.is_empty());
    assert_eq!(bench.counter("unanswered"), 3);
}

/// After a restart both ends hear that their connection is no more, with the numbers of the segment
/// (RFC 9293 3.10.7.1).
#[test]
fn connections_whose_beginning_was_not_seen_are_reset() {
    for (stateful, rules) in [(true, "allow out"), (true, ""), (false, "allow out")] {
        let mut bench =
            Bench::json(serde_json::json!({ "rules": rules, "pickup": "reject", "stateful": stateful }));
        for round in 1..=3 {
            let data = tcp((IN, 40_000), (OUT, 80), ACK, 100, 500, 10);
            assert_eq!(bench.send(Inside, &data), REJECTED);
            let reset = bench.answers.pop().unwrap();
            assert_eq!(reset.data()[26..48], tcp((OUT, 80), (IN, 40_000), RST, 500, 0, 0)[26..48]);
            assert_eq!(bench.send(Outside, &tcp((OUT, 80), (IN, 40_000), ACK, 500, 100, 10)), REJECTED);
            let reset = bench.answers.pop().unwrap();
            assert_eq!(reset.data()[26..48], tcp((IN, 40_000), (OUT, 80), RST, 100, 0, 0)[26..48]);
            assert_eq!((bench.counter("invalid"), bench.counter("answered")), (2 * round, 2 * round));
        }
        // Nothing else that is invalid is answered.
        let invalid = Dropped(packet::DropReason::FirewallInvalid);
        assert_eq!(bench.send(Inside, &tcp((IN, 40_000), (OUT, 80), RST, 100, 0, 0)), invalid);
        assert_eq!(bench.send(Inside, &tcp((IN, 40_000), (OUT, 80), SYN | FIN, 100, 0, 0)), invalid);
        assert_eq!(bench.send(Inside, &icmp(IN, OUT, 0, 1)), invalid);
        assert!(bench.answers.is_empty());
    }
    // Rules may let them pass, and a visible connection continues.
    let rules = "allow out state invalid\nallow out";
    let mut bench = Bench::json(serde_json::json!({ "rules": rules, "pickup": "reject" }));
    assert_eq!(bench.send(Inside, &tcp((IN, 40_000), (OUT, 80), ACK, 100, 500, 10)), Passed);
    assert_eq!(bench.send(Inside, &tcp((IN, 40_001), (OUT, 80), SYN, 100, 0, 0)), Passed);
    assert_eq!(bench.send(Outside, &tcp((OUT, 80), (IN, 40_001), SYN | ACK, 500, 101, 0)), Passed);
    assert_eq!(bench.send(Inside, &tcp((IN, 40_001), (OUT, 80), ACK, 101, 501, 10)), Passed);
}

#[test]
fn a_connection_under_new_rules_is_reset() {
    let mut bench = Bench::rules("allow out as \"web\"\nreject");
    assert_eq!(bench.send(Inside, &tcp((IN, 40_000), (OUT, 80), SYN, 100, 0, 0)), Passed);
    bench.control("rule web disable");
    for answered in 1..=3 {
        assert_eq!(bench.send(Outside, &tcp((OUT, 80), (IN, 40_000), ACK, 500, 101, 10)), REJECTED);
        assert_eq!(bench.answers.len(), answered);
    }
}

#[test]
fn answers_to_a_source_are_limited() {
    let mut bench = Bench::rules("reject");
    let frame = |bench: &Bench| udp((OUT, (bench.now_ns / 1_000_000) as u16), (IN, 53));
    let fates = |bench: &mut Bench, count: u64| {
        (0..count).filter(|_| bench.send(Outside, &frame(bench)) == REJECTED).count() as u64
    };
    // One packet per millisecond: the burst within 99 ms, then the rate.
    assert_eq!(fates(&mut bench, 99), SOURCE_ANSWERS_BURST);
    assert_eq!(fates(&mut bench, 1000), SOURCE_ANSWERS_PER_S);
    // Another source has a limit of its own.
    assert_eq!(bench.send(Outside, &udp(("203.0.113.77", 9), (IN, 53))), REJECTED);
    bench.now_ns += 10_000_000_000;
    assert_eq!(fates(&mut bench, 99), SOURCE_ANSWERS_BURST);
    // In IPv6 a source is a whole /64.
    bench.now_ns += 10_000_000_000;
    let answered = (0..99u16)
        .filter(|n| bench.send(Outside, &udp((&format!("2001:db8:2::{n:x}"), 9), (IN6, 53))) == REJECTED);
    assert_eq!(answered.count() as u64, SOURCE_ANSWERS_BURST);
}

#[test]
fn answers_to_all_sources_together_are_limited() {
    let mut bench = Bench::rules("reject");
    let mut answered = 0;
    for n in 0..5_000u32 {
        let source = std::net::Ipv4Addr::from(0xcb00_0000 + n).to_string();
        bench.now_ns -= 900_000; // One packet per 100 us.
        answered += u64::from(bench.send(Outside, &udp((&source, 9), (IN, 53))) == REJECTED);
        bench.answers.drain(..).for_each(|packet| bench.pool.give(packet));
    }
    let want = ANSWERS_BURST + ANSWERS_PER_S / 2;
    assert!(answered.abs_diff(want) <= 1, "{answered} of about {want}");
    assert_eq!(bench.counter("answered") + bench.counter("unanswered"), 5_000);
}
