//! Each rule of the protocol by itself, at one unit.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use proto::{
    Delta, Epoch, FlowId, FlowRecord, Handover, Message, Stamp, Targets, UnitId, Version, Watermark,
};
use unit::{Config, Dropped, Engine, OFFER_AFTER_ORDERS, Outbox, SLOTS_MAX, TENURES_MAX, Unit};

use common::{Ledger, bytes};

mod common;

const FLOW: FlowId = FlowId { slot: 3, generation: 1 };
/// The flow that has the slot next.
const NEXT: FlowId = FlowId { generation: 2, ..FLOW };
const ME: UnitId = UnitId(0);
const X: UnitId = UnitId(1);
const Y: UnitId = UnitId(2);
const ORDER_NS: u64 = 100;
const SILENCE_NS: u64 = 1_000;

struct Bench {
    unit: Unit<Ledger>,
    out: Outbox<u64>,
    now_ns: u64,
    targets: Targets,
}

fn config() -> Config {
    Config { replicate_after_ns: Some(SILENCE_NS), order_ns: ORDER_NS, ..Config::new(ME) }
}

fn from(previous: UnitId, last: u64) -> Handover {
    Handover::From { previous, last }
}

fn record(clocks: &[u64], contiguous: u64) -> FlowRecord {
    FlowRecord { watermark: Watermark::up_to(contiguous), bytes: bytes(clocks) }
}

fn state(epoch: Epoch, clocks: &[u64], contiguous: u64) -> Message {
    Message::State { flow: FLOW, epoch, record: record(clocks, contiguous) }
}

fn replica(epoch: Epoch, clocks: &[u64], contiguous: u64) -> Message {
    Message::Replica { flow: FLOW, epoch, record: record(clocks, contiguous) }
}

/// What has changed since this many packets: states with their clocks, all from 1 on. None: since the flow began.
fn changes(epoch: Epoch, base: Option<(Epoch, u64)>, clock: u64) -> Message {
    let of = |clock: u64| bytes(&(1..=clock).collect::<Vec<_>>());
    let base = base.map_or(Version::BEGINNING, |(epoch, clock)| Version { epoch, clock });
    let version = Version { epoch, clock };
    let delta = Delta::of((base, &of(base.clock)), (version, &of(clock))).unwrap();
    Message::Changes { flow: FLOW, epoch, watermark: Watermark::up_to(clock), delta }
}

fn lacking(epoch: Epoch, clock: u64) -> Message {
    Message::Lacking { flow: FLOW, version: Version { epoch, clock } }
}

/// A copy of the state that packets up to this one have made.
fn replica_up_to(epoch: Epoch, clock: u64) -> Message {
    replica(epoch, &(1..=clock).collect::<Vec<_>>(), clock)
}

fn release(epoch: Epoch, owner: UnitId, last: u64) -> Message {
    Message::Release { flow: FLOW, epoch, owner, last }
}

fn pull(epoch: Epoch, last: u64) -> Message {
    Message::Pull { flow: FLOW, epoch, last, again: false }
}

const END: Message = Message::End { flow: FLOW };

fn taken(epoch: Epoch) -> Message {
    Message::Taken { flow: FLOW, epoch }
}

impl Bench {
    fn new(config: Config) -> Bench {
        let unit = Unit::new(config, Ledger::default());
        Bench { unit, out: Outbox::default(), now_ns: 1, targets: Targets::NONE }
    }

    fn packet(&mut self, epoch: Epoch, handover: Handover, clock: u64) {
        let stamp = Stamp { flow: FLOW, clock, epoch, handover, targets: Some(self.targets) };
        self.unit.packet(self.now_ns, stamp, clock, &mut self.out);
    }

    fn first(&mut self, clocks: impl IntoIterator<Item = u64>) {
        for clock in clocks {
            self.packet(1, Handover::None, clock);
        }
    }

    fn router(&mut self, message: Message) {
        self.unit.receive(self.now_ns, None, message, &mut self.out);
    }

