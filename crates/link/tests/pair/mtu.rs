//! The length of datagrams follows the path (RFC 8899): nothing is lost, nothing waits for ever.

use link::{Config, LinkEvent, MTU_RAISE_NS, MtuChange};
use proptest::prelude::*;

use crate::bench::{Faults, Pair, Random, patient, small};
use crate::reliable::{carry_while, faults, plan};

const SECOND_NS: u64 = 1_000_000_000;

/// Small buffers, and datagrams of any length up to `mtu`.
fn variable(mtu: usize) -> Config {
    Config { mtu_base: 512, mtu, packet_buffer: 65_536, ..small(512) }
}

fn changes(pair: &Pair, end: usize) -> Vec<(usize, MtuChange)> {
    let change = |event: &(u64, LinkEvent)| match event.1 {
        LinkEvent::Mtu { size, change } => Some((size, change)),
        _ => None,
    };
    pair.received[end].events.iter().filter_map(change).collect()
}

/// Keeps both directions busy with messages of these lengths.
fn load(pair: &mut Pair, for_ns: u64, lens: std::ops::Range<u64>) -> u64 {
    let (mut random, mut sent) = (Random::new(7), 0);
    let until_ns = pair.now_ns + for_ns;
    let mut next_ns = 0;
    while pair.now_ns < until_ns {
        if pair.now_ns >= next_ns {
            next_ns = pair.now_ns + 100_000;
            for end in 0..2 {
                let len = lens.start + random.below(lens.end - lens.start);
                if pair.links[end].send_message(1, &vec![1; len as usize]).is_ok() {
                    sent += 1;
                }
                pair.transmit(end);
            }
        }
        if !pair.step() {
            break;
        }
    }
    assert!(pair.run_while(10 * SECOND_NS, |pair| !pair.links.iter().all(|link| link.is_flushed())));
    sent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // The path and the systems' interfaces change at any time; the network is faulty besides.
    #[test]
    fn messages_arrive_while_the_path_changes(
        seed: u64,
        to in faults(),
        back in faults(),
        plan in plan(),
        sizes in prop::collection::vec((0u64..100_000_000, 512usize..10_000, 512usize..10_000, any::<bool>()), 1..12),
    ) {
        let mut sizes = sizes;
        sizes.sort_by_key(|size| std::cmp::Reverse(size.0));
        carry_while(&variable(9_000), seed, [to, back], &plan, |pair| {
            while let Some((_, a, b, is_system)) = sizes.pop_if(|size| size.0 <= pair.now_ns) {
                let sizes = if is_system { &mut pair.system } else { &mut pair.path };
                *sizes = [a, b];
            }
        });
    }
}

#[test]
fn each_direction_finds_what_it_carries() {
    let mut pair = Pair::new(&Config::default(), 1);
    pair.path = [1_372, 8_952];
    pair.run_until(SECOND_NS);
    assert_eq!(pair.links.each_ref().map(|link| link.mtu()), [1_372, 8_952]);
    assert_eq!(changes(&pair, 0), [(1_372, MtuChange::Found)]);
    assert_eq!(changes(&pair, 1), [(8_952, MtuChange::Found)]);
    let probes = pair.links.each_ref().map(|link| link.counters().mtu_probes_sent);
    assert!(probes.iter().all(|probes| *probes <= 24), "{probes:?}");
    let losses = pair.links.each_ref().map(|link| link.counters().datagrams_lost);
    assert_eq!(losses, [0, 0], "lost probes are no losses");
}

#[test]
fn a_path_that_becomes_narrower_stops_nothing() {
    for lens in [1_000..1_001, 10..8_000, 3_000..3_001] {
        for narrow in [1_232, 1_402, 1_452, 4_000] {
            let mut pair = Pair::new(&patient(), 1);
            pair.run_until(SECOND_NS);
            assert_eq!(pair.links[0].mtu(), 8_972);
            pair.path = [narrow; 2];
            let sent = load(&mut pair, SECOND_NS, lens.clone());
            let arrived: usize = pair.received.iter().map(|received| received.messages_count).sum();
            assert_eq!(arrived as u64, sent);
            pair.run_until(pair.now_ns + SECOND_NS);
            for end in 0..2 {
                let size = pair.links[end].mtu();
                assert!(size <= narrow || lens.end < narrow as u64, "{size} over {narrow}");
            }
        }
    }
}

