//! The event queue.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

/// Low bits of a time, below its last digit: 256 ns, an interval with few events.
const REST_BITS: u32 = 8;

/// Bits of a time's digit.
const DIGIT_BITS: u32 = 6;

/// Values of a digit.
const DIGITS: usize = 1 << DIGIT_BITS;

/// Digits of a time.
const LEVELS: usize = (u64::BITS - REST_BITS).div_ceil(DIGIT_BITS) as usize;

/// Limit on the events that are sorted rather than distributed over buckets, if possible.
const SORTED_MAX: usize = 32;

/// Events shown when a bucket moves: few enough for the cache, enough to prefetch in time.
const SHOWN: RangeInclusive<usize> = 4..=256;

/// Events in order of time; events of one moment in order of addition.
///
/// A radix heap with sorted next events. Time never goes back. An event's bucket is given by the
/// highest digit that differs from the base time, and by that digit's value. When the sorted events
/// are used up, the first bucket follows: if it has few events, or their times have the same
/// digits, they are sorted; else they move to lower buckets. An event that is added before the
/// first bucket's time goes into a heap, which follows the sorted events of the same moment,
/// because it was added later. So an event is appended once or twice, and sorted with some others,
/// whatever the number of events.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// By digit, level after level, each in order of addition.
    buckets: Box<[Vec<(u64, T)>; LEVELS * DIGITS]>,
    /// Bitmap of the buckets with events in each level; all are later than the current one.
    filled: [u64; LEVELS],
    /// Bitmap of the levels with such buckets.
    levels: u16,
    /// The base time, not after any event in a bucket; event times are compared with its digits.
    base_ns: u64,
    /// The next events, in order.
    sorted: Vec<(u64, T)>,
    /// Number of `sorted` events that were taken.
    taken: usize,
    /// Events added since then that are not later than `sorted_until_ns`.
    late: BinaryHeap<Late<T>>,
    sorted_until_ns: u64,
    /// Number of events ever added to `late`.
    late_added: u64,
    /// The time of the last event taken.
    now_ns: u64,
    /// The time of the next event; `u64::MAX` if there is none.
    next_ns: u64,
}

/// An event that was added after its neighbours in time had been sorted.
#[derive(Clone, Copy, Debug)]
struct Late<T> {
    at_ns: u64,
    number: u64,
    event: T,
}

impl<T: Copy> EventQueue<T> {
    /// Creates an empty queue at time 0.
    pub fn new() -> EventQueue<T> {
        EventQueue {
            buckets: Box::new(std::array::from_fn(|_| Vec::new())),
            filled: [0; LEVELS],
            levels: 0,
            base_ns: 0,
            sorted: Vec::new(),
            taken: 0,
            late: BinaryHeap::new(),
            sorted_until_ns: 0,
            late_added: 0,
            now_ns: 0,
            next_ns: u64::MAX,
        }
    }

    /// Adds an event. An event of the past happens now.
    #[inline]
    pub fn push(&mut self, at_ns: u64, event: T) {
        let at_ns = at_ns.max(self.now_ns);
        if at_ns > self.sorted_until_ns && !self.is_out() {
            self.add(at_ns, event);
        } else {
            self.add_late(at_ns, event);
        }
        self.next_ns = self.next_ns.min(at_ns);
    }

    /// Returns the time of the next event; `u64::MAX` if there is none.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next event. Its time is the present from then on. Calls `show` with most events
    /// ahead of their time, several at once, so that the caller can prefetch their data.
    #[inline]
    pub fn pop(&mut self, show: impl FnMut(&[(u64, T)])) -> Option<(u64, T)> {
        let next = match self.sorted.get(self.taken) {
            Some(&next) if self.late.peek().is_none_or(|late| next.0 <= late.at_ns) => {
                self.taken += 1;
                next
            }
            _ => self.late.pop().map(|late| (late.at_ns, late.event))?,
        };
        self.now_ns = next.0;
        if self.taken == self.sorted.len() && self.late.is_empty() {
            self.sort_next(show);
        }
        let late_ns = self.late.peek().map_or(u64::MAX, |late| late.at_ns);
        self.next_ns = self.sorted.get(self.taken).map_or(late_ns, |&(at_ns, _)| at_ns.min(late_ns));
        Some(next)
    }

