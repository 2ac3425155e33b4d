//! Provisioning by demand: the number of units that total demand needs.

use crate::dispatcher::config::Config;
use crate::dispatcher::load::rate_bps;

/// Number of buckets that the total rate is measured over: 30 ms of 500 us each. With fewer, bursts
/// of single flows start units; with more, it reacts late.
const RATE_BUCKETS: usize = 60;

/// Number of buckets for which a wanted unit is kept: 5 ms.
const HELD_BUCKETS: usize = 10;

/// Recent demand, and the units that it needed. It does not depend on the distribution over units,
/// so neither full nor new units make a difference.
pub(crate) struct Provisioning {
    /// Load that a unit should have, in bits per second.
    load_bps: f32,
    bucket_ns: u64,
    /// Total bytes at the end of the last bucket.
    bytes: u64,
    /// Bytes of each of the last buckets, as a ring.
    came: [u64; RATE_BUCKETS],
    /// Units wanted at the end of each, as a ring.
    wanted: [usize; HELD_BUCKETS],
    /// Number of past buckets.
    turns: usize,
}

impl Provisioning {
    /// Creates it for units that should have this load, as a share of their capacity.
    pub fn new(load: f32, config: &Config) -> Provisioning {
        Provisioning {
            load_bps: load * config.capacity_bps as f32,
            bucket_ns: config.bucket_ns,
            bytes: 0,
            came: [0; RATE_BUCKETS],
            wanted: [0; HELD_BUCKETS],
            turns: 0,
        }
    }

    /// Ends this many buckets. `bytes` is the new total; the new bytes belong to the first of them.
    pub fn turn(&mut self, buckets: u64, bytes: u64) {
        let mut new = bytes - std::mem::replace(&mut self.bytes, bytes);
        // After this many empty buckets, all are.
        for _ in 0..buckets.min((RATE_BUCKETS + HELD_BUCKETS) as u64) {
            self.came[self.turns % RATE_BUCKETS] = std::mem::take(&mut new);
            let measured = (self.turns + 1).min(RATE_BUCKETS) as u64;
            let came_bps = rate_bps(self.came.iter().sum(), self.bucket_ns.saturating_mul(measured));
            self.wanted[self.turns % HELD_BUCKETS] = (came_bps / self.load_bps).ceil() as usize;
            self.turns += 1;
        }
    }

    /// Returns the number of units wanted now.
    pub fn wanted(&self) -> usize {
        self.turns.checked_sub(1).map_or(0, |last| self.wanted[last % HELD_BUCKETS])
    }

    /// Returns the highest number wanted recently. At the start, no unit is too many.
    pub fn kept(&self) -> usize {
        if self.turns < HELD_BUCKETS { usize::MAX } else { self.wanted.iter().copied().max().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units should have 800 Mbit/s: 50,000 bytes per bucket of 500 us.
    fn follow() -> Provisioning {
        Provisioning::new(0.8, &Config::default())
    }

    #[test]
    fn as_many_as_can_hold_what_came() {
        let mut follow = follow();
        assert_eq!((follow.wanted(), follow.kept()), (0, usize::MAX));
        let mut bytes = 0;
        for bucket in 0..HELD_BUCKETS + RATE_BUCKETS {
            bytes += 120_000;
            follow.turn(1, bytes);
            assert_eq!(follow.wanted(), 3, "{bucket}");
        }
        assert_eq!(follow.kept(), 3);
        // Half of that: after five twelfths of the window, 19 of 24.
        for _ in 0..RATE_BUCKETS / 3 + HELD_BUCKETS / 2 {
            bytes += 60_000;
            follow.turn(1, bytes);
        }
        assert_eq!((follow.wanted(), follow.kept()), (2, 3), "what was wanted lately is kept");
        // A long silence, in one step.
        follow.turn(RATE_BUCKETS as u64 - 1, bytes + 4_000);
        assert_eq!(follow.wanted(), 1, "the step's bytes are in its first bucket, and still count");
        follow.turn(1_000_000, bytes + 4_000);
        assert_eq!((follow.wanted(), follow.kept()), (0, 0));
    }

    #[test]
    fn one_burst_is_no_demand() {
        let mut follow = follow();
        (1..=200).for_each(|bucket| follow.turn(1, bucket * 40_000));
        follow.turn(1, 201 * 40_000 + 15_000);
        assert_eq!(follow.wanted(), 1, "a flowlet of 240 Mbit/s does not fit, but does not matter");
    }
}
