//! Units on threads of their own: the same router and the same protocol as on one thread ([`crate::units`]), with rings in between.
//!
//! The thread that brings packets is the router's. Each unit has a chain of its own; what functions share beside counters, their
//! chains have in common (see [`nf::Common`]), so that a NAT's port is given once and a rate is that of all units together.
//! Packets of a flow leave in the order in which they came; those of different flows may not. One that is not a plain packet of a known
//! flow waits until all before it are through: it may be the answer to what one of them sent, and go by the alias that came of it, or
//! be the fragment behind it.
//!
//! ```text
//!            ring of packets and messages            one queue of what became of them
//! router ---------------------------------> unit 0 ------------------------------------> router -> out
//!        \--------------------------------> unit 1 --/
//!                                             | ^
//!                                             v |  states
//! ```
//!
//! Nothing is lost in between. The router lets [`IN_FLIGHT_MAX`] packets be under way, and every thread takes what comes to it
//! even if it cannot send: so nobody waits for one who waits for him.

mod engine;
mod lane;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use chain::{Chain, Way};
use hdrhistogram::Histogram;
use nf::{Common, Effects};
use packet::{Class, DropReason, Packet, Pool};
use proto::{Stamp, UnitId};
use router::{Arrival, Guess, Order, Routed, Router};
use unit::Unit;
use usage::{Epoch, Epochs};

use crate::report::{Report, new_histogram, percentiles};
use crate::units::{EPOCHS_MAX, FLOWS_MAX, UnitsConfig, UnitsReport, loads};
use engine::ChainEngine;
use lane::{Bell, Lane, Mail, Mailbox, Return, ToUnit};
pub use lane::{MAILS, RETURNS, RING};
use worker::{Left, Worker, control, pin};

/// The most units that run on threads of their own.
pub const THREADS_MAX: u16 = 64;

/// Packets that are with units at most. Then the router waits.
pub const IN_FLIGHT_MAX: u64 = 4096;

/// How often units hear what time it is that get packets, in nanoseconds of the run.
const TIME_NS: u64 = 100_000;

/// So far time goes by, in nanoseconds of the run, until nothing is under way, and units have done what is due. In a capture that is
/// played as fast as possible, minutes may pass while a state is under way, and it would be over before it is there.
const STEP_NS: u64 = 1_000_000;

/// Makes a chain of the policy's functions: for each unit one.
pub type Maker = Arc<dyn Fn() -> Result<Box<Chain>, String> + Send + Sync>;

/// The units of a machine on threads of their own, and their router.
pub struct Threads {
    config: UnitsConfig,
    make: Maker,
    /// What functions were commanded so far.
    commands: Vec<(usize, String)>,
    commons: Vec<Common>,
    router: Router,
    lanes: Vec<Option<Lane>>,
    mailboxes: Vec<Mailbox>,
    /// The other ends of these, of units that were not started yet.
    mails: Vec<Option<Receiver<Mail>>>,
    returned: Receiver<Box<Return>>,
    returns: SyncSender<Box<Return>>,
    left: Vec<Left>,
    epochs: Epochs,
    began_ns: Option<u64>,
    now_ns: u64,
    told_ns: u64,
    stepped_ns: u64,
    ns_per_byte: f64,
    /// Which flow each packet of a batch probably belongs to.
    guesses: Vec<Guess>,
    orders: Vec<Order>,
    /// Fragments that waited for their first one, which is through.
    again: Vec<Packet>,
    /// Packets that were given to units, ever, and of these those that are through.
    sent: u64,
    through: u64,
    flows_peak: u32,
    effects: Vec<Effects>,
    /// When batches came: by their first packets' numbers.
    batches: VecDeque<(u64, Instant)>,
    /// How long units took to start.
    starts_ns: Vec<u64>,
    /// Mails that units have for each other, and that those have not dealt with.
    mails_under_way: Arc<AtomicU64>,
    /// Units were told that the run is over.
    is_over: bool,
}

/// Units cannot be set up on threads.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The router refuses what it is told.
    #[error(transparent)]
    Router(#[from] router::RouterError),
    /// Too many units.
    #[error("up to {THREADS_MAX} units run on threads of their own, not {0}")]
    Units(u16),
    /// More flows than units can number.
    #[error(
        "units know up to {FLOWS_MAX} flows, and the policy asks for {0}: say `settings {{ flows: ... }}`"
    )]
    Flows(u32),
    /// A chain cannot be made.
    #[error("cannot make a chain for a unit: {0}")]
    Chain(String),
    /// A thread cannot be started.
    #[error("cannot start a thread for a unit: {0}")]
    Thread(#[from] std::io::Error),
}

