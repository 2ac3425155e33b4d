//! A unit's thread: hands the unit what arrives, sends what it sends, and sleeps in between.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use protocol::message::UnitId;
use rtrb::chunks::ReadChunk;
use telemetry::event;

use super::super::Return;
use super::super::lane::Mailbox;
use super::super::unit_end::{FiguresBoard, Left, Mail, Sending, ToUnit, UnitEnd, lock};
use crate::doorbell::{Doorbell, ThreadWaker};
use crate::panics::{Processing, RESTARTS_MAX};

/// Packets and messages taken per turn.
const CHUNK: usize = 64;

/// Looks for work before a thread yields, and again before it parks.
const LOOKS: u32 = 64;

/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(50);

/// A unit's thread.
pub(super) struct UnitThread {
    pub end: UnitEnd,
    pub inbox: rtrb::Consumer<ToUnit>,
    pub mails: Receiver<Mail>,
    pub mailboxes: Vec<Mailbox>,
    /// Messages between all units that have not been handled.
    pub in_flight: Arc<AtomicU64>,
    pub returns: SyncSender<Box<Return>>,
    pub doorbell: Arc<Doorbell<ThreadWaker>>,
    /// Receives the unit's counters.
    pub board: FiguresBoard,
}

/// State of the loop.
#[derive(Default)]
struct Loop {
    /// A message that arrived when the thread was about to sleep.
    early: Option<Mail>,
    restarts: u64,
    has_failed: bool,
}

/// Returns nanoseconds since the first call.
pub(super) fn clock_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl UnitThread {
    /// Works until the run ends.
    pub fn run(mut self) -> Left {
        self.doorbell.waker().set_current();
        let _processing = Processing::begin();
        let mut state = Loop::default();
        self.send_all();
        let mut idle = 0;
        let mut is_abandoned = false;
        while !self.end.is_finished() && !is_abandoned {
            let worked = self.step_contained(&mut state);
            idle = if worked { 0 } else { idle + 1 };
            self.rest(idle, &mut state);
            // Without the dispatcher there is no work.
            is_abandoned = !worked && self.inbox.is_abandoned();
        }
        self.finish(state.restarts)
    }

    /// Handles pending work, and returns whether there was any. After a panic the thread continues
    /// with the next work; the others are not affected.
    fn step_contained(&mut self, state: &mut Loop) -> bool {
        match catch_unwind(AssertUnwindSafe(|| self.step(state))) {
            Ok(worked) => worked,
            Err(panic) if state.restarts >= RESTARTS_MAX => resume_unwind(panic),
            Err(_) => {
                state.restarts += 1;
                event::unit_restarted(state.restarts);
                state.has_failed = true;
                self.end.fail();
                true
            }
        }
    }

    /// Handles pending work, and returns whether there was any.
    fn step(&mut self, state: &mut Loop) -> bool {
        let mut work = 0;
        if let Some(mail) = state.early.take() {
            work += 1;
            self.handle_mail(mail);
        }
        while work < CHUNK
            && let Ok(mail) = self.mails.try_recv()
        {
            work += 1;
            self.handle_mail(mail);
        }
        let count = self.inbox.slots().min(CHUNK);
        work += count;
        self.inbox.read_chunk(count).iter().for_each(prefetch);
        for _ in 0..count {
            if let Ok(given) = self.inbox.pop() {
                if let Some(figures) = self.end.handle_asked(given) {
                    *lock(&self.board) = Some(figures);
                }
                self.note_sent();
            }
        }
        if std::mem::take(&mut state.has_failed) || work > 0 || self.end.is_blocked() {
            self.end.report();
            self.send_all();
        }
        work > 0
    }

    fn handle_mail(&mut self, mail: Mail) {
        self.end.handle_mail(mail);
        self.note_sent();
    }

    /// Counts messages before others can see that their cause was handled.
    fn note_sent(&mut self) {
        let sent = self.end.take_sent();
        if sent > 0 {
            self.in_flight.fetch_add(sent, Ordering::Release);
        }
    }

    /// Rests after `idle` looks without work.
    fn rest(&mut self, idle: u32, state: &mut Loop) {
        match idle {
            0..LOOKS => std::hint::spin_loop(),
            _ if idle < 2 * LOOKS || self.end.is_blocked() => std::thread::yield_now(),
            _ => self.sleep(state),
        }
    }

    fn sleep(&mut self, state: &mut Loop) {
        self.doorbell.park();
        match self.mails.try_recv() {
            Ok(mail) => state.early = Some(mail),
            Err(_) if self.inbox.is_empty() => std::thread::park_timeout(SLEEP),
            Err(_) => {}
        }
        self.doorbell.unpark();
    }

    /// Sends as much as there is room for.
    fn send_all(&mut self) {
        while let Some(sending) = self.end.poll() {
            if let Some(sending) = self.send(sending) {
                return self.end.push_back(sending);
            }
        }
        let handled = self.end.take_handled();
        if handled > 0 {
            self.in_flight.fetch_sub(handled, Ordering::Release);
        }
    }

    /// Sends; returns the message if there is no room.
    fn send(&mut self, sending: Sending) -> Option<Sending> {
        match sending {
            Sending::Return(report) => match self.returns.try_send(report) {
                Ok(()) => None,
                Err(TrySendError::Full(report)) => Some(Sending::Return(report)),
                Err(TrySendError::Disconnected(_)) => None, // The dispatcher is gone.
            },
            Sending::Mail(to, mail) => {
                let mailbox = self.mailboxes.get(to.index())?;
                match mailbox.sender.try_send(mail) {
                    Ok(()) => {
                        mailbox.doorbell.ring();
                        None
                    }
                    Err(TrySendError::Full(mail)) => Some(Sending::Mail(to, mail)),
                    Err(TrySendError::Disconnected(_)) => None, // That unit has finished, too.
                }
            }
        }
    }

    /// Ends all flows.
    fn finish(mut self, restarts: u64) -> Left {
        let flows_live = self.end.flows_live();
        let mut is_done = false;
        while !is_done {
            is_done = self.end.end_flows();
            self.send_all();
            while self.end.is_blocked() && !self.inbox.is_abandoned() {
                std::thread::yield_now();
                self.send_all();
            }
        }
        self.end.into_left(flows_live, restarts)
    }
}

/// Prefetches the packets in a part of the ring from the cache of the dispatcher's core.
fn prefetch(given: &ReadChunk<'_, ToUnit>) {
    let (front, behind) = given.as_slices();
    for given in front.iter().chain(behind) {
        if let ToUnit::Packet(_, _, packet) = given {
            packet.prefetch();
        }
    }
}

/// Pins a unit's thread to a core, from the second one on, if there are more than two. Without
/// permission it runs on any core.
pub(super) fn pin(unit: UnitId) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 {
        let mut set = rustix::thread::CpuSet::new();
        set.set(1 + unit.index() % (cores - 1));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