    fn peer(&mut self, unit: UnitId, message: Message) {
        self.unit.receive(self.now_ns, Some(unit), message, &mut self.out);
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.unit.advance(self.now_ns, &mut self.out);
    }

    fn state(&self) -> &[u64] {
        self.unit.engine().state(FLOW)
    }

    fn sent(&mut self) -> Vec<(UnitId, Message)> {
        std::mem::take(&mut self.out.to_units)
    }

    fn dropped(&mut self) -> Vec<(Dropped, u64)> {
        self.out.dropped.drain(..).map(|(reason, _, packet)| (reason, packet)).collect()
    }
}

#[test]
fn a_flow_begins_with_a_null_state_and_goes_on_in_the_order_of_its_clocks() {
    // S48, S49, S58, S61
    let mut b = Bench::new(config());
    b.first([1, 2, 4, 5, 3, 6]);
    assert_eq!(b.state(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(b.unit.owned(FLOW), Some((1, Watermark::up_to(6))));
    assert!(b.out.is_empty());
    assert_eq!((b.unit.counters().held, b.unit.counters().given_up), (2, 0));
}

#[test]
fn a_packet_that_comes_twice_is_dropped() {
    // DESIGN 3.10
    let mut b = Bench::new(config());
    b.first([1, 1, 3, 3, 2, 3]);
    assert_eq!(b.state(), [1, 2, 3]);
    assert_eq!(b.dropped(), [(Dropped::Old, 1), (Dropped::Old, 3), (Dropped::Old, 3)]);
}

#[test]
fn what_does_not_come_in_time_is_given_up_and_never_applied() {
    let mut b = Bench::new(config());
    b.first([1, 4]);
    b.wait(ORDER_NS / 2);
    b.first([6]);
    assert_eq!(b.unit.due_ns(), 1 + ORDER_NS);
    b.wait(ORDER_NS / 2);
    assert_eq!(b.state(), [1, 4], "6 has not waited for as long");
    b.first([2, 5]);
    assert_eq!(b.state(), [1, 4, 5, 6]);
    assert_eq!(b.dropped(), [(Dropped::Old, 2)]);
    assert_eq!(b.unit.counters().given_up, 2);
    assert_eq!(b.unit.counters().held_ns, ORDER_NS + ORDER_NS / 2);
}

#[test]
fn without_room_a_gap_is_given_up_at_once() {
    let mut b = Bench::new(Config { held_per_flow_max: 2, ..config() });
    b.first([1, 3, 5, 7]);
    assert_eq!(b.state(), [1, 3]);
    b.first([9]);
    assert_eq!((b.state(), b.unit.held()), (&[1, 3, 5][..], 2));
    b.first([8, 6]);
    assert_eq!(b.state(), [1, 3, 5, 7, 8, 9], "6 was given up for 8");
    assert_eq!(b.dropped(), [(Dropped::Old, 6)]);
    let mut none = Bench::new(Config { held_max: 0, ..config() });
    none.first([2, 1, 5, 3]);
    assert_eq!(none.state(), [2, 5]);
}

#[test]
fn a_new_owner_pulls_holds_and_goes_on() {
    // S49, S50, S60
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.packet(2, from(X, 2), 4);
    assert_eq!(b.sent(), [(X, pull(2, 2))], "once");
    assert_eq!((b.unit.held(), b.unit.flows()), (2, 1));
    b.now_ns += 50;
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.state(), [1, 2, 3, 4]);
    assert_eq!(b.sent(), [(X, taken(2))]);
    assert_eq!((b.unit.held(), b.unit.counters().held_ns), (0, 100));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2))], "said again, as it may have been lost");
    assert_eq!(b.state(), [1, 2, 3, 4], "but not taken again");
}