impl Threads {
    /// Units that run chains like this one, which itself gets none of their packets. It has no flows yet.
    ///
    /// # Errors
    /// If the configuration makes no sense, or a thread cannot be started.
    pub fn new(config: UnitsConfig, front: &mut Chain, make: Maker) -> Result<Threads, ThreadsError> {
        if config.units_max > THREADS_MAX {
            return Err(ThreadsError::Units(config.units_max));
        }
        if front.options().flows_max > FLOWS_MAX {
            return Err(ThreadsError::Flows(front.options().flows_max));
        }
        let router = Router::new(config.router_of_threads(front.options()))?;
        let (returns, returned) = sync_channel(RETURNS);
        let (mailboxes, mails) = (0..config.units_max)
            .map(|_| {
                let (sender, receiver) = sync_channel(MAILS);
                (Mailbox { sender, bell: Arc::new(Bell::default()) }, Some(receiver))
            })
            .unzip();
        let mut epochs =
            Epochs::new(config.epoch_ns, u64::MAX, config.units_max, config.capacity_bps).keeping(EPOCHS_MAX);
        for number in 0..config.units_min {
            epochs.set_on(0, UnitId(number), true);
            epochs.set_ready(0, UnitId(number), true);
        }
        let mut threads = Threads {
            make,
            commands: Vec::new(),
            commons: front.share(),
            router,
            lanes: (0..config.units_max).map(|_| None).collect(),
            mailboxes,
            mails,
            returned,
            returns,
            left: Vec::new(),
            epochs,
            began_ns: None,
            now_ns: 0,
            told_ns: 0,
            stepped_ns: 0,
            ns_per_byte: 8e9 / config.capacity_bps as f64,
            guesses: Vec::new(),
            orders: Vec::new(),
            again: Vec::new(),
            sent: 0,
            through: 0,
            flows_peak: 0,
            effects: Vec::new(),
            batches: VecDeque::new(),
            starts_ns: Vec::new(),
            mails_under_way: Arc::default(),
            is_over: false,
            config,
        };
        for number in 0..config.units_min {
            let chain = (threads.make)().map_err(ThreadsError::Chain)?;
            threads.spawn(UnitId(number), Some(chain))?;
        }
        Ok(threads)
    }

