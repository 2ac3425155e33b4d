//! Datagrams that are refused: counted, and without effect.

use link::{Config, DATAGRAM_MAX, DatagramRefusal, LinkConfigError, LinkKeys, PeerLink, connection_of};
use proptest::prelude::*;

use crate::bench::{KEYS, Pair, patient};

/// A pair that is up, and a datagram with a message from end 0 to end 1.
fn caught() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(10_000_000);
    pair.links[0].send_message(1, b"a message of some length").unwrap();
    pair.transmit(0);
    let datagram = pair.flying_from(0).pop_last().unwrap().1;
    pair.flying_from(0).clear();
    (pair, datagram)
}

/// Gives a datagram to end 1 and returns the refusal. Nothing but a counter may change.
fn refusal(pair: &mut Pair, mut datagram: Vec<u8>) -> DatagramRefusal {
    let now_ns = pair.now_ns;
    let link = &mut pair.links[1];
    let (before, timeout_ns) = (*link.counters(), link.next_timeout_ns());
    let refusal = link.handle_datagram(now_ns, &mut datagram).unwrap_err();
    let mut after = *link.counters();
    assert_eq!(after.refused.total(), before.refused.total() + 1);
    after.refused = before.refused;
    assert_eq!(after, before);
    assert_eq!(link.next_timeout_ns(), timeout_ns);
    assert_eq!(link.poll_message(), None);
    assert_eq!(link.poll_event(), None);
    refusal
}

fn is_accepted(pair: &mut Pair, mut datagram: Vec<u8>) -> bool {
    pair.links[1].handle_datagram(pair.now_ns, &mut datagram).is_ok()
}

proptest! {
    #[test]
    fn changed_datagrams_are_refused(at: prop::sample::Index, bit in 0u32..8) {
        let (mut pair, datagram) = caught();
        let mut forged = datagram.clone();
        let at = at.index(forged.len());
        forged[at] ^= 1 << bit;
        let expected = match at {
            0 => [DatagramRefusal::Version, DatagramRefusal::Version],
            1 => [DatagramRefusal::Phase, DatagramRefusal::Forged],
            2..10 => [DatagramRefusal::Connection, DatagramRefusal::Connection],
            10..18 => [DatagramRefusal::Forged, DatagramRefusal::Replayed],
            _ => [DatagramRefusal::Forged, DatagramRefusal::Forged],
        };
        let found = refusal(&mut pair, forged);
        prop_assert!(expected.contains(&found), "{found:?} at {at}");
        prop_assert!(is_accepted(&mut pair, datagram), "the original is still welcome");
    }

    #[test]
    fn truncated_datagrams_are_refused(len: prop::sample::Index) {
        let (mut pair, datagram) = caught();
        let len = len.index(datagram.len());
        let expected = if len < 34 { DatagramRefusal::Truncated } else { DatagramRefusal::Forged };
        prop_assert_eq!(refusal(&mut pair, datagram[..len].to_vec()), expected);
        prop_assert!(is_accepted(&mut pair, datagram));
    }
}

#[test]
fn replays_are_refused() {
    let (mut pair, datagram) = caught();
    assert!(is_accepted(&mut pair, datagram.clone()));
    assert_eq!(pair.links[1].poll_message().map(|message| message.stream), Some(1));
    assert_eq!(refusal(&mut pair, datagram.clone()), DatagramRefusal::Replayed);
    // And long after.
    for _ in 0..100 {
        for _ in 0..200 {
            pair.links[0].send_packet(&[1; 1_400]).unwrap();
        }
        let until_ns = pair.now_ns + 10_000_000;
        pair.run_until(until_ns);
    }
    assert_eq!(refusal(&mut pair, datagram), DatagramRefusal::Replayed);
    assert_eq!(pair.links[1].counters().refused.replayed, 2);
}

#[test]
fn every_datagram_twice_arrives_once() {
    let mut pair = Pair::new(&patient(), 1);
    pair.faults = std::array::from_fn(|_| crate::bench::Faults {
        until_ns: u64::MAX,
        repeated_permille: 1_000,
        ..Default::default()
    });
    for _ in 0..100 {
        pair.links[0].send_message(1, &[1; 500]).unwrap();
        pair.links[0].send_packet(&[1; 500]).unwrap();
        pair.step();
    }
    pair.run_until(102_000_000);
    let (counters, sent) = (pair.links[1].counters(), pair.links[0].counters().datagrams_sent);
    assert_eq!((counters.messages_received, counters.packets_received), (100, 100));
    assert_eq!((counters.refused.replayed, counters.datagrams_received), (sent, sent));
}

#[test]
fn oversized_datagrams_and_those_of_others_are_refused() {
    let (mut pair, datagram) = caught();
    assert_eq!(refusal(&mut pair, vec![1; DATAGRAM_MAX + 1]), DatagramRefusal::Oversized);
    assert_eq!(refusal(&mut pair, vec![]), DatagramRefusal::Truncated);
    // The link's own datagrams do not come back to it.
    let own = pair.links[0].handle_datagram(0, &mut datagram.clone());
    assert_eq!(own, Err(DatagramRefusal::Connection));
    let others = LinkKeys { send: [3; 32], receive: [4; 32] };
    let mut other = PeerLink::new(patient(), &others, 0).unwrap();
    assert_eq!(other.handle_datagram(0, &mut datagram.clone()), Err(DatagramRefusal::Connection));
    assert_eq!(connection_of(&datagram), Some(pair.links[1].receive_id()));
    assert_eq!(connection_of(&datagram[..17]), None);
}

#[test]
fn equal_secrets_are_refused() {
    let keys = LinkKeys { send: KEYS.send, receive: KEYS.send };
    let fault = PeerLink::new(Config::default(), &keys, 0).err().unwrap();
    assert_eq!(fault, LinkConfigError::SameSecrets);
}
