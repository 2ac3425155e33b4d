//! What goes between the router's thread and those of units, and how a thread that sleeps is woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use graph::{Change, Datagram};
use nf::Effects;
use packet::{FlowKey, Packet};
use protocol::message::{FlowId, Message, Stamp, UnitId};

use super::figures::FiguresBoard;
use super::worker::Left;

/// Packets and messages on their way from the router to a unit at most. More wait at the router.
pub const RING: usize = 1024;

/// Messages on their way to a unit from others at most. More wait at those.
pub const MAILS: usize = 256;

/// Batches on their way from units to the router at most. More wait at the units.
pub const RETURNS: usize = 256;

/// From the router to a unit, in order, with the time of the run.
#[allow(clippy::large_enum_variant)] // They lie in a ring, nearly all of them packets.
pub(super) enum ToUnit {
    /// Time goes by.
    Time(u64),
    /// The same; to be answered.
    Step(u64),
    /// To be answered.
    Answer,
    /// A packet.
    Packet(u64, Stamp, Packet),
    /// A message.
    Message(u64, Message),
    /// A command to the function with this number in the chain.
    Control(usize, Box<str>),
    /// What was counted is to be put on the board.
    Figures,
    /// All flows are over, and what comes until [`ToUnit::GoOn`] is thrown away; to be answered.
    StartOver,
    /// All have started over, and nothing is under way between them: the unit goes on; to be
    /// answered.
    GoOn,
    /// The run is over: what is left ends.
    Finish,
}

/// From a unit to a unit.
pub(super) enum Mail {
    /// A message.
    Message(UnitId, Message),
    /// A packet whose flow has gone on.
    Packet(Stamp, Packet),
}

/// From a unit to the router: what became of some packets. In the order of the fields: so the
/// router knows what a packet brought about before it leaves.
#[derive(Default)]
pub(super) struct Return {
    /// Which unit it is.
    pub unit: UnitId,
    /// It has just started.
    pub is_ready: bool,
    /// It panicked: nobody knows what of its flows, and of what others wait for, is lost.
    pub has_failed: bool,
    /// Packets that were lost, and their buffers with them.
    pub lost: u64,
    /// Further keys of flows.
    pub aliases: Vec<(FlowId, FlowKey, u64)>,
    /// First fragments, see [`Change::FirstFragment`].
    pub fragments: Vec<FirstFragment>,
    /// Messages.
    pub messages: Vec<Message>,
    /// Packets that leave.
    pub out: Vec<Packet>,
    /// Buffers of packets that do not.
    pub buffers: Vec<Packet>,
    /// Alerts, events, flow reports.
    pub effects: Option<Box<Effects>>,
    /// How many packets that the router sent have left or were dropped here, ever.
    pub through: u64,
    /// When it has something to do, whatever comes.
    pub due_ns: u64,
    /// It answers.
    pub has_answered: bool,
}

/// A first fragment's datagram, its flow's key if it passed, and when.
pub(super) type FirstFragment = (Datagram, Option<(FlowKey, bool)>, u64);

/// How a thread is woken that sleeps because there is nothing to do.
#[derive(Default)]
pub(super) struct Bell {
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Bell {
    /// Who is to be woken: the thread that calls.
    pub fn watch(&self) {
        let _ = self.thread.set(std::thread::current()); // Once, by the unit's thread.
    }

    /// Wakes it. To be called behind what it is to see.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// It is to be woken from now on. It may park if there still is nothing to do.
    pub fn lie_down(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// It is awake.
    pub fn get_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// The way to a unit for other units.
#[derive(Clone)]
pub(super) struct Mailbox {
    pub sender: SyncSender<Mail>,
    pub bell: Arc<Bell>,
}

impl Return {
    /// Notes what happened to flows; a flow that ended is the caller's affair.
    pub fn note(&mut self, change: Change, flow_at: impl Fn(u32) -> Option<FlowId>) -> Option<u32> {
        match change {
            Change::Alias { home, key, hash } => {
                self.aliases.extend(flow_at(home).map(|flow| (flow, key, hash)));
                None
            }
            Change::FirstFragment { datagram, passed, at_ns } => {
                self.fragments.push((datagram, passed, at_ns));
                None
            }
            Change::Ended { home } => Some(home),
        }
    }

    /// Whether there is nothing to tell, but that so many packets are through, and when it has
    /// something to do, as was told before.
    pub fn is_empty(&self, (through, due_ns): (u64, u64)) -> bool {
        (self.through, self.due_ns) == (through, due_ns)
            && !self.is_ready
            && !self.has_failed
            && self.lost == 0
            && self.aliases.is_empty()
            && self.fragments.is_empty()
            && self.messages.is_empty()
            && self.out.is_empty()
            && self.buffers.is_empty()
            && self.effects.is_none()
            && !self.has_answered
    }
}

/// A unit's thread.
pub(super) struct Lane {
    pub ring: rtrb::Producer<ToUnit>,
    pub bell: Arc<Bell>,
    /// None: it has ended.
    pub thread: Option<JoinHandle<Option<Left>>>,
    /// What is not in the ring yet.
    pub waiting: VecDeque<ToUnit>,
    /// Whether it got packets since it heard what time it is.
    pub is_used: bool,
    /// Whether it has not answered yet that it has heard of it.
    pub is_behind: bool,
    /// Whether it got messages since it answered last.
    pub has_messages: bool,
    /// When it has something to do next.
    pub due_ns: u64,
    pub ordered: Instant,
    pub is_ready: bool,
    pub through: u64,
    /// What the unit has counted, when it was asked last.
    pub figures: FiguresBoard,
}

impl Lane {
    /// Gives something to the unit, behind all that it was given before. It waits here until it
    /// goes with the rest of its batch, or until there is room in the ring.
    pub fn push(&mut self, given: ToUnit) {
        self.waiting.push_back(given);
    }

    /// Moves what waits into the ring, as far as there is room.
    pub fn pump(&mut self) {
        let count = self.waiting.len().min(self.ring.slots());
        if count > 0
            && let Ok(room) = self.ring.write_chunk_uninit(count)
        {
            // All at once: what both sides look at changes its core once, and not with each of
            // them.
            room.fill_from_iter(self.waiting.drain(..count));
            self.bell.ring();
        }
    }
}
