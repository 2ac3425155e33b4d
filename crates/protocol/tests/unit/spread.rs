//! Several units have a flow's packets in turn: random schedules, with packets that are lost, come
//! late or twice, and messages between units that are lost, come in any order or twice.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use protocol::message::{Epoch, FlowId, Handover, Header, History, Message, Stamp, Targets, UnitId};
use protocol::unit::{Config, Dropped, Outbox, Unit};

use crate::common::Ledger;

const FLOW: FlowId = FlowId { slot: 3, generation: 1 };

#[derive(Clone, Debug)]
struct Nature {
    units: u16,
    steps: usize,
    /// Per 1,000: packets that are lost, come late, come twice; messages between units that are
    /// lost, and that come twice.
    loss: u64,
    late: u64,
    twice: u64,
    mute: u64,
    again: u64,
    repeats: usize,
    order_ns: u64,
    pull_again_ns: u64,
    held_per_flow_max: usize,
    /// The flow stays at its anchor until all helpers have parted.
    stays: bool,
    seed: [u8; 32],
}

prop_compose! {
    fn nature()(
        (units, steps, repeats) in (2u16..=5, 1usize..400, 0usize..3),
        (loss, late, twice) in (prop_oneof![Just(0), 1u64..300], prop_oneof![Just(0), 1u64..200], 0u64..100),
        (mute, again) in (prop_oneof![Just(0), 1u64..300], 0u64..200),
        (order_ns, held_per_flow_max) in (0u64..2_000, prop_oneof![1usize..6, Just(1 << 10)]),
        seed in any::<[u8; 32]>(),
    ) -> Nature {
        let (pull_again_ns, stays) = (5_000, false);
        Nature { units, steps, loss, late, twice, mute, again, repeats, order_ns, pull_again_ns, held_per_flow_max, stays, seed }
    }
}

#[derive(Clone, Debug)]
enum Item {
    Packet(Stamp, Option<Box<History>>),
    Message(Option<UnitId>, Message),
}

/// An epoch in which several units have packets.
struct Session {
    members: Vec<(UnitId, Vec<u64>)>,
    /// The clock before the first header.
    base: u64,
    headers: usize,
    told: u64,
}

/// A router of one flow that does as it likes, and its units.
struct Play {
    nature: Nature,
    random: TestRng,
    now_ns: u64,
    units: Vec<Unit<Ledger>>,
    /// What the router sends each unit, in order.
    lanes: Vec<VecDeque<Item>>,
    /// How many of each lane have come, with those that are in it.
    sent: Vec<usize>,
    /// What comes at any time, but not before so much of the unit's lane.
    loose: Vec<(UnitId, usize, Item)>,
    clock: u64,
    epoch: Epoch,
    owner: UnitId,
    handover: Handover,
    session: Option<Session>,
    /// Helpers that have not parted, and from which epoch.
    parting: BTreeSet<(UnitId, Epoch)>,
    /// Clocks that count whether they are processed or not.
    spread: BTreeSet<u64>,
    dropped: Vec<(Dropped, u64)>,
}

