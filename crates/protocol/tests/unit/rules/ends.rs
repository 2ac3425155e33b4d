//! The place and time of a flow's end.

use protocol::message::{Handover, Stamp, Watermark};
use protocol::unit::{Config, DropCause, OFFER_AFTER_TIMEOUTS};

use super::*;

#[test]
fn a_flow_ends_when_the_dispatcher_says_so() {
    // design.md 3.9
    let mut b = Bench::new(Config { expire_after_ns: Some(5_000), ..config() });
    b.first([1, 2]);
    b.wait(4_999);
    assert!(b.out.is_empty());
    b.wait(1);
    b.wait(4_999);
    let expire = FromUnit::Expire { flow: FLOW, epoch: 1, seq: 2 };
    assert_eq!((&b.out.to_dispatcher[0], b.out.to_dispatcher.len()), (&expire, 1));
    b.wait(1);
    assert_eq!((&b.out.to_dispatcher[1], b.out.to_dispatcher.len()), (&expire, 2), "asked again");
    assert_eq!(b.state(), [1, 2]);
    b.first([4]);
    b.dispatcher(END);
    assert_eq!(b.unit.engine().forgotten, [(FLOW, true)]);
    b.first([3]);
    assert_eq!(b.dropped(), [(DropCause::FlowEnded, 4), (DropCause::FlowEnded, 3)]);
    assert_eq!((b.unit.counters().expiries_proposed, b.unit.counters().expiries_accepted), (2, 1));
    assert_eq!((b.unit.next_timeout_ns(), b.unit.flows(), b.unit.pending()), (u64::MAX, 0, 0));
}

#[test]
fn only_the_owner_gives_back_what_a_flow_took() {
    let mut b = Bench::new(config());
    b.first([1]);
    b.dispatcher(release(2, X, 1));
    b.dispatcher(END);
    assert_eq!(b.sent(), [(X, state(2, &[1], 1))], "it ends there");
    assert!(b.unit.engine().forgotten.is_empty());
    b.peer(X, taken(2));
    assert_eq!(b.unit.engine().forgotten, [(FLOW, false)]);
    assert_eq!((b.unit.flows(), b.unit.next_timeout_ns()), (0, u64::MAX));
}

#[test]
fn a_flow_that_ends_before_its_state_has_come_ends_when_it_comes() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.dispatcher(END);
    assert_eq!((b.dropped(), b.unit.pending(), b.unit.flows()), (vec![(DropCause::FlowEnded, 3)], 0, 1));
    b.packet(2, from(X, 2), 4);
    assert_eq!(b.dropped(), [(DropCause::FlowEnded, 4)]);
    b.sent();
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, true)][..], 0));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2)), (X, taken(2))]);
    assert_eq!(b.unit.engine().forgotten, [(FLOW, true)], "once");
}

#[test]
fn a_flow_that_ends_where_nothing_of_it_has_come_ends_with_its_state() {
    let mut b = Bench::new(config());
    b.dispatcher(END);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!((b.sent(), b.unit.flows()), (vec![(X, taken(2))], 0));
    assert_eq!(b.unit.engine().forgotten, [(FLOW, true)]);
    // A pull there is answered that nothing will come.
    let mut none = Bench::new(config());
    none.dispatcher(END);
    none.peer(Y, pull(3, Y, 2));
    assert_eq!(none.sent(), [(Y, no_state(3))]);
    let mut asks = Bench::new(config());
    asks.packet(3, from(X, 2), 3);
    asks.peer(X, no_state(3));
    asks.dispatcher(END);
    assert_eq!((asks.dropped(), asks.unit.flows()), (vec![(DropCause::FlowEnded, 3)], 0));
    assert_eq!(asks.unit.next_timeout_ns(), u64::MAX);
}

