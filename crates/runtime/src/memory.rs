//! The process's reserve of memory: when the system has no more, no new flow begins, and live flows
//! continue.

use std::io::Result;
use std::sync::OnceLock;
use std::thread::{Builder, Thread};
use std::time::Duration;

use packet::memory::reserve;
use telemetry::event;

/// Period of attempts to allocate the reserve again after a shortage.
const RETRY: Duration = Duration::from_secs(1);

/// The thread that logs shortages, and ends them.
static WATCHER: OnceLock<Thread> = OnceLock::new();

/// Keeps a reserve from now on, and logs shortages.
///
/// # Errors
/// If there is no thread for it.
pub fn keep_reserve() -> Result<()> {
    let watcher = Builder::new().name("memory".to_owned()).stack_size(256 << 10).spawn(watch)?;
    let _ = WATCHER.set(watcher.thread().clone());
    reserve::call_when_short(wake);
    reserve::take_reserve();
    Ok(())
}

fn wake() {
    if let Some(watcher) = WATCHER.get() {
        watcher.unpark();
    }
}

fn watch() {
    loop {
        std::thread::park();
        if !reserve::is_short() {
            continue;
        }
        event::memory_short();
        // Not at once: it is meant for the allocation that has failed.
        std::thread::sleep(RETRY);
        while !reserve::take_reserve() {
            std::thread::sleep(RETRY);
        }
        event::memory_regained();
    }
}