#[test]
fn who_hears_later_of_packets_that_went_on_does_the_same() {
    let quiet = Config { replicate_after_ns: None, expire_after_ns: None, ..config() };
    let (mut each, mut later) = (Bench::new(quiet), Bench::new(quiet));
    each.first(1..=5);
    later.first([1]);
    let second = Stamp { flow: FLOW, clock: 2, epoch: 1, handover: Handover::None, targets: None };
    assert_eq!(later.unit.pass(later.now_ns, &second, 2), Ok(u64::MAX), "nothing is ever due");
    (3..=5).for_each(|clock| later.unit.engine_mut().process(later.now_ns, FLOW, clock));
    assert!(!later.unit.catch_up(NEXT, 5), "another flow's state");
    assert!(later.unit.catch_up(FLOW, 5));
    assert_eq!(later.unit.owned(FLOW), Some((1, Watermark::up_to(5))));
    for b in [&mut each, &mut later] {
        b.router(release(2, Y, 5));
        b.peer(Y, pull(2, 5));
    }
    let sent = later.sent();
    assert_eq!((&each.sent(), later.unit.counters()), (&sent, each.unit.counters()));
    assert_eq!(sent, [(Y, state(2, &[1, 2, 3, 4, 5], 5))]);
    later.peer(Y, taken(2));
    assert!(!later.unit.catch_up(FLOW, 6), "its state is elsewhere");
}

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
    assert_eq!(b.sent(), [(X, pull(2, 2))]);
    assert_eq!((b.state(), b.unit.held()), (&[][..], 1));
    // S59: one that has the packet but misses one before it would be no better.
    let watermark = Watermark { contiguous: 0, ahead: 1 };
    b.peer(
        X,
        Message::Replica { flow: FLOW, epoch: 1, record: FlowRecord { watermark, bytes: bytes(&[2]) } },
    );
    assert_eq!(b.unit.held(), 1);
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
    assert_eq!(b.unit.counters().overtaken, 1);
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
    b.targets = Targets::ALL;
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
    b.targets = Targets::ALL;
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
    assert_eq!((b.unit.counters().deltas_missed, b.unit.counters().replicas_refused), (0, 0));
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
    assert_eq!((b.unit.counters().deltas_missed, b.unit.counters().replicas_refused), (2, 1));
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
    b.router(release(2, Y, 5));
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
    assert_eq!(b.sent(), [(X, pull(2, 4))]);
    b.peer(X, changes(1, Some((1, 3)), 4));
    assert_eq!((b.state(), b.unit.counters().overtaken), (&[1, 2, 3, 4, 5][..], 1));
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
    // And when it goes back, what was sent there last is what goes on there.
    b.router(release(3, X, 4));
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
    let mut b = Bench::new(Config { replicas_max_bytes: 0, ..with_deltas() });
    b.targets.add(X);
    for clock in 3..6 {
        b.first(1..=clock);
        b.wait(SILENCE_NS);
        assert_eq!(b.sent(), [(X, changes(1, None, clock))]);
    }
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_evicted), (0, 0));
}

#[test]
fn changes_that_make_no_state_are_refused() {
    let mut b = Bench::new(Config { replicas_max_bytes: 150, ..with_deltas() });
    b.peer(X, changes(1, None, 20));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 1), "too many bytes");
    b.router(END);
    b.peer(X, changes(1, None, 4));
    b.peer(X, lacking(1, 4));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().messages_stale), (0, 2), "it is over");
}

#[test]
fn copies_never_replace_what_is_owned_or_given_away() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.peer(X, replica(1, &[9], 9));
    assert_eq!((b.state(), b.unit.counters().replicas_refused), (&[1, 2][..], 1));
    b.router(release(2, X, 2));
    b.peer(X, taken(2));
    b.peer(Y, replica(1, &[1], 1));
    assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 2));
}

#[test]
fn a_pull_is_answered_once_everything_has_been_processed() {
    // DESIGN 3.3
    let mut b = Bench::new(config());
    b.first([1]);
    b.peer(X, pull(2, 2));
    b.wait(100 * ORDER_NS);
    assert!(b.sent().is_empty(), "2 may be on its way");
    b.first([2]);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.peer(X, pull(2, 2));
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))], "repeatable until it is taken");
    assert!(b.unit.engine().forgotten.is_empty());
    b.peer(X, taken(2));
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, false)][..], 0));
    b.peer(X, pull(2, 2));
    b.router(release(2, X, 2));
    b.peer(X, taken(2));
    assert!(b.sent().is_empty() && b.unit.flows() == 0);
    assert_eq!(b.unit.counters().messages_stale, 3);
}

