//! Wakes a thread that is parked because it has no work.
//!
//! The sender writes its work first and rings then; the receiver parks first and looks for work
//! then. So either the receiver sees the work, or the sender sees that it is parked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};

/// A way to wake a parked thread.
pub(crate) trait Waker {
    /// Wakes the thread.
    fn wake(&self);
}

/// The doorbell of a thread.
#[derive(Default)]
pub(crate) struct Doorbell<W> {
    is_parked: AtomicBool,
    waker: W,
}

impl<W: Waker> Doorbell<W> {
    /// Creates the doorbell of a thread that is woken in this way.
    pub fn new(waker: W) -> Doorbell<W> {
        Doorbell { is_parked: AtomicBool::new(false), waker }
    }

    /// Returns the way to wake the thread.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// Wakes the thread if it is parked. Must be called after the write that it must see.
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
            self.waker.wake();
        }
    }

    /// Marks the thread as parked: from now on, a ring wakes it. It may wait if it finds no work
    /// after this call.
    pub fn park(&self) {
        self.is_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the thread as awake.
    pub fn unpark(&self) {
        self.is_parked.store(false, Ordering::Relaxed);
    }
}

/// Wakes a thread that waits in [`std::thread::park`].
#[derive(Default)]
pub(crate) struct ThreadWaker(OnceLock<Thread>);

impl ThreadWaker {
    /// Makes the calling thread the thread to wake; once.
    pub fn set_current(&self) {
        let _ = self.0.set(std::thread::current());
    }
}

impl Waker for ThreadWaker {
    fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// Wakes a thread that waits for a descriptor, with others, to become readable.
pub(crate) struct EventWaker(OwnedFd);

impl EventWaker {
    pub fn new() -> std::io::Result<EventWaker> {
        Ok(EventWaker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Returns the descriptor.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes the descriptor unreadable again. A late write of another thread only shortens the next
    /// wait.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl Waker for EventWaker {
    fn wake(&self) {
        // It cannot be full: it is cleared after each wait.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn has_rung(doorbell: &Doorbell<EventWaker>) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let event = doorbell.waker().event();
        poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn doorbell_wakes_only_a_parked_thread() {
        let doorbell = Doorbell::new(EventWaker::new().unwrap());
        doorbell.ring();
        assert!(!has_rung(&doorbell));
        for _ in 0..3 {
            doorbell.park();
            doorbell.ring();
            doorbell.ring();
            assert!(has_rung(&doorbell));
            doorbell.unpark();
            doorbell.waker().clear();
            assert!(!has_rung(&doorbell), "the next wait is not cut short");
        }
    }
}
