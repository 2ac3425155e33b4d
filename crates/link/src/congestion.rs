//! The congestion window: NewReno, as in RFC 9002 appendix B. A reduction is undone if all its
//! losses turn out to be late arrivals (RFC 4015).

/// Datagrams that may be in flight at first (RFC 9002 7.2).
pub const INITIAL_WINDOW_DATAGRAMS: u64 = 10;

/// The least congestion window, in datagrams (RFC 9002 7.2).
pub const LEAST_WINDOW_DATAGRAMS: u64 = 2;

/// The greatest congestion window, in bytes.
pub const CONGESTION_WINDOW_MAX: u64 = 64 << 20;

/// A path is another one if its round trip takes this many times as long as before, and
/// [`OTHER_PATH_NS`] longer: a queue alone hardly makes it so.
const OTHER_PATH_FACTOR: u64 = 4;
const OTHER_PATH_NS: u64 = 20_000_000;

/// The congestion window of the sending direction.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    datagram: u64,
    window: u64,
    slow_start_until: u64,
    /// The round-trip time that `slow_start_until` was set for.
    reduced_rtt_ns: u64,
    recovery_began_ns: Option<u64>,
    /// The reduction that can be undone, and the number of reductions so far.
    undo: Option<Undo>,
    reductions: u64,
    /// Set while the caller sends less than the window allows; the window must not grow then (RFC
    /// 9002 7.8).
    is_underused: bool,
}

/// The state before reductions, as long as none of their losses is final.
#[derive(Clone, Copy, Debug)]
struct Undo {
    reduction: u64,
    window: u64,
    slow_start_until: u64,
    /// Losses that may still be late arrivals.
    losses: u64,
}

impl CongestionWindow {
    pub(crate) fn new(mtu: usize) -> CongestionWindow {
        let datagram = mtu as u64;
        CongestionWindow {
            datagram,
            window: INITIAL_WINDOW_DATAGRAMS * datagram,
            slow_start_until: u64::MAX,
            reduced_rtt_ns: 0,
            recovery_began_ns: None,
            undo: None,
            reductions: 0,
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

    /// Notes the smoothed round-trip time. Slow start ends at a window, which stands for a rate: if
    /// traffic now takes a much longer path, the same rate needs a larger window, which would grow
    /// by a datagram per long round trip only.
    #[inline]
    pub(crate) fn note_rtt(&mut self, rtt_ns: u64) {
        let before_ns = self.reduced_rtt_ns;
        if before_ns > 0 && rtt_ns >= (OTHER_PATH_FACTOR * before_ns).max(before_ns + OTHER_PATH_NS) {
            self.slow_start_until = self.slow_start_until.saturating_mul(rtt_ns / before_ns);
            self.reduced_rtt_ns = rtt_ns;
        }
    }

    /// Notes a loss of a datagram that was sent then. Returns the number of its reduction.
    pub(crate) fn note_lost(&mut self, now_ns: u64, sent_ns: u64, rtt_ns: u64) -> u64 {
        if self.recovery_began_ns.is_none_or(|began_ns| sent_ns > began_ns) {
            if self.undo.is_none() {
                self.reductions += 1;
                let (window, slow_start_until) = (self.window, self.slow_start_until);
                self.undo = Some(Undo { reduction: self.reductions, window, slow_start_until, losses: 0 });
            }
            self.recovery_began_ns = Some(now_ns);
            self.window = (self.window / 2).max(self.least());
            (self.slow_start_until, self.reduced_rtt_ns) = (self.window, rtt_ns.max(1));
        }
        if let Some(undo) = &mut self.undo {
            undo.losses += 1;
        }
        self.reductions
    }

    /// Notes that a datagram that counted as lost has arrived. Once all of a reduction have, it is
    /// undone.
    pub(crate) fn note_late(&mut self, reduction: u64) {
        let Some(undo) = self.undo.as_mut().filter(|undo| undo.reduction == reduction) else { return };
        undo.losses = undo.losses.saturating_sub(1);
        if undo.losses == 0 {
            self.window = self.window.max(undo.window);
            self.slow_start_until = self.slow_start_until.max(undo.slow_start_until);
            (self.undo, self.recovery_began_ns) = (None, None);
        }
    }

    /// Notes that a loss is final.
    pub(crate) fn note_final(&mut self, reduction: u64) {
        self.undo = self.undo.filter(|undo| undo.reduction != reduction);
    }

    /// Notes that everything was lost for a long time (RFC 9002 7.6).
    pub(crate) fn note_collapse(&mut self) {
        self.window = self.least();
        (self.recovery_began_ns, self.undo) = (None, None);
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
        window.note_lost(10, 6, 1_000);
        window.note_lost(12, 7, 1_000);
        window.note_acked(1_000, 10);
        assert_eq!(window.window(), 5_500, "half, once per round trip");
        window.note_acked(1_000, 11);
        assert_eq!(window.window(), 5_681, "one datagram per round trip");
        window.note_use(true);
        window.note_acked(1_000, 12);
        assert_eq!(window.window(), 5_681, "underused");
        window.note_collapse();
        assert_eq!(window.window(), 2_000);
        for at in 0..5 {
            window.note_lost(100 + 2 * at, 99 + 2 * at, 1_000);
        }
        assert_eq!(window.window(), 2_000, "the least");
    }

    #[test]
    fn slow_start_goes_on_where_the_path_has_become_much_longer() {
        let after = |rtt_ns: u64| {
            let mut window = CongestionWindow::new(1_000);
            window.note_lost(10, 5, 1_000_000);
            window.note_rtt(rtt_ns);
            (0..40).for_each(|_| window.note_acked(1_000, 11));
            window.window()
        };
        assert_eq!(after(100_000_000), 45_000, "a datagram per acknowledged one");
        assert_eq!(after(1_000_000), after(20_000_000), "a queue may be as long");
        assert!(after(1_000_000) < 11_000);
    }

    // RFC 4015 3.
    #[test]
    fn reductions_without_a_loss_are_undone() {
        let mut window = CongestionWindow::new(1_000);
        let first =
            [window.note_lost(10, 5, 1_000), window.note_lost(11, 6, 1_000), window.note_lost(20, 15, 1_000)];
        assert_eq!((first, window.window()), ([1; 3], 2_500), "twice, and the first is not decided");
        first.into_iter().for_each(|reduction| window.note_late(reduction));
        assert_eq!(window.window(), 10_000);
        window.note_acked(1_000, 21);
        assert_eq!(window.window(), 11_000, "still in slow start");

        let second = [window.note_lost(30, 25, 1_000), window.note_lost(30, 26, 1_000)];
        window.note_late(second[0]);
        window.note_final(second[1]);
        assert_eq!((second, window.window()), ([2; 2], 5_500), "one was lost");
        let third = window.note_lost(40, 35, 1_000);
        window.note_late(second[0]);
        assert_eq!(window.window(), 2_750, "of an earlier reduction");
        window.note_late(third);
        assert_eq!(window.window(), 5_500);
    }
}