    /// Returns true if there are no events.
    #[inline]
    fn is_out(&self) -> bool {
        self.next_ns == u64::MAX
    }

    /// Adds an event before the end of the sorted ones.
    #[inline(never)] // Rare: it would only enlarge its callers.
    fn add_late(&mut self, at_ns: u64, event: T) {
        self.sorted_until_ns = self.sorted_until_ns.max(at_ns);
        self.late.push(Late { at_ns, number: self.late_added, event });
        self.late_added += 1;
    }

    /// Adds an event after the next ones to its bucket.
    #[inline]
    fn add(&mut self, at_ns: u64, event: T) {
        let differs = (at_ns ^ self.base_ns) >> REST_BITS;
        let level = (u64::BITS - 1 - (differs | 1).leading_zeros()) / DIGIT_BITS;
        let digit = (at_ns >> (REST_BITS + level * DIGIT_BITS)) as usize % DIGITS;
        self.buckets[level as usize * DIGITS + digit].push((at_ns, event));
        self.filled[level as usize] |= 1 << digit;
        self.levels |= 1 << level;
    }

    /// Removes the next bucket from the bitmaps, and returns its level and place.
    #[inline]
    fn take_lowest(&mut self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.filled[level].trailing_zeros() as usize;
        self.filled[level] &= self.filled[level] - 1;
        if self.filled[level] == 0 {
            self.levels &= self.levels - 1;
        }
        Some((level, level * DIGITS + digit))
    }

    /// Sorts the events of the next bucket.
    fn sort_next(&mut self, mut show: impl FnMut(&[(u64, T)])) {
        self.sorted.clear();
        self.taken = 0;
        while let Some((level, place)) = self.take_lowest() {
            let bucket = &mut self.buckets[place];
            if SHOWN.contains(&bucket.len()) {
                show(bucket);
            }
            let rest = !0 >> (u64::BITS - REST_BITS - level as u32 * DIGIT_BITS);
            let Some(&(at_ns, _)) = bucket.first() else { continue };
            self.base_ns = at_ns & !rest;
            if level == 0 || bucket.len() <= SORTED_MAX {
                std::mem::swap(&mut self.sorted, bucket);
                self.sorted.sort_by_key(|&(at_ns, _)| at_ns);
                self.sorted_until_ns = at_ns | rest;
                return;
            }
            let mut moving = std::mem::take(bucket);
            moving.drain(..).for_each(|(at_ns, event)| self.add(at_ns, event));
            self.buckets[place] = moving; // The bucket keeps its memory.
        }
    }
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue::new()
    }
}

/// Reversed, because a heap has its greatest item on top.
impl<T> Ord for Late<T> {
    #[inline]
    fn cmp(&self, other: &Late<T>) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

impl<T> PartialOrd for Late<T> {
    #[inline]
    fn partial_cmp(&self, other: &Late<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Late<T> {
    fn eq(&self, other: &Late<T>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Late<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn events_come_in_order_of_time_and_then_of_being_added(
            steps in prop::collection::vec(prop_oneof![
                3 => (0u64..3000).prop_map(Some),
                3 => (0u64..300_000).prop_map(Some),
                1 => (0u64..1u64 << 50).prop_map(Some),
                4 => Just(None),
            ], 1..600),
        ) {
            let (mut queue, mut model, mut now, mut number) = (EventQueue::new(), Vec::new(), 0, 0);
            for step in steps {
                match step {
                    Some(ahead) => {
                        queue.push(now + ahead, number);
                        model.push((now + ahead, number));
                        number += 1;
                    }
                    None => {
                        let first = model.iter().copied().min();
                        prop_assert_eq!(queue.next_ns(), first.map_or(u64::MAX, |(at, _)| at));
                        prop_assert_eq!(queue.pop(|_| {}), first);
                        model.retain(|&event| Some(event) != first);
                        now = first.map_or(now, |(at, _)| at);
                    }
                }
            }
        }
    }

    #[test]
    fn what_should_have_happened_happens_now() {
        let mut queue = EventQueue::new();
        queue.push(10, 'a');
        assert_eq!(queue.pop(|_| {}), Some((10, 'a')));
        queue.push(3, 'b');
        assert_eq!((queue.pop(|_| {}), queue.pop(|_| {})), (Some((10, 'b')), None));
    }
}