#[test]
fn what_is_missing_behind_a_release_is_lost() {
    // DESIGN 3.3
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, pull(2, 4));
    b.router(release(2, X, 4));
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 3], 4))]);
    assert_eq!(b.unit.counters().given_up, 2);
    b.first([4]);
    assert_eq!(b.dropped(), [(Dropped::Old, 4)]);
}

#[test]
fn a_pull_without_any_packet_is_answered_after_the_release_only() {
    let mut b = Bench::new(config());
    b.peer(X, pull(2, 2));
    b.wait(100 * ORDER_NS);
    assert!(b.sent().is_empty());
    b.router(release(2, X, 2));
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[], 2))]);
}

#[test]
fn a_state_that_nobody_asks_for_is_offered_and_taken() {
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.router(release(2, X, 2));
    b.wait(OFFER_AFTER_ORDERS * ORDER_NS - 1);
    assert!(b.out.is_empty());
    b.wait(1);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.wait(100 * ORDER_NS);
    assert!(b.out.is_empty(), "once");
    // The other side: all that told X of the flow was lost, but for the release to Y, which does not say where the state is.
    let mut x = Bench::new(config());
    x.router(release(3, Y, 4));
    x.peer(Y, pull(3, 4));
    x.peer(X, state(2, &[1, 2], 2));
    assert_eq!(x.sent(), [(X, taken(2))]);
    x.wait(ORDER_NS);
    assert_eq!(x.sent(), [(Y, state(3, &[1, 2], 4))]);
}

#[test]
fn what_comes_late_is_sent_on_to_the_owner() {
    // DESIGN 3.3
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.router(release(2, X, 2));
    b.peer(X, taken(2));
    b.first([2]);
    let (unit, stamp, packet) = b.out.forwarded.remove(0);
    assert_eq!((unit, stamp.epoch, stamp.handover, stamp.clock, packet), (X, 2, from(ME, 2), 2, 2));
    // It comes back before this unit has heard that it is the owner again: that is news, and no circle.
    b.packet(3, from(X, 2), 2);
    assert_eq!(b.sent(), [(X, pull(3, 2))]);
    b.first([1]);
    assert_eq!(b.dropped(), [(Dropped::Old, 2), (Dropped::Old, 1)]);
}

#[test]
fn who_has_the_state_ends_the_wait_for_what_is_missing() {
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, taken(2));
    assert_eq!(b.out.forwarded.len(), 1);
    assert_eq!((b.unit.held(), b.unit.flows(), b.unit.engine().forgotten.len()), (0, 0, 1));
}

#[test]
fn a_flow_may_go_on_before_it_has_come() {
    // X(1) -> here(2) -> Y(3), while X's state is on its way.
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.router(release(3, Y, 3));
    b.peer(Y, pull(3, 3));
    b.wait(100 * ORDER_NS);
    assert_eq!(b.sent(), [(X, pull(2, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2)), (Y, state(3, &[1, 2, 3], 3))]);
}

#[test]
fn a_flow_may_come_back_before_it_has_gone() {
    // here(1) -> X(2) -> here(3)
    let mut b = Bench::new(config());
    b.first([1]);
    b.router(release(2, X, 2));
    b.packet(3, from(X, 3), 4);
    assert_eq!((b.sent(), b.unit.held()), (vec![(X, pull(3, 3))], 1));
    b.first([2]);
    assert_eq!(b.state(), [1, 2], "the first epoch's go on");
    b.peer(X, pull(2, 2));
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
    assert_eq!((b.state(), b.unit.held()), (&[1][..], 1));
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
fn a_flow_is_adopted_without_a_packet() {
    let mut b = Bench::new(config());
    b.router(Message::Adopt { flow: FLOW, epoch: 2, previous: X, last: 2 });
    assert_eq!(b.sent(), [(X, pull(2, 2))]);
    b.peer(X, state(2, &[1, 2], 2));
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.state(), [1, 2, 3]);
}

