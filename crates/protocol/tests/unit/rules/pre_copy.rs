//! States that are copied to their next owner before the flow moves (pre-copy).

use protocol::unit::Config;

use super::*;

fn copy(epoch: Epoch, to: UnitId) -> FromDispatcher {
    FromDispatcher::Replicate { flow: FLOW, epoch, to }
}

#[test]
fn the_owner_sends_the_replica_and_then_only_what_has_changed() {
    let mut b = Bench::new(config());
    b.first([1, 2, 3, 4]);
    b.dispatcher(copy(1, X));
    assert_eq!(b.sent(), [(X, asked_replica(1, &[1, 2, 3, 4], 4))]);
    b.packet(1, Handover::None, 5);
    b.dispatcher(release(2, X, 5));
    b.peer(X, pull_since((1, 4), 2, X, 5, false));
    assert_eq!(b.sent(), [(X, state_since((1, 4), 2, 5))]);
    // What follows a lost message does not depend on the replica.
    b.peer(X, pull_since((1, 4), 2, X, 5, true));
    assert_eq!(b.sent(), [(X, state(2, &[1, 2, 3, 4, 5], 5))]);
    b.peer(X, taken(2));
    assert_eq!(b.unit.owned(FLOW), None);
}

#[test]
fn a_replica_of_another_version_is_of_no_use() {
    let mut b = Bench::new(config());
    b.first([1, 2, 3, 4]);
    b.dispatcher(copy(1, X));
    b.packet(1, Handover::None, 5);
    b.sent();
    b.dispatcher(release(2, X, 5));
    b.peer(X, pull_since((1, 3), 2, X, 5, false));
    assert_eq!(b.sent(), [(X, state(2, &[1, 2, 3, 4, 5], 5))]);
}

#[test]
fn changes_are_sent_to_the_unit_with_this_very_replica_only() {
    let mut b = Bench::new(config());
    b.first([1, 2, 3, 4]);
    b.dispatcher(copy(1, X));
    b.packet(1, Handover::None, 5);
    b.sent();
    // Another unit sent its replica: in between, the state may have changed without a packet.
    b.dispatcher(release(2, Y, 5));
    b.peer(Y, pull_since((1, 4), 2, Y, 5, false));
    assert_eq!(b.sent(), [(Y, state(2, &[1, 2, 3, 4, 5], 5))]);
}

#[test]
fn a_version_that_was_sent_before_is_no_base() {
    for is_ahead in [false, true] {
        let mut b = Bench::new(config());
        if is_ahead {
            b.targets = ReplicaTargets::of_distinct([X].into_iter());
        }
        b.first([1, 2, 3, 4]);
        match is_ahead {
            true => b.wait(SILENCE_NS),
            false => b.dispatcher(copy(1, X)),
        }
        b.dispatcher(copy(1, X));
        assert_eq!(b.sent().len(), 2);
        b.packet(1, Handover::None, 5);
        b.dispatcher(release(2, X, 5));
        b.peer(X, pull_since((1, 4), 2, X, 5, false));
        assert_eq!(b.sent(), [(X, state(2, &[1, 2, 3, 4, 5], 5))]);
    }
}

#[test]
fn the_next_owner_says_which_replica_it_has_and_applies_the_changes() {
    let mut b = Bench::new(config());
    b.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    assert_eq!(b.said(), [FromUnit::Replicated { flow: FLOW, epoch: 1 }]);
    b.packet(2, from(X, 5), 6);
    assert_eq!(b.sent(), [(X, pull_since((1, 4), 2, ME, 5, false))]);
    b.peer(X, state_since((1, 4), 2, 5));
    assert_eq!(b.sent(), [(X, taken(2))]);
    assert_eq!((b.state(), b.unit.replica_bytes()), (&[1, 2, 3, 4, 5, 6][..], 0));
    // It came twice.
    b.peer(X, state_since((1, 4), 2, 5));
    assert_eq!((b.sent(), b.unit.counters().messages_stale), (vec![(X, taken(2))], 1));
}

#[test]
fn a_flow_that_was_silent_since_the_copy_moves_without_waiting() {
    let mut b = Bench::new(config());
    b.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    b.packet(2, from(X, 4), 5);
    assert_eq!((b.sent(), b.state()), (vec![(X, taken(2))], &[1, 2, 3, 4, 5][..]));
}

#[test]
fn changes_to_a_replica_that_is_gone_are_asked_for_as_a_whole() {
    let mut probe = Bench::new(config());
    probe.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    let mut b = Bench::new(Config { replica_bytes_max: probe.unit.replica_bytes(), ..config() });
    b.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    b.packet(2, from(X, 5), 6);
    b.sent();
    // Another flow's replica takes its place.
    let (flow, record) = (FlowId { index: 4, generation: 1 }, record(&[1, 2, 3, 4], 4));
    b.peer(X, FromPeer::Replicate { flow, epoch: 1, record, is_reported: false });
    b.peer(X, state_since((1, 4), 2, 5));
    assert_eq!(b.sent(), [(X, pull_again(2, ME, 5))]);
    assert_eq!(b.unit.counters().deltas_without_base, 1);
    b.peer(X, state(2, &[1, 2, 3, 4, 5], 5));
    assert_eq!(b.state(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn changes_to_an_older_replica_are_asked_for_as_a_whole() {
    let mut b = Bench::new(config());
    b.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    b.packet(2, from(X, 6), 7);
    b.peer(X, replica(1, &[1, 2, 3, 4, 5], 5));
    b.sent();
    b.peer(X, state_since((1, 4), 2, 6));
    assert_eq!(b.sent(), [(X, pull_since((1, 5), 2, ME, 6, true))]);
    assert!(b.state().is_empty());
}

#[test]
fn a_refused_state_goes_back_whole() {
    let mut b = Bench::new(config());
    b.unit.engine_mut().refuses = true;
    b.peer(X, asked_replica(1, &[1, 2, 3, 4], 4));
    b.packet(2, from(X, 5), 6);
    b.sent();
    b.peer(X, state_since((1, 4), 2, 5));
    let whole = record(&[1, 2, 3, 4, 5], 5);
    assert_eq!(b.sent(), [(X, refuse(2, RefuseReason::NoRoom, whole))]);
    // A repeated message must not be taken for an accepted one.
    b.peer(X, state_since((1, 4), 2, 5));
    assert_eq!(b.sent(), []);
}

#[test]
fn only_the_owner_copies() {
    let mut b = Bench::new(config());
    b.dispatcher(copy(1, X));
    b.first([1]);
    b.dispatcher(copy(2, X));
    b.dispatcher(copy(1, ME));
    assert_eq!((b.sent(), b.unit.counters().messages_stale), (vec![], 3));
}