    /// Gives packets to units, and takes what has become of others. `front` parses, and has what is of no flow.
    pub fn process(
        &mut self,
        front: &mut Chain,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        front.admit(batch);
        if let Some(first) = batch.first() {
            self.batches.push_back((first.meta().transit.sequence, Instant::now()));
        }
        batch.iter().for_each(|packet| self.router.prefetch(packet.meta().hash));
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.extend(batch.iter().map(|packet| self.router.guess(packet.meta().hash)));
        for (packet, guess) in batch.drain(..).zip(guesses.drain(..)) {
            self.packet(front, packet, guess, out, pool);
        }
        self.guesses = guesses;
        front.advance(self.now_ns, pool);
        self.tell_time();
        self.take_returns(front, out, pool);
        while self.is_full() {
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
    }

    /// Lets time pass, to get buffers back that wait for it.
    pub fn advance(&mut self, front: &mut Chain, now_ns: u64, out: &mut Vec<Packet>, pool: &mut Pool) {
        self.now_ns = self.now_ns.max(now_ns);
        self.pass_time();
        front.advance(self.now_ns, pool);
        self.step(front, out, pool);
    }

    /// Waits until every packet that was given to units is through.
    pub fn settle(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) {
        self.take_returns(front, out, pool);
        while self.sent > self.through {
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
    }

    /// The run is over: ends all flows, as far as there is room for what their ends bring about. False if it is to be called again,
    /// when that has been taken.
    pub fn finish(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) -> bool {
        if !self.is_over {
            // Once no flow is on its way, each ends at its unit.
            self.step(front, out, pool);
            if self.began_ns.is_some() {
                self.epochs.finish(self.since_ns(self.now_ns), self.router.counters().flowlets());
            }
            self.lanes.iter_mut().flatten().for_each(|lane| lane.push(ToUnit::Finish));
            self.is_over = true;
        }
        self.take_returns(front, out, pool);
        if self.lanes.iter().flatten().all(|lane| lane.thread.is_none()) {
            front.part();
            return true;
        }
        std::thread::yield_now();
        false
    }

    /// An operator's command to a function, which has understood it: to that of each unit, and of those that will be started.
    pub fn control(&mut self, stage: usize, command: &str) {
        self.commands.push((stage, command.to_owned()));
        for lane in self.lanes.iter_mut().flatten() {
            lane.push(ToUnit::Control(stage, command.into()));
        }
    }

    /// What units put out beside packets, to be taken.
    pub fn effects_mut(&mut self) -> &mut Vec<Effects> {
        &mut self.effects
    }

    /// What the units did.
    pub fn report(&self) -> UnitsReport {
        let counters = self.left.iter().map(|left| &left.counters);
        let report = UnitsReport::of(&self.config, self.router.counters(), counters, &self.epochs);
        let mut starts_ns = self.starts_ns.clone();
        starts_ns.sort_unstable();
        let mut pulls = new_histogram();
        for left in &self.left {
            let added = pulls.add(&left.pulls);
            debug_assert!(added.is_ok(), "all have the same bounds");
        }
        let pull_ns = (!pulls.is_empty()).then(|| percentiles(&pulls));
        let states_lost = Some(self.left.iter().map(|left| left.states_lost).sum());
        UnitsReport { start_ns: starts_ns.get(starts_ns.len() / 2).copied(), pull_ns, states_lost, ..report }
    }

    /// Adds what the units' chains have counted to a report, once the run is over.
    pub fn add_to(&self, report: &mut Report, names: &[String]) {
        for left in &self.left {
            let of_unit = Report::of(&report.policy, report.seed, &left.chain, names);
            report.add(of_unit);
            report.flows.live += left.flows_live;
        }
        report.flows.peak = u64::from(self.flows_peak).min(report.flows.started);
    }

    /// The epochs that are over.
    pub fn epochs(&self) -> &[Epoch] {
        self.epochs.done()
    }

    /// Each unit that runs: its load, as a share of its capacity, and its flows.
    pub fn loads(&self) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
        loads(&self.router, self.config.capacity_bps)
    }

    /// Time from when packets' batches came until now, when they leave.
    pub fn record(&mut self, out: &[Packet], latency: &mut Histogram<u64>) {
        let now = Instant::now();
        for packet in out {
            let sequence = packet.meta().transit.sequence;
            let batch = self.batches.partition_point(|&(first, _)| first <= sequence);
            if let Some(&(_, came)) = batch.checked_sub(1).and_then(|batch| self.batches.get(batch)) {
                let took_ns = now.duration_since(came).as_nanos().min(u128::from(u64::MAX));
                latency.saturating_record(took_ns as u64);
            }
        }
        // More batches than packets are under way there cannot be.
        let surplus = self.batches.len().saturating_sub(IN_FLIGHT_MAX as usize + 1);
        self.batches.drain(..surplus);
    }

    fn since_ns(&self, now_ns: u64) -> u64 {
        now_ns - self.began_ns.unwrap_or(now_ns)
    }

    /// Whether packets have to wait until others are through, or until there is room in rings.
    fn is_full(&self) -> bool {
        self.sent - self.through >= IN_FLIGHT_MAX
            || self.lanes.iter().flatten().any(|lane| !lane.waiting.is_empty())
    }

    /// A packet that was admitted.
    fn packet(
        &mut self,
        front: &mut Chain,
        packet: Packet,
        guess: Guess,
        out: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        if packet.meta().class == Class::NotIp && front.is_refused(&packet) {
            return front.process_aside(packet, out, pool);
        }
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        if self.now_ns >= self.stepped_ns.saturating_add(STEP_NS) {
            self.step(front, out, pool);
        }
        if self.now_ns >= self.router.due_ns() || self.began_ns.is_none() {
            self.pass_time();
        }
        let meta = packet.meta();
        self.epochs.came(meta.wire_len);
        let arrival = Arrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        if meta.class == Class::Whole
            && let Some((unit, stamp)) = self.router.route_on(self.now_ns, arrival, guess)
        {
            return self.give(unit, stamp, packet, front, pool);
        }
        self.route(front, packet, out, pool);
    }

    /// Gives a packet to the unit that it is for.
    fn route(&mut self, front: &mut Chain, mut packet: Packet, out: &mut Vec<Packet>, pool: &mut Pool) {
        let (class, meta) = (packet.meta().class, packet.meta());
        let is_known = class == Class::Whole && self.router.flow(meta.hash, &meta.key).is_some();
        if !is_known {
            self.settle(front, out, pool);
        }
        let way = match class {
            Class::Whole => Way::Flow { key: packet.meta().key, hash: packet.meta().hash },
            _ => front.way(&mut packet, pool),
        };
        let meta = packet.meta();
        let (key, hash) = match way {
            Way::Flow { key, hash } => (key, hash),
            Way::Either { .. } if self.router.flow(meta.hash, &meta.key).is_some() => (meta.key, meta.hash),
            Way::Either { key, hash } => (key, hash),
            Way::Aside => return front.process_aside(packet, out, pool),
        };
        let arrival = Arrival { key: &key, hash, len: packet.meta().wire_len };
        let routed = self.router.route(self.now_ns, arrival, &mut self.orders);
        if !is_known {
            self.flows_peak = self.flows_peak.max(self.router.flows());
        }
        self.carry_out();
        let Routed::To { unit, stamp } = routed else {
            return front.drop_admitted(packet, DropReason::FlowTableFull, pool);
        };
        self.give(unit, stamp, packet, front, pool);
    }

    /// Gives a packet to its unit.
    #[inline]
    fn give(&mut self, unit: UnitId, stamp: Stamp, packet: Packet, front: &mut Chain, pool: &mut Pool) {
        let work_ns = (f64::from(packet.meta().wire_len) * self.ns_per_byte) as u64;
        let Some(lane) = &mut self.lanes[unit.index()] else {
            return front.drop_admitted(packet, DropReason::Internal, pool); // Those that get packets have threads.
        };
        lane.is_used = true;
        lane.push(ToUnit::Packet(self.now_ns, stamp, packet));
        self.sent += 1;
        self.epochs.given(unit, work_ns);
        self.epochs.processed();
    }

    /// Does what is due by now.
    fn pass_time(&mut self) {
        let began_ns = *self.began_ns.get_or_insert(self.now_ns);
        self.epochs.pass(self.now_ns - began_ns, self.router.counters().flowlets());
        self.router.advance(self.now_ns, &mut self.orders);
        self.carry_out();
    }

    /// Lets units know what time it is.
    fn tell_time(&mut self) {
        if self.now_ns < self.told_ns.saturating_add(TIME_NS) {
            return;
        }
        self.told_ns = self.now_ns;
        for lane in self.lanes.iter_mut().flatten() {
            if std::mem::take(&mut lane.is_used) {
                lane.push(ToUnit::Time(self.now_ns));
            }
        }
    }

    /// Lets time go on for units that have something to do by now, when nothing is under way: no packet, no message, no state. A flow
    /// whose time is over ends where it is, then, and nowhere else.
    fn step(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) {
        self.settle(front, out, pool);
        self.stepped_ns = self.now_ns;
        self.ask(|lane| std::mem::take(&mut lane.has_messages).then_some(ToUnit::Answer));
        self.await_answers(front, out, pool);
        let now_ns = self.now_ns;
        self.ask(|lane| (lane.due_ns <= now_ns).then_some(ToUnit::Step(now_ns)));
        self.await_answers(front, out, pool);
    }

    /// Gives units something that they answer.
    fn ask(&mut self, question: impl Fn(&mut Lane) -> Option<ToUnit>) {
        for lane in self.lanes.iter_mut().flatten().filter(|lane| lane.is_ready) {
            if let Some(question) = question(lane) {
                lane.is_behind = true;
                lane.push(question);
            }
        }
    }

    /// Waits until units have answered, and until what they have for each other has come.
    fn await_answers(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) {
        let is_behind = |threads: &Threads| threads.lanes.iter().flatten().any(|lane| lane.is_behind);
        self.take_returns(front, out, pool);
        while is_behind(self) || self.mails_under_way.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
        // What units sent before they had dealt with the last mail.
        self.take_returns(front, out, pool);
    }

    /// Carries out the router's orders.
    fn carry_out(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            let since_ns = self.since_ns(self.now_ns);
            match order {
                Order::Send { to, message } => {
                    if let Some(lane) = &mut self.lanes[to.index()] {
                        lane.has_messages = true;
                        lane.push(ToUnit::Message(self.now_ns, message));
                    }
                }
                Order::Start(unit) => self.start(unit),
                Order::Stop(unit) => {
                    self.epochs.set_ready(since_ns, unit, false);
                    self.epochs.set_on(since_ns, unit, false);
                }
            }
        }
        self.orders = orders;
    }

