//! States that are lost with their owner, and recovered from replicas.

use super::*;

fn recover(epoch: Epoch, last: u64, holders: &[UnitId]) -> FromDispatcher {
    FromDispatcher::Recover { flow: FLOW, epoch, last, holders: holders.to_vec(), targets: vec![] }
}

fn seek(epoch: Epoch, has: Option<(Epoch, u64)>) -> FromPeer {
    let has = has.map(|(epoch, seq)| Version { epoch, seq });
    FromPeer::Seek { flow: FLOW, epoch, has }
}

fn found(epoch: Epoch, replica: Option<(Epoch, &[u64], u64)>) -> FromPeer {
    let replica = replica
        .map(|(epoch, seqs, contiguous)| (Version { epoch, seq: contiguous }, record(seqs, contiguous)));
    FromPeer::found(FLOW, epoch, replica)
}

fn recovered(epoch: Epoch, lacks: Option<u64>) -> FromUnit {
    FromUnit::Recovered { flow: FLOW, epoch, lacks }
}

#[test]
fn the_newest_replica_continues_the_flow() {
    let mut b = Bench::new(config());
    b.peer(X, replica(1, &[1, 2], 2));
    b.dispatcher(recover(2, 5, &[ME, X, Y]));
    assert_eq!(b.sent(), [(X, seek(2, Some((1, 2)))), (Y, seek(2, Some((1, 2))))]);
    b.packet(2, from(Z, 5), 6);
    assert_eq!((b.unit.pending(), b.unit.owned(FLOW)), (1, None));
    b.peer(Y, found(2, Some((1, &[1, 2, 3], 3))));
    b.peer(Y, found(2, None));
    assert_eq!((b.unit.pending(), b.unit.counters().messages_stale), (1, 1), "X has not answered");
    b.peer(X, found(2, None));
    assert_eq!(b.unit.owned(FLOW), Some((2, Watermark::up_to(6))));
    assert_eq!(b.state(), [1, 2, 3, 6]);
    assert_eq!(b.sent(), [(X, taken(2)), (Y, taken(2))]);
    assert_eq!(b.out.to_dispatcher, [recovered(2, Some(2))]);
    assert_eq!((b.unit.counters().states_recovered, b.unit.counters().packets_unrecovered), (1, 2));
}

#[test]
fn a_replica_here_is_enough_if_no_other_unit_may_have_one() {
    let mut b = Bench::new(config());
    b.peer(X, replica(1, &[1, 2], 2));
    b.dispatcher(recover(2, 2, &[ME]));
    assert_eq!(b.sent(), []);
    assert_eq!(b.state(), [1, 2]);
    assert_eq!(b.out.to_dispatcher, [recovered(2, Some(0))]);
    b.dispatcher(recover(2, 2, &[ME]));
    assert_eq!((b.out.to_dispatcher.len(), b.unit.counters().messages_stale), (1, 1));
}

#[test]
fn without_a_replica_the_flow_is_lost() {
    let mut b = Bench::new(config());
    b.dispatcher(recover(2, 2, &[X]));
    b.packet(2, from(Z, 2), 3);
    b.peer(X, found(2, None));
    assert_eq!(b.out.to_dispatcher, [recovered(2, None)]);
    b.packet(2, from(Z, 2), 4);
    assert_eq!(b.out.to_dispatcher, [recovered(2, None), FromUnit::Lost { flow: FLOW, epoch: 2 }]);
    b.dispatcher(recover(2, 2, &[]));
    assert_eq!(b.out.to_dispatcher[2..], [recovered(2, None)], "it is reported again");
    b.dispatcher(END);
    assert_eq!((b.dropped().len(), b.unit.pending(), b.unit.flows()), (2, 0, 0));
    assert_eq!(b.unit.next_timeout_ns(), u64::MAX);
}