#[test]
fn what_the_system_refuses_is_sent_in_smaller_datagrams_at_once() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(SECOND_NS);
    pair.links[0].send_message(1, &[1; 100_000]).unwrap();
    pair.system[0] = 1_452;
    let start_ns = pair.now_ns;
    pair.transmit(0);
    assert!(pair.run_while(SECOND_NS, |pair| pair.received[1].messages_count == 0));
    assert!(pair.now_ns - start_ns < 10 * pair.delay_ns, "no timeout passes");
    let counters = pair.links[0].counters();
    assert_eq!((counters.datagrams_lost, counters.mtu_lowered), (0, 1), "{counters:?}");
    pair.run_until(pair.now_ns + SECOND_NS);
    assert_eq!(changes(&pair, 0), [(8_972, MtuChange::Found), (1_452, MtuChange::Lowered)]);
}

#[test]
fn larger_datagrams_are_tried_again_by_a_timer() {
    let mut pair = Pair::new(&patient(), 1);
    pair.path = [1_232; 2];
    pair.run_until(SECOND_NS);
    assert_eq!(pair.links[0].mtu(), 1_232);
    pair.path = [8_952; 2];
    pair.run_until(MTU_RAISE_NS / 2);
    assert_eq!(pair.links[0].mtu(), 1_232);
    pair.run_until(MTU_RAISE_NS + 2 * SECOND_NS);
    assert_eq!(changes(&pair, 0), [(1_232, MtuChange::Found), (8_952, MtuChange::Raised)]);
}

#[test]
fn an_outage_of_everything_changes_no_size() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(SECOND_NS);
    for end in 0..2 {
        pair.faults[end].partition_ns = (SECOND_NS, 3 * SECOND_NS);
    }
    load(&mut pair, 4 * SECOND_NS, 10..3_000);
    pair.run_until(pair.now_ns + SECOND_NS);
    for end in 0..2 {
        assert_eq!((pair.links[end].mtu(), changes(&pair, end).len()), (8_972, 1));
    }
}

#[test]
fn losses_of_single_datagrams_change_no_size() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(SECOND_NS);
    let faults = Faults { until_ns: u64::MAX, lost_permille: 20, ..Faults::default() };
    pair.faults = [faults.clone(), faults];
    load(&mut pair, SECOND_NS, 1_000..3_000);
    let lowered = pair.links.each_ref().map(|link| link.counters().mtu_lowered);
    assert_eq!(lowered, [0, 0]);
}

#[test]
fn a_path_below_the_least_size_is_reported_once_and_not_tried_in_a_loop() {
    let mut pair = Pair::new(&patient(), 1);
    pair.system[0] = 1_000;
    pair.run_until(10_000_000);
    (0..10).for_each(|_| pair.links[0].send_message(1, &[1; 3_000]).unwrap());
    pair.transmit(0);
    pair.run_until(SECOND_NS);
    let narrow = pair.received[0].events.iter().filter(|(_, event)| *event == LinkEvent::TooNarrow).count();
    let refused = pair.links[0].counters().datagrams_too_large;
    assert!(narrow == 1 && refused < 100, "{narrow} events, {refused} datagrams");
    assert!(pair.received[0].events.iter().all(|(_, event)| !matches!(event, LinkEvent::Dead(_))));
    pair.system[0] = 1_452;
    assert!(pair.run_while(10 * SECOND_NS, |pair| pair.received[1].messages_count < 10), "it heals");
}

#[test]
fn packets_that_no_longer_fit_make_way_for_those_behind_them() {
    let mut pair = Pair::new(&patient(), 1);
    pair.run_until(SECOND_NS);
    for len in [8_000, 100, 5_000, 200] {
        pair.links[0].send_packet(&vec![1; len]).unwrap();
    }
    pair.system[0] = 1_452;
    pair.transmit(0);
    pair.links[0].send_packet(&[1; 300]).unwrap();
    pair.transmit(0);
    pair.run_until(2 * SECOND_NS);
    let lens: Vec<usize> = pair.received[1].packets.iter().map(Vec::len).collect();
    assert!(lens.ends_with(&[300]), "{lens:?}");
    assert!(pair.links[0].send_packet(&[1; 8_000]).is_err());
}
