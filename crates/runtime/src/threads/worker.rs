//! A unit's thread.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use graph::Chain;
use hdrhistogram::Histogram;
use packet::{DropReason, Packet};
use protocol::message::{FlowId, Message, UnitId};
use protocol::unit::{Counters, Dropped, Outbox, Unit};
use rtrb::chunks::ReadChunk;

use super::engine::ChainEngine;
use super::figures::{Figures, FiguresBoard};
use super::lane::{Bell, Mail, Mailbox, Return, ToUnit};
use crate::panics::{Processing, RESTARTS_MAX};
use crate::report::new_histogram;

/// Packets and messages that are taken at a time.
const CHUNK: usize = 64;

/// How often a thread looks for work before it lets others run, and then before it sleeps.
const LOOKS: u32 = 64;

/// How long a thread sleeps at most.
const SLEEP: Duration = Duration::from_millis(50);

/// Buffers that a unit keeps, for packets that functions make.
const BUFFERS: usize = 64;

/// What a unit's thread works with.
pub(super) struct Worker {
    pub id: UnitId,
    pub unit: Unit<ChainEngine>,
    pub inbox: rtrb::Consumer<ToUnit>,
    pub mails: Receiver<Mail>,
    pub mailboxes: Vec<Mailbox>,
    /// Mails of all units that have not been dealt with.
    pub under_way: Arc<AtomicU64>,
    pub returns: SyncSender<Box<Return>>,
    pub bell: Arc<Bell>,
    /// Where its figures go.
    pub board: FiguresBoard,
}

/// What is left of a unit.
pub(super) struct Left {
    pub chain: Box<Chain>,
    pub counters: Counters,
    /// Flows that it had when the run was over.
    pub flows_live: u64,
    /// States that came and could not be read or had no room: their flows began anew.
    pub states_lost: u64,
    /// How long it took to fetch states from other units.
    pub pulls: Histogram<u64>,
    /// How often its thread panicked, and went on.
    pub restarts: u64,
}

/// A worker that runs.
struct Running {
    worker: Worker,
    outbox: Outbox<Packet>,
    now_ns: u64,
    next: Box<Return>,
    /// What the last one said of how many packets are through, and of when there is something to
    /// do.
    told: (u64, u64),
    /// What is to be sent, in order: a state goes to another unit only behind what its packets
    /// brought about here.
    waiting: VecDeque<Sending>,
    /// One that came when the thread was about to sleep.
    early: Option<Mail>,
    /// Mails that were dealt with; what comes of them is not all sent yet.
    dealt_with: u64,
    /// States that were asked for, and when; how long others took to come.
    pulled: HashMap<FlowId, Instant>,
    pulls: Histogram<u64>,
    /// Packets that came, and those that went on to other units.
    received: u64,
    forwarded: u64,
    /// Packets that were lost where the thread panicked.
    lost: u64,
    restarts: u64,
    /// What the router has asked is not answered yet.
    is_asked: bool,
    /// The unit has panicked, and the router does not know it yet.
    has_failed: bool,
    /// What comes is thrown away.
    is_starting_over: bool,
    is_over: bool,
}

enum Sending {
    Return(Box<Return>),
    Mail(UnitId, Mail),
}

impl Worker {
    /// Works until the run is over.
    pub fn run(self) -> Left {
        self.bell.watch();
        let _processing = Processing::begin();
        let next = Box::new(Return { unit: self.id, is_ready: true, ..Return::default() });
        let mut running = Running {
            worker: self,
            outbox: Outbox::default(),
            now_ns: 0,
            next,
            told: (0, 0),
            waiting: VecDeque::new(),
            early: None,
            dealt_with: 0,
            pulled: HashMap::new(),
            pulls: new_histogram(),
            received: 0,
            forwarded: 0,
            lost: 0,
            restarts: 0,
            is_asked: false,
            has_failed: false,
            is_starting_over: false,
            is_over: false,
        };
        running.ship();
        let mut idle = 0;
        while !running.is_over {
            let worked = running.step_contained();
            idle = if worked { 0 } else { idle + 1 };
            running.rest(idle);
            // The router is gone: so is all that there is to do.
            running.is_over |= !worked && running.worker.inbox.is_abandoned();
        }
        running.end()
    }
}

