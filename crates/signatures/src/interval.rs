//! Sets of integers as ranges, the basis of address and port sets.

use std::fmt::Debug;

/// An integer type of ranges.
pub(crate) trait Point: Copy + Ord + Debug {
    const LOWEST: Self;
    const HIGHEST: Self;
    /// Returns the successor; `None` at the maximum.
    fn up(self) -> Option<Self>;
    /// Returns the predecessor; `None` at the minimum.
    fn down(self) -> Option<Self>;
}

macro_rules! point {
    ($($number:ty),*) => {$(
        impl Point for $number {
            const LOWEST: Self = <$number>::MIN;
            const HIGHEST: Self = <$number>::MAX;
            fn up(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn down(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    )*};
}

point!(u16, u32, u128);

/// A set of integers as inclusive ranges, sorted, neither overlapping nor adjacent: equal sets are
/// equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Intervals<T>(Vec<(T, T)>);

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Point> Intervals<T> {
    /// Returns the set of all integers.
    pub fn all() -> Self {
        Self(vec![(T::LOWEST, T::HIGHEST)])
    }

    /// Returns the integers from `low` to `high`, inclusive; none if `low` is above `high`.
    pub fn range(low: T, high: T) -> Self {
        Self(if low <= high { vec![(low, high)] } else { Vec::new() })
    }

    pub fn ranges(&self) -> &[(T, T)] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_all(&self) -> bool {
        matches!(self.0[..], [(low, high)] if low == T::LOWEST && high == T::HIGHEST)
    }

    pub fn contains(&self, number: T) -> bool {
        let after = self.0.partition_point(|(low, _)| *low <= number);
        after > 0 && number <= self.0[after - 1].1
    }

    /// Returns the union of the sets.
    pub fn union(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut ranges: Vec<(T, T)> = sets.into_iter().flat_map(|set| set.0).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if last.1.up().is_none_or(|next| low <= next) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    /// Returns the complement.
    pub fn complement(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut from = Some(T::LOWEST);
        for (low, high) in &self.0 {
            if let (Some(from), Some(before)) = (from, low.down())
                && from <= before
            {
                gaps.push((from, before));
            }
            from = high.up();
        }
        if let Some(from) = from {
            gaps.push((from, T::HIGHEST));
        }
        Self(gaps)
    }

    /// Returns the difference to `other`.
    pub fn minus(&self, other: &Self) -> Self {
        // A minus B is the complement of (the complement of A, or B).
        Self::union([self.complement(), other.clone()]).complement()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = Intervals<u16>> {
        let edge = prop_oneof![0u16..40, 65_500u16..=65_535];
        prop::collection::vec((edge.clone(), edge), 0..6)
            .prop_map(|ranges| Intervals::union(ranges.into_iter().map(|(a, b)| Intervals::range(a, b))))
    }

    fn numbers() -> impl Iterator<Item = u16> {
        (0..60).chain(65_480..=65_535)
    }

    proptest! {
        #[test]
        fn sets_are_what_their_numbers_say(a in set(), b in set()) {
            let both = Intervals::union([a.clone(), b.clone()]);
            let less = a.minus(&b);
            let not = a.complement();
            for n in numbers() {
                prop_assert_eq!(both.contains(n), a.contains(n) || b.contains(n));
                prop_assert_eq!(less.contains(n), a.contains(n) && !b.contains(n));
                prop_assert_eq!(not.contains(n), !a.contains(n));
            }
            prop_assert_eq!(not.complement(), a);
        }
    }
}
