//! Rings between the dispatcher's thread and those of units.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Instant;

use super::unit_end::{FiguresBoard, Left, Mail, ToUnit};
use crate::doorbell::{Doorbell, ThreadWaker};

/// Length of the ring from the dispatcher to a unit. More packets and messages wait at the
/// dispatcher.
pub const RING: usize = 1024;

/// Length of the channel to a unit from other units. More messages wait at those.
pub const MAILS: usize = 256;

/// Length of the channel from units to the dispatcher. More batches wait at the units.
pub const RETURNS: usize = 256;

/// The sending end of the channel to a unit.
#[derive(Clone)]
pub(super) struct Mailbox {
    pub sender: SyncSender<Mail>,
    pub doorbell: Arc<Doorbell<ThreadWaker>>,
}

/// A unit's thread.
pub(super) struct Lane {
    pub ring: rtrb::Producer<ToUnit>,
    pub doorbell: Arc<Doorbell<ThreadWaker>>,
    /// `None` once it has ended.
    pub thread: Option<JoinHandle<Option<Left>>>,
    /// Packets and messages that are not in the ring yet.
    pub queue: VecDeque<ToUnit>,
    /// Packets were sent since it was notified of the time.
    pub is_used: bool,
    /// It has not answered the last notification of the time.
    pub is_behind: bool,
    /// Messages were sent since its last answer.
    pub has_messages: bool,
    /// Its earliest deadline.
    pub due_ns: u64,
    pub ordered: Instant,
    pub is_ready: bool,
    pub through: u64,
    /// The counters that it has reported last.
    pub figures: FiguresBoard,
}

impl Lane {
    /// Enqueues something for the unit. It stays here until its batch is sent and the ring has
    /// room.
    pub fn push(&mut self, item: ToUnit) {
        self.queue.push_back(item);
    }

    /// Sends enqueued items until the ring is full.
    pub fn send(&mut self) {
        let count = self.queue.len().min(self.ring.slots());
        if count > 0
            && let Ok(room) = self.ring.write_chunk_uninit(count)
        {
            // All at once: the cache line that both threads use moves once.
            room.fill_from_iter(self.queue.drain(..count));
            self.doorbell.ring();
        }
    }
}
