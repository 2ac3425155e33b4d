//! Each rule of epochs in which several units have a flow's packets, by itself, at one unit.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::message::{
    Epoch, FlowId, FlowRecord, Handover, Header, History, Message, Stamp, Targets, UnitId, Watermark,
};
use protocol::unit::{AGAIN_DOUBLINGS, BEGUN_MAX, Config, Dropped, Outbox, TOLD_MAX, Unit};

use crate::common::{Ledger, bytes};

const FLOW: FlowId = FlowId { slot: 3, generation: 1 };
const ME: UnitId = UnitId(0);
const X: UnitId = UnitId(1);
const Y: UnitId = UnitId(2);
const ORDER_NS: u64 = 100;
const AGAIN_NS: u64 = 1_000;

/// For so long something is said again and again.
const PATIENCE_NS: u64 = 2 * (AGAIN_NS << AGAIN_DOUBLINGS);

/// Packets 1 and 2 are of epoch 1; those from 3 on of epoch 2, which is spread.
const BASE: u64 = 2;
const SPREAD: Epoch = 2;

struct Bench {
    unit: Unit<Ledger>,
    out: Outbox<u64>,
    now_ns: u64,
}

impl Bench {
    fn new() -> Bench {
        let config = Config { order_ns: ORDER_NS, pull_again_ns: AGAIN_NS, ..Config::new(ME) };
        Bench { unit: Unit::new(config, Ledger::default()), out: Outbox::default(), now_ns: 1 }
    }

    /// One that has processed the packets before the epoch, and is the anchor of two helpers.
    fn anchor() -> Bench {
        let mut bench = Bench::new();
        for clock in 1..=BASE {
            let stamp =
                Stamp { flow: FLOW, clock, epoch: 1, handover: Handover::None, targets: Some(Targets::NONE) };
            bench.unit.packet(bench.now_ns, stamp, clock, &mut bench.out);
        }
        let helpers = Targets::of_distinct([X, Y].into_iter());
        bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: BASE, helpers });
        bench
    }

    /// A packet of the spread epoch whose anchor is this unit, with headers from `first` on; and
    /// the clock of this unit's packet before.
    fn packet(&mut self, anchor: UnitId, clock: u64, previous: u64, first: u64) {
        let headers = (first..clock).map(header).collect();
        self.packet_with(anchor, clock, History { previous, first, headers });
    }

    fn packet_with(&mut self, anchor: UnitId, clock: u64, history: History) {
        let handover = Handover::From { previous: anchor, last: BASE };
        let stamp = Stamp { flow: FLOW, clock, epoch: SPREAD, handover, targets: None };
        self.unit.packet_with_history(self.now_ns, stamp, Box::new(history), clock, &mut self.out);
    }

    /// The same without a history, as no router sends it.
    fn plain(&mut self, anchor: UnitId, clock: u64) {
        let handover = Handover::From { previous: anchor, last: BASE };
        let stamp = Stamp { flow: FLOW, clock, epoch: SPREAD, handover, targets: None };
        self.unit.packet(self.now_ns, stamp, clock, &mut self.out);
    }

    fn router(&mut self, message: Message) {
        self.unit.receive(self.now_ns, None, message, &mut self.out);
    }

    fn from(&mut self, unit: UnitId, message: Message) {
        self.unit.receive(self.now_ns, Some(unit), message, &mut self.out);
    }

    fn part(&mut self, last: Option<u64>) {
        self.router(Message::Part { flow: FLOW, epoch: SPREAD, last });
    }

    fn wait(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.unit.due_ns() <= until_ns {
            self.now_ns = self.now_ns.max(self.unit.due_ns());
            self.unit.advance(self.now_ns, &mut self.out);
        }
        self.now_ns = until_ns;
    }

    fn processed(&self) -> Vec<u64> {
        self.unit.engine().processed.iter().map(|&(_, clock)| clock).collect()
    }

    fn dropped(&mut self) -> Vec<(Dropped, u64)> {
        self.out.dropped.drain(..).map(|(reason, stamp, _)| (reason, stamp.clock)).collect()
    }

    fn sent(&mut self) -> Vec<(UnitId, Message)> {
        std::mem::take(&mut self.out.to_units)
    }

    fn has_parted(&mut self) -> bool {
        let said = std::mem::take(&mut self.out.to_router);
        said.contains(&Message::Parted { flow: FLOW, epoch: SPREAD })
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.unit.hash(&mut hasher);
        hasher.finish()
    }

    fn is_empty(&self) -> bool {
        (self.unit.flows(), self.unit.held()) == (0, 0) && self.unit.engine().states.is_empty()
    }
}