#[test]
fn a_flow_ends_behind_the_next_one_of_its_index() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    let stamp = Stamp { flow: NEXT, seq: 1, epoch: 1, handover: Handover::None, targets: None };
    b.unit.handle_packet(2, stamp, 1, &mut b.out);
    assert_eq!((b.unit.flows(), b.unit.engine().state(NEXT), b.unit.pending()), (2, &[1][..], 1));
    b.dispatcher(END);
    assert_eq!((b.dropped(), b.unit.flows(), b.unit.pending()), (vec![(DropCause::FlowEnded, 3)], 2, 0));
    b.sent();
    b.wait(b.unit.next_timeout_ns() - b.now_ns);
    assert_eq!(b.sent(), [(X, pull_again(2, ME, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2)), (X, taken(2))]);
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, true)][..], 1));
    assert_eq!(b.unit.engine().state(NEXT), [1]);
}

#[test]
fn a_flow_ends_by_the_dispatcher_s_word_not_with_the_next_one_of_its_index() {
    let mut b = Bench::new(config());
    b.first([1]);
    let stamp = Stamp { flow: NEXT, seq: 1, epoch: 1, handover: Handover::None, targets: None };
    b.unit.handle_packet(2, stamp, 1, &mut b.out);
    assert_eq!((b.state(), b.unit.engine().state(NEXT), b.unit.flows()), (&[1][..], &[1][..], 2));
    b.first([3, 2]);
    assert_eq!(b.state(), [1, 2, 3], "what the dispatcher sent before its end goes on");
    b.dispatcher(END);
    assert_eq!(b.unit.engine().ended, [(FLOW, vec![1, 2, 3])]);
    b.first([4]);
    assert_eq!(b.dropped(), [(DropCause::FlowEnded, 4)]);
    assert_eq!((b.unit.owned(NEXT), b.unit.flows()), (Some((1, Watermark::up_to(1))), 1));
}

#[test]
fn a_flow_that_went_away_unheard_does_not_end_where_it_was() {
    // X accepted a replica, and its acknowledgement was lost. The flow has ended there, and Y has
    // the index's next flow. All of that overtakes the dispatcher's messages here.
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.peer(Y, FromPeer::Replicate { flow: NEXT, epoch: 1, record: record(&[1], 1), is_reported: false });
    assert!(b.unit.engine().forgotten.is_empty());
    b.dispatcher(release(2, X, 2));
    b.wait(OFFER_AFTER_TIMEOUTS * ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.peer(X, taken(2));
    b.dispatcher(END);
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, false)][..], 0));
    // The next flow's replica is of use.
    let stamp = Stamp { flow: NEXT, seq: 2, epoch: 2, handover: from(Y, 1), targets: None };
    b.unit.handle_packet(b.now_ns, stamp, 2, &mut b.out);
    assert_eq!(b.unit.engine().state(NEXT), [1, 2]);
}

#[test]
fn a_unit_that_drains_says_when_nothing_is_left() {
    let mut idle = Bench::new(config());
    idle.dispatcher(FromDispatcher::Drain);
    assert_eq!(idle.out.to_dispatcher, [FromUnit::Drained]);
    idle.dispatcher(FromDispatcher::Drain);
    assert_eq!(
        idle.out.to_dispatcher,
        [FromUnit::Drained, FromUnit::Drained],
        "the first may have been lost"
    );
    let mut b = Bench::new(config());
    b.first([1]);
    b.dispatcher(FromDispatcher::Drain);
    b.dispatcher(release(2, X, 1));
    b.peer(X, pull(2, X, 1));
    assert!(b.out.to_dispatcher.is_empty(), "the state is still here");
    b.peer(X, taken(2));
    assert_eq!(b.out.to_dispatcher, [FromUnit::Drained]);
    b.packet(3, from(X, 1), 2);
    b.dispatcher(release_from(from(X, 1), 4, X, 2));
    b.peer(X, taken(4));
    assert_eq!(b.out.to_dispatcher, [FromUnit::Drained], "it says so once");
    b.dispatcher(FromDispatcher::Drain);
    assert_eq!(b.out.to_dispatcher, [FromUnit::Drained, FromUnit::Drained]);
}