/// Asks for the packets that lie in a part of the ring: the router's core has them still.
fn prefetch(given: &ReadChunk<'_, ToUnit>) {
    let (front, behind) = given.as_slices();
    for given in front.iter().chain(behind) {
        if let ToUnit::Packet(_, _, packet) = given {
            packet.prefetch();
        }
    }
}

impl Running {
    /// Does what there is to do, and says whether there was anything. If that panics, the thread
    /// goes on with what comes next: it does not take the others with it.
    fn step_contained(&mut self) -> bool {
        match catch_unwind(AssertUnwindSafe(|| self.step())) {
            Ok(worked) => worked,
            Err(panic) if self.restarts >= RESTARTS_MAX => resume_unwind(panic),
            Err(_) => {
                self.restarts += 1;
                self.has_failed = true;
                self.next.has_answered |= std::mem::take(&mut self.is_asked);
                true
            }
        }
    }

    /// Does what there is to do, and says whether there was anything.
    fn step(&mut self) -> bool {
        let mut work = 0;
        if let Some(mail) = self.early.take() {
            work += 1;
            self.mail(mail);
        }
        while work < CHUNK
            && let Ok(mail) = self.worker.mails.try_recv()
        {
            work += 1;
            self.mail(mail);
        }
        let count = self.worker.inbox.slots().min(CHUNK);
        work += count;
        self.worker.inbox.read_chunk(count).iter().for_each(prefetch);
        for _ in 0..count {
            if let Ok(given) = self.worker.inbox.pop() {
                self.take(given);
            }
        }
        if std::mem::take(&mut self.has_failed) {
            self.next.has_failed = true;
            self.ship();
        } else if work > 0 || !self.waiting.is_empty() {
            self.ship();
        }
        work > 0
    }

    /// Nothing was found to do so many times.
    fn rest(&mut self, idle: u32) {
        match idle {
            0..LOOKS => std::hint::spin_loop(),
            _ if idle < 2 * LOOKS || !self.waiting.is_empty() => std::thread::yield_now(),
            _ => self.sleep(),
        }
    }

    fn sleep(&mut self) {
        self.worker.bell.lie_down();
        match self.worker.mails.try_recv() {
            Ok(mail) => self.early = Some(mail),
            Err(_) if self.worker.inbox.is_empty() => std::thread::park_timeout(SLEEP),
            Err(_) => {}
        }
        self.worker.bell.get_up();
    }

    fn take(&mut self, given: ToUnit) {
        let unit = &mut self.worker.unit;
        self.is_asked = matches!(given, ToUnit::Step(_) | ToUnit::Answer | ToUnit::StartOver | ToUnit::GoOn);
        match given {
            ToUnit::StartOver => {
                self.start_over();
                self.answer();
            }
            ToUnit::GoOn => {
                self.is_starting_over = false;
                self.answer();
            }
            ToUnit::Packet(..) if self.is_starting_over => self.throw_away(),
            ToUnit::Message(..) if self.is_starting_over => {}
            ToUnit::Time(now_ns) => self.pass_time(now_ns),
            ToUnit::Step(now_ns) => {
                self.pass_time(now_ns);
                self.answer();
            }
            ToUnit::Answer => self.answer(),
            ToUnit::Packet(now_ns, stamp, packet) => {
                self.now_ns = now_ns;
                self.received += 1;
                unit.packet(now_ns, stamp, packet, &mut self.outbox);
                self.collect();
            }
            ToUnit::Message(now_ns, message) => {
                self.now_ns = now_ns;
                unit.receive(now_ns, None, message, &mut self.outbox);
                self.collect();
            }
            ToUnit::Control(stage, command) => {
                let engine = unit.engine_mut();
                engine.flush();
                control(&mut engine.chain, stage, &command);
            }
            ToUnit::Figures => self.tell_figures(),
            ToUnit::Finish => self.is_over = true,
        }
    }

    fn answer(&mut self) {
        self.ship_return();
        self.next.has_answered = true;
        self.is_asked = false;
    }