fn header(clock: u64) -> Header {
    Header { at_ns: clock, len: 100, bytes: Vec::new() }
}

/// The anchor's state that covers packets up to this one.
fn share(clock: u64) -> Message {
    let record =
        FlowRecord { watermark: Watermark::up_to(clock), bytes: bytes(&(1..=clock).collect::<Vec<_>>()) };
    Message::Share { flow: FLOW, epoch: SPREAD, record }
}

const PAST: Message = Message::Past { flow: FLOW, epoch: SPREAD };

fn ask(last: Option<u64>) -> Message {
    Message::Ask { flow: FLOW, epoch: SPREAD, last }
}

fn told(first: u64, last: u64, end: Option<u64>) -> Message {
    let headers = (first..=last).map(header).collect();
    Message::Told { flow: FLOW, epoch: SPREAD, first, headers, end }
}

#[test]
fn a_helper_that_can_go_on_gives_nothing_up() {
    let mut bench = Bench::new();
    bench.packet(X, 4, BASE, 3);
    bench.from(Y, PAST);
    bench.from(X, share(BASE));
    assert_eq!(bench.processed(), [4]);
    // It has asked before it had what it needs, and the answer is late.
    bench.from(X, PAST);
    bench.packet(X, 6, 4, 5);
    assert_eq!((bench.processed(), bench.dropped()), (vec![4, 6], vec![]));
    // What is missing may have been overtaken.
    bench.packet(X, 10, 8, 9);
    bench.from(X, PAST);
    bench.packet(X, 8, 6, 7);
    assert_eq!((bench.processed(), bench.dropped()), (vec![4, 6, 8, 10], vec![]));
    // It was lost: nobody but the anchor can say that there is no help.
    bench.packet(X, 14, 12, 13);
    bench.wait(ORDER_NS);
    bench.from(Y, PAST);
    assert_eq!((bench.unit.held(), bench.unit.counters().messages_stale), (1, 4));
    bench.from(X, PAST);
    assert_eq!(bench.dropped(), [(Dropped::Lapsed, 14)]);
    assert!(bench.is_empty() && !bench.has_parted());
    // What was sent before the router heard of it has not come late: it is given up, too.
    bench.packet(X, 18, 14, 15);
    assert_eq!(bench.dropped(), [(Dropped::Lapsed, 18)]);
    bench.part(Some(18));
    assert!(bench.has_parted());
}

#[test]
fn a_helper_waits_for_what_was_overtaken_at_the_end() {
    let mut bench = Bench::new();
    bench.from(X, share(BASE));
    bench.packet(X, 4, BASE, 3);
    bench.part(Some(6));
    assert!(!bench.has_parted());
    bench.wait(ORDER_NS - 1);
    bench.packet(X, 6, 4, 5);
    assert_eq!((bench.processed(), bench.dropped()), (vec![4, 6], vec![]));
    assert!(bench.has_parted() && bench.is_empty(), "that was the last one");
}

#[test]
fn a_helper_waits_for_what_was_overtaken_even_if_it_was_all_of_it() {
    let mut bench = Bench::new();
    bench.part(Some(4));
    assert!(!bench.has_parted());
    bench.packet(X, 4, BASE, 3);
    bench.from(X, share(BASE));
    assert_eq!((bench.processed(), bench.dropped()), (vec![4], vec![]));
    assert!(bench.has_parted() && bench.is_empty());
}

#[test]
fn a_helper_that_was_sent_nothing_parts_at_once() {
    let mut bench = Bench::new();
    bench.part(None);
    assert!(bench.has_parted() && bench.is_empty());
    let mut bench = Bench::new();
    bench.from(X, share(BASE));
    bench.part(None);
    assert!(bench.has_parted() && bench.is_empty());
}