impl Play {
    fn new(nature: Nature) -> Play {
        let config = |id| Config {
            replicate_after_ns: Some(10),
            order_ns: nature.order_ns,
            pull_again_ns: nature.pull_again_ns,
            held_per_flow_max: nature.held_per_flow_max,
            ..Config::new(id)
        };
        Play {
            random: TestRng::from_seed(RngAlgorithm::ChaCha, &nature.seed),
            now_ns: 1,
            units: (0..nature.units).map(|id| Unit::new(config(UnitId(id)), Ledger::default())).collect(),
            lanes: vec![VecDeque::new(); nature.units.into()],
            sent: vec![0; nature.units.into()],
            loose: Vec::new(),
            clock: 0,
            epoch: 1,
            owner: UnitId(0),
            handover: Handover::None,
            session: None,
            parting: BTreeSet::new(),
            spread: BTreeSet::new(),
            dropped: Vec::new(),
            nature,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    fn tell(&mut self, to: UnitId, message: Message) {
        self.put(to, Item::Message(None, message));
    }

    fn put(&mut self, to: UnitId, item: Item) {
        self.sent[to.index()] += 1;
        self.lanes[to.index()].push_back(item);
    }

    fn send(&mut self, to: UnitId, item: Item) {
        if self.happens(self.nature.loss) {
            return;
        }
        if self.happens(self.nature.twice) {
            self.loose.push((to, self.sent[to.index()], item.clone()));
        }
        match self.happens(self.nature.late) {
            true => self.loose.push((to, self.sent[to.index()], item)),
            false => self.put(to, item),
        }
    }

    fn targets(&mut self) -> Targets {
        let unit = UnitId(self.below(self.nature.units.into()) as u16);
        Targets::of_distinct(Some(unit).filter(|&unit| unit != self.owner).into_iter())
    }

    /// The router does something.
    fn route(&mut self) {
        let stays = self.nature.stays && !self.parting.is_empty();
        let may_go = self.session.is_none() && !stays;
        match self.below(20) {
            0 if may_go => self.begin(),
            1 => self.end(),
            2 if may_go => self.release(),
            3 => self.add_helper(),
            _ => self.packet(),
        }
    }

    fn packet(&mut self) {
        self.clock += 1;
        let (clock, epoch, handover) = (self.clock, self.epoch, self.handover);
        let Some(mut session) = self.session.take() else {
            let targets = Some(self.targets());
            let stamp = Stamp { flow: FLOW, clock, epoch, handover, targets };
            return self.send(self.owner, Item::Packet(stamp, None));
        };
        if self.happens(200) {
            self.say_told(&mut session, None);
        }
        let turn = clock as usize % session.members.len();
        let (unit, sent) = &mut session.members[turn];
        let behind = sent[sent.len().saturating_sub(self.nature.repeats + 1)];
        let headers = (behind + 1..clock).map(header).collect();
        let history = History { previous: *sent.last().unwrap(), first: behind + 1, headers };
        sent.push(clock);
        session.headers += 1;
        self.spread.insert(clock);
        let stamp = Stamp { flow: FLOW, clock, epoch, handover, targets: None };
        let unit = *unit;
        self.session = Some(session);
        self.send(unit, Item::Packet(stamp, Some(Box::new(history))));
    }

    fn begin(&mut self) {
        if self.clock == 0 {
            return;
        }
        (self.epoch, self.handover) =
            (self.epoch + 1, Handover::From { previous: self.owner, last: self.clock });
        let base = self.clock;
        let members = vec![(self.owner, vec![base])];
        self.session = Some(Session { members, base, headers: 0, told: base });
        let (epoch, helpers) = (self.epoch, Targets::NONE);
        self.tell(self.owner, Message::Spread { flow: FLOW, epoch, last: base, helpers });
        self.add_helper();
    }

    /// One that is none, and was none in an epoch from which it has not parted.
    fn add_helper(&mut self) {
        let unit = UnitId(self.below(self.nature.units.into()) as u16);
        let is_parting = self.parting.iter().any(|&(of, _)| of == unit);
        let (epoch, last) = (self.epoch, self.clock);
        let Some(session) = &mut self.session else { return };
        if is_parting || session.members.iter().any(|&(member, _)| member == unit) {
            return;
        }
        session.members.push((unit, vec![last]));
        let helpers = Targets::of_distinct([unit].into_iter());
        self.tell(self.owner, Message::Spread { flow: FLOW, epoch, last, helpers });
    }

    fn say_told(&mut self, session: &mut Session, end: Option<u64>) {
        let (first, until) = (session.told + 1, session.base + session.headers as u64);
        session.told = until;
        let headers = (first..=until).map(header).collect();
        let epoch = self.epoch;
        self.tell(self.owner, Message::Told { flow: FLOW, epoch, first, headers, end });
    }

    fn end(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        let own = *session.members[0].1.last().unwrap();
        self.say_told(&mut session, Some(own));
        for (helper, sent) in &session.members[1..] {
            let last = sent[1..].last().copied();
            self.tell(*helper, Message::Part { flow: FLOW, epoch: self.epoch, last });
            self.parting.insert((*helper, self.epoch));
        }
        (self.epoch, self.handover) =
            (self.epoch + 1, Handover::From { previous: self.owner, last: self.clock });
    }

    fn release(&mut self) {
        let owner = UnitId(self.below(self.nature.units.into()) as u16);
        if owner == self.owner || self.clock == 0 || self.parting.iter().any(|&(of, _)| of == owner) {
            return;
        }
        let (epoch, last, previous) = (self.epoch + 1, self.clock, self.owner);
        self.tell(previous, Message::Release { flow: FLOW, epoch, owner, last });
        (self.epoch, self.owner, self.handover) = (epoch, owner, Handover::From { previous, last });
        self.tell(owner, Message::Adopt { flow: FLOW, epoch, previous, last });
    }

    /// Something arrives.
    fn arrive(&mut self) {
        let lane = self.below(u64::from(self.nature.units) + 2) as usize;
        if let Some(item) = self.lanes.get_mut(lane).and_then(VecDeque::pop_front) {
            return self.deliver(UnitId(lane as u16), item);
        }
        if self.loose.is_empty() {
            return;
        }
        let at = self.below(self.loose.len() as u64) as usize;
        let (to, behind, _) = self.loose[at];
        if self.sent[to.index()] - self.lanes[to.index()].len() < behind {
            return;
        }
        let (to, behind, item) = self.loose.swap_remove(at);
        let is_message = matches!(item, Item::Message(..));
        if is_message && self.happens(self.nature.mute) {
            return;
        }
        if is_message && self.happens(self.nature.again) {
            self.loose.push((to, behind, item.clone()));
        }
        self.deliver(to, item);
    }

    fn deliver(&mut self, to: UnitId, item: Item) {
        let mut out = Outbox::default();
        let unit = &mut self.units[to.index()];
        match item {
            Item::Packet(stamp, None) => unit.packet(self.now_ns, stamp, stamp.clock, &mut out),
            Item::Packet(stamp, Some(history)) => {
                unit.packet_with_history(self.now_ns, stamp, history, stamp.clock, &mut out);
            }
            Item::Message(from, message) => unit.receive(self.now_ns, from, message, &mut out),
        }
        self.collect(to, out);
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for at in 0..self.units.len() {
            let mut out = Outbox::default();
            self.units[at].advance(now_ns, &mut out);
            self.collect(UnitId(at as u16), out);
        }
    }

    fn collect(&mut self, from: UnitId, out: Outbox<u64>) {
        for message in out.to_router {
            match message {
                Message::Parted { flow: FLOW, epoch } => assert!(self.parting.remove(&(from, epoch))),
                other => panic!("{other:?}"),
            }
        }
        assert!(out.to_all.is_empty());
        let messages =
            out.to_units.into_iter().map(|(to, message)| (to, 0, Item::Message(Some(from), message)));
        self.loose.extend(messages);
        self.loose.extend(out.forwarded.into_iter().map(|(to, stamp, _)| (to, 0, Item::Packet(stamp, None))));
        self.dropped.extend(out.dropped.into_iter().map(|(reason, stamp, _)| (reason, stamp.clock)));
    }

    /// All states are what a single unit would have, up to their clocks: of packets in turn all, of
    /// others those that were processed.
    fn check(&self) {
        let mut counting = self.spread.clone();
        let mut processed = BTreeSet::new();
        for unit in &self.units {
            for &(_, clock) in &unit.engine().processed {
                assert!(processed.insert(clock), "{clock} was processed twice");
            }
        }
        counting.extend(&processed);
        for (number, unit) in self.units.iter().enumerate() {
            let state = unit.engine().state(FLOW);
            let Some(last) = state.last() else { continue };
            assert!(state.iter().eq(counting.range(..=last)), "unit {number}: {state:?} of {counting:?}");
        }
    }

    fn run(mut self) -> Play {
        for _ in 0..self.nature.steps {
            match self.below(10) {
                0..4 => self.route(),
                4..9 => self.arrive(),
                _ => self.advance(self.now_ns + 500),
            }
            self.check();
        }
        self.end();
        for steps in 0.. {
            assert!(steps < 50_000, "it does not come to rest");
            let due_ns = self.units.iter().map(Unit::due_ns).min().unwrap();
            if !self.lanes.iter().all(VecDeque::is_empty) || !self.loose.is_empty() {
                self.arrive();
            } else if due_ns != u64::MAX {
                self.advance(due_ns.max(self.now_ns));
            } else {
                break;
            }
            self.check();
        }
        self
    }
}

/// The headers of these packets say nothing: their clocks do.
fn header(clock: u64) -> Header {
    Header { at_ns: clock, len: 100, bytes: Vec::new() }
}

fn check_end(play: &Play) {
    assert!(play.parting.is_empty(), "helpers have parted: {:?}", play.parting);
    for (number, unit) in play.units.iter().enumerate() {
        assert_eq!(unit.held(), 0);
        let is_owner = number == play.owner.index();
        assert!(is_owner || unit.engine().state(FLOW).is_empty(), "unit {number} has a state");
        assert!(is_owner || unit.flows() == 0, "unit {number} has the flow");
    }
    let owner = &play.units[play.owner.index()];
    let ended: usize = play.units.iter().map(|unit| unit.engine().ended.len()).sum();
    assert_eq!(ended, 0);
    if let Some(&last) = play.spread.last() {
        // What came behind may have been lost, all of it.
        assert!(owner.engine().state(FLOW).contains(&last), "the owner has what is spread");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost: each packet meets the state that all before it make, and in the end one
    /// unit has it.
    #[test]
    fn states_are_those_of_a_single_unit(nature in nature()) {
        check_end(&Play::new(nature).run());
    }

    /// Whatever units say to each other is lost, repeated and overtaken, and whichever packets are:
    /// as long as there is time and the flow stays at its anchor, each is processed, even if an
    /// epoch is over before the state has come that it begins with.
    #[test]
    fn what_units_say_to_each_other_may_be_lost_and_no_packet_is(nature in nature()) {
        // Helpers ask a number of times, and then give up.
        let mute = nature.mute / 3;
        let nature = Nature { loss: 0, mute, stays: true, order_ns: 1 << 40, held_per_flow_max: 1 << 10, ..nature };
        let play = Play::new(nature).run();
        check_end(&play);
        let processed: usize = play.units.iter().map(|unit| unit.engine().processed.len()).sum();
        prop_assert_eq!(processed as u64, play.clock, "{:?}", play.dropped);
        prop_assert!(play.dropped.iter().all(|&(reason, _)| reason == Dropped::Old), "{:?}", play.dropped);
    }

    /// Where nothing is lost or late, all packets are processed, and no helper has to ask.
    #[test]
    fn without_loss_all_is_processed(nature in nature()) {
        let nature = Nature {
            loss: 0, late: 0, twice: 0, mute: 0, again: 0, order_ns: 1 << 40, pull_again_ns: 1 << 50, held_per_flow_max: 1 << 10,
            ..nature
        };
        let play = Play::new(nature).run();
        check_end(&play);
        let processed: usize = play.units.iter().map(|unit| unit.engine().processed.len()).sum();
        prop_assert_eq!(processed as u64, play.clock);
        prop_assert!(play.dropped.is_empty(), "{:?}", play.dropped);
    }
}
