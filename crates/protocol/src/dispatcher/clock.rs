//! The dispatcher's time, and its next deadline.

/// The latest time given, and the earliest deadline.
pub(crate) struct Clock {
    /// The latest time given: time does not go back.
    now_ns: u64,
    next_timeout_ns: u64,
    /// Length of a bucket of the load meter.
    bucket_ns: u64,
}

impl Clock {
    /// Creates a clock at time 0; the deadline has come.
    pub fn new(bucket_ns: u64) -> Clock {
        Clock { now_ns: 0, next_timeout_ns: 0, bucket_ns }
    }

    /// Returns the given time, or an earlier one that is later.
    #[inline]
    pub fn at(&mut self, now_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(now_ns);
        self.now_ns
    }

    /// Returns the latest time given.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the earliest deadline; `u64::MAX` if there is none.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.next_timeout_ns
    }

    /// Moves the deadline forward to this time, if it is later.
    #[inline]
    pub fn bring_forward(&mut self, deadline_ns: u64) {
        self.next_timeout_ns = self.next_timeout_ns.min(deadline_ns);
    }

    /// Moves the deadline forward to one bucket after this time: units or drops have changed.
    pub fn wake(&mut self, now_ns: u64) {
        self.bring_forward(now_ns.saturating_add(self.bucket_ns));
    }

    /// Sets the next deadline after one that has been handled.
    pub fn set_next(&mut self, deadline_ns: u64) {
        self.next_timeout_ns = deadline_ns;
    }
}
