//! States on the way from owner to owner.

use protocol::message::{FlowRecord, Handover, RefuseReason, Watermark};
use protocol::unit::{Config, DropCause, OFFER_AFTER_TIMEOUTS};

use super::*;

#[test]
fn a_new_owner_pulls_holds_and_goes_on() {
    // S49, S50, S60
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.packet(2, from(X, 2), 4);
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))], "once");
    assert_eq!((b.unit.pending(), b.unit.flows()), (2, 1));
    b.now_ns += 50;
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.state(), [1, 2, 3, 4]);
    assert_eq!(b.sent(), [(X, taken(2))]);
    assert_eq!((b.unit.pending(), b.unit.counters().pending_ns), (0, 100));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2))], "retransmitted: it may have been lost");
    assert_eq!(b.state(), [1, 2, 3, 4], "but not taken again");
}

#[test]
fn a_pull_is_answered_once_everything_has_been_processed() {
    // design.md 3.3
    let mut b = Bench::new(config());
    b.first([1]);
    b.peer(X, pull(2, X, 2));
    b.wait(100 * ORDER_NS);
    assert!(b.sent().is_empty(), "2 may be on its way");
    b.first([2]);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.peer(X, pull(2, X, 2));
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))], "repeatable until it is taken");
    assert!(b.unit.engine().forgotten.is_empty());
    b.peer(X, taken(2));
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, false)][..], 0));
    b.peer(X, pull(2, X, 2));
    b.dispatcher(release(2, X, 2));
    b.peer(X, taken(2));
    assert_eq!((b.sent(), b.unit.flows()), (vec![(X, no_state(2))], 0));
    assert_eq!(b.unit.counters().messages_stale, 3);
}

#[test]
fn what_is_missing_behind_a_release_is_lost() {
    // design.md 3.3
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, pull(2, X, 4));
    b.dispatcher(release(2, X, 4));
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 3], 4))]);
    assert_eq!(b.unit.counters().given_up, 2);
    b.first([4]);
    assert_eq!(b.dropped(), [(DropCause::Stale, 4)]);
}

#[test]
fn a_pull_without_any_packet_is_answered_after_the_release_only() {
    let mut b = Bench::new(config());
    b.peer(X, pull(2, X, 2));
    b.wait(100 * ORDER_NS);
    assert!(b.sent().is_empty());
    b.dispatcher(release(2, X, 2));
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[], 2))]);
}

#[test]
fn a_state_that_nobody_asks_for_is_offered_and_taken() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, X, 2));
    b.wait(OFFER_AFTER_TIMEOUTS * ORDER_NS - 1);
    assert!(b.out.is_empty());
    b.wait(1);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.wait(100 * ORDER_NS);
    assert!(b.out.is_empty(), "once");
    // The other side does not know the flow.
    let mut x = Bench::new(config());
    x.peer(Y, pull(3, Y, 4));
    x.peer(X, state(2, &[1, 2], 2));
    assert_eq!(x.sent(), [(X, taken(2))]);
    x.dispatcher(release_from(from(X, 2), 3, Y, 4));
    x.wait(ORDER_NS);
    assert_eq!(x.sent(), [(Y, state(3, &[1, 2], 4))]);
}

#[test]
fn a_release_names_the_holder_of_a_state_whose_packets_are_all_lost() {
    // X(1) -> here(2) -> Y(3)
    let mut b = Bench::new(config());
    b.dispatcher(release_from(from(X, 2), 3, Y, 4));
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))]);
    b.peer(Y, pull(3, Y, 4));
    b.peer(X, state(2, &[1, 2], 2));
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, taken(2)), (Y, state(3, &[1, 2], 4))]);
    // X has crashed: Y is notified.
    let mut lost = Bench::new(config());
    lost.dispatcher(release_from(from(X, 2), 3, Y, 4));
    lost.peer(X, no_state(2));
    lost.sent();
    lost.peer(Y, pull(3, Y, 4));
    assert_eq!((lost.sent(), lost.unit.flows()), (vec![(Y, no_state(3))], 0));
}

#[test]
fn what_comes_late_is_sent_on_to_the_owner() {
    // design.md 3.3
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, X, 2));
    b.peer(X, taken(2));
    b.first([2]);
    let (unit, stamp, packet) = b.out.forwarded.remove(0);
    assert_eq!((unit, stamp.epoch, stamp.handover, stamp.seq, packet), (X, 2, from(ME, 2), 2, 2));
    // It comes back before this unit knows that it is the owner again: a new epoch, and no loop.
    b.packet(3, from(X, 2), 2);
    assert_eq!(b.sent(), [(X, pull(3, ME, 2))]);
    b.first([1]);
    assert_eq!(b.dropped(), [(DropCause::Stale, 2), (DropCause::Stale, 1)]);
}

#[test]
fn who_has_the_state_ends_the_wait_for_what_is_missing() {
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, taken(2));
    assert_eq!(b.out.forwarded.len(), 1);
    assert_eq!((b.unit.pending(), b.unit.flows(), b.unit.engine().forgotten.len()), (0, 0, 1));
}