#[test]
fn a_flow_ends_when_the_router_says_so() {
    // DESIGN 3.9
    let mut b = Bench::new(Config { expire_after_ns: Some(5_000), ..config() });
    b.first([1, 2]);
    b.wait(4_999);
    assert!(b.out.is_empty());
    b.wait(1);
    b.wait(4_999);
    let expire = Message::Expire { flow: FLOW, epoch: 1, clock: 2 };
    assert_eq!((&b.out.to_router[0], b.out.to_router.len()), (&expire, 1));
    b.wait(1);
    assert_eq!((&b.out.to_router[1], b.out.to_router.len()), (&expire, 2), "asked again");
    assert_eq!(b.state(), [1, 2]);
    b.first([4]);
    b.router(Message::End { flow: FLOW });
    assert_eq!(b.unit.engine().forgotten, [(FLOW, true)]);
    b.first([3]);
    assert_eq!(b.dropped(), [(Dropped::Ended, 4), (Dropped::Ended, 3)]);
    assert_eq!((b.unit.counters().expiries_proposed, b.unit.counters().expiries_accepted), (2, 1));
    assert_eq!((b.unit.due_ns(), b.unit.flows(), b.unit.held()), (u64::MAX, 0, 0));
}

#[test]
fn only_the_owner_gives_back_what_a_flow_took() {
    let mut b = Bench::new(config());
    b.first([1]);
    b.router(release(2, X, 1));
    b.router(END);
    assert_eq!(b.sent(), [(X, state(2, &[1], 1))], "it ends there");
    assert!(b.unit.engine().forgotten.is_empty());
    b.peer(X, taken(2));
    assert_eq!(b.unit.engine().forgotten, [(FLOW, false)]);
    assert_eq!((b.unit.flows(), b.unit.due_ns()), (0, u64::MAX));
}

#[test]
fn a_flow_that_ends_before_its_state_has_come_ends_when_it_comes() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    b.router(END);
    assert_eq!((b.dropped(), b.unit.held(), b.unit.flows()), (vec![(Dropped::Ended, 3)], 0, 1));
    b.packet(2, from(X, 2), 4);
    assert_eq!(b.dropped(), [(Dropped::Ended, 4)]);
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
    b.router(END);
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!((b.sent(), b.unit.flows()), (vec![(X, taken(2))], 0));
    assert_eq!(b.unit.engine().forgotten, [(FLOW, true)]);
    // And who asks there is told that nothing comes.
    let mut none = Bench::new(config());
    none.router(END);
    none.peer(Y, pull(3, 2));
    assert_eq!(none.sent(), [(Y, END)]);
    let mut asks = Bench::new(config());
    asks.packet(3, from(X, 2), 3);
    asks.peer(X, END);
    assert_eq!((asks.dropped(), asks.unit.flows()), (vec![(Dropped::Ended, 3)], 0));
    assert_eq!(asks.unit.due_ns(), u64::MAX);
}

#[test]
fn a_flow_ends_behind_the_next_one_of_its_slot() {
    let mut b = Bench::new(config());
    b.packet(2, from(X, 2), 3);
    let stamp = Stamp { flow: NEXT, clock: 1, epoch: 1, handover: Handover::None, targets: None };
    b.unit.packet(2, stamp, 1, &mut b.out);
    assert_eq!((b.unit.flows(), b.unit.engine().state(NEXT), b.unit.held()), (2, &[1][..], 1));
    b.router(END);
    assert_eq!((b.dropped(), b.unit.flows(), b.unit.held()), (vec![(Dropped::Ended, 3)], 2, 0));
    b.sent();
    b.wait(b.unit.due_ns() - b.now_ns);
    assert_eq!(b.sent(), [(X, Message::Pull { flow: FLOW, epoch: 2, last: 2, again: true })]);
    b.peer(X, state(2, &[1, 2], 2));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.sent(), [(X, taken(2)), (X, taken(2))]);
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, true)][..], 1));
    assert_eq!(b.unit.engine().state(NEXT), [1]);
}

