//! Packets: once or never, in the order of the network, never divided.

use link::{Config, PacketError};
use proptest::prelude::*;

use crate::bench::{Faults, Pair, Random, patient, small};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn packets_arrive_in_order_and_at_most_once(
        seed: u64,
        lens in prop::collection::vec(8usize..1_300, 1..300),
        lost in 0u64..300,
        repeated in 0u64..300,
    ) {
        let mut pair = Pair::new(&Config { packet_buffer: 1 << 20, ..small(1_452) }, seed);
        let faults =
            Faults { until_ns: u64::MAX, lost_permille: lost, repeated_permille: repeated, ..Faults::default() };
        pair.faults = [faults.clone(), faults];
        let mut random = Random::new(seed);
        for (index, len) in lens.iter().enumerate() {
            let mut packet = vec![len.to_le_bytes()[0]; *len];
            packet[..8].copy_from_slice(&index.to_le_bytes());
            pair.links[0].send_packet(&packet).unwrap();
            if random.below(4) == 0 {
                pair.links[0].send_message(3, &packet).unwrap();
                pair.step();
            }
        }
        pair.run_until(pair.now_ns + 10_000_000_000);
        let index = |packet: &Vec<u8>| usize::from_le_bytes(packet[..8].try_into().unwrap());
        let indices: Vec<usize> = pair.received[1].packets.iter().map(index).collect();
        prop_assert!(indices.is_sorted_by(|a, b| a < b), "{indices:?}");
        for packet in &pair.received[1].packets {
            let len = lens[index(packet)];
            prop_assert!(packet.len() == len && packet[8..].iter().all(|byte| *byte == len.to_le_bytes()[0]));
        }
        if lost == 0 {
            prop_assert_eq!(indices.len(), lens.len());
        }
    }
}

#[test]
fn packets_that_do_not_fit_are_refused_and_counted() {
    let mut pair = Pair::new(&patient().with_fixed_mtu(1_452), 1);
    let max = pair.links[0].packet_max();
    assert_eq!(max, 1_452 - 18 - 16 - 3);
    let error = pair.links[0].send_packet(&vec![0; max + 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the packet has 1416 bytes, more than the 1415 of a datagram; send it as a message"
    );
    assert_eq!(pair.links[0].send_packet(&vec![0; max]), Ok(()));
    pair.run_until(1_000_000);
    assert_eq!(pair.received[1].packets, [vec![0; max]]);

    let mut taken = 1;
    while pair.links[0].send_packet(&[0; 100]).is_ok() {
        taken += 1;
    }
    assert_eq!(pair.links[0].send_packet(&[]), Ok(()), "what fits is taken");
    assert_eq!(pair.links[0].send_packet(&[0; 100]), Err(PacketError::Full));
    assert!(taken < (1 << 20) / 100);
    let counters = *pair.links[0].counters();
    assert_eq!((counters.packets_too_large, counters.packets_full), (1, 2));
}

#[test]
fn a_receiver_discards_packets_that_its_caller_does_not_take() {
    let config = Config { packet_buffer: 10_000, ..patient() }.with_fixed_mtu(1_452);
    let mut pair = Pair::new(&config, 1);
    pair.run_until(1_000_000);
    for _ in 0..40 {
        for _ in 0..5 {
            pair.links[0].send_packet(&[7; 1_000]).unwrap();
        }
        let mut out = Vec::new();
        while let Some(transmit) = pair.links[0].poll_transmit(pair.now_ns, &mut out) {
            for datagram in out.chunks_mut(transmit.segment) {
                pair.links[1].handle_datagram(pair.now_ns, datagram).unwrap();
            }
        }
        while let Some(transmit) = pair.links[1].poll_transmit(pair.now_ns, &mut out) {
            for datagram in out.chunks_mut(transmit.segment) {
                pair.links[0].handle_datagram(pair.now_ns, datagram).unwrap();
            }
        }
    }
    let discarded = pair.links[1].counters().packets_discarded;
    let taken = std::iter::from_fn(|| pair.links[1].poll_packet().map(<[u8]>::len)).count() as u64;
    assert_eq!((taken, taken + discarded), (9, pair.links[0].counters().packets_sent));
}

#[test]
fn messages_and_packets_share_a_link_fairly() {
    let mut pair = Pair::new(&patient().with_fixed_mtu(1_452), 1);
    for _ in 0..600 {
        pair.links[0].send_packet(&[1; 1_400]).unwrap();
        pair.links[0].send_message(1, &[2; 1_400]).unwrap();
    }
    let (mut datagrams, mut seen) = (0, [0, 0]);
    pair.run_while(1_000_000_000, |pair| {
        let received = &pair.received[1];
        let now = [received.messages_count, received.packets.len()];
        assert!(now[0].abs_diff(now[1]) < 100, "{now:?}");
        datagrams += usize::from(now != seen);
        seen = now;
        now != [600, 600]
    });
    assert_eq!(seen, [600, 600]);
    assert!(datagrams > 5);
}
