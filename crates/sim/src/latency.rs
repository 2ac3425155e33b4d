//! Latencies of packets.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Limit on latencies, an hour; longer ones count as this.
const MOST_NS: u64 = 3_600_000_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Counts latencies, each to three digits (R7).
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

/// Latencies of packets, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Packets.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// 1st percentile.
    pub p1_ns: u64,
    /// 25th percentile.
    pub p25_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 75th percentile.
    pub p75_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latencies {
    /// Creates an empty histogram.
    pub fn new() -> Latencies {
        #[expect(
            clippy::expect_used,
            reason = "the bounds and the digits are constants that the library takes"
        )]
        let histogram = Histogram::new_with_bounds(1, MOST_NS, DIGITS).expect("constants are valid");
        Latencies { histogram, sum_ns: 0 }
    }

    /// Counts a latency.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.histogram.saturating_record(ns);
    }

    /// Returns the summary.
    pub fn finish(&self) -> LatencyReport {
        let count = self.histogram.len();
        let percentile = |percent| if count == 0 { 0 } else { self.histogram.value_at_percentile(percent) };
        LatencyReport {
            count,
            mean_ns: self.sum_ns as f64 / count.max(1) as f64,
            p1_ns: percentile(1.0),
            p25_ns: percentile(25.0),
            p50_ns: percentile(50.0),
            p75_ns: percentile(75.0),
            p99_ns: percentile(99.0),
            p99_9_ns: percentile(99.9),
            max_ns: if count == 0 { 0 } else { self.histogram.max() },
        }
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|ns| latencies.add(ns));
        let latency = latencies.finish();
        assert_eq!((latency.count, latency.mean_ns), (100_000, 50_000.5));
        for (value, exact) in [(latency.p1_ns, 1e3), (latency.p75_ns, 75e3), (latency.p99_9_ns, 99.9e3)] {
            assert!((value as f64 / exact - 1.0).abs() < 1e-3, "{value}");
        }
        assert_eq!(Latencies::new().finish().max_ns, 0);
    }
}
