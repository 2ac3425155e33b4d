//! Panics on threads that process packets: they are contained, so nobody has to see them on a
//! terminal, but everybody wants to know of them. Their messages are kept for the report, a few,
//! each once.

use std::cell::Cell;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, Once, PoisonError};

use serde::Serialize;

/// Different panics that are kept; of further ones nothing is known but that they were counted.
pub const KEPT_MAX: usize = 16;

/// Panics of a thread's own code, of any kind, before it is given up.
pub const RESTARTS_MAX: u64 = 1_000;

/// A place in the program that panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Panicked {
    /// What it said first.
    pub message: String,
    /// File and line.
    pub place: String,
    /// How often.
    pub count: u64,
}

static KEPT: Mutex<Vec<Panicked>> = Mutex::new(Vec::new());

thread_local! {
    static IS_PROCESSING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of threads that process packets from now on, which were printed before; others are
/// still printed.
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

/// The panics that were kept since the program began.
pub fn kept() -> Vec<Panicked> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The thread processes packets for as long as this lives.
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
        let message = panic.payload_as_str().unwrap_or("a value that is no text");
        let end = message.floor_char_boundary(nf::stage::PANIC_TEXT_MAX);
        kept.push(Panicked { message: message[..end].to_owned(), place, count: 1 });
    }
}