    /// Starts a unit. One that was stopped before still has its thread, which sleeps. If there can be no thread the others go on
    /// without it.
    fn start(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        match &mut self.lanes[unit.index()] {
            Some(lane) => {
                if lane.is_ready {
                    self.epochs.set_on(since_ns, unit, true);
                    self.set_ready(unit);
                }
            }
            None => {
                if self.spawn(unit, None).is_ok() {
                    self.epochs.set_on(since_ns, unit, true);
                }
            }
        }
    }

    fn set_ready(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        self.epochs.set_ready(since_ns, unit, true);
        self.router.started(self.now_ns, unit);
    }

    /// Starts a unit's thread, which makes its chain if there is none yet.
    fn spawn(&mut self, id: UnitId, chain: Option<Box<Chain>>) -> std::io::Result<()> {
        let (ring, inbox) = rtrb::RingBuffer::new(RING);
        let Some(mails) = self.mails[id.index()].take() else { return Ok(()) };
        let (mailboxes, returns) = (self.mailboxes.clone(), self.returns.clone());
        let (make, commons, commands) = (Arc::clone(&self.make), self.commons.clone(), self.commands.clone());
        let bell = Arc::clone(&self.mailboxes[id.index()].bell);
        let (config, rung, under_way) = (self.config, Arc::clone(&bell), Arc::clone(&self.mails_under_way));
        let work = move || {
            pin(id);
            let mut chain = match chain {
                Some(chain) => chain,
                None => make().ok()?,
            };
            chain.join(commons);
            commands.iter().for_each(|(stage, command)| control(&mut chain, *stage, command));
            let slots = config.router_of_threads(chain.options()).flows_max;
            let unit = Unit::new(config.unit_on_thread(id), ChainEngine::new(chain, slots));
            Some(Worker { id, unit, inbox, mails, mailboxes, under_way, returns, bell: rung }.run())
        };
        let thread = std::thread::Builder::new().name(format!("unit-{}", id.0)).spawn(work)?;
        self.lanes[id.index()] = Some(Lane {
            ring,
            bell,
            thread: Some(thread),
            waiting: VecDeque::new(),
            is_used: false,
            is_behind: false,
            has_messages: false,
            due_ns: 0,
            ordered: Instant::now(),
            is_ready: false,
            through: 0,
        });
        Ok(())
    }

