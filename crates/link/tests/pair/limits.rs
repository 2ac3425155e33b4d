//! Flow control and buffers: bounded, and never stuck.

use link::{Config, LinkEvent, SendError};
use proptest::prelude::*;

use crate::bench::{Faults, Pair, Random, patient, small};
use crate::reliable::carry;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn a_receiver_never_holds_more_than_its_window(
        seed: u64,
        lens in prop::collection::vec(prop_oneof![0usize..100, 0usize..60_000], 20..200),
        lost in 0u64..200,
    ) {
        let config = small(1_452);
        let mut pair = Pair::new(&config, seed);
        let faults = Faults { until_ns: u64::MAX, lost_permille: lost, ..Faults::default() };
        pair.faults = [faults.clone(), faults];
        pair.takes[1] = false;
        let (mut next, mut random) = (0, Random::new(seed));
        let done = pair.run_while(600_000_000_000, |pair| {
            while let Some(len) = lens.get(next)
                && pair.links[0].send_message(next as u16 % 5, &vec![1; *len]).is_ok()
            {
                next += 1;
            }
            assert!(pair.links[1].held_cost() <= config.receive_window as u64);
            // The caller takes one message now and then.
            if random.below(20) == 0
                && let Some(message) = pair.links[1].poll_message()
            {
                let stream = message.stream;
                pair.received[1].messages.entry(stream).or_default().push_back(Vec::new());
                pair.received[1].messages_count += 1;
            }
            pair.received[1].messages_count < lens.len()
        });
        prop_assert!(done, "it stalls: {} of {}", pair.received[1].messages_count, lens.len());
        prop_assert_eq!(pair.links[1].held_cost(), 0);
    }
}

#[test]
fn a_sender_stops_at_the_window_and_goes_on_after_it() {
    let config = small(1_452);
    let mut pair = Pair::new(&config, 1);
    pair.takes[1] = false;
    let (mut accepted, len) = (0u64, 1_000);
    pair.run_while(1_000_000_000, |pair| {
        while pair.links[0].send_message(1, &[1; 1_000]).is_ok() {
            accepted += 1;
        }
        true
    });
    let held = pair.links[1].held_cost();
    let window = config.receive_window as u64;
    assert!(held <= window && held > window - 2_000, "{held}");
    let buffered = accepted * len - held;
    assert!(buffered <= config.send_buffer as u64, "{buffered}");
    assert_eq!(pair.links[0].send_message(1, &[1; 1_000]), Err(SendError::Full));
    assert!(pair.links[0].counters().messages_full > 0);
    let before = pair.traffic[1];
    assert!(pair.run_while(10_000_000, |pair| pair.traffic[1] == before), "a heartbeat");
    pair.takes[1] = true;
    pair.drive(1);
    let taken = pair.received[1].messages_count;
    let goes_on = pair.run_while(1_000_000, |pair| pair.received[1].messages_count == taken);
    assert!(goes_on, "the grant does not wait for a heartbeat");
    assert!(pair.run_while(1_000_000_000, |pair| !pair.links[0].is_flushed()));
    assert_eq!(pair.received[1].messages_count as u64, accepted);
    assert!(pair.received[0].events.iter().any(|(_, event)| *event == LinkEvent::Room));
}

#[test]
fn a_lost_grant_is_repeated() {
    let mut pair = Pair::new(&small(1_452), 1);
    pair.takes[1] = false;
    pair.run_while(100_000_000, |pair| {
        while pair.links[0].send_message(1, &[1; 1_000]).is_ok() {}
        true
    });
    // The caller takes everything, and the datagram that reports it is lost.
    pair.takes[1] = true;
    pair.faults[1].partition_ns = (pair.now_ns, pair.now_ns + 1_000);
    pair.drive(1);
    assert!(pair.run_while(20_000_000, |pair| !pair.links[0].is_flushed()));
}

#[test]
fn messages_that_are_too_large_are_refused() {
    let config = Config { message_max: 1_000, ..patient() };
    let mut pair = Pair::new(&config, 1);
    assert_eq!(
        pair.links[0].send_message(1, &[0; 1_001]),
        Err(SendError::TooLarge { len: 1_001, max: 1_000 })
    );
    assert_eq!(pair.links[0].send_message(1, &[0; 1_000]), Ok(()));
    let mut write = |len| pair.links[0].write_message(1, |out| out.resize(out.len() + len, 0));
    assert_eq!(write(1_001), Err(SendError::TooLarge { len: 1_001, max: 1_000 }));
    assert_eq!(write(1_000), Ok(()));
}

#[test]
fn the_congestion_window_falls_with_losses_and_rises_again() {
    let mut pair = Pair::new(&patient(), 1);
    let load = |pair: &mut Pair, for_ns| {
        pair.run_while(for_ns, |pair| {
            while pair.links[0].send_message(1, &[1; 1_000]).is_ok() {}
            true
        });
        pair.links[0].in_flight().1
    };
    let first = load(&mut pair, 3_000_000);
    assert!(first > 100_000, "{first}");
    pair.faults[0] = Faults { until_ns: pair.now_ns + 20_000_000, lost_permille: 200, ..Faults::default() };
    let lossy = load(&mut pair, 20_000_000);
    assert!(lossy < first / 4, "{lossy} after {first}");
    let healed = load(&mut pair, 20_000_000);
    assert!(healed > 2 * lossy, "{healed} after {lossy}");
}

#[test]
fn batches_are_short_enough_to_stay_whole() {
    // With 46 datagrams a batch would have 65,504 bytes.
    let pair = carry(&patient().with_fixed_mtu(1_424), 1, Default::default(), &vec![(0, 1, 8 << 20)]);
    assert_eq!(pair.batch_most, 45 * 1_424);
}
