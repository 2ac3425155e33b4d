//! The rings between two workers, and the doorbell that wakes one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use packet::Packet;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};

/// Length of the ring from one worker to another. Packets beyond it are dropped,
/// [`packet::DropReason::WorkerBehind`].
pub const RING: usize = 4096;

/// A packet or frame that one worker hands over to another.
#[allow(clippy::large_enum_variant)] // Nearly all are packets.
pub(super) enum Handover {
    /// A fragment of a datagram that the other worker tracks.
    Fragment(Packet),
    /// A packet of a flow that the other worker owns.
    Flow(Packet),
    /// An ICMP error about no known flow. It belongs to the flow of its own addresses, which the
    /// other worker owns.
    Aside(Packet),
    /// A received frame about a neighbour of this port.
    Snooped(u16, Box<[u8]>),
}

impl Handover {
    /// Returns the packet, if it is one.
    pub fn packet(self) -> Option<Packet> {
        match self {
            Handover::Fragment(packet) | Handover::Flow(packet) | Handover::Aside(packet) => Some(packet),
            Handover::Snooped(..) => None,
        }
    }
}

/// The sending end of the rings to another worker.
pub(super) struct ToWorker {
    pub ring: Producer<Handover>,
    /// Handovers to send with the rest of the batch.
    pub next: Vec<Handover>,
    /// Returned buffers.
    pub buffers: Consumer<Packet>,
    pub doorbell: Arc<Doorbell>,
}

/// The receiving end of the rings from another worker.
pub(super) struct FromWorker {
    pub ring: Consumer<Handover>,
    /// Takes its buffers back.
    pub buffers: Producer<Packet>,
    /// Buffers that are not returned yet.
    pub owed: usize,
}

/// Creates the rings from one worker to another, which the doorbell wakes.
pub(super) fn link(doorbell: &Arc<Doorbell>) -> (ToWorker, FromWorker) {
    let (ring, taken) = RingBuffer::new(RING);
    let (given_back, buffers) = RingBuffer::new(RING);
    let to = ToWorker { ring, next: Vec::new(), buffers, doorbell: Arc::clone(doorbell) };
    (to, FromWorker { ring: taken, buffers: given_back, owed: 0 })
}

/// Wakes a worker that waits for a frame.
pub(crate) struct Doorbell {
    is_parked: AtomicBool,
    event: OwnedFd,
}

impl Doorbell {
    pub fn new() -> std::io::Result<Doorbell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { is_parked: AtomicBool::new(false), event })
    }

    /// Wakes the worker if it is parked. Must be called after the write that it must see.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_parked.swap(false, Ordering::Relaxed) {
            // It cannot be full: `unpark` empties it.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Has the worker woken from now on. It may wait for [`Doorbell::event`] if there still is no
    /// work.
    pub fn park(&self) {
        self.is_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the worker as awake.
    pub fn unpark(&self) {
        self.is_parked.store(false, Ordering::Relaxed);
        // A late write of another thread only shortens the next wait.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Returns the descriptor that becomes readable when it rings.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn has_rung(doorbell: &Doorbell) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(doorbell.event(), PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn doorbell_wakes_only_a_parked_worker() {
        let doorbell = Doorbell::new().unwrap();
        doorbell.ring();
        assert!(!has_rung(&doorbell));
        for _ in 0..3 {
            doorbell.park();
            doorbell.ring();
            doorbell.ring();
            assert!(has_rung(&doorbell));
            doorbell.unpark();
            assert!(!has_rung(&doorbell), "the next wait is not cut short");
        }
    }
}