    /// A thread has panicked, this one or another: flows and what is on its way between units are
    /// given up.
    fn start_over(&mut self) {
        self.is_starting_over = true;
        self.outbox = Outbox::default();
        self.pulled.clear();
        self.worker.unit.start_over();
        let engine = self.worker.unit.engine_mut();
        let lost = self.received - self.forwarded - self.lost - engine.through;
        self.lost += lost;
        self.next.lost += lost;
        engine.start_over(lost);
    }

    /// A packet that comes while the unit starts over.
    fn throw_away(&mut self) {
        self.received += 1;
        self.lost += 1;
        self.next.lost += 1;
        self.worker.unit.engine_mut().start_over(1);
    }

    fn tell_figures(&mut self) {
        let counters = *self.worker.unit.counters();
        let engine = self.worker.unit.engine_mut();
        engine.flush();
        let figures = Figures::of(&engine.chain, &counters, engine.states_lost, &self.pulls);
        *self.worker.board.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    fn mail(&mut self, mail: Mail) {
        self.dealt_with += 1;
        let unit = &mut self.worker.unit;
        match mail {
            Mail::Packet(..) if self.is_starting_over => self.throw_away(),
            Mail::Message(..) if self.is_starting_over => {}
            Mail::Message(from, message) => {
                // What was asked for: it comes, or there is none.
                let asked = match &message {
                    Message::State { flow, .. } | Message::End { flow } => self.pulled.remove(flow),
                    _ => None,
                };
                let is_state = matches!(message, Message::State { .. });
                unit.engine_mut().is_handed = is_state;
                unit.receive(self.now_ns, Some(from), message, &mut self.outbox);
                unit.engine_mut().is_handed = false;
                if let Some(asked) = asked.filter(|_| is_state) {
                    self.pulls.saturating_record(asked.elapsed().as_nanos() as u64);
                }
            }
            Mail::Packet(stamp, packet) => {
                self.received += 1;
                unit.packet(self.now_ns, stamp, packet, &mut self.outbox);
            }
        }
        self.collect();
    }

    fn pass_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let unit = &mut self.worker.unit;
        unit.engine_mut().advance(now_ns);
        if unit.due_ns() <= now_ns {
            unit.advance(now_ns, &mut self.outbox);
            self.collect();
        }
    }

    /// Takes what the unit wants sent.
    fn collect(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        if !self.outbox.to_units.is_empty() || !self.outbox.forwarded.is_empty() {
            for (_, message) in &self.outbox.to_units {
                match message {
                    Message::State { flow, .. } => self.worker.unit.engine_mut().sent(*flow),
                    Message::Pull { flow, .. } => {
                        self.pulled.insert(*flow, Instant::now());
                    }
                    _ => {}
                }
            }
            // What packets brought about here goes before; and the router is to know then that
            // there is more.
            self.ship_return();
            let mails = self.outbox.to_units.len() + self.outbox.forwarded.len();
            self.worker.under_way.fetch_add(mails as u64, Ordering::Release);
        }
        self.next.messages.append(&mut self.outbox.to_router);
        let id = self.worker.id;
        for (to, message) in self.outbox.to_units.drain(..) {
            self.waiting.push_back(Sending::Mail(to, Mail::Message(id, message)));
        }
        debug_assert!(self.outbox.to_all.is_empty(), "copies go to units that are named");
        for (to, stamp, packet) in self.outbox.forwarded.drain(..) {
            self.forwarded += 1;
            self.waiting.push_back(Sending::Mail(to, Mail::Packet(stamp, packet)));
        }
        let ChainEngine { chain, pool, through, .. } = self.worker.unit.engine_mut();
        for (why, _, packet) in self.outbox.dropped.drain(..) {
            *through += 1;
            // Nothing is lost on the way, and there are never as many packets under way as may
            // wait: so none comes twice, or finds no room.
            let reason = match why {
                Dropped::Ended => DropReason::FlowEnded,
                Dropped::Old | Dropped::Full | Dropped::Refused => DropReason::Internal,
            };
            chain.drop_admitted(packet, reason, pool);
        }
    }

    /// Tells the router what has become of packets, and others what is for them.
    fn ship(&mut self) {
        self.ship_return();
        while let Some(sending) = self.waiting.pop_front() {
            if let Some(sending) = self.send(sending) {
                return self.waiting.push_front(sending);
            }
        }
        if self.dealt_with > 0 {
            self.worker.under_way.fetch_sub(std::mem::take(&mut self.dealt_with), Ordering::Release);
        }
    }

