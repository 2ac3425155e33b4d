//! Life signs: the first datagram, silence, partitions.

use link::{Config, DatagramRefusal, DeadReason, LinkEvent, LinkKeys, PacketError, PeerLink, SendError};
use proptest::prelude::*;

use crate::bench::{KEYS, Pair, Random};

const SECOND_NS: u64 = 1_000_000_000;

fn end_of(pair: &Pair, end: usize) -> Option<u64> {
    let is_end = |event: &&(u64, LinkEvent)| event.1 == LinkEvent::Dead(DeadReason::Silent);
    pair.received[end].events.iter().find(is_end).map(|(at_ns, _)| *at_ns)
}

#[test]
fn idle_links_stay_up() {
    let mut pair = Pair::new(&Config::default().with_fixed_mtu(1_452), 1);
    pair.run_until(10 * SECOND_NS);
    for end in 0..2 {
        assert_eq!(pair.received[end].events, [(20_000, LinkEvent::Up)]);
        assert!((2_000..2_100).contains(&pair.traffic[end]), "{} datagrams in 10 s", pair.traffic[end]);
    }
}

proptest! {
    #[test]
    fn a_dead_peer_is_noticed_within_the_bound(
        seed: u64,
        at_ns in 1_000_000u64..200_000_000,
        delay_ns in 5_000u64..30_000_000,
        heartbeat_ns in 1_000_000u64..50_000_000,
        missed in 3u32..8,
        load in 0u64..100,
    ) {
        let config =
            Config { heartbeat_ns, heartbeats_missed: missed, ..Config::default() };
        let mut pair = Pair::new(&config, seed);
        pair.delay_ns = delay_ns;
        let mut random = Random::new(seed);
        let at_ns = at_ns + 2 * delay_ns;
        pair.run_while(at_ns, |pair| {
            if random.below(100) < load {
                pair.links[random.below(2) as usize].send_message(1, &[1; 100]).unwrap();
            }
            pair.now_ns < at_ns
        });
        prop_assert!(end_of(&pair, 0).is_none() && end_of(&pair, 1).is_none());
        // End 1 crashes: nothing from it is sent any more.
        let crashed_ns = pair.now_ns;
        pair.faults[1].partition_ns = (crashed_ns, u64::MAX);
        let mut longest_ns = 0;
        pair.run_while(100 * SECOND_NS, |pair| {
            longest_ns = longest_ns.max(pair.links[0].silence_ns());
            end_of(pair, 0).is_none()
        });
        let dead_ns = end_of(&pair, 0).unwrap();
        prop_assert!(dead_ns <= crashed_ns + delay_ns + longest_ns, "{} ns", dead_ns - crashed_ns);
        let rtt_ns = 2 * delay_ns + config.ack_delay_ns;
        let bound_ns = u64::from(missed) * heartbeat_ns.max(rtt_ns + rtt_ns / 8);
        prop_assert!(longest_ns <= bound_ns.min(config.silence_max_ns), "{longest_ns} of {bound_ns}");
    }
}

#[test]
fn silence_is_measured_in_round_trips_if_these_are_longer() {
    let mut pair = Pair::new(&Config::default(), 1);
    assert_eq!(pair.links[0].silence_ns(), 5 * SECOND_NS);
    pair.delay_ns = 30_000_000;
    for _ in 0..20 {
        pair.links[0].send_message(1, b"measured").unwrap();
        pair.run_until(pair.now_ns + 100_000_000);
    }
    let rtt_ns = pair.links[0].rtt_ns();
    assert!((60_000_000..62_000_000).contains(&rtt_ns), "{rtt_ns}");
    assert_eq!(pair.links[0].silence_ns(), 4 * rtt_ns);
    pair.delay_ns = 400_000_000;
    pair.run_until(pair.now_ns + SECOND_NS);
    assert_eq!(pair.links[0].dead(), Some(DeadReason::Silent), "the step from 30 to 400 ms is a silence");
}

#[test]
fn when_one_direction_fails_both_ends_notice() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.run_until(50_000_000);
    let silence_ns = pair.links[0].silence_ns();
    assert_eq!(silence_ns, 20_000_000);
    pair.faults[0].partition_ns = (50_000_000, u64::MAX);
    pair.run_until(SECOND_NS);
    let (far, near) = (end_of(&pair, 1).unwrap(), end_of(&pair, 0).unwrap());
    assert!(far <= 50_000_000 + pair.delay_ns + silence_ns);
    assert!(near > far && near <= far + pair.delay_ns + silence_ns);
}

