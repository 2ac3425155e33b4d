//! Panics of threads that process packets.
//!
//! They are contained, so they do not appear on the terminal. Reports show the first few.

use std::cell::Cell;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, Once, PoisonError};

use serde::Serialize;
use telemetry::event;

/// Limit on distinct panics that are kept. Further ones are only counted.
pub const KEPT_MAX: usize = 16;

/// Limit on restarts after panics outside NFs; then the panic ends the thread.
pub const RESTARTS_MAX: u64 = 1_000;

/// A place in the program that panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Panicked {
    /// Message of the first occurrence.
    pub message: String,
    /// File and line.
    pub place: String,
    /// Number of occurrences.
    pub count: u64,
}

static KEPT: Mutex<Vec<Panicked>> = Mutex::new(Vec::new());

thread_local! {
    static IS_PROCESSING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of threads that process packets from now on, instead of printing them. Other panics
/// are still printed.
pub fn keep() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match IS_PROCESSING.get() {
            true => note(panic),
            false => others(panic),
        }));
    });
}

/// Returns the panics since the start of the program.
pub fn kept() -> Vec<Panicked> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Marks the thread as processing packets while it lives.
pub(crate) struct Processing(bool);

impl Processing {
    pub fn begin() -> Processing {
        Processing(IS_PROCESSING.replace(true))
    }
}

impl Drop for Processing {
    fn drop(&mut self) {
        IS_PROCESSING.set(self.0);
    }
}

#[cold]
fn note(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.iter_mut().find(|known| known.place == place) {
        known.count += 1;
    } else if kept.len() < KEPT_MAX {
        let message = panic.payload_as_str().unwrap_or("a value that is not a string");
        let end = message.floor_char_boundary(nf::stage::PANIC_TEXT_MAX);
        event::panicked(&place, &&message[..end]);
        kept.push(Panicked { message: message[..end].to_owned(), place, count: 1 });
    }
}
