//! Tasks beside a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A task that a thread repeats until it is stopped.
pub struct Repeated<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Repeated<T> {
    /// Starts it, with a pause after each time.
    pub fn start(mut state: T, pause: Duration, task: impl Fn(&mut T) + Send + 'static) -> Repeated<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                task(&mut state);
                std::thread::sleep(pause);
            }
            state
        });
        Repeated { stop, thread }
    }

    /// Stops it. Returns its state.
    pub fn end(self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
