//! The time of a capture's packets where timestamps are missing, broken, or of several clocks.
//!
//! Timestamps are used unchanged while each is within [`STEP_NS_MAX`] of the latest one. A single
//! timestamp that jumps is broken if the next one continues from before the jump: its packet gets
//! the latest time. If time jumps ahead and stays there, it has passed, and flows idle for that
//! long expire. If time jumps back and stays there, it is of another clock, such as that of an
//! appended section or file: time continues from the latest one, so flows neither live forever nor
//! expire at once.

use runtime::TimeJumps;

/// Maximum distance between a timestamp and the latest one without a jump.
pub const STEP_NS_MAX: u64 = 60_000_000_000;

/// Clocks that are remembered.
const CLOCKS_MAX: usize = 4;

/// State of a capture's time.
#[derive(Debug, Default)]
pub struct Timeline {
    latest_ns: Option<u64>,
    /// Offset of the current clock, and of earlier ones.
    offset_ns: i128,
    others_ns: Vec<i128>,
    /// Counts of irregular timestamps.
    pub jumps: TimeJumps,
}

impl Timeline {
    /// Returns the time of a packet if its timestamp continues from the latest one, or is missing.
    #[inline]
    pub fn continued(&mut self, stamp_ns: Option<u64>) -> Option<u64> {
        let latest_ns = self.latest_ns?;
        let Some(stamp_ns) = stamp_ns else {
            self.jumps.without_time += 1;
            return Some(latest_ns);
        };
        if self.offset_ns == 0 {
            // Nearly always, and without wide numbers.
            let goes_on = is_near(stamp_ns, latest_ns);
            self.latest_ns = Some(if goes_on { latest_ns.max(stamp_ns) } else { latest_ns });
            return goes_on.then_some(stamp_ns);
        }
        self.goes_on(stamp_ns, latest_ns).then(|| self.advance(stamp_ns, latest_ns))
    }

    /// Returns the time of a packet that is the first, or does not continue. `following` are the
    /// known next timestamps.
    pub fn at(&mut self, stamp_ns: Option<u64>, following: &[u64]) -> u64 {
        let Some(stamp_ns) = stamp_ns else {
            self.jumps.without_time += 1;
            return following.first().copied().unwrap_or(0);
        };
        let Some(latest_ns) = self.latest_ns else {
            let first_ns = match following {
                &[one, other] if is_near(one, other) && is_too_far(stamp_ns, one) => {
                    self.jumps.broken += 1;
                    one
                }
                _ => stamp_ns,
            };
            self.latest_ns = Some(first_ns);
            return first_ns;
        };
        if !self.goes_back_to_a_clock(stamp_ns, latest_ns) {
            if following.first().is_some_and(|&next| self.goes_on(next, latest_ns)) {
                self.jumps.broken += 1;
                return latest_ns;
            }
            if i128::from(stamp_ns) + self.offset_ns > i128::from(latest_ns) {
                self.jumps.ahead += 1;
            } else {
                self.jumps.back += 1;
                self.others_ns.truncate(CLOCKS_MAX - 1);
                self.others_ns.insert(0, self.offset_ns);
                self.offset_ns = i128::from(latest_ns) - i128::from(stamp_ns);
            }
        }
        self.advance(stamp_ns, latest_ns)
    }

    fn advance(&mut self, stamp_ns: u64, latest_ns: u64) -> u64 {
        let at_ns = self.placed(stamp_ns, self.offset_ns);
        self.latest_ns = Some(latest_ns.max(at_ns));
        at_ns
    }

    fn placed(&self, stamp_ns: u64, offset_ns: i128) -> u64 {
        (i128::from(stamp_ns) + offset_ns).clamp(0, u64::MAX.into()) as u64
    }

    fn goes_on(&self, stamp_ns: u64, latest_ns: u64) -> bool {
        is_near(self.placed(stamp_ns, self.offset_ns), latest_ns)
    }

    /// Switches back to an earlier clock if the timestamp continues it.
    fn goes_back_to_a_clock(&mut self, stamp_ns: u64, latest_ns: u64) -> bool {
        let known =
            self.others_ns.iter().position(|&offset| is_near(self.placed(stamp_ns, offset), latest_ns));
        if let Some(other) = known.and_then(|at| self.others_ns.get_mut(at)) {
            std::mem::swap(other, &mut self.offset_ns);
        }
        known.is_some()
    }
}