    fn ship_return(&mut self) {
        self.take_changes();
        let unit_due_ns = self.worker.unit.due_ns();
        let engine = self.worker.unit.engine_mut();
        let next = &mut self.next;
        next.out.append(&mut engine.out);
        engine.pool.take_surplus(BUFFERS, &mut next.buffers);
        engine.pool.fill(BUFFERS);
        let effects = engine.chain.effects_mut();
        if !(effects.alerts.is_empty() && effects.events.is_empty() && effects.reports.is_empty()) {
            next.effects = Some(Box::new(effects.take()));
        }
        next.through = self.lost + engine.through;
        next.due_ns = engine.chain.due_ns().min(unit_due_ns);
        if !next.is_empty(self.told) {
            self.told = (next.through, next.due_ns);
            let empty = Box::new(Return { unit: self.worker.id, ..Return::default() });
            self.waiting.push_back(Sending::Return(std::mem::replace(&mut self.next, empty)));
        }
    }

    /// What became of flows in the chain.
    fn take_changes(&mut self) {
        let engine = self.worker.unit.engine_mut();
        engine.flush();
        let mut changes = std::mem::take(engine.chain.changes_mut());
        let mut ended = std::mem::take(&mut engine.without_flow);
        for change in changes.drain(..) {
            let engine = self.worker.unit.engine();
            ended.extend(self.next.note(change, |home| engine.flow_at(home)));
        }
        for home in ended.drain(..) {
            let engine = self.worker.unit.engine();
            if let Some(flow) = engine.flow_at(home).filter(|_| !engine.has(home)) {
                self.worker.unit.propose_end(self.now_ns, flow, &mut self.outbox);
                self.next.messages.append(&mut self.outbox.to_router);
            }
        }
        let engine = self.worker.unit.engine_mut();
        *engine.chain.changes_mut() = changes;
        engine.without_flow = ended;
    }

    /// Sends; gives back what finds no room.
    fn send(&mut self, sending: Sending) -> Option<Sending> {
        match sending {
            Sending::Return(back) => match self.worker.returns.try_send(back) {
                Ok(()) => None,
                Err(TrySendError::Full(back)) => Some(Sending::Return(back)),
                Err(TrySendError::Disconnected(_)) => None, // The router is gone.
            },
            Sending::Mail(to, mail) => {
                let mailbox = self.worker.mailboxes.get(to.index())?;
                match mailbox.sender.try_send(mail) {
                    Ok(()) => {
                        mailbox.bell.ring();
                        None
                    }
                    Err(TrySendError::Full(mail)) => Some(Sending::Mail(to, mail)),
                    Err(TrySendError::Disconnected(_)) => None, // It is over there, too.
                }
            }
        }
    }

    /// The run is over: all flows end.
    fn end(mut self) -> Left {
        let flows_live = self.worker.unit.engine().chain.counters().flows_live;
        let mut is_done = false;
        while !is_done {
            let ChainEngine { chain, pool, .. } = self.worker.unit.engine_mut();
            is_done = chain.finish(pool);
            chain.changes_mut().clear();
            self.ship();
            while !self.waiting.is_empty() && !self.worker.inbox.is_abandoned() {
                std::thread::yield_now();
                self.ship();
            }
        }
        let counters = *self.worker.unit.counters();
        let engine = self.worker.unit.into_engine();
        Left {
            chain: engine.chain,
            counters,
            flows_live,
            states_lost: engine.states_lost,
            pulls: self.pulls,
            restarts: self.restarts,
        }
    }
}

/// Carries out a command that the same function of another chain has understood.
pub(super) fn control(chain: &mut Chain, stage: usize, command: &str) {
    if let Some(function) = chain.stage_mut(stage) {
        let understood = function.control(command);
        debug_assert!(understood.is_ok(), "{understood:?}");
    }
}

/// Lets a unit's thread run on one core, counted from the second on, if there are more than two.
/// Where that is not allowed it runs anywhere.
pub(super) fn pin(unit: UnitId) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 {
        let mut set = rustix::thread::CpuSet::new();
        set.set(1 + unit.index() % (cores - 1));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
