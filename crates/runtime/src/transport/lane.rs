//! Rings between the dispatcher's thread and those of units, and doorbells that wake a thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use super::rings::FiguresBoard;
use super::unit_end::{Left, Mail, ToUnit};

/// Packets and messages on their way from the router to a unit at most. More wait at the router.
pub const RING: usize = 1024;

/// Messages on their way to a unit from others at most. More wait at those.
pub const MAILS: usize = 256;

/// Batches on their way from units to the router at most. More wait at the units.
pub const RETURNS: usize = 256;

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