/// Returns whether the first timestamp cannot be of the same clock as the second: it is later, or
/// earlier by more than any capture pauses.
fn is_too_far(first_ns: u64, second_ns: u64) -> bool {
    const WAIT_NS_MAX: u64 = 30 * 24 * 3_600_000_000_000;
    first_ns > second_ns.saturating_add(STEP_NS_MAX) || first_ns.saturating_add(WAIT_NS_MAX) < second_ns
}

fn is_near(one_ns: u64, other_ns: u64) -> bool {
    one_ns.abs_diff(other_ns) <= STEP_NS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_S: u64 = 31_536_000;

    /// Returns the times, in seconds, of packets with these stamps.
    fn times(stamps: &[Option<u64>]) -> (Vec<u64>, TimeJumps) {
        let ns = |s: &Option<u64>| s.map(|s| s * 1_000_000_000);
        let mut timeline = Timeline::default();
        let times = (0..stamps.len()).map(|i| {
            let following: Vec<u64> = stamps[i + 1..].iter().filter_map(ns).take(2).collect();
            let continued = timeline.continued(ns(&stamps[i]));
            continued.unwrap_or_else(|| timeline.at(ns(&stamps[i]), &following)) / 1_000_000_000
        });
        (times.collect(), timeline.jumps)
    }

    fn stamped(stamps: &[u64]) -> (Vec<u64>, TimeJumps) {
        times(&stamps.iter().copied().map(Some).collect::<Vec<_>>())
    }

    #[test]
    fn continuous_timestamps_are_unchanged() {
        let stamps = [YEAR_S, YEAR_S + 1, YEAR_S, YEAR_S + 50, YEAR_S + 3, YEAR_S + 100];
        assert_eq!(stamped(&stamps), (stamps.to_vec(), TimeJumps::default()));
    }

    #[test]
    fn packets_without_a_timestamp_get_a_neighbours() {
        let (found, jumps) = times(&[None, None, Some(YEAR_S), None, Some(YEAR_S + 2)]);
        assert_eq!(found, [YEAR_S, YEAR_S, YEAR_S, YEAR_S, YEAR_S + 2]);
        assert_eq!(jumps, TimeJumps { without_time: 3, ..TimeJumps::default() });
        assert_eq!(times(&[None, None]).0, [0, 0]);
    }

    #[test]
    fn one_broken_stamp_changes_nothing() {
        for broken in [0, 40 * YEAR_S, 2 * YEAR_S] {
            let found = stamped(&[YEAR_S, YEAR_S + 1, broken, YEAR_S + 2, YEAR_S + 3]);
            let expected = [YEAR_S, YEAR_S + 1, YEAR_S + 1, YEAR_S + 2, YEAR_S + 3];
            assert_eq!(
                found,
                (expected.to_vec(), TimeJumps { broken: 1, ..TimeJumps::default() }),
                "{broken}"
            );
            assert_eq!(stamped(&[broken, YEAR_S, YEAR_S + 1]).0, [YEAR_S, YEAR_S, YEAR_S + 1]);
        }
    }

    #[test]
    fn time_that_jumps_ahead_and_stays_has_passed() {
        for stamps in [[YEAR_S, YEAR_S + 1, 2 * YEAR_S, 2 * YEAR_S + 1], [0, 1_000, 1_001, 1_002]] {
            assert_eq!(stamped(&stamps), (stamps.to_vec(), TimeJumps { ahead: 1, ..TimeJumps::default() }));
        }
    }

    #[test]
    fn time_that_jumps_back_continues() {
        let (found, jumps) = stamped(&[9 * YEAR_S, 9 * YEAR_S, YEAR_S, YEAR_S + 7, YEAR_S + 9]);
        assert_eq!(found, [9 * YEAR_S, 9 * YEAR_S, 9 * YEAR_S, 9 * YEAR_S + 7, 9 * YEAR_S + 9]);
        assert_eq!(jumps, TimeJumps { back: 1, ..TimeJumps::default() });
    }

    /// The clocks of two interfaces are a year apart; neither expires the other's flows.
    #[test]
    fn alternating_clocks_are_distinguished() {
        let (one, other) = (9 * YEAR_S, 8 * YEAR_S);
        let (found, jumps) =
            stamped(&[one, one + 1, other, other + 1, one + 3, one + 4, other + 5, other + 6]);
        assert_eq!(found.last().map(|last| last - one), Some(7), "{found:?}");
        assert!(found.is_sorted());
        assert_eq!(jumps, TimeJumps { back: 1, ..TimeJumps::default() });
    }
}
