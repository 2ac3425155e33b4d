//! The data of one direction of a connection that has been seen, as ranges of data sequence
//! numbers.
//!
//! Numbers are the low 32 bits. Ranges lie within [`SEEN_BYTES_MAX`] of the latest one, so that
//! their order is clear. Ranges without room are forgotten; their data counts as new when it is
//! repeated.

use nf::MeterValue;

/// Ranges remembered of a direction: one less than the gaps between them that may be open at once.
pub const SEEN_RANGES_MAX: usize = 6;

/// Data further before or after the latest is forgotten.
pub const SEEN_BYTES_MAX: u32 = 1 << 30;

/// Meters that hold the ranges of a direction.
pub const SEEN_PARTS: usize = 2;

/// The seen ranges, in order: each with its start in the high half, and its end in the low half.
/// Unused ones are zero.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::KnownLayout,
    zerocopy::Immutable,
)]
#[repr(C)]
pub struct SeenRanges {
    ranges: [u64; SEEN_RANGES_MAX],
}

impl SeenRanges {
    /// Returns the ranges that meters hold.
    pub fn of_parts(parts: [MeterValue; SEEN_PARTS]) -> SeenRanges {
        let [[a, b, c], [d, e, f]] = parts;
        SeenRanges { ranges: [a, b, c, d, e, f] }
    }

    /// Returns the same for meters.
    pub fn parts(self) -> [MeterValue; SEEN_PARTS] {
        let [a, b, c, d, e, f] = self.ranges;
        [[a, b, c], [d, e, f]]
    }

    fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges
            .iter()
            .copied()
            .filter(|&range| range != 0)
            .map(|range| ((range >> 32) as u32, range as u32))
    }

    /// Returns the ranges by their distances from a number.
    fn relative_to(&self, base: u32) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.iter().map(move |(from, to)| {
            let len = i64::from(to.wrapping_sub(from));
            let from = i64::from(from.wrapping_sub(base).cast_signed());
            (from, from + len)
        })
    }

    /// Returns how many of the `len` bytes from `start` on have been seen.
    pub fn count(&self, start: u32, len: u32) -> u32 {
        let (len, mut seen) = (i64::from(len), 0);
        for (from, to) in self.relative_to(start) {
            seen += (to.min(len) - from.max(0)).max(0);
        }
        seen as u32
    }

    /// Adds the `len` bytes from `start` on. Returns false if a range was forgotten for it.
    pub fn add(&mut self, start: u32, len: u32) -> bool {
        let len = len.min(SEEN_BYTES_MAX);
        if len == 0 {
            return true;
        }
        // Positions relative to the start of the added range.
        let (mut low, mut high) = (0, i64::from(len));
        let mut others = [(0, 0); SEEN_RANGES_MAX + 1];
        let mut count = 0;
        for (from, to) in self.relative_to(start) {
            if from <= high && to >= low {
                (low, high) = (low.min(from), high.max(to));
            } else {
                others[count] = (from, to);
                count += 1;
            }
        }
        others[count] = (low, high);
        count += 1;
        let others = &mut others[..count];
        others.sort_unstable();
        self.keep(start, others)
    }

    /// Adds all of other ranges. Returns false if a range was forgotten for them.
    pub fn unite(&mut self, other: &SeenRanges) -> bool {
        other.iter().fold(true, |all, (from, to)| all & self.add(from, to.wrapping_sub(from)))
    }

    /// Keeps the latest of these ranges, which are in order and relative to `base`.
    fn keep(&mut self, base: u32, ranges: &[(i64, i64)]) -> bool {
        let latest = ranges.last().map_or(0, |&(_, to)| to);
        let oldest = latest - i64::from(SEEN_BYTES_MAX);
        let first = ranges.len().saturating_sub(SEEN_RANGES_MAX);
        let kept = ranges[first..].iter().filter(|&&(_, to)| to > oldest);
        self.ranges = [0; SEEN_RANGES_MAX];
        for (slot, &(from, to)) in self.ranges.iter_mut().zip(kept) {
            let at = |position: i64| u64::from(base.wrapping_add(position as u32));
            *slot = at(from.max(oldest)) << 32 | at(to);
        }
        first == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a set of bytes: all that is claimed was seen, and all that was seen is
        /// claimed until there are too many ranges, also where numbers wrap.
        #[test]
        fn ranges_behave_like_a_set(
            base in prop_oneof![Just(0u32), Just(u32::MAX - 100), any::<u32>()],
            added in prop::collection::vec((0u32..400, 1u32..40), 1..60),
        ) {
            let (mut seen, mut set, mut has_all) = (SeenRanges::default(), BTreeSet::new(), true);
            for (start, len) in added {
                for (from, bytes) in [(start, len), (0, 500), (start / 2, 100)] {
                    let claimed = seen.count(base.wrapping_add(from), bytes) as usize;
                    let known = set.range(from..from + bytes).count();
                    let is_right = if has_all { claimed == known } else { claimed <= known };
                    prop_assert!(is_right, "{} of {}", claimed, known);
                }
                let is_kept = seen.add(base.wrapping_add(start), len);
                prop_assert!(!is_kept || seen.count(base.wrapping_add(start), len) == len);
                has_all &= is_kept;
                set.extend(start..start + len);
                prop_assert_eq!(SeenRanges::of_parts(seen.parts()), seen);
            }
        }

        /// Parts of one direction that were seen at several places come together in any order.
        #[test]
        fn union_has_what_both_have(
            base: u32,
            one in prop::collection::vec((0u32..200, 1u32..80), 0..3),
            other in prop::collection::vec((0u32..200, 1u32..80), 0..3),
        ) {
            let of = |added: &[(u32, u32)]| {
                let mut seen = SeenRanges::default();
                added.iter().for_each(|&(start, len)| _ = seen.add(base.wrapping_add(start), len));
                seen
            };
            let (first, second) = (of(&one), of(&other));
            let (mut there, mut back) = (first, second);
            prop_assert!(there.unite(&second) && back.unite(&first));
            prop_assert_eq!(there, of(&[one, other].concat()));
            prop_assert_eq!(there, back);
        }
    }

    #[test]
    fn far_data_is_forgotten() {
        let mut seen = SeenRanges::default();
        seen.add(1_000, 500);
        seen.add(SEEN_BYTES_MAX + 1_200, 100);
        assert_eq!(seen.count(1_000, 500), 200, "the rest is too far behind");
        seen.add(SEEN_BYTES_MAX + 2_000, 1);
        assert_eq!(seen.count(1_000, 500), 0);
        for step in 0..16 {
            seen.add(SEEN_BYTES_MAX / 4 * step, SEEN_BYTES_MAX / 4);
        }
        assert_eq!(seen.iter().count(), 1, "one range, which never becomes the whole circle");
        assert_eq!(seen.count(SEEN_BYTES_MAX / 4 * 12, SEEN_BYTES_MAX), SEEN_BYTES_MAX);
        assert_eq!(seen.count(SEEN_BYTES_MAX / 4 * 11, 100), 0);
    }
}
