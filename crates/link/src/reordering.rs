//! Datagrams that others overtake: how late one may be before it counts as lost.
//!
//! Each datagram has a number of its own, so an acknowledgement says exactly whether one was late
//! or lost, as DSACK does for TCP. The largest lateness of the latest seconds is the reordering
//! window of RACK (RFC 8985 6.2). As long as it is known, later datagrams alone make none lost.

use std::collections::VecDeque;

use crate::sent::Sent;

/// Time that reordering is remembered, at least; it is forgotten after twice that time.
const PERIOD_NS: u64 = 5_000_000_000;

/// The reordering window, at most, or a round trip if that is longer.
pub const REORDERING_MAX_NS: u64 = 100_000_000;

/// Limit on lost datagrams that may still be acknowledged. The oldest are forgotten: their loss is
/// final.
pub const LATE_MAX: usize = 1_024;

/// The lateness of datagrams.
#[derive(Debug)]
pub(crate) struct Reordering {
    /// The largest of this period and of the one before, if any was late.
    late_ns: [Option<u64>; 2],
    period_ends_ns: u64,
}

impl Reordering {
    pub(crate) fn new() -> Reordering {
        Reordering { late_ns: [None; 2], period_ends_ns: 0 }
    }

    /// Notes a datagram that arrived after later ones, `late_ns` after the smoothed round-trip
    /// time.
    pub(crate) fn note(&mut self, now_ns: u64, late_ns: u64) {
        self.advance(now_ns);
        self.late_ns[0] = self.late_ns[0].max(Some(late_ns));
    }

    /// Returns the time after a round trip that a datagram may be late: a quarter more than was
    /// seen. None if none was late.
    pub(crate) fn window_ns(&mut self, now_ns: u64, rtt_ns: u64) -> Option<u64> {
        self.advance(now_ns);
        let late_ns = self.late_ns[0].max(self.late_ns[1])?;
        Some(late_ns.saturating_add(late_ns / 4).min(REORDERING_MAX_NS.max(rtt_ns)))
    }

    fn advance(&mut self, now_ns: u64) {
        if now_ns < self.period_ends_ns {
            return;
        }
        let is_next = now_ns - self.period_ends_ns < PERIOD_NS;
        self.late_ns = [None, self.late_ns[0].filter(|_| is_next)];
        self.period_ends_ns = now_ns.saturating_add(PERIOD_NS);
    }
}

/// Datagrams that count as lost, and may be late only, in order of their numbers.
#[derive(Debug)]
pub(crate) struct LostDatagrams {
    entries: VecDeque<LostDatagram>,
}

/// A datagram that counts as lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostDatagram {
    pub(crate) sent: Sent,
    /// The reduction of the congestion window that it contributed to.
    pub(crate) reduction: u64,
    /// Its loss is final then.
    pub(crate) until_ns: u64,
}

impl LostDatagrams {
    pub(crate) fn new() -> LostDatagrams {
        LostDatagrams { entries: VecDeque::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a datagram; returns the oldest if there are too many.
    pub(crate) fn push(&mut self, lost: LostDatagram) -> Option<LostDatagram> {
        self.entries.push_back(lost);
        if self.entries.len() > LATE_MAX { self.entries.pop_front() } else { None }
    }

    /// Takes the next datagram with a final loss.
    pub(crate) fn pop_final(&mut self, now_ns: u64) -> Option<LostDatagram> {
        self.entries.pop_front_if(|lost| lost.until_ns <= now_ns)
    }

    /// Takes the datagrams with acknowledged numbers.
    pub(crate) fn take_acked(&mut self, (first, last): (u64, u64), mut take: impl FnMut(LostDatagram)) {
        let start = self.entries.partition_point(|lost| lost.sent.number < first);
        let end = self.entries.partition_point(|lost| lost.sent.number <= last);
        self.entries.drain(start..end.max(start)).for_each(&mut take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_latest_seconds() {
        let mut reordering = Reordering::new();
        assert_eq!(reordering.window_ns(7, 1), None);
        reordering.note(10, 8_000);
        reordering.note(20, 4_000);
        assert_eq!(reordering.window_ns(30, 1), Some(10_000));
        assert_eq!(reordering.window_ns(PERIOD_NS + 30, 1), Some(10_000));
        reordering.note(PERIOD_NS + 40, 800);
        assert_eq!(reordering.window_ns(2 * PERIOD_NS + 40, 1), Some(1_000));
        assert_eq!(reordering.window_ns(9 * PERIOD_NS, 1), None);
        reordering.note(9 * PERIOD_NS, u64::MAX / 2);
        assert_eq!(reordering.window_ns(9 * PERIOD_NS, 1), Some(REORDERING_MAX_NS));
        assert_eq!(reordering.window_ns(9 * PERIOD_NS, 1 << 40), Some(1 << 40));
    }

    #[test]
    fn lost_datagrams_are_bounded() {
        let mut lost = LostDatagrams::new();
        let datagram = |number: u64| LostDatagram {
            sent: Sent { number, at_ns: 0, piece: None, size: 1 },
            reduction: 0,
            until_ns: number,
        };
        for number in 1..=LATE_MAX as u64 {
            assert!(lost.push(datagram(2 * number)).is_none());
        }
        assert_eq!(lost.push(datagram(9_000)).map(|lost| lost.sent.number), Some(2));
        let mut taken = Vec::new();
        lost.take_acked((5, 9), |lost| taken.push(lost.sent.number));
        lost.take_acked((1, 3), |lost| taken.push(lost.sent.number));
        assert_eq!(taken, [6, 8]);
        assert_eq!(lost.pop_final(4).map(|lost| lost.sent.number), Some(4));
        assert!(lost.pop_final(4).is_none());
    }
}
