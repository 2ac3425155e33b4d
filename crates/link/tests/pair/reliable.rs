//! Every message arrives exactly once and in order within its stream, whatever the network does;
//! nothing stalls when it has healed. A27

use std::collections::{HashMap, VecDeque};

use link::{Config, ORDERED, SendError};
use proptest::prelude::*;

use crate::bench::{Faults, Pair, Random, patient, small};

/// A message to send: the end, the stream, the length.
pub type Plan = Vec<(usize, u16, usize)>;

pub fn faults() -> impl Strategy<Value = Faults> {
    let rates = (0u64..400, 0u64..300, 0u64..100, 0u64..500);
    let partition = prop_oneof![Just((0, 0)), (0u64..3_000_000, 0u64..20_000_000)];
    (rates, 0u64..3_000_000, partition).prop_map(
        |((lost, repeated, corrupted, reordered), by, (from, len))| Faults {
            until_ns: 200_000_000,
            lost_permille: lost,
            repeated_permille: repeated,
            corrupted_permille: corrupted,
            reordered_permille: reordered,
            reordered_by_ns: by,
            partition_ns: (from, from + len),
        },
    )
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let len = prop_oneof![
        8 => 0usize..200,
        4 => 200usize..3_000,
        1 => 3_000usize..60_000,
    ];
    let stream = prop_oneof![3 => 0u16..4, 1 => any::<u16>()];
    prop::collection::vec((0usize..2, stream, len), 1..400)
}

