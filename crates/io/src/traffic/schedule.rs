//! Times of packets and of new flows.

use super::profile::{FrameRate, Pacing, TrafficProfile};
use super::random::Random;

const NS_PER_SECOND: f64 = 1e9;

/// The clock of the packets.
#[derive(Debug)]
pub(super) struct Schedule {
    rate: FrameRate,
    pacing: Pacing,
    random: Random,
    now: FrameClock,
    /// Packets left in the burst, in on-off pacing.
    burst_left: u64,
}

impl Schedule {
    pub fn new(profile: &TrafficProfile, random: Random) -> Schedule {
        let now = FrameClock { ns: profile.start_ns, fraction: 0.0 };
        let mut schedule =
            Schedule { rate: profile.rate, pacing: profile.pacing, random, now, burst_left: 0 };
        schedule.begin_burst();
        schedule
    }

    /// Returns the time of the next packet, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now.ns
    }

    /// Advances to the packet after one of `frame_bytes`.
    pub fn advance(&mut self, frame_bytes: usize) {
        let mean_ns = match self.rate {
            FrameRate::PacketsPerSecond(rate) => NS_PER_SECOND / rate,
            FrameRate::BitsPerSecond(rate) => frame_bytes as f64 * 8.0 * NS_PER_SECOND / rate,
        };
        let gap_ns = match self.pacing {
            Pacing::Constant => mean_ns,
            Pacing::Poisson => self.random.exponential(mean_ns),
            Pacing::OnOff { gap_median_ns, gap_sigma, .. } => {
                self.burst_left -= 1;
                match self.burst_left {
                    0 => {
                        self.begin_burst();
                        mean_ns + self.random.log_normal(gap_median_ns, gap_sigma)
                    }
                    _ => mean_ns,
                }
            }
        };
        self.now.advance(gap_ns);
    }

    /// Advances time without packets.
    pub fn wait_until(&mut self, ns: u64) {
        if ns > self.now.ns {
            self.now = FrameClock { ns, fraction: 0.0 };
        }
    }

    fn begin_burst(&mut self) {
        if let Pacing::OnOff { burst_packets, .. } = self.pacing {
            self.burst_left = self.random.geometric(burst_packets) as u64;
        }
    }
}

/// Arrivals of flows: a Poisson process.
#[derive(Debug)]
pub(super) struct Arrivals {
    mean_gap_ns: f64,
    random: Random,
    next: FrameClock,
}

impl Arrivals {
    pub fn new(per_second: f64, start_ns: u64, random: Random) -> Arrivals {
        Arrivals {
            mean_gap_ns: NS_PER_SECOND / per_second,
            random,
            next: FrameClock { ns: start_ns, fraction: 0.0 },
        }
    }

    /// Returns the time of the next arrival, in nanoseconds.
    pub fn next_ns(&self) -> u64 {
        self.next.ns
    }

    pub fn advance(&mut self) {
        let gap_ns = self.random.exponential(self.mean_gap_ns);
        self.next.advance(gap_ns);
    }

    /// Skips some of the arrivals until `now_ns`; returns their number, at least one. After a long
    /// gap it skips all at once, and returns their mean number. A Poisson process has no memory, so
    /// the next arrival is then as far from `now_ns` as ever.
    pub fn pass_over_until(&mut self, now_ns: u64) -> u64 {
        const MANY: f64 = 1_000.0;
        let due = now_ns.saturating_sub(self.next.ns) as f64 / self.mean_gap_ns;
        let mut passed = 1;
        if due > MANY {
            self.next = FrameClock { ns: now_ns, fraction: 0.0 };
            passed = due as u64;
        }
        self.advance();
        passed
    }
}

/// A time in whole nanoseconds and a remainder, so that small gaps do not vanish next to large
/// times.
#[derive(Debug)]
struct FrameClock {
    ns: u64,
    fraction: f64,
}

impl FrameClock {
    fn advance(&mut self, gap_ns: f64) {
        let gap_ns = gap_ns + self.fraction;
        let whole = gap_ns.floor();
        self.fraction = gap_ns - whole;
        self.ns = self.ns.saturating_add(whole as u64);
    }
}
