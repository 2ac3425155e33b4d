//! Replicas of states: whole, or as deltas.

use protocol::message::{FlowRecord, ReplicaTargets, Watermark};
use protocol::unit::Config;

use super::*;

#[test]
fn a_copy_up_to_the_very_packet_makes_a_handover_seamless() {
    // S49, S59, S60
    let mut b = Bench::new(config());
    b.peer(X, replica(1, &[1], 1));
    b.peer(X, replica(1, &[1, 2], 2));
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.state(), [1, 2, 3]);
    assert_eq!(b.sent(), [(X, taken(2))]);
    assert_eq!((b.unit.counters().seamless, b.unit.counters().pulls_sent, b.unit.replica_bytes()), (1, 0, 0));
}

#[test]
fn a_stale_copy_is_not_used() {
    // S60
    let mut b = Bench::new(config());
    b.peer(X, replica(1, &[1], 1));
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.sent(), [(X, pull_since((1, 1), 2, ME, 2, false))]);
    assert_eq!((b.state(), b.unit.pending()), (&[][..], 1));
    // S59: a state that has the packet but misses an earlier one would be no better.
    let watermark = Watermark { contiguous: 0, ahead: 1 };
    b.peer(
        X,
        FromPeer::Replicate {
            flow: FLOW,
            epoch: 1,
            record: FlowRecord { watermark, bytes: bytes(&[2]) },
            is_reported: false,
        },
    );
    assert_eq!(b.unit.pending(), 1);
}

#[test]
fn a_lost_acknowledgement_of_a_copy_is_asked_for() {
    // Nothing is given up here, so no other timer runs.
    let lossy = Config { reorder_timeout_ns: u64::MAX, retransmit_ns: 1_000, ..config() };
    let mut b = Bench::new(lossy);
    b.first([1, 2]);
    b.dispatcher(release(2, X, 2));
    b.wait(999);
    assert!(b.out.is_empty());
    b.wait(1);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    let mut x = Bench::new(lossy);
    x.peer(Y, replica(1, &[1, 2], 2));
    x.packet(2, from(Y, 2), 3);
    assert_eq!(x.sent(), [(Y, taken(2))]);
    x.peer(Y, state(2, &[1, 2], 2));
    assert_eq!(x.sent(), [(Y, taken(2))]);
    assert_eq!(x.state(), [1, 2, 3]);
    // It can ask for the state of a later epoch only now.
    b.packet(3, from(X, 3), 4);
    assert_eq!(b.sent(), [(X, pull(3, ME, 3))]);
    b.peer(X, taken(2));
    b.wait(1_000);
    assert_eq!(
        b.sent(),
        [(X, FromPeer::Pull { flow: FLOW, epoch: 3, owner: ME, last: 3, again: true, has: None })]
    );
}

#[test]
fn a_copy_in_flight_is_waited_for_and_used() {
    // S53
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.sent();
    b.peer(X, replica(1, &[1, 2], 2));
    assert_eq!(b.state(), [1, 2, 3]);
    assert_eq!(b.sent(), [(X, taken(2))]);
    b.packet(2, from(X, 2), 4);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.state(), [1, 2, 3, 4], "the state that was asked for comes too late to harm");
    assert_eq!(b.unit.counters().overtaken_by_replica, 1);
}

#[test]
fn an_owner_copies_ahead_after_silence_and_goes_on_undisturbed() {
    // S51, S52, S54
    let mut b = Bench::new(config());
    for unit in [ME, X, Y] {
        b.targets.add(unit);
    }
    b.first([1, 2]);
    b.wait(SILENCE_NS - 1);
    assert!(b.out.is_empty());
    b.wait(1);
    assert_eq!(b.sent(), [(X, replica(1, &[1, 2], 2)), (Y, replica(1, &[1, 2], 2))]);
    b.wait(10 * SILENCE_NS);
    assert!(b.out.is_empty(), "nothing has come since");
    b.first([3]);
    b.targets = ReplicaTargets::ALL;
    b.first([4]);
    b.wait(SILENCE_NS);
    assert_eq!(b.out.to_all, [replica(1, &[1, 2, 3, 4], 4)]);
    assert_eq!((b.unit.counters().replicas_sent, b.unit.counters().replica_bytes_sent), (3, 64));
}