/// A message's bytes, which identify it.
fn bytes(index: usize, len: usize) -> Vec<u8> {
    let mut random = Random::new(index as u64);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Sends all messages over the time of the faults, and checks all that arrives.
pub fn carry(config: &Config, seed: u64, faults: [Faults; 2], plan: &Plan) -> Pair {
    carry_while(config, seed, faults, plan, |_| {})
}

/// Does so while the network changes.
pub fn carry_while(
    config: &Config,
    seed: u64,
    faults: [Faults; 2],
    plan: &Plan,
    mut change: impl FnMut(&mut Pair),
) -> Pair {
    let mut pair = Pair::new(config, seed);
    pair.faults = faults;
    let mut random = Random::new(!seed);
    let mut next = 0;
    let carried = pair.run_while(3_600_000_000_000, |pair| {
        change(pair);
        // Bursts, as a caller has them.
        for _ in 0..random.below(20) {
            let Some(&(end, stream, len)) = plan.get(next) else { break };
            let (link, message) = (&mut pair.links[end], bytes(next, len));
            let sent = match link.has_room() {
                true => link.write_message(stream, |out| out.extend_from_slice(&message)),
                false => link.send_message(stream, &message),
            };
            match sent {
                Ok(()) => next += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let arrived = pair.received.iter().map(|received| received.messages_count).sum::<usize>();
        let flushed = pair.links.iter().all(|link| link.is_flushed());
        next < plan.len() || arrived < plan.len() || !flushed
    });
    assert!(carried, "it stalls: {:?}", pair.links.each_ref().map(|link| link.counters()));
    assert!(pair.now_ns < 60_000_000_000, "healed at 0.2 s, done at {} ns", pair.now_ns);
    for end in 0..2 {
        check_order(end, plan, &pair.received[1 - end].streams);
    }
    for (index, &(end, stream, len)) in plan.iter().enumerate() {
        let arrived = pair.received[1 - end].messages.get_mut(&stream).and_then(|queue| queue.pop_front());
        assert!(arrived == Some(bytes(index, len)), "message {index} of stream {stream}");
    }
    let left = pair.received.iter().flat_map(|received| received.messages.values()).map(|queue| queue.len());
    assert_eq!(left.sum::<usize>(), 0);
    for (link, received) in pair.links.iter().zip(&pair.received) {
        assert!(received.held_most <= config.receive_window as u64);
        assert_eq!(link.held_cost(), 0);
        assert_eq!(link.dead(), None);
    }
    pair
}

/// Checks that no message overtakes one of the ordered stream, or is overtaken by one.
fn check_order(end: usize, plan: &Plan, arrived: &[u16]) {
    let mut sent: HashMap<u16, VecDeque<usize>> = HashMap::new();
    for (index, &(from, stream, _)) in plan.iter().enumerate() {
        if from == end {
            sent.entry(stream).or_default().push_back(index);
        }
    }
    let (mut latest, mut latest_ordered) = (None, None);
    for stream in arrived {
        let index = sent.get_mut(stream).and_then(VecDeque::pop_front);
        assert!(index > latest_ordered, "message {index:?} behind ordered message {latest_ordered:?}");
        if *stream == ORDERED {
            assert!(index > latest, "ordered message {index:?} behind message {latest:?}");
            latest_ordered = index;
        }
        latest = latest.max(index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn messages_arrive_once_and_in_order_over_a_faulty_network(
        seed: u64,
        mtu in prop_oneof![Just(512usize), Just(1_452), Just(9_000), Just(65_507)],
        to in faults(),
        back in faults(),
        plan in plan(),
    ) {
        let mut config = small(mtu);
        config.receive_window = config.receive_window.max(2 * mtu);
        carry(&config, seed, [to, back], &plan);
    }

    #[test]
    fn keys_rotate_under_load(seed: u64, to in faults(), back in faults(), plan in plan(), every in 1u64..20) {
        let config = Config { key_datagrams: every, ..small(512) };
        let pair = carry(&config, seed, [to, back], &plan);
        for (end, link) in pair.links.iter().enumerate() {
            let peer = pair.links[1 - end].counters();
            let ahead = link.counters().keys_rotated - peer.peer_keys_rotated;
            prop_assert!(ahead <= 1, "a peer is never two phases behind");
        }
    }
}

#[test]
fn the_largest_messages_pass_the_default_settings() {
    let plan = vec![(0, 1, 16 << 20), (0, 2, 5), (0, 1, 16 << 20), (0, 1, 7), (1, 9, 1 << 20)];
    let faults = Faults { until_ns: u64::MAX, lost_permille: 10, ..Faults::default() };
    let pair = carry(&patient(), 1, [faults.clone(), faults], &plan);
    assert!(pair.links[0].counters().blocks_retransmitted > 0);
}

#[test]
fn streams_do_not_wait_for_each_other() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(1_000_000);
    pair.links[0].send_message(1, b"lost").unwrap();
    pair.transmit(0);
    pair.flying_from(0).clear();
    for stream in [1, 2] {
        pair.links[0].send_message(stream, b"later").unwrap();
    }
    pair.transmit(0);
    let arrives_ns = pair.now_ns + pair.delay_ns;
    pair.run_until(arrives_ns);
    assert_eq!(pair.received[1].messages.keys().collect::<Vec<_>>(), [&2]);
    pair.run_until(50_000_000);
    assert_eq!(pair.received[1].messages[&1], [&b"lost"[..], b"later"]);
}

#[test]
fn the_ordered_stream_waits_for_all_and_all_wait_for_it() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(1_000_000);
    for (stream, is_lost) in [(1, true), (2, false), (ORDERED, false), (3, false)] {
        pair.links[0].send_message(stream, b"message").unwrap();
        pair.transmit(0);
        if is_lost {
            pair.flying_from(0).clear();
        }
    }
    let arrives_ns = pair.now_ns + pair.delay_ns;
    pair.run_until(arrives_ns);
    assert_eq!(pair.received[1].streams, [2]);
    assert!(pair.links[1].held_cost() > 0, "what waits is within the window");
    pair.run_until(50_000_000);
    assert_eq!(pair.received[1].streams, [2, 1, ORDERED, 3]);
    assert_eq!(pair.links[1].held_cost(), 0);
}

#[test]
fn a_perfect_network_repeats_nothing() {
    let mut pair = Pair::new(&Config::default().with_fixed_mtu(1_452), 1);
    for index in 0..20_000 {
        pair.links[index % 2].send_message(index as u16, &bytes(index, 64)).unwrap();
    }
    assert!(pair.run_while(1_000_000_000, |pair| !pair.links.iter().all(|link| link.is_flushed())));
    for link in &pair.links {
        let counters = link.counters();
        assert_eq!(
            (counters.blocks_retransmitted, counters.datagrams_lost, counters.probe_timeouts),
            (0, 0, 0)
        );
        assert_eq!(counters.messages_received, 10_000);
        assert!(counters.datagrams_sent < 10_000 / 15, "19 messages share a datagram: {counters:?}");
    }
}
