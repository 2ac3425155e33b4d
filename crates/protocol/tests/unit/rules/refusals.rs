//! States that the next owner cannot take.

use protocol::message::{Handover, RefuseReason, Stamp, Watermark};

use super::*;

const REASON: RefuseReason = RefuseReason::NoRoom;

fn refusing() -> Bench {
    let mut bench = Bench::new(config());
    bench.unit.engine_mut().refuses = true;
    bench
}

fn forwarded(b: &mut Bench) -> Vec<(UnitId, Epoch, Handover, u64)> {
    b.out.forwarded.drain(..).map(|(to, stamp, _)| (to, stamp.epoch, stamp.handover, stamp.seq)).collect()
}

#[test]
fn a_refused_state_goes_back_and_packets_follow_it() {
    let mut b = refusing();
    b.packet(2, from(X, 2), 3);
    b.packet(2, from(X, 2), 4);
    assert_eq!(b.sent(), [(X, pull(2, ME, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, refuse(2, REASON, record(&[1, 2], 2)))]);
    let said = FromUnit::Refuse { flow: FLOW, epoch: 2, reason: REASON, holder: X };
    assert!(b.out.to_dispatcher.contains(&said));
    assert_eq!(forwarded(&mut b), [(X, 2, from(X, 2), 3), (X, 2, from(X, 2), 4)]);
    assert_eq!((b.unit.counters().states_refused, b.unit.flows(), b.unit.pending()), (1, 0, 0));
    b.out.to_dispatcher.clear();
    // Later packets go there, too, and the dispatcher is notified again.
    b.packet(2, from(X, 2), 5);
    assert_eq!(forwarded(&mut b), [(X, 2, from(X, 2), 5)]);
    assert_eq!(b.out.to_dispatcher, [said]);
    // The refusal was lost.
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, refuse(2, REASON, record(&[1, 2], 2)))]);
    assert_eq!((b.unit.counters().states_refused, b.dropped()), (1, vec![]));
    assert_eq!(b.unit.next_timeout_ns(), u64::MAX);
}

#[test]
fn the_flow_goes_on_where_its_state_was() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, Y, 2));
    b.peer(Y, pull(2, Y, 2));
    assert_eq!(b.sent(), [(Y, state(2, &[1, 2], 2))]);
    b.packet(2, from(ME, 2), 3);
    assert_eq!(b.state(), [1, 2], "it may be that Y has the state");
    b.peer(Y, refuse(2, REASON, record(&[1, 2], 2)));
    assert_eq!((b.state(), b.unit.owned(FLOW)), (&[1, 2, 3][..], Some((2, Watermark::up_to(3)))));
    b.peer(Y, refuse(2, REASON, record(&[1, 2], 2)));
    assert_eq!((b.unit.counters().states_returned, b.unit.counters().messages_stale), (1, 1));
    b.packet(2, from(ME, 2), 4);
    b.dispatcher(FromDispatcher::Adopt { flow: FLOW, epoch: 3, previous: Y, last: 4 });
    b.packet(3, from(Y, 4), 5);
    assert_eq!(b.sent(), []);
    assert_eq!(b.state(), [1, 2, 3, 4, 5]);
    assert_eq!(b.unit.owned(FLOW), Some((3, Watermark::up_to(5))));
    assert_eq!(b.unit.counters().states_lost, 0);
}

#[test]
fn the_next_epoch_may_be_known_before_the_refusal() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, Y, 2));
    b.peer(Y, pull(2, Y, 2));
    b.sent();
    b.dispatcher(FromDispatcher::Adopt { flow: FLOW, epoch: 3, previous: Y, last: 3 });
    b.packet(3, from(Y, 3), 4);
    assert_eq!(b.sent(), [(Y, pull(3, ME, 3))]);
    b.peer(Y, pull(3, ME, 3));
    b.peer(Y, refuse(2, REASON, record(&[1, 2], 2)));
    assert_eq!(b.state(), [1, 2]);
    b.packet(2, from(ME, 2), 3);
    assert_eq!(b.state(), [1, 2, 3, 4]);
    assert_eq!((b.unit.owned(FLOW), b.sent()), (Some((3, Watermark::up_to(4))), vec![]));
}

