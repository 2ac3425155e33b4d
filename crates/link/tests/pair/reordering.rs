//! Datagrams that overtake each other are not lost: nothing is slower than on the slowest way.

use crate::bench::{Faults, Pair, patient};

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

/// Each datagram takes `base_ns`, and up to `jitter_ns` more.
fn pair_with(base_ns: u64, jitter_ns: u64) -> Pair {
    let mut pair = Pair::new(&patient(), 1);
    pair.delay_ns = base_ns;
    if jitter_ns > 0 {
        let faults = Faults {
            until_ns: u64::MAX,
            reordered_permille: 1_000,
            reordered_by_ns: jitter_ns,
            ..Faults::default()
        };
        pair.faults = [faults.clone(), faults];
    }
    pair
}

/// Sends messages at a steady rate, as flows do, and returns the longest time of one on its way.
fn longest_way_ns(pair: &mut Pair, for_ns: u64) -> u64 {
    let (mut sent, mut arrived, mut longest_ns) = (Vec::new(), 0, 0);
    let before = pair.received[1].messages_count;
    let (until_ns, mut next_ns) = (pair.now_ns + for_ns, pair.now_ns);
    while pair.now_ns < until_ns || arrived < sent.len() {
        if pair.now_ns >= next_ns && pair.now_ns < until_ns {
            next_ns += MS_NS / 2;
            for _ in 0..4 {
                pair.links[0].send_message(1, &[7; 1_000]).unwrap();
                sent.push(pair.now_ns);
            }
            pair.transmit(0);
        }
        let event_ns = pair.next_ns().unwrap();
        match event_ns > next_ns && next_ns < until_ns {
            true => pair.run_until(next_ns),
            false => assert!(pair.step()),
        }
        while arrived < pair.received[1].messages_count - before {
            longest_ns = longest_ns.max(pair.now_ns - sent[arrived]);
            arrived += 1;
        }
    }
    longest_ns
}

#[test]
fn reordering_costs_no_more_than_the_slowest_way() {
    for (base_ns, jitter_ns) in [(MS_NS, 2 * MS_NS), (40 * MS_NS, 20 * MS_NS), (MS_NS / 10, 5 * MS_NS)] {
        let mut jittery = pair_with(base_ns, jitter_ns);
        let mut steady = pair_with(base_ns + jitter_ns, 0);
        // The windows open, and the link gets to know the path.
        let [first, _] = [&mut jittery, &mut steady].map(|pair| longest_way_ns(pair, 3 * SECOND_NS));
        let lost = jittery.links[0].counters().datagrams_lost;
        let [with, without] = [&mut jittery, &mut steady].map(|pair| longest_way_ns(pair, 5 * SECOND_NS));
        println!("{base_ns} + {jitter_ns}: {first} at first, then {with}, {without} without jitter");
        assert!(with <= without + without / 5, "{with} over {without}");
        let counters = jittery.links[0].counters();
        assert!(counters.datagrams_late > 0, "{counters:?}");
        assert!(counters.datagrams_lost <= lost + 2, "{counters:?}, {lost} before");
    }
}

#[test]
fn real_losses_are_found_while_the_path_reorders() {
    let mut pair = pair_with(MS_NS, 2 * MS_NS);
    longest_way_ns(&mut pair, SECOND_NS);
    for faults in &mut pair.faults {
        faults.lost_permille = 20;
    }
    let longest_ns = longest_way_ns(&mut pair, 2 * SECOND_NS);
    let counters = pair.links[0].counters();
    assert!(counters.datagrams_lost > 20 && counters.blocks_retransmitted > 20, "{counters:?}");
    assert!(longest_ns < SECOND_NS, "{longest_ns}");
}