#[test]
fn what_does_not_come_in_time_is_not_waited_for_at_the_end() {
    let mut bench = Bench::new();
    bench.from(X, share(BASE));
    bench.packet(X, 4, BASE, 3);
    bench.part(Some(6));
    bench.wait(ORDER_NS);
    assert!(bench.has_parted() && bench.is_empty());
    bench.packet(X, 6, 4, 5);
    assert_eq!(bench.dropped(), [(Dropped::Old, 6)]);
    bench.part(Some(6));
    assert!(bench.has_parted(), "it has not been heard");
}

#[test]
fn an_anchor_waits_for_what_was_overtaken_at_the_end() {
    let mut bench = Bench::anchor();
    bench.packet(ME, 3, BASE, 3);
    bench.router(told(3, 9, Some(6)));
    bench.wait(ORDER_NS - 1);
    assert_eq!(bench.processed(), [1, 2, 3]);
    bench.packet(ME, 6, 3, 4);
    assert_eq!((bench.processed(), bench.dropped()), (vec![1, 2, 3, 6], vec![]));
    assert_eq!(bench.unit.owned(FLOW), Some((SPREAD + 1, Watermark::up_to(9))), "that was its last one");
    // The same, and it does not come.
    let mut bench = Bench::anchor();
    bench.router(told(3, 9, Some(6)));
    bench.wait(ORDER_NS);
    assert_eq!(bench.unit.owned(FLOW), Some((SPREAD + 1, Watermark::up_to(9))));
    bench.packet(ME, 6, BASE, 3);
    assert_eq!(bench.dropped(), [(Dropped::Old, 6)]);
}

#[test]
fn a_helper_whose_state_never_comes_gives_up() {
    let mut bench = Bench::new();
    bench.packet(X, 4, BASE, 3);
    bench.part(Some(4));
    bench.wait(PATIENCE_NS - 1);
    assert!(!bench.has_parted());
    let asked = bench.sent();
    assert!(asked.len() > 5 && asked.iter().all(|sent| *sent == (X, ask(None))), "{asked:?}");
    bench.wait(1);
    assert_eq!(bench.dropped(), [(Dropped::Lapsed, 4)]);
    assert!(bench.has_parted() && bench.is_empty());
}

#[test]
fn a_state_that_cannot_be_read_keeps_no_helper() {
    let mut bench = Bench::new();
    let record = FlowRecord { watermark: Watermark::up_to(BASE), bytes: vec![1, 2, 3] };
    bench.from(X, Message::Share { flow: FLOW, epoch: SPREAD, record });
    assert_eq!(bench.unit.counters().states_unreadable, 1);
    bench.part(None);
    assert!(bench.has_parted() && bench.is_empty());
}

#[test]
fn the_state_that_a_helper_begins_with_is_sent_again() {
    let mut bench = Bench::anchor();
    assert_eq!(bench.sent(), [(X, share(BASE)), (Y, share(BASE))]);
    bench.packet(ME, 3, BASE, 3);
    bench.packet(ME, 6, 3, 4);
    bench.from(X, ask(None));
    assert_eq!(bench.sent(), [(X, share(BASE))]);
    // For want of headers it is the present one.
    bench.from(X, ask(Some(4)));
    assert_eq!(bench.sent(), [(X, share(6))]);
    bench.router(told(3, 7, Some(6)));
    assert_eq!(bench.unit.owned(FLOW), Some((SPREAD + 1, Watermark::up_to(7))));
    bench.from(Y, ask(None));
    bench.from(Y, ask(Some(4)));
    assert_eq!(bench.sent(), [(Y, share(BASE)), (Y, PAST)]);
}

#[test]
fn no_more_of_these_states_are_kept_than_is_said() {
    let mut bench = Bench::anchor();
    for clock in 3..3 + BEGUN_MAX as u64 {
        bench.packet(ME, clock, clock - 1, clock);
        let helpers = Targets::of_distinct([UnitId(clock as u16)].into_iter());
        bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: clock, helpers });
    }
    assert_eq!((bench.sent().len(), bench.unit.counters().beginnings_forgotten), (2 + BEGUN_MAX, 1));
    bench.from(X, ask(None));
    bench.from(UnitId(3), ask(None));
    assert_eq!(bench.sent(), [(X, share(2 + BEGUN_MAX as u64)), (UnitId(3), share(3))]);
}

