//! What goes between two workers, and how one that sleeps is woken.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use packet::Packet;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};

/// Packets on their way from one worker to another at most. More are dropped,
/// [`packet::DropReason::WorkerBehind`].
pub const RING: usize = 4096;

/// From a worker to another one.
#[allow(clippy::large_enum_variant)] // All are packets, but a few.
pub(super) enum Handed {
    /// A fragment of a datagram that the other one keeps track of.
    Fragment(Packet),
    /// A packet of a flow that the other one has.
    Flow(Packet),
    /// An ICMP error about no flow that is known: it is of one that its addresses make, and the
    /// other one has that.
    Aside(Packet),
    /// A frame that tells of a neighbour of this port.
    Told(u16, Box<[u8]>),
}

impl Handed {
    /// The packet, if it is one.
    pub fn packet(self) -> Option<Packet> {
        match self {
            Handed::Fragment(packet) | Handed::Flow(packet) | Handed::Aside(packet) => Some(packet),
            Handed::Told(..) => None,
        }
    }
}

/// The way to another worker.
pub(super) struct ToWorker {
    pub ring: Producer<Handed>,
    /// What is to go there with the rest of its batch.
    pub next: Vec<Handed>,
    /// Buffers that come back.
    pub buffers: Consumer<Packet>,
    pub bell: Arc<Bell>,
}

/// The way from another worker.
pub(super) struct FromWorker {
    pub ring: Consumer<Handed>,
    /// Where its buffers go back.
    pub buffers: Producer<Packet>,
    /// Buffers that came from there and did not go back yet.
    pub owed: usize,
}

/// The way from one worker to another.
pub(super) fn link(bell: &Arc<Bell>) -> (ToWorker, FromWorker) {
    let (ring, taken) = RingBuffer::new(RING);
    let (given_back, buffers) = RingBuffer::new(RING);
    let to = ToWorker { ring, next: Vec::new(), buffers, bell: Arc::clone(bell) };
    (to, FromWorker { ring: taken, buffers: given_back, owed: 0 })
}

/// Wakes a worker that sleeps until a frame comes.
pub(crate) struct Bell {
    is_asleep: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    pub fn new() -> std::io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { is_asleep: AtomicBool::new(false), event })
    }

    /// Wakes the worker. To be called behind what it is to see.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::Relaxed) {
            // It cannot be full: it is emptied whenever the worker gets up.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// The worker is to be woken from now on. It may wait for [`Bell::event`] if there still is
    /// nothing to do.
    pub fn lie_down(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake.
    pub fn get_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
        // Who has rung may write only now: then the next sleep is a short one.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// What there is to be waited for.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn has_rung(bell: &Bell) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(bell.event(), PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn who_sleeps_is_woken_and_who_does_not_is_let_be() {
        let bell = Bell::new().unwrap();
        bell.ring();
        assert!(!has_rung(&bell));
        for _ in 0..3 {
            bell.lie_down();
            bell.ring();
            bell.ring();
            assert!(has_rung(&bell));
            bell.get_up();
            assert!(!has_rung(&bell), "the next sleep is a sound one");
        }
    }
}