#[test]
fn an_owner_copies_at_once_before_a_cut_by_size() {
    // S62
    let mut b = Bench::new(config());
    b.targets.add(X);
    b.first([1]);
    b.targets = b.targets.at_once();
    b.first([2, 4]);
    assert_eq!(b.sent(), [(X, replica(1, &[1, 2], 2))], "what waits has changed nothing yet");
    b.first([3]);
    let newer = [(X, replica(1, &[1, 2, 3], 3)), (X, replica(1, &[1, 2, 3, 4], 4))];
    assert_eq!(b.sent(), newer);
    b.wait(10 * SILENCE_NS);
    assert!(b.out.is_empty(), "nothing has come since");
}

fn with_deltas() -> Config {
    Config { deltas: true, ..config() }
}

#[test]
fn who_has_a_copy_is_told_only_what_has_changed() {
    let mut b = Bench::new(with_deltas());
    b.targets.add(X);
    b.first([1]);
    b.wait(SILENCE_NS);
    assert_eq!(b.sent(), [(X, changes(1, None, 1))]);
    b.first(2..=4);
    b.wait(SILENCE_NS);
    assert_eq!(b.sent(), [(X, changes(1, Some((1, 1)), 4))]);
    b.targets.add(Y);
    b.first(5..=6);
    b.wait(SILENCE_NS);
    let sent = [changes(1, Some((1, 4)), 6), changes(1, None, 6)];
    let lens = sent.each_ref().map(|message| message.state_bytes().unwrap());
    assert!(lens[0] < lens[1] && lens[1] < 6 * 8);
    assert_eq!(b.sent(), [(X, sent[0].clone()), (Y, sent[1].clone())]);
    b.targets = ReplicaTargets::ALL;
    b.first([7]);
    b.wait(SILENCE_NS);
    b.first([8]);
    b.wait(SILENCE_NS);
    assert_eq!(b.out.to_all, [changes(1, None, 7), changes(1, Some((1, 7)), 8)]);
    let counters = b.unit.counters();
    assert_eq!((counters.replicas_sent, counters.deltas_sent), (6, 6));
    assert!(b.unit.replica_bytes() > 8 * 8, "what others have is kept here");
}

#[test]
fn what_has_changed_makes_a_copy_of_the_very_one_that_it_rests_on() {
    let mut b = Bench::new(with_deltas());
    b.peer(X, replica_up_to(1, 2));
    b.peer(X, changes(1, Some((1, 2)), 4));
    b.peer(X, changes(1, Some((1, 4)), 5));
    b.packet(2, from(X, 5), 6);
    assert_eq!((b.state(), b.unit.counters().seamless), (&[1, 2, 3, 4, 5, 6][..], 1));
    assert_eq!((b.unit.counters().deltas_without_base, b.unit.counters().replicas_refused), (0, 0));
}

#[test]
fn who_has_no_such_copy_asks_for_the_whole() {
    let mut b = Bench::new(with_deltas());
    b.peer(X, replica_up_to(1, 2));
    b.peer(X, changes(1, Some((1, 3)), 5));
    assert_eq!(b.sent(), [(X, lacking(1, 5))], "an older one is here");
    b.peer(X, replica_up_to(1, 4));
    b.peer(X, changes(1, Some((1, 3)), 5));
    assert_eq!(b.sent(), [(X, lacking(1, 5))], "a later one is here");
    b.peer(X, replica_up_to(1, 5));
    b.peer(X, changes(1, Some((1, 2)), 3));
    assert!(b.out.is_empty(), "older than what is here");
    assert_eq!((b.unit.counters().deltas_without_base, b.unit.counters().replicas_refused), (2, 1));
    b.peer(X, changes(1, None, 6));
    b.packet(2, from(X, 6), 7);
    assert_eq!(b.state().len(), 7, "how a flow begins is known everywhere");

    let mut b = Bench::new(with_deltas());
    b.targets.add(X);
    b.first(1..=3);
    b.wait(SILENCE_NS);
    b.first([4]);
    b.wait(SILENCE_NS);
    b.sent();
    b.peer(X, lacking(1, 3));
    assert!(b.out.is_empty(), "there is a later one");
    b.peer(X, lacking(1, 4));
    assert_eq!(b.sent(), [(X, replica_up_to(1, 4))]);
    b.first([5]);
    b.wait(SILENCE_NS);
    assert_eq!(b.sent(), [(X, changes(1, Some((1, 4)), 5))]);
    b.dispatcher(release(2, Y, 5));
    b.peer(Y, taken(2));
    b.peer(X, lacking(1, 5));
    assert!(b.out.is_empty(), "it is not the owner's any more");
    assert_eq!(b.unit.counters().messages_stale, 2);
}