#[test]
fn a_peer_that_never_comes_is_dead_after_its_own_time() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.faults[1].partition_ns = (0, u64::MAX);
    pair.links[0].send_message(1, b"to nobody").unwrap();
    pair.run_until(10 * SECOND_NS);
    assert_eq!(pair.received[0].events, [(5 * SECOND_NS, LinkEvent::Dead(DeadReason::Silent))]);
}

#[test]
fn a_peer_that_comes_late_gets_everything_soon() {
    let mut pair = Pair::new(&Config::default(), 1);
    let late_ns = 3 * SECOND_NS;
    pair.faults[0].partition_ns = (0, late_ns);
    pair.faults[1].partition_ns = (0, late_ns);
    pair.links[0].send_message(1, b"early").unwrap();
    pair.run_until(late_ns + 20_000_000);
    assert_eq!(pair.received[1].messages_count, 1);
}

#[test]
fn a_dead_link_does_nothing() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.run_until(10_000_000);
    pair.links[1].send_message(1, b"too late").unwrap();
    pair.transmit(1);
    let mut datagram = pair.flying_from(1).pop_first().unwrap().1;
    pair.flying_from(1).clear();
    pair.faults[1].partition_ns = (0, u64::MAX);
    pair.run_until(SECOND_NS);
    let link = &mut pair.links[0];
    assert_eq!(link.dead(), Some(DeadReason::Silent));
    assert_eq!(link.handle_datagram(SECOND_NS, &mut datagram), Err(DatagramRefusal::Dead));
    assert_eq!(link.counters().refused.dead, 1);
    assert_eq!(link.send_message(1, b"no"), Err(SendError::Dead));
    assert_eq!(link.send_packet(b"no"), Err(PacketError::Dead));
    assert_eq!((link.next_timeout_ns(), link.poll_event()), (None, None));
    link.handle_timeout(2 * SECOND_NS);
    let mut out = Vec::new();
    assert_eq!(link.poll_transmit(2 * SECOND_NS, &mut out), None);
    assert_eq!(link.poll_message(), None);
}

#[test]
fn a_peer_is_told_that_the_link_has_ended() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.run_until(10_000_000);
    let keys = LinkKeys { send: [8; 32], receive: [9; 32] };
    let other = PeerLink::new(Config::default(), &keys, 0).unwrap();
    let mut ended = std::mem::replace(&mut pair.links[1], other).into_ended();
    assert_eq!(
        ended.receive_id(),
        PeerLink::new(Config::default(), &KEYS.reversed(), 0).unwrap().receive_id()
    );
    let (now_ns, mut datagram) = (pair.now_ns, Vec::new());
    assert!(ended.notify(now_ns, &mut datagram));
    assert!(!ended.notify(now_ns + 1, &mut Vec::new()), "not for each datagram of a burst");
    let link = &mut pair.links[0];
    link.handle_datagram(now_ns, &mut datagram).unwrap();
    assert_eq!(link.dead(), Some(DeadReason::Closed));
    assert_eq!(link.poll_event(), Some(LinkEvent::Dead(DeadReason::Closed)));
    assert!(ended.notify(now_ns + SECOND_NS, &mut datagram), "it may have been lost");
}

#[test]
fn an_end_in_doubt_sends_nothing_until_its_peer_answers() {
    let mut pair = Pair::new(&Config { silence_min_ns: SECOND_NS, ..Config::default() }, 1);
    pair.run_until(10_000_000);
    assert!(pair.links[0].is_confirmed());
    // What the other end has sent before shows nothing.
    let began_ns = pair.now_ns;
    pair.faults[0].partition_ns = (began_ns, began_ns + 200_000_000);
    pair.links[0].doubt();
    pair.links[0].send_message(1, b"late").unwrap();
    pair.links[0].send_packet(b"late").unwrap();
    pair.run_until(began_ns + 200_000_000);
    assert!(!pair.links[0].is_confirmed());
    assert_eq!(pair.received[1].messages_count, 0);
    pair.run_until(began_ns + 300_000_000);
    assert!(pair.links[0].is_confirmed(), "the pings are repeated");
    assert_eq!(pair.received[1].messages_count, 1);
}