#[test]
fn these_states_are_forgotten_once_no_helper_waits_any_more() {
    let mut bench = Bench::anchor();
    bench.wait(2 * PATIENCE_NS);
    bench.packet(ME, 3, BASE, 3);
    bench.router(told(3, 7, Some(3)));
    assert_eq!(bench.unit.owned(FLOW), Some((SPREAD + 1, Watermark::up_to(7))));
    bench.sent();
    bench.wait(PATIENCE_NS - 1);
    bench.from(Y, ask(None));
    assert_eq!(bench.sent(), [(Y, share(BASE))]);
    bench.wait(1);
    bench.from(Y, ask(None));
    assert_eq!(bench.sent(), [(Y, PAST)]);
    assert_eq!(bench.unit.due_ns(), u64::MAX);
}

/// Two units that will answer differently are not the same.
#[test]
fn who_began_with_a_state_is_part_of_what_a_unit_is() {
    let hash = |helper| {
        let mut bench = Bench::anchor();
        let helpers = Targets::of_distinct([UnitId(helper)].into_iter());
        bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: BASE, helpers });
        bench.hash()
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}

#[test]
fn no_more_of_what_is_told_waits_for_the_state_than_is_said() {
    let (mut bench, forgotten, kept) = (Bench::new(), 10, TOLD_MAX as u64);
    let helpers = Targets::of_distinct([X].into_iter());
    bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: BASE, helpers });
    // Packets 1 and 2 are waited for.
    let last = BASE + forgotten + kept;
    for first in (BASE + 1..=last).step_by(1 << 10) {
        bench.router(told(first, last.min(first + (1 << 10) - 1), None));
    }
    assert_eq!(bench.unit.counters().told_forgotten, forgotten);
    bench.wait(ORDER_NS);
    bench.packet(ME, last + 1, BASE, last + 1);
    assert_eq!((bench.processed(), bench.unit.counters().replayed), (vec![last + 1], kept));
    bench.router(told(last + 1, last + 1, Some(last + 1)));
    assert_eq!(bench.unit.owned(FLOW), Some((SPREAD + 1, Watermark::up_to(last + 1))));
}

#[test]
fn a_packet_without_a_history_stops_nothing() {
    let mut bench = Bench::anchor();
    bench.plain(ME, 3);
    bench.packet(ME, 4, BASE, 3);
    assert_eq!((bench.processed(), bench.dropped()), (vec![1, 2, 4], vec![(Dropped::Refused, 3)]));
    // The state of a helper has not come.
    let mut bench = Bench::new();
    bench.packet(X, 4, BASE, 3);
    bench.plain(X, 6);
    assert_eq!((bench.dropped(), bench.unit.held()), (vec![(Dropped::Refused, 6)], 1));
    // Nor has it been heard that the epoch is spread.
    let mut bench = Bench::new();
    bench.plain(X, 4);
    bench.packet(X, 6, BASE, 3);
    bench.from(X, share(BASE));
    assert_eq!((bench.processed(), bench.dropped()), (vec![6], vec![(Dropped::Refused, 4)]));
    assert_eq!(bench.unit.held(), 0);
}

#[test]
fn who_is_not_known_to_help_yet_is_not_answered() {
    let mut bench = Bench::anchor();
    bench.sent();
    bench.from(UnitId(3), ask(None));
    assert_eq!(bench.sent(), []);
    let helpers = Targets::of_distinct([UnitId(3)].into_iter());
    bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: BASE, helpers });
    assert_eq!(bench.sent(), [(UnitId(3), share(BASE))]);
}

#[test]
fn a_history_that_is_not_the_packets_is_refused() {
    let mut bench = Bench::anchor();
    let wrong = [(2, 0, 3), (2, 3, 1), (2, 4, 3), (6, 3, 3), (2, u64::MAX, 1)];
    for (previous, first, headers) in wrong {
        let headers = (0..headers).map(header).collect();
        bench.packet_with(ME, 6, History { previous, first, headers });
    }
    assert_eq!(bench.dropped(), [(Dropped::Refused, 6); 5]);
    // This one is, but not of this epoch.
    bench.packet(ME, BASE, 1, BASE);
    assert_eq!((bench.dropped(), bench.processed()), (vec![(Dropped::Old, BASE)], vec![1, 2]));
}