#[test]
fn what_is_not_answered_is_said_again_and_again_less_often() {
    let again = Message::Pull { flow: FLOW, epoch: 2, last: 2, again: true };
    let mut b = Bench::new(Config { pull_again_ns: 1_000, ..config() });
    b.packet(2, from(X, 2), 3);
    assert_eq!(b.sent(), [(X, pull(2, 2))]);
    for wait_ns in [1_000, 2_000, 4_000] {
        b.wait(wait_ns - 1);
        assert_eq!(b.sent(), []);
        b.wait(1);
        assert_eq!(b.sent(), [(X, again.clone())]);
    }
    b.peer(X, state(2, &[1, 2], 2));
    b.router(release(3, Y, 3));
    b.peer(Y, pull(3, 3));
    assert_eq!(b.sent(), [(X, taken(2)), (Y, state(3, &[1, 2, 3], 3))]);
    for wait_ns in [1_000, 2_000] {
        b.wait(wait_ns);
        assert_eq!(b.sent(), [(Y, state(3, &[1, 2, 3], 3))]);
    }
    b.peer(Y, taken(3));
    assert_eq!(b.unit.due_ns(), u64::MAX);
    assert_eq!((b.unit.counters().pulls_again, b.unit.counters().states_again), (3, 2));
}

#[test]
fn who_asks_again_has_the_flow() {
    // DESIGN 3.3: the release was lost, and packet 2.
    let mut b = Bench::new(config());
    b.first([1, 3]);
    b.peer(X, pull(2, 4));
    b.wait(10 * ORDER_NS);
    assert_eq!(b.state(), [1, 3]);
    assert_eq!(b.sent(), [], "4 may still come");
    b.peer(X, Message::Pull { flow: FLOW, epoch: 2, last: 4, again: true });
    assert_eq!(b.sent(), []);
    b.wait(ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 3], 4))]);
}

#[test]
fn a_flow_ends_by_the_router_s_word_not_with_the_next_one_of_its_slot() {
    let mut b = Bench::new(config());
    b.first([1]);
    let stamp = Stamp { flow: NEXT, clock: 1, epoch: 1, handover: Handover::None, targets: None };
    b.unit.packet(2, stamp, 1, &mut b.out);
    assert_eq!((b.state(), b.unit.engine().state(NEXT), b.unit.flows()), (&[1][..], &[1][..], 2));
    b.first([3, 2]);
    assert_eq!(b.state(), [1, 2, 3], "what the router sent before its end goes on");
    b.router(END);
    assert_eq!(b.unit.engine().ended, [(FLOW, vec![1, 2, 3])]);
    b.first([4]);
    assert_eq!(b.dropped(), [(Dropped::Ended, 4)]);
    assert_eq!((b.unit.owned(NEXT), b.unit.flows()), (Some((1, Watermark::up_to(1))), 1));
}

#[test]
fn a_flow_that_went_away_unheard_does_not_end_where_it_was() {
    // X took a copy over and its word of that was lost; it has ended there, and Y has the slot's next flow. All that overtakes what the
    // router has said here.
    let mut b = Bench::new(config());
    b.first([1, 2]);
    b.peer(Y, Message::Replica { flow: NEXT, epoch: 1, record: record(&[1], 1) });
    assert!(b.unit.engine().forgotten.is_empty());
    b.router(release(2, X, 2));
    b.wait(OFFER_AFTER_ORDERS * ORDER_NS);
    assert_eq!(b.sent(), [(X, state(2, &[1, 2], 2))]);
    b.peer(X, taken(2));
    b.router(END);
    assert_eq!((b.unit.engine().forgotten.as_slice(), b.unit.flows()), (&[(FLOW, false)][..], 0));
    // The copy of the next one is of use.
    let stamp = Stamp { flow: NEXT, clock: 2, epoch: 2, handover: from(Y, 1), targets: None };
    b.unit.packet(b.now_ns, stamp, 2, &mut b.out);
    assert_eq!(b.unit.engine().state(NEXT), [1, 2]);
}