#[test]
fn what_is_not_answered_is_sought_again() {
    let mut b = Bench::new(Config { retransmit_ns: 500, ..config() });
    b.dispatcher(recover(2, 2, &[X, Y]));
    b.sent();
    b.peer(X, found(2, Some((1, &[1], 1))));
    b.wait(500);
    assert_eq!(b.sent(), [(Y, seek(2, None))]);
    b.peer(Y, found(2, None));
    assert_eq!(b.state(), [1]);
    assert_eq!(b.unit.next_timeout_ns(), u64::MAX);
}

#[test]
fn a_pull_that_is_lost_waits_for_the_dispatcher() {
    let mut b = Bench::new(config());
    b.peer(Y, replica(1, &[1], 1));
    b.packet(2, from(X, 2), 3);
    b.sent();
    b.peer(X, no_state(2));
    assert_eq!(b.out.to_dispatcher, [FromUnit::Lost { flow: FLOW, epoch: 2 }]);
    b.packet(2, from(X, 2), 4);
    assert_eq!((b.out.to_dispatcher.len(), b.unit.pending()), (2, 2), "the report may be lost");
    b.out.to_dispatcher.clear();
    b.dispatcher(recover(2, 2, &[ME]));
    assert_eq!(b.state(), [1, 3, 4]);
    assert_eq!((b.out.to_dispatcher.as_slice(), b.unit.pending()), (&[recovered(2, Some(1))][..], 0));
}

#[test]
fn a_lost_state_that_has_a_next_owner_is_given_up() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.peer(X, no_state(2));
    b.sent();
    b.dispatcher(release_from(from(X, 2), 3, Y, 3));
    b.peer(Y, pull(3, Y, 3));
    assert_eq!(b.sent(), [(Y, no_state(3))]);
    assert_eq!((b.unit.pending(), b.unit.flows()), (0, 0));
}

#[test]
fn the_owner_before_the_lost_one_may_still_have_the_state() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, X, 2));
    b.peer(Y, seek(3, None));
    assert_eq!(b.sent(), [(Y, found(3, Some((1, &[1, 2], 2))))]);
    b.peer(Y, seek(3, Some((2, 3))));
    assert_eq!(b.sent(), [(Y, found(3, None))]);
    // It gets the flow itself.
    b.dispatcher(recover(3, 4, &[ME]));
    assert_eq!((b.unit.owned(FLOW), b.state()), (Some((3, Watermark::up_to(4))), &[1, 2][..]));
}

#[test]
fn a_state_that_comes_after_its_loss_is_not_taken() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.peer(X, no_state(2));
    b.dispatcher(release_from(from(X, 2), 3, Y, 3));
    b.peer(Y, pull(3, Y, 3));
    b.sent();
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2))]);
    assert_eq!((b.unit.owned(FLOW), b.unit.flows()), (None, 0));
}

#[test]
fn a_flow_ends_with_the_state_before_a_lost_one() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.packet(4, from(X, 4), 5);
    b.peer(X, state(2, &[1, 2], 2));
    b.dispatcher(END);
    assert_eq!(b.unit.flows(), 1, "the state of epoch 4 may come");
    b.peer(X, no_state(4));
    assert_eq!((b.unit.flows(), b.unit.pending()), (0, 0));
}

#[test]
fn a_state_before_a_recovered_one_is_given_up_in_a_group_too() {
    let mut b = Bench::new(Config { has_groups: true, ..config() });
    b.first([1, 2]);
    b.dispatcher(release(2, X, 2));
    b.peer(Y, seek(3, None));
    b.peer(Y, taken(3));
    assert_eq!((b.unit.owned(FLOW), b.unit.flows()), (None, 0));
}

#[test]
fn a_recovered_state_is_replicated_at_once() {
    let mut b = Bench::new(config());
    b.peer(X, replica(1, &[1, 2], 2));
    let targets = vec![X, Y];
    b.dispatcher(FromDispatcher::Recover { flow: FLOW, epoch: 2, last: 2, holders: vec![ME], targets });
    assert_eq!(b.sent(), [(X, replica(2, &[1, 2], 2)), (Y, replica(2, &[1, 2], 2))]);
}
