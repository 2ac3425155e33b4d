//! Units on threads of their own: the same router and the same protocol as on one thread
//! ([`crate::units`]), with rings in between.
//!
//! The thread that brings packets is the router's. Each unit has a chain of its own; what functions
//! share beside counters, their chains have in common (see [`nf::SharedHandle`]), so that a NAT's port is
//! given once and a rate is that of all units together. Packets of a flow leave in the order in
//! which they came; those of different flows may not. One that is not a plain packet of a known
//! flow waits until all before it are through: it may be the answer to what one of them sent, and
//! go by the alias that came of it, or be the fragment behind it.
//!
//! ```text
//!            ring of packets and messages            one queue of what became of them
//! router ---------------------------------> unit 0 ------------------------------------> router -> out
//!        \--------------------------------> unit 1 --/
//!                                             | ^
//!                                             v |  states
//! ```
//!
//! Nothing is lost in between. The router lets [`IN_FLIGHT_MAX`] packets be under way, and every
//! thread takes what comes to it even if it cannot send: so nobody waits for one who waits for him.

mod engine;
mod figures;
mod lane;
mod orders;
mod returning;
mod routing;
mod time;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use graph::Chain;
use hdrhistogram::Histogram;
use nf::{Effects, SharedHandle};
use packet::{Packet, PacketPool};
use protocol::dispatcher::{Guess, Order, Router};
use protocol::message::UnitId;
use protocol::metering::Epochs;

use crate::backend::{Backend, Core};
use crate::report::Report;
use crate::units::{EPOCHS_MAX, FLOWS_MAX, UnitsConfig};
use crate::work::Work;
use lane::{Bell, Lane, Mail, Mailbox, Return, ToUnit};
pub use lane::{MAILS, RETURNS, RING};
use worker::Left;

/// The most units that run on threads of their own.
pub const THREADS_MAX: u16 = 64;

/// Packets that are with units at most. Then the router waits.
pub const IN_FLIGHT_MAX: u64 = 4096;

/// How often units hear what time it is that get packets, in nanoseconds of the run.
const TIME_NS: u64 = 100_000;

/// So far time goes by, in nanoseconds of the run, until nothing is under way, and units have done
/// what is due. In a capture that is played as fast as possible, minutes may pass while a state is
/// under way, and it would be over before it is there.
const STEP_NS: u64 = 1_000_000;

/// Makes a chain of the policy's functions: for each unit one.
pub type Maker = Arc<dyn Fn() -> Result<Box<Chain>, String> + Send + Sync>;

/// The units of a machine on threads of their own, and their router.
pub struct Threads {
    config: UnitsConfig,
    make: Maker,
    /// What functions were commanded so far.
    commands: Vec<(usize, String)>,
    commons: Vec<SharedHandle>,
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
    work: Work,
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
    /// A unit has panicked: all start over.
    has_failed: bool,
    /// They are doing so.
    is_starting_over: bool,
}

/// Units cannot be set up on threads.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The router refuses what it is told.
    #[error(transparent)]
    Router(#[from] protocol::dispatcher::RouterError),
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
    /// Units that run chains like this one, which itself gets none of their packets. It has no
    /// flows yet.
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
            work: Work::at(config.capacity_bps),
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
            has_failed: false,
            is_starting_over: false,
            config,
        };
        for number in 0..config.units_min {
            let chain = (threads.make)().map_err(ThreadsError::Chain)?;
            threads.spawn(UnitId(number), Some(chain))?;
        }
        Ok(threads)
    }

    /// Gives packets to units, and takes what has become of others. `front` parses, and has what is
    /// of no flow.
    pub fn process(
        &mut self,
        front: &mut Chain,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        front.admit(batch, |_| {});
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
        while self.is_full() || self.has_failed {
            if self.has_failed {
                self.start_over(front, out, pool);
            }
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
    }

    /// Lets time pass, to get buffers back that wait for it.
    pub fn advance(&mut self, front: &mut Chain, now_ns: u64, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        self.now_ns = self.now_ns.max(now_ns);
        self.pass_time();
        front.advance(self.now_ns, pool);
        self.step(front, out, pool);
    }

    /// Whether packets are at units.
    pub fn has_under_way(&self) -> bool {
        self.sent > self.through
    }

    /// Waits until every packet that was given to units is through.
    pub fn settle(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        self.take_returns(front, out, pool);
        while self.sent > self.through || self.has_failed {
            if self.has_failed {
                self.start_over(front, out, pool);
            }
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
    }

    /// The run is over: ends all flows, as far as there is room for what their ends bring about.
    /// False if it is to be called again, when that has been taken.
    pub fn finish(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) -> bool {
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

    /// An operator's command to a function, which has understood it: to that of each unit, and of
    /// those that will be started.
    pub fn control(&mut self, stage: usize, command: &str) {
        self.commands.push((stage, command.to_owned()));
        for lane in self.lanes.iter_mut().flatten() {
            lane.push(ToUnit::Control(stage, command.into()));
        }
    }

    fn since_ns(&self, now_ns: u64) -> u64 {
        now_ns - self.began_ns.unwrap_or(now_ns)
    }

    /// Whether packets have to wait until others are through, or until there is room in rings.
    fn is_full(&self) -> bool {
        self.sent.saturating_sub(self.through) >= IN_FLIGHT_MAX
            || self.lanes.iter().flatten().any(|lane| !lane.waiting.is_empty())
    }
}

impl Backend for Threads {
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        Threads::process(self, core.chain, batch, core.out, core.pool);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        self.advance(core.chain, now_ns, core.out, core.pool);
    }

    fn has_pending(&self) -> bool {
        self.has_under_way()
    }

    fn settle(&mut self, core: Core<'_>) {
        Threads::settle(self, core.chain, core.out, core.pool);
    }

    fn finish(&mut self, core: Core<'_>) -> bool {
        Threads::finish(self, core.chain, core.out, core.pool)
    }

    fn control(&mut self, stage: usize, command: &str) {
        Threads::control(self, stage, command);
    }

    fn ask_for_figures(&mut self) {
        Threads::ask_for_figures(self);
    }

    fn add_to_report(&self, report: &mut Report, names: &[String]) {
        report.units = Some(self.report());
        self.add_live(report);
        self.add_to(report, names);
    }

    fn effects_mut(&mut self) -> Option<&mut Vec<Effects>> {
        Some(&mut self.effects)
    }

    fn is_deferred(&self) -> bool {
        true
    }

    fn record_latency(&mut self, out: &[Packet], latency: &mut Histogram<u64>) {
        self.record(out, latency);
    }
}