#[test]
fn of_a_flow_whose_slot_another_has_no_copies_are_kept_or_sent() {
    for deltas in [false, true] {
        let mut b = Bench::new(Config { deltas, ..config() });
        b.targets.add(Y);
        b.first([1]);
        b.wait(SILENCE_NS);
        assert_eq!((b.sent().len(), b.unit.replica_bytes() > 0), (1, deltas));
        b.peer(Y, Message::Pull { flow: NEXT, epoch: 2, last: 9, again: false });
        b.first([2]);
        b.wait(10 * SILENCE_NS);
        assert_eq!(b.sent(), []);
        b.router(release(2, X, 2));
        b.peer(X, taken(2));
        b.peer(X, replica(2, &[1, 2, 3], 3));
        assert_eq!((b.unit.replica_bytes(), b.unit.counters().replicas_refused), (0, 1));
    }
}

#[test]
fn a_unit_that_drains_says_when_nothing_is_left() {
    let mut idle = Bench::new(config());
    idle.router(Message::Drain);
    assert_eq!(idle.out.to_router, [Message::Drained]);
    idle.router(Message::Drain);
    assert_eq!(idle.out.to_router, [Message::Drained, Message::Drained], "the first may have been lost");
    let mut b = Bench::new(config());
    b.first([1]);
    b.router(Message::Drain);
    b.router(release(2, X, 1));
    b.peer(X, pull(2, 1));
    assert!(b.out.to_router.is_empty(), "the state is still here");
    b.peer(X, taken(2));
    assert_eq!(b.out.to_router, [Message::Drained]);
    b.packet(3, from(X, 1), 2);
    b.router(release(4, X, 2));
    b.peer(X, taken(4));
    assert_eq!(b.out.to_router, [Message::Drained, Message::Drained]);
}

#[test]
fn everything_is_bounded_and_counted() {
    let mut b = Bench::new(Config { held_per_flow_max: 1, ..config() });
    b.packet(2, from(X, 1), 2);
    b.packet(2, from(X, 1), 3);
    assert_eq!(b.dropped(), [(Dropped::Full, 3)], "a state cannot be given up");
    for epoch in (4u32..).step_by(2).take(TENURES_MAX) {
        b.packet(epoch, from(X, u64::from(epoch)), u64::from(epoch) + 1);
    }
    assert_eq!(b.unit.counters().dropped(Dropped::Refused), 1);
    let far = FlowId { slot: SLOTS_MAX, generation: 0 };
    b.router(Message::End { flow: far });
    b.peer(X, Message::Drain);
    b.peer(ME, taken(2));
    b.router(Message::Drained);
    b.router(release(1, X, 0));
    assert_eq!(b.unit.counters().messages_refused, 5);
    // The state of an epoch that there was no room for comes all the same.
    b.peer(X, state(3, &[1, 2], 2));
    assert_eq!(b.unit.owned(FLOW), Some((3, Watermark::up_to(2))));
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken() {
    let mut b = Bench::new(config());
    let broken = FlowRecord { watermark: Watermark::up_to(2), bytes: vec![1] };
    b.peer(X, Message::Replica { flow: FLOW, epoch: 1, record: broken.clone() });
    b.packet(2, from(X, 2), 3);
    assert_eq!((b.sent(), b.unit.counters().replicas_refused), (vec![(X, pull(2, 2))], 1));
    b.peer(X, Message::State { flow: FLOW, epoch: 2, record: broken });
    assert_eq!((b.sent(), b.unit.held(), b.unit.counters().states_unreadable), (vec![], 1, 1));
    b.peer(X, state(2, &[1, 2], 2));
    assert_eq!(b.state(), [1, 2, 3]);
}
