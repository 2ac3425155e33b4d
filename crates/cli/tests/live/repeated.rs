//! Tasks that run during a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A task that a thread repeats until it is stopped.
pub struct Repeated<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Repeated<T> {
    /// Starts it, once a period; at once if it takes longer.
    pub fn start(mut state: T, period: Duration, task: impl Fn(&mut T) + Send + 'static) -> Repeated<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut at = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                task(&mut state);
                let now = Instant::now();
                at = now.max(at + period);
                std::thread::sleep(at - now);
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