    /// Takes what units have sent.
    fn take_returns(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) {
        self.lanes.iter_mut().flatten().for_each(Lane::pump);
        while let Ok(back) = self.returned.try_recv() {
            self.take(*back, front, out, pool);
        }
        let mut failed = None;
        for (unit, lane) in (0..).map(UnitId).zip(&mut self.lanes) {
            let Some(lane) = lane else { continue };
            if lane.thread.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(thread) = lane.thread.take()
            {
                match thread.join() {
                    Ok(Some(left)) => self.left.push(left),
                    Ok(None) => failed = Some(unit),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
        // It could not be started: the others go on without it.
        if let Some(unit) = failed {
            self.lanes[unit.index()] = None;
            let since_ns = self.since_ns(self.now_ns);
            self.epochs.set_on(since_ns, unit, false);
        }
        // What a thread sent right before it ended.
        while let Ok(back) = self.returned.try_recv() {
            self.take(*back, front, out, pool);
        }
        for packet in std::mem::take(&mut self.again) {
            self.route(front, packet, out, pool);
        }
    }

    /// What has become of packets at a unit.
    fn take(&mut self, back: Return, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut Pool) {
        let Return {
            unit,
            is_ready,
            aliases,
            fragments,
            messages,
            out: leaving,
            buffers,
            effects,
            through,
            due_ns,
            has_answered,
        } = back;
        if is_ready && let Some(lane) = &mut self.lanes[unit.index()] {
            lane.is_ready = true;
            self.starts_ns.push(lane.ordered.elapsed().as_nanos() as u64);
            self.set_ready(unit);
        }
        // Known to the router before the packet that created it leaves (DESIGN 3.8). The unit's chain has looked among its own flows
        // only: if one at another unit has the key, the one that came last gets it.
        for (flow, key, hash) in aliases {
            self.router.take_alias(flow, &key, hash, &mut self.orders);
        }
        for (datagram, passed, at_ns) in fragments {
            front.learn_first(datagram, passed, at_ns, &mut self.again);
        }
        for message in messages {
            self.router.receive(self.now_ns, unit, message, &mut self.orders);
        }
        self.carry_out();
        out.extend(leaving);
        buffers.into_iter().for_each(|packet| pool.give(packet));
        self.effects.extend(effects.map(|effects| *effects));
        if let Some(lane) = &mut self.lanes[unit.index()] {
            self.through += through - lane.through;
            lane.through = through;
            lane.due_ns = due_ns;
        }
        if has_answered && let Some(lane) = &mut self.lanes[unit.index()] {
            lane.is_behind = false;
        }
    }
}
