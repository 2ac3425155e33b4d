//! The order of a group's packets by path.

use crate::cache::Path;
use crate::queue::GROUP_MAX;

/// A temporary order of a group's packets, by path.
pub(super) struct PathOrder {
    /// The original place of each packet.
    places: [u8; GROUP_MAX],
    /// The place with which each place is exchanged, one after the other.
    swaps: [u8; GROUP_MAX],
}

const _: () = assert!(GROUP_MAX <= u64::BITS as usize && GROUP_MAX <= u8::MAX as usize);

impl PathOrder {
    /// Creates an order in which packets of one path are together, in their order, and those of the
    /// slow path come last.
    pub fn by_path(paths: &[Path]) -> PathOrder {
        let mut order = PathOrder { places: [0; GROUP_MAX], swaps: [0; GROUP_MAX] };
        // The packets of each path, in the order of the first ones.
        let (mut distinct, mut count) = ([(Path::SLOW, 0_u64); GROUP_MAX], 0);
        let mut walking = 0_u64;
        for (at, &path) in paths.iter().enumerate() {
            let own = match distinct[..count].iter_mut().rev().find(|(of, _)| *of == path) {
                _ if path == Path::SLOW => &mut walking,
                Some((_, own)) => own,
                None => {
                    distinct[count].0 = path;
                    count += 1;
                    &mut distinct[count - 1].1
                }
            };
            *own |= 1 << at;
        }
        let mut places = order.places.iter_mut();
        for (_, mut set) in distinct[..count].iter().copied().chain([(Path::SLOW, walking)]) {
            while set != 0
                && let Some(place) = places.next()
            {
                *place = set.trailing_zeros() as u8;
                set &= set - 1;
            }
        }
        for at in 0..paths.len() {
            // That packet may have been exchanged already.
            let mut from = order.places[at];
            while usize::from(from) < at {
                from = order.swaps[usize::from(from)];
            }
            order.swaps[at] = from;
        }
        order
    }

    /// Returns the original places, in this order.
    pub fn places(&self) -> &[u8] {
        &self.places
    }

    /// Arranges a slice in this order.
    pub fn arrange<T>(&self, all: &mut [T]) {
        (0..all.len()).for_each(|at| all.swap(at, self.swaps[at].into()));
    }

    /// Returns a slice from this order to the original one.
    pub fn put_back<T>(&self, all: &mut [T]) {
        (0..all.len()).rev().for_each(|at| all.swap(at, self.swaps[at].into()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn paths_are_together_and_return(of in prop::collection::vec(0_usize..4, 1..=GROUP_MAX)) {
            let any = [Path::SLOW, Path::RECORD, Path::REVALIDATE, Path::PREDICT];
            let paths: Vec<Path> = of.iter().map(|&i| any[i]).collect();
            let order = PathOrder::by_path(&paths);
            let mut all: Vec<usize> = (0..paths.len()).collect();
            order.arrange(&mut all);
            let mut expected: Vec<usize> = (0..paths.len()).collect();
            let first = |i: usize| paths.iter().position(|&path| path == paths[i]);
            expected.sort_by_key(|&i| (paths[i] == Path::SLOW, first(i), i));
            prop_assert_eq!(&all, &expected);
            prop_assert!(all.iter().zip(&order.places).all(|(&i, &place)| i == usize::from(place)));
            order.put_back(&mut all);
            prop_assert!(all.iter().copied().eq(0..paths.len()));
        }
    }
}
