//! Panics of an NF: they are contained, counted, and kept for reports.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::PANIC_TEXT_MAX;

/// Number of panics, and the message of the last one.
#[derive(Default)]
pub(super) struct Panics {
    count: Cell<u64>,
    last: RefCell<Option<String>>,
}

impl Panics {
    /// Returns the number of panics.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Returns the message of the last panic.
    pub fn last(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// Counts a panic, and keeps its message.
    #[cold]
    pub fn note(&self, payload: Box<dyn Any + Send>) {
        self.count.set(self.count.get() + 1);
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (None, Some(text)) => text.as_str(),
            (None, None) => "a value that is not text",
        };
        let end =
            text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= PANIC_TEXT_MAX);
        let text = text[..end.last().unwrap_or(0)].to_owned();
        if let Ok(mut last) = self.last.try_borrow_mut() {
            *last = Some(text);
        }
        // The panic's payload may panic itself when dropped.
        if catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err() {
            self.count.set(self.count.get() + 1);
        }
    }

    /// Runs a call into the NF. Returns `None` and counts it if the NF panicked.
    #[inline(always)]
    pub fn contain<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(done) => Some(done),
            Err(payload) => {
                self.note(payload);
                None
            }
        }
    }
}

/// Records how far a loop over packets got when it ended, even by a panic. Costs nothing per
/// packet.
pub(super) struct Progress<'a> {
    /// One more than the current packet's number.
    next: usize,
    left_at: &'a mut usize,
}

impl<'a> Progress<'a> {
    /// Begins at the packet in `left_at`.
    #[inline(always)]
    pub fn new(left_at: &'a mut usize) -> Progress<'a> {
        Progress { next: *left_at, left_at }
    }

    /// Advances to the next packet and returns its number.
    #[inline(always)]
    pub fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

impl Drop for Progress<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.left_at = self.next.saturating_sub(1);
    }
}
