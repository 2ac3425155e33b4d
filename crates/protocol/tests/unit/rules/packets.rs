//! The order of processing packets.

use protocol::message::{FlowId, Handover, Stamp, Watermark};
use protocol::unit::{Config, DropCause, Engine, FLOWS_MAX, OWNERSHIPS_MAX};

use super::*;

#[test]
fn a_flow_begins_with_a_null_state_and_goes_on_in_the_order_of_its_clocks() {
    // S48, S49, S58, S61
    let mut b = Bench::new(config());
    b.first([1, 2, 4, 5, 3, 6]);
    assert_eq!(b.state(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(b.unit.owned(FLOW), Some((1, Watermark::up_to(6))));
    assert!(b.out.is_empty());
    assert_eq!((b.unit.counters().pending, b.unit.counters().given_up), (2, 0));
}

#[test]
fn a_packet_that_comes_twice_is_dropped() {
    // design.md 3.10
    let mut b = Bench::new(config());
    b.first([1, 1, 3, 3, 2, 3]);
    assert_eq!(b.state(), [1, 2, 3]);
    assert_eq!(b.dropped(), [(DropCause::Stale, 1), (DropCause::Stale, 3), (DropCause::Stale, 3)]);
}

#[test]
fn what_does_not_come_in_time_is_given_up_and_never_applied() {
    let mut b = Bench::new(config());
    b.first([1, 4]);
    b.wait(ORDER_NS / 2);
    b.first([6]);
    assert_eq!(b.unit.next_timeout_ns(), 1 + ORDER_NS);
    b.wait(ORDER_NS / 2);
    assert_eq!(b.state(), [1, 4], "6 has not waited for as long");
    b.first([2, 5]);
    assert_eq!(b.state(), [1, 4, 5, 6]);
    assert_eq!(b.dropped(), [(DropCause::Stale, 2)]);
    assert_eq!(b.unit.counters().given_up, 2);
    assert_eq!(b.unit.counters().pending_ns, ORDER_NS + ORDER_NS / 2);
}

#[test]
fn without_room_a_gap_is_given_up_at_once() {
    let mut b = Bench::new(Config { pending_per_flow_max: 2, ..config() });
    b.first([1, 3, 5, 7]);
    assert_eq!(b.state(), [1, 3]);
    b.first([9]);
    assert_eq!((b.state(), b.unit.pending()), (&[1, 3, 5][..], 2));
    b.first([8, 6]);
    assert_eq!(b.state(), [1, 3, 5, 7, 8, 9], "6 was given up for 8");
    assert_eq!(b.dropped(), [(DropCause::Stale, 6)]);
    let mut none = Bench::new(Config { pending_max: 0, ..config() });
    none.first([2, 1, 5, 3]);
    assert_eq!(none.state(), [2, 5]);
}

#[test]
fn who_hears_later_of_packets_that_went_on_does_the_same() {
    let quiet = Config { replicate_after_ns: None, expire_after_ns: None, ..config() };
    let (mut each, mut later) = (Bench::new(quiet), Bench::new(quiet));
    each.first(1..=5);
    later.first([1]);
    let second = Stamp { flow: FLOW, seq: 2, epoch: 1, handover: Handover::None, targets: None };
    assert_eq!(later.unit.handle_next_packet(later.now_ns, &second, 2), Ok(u64::MAX), "nothing is ever due");
    (3..=5).for_each(|seq| later.unit.engine_mut().process(later.now_ns, FLOW, seq, seq));
    assert!(!later.unit.catch_up(NEXT, 5), "another flow's state");
    assert!(later.unit.catch_up(FLOW, 5));
    assert_eq!(later.unit.owned(FLOW), Some((1, Watermark::up_to(5))));
    for b in [&mut each, &mut later] {
        b.dispatcher(release(2, Y, 5));
        b.peer(Y, pull(2, Y, 5));
    }
    let sent = later.sent();
    assert_eq!((&each.sent(), later.unit.counters()), (&sent, each.unit.counters()));
    assert_eq!(sent, [(Y, state(2, &[1, 2, 3, 4, 5], 5))]);
    later.peer(Y, taken(2));
    assert!(!later.unit.catch_up(FLOW, 6), "its state is elsewhere");
}

#[test]
fn who_waits_longest_decides_how_long_a_gap_is_waited_for() {
    let mut b = Bench::new(config());
    b.first([5]);
    b.wait(ORDER_NS - 1);
    b.first([3]);
    b.wait(1);
    assert_eq!(b.state(), [3, 5]);
    assert_eq!(b.unit.counters().given_up, 3);
}

#[test]
fn everything_is_bounded_and_counted() {
    let mut b = Bench::new(Config { pending_per_flow_max: 1, ..config() });
    b.packet(2, from(X, 1), 2);
    b.packet(2, from(X, 1), 3);
    assert_eq!(b.dropped(), [(DropCause::PendingFull, 3)], "a state cannot be given up");
    for epoch in (4u32..).step_by(2).take(OWNERSHIPS_MAX) {
        b.packet(epoch, from(X, u64::from(epoch)), u64::from(epoch) + 1);
    }
    assert_eq!(b.unit.counters().dropped(DropCause::Refused), 1);
    let far = FlowId { index: FLOWS_MAX, generation: 0 };
    b.dispatcher(FromDispatcher::End { flow: far });
    b.peer(ME, taken(2));
    b.dispatcher(release(1, X, 0));
    assert_eq!(b.unit.counters().messages_refused, 3);
    // The state of an epoch without room arrives anyway.
    b.peer(X, state(3, &[1, 2], 2));
    assert_eq!(b.unit.owned(FLOW), Some((3, Watermark::up_to(2))));
}
