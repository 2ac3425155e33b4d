//! The time of a live run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The system's time at the start, and monotonic from there on.
pub(super) struct Clock {
    began: Instant,
    began_ns: u64,
}

impl Clock {
    pub fn new() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), began_ns: since.as_nanos() as u64 }
    }

    /// Returns nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        self.began_ns + self.elapsed().as_nanos() as u64
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