#[test]
fn an_owner_whose_state_is_lost_says_so_until_the_flow_ends() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 1), 2);
    assert_eq!(b.sent(), [(X, pull(2, ME, 1))]);
    b.peer(X, no_state(2));
    let lost = |epoch| FromUnit::Lost { flow: FLOW, epoch };
    assert_eq!(b.out.to_dispatcher, [lost(2)]);
    b.packet(2, from(X, 1), 3);
    assert_eq!((b.out.to_dispatcher.len(), b.unit.pending()), (2, 2));
    b.dispatcher(FromDispatcher::Adopt { flow: FLOW, epoch: 2, previous: X, last: 1 });
    assert_eq!(b.out.to_dispatcher[2..], [lost(2)]);
    b.dispatcher(END);
    assert_eq!(b.dropped(), [(DropCause::FlowEnded, 2), (DropCause::FlowEnded, 3)]);
    assert_eq!((b.unit.flows(), b.unit.next_timeout_ns()), (0, u64::MAX));
}

#[test]
fn an_answer_without_state_concerns_its_epoch_only() {
    // X has answered a pull, and crashed. The transport answers the same pull again.
    let mut b = Bench::new(config());
    b.packet(2, from(X, 1), 2);
    b.peer(X, state(2, &[1], 1));
    b.peer(X, no_state(2));
    assert_eq!((b.state(), b.unit.flows()), (&[1, 2][..], 1));
    b.dispatcher(release_from(from(X, 1), 3, Y, 2));
    b.peer(Y, taken(3));
    b.peer(X, no_state(2));
    b.sent();
    b.packet(4, from(Y, 3), 4);
    assert_eq!(b.sent(), [(Y, pull(4, ME, 3))]);
    b.peer(X, no_state(2));
    assert_eq!((b.dropped(), b.unit.pending()), (vec![], 1));
    b.peer(Y, state(4, &[1, 2, 3], 3));
    assert_eq!(b.state(), [1, 2, 3, 4]);
}

#[test]
fn a_state_that_is_here_when_a_later_one_is_lost_ends_where_it_goes() {
    // here(1) -> Y(2) -> X(3), which has crashed, -> here(4) -> Y(5)
    let mut b = Bench::new(config());
    b.first([1]);
    b.packet(4, from(X, 3), 4);
    b.peer(Y, pull(5, Y, 4));
    assert_eq!(b.sent(), [(X, pull(4, ME, 3))]);
    b.peer(X, no_state(4));
    assert_eq!(b.out.to_dispatcher, [], "Y is the owner, and reports it");
    assert_eq!(b.dropped(), [(DropCause::Stale, 4)]);
    // The pull that waited is answered, and so is its repetition.
    assert_eq!(b.sent(), [(Y, no_state(5))]);
    b.peer(Y, pull(5, Y, 4));
    assert_eq!(b.sent(), [(Y, no_state(5))]);
    b.dispatcher(END);
    assert_eq!(b.unit.engine().ended, [(FLOW, vec![1])]);
    // The same, if the state is needed elsewhere.
    let mut b = Bench::new(config());
    b.first([1]);
    b.dispatcher(release(2, Y, 1));
    b.packet(4, from(X, 3), 4);
    b.peer(X, no_state(4));
    b.dispatcher(release_from(from(X, 3), 5, Y, 4));
    b.peer(Y, pull(5, Y, 4));
    assert_eq!(b.sent(), [(X, pull(4, ME, 3)), (Y, no_state(5))]);
    b.peer(Y, pull(2, Y, 1));
    assert_eq!(b.sent(), [(Y, state(2, &[1], 1))]);
    b.peer(Y, taken(2));
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, false)][..], 0));
    assert_eq!(b.unit.next_timeout_ns(), u64::MAX);
}
