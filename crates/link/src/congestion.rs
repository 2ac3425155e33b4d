//! The congestion window: NewReno, as in RFC 9002 appendix B.

/// Datagrams that may be in flight at first (RFC 9002 7.2).
pub const INITIAL_WINDOW_DATAGRAMS: u64 = 10;

/// The least congestion window, in datagrams (RFC 9002 7.2).
pub const LEAST_WINDOW_DATAGRAMS: u64 = 2;

/// The greatest congestion window, in bytes.
pub const CONGESTION_WINDOW_MAX: u64 = 64 << 20;

/// The congestion window of the sending direction.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    datagram: u64,
    window: u64,
    slow_start_until: u64,
    recovery_began_ns: Option<u64>,
    /// Set while the caller sends less than the window allows; the window must not grow then (RFC
    /// 9002 7.8).
    is_underused: bool,
}

impl CongestionWindow {
    pub(crate) fn new(mtu: usize) -> CongestionWindow {
        let datagram = mtu as u64;
        CongestionWindow {
            datagram,
            window: INITIAL_WINDOW_DATAGRAMS * datagram,
            slow_start_until: u64::MAX,
            recovery_began_ns: None,
            is_underused: false,
        }
    }

    /// Notes that datagrams have another length from now on. The window has room for the least
    /// number of them.
    pub(crate) fn set_datagram(&mut self, mtu: usize) {
        self.datagram = mtu as u64;
        self.window = self.window.max(self.least());
    }

    /// Returns whether a datagram may be sent while this many bytes are in flight.
    #[inline]
    pub(crate) fn allows(&self, in_flight: u64) -> bool {
        in_flight + self.datagram <= self.window
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    #[inline]
    pub(crate) fn note_use(&mut self, is_underused: bool) {
        self.is_underused = is_underused;
    }

    #[inline]
    pub(crate) fn note_acked(&mut self, size: u64, sent_ns: u64) {
        if self.is_underused || self.recovery_began_ns.is_some_and(|began_ns| sent_ns <= began_ns) {
            return;
        }
        let more =
            if self.window < self.slow_start_until { size } else { self.datagram * size / self.window };
        self.window = (self.window + more).min(CONGESTION_WINDOW_MAX);
    }

    /// Notes a loss of a datagram that was sent then.
    pub(crate) fn note_lost(&mut self, now_ns: u64, sent_ns: u64) {
        if self.recovery_began_ns.is_some_and(|began_ns| sent_ns <= began_ns) {
            return;
        }
        self.recovery_began_ns = Some(now_ns);
        self.window = (self.window / 2).max(self.least());
        self.slow_start_until = self.window;
    }

    /// Notes that everything was lost for a long time (RFC 9002 7.6).
    pub(crate) fn note_collapse(&mut self) {
        self.window = self.least();
        self.recovery_began_ns = None;
    }

    fn least(&self) -> u64 {
        LEAST_WINDOW_DATAGRAMS * self.datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_new_reno() {
        let mut window = CongestionWindow::new(1_000);
        assert!(window.allows(9_000) && !window.allows(9_001));
        window.note_acked(1_000, 5);
        assert_eq!(window.window(), 11_000, "slow start");
        window.note_lost(10, 6);
        window.note_lost(12, 7);
        window.note_acked(1_000, 10);
        assert_eq!(window.window(), 5_500, "half, once per round trip");
        window.note_acked(1_000, 11);
        assert_eq!(window.window(), 5_681, "one datagram per round trip");
        window.note_use(true);
        window.note_acked(1_000, 12);
        assert_eq!(window.window(), 5_681, "underused");
        window.note_collapse();
        assert_eq!(window.window(), 2_000);
        (0..5).for_each(|at| window.note_lost(100 + 2 * at, 99 + 2 * at));
        assert_eq!(window.window(), 2_000, "the least");
    }
}
