//! Packets that several units have processed, back in the order in which they came.

use packet::Packet;

/// Puts packets in order; only its memory is kept.
pub(super) struct Sorter<T = Packet> {
    /// By number, from the first one's on.
    places: Vec<Option<T>>,
    /// Those that have no place of their own.
    others: Vec<T>,
}

/// Numbers from the first one's on that have places: those of several batches. Packets with later ones are compared.
const PLACES: usize = 1_024;

impl<T> Default for Sorter<T> {
    fn default() -> Sorter<T> {
        Sorter { places: Vec::new(), others: Vec::new() }
    }
}

impl Sorter {
    /// Sorts packets from here on by the numbers with which they came. Those with the same one, which functions made in answer to one, stay
    /// in order.
    pub fn sort(&mut self, packets: &mut Vec<Packet>, from: usize) {
        self.sort_by(packets, from, |packet| packet.meta().transit.sequence);
    }
}

impl<T> Sorter<T> {
    #[inline(always)]
    fn sort_by(&mut self, items: &mut Vec<T>, from: usize, number: impl Fn(&T) -> u64) {
        let Some(first) = items[from..].iter().map(&number).min() else { return };
        self.places.resize_with(PLACES, || None);
        let mut end = 0;
        for item in items.drain(from..) {
            let at = usize::try_from(number(&item) - first).unwrap_or(PLACES);
            match self.places.get_mut(at) {
                Some(place) if place.is_none() => {
                    *place = Some(item);
                    end = end.max(at + 1);
                }
                _ => self.others.push(item),
            }
        }
        items.extend(self.places[..end].iter_mut().filter_map(Option::take));
        if !self.others.is_empty() {
            items.append(&mut self.others);
            items[from..].sort_by_key(number); // Who had no place comes behind who took it.
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_stable_sort(
            numbers in prop::collection::vec(0u64..100, 0..200),
            first in any::<u32>(),
            apart in prop_oneof![Just(1), Just(20), Just(1 << 40)],
            from in 0usize..5,
        ) {
            let mut items: Vec<(u64, usize)> =
                numbers.iter().map(|n| u64::from(first) + n * apart).zip(0..).collect();
            let from = from.min(items.len());
            let mut sorted = items.clone();
            sorted[from..].sort_by_key(|&(number, _)| number);
            let mut sorter = Sorter::default();
            for _ in 0..2 {
                sorter.sort_by(&mut items, from, |&(number, _)| number);
                prop_assert_eq!(&items, &sorted);
            }
        }
    }
}