#[test]
fn a_flow_may_go_on_before_it_has_come() {
    // X(1) -> here(2) -> Y(3), while X's state is in flight.
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.dispatcher(release_from(from(X, 2), 3, Y, 3));
    b.peer(Y, pull(3, Y, 3));
    b.wait(100 * ORDER_NS);
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2)), (Y, state(3, &[1, 2, 3], 3))]);
}

#[test]
fn a_flow_may_come_back_before_it_has_gone() {
    // here(1) -> X(2) -> here(3)
    let mut b = Bench::new(config());
    b.first([1]);
    b.dispatcher(release(2, X, 2));
    b.packet(3, from(X, 3), 4);
    assert_eq!((b.sent(), b.unit.pending()), (vec![(X, pull(3, ME, 3))], 1));
    b.first([2]);
    assert_eq!(b.state(), [1, 2], "the first epoch's go on");
    b.peer(X, pull(2, X, 2));
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.peer(X, state(3, &[1, 2, 3], 3));
    assert_eq!(b.state(), [1, 2, 3, 4]);
    b.peer(X, taken(2));
    assert_eq!(b.state(), [1, 2, 3, 4], "what is said of the second is past");
}

#[test]
fn an_owner_may_be_its_own_successor() {
    let mut b = Bench::new(config());
    b.first([1]);
    b.packet(2, from(ME, 2), 3);
    assert_eq!((b.state(), b.unit.pending()), (&[1][..], 1));
    b.first([2]);
    assert_eq!((b.state(), b.unit.owned(FLOW)), (&[1, 2, 3][..], Some((2, Watermark::up_to(3)))));
    b.packet(3, from(ME, 4), 5);
    b.wait(ORDER_NS);
    assert_eq!((b.state(), b.unit.owned(FLOW)), (&[1, 2, 3, 5][..], Some((3, Watermark::up_to(5)))));
    assert!(b.out.is_empty());
}

#[test]
fn a_flow_may_begin_anew() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.packet(2, Handover::None, 3);
    assert_eq!((b.state(), b.unit.owned(FLOW)), (&[3][..], Some((2, Watermark::up_to(3)))));
    assert_eq!(b.unit.engine().forgotten, [(FLOW, false)]);
}

#[test]
fn a_flow_is_adopted_without_a_packet() {
    let mut b = Bench::new(config());
    b.dispatcher(FromDispatcher::Adopt { flow: FLOW, epoch: 2, previous: X, last: 2 });
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.state(), [1, 2, 3]);
}

#[test]
fn what_is_not_answered_is_said_again_and_again_less_often() {
    let again = pull_again(2, ME, 2);
    let mut b = Bench::new(Config { retransmit_ns: 1_000, ..config() });
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))]);
    for wait_ns in [1_000, 2_000, 4_000] {
        b.wait(wait_ns - 1);
        assert_eq!(b.sent(), []);
        b.wait(1);
        assert_eq!(b.sent(), [(X, again.clone())]);
    }
    b.peer(X, state(2, &[1, 2], 2));
    b.dispatcher(release_from(from(X, 2), 3, Y, 3));
    b.peer(Y, pull(3, Y, 3));
    assert_eq!(b.sent(), [(X, taken(2)), (Y, state(3, &[1, 2, 3], 3))]);
    b.unit.engine_mut().states.clear(); // An engine may release a state once it is sent.
    for wait_ns in [1_000, 2_000] {
        b.wait(wait_ns);
        assert_eq!(b.sent(), [(Y, state(3, &[1, 2, 3], 3))]);
    }
    b.peer(Y, taken(3));
    assert_eq!(b.unit.next_timeout_ns(), u64::MAX);
    assert_eq!((b.unit.counters().pulls_retransmitted, b.unit.counters().states_retransmitted), (3, 2));
}

#[test]
fn who_asks_again_has_the_flow() {
    // design.md 3.3: the release was lost, and packet 2.
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, pull(2, X, 4));
    b.wait(10 * ORDER_NS);
    assert_eq!(b.state(), [1, 3]);
    assert_eq!(b.sent(), [], "4 may still come");
    b.peer(X, pull_again(2, X, 4));
    assert_eq!(b.sent(), []);
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 3], 4))]);
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken() {
    let mut b = Bench::new(config());
    let broken = FlowRecord { watermark: Watermark::up_to(2), bytes: vec![1] };
    b.peer(X, FromPeer::Replicate { flow: FLOW, epoch: 1, record: broken.clone(), is_reported: false });
    b.packet(2, from(X, 2), 3);
    assert_eq!((b.sent(), b.unit.counters().replicas_refused), (vec![(X, pull(2, ME, 2))], 1));
    b.peer(X, FromPeer::State { flow: FLOW, epoch: 2, record: broken.clone() });
    assert_eq!(b.sent(), [(X, refuse(2, RefuseReason::Unreadable, broken))]);
    assert_eq!((b.unit.pending(), b.unit.counters().states_refused, b.out.forwarded.len()), (0, 1, 1));
    assert_eq!(b.unit.owned(FLOW), None);
}
