//! Sets of whole numbers as ranges, the ground under address and port groups.

use std::fmt::Debug;

/// A number that ranges are made of.
pub(crate) trait Point: Copy + Ord + Debug {
    const LOWEST: Self;
    const HIGHEST: Self;
    /// The next number up; `None` at the top.
    fn up(self) -> Option<Self>;
    /// The next number down; `None` at the bottom.
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

/// A set of numbers as ranges with both ends in them, in order, none touching the next: equal sets
/// are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Intervals<T>(Vec<(T, T)>);

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Point> Intervals<T> {
    /// Every number.
    pub fn all() -> Self {
        Self(vec![(T::LOWEST, T::HIGHEST)])
    }

    /// The numbers from `low` to `high`, both in it; none if `low` is above `high`.
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

    /// What is in any of the sets.
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

    /// What is not in the set.
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

    /// What is in this set and not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        // A without B is everything but (what is not A, or B).
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