#[test]
fn what_cannot_be_replayed_is_counted() {
    let mut bench = Bench::anchor();
    let headers = vec![header(3), Header { len: 0, ..header(4) }, header(5)];
    bench.packet_with(ME, 6, History { previous: BASE, first: 3, headers });
    assert_eq!(bench.processed(), [1, 2, 6]);
    assert_eq!((bench.unit.counters().replayed, bench.unit.counters().unreplayable), (2, 1));
}

/// Of packets that wait for an epoch before, none is lost track of.
#[test]
fn a_helper_that_gives_up_holds_what_is_of_other_epochs() {
    let mut bench = Bench::new();
    let handover = Handover::From { previous: X, last: BASE };
    let stamp = Stamp { flow: FLOW, clock: 5, epoch: 2, handover, targets: Some(Targets::NONE) };
    bench.unit.packet(bench.now_ns, stamp, 5, &mut bench.out);
    let spread = Stamp {
        clock: 12,
        epoch: 4,
        handover: Handover::From { previous: X, last: 10 },
        targets: None,
        ..stamp
    };
    let history = History { previous: 10, first: 11, headers: vec![header(11)] };
    bench.unit.packet_with_history(bench.now_ns, spread, Box::new(history), 12, &mut bench.out);
    assert_eq!(bench.unit.held(), 2);
    bench.from(X, Message::Past { flow: FLOW, epoch: 4 });
    assert_eq!((bench.dropped(), bench.unit.held()), (vec![(Dropped::Lapsed, 12)], 1));
}

/// A copy may have let another unit go on, if there was no packet in between.
#[test]
fn an_epoch_that_is_done_with_does_not_begin() {
    let mut bench = Bench::anchor();
    bench.router(told(3, 2, Some(2)));
    bench.router(Message::Release { flow: FLOW, epoch: SPREAD + 2, owner: X, last: BASE });
    bench.from(X, Message::Taken { flow: FLOW, epoch: SPREAD + 2 });
    assert!(bench.is_empty());
    let helpers = Targets::of_distinct([Y].into_iter());
    bench.router(Message::Spread { flow: FLOW, epoch: SPREAD, last: BASE, helpers });
    bench.router(told(3, 2, Some(2)));
    assert!(bench.is_empty() && bench.unit.counters().messages_stale == 2);
}

/// Whoever makes up messages with the highest numbers there are does no harm.
#[test]
fn the_last_numbers_are_no_harm() {
    const LAST: Epoch = Epoch::MAX;
    let helpers = Targets::of_distinct([X].into_iter());
    let record = || FlowRecord { watermark: Watermark::up_to(u64::MAX), bytes: Vec::new() };
    for mut bench in [Bench::new(), Bench::anchor()] {
        for last in [0, BASE, u64::MAX] {
            bench.router(Message::Spread { flow: FLOW, epoch: LAST, last, helpers });
            for first in [0, last, last.saturating_add(1)] {
                let headers = vec![header(1)];
                bench.router(Message::Told { flow: FLOW, epoch: LAST, first, headers, end: Some(last) });
            }
            bench.from(X, Message::Ask { flow: FLOW, epoch: LAST, last: Some(last) });
        }
        bench.router(Message::Part { flow: FLOW, epoch: LAST, last: Some(u64::MAX) });
        bench.from(X, Message::Share { flow: FLOW, epoch: LAST, record: record() });
        bench.from(X, Message::Past { flow: FLOW, epoch: LAST });
        bench.from(X, Message::Taken { flow: FLOW, epoch: LAST });
        let handover = Handover::From { previous: X, last: u64::MAX };
        for epoch in [1, LAST - 1, LAST] {
            let stamp = Stamp { flow: FLOW, clock: u64::MAX, epoch, handover, targets: None };
            let history = History { previous: 1, first: u64::MAX, headers: vec![] };
            bench.unit.packet_with_history(bench.now_ns, stamp, Box::new(history), 1, &mut bench.out);
        }
        bench.wait(10 * AGAIN_NS);
    }
}
