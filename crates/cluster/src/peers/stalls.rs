//! Stalls: times during which this process did not run, because it was stopped or lacked CPU time.

use super::GIVE_UP_MIN;

/// Least time between two rounds that counts as a stall. Rounds normally follow each other within
/// 20 ms.
const STALL_NS: u64 = 100_000_000;

/// Stall after which others may have given this process up, or may do so before its next datagram
/// arrives. A quarter of their least timeout is left for datagrams in flight.
pub(crate) const FENCE_NS: u64 = GIVE_UP_MIN.as_nanos() as u64 / 4 * 3;

/// The stalls of a process.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    round_ns: Option<u64>,
    /// Stalls so far.
    pub count: u64,
    /// Stalls of [`FENCE_NS`] or more among them.
    pub fences: u64,
    /// Sum of their lengths.
    pub sum_ns: u64,
}

impl Stalls {
    /// Notes a round of the process. Returns the time since the last one, if it was a stall.
    #[inline]
    pub fn note_round(&mut self, now_ns: u64) -> Option<u64> {
        let gap_ns = now_ns.saturating_sub(self.round_ns.replace(now_ns)?);
        (gap_ns >= STALL_NS).then(|| self.add(gap_ns))
    }

    #[cold]
    fn add(&mut self, gap_ns: u64) -> u64 {
        self.count += 1;
        self.fences += u64::from(gap_ns >= FENCE_NS);
        self.sum_ns += gap_ns;
        gap_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_rounds_are_stalls() {
        let mut stalls = Stalls::default();
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!([0, 20, 119].map(|at| stalls.note_round(ms(at))), [None; 3]);
        assert_eq!(stalls.note_round(ms(219)), Some(ms(100)));
        assert_eq!(stalls.note_round(ms(1_719)), Some(ms(1_500)));
        assert_eq!((stalls.count, stalls.fences, stalls.sum_ns), (2, 1, ms(1_600)));
    }
}