#[test]
fn what_has_changed_is_waited_for_and_used() {
    // S53
    let mut b = Bench::new(with_deltas());
    b.peer(X, replica_up_to(1, 3));
    b.packet(2, from(X, 4), 5);
    assert_eq!(b.sent(), [(X, pull_since((1, 3), 2, ME, 4, false))]);
    b.peer(X, changes(1, Some((1, 3)), 4));
    assert_eq!((b.state(), b.unit.counters().overtaken_by_replica), (&[1, 2, 3, 4, 5][..], 1));
}

#[test]
fn who_took_a_copy_over_knows_that_the_owner_before_has_it() {
    let mut b = Bench::new(with_deltas());
    b.targets.add(X);
    b.targets.add(Y);
    b.peer(X, replica_up_to(1, 3));
    b.packet(2, from(X, 3), 4);
    b.wait(SILENCE_NS);
    assert_eq!(b.sent(), [(X, taken(2)), (X, changes(2, Some((1, 3)), 4)), (Y, changes(2, None, 4))]);
    // When the flow comes back, it continues with the state that was sent there last.
    b.dispatcher(release_from(from(X, 3), 3, X, 4));
    b.peer(X, taken(3));
    b.peer(X, changes(3, Some((2, 4)), 5));
    b.packet(4, from(X, 5), 6);
    assert_eq!((b.state().len(), b.unit.counters().seamless), (6, 2));
    b.wait(SILENCE_NS);
    let sent = [(X, taken(4)), (X, changes(4, Some((3, 5)), 6)), (Y, changes(4, None, 6))];
    assert_eq!(b.sent(), sent, "who had what in an earlier epoch says nothing about now");
}

#[test]
fn without_memory_for_copies_they_are_told_since_the_flow_began() {
    let mut b = Bench::new(Config { replica_bytes_max: 0, ..with_deltas() });
    b.targets.add(X);
    for seq in 3..6 {
        b.first(1..=seq);
        b.wait(SILENCE_NS);
        assert_eq!(b.sent(), [(X, changes(1, None, seq))]);
    }
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_evicted), (0, 0));
}

#[test]
fn changes_that_make_no_state_are_refused() {
    let mut b = Bench::new(Config { replica_bytes_max: 150, ..with_deltas() });
    b.peer(X, changes(1, None, 20));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 1), "too many bytes");
    b.dispatcher(END);
    b.peer(X, changes(1, None, 4));
    b.peer(X, lacking(1, 4));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().messages_stale), (0, 2), "the flow has ended");
}

#[test]
fn copies_never_replace_what_is_owned_or_given_away() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.peer(X, replica(1, &[9], 9));
    assert_eq!((b.state(), b.unit.counters().replicas_refused), (&[1, 2][..], 1));
    b.dispatcher(release(2, X, 2));
    b.peer(X, taken(2));
    b.peer(Y, replica(1, &[1], 1));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 2));
}

#[test]
fn of_a_flow_whose_index_another_has_no_copies_are_kept_or_sent() {
    for deltas in [false, true] {
        let mut b = Bench::new(Config { deltas, ..config() });
        b.targets.add(Y);
        b.first([1]);
        b.wait(SILENCE_NS);
        assert_eq!((b.sent().len(), b.unit.replica_bytes() > 0), (1, deltas));
        b.peer(Y, FromPeer::Pull { flow: NEXT, epoch: 2, owner: Y, last: 9, again: false, has: None });
        b.first([2]);
        b.wait(10 * SILENCE_NS);
        assert_eq!(b.sent(), []);
        b.dispatcher(release(2, X, 2));
        b.peer(X, taken(2));
        b.peer(X, replica(2, &[1, 2, 3], 3));
        assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 1));
    }
}
