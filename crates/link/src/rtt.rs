//! The round-trip time (RFC 9002 5, RFC 6298).

/// Granularity of timers: the least variance of the round-trip time that timeouts assume (RFC 9002
/// 6.1.2 `kGranularity`, smaller for networks of microseconds).
pub const GRANULARITY_NS: u64 = 50_000;

/// The estimate of the round-trip time.
#[derive(Debug)]
pub(crate) struct RttEstimate {
    latest_ns: u64,
    least_ns: u64,
    smoothed_ns: u64,
    variance_ns: u64,
    is_sampled: bool,
}

impl RttEstimate {
    pub(crate) fn new(initial_ns: u64) -> RttEstimate {
        RttEstimate {
            latest_ns: initial_ns,
            least_ns: initial_ns,
            smoothed_ns: initial_ns,
            variance_ns: initial_ns / 2,
            is_sampled: false,
        }
    }

    /// Takes a sample; the peer held its acknowledgement for `delay_ns` (RFC 9002 5.3).
    pub(crate) fn sample(&mut self, latest_ns: u64, delay_ns: u64) {
        self.latest_ns = latest_ns;
        if !self.is_sampled {
            self.is_sampled = true;
            (self.least_ns, self.smoothed_ns, self.variance_ns) = (latest_ns, latest_ns, latest_ns / 2);
            return;
        }
        self.least_ns = self.least_ns.min(latest_ns);
        let adjusted = if latest_ns >= self.least_ns + delay_ns { latest_ns - delay_ns } else { latest_ns };
        self.variance_ns = (3 * self.variance_ns + self.smoothed_ns.abs_diff(adjusted)) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + adjusted) / 8;
    }

    /// Returns the smoothed round-trip time.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// Returns the time after which an acknowledgement is missing (RFC 9002 6.2.1).
    pub(crate) fn probe_timeout_ns(&self, ack_delay_ns: u64) -> u64 {
        self.smoothed_ns + (4 * self.variance_ns).max(GRANULARITY_NS) + ack_delay_ns
    }

    /// Returns the age at which a datagram is lost if a later one arrived (RFC 9002 6.1.2); it may
    /// be late by `window_ns`.
    pub(crate) fn loss_delay_ns(&self, window_ns: u64) -> u64 {
        let rtt = self.smoothed_ns.max(self.latest_ns);
        (rtt + window_ns.max(rtt / 8)).max(GRANULARITY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9002 5.3, computed by hand.
    #[test]
    fn samples_are_smoothed() {
        let mut rtt = RttEstimate::new(1_000_000);
        assert_eq!(rtt.probe_timeout_ns(7), 1_000_000 + 4 * 500_000 + 7);
        rtt.sample(800_000, 100_000);
        assert_eq!((rtt.smoothed_ns, rtt.variance_ns), (800_000, 400_000), "the first one as it is");
        rtt.sample(1_600_000, 400_000);
        assert_eq!((rtt.smoothed_ns, rtt.variance_ns), (850_000, 400_000), "less the peer's delay");
        rtt.sample(900_000, 400_000);
        assert_eq!(rtt.smoothed_ns, 856_250, "not below the least one");
        assert_eq!(rtt.loss_delay_ns(7), 900_000 + 112_500);
        assert_eq!(rtt.loss_delay_ns(300_000), 900_000 + 300_000);
        (0..100).for_each(|_| rtt.sample(10_000, 0));
        assert_eq!(rtt.probe_timeout_ns(0), rtt.smoothed_ns + GRANULARITY_NS);
        assert_eq!(rtt.loss_delay_ns(0), GRANULARITY_NS);
    }
}