#[test]
fn a_third_unit_gets_the_state_from_its_holder() {
    // Y has refused the state of epoch 2, and the dispatcher has named this unit for epoch 3.
    let mut b = Bench::new(config());
    b.packet(3, from(Y, 4), 5);
    assert_eq!(b.sent(), [(Y, pull(3, ME, 4))]);
    b.peer(X, state(3, &[1, 2, 3, 4], 4));
    assert_eq!(b.sent(), [(X, taken(3))]);
    assert_eq!(b.state(), [1, 2, 3, 4, 5]);
    // Same at Y, which gets a pull before and after its refusal.
    let mut y = refusing();
    y.packet(2, from(X, 2), 3);
    y.peer(Y, pull(3, Y, 4));
    y.sent();
    y.peer(X, state(2, &[1, 2], 2));
    assert!(y.sent().contains(&(X, pull(3, Y, 4))));
    y.dispatcher(release_from(from(X, 2), 3, Y, 4));
    y.peer(Y, pull(3, Y, 4));
    assert_eq!((y.sent(), y.unit.flows()), (vec![(X, pull_again(3, Y, 4)), (X, pull(3, Y, 4))], 0));
    // And at X.
    let mut x = Bench::new(config());
    x.first([1, 2]);
    x.dispatcher(release(2, X, 2));
    x.peer(X, pull(2, X, 2));
    x.peer(X, pull(3, Y, 4));
    x.sent();
    x.peer(X, refuse(2, REASON, record(&[1, 2], 2)));
    x.packet(2, from(ME, 2), 3);
    assert_eq!(x.sent(), []);
    x.packet(2, from(ME, 2), 4);
    assert_eq!(x.sent(), [(Y, state(3, &[1, 2, 3, 4], 4))]);
}

#[test]
fn a_flow_that_ends_at_a_unit_that_refuses_its_state_ends_at_the_holder() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.dispatcher(release(2, Y, 2));
    b.dispatcher(END);
    assert_eq!(b.sent(), [(Y, state(2, &[1, 2], 2))]);
    b.peer(Y, refuse(2, REASON, record(&[1, 2], 2)));
    assert_eq!(b.unit.engine().ended, [(FLOW, vec![1, 2])]);
    assert_eq!((b.unit.flows(), b.unit.next_timeout_ns()), (0, u64::MAX));
    let mut over = refusing();
    over.packet(2, from(X, 2), 3);
    over.dispatcher(END);
    over.sent();
    over.peer(X, state(2, &[1, 2], 2));
    assert_eq!(over.sent(), [(X, refuse(2, REASON, record(&[1, 2], 2)))]);
    assert_eq!((over.unit.flows(), over.unit.next_timeout_ns()), (0, u64::MAX));
}

#[test]
fn a_unit_that_refused_a_state_may_own_the_flow_later() {
    let mut b = refusing();
    b.packet(2, from(X, 2), 3);
    b.peer(X, state(2, &[1, 2], 2));
    b.sent();
    b.unit.engine_mut().refuses = false;
    b.packet(4, from(X, 4), 5);
    assert_eq!(b.sent(), [(X, pull(4, ME, 4))]);
    b.peer(X, state(4, &[1, 2, 3, 4], 4));
    assert_eq!((b.state(), b.unit.owned(FLOW)), (&[1, 2, 3, 4, 5][..], Some((4, Watermark::up_to(5)))));
    forwarded(&mut b);
    let late = Stamp { flow: FLOW, seq: 4, epoch: 2, handover: from(X, 2), targets: None };
    b.unit.handle_packet(b.now_ns, late, 4, &mut b.out);
    assert_eq!(forwarded(&mut b), [(X, 2, from(X, 2), 4)]);
}
