//! The queue of what is going to happen.

use std::ops::RangeInclusive;

/// Bits of a time's digit.
const DIGIT_BITS: u32 = 6;

/// What a digit may be.
const DIGITS: usize = 1 << DIGIT_BITS;

/// Digits of a time.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

/// So many events that move together are shown: few enough for the cache, and enough that what they are about comes in time.
const SHOWN: RangeInclusive<usize> = 4..=256;

/// Events in order of time; those of one moment in the order in which they were added.
///
/// A radix heap: time never goes back, so an event lies in the bucket of the highest digit in which its time differs from
/// the present, and of what that digit is, and only moves to lower ones. That is a few appends for each event, whatever the
/// number of events. Events of one moment are always in the same bucket, and buckets keep their order: hence no sequence
/// numbers.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// By digit, level after level; those of the present moment are on the lowest level.
    buckets: Box<[Vec<(u64, T)>; LEVELS * DIGITS]>,
    /// Which buckets of each level have events. They are all behind the present's.
    filled: [u64; LEVELS],
    /// Which levels have such buckets.
    levels: u16,
    /// Events of the present moment that have been taken already.
    taken: usize,
    /// The time of the event that was taken last.
    now_ns: u64,
    /// The time of the next one; `u64::MAX`: there is none.
    next_ns: u64,
}

impl<T: Copy> EventQueue<T> {
    /// None, at time 0.
    pub fn new() -> EventQueue<T> {
        EventQueue {
            buckets: Box::new(std::array::from_fn(|_| Vec::new())),
            filled: [0; LEVELS],
            levels: 0,
            taken: 0,
            now_ns: 0,
            next_ns: u64::MAX,
        }
    }

    /// Adds an event. One of the past happens now.
    #[inline]
    pub fn push(&mut self, at_ns: u64, event: T) {
        let at_ns = at_ns.max(self.now_ns);
        self.next_ns = self.next_ns.min(at_ns);
        self.add(at_ns, event);
    }

    /// When the next event is to happen; `u64::MAX`: there is none.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next event. Its time is the present from then on. Most events are shown a few of them ahead, several at a
    /// time, so that what they are about may be brought to the cache.
    #[inline]
    pub fn pop(&mut self, show: impl FnMut(&[(u64, T)])) -> Option<(u64, T)> {
        if self.present().len() == self.taken
            && let Some(alone) = self.advance(show)
        {
            self.next_ns = self.first_ns();
            return Some(alone);
        }
        let (taken, present) = (self.taken, self.present());
        let (next, is_last) = (*present.get(taken)?, taken + 1 == present.len());
        self.taken += 1;
        if is_last {
            self.next_ns = self.first_ns();
        }
        Some(next)
    }

    /// The events of the present moment, or of the last one that there was something at.
    #[inline]
    fn present(&mut self) -> &mut Vec<(u64, T)> {
        &mut self.buckets[self.now_ns as usize % DIGITS]
    }

    #[inline]
    fn add(&mut self, at_ns: u64, event: T) {
        let differs = at_ns ^ self.now_ns;
        let level = (u64::BITS - 1 - (differs | 1).leading_zeros()) / DIGIT_BITS;
        let digit = (at_ns >> (level * DIGIT_BITS)) as usize % DIGITS;
        self.buckets[level as usize * DIGITS + digit].push((at_ns, event));
        if differs != 0 {
            self.filled[level as usize] |= 1 << digit;
            self.levels |= 1 << level;
        }
    }

    /// The level and the digit of the bucket that is next.
    #[inline]
    fn lowest(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        (self.levels != 0).then(|| (level, self.filled[level].trailing_zeros() as usize))
    }

    /// The time of the first event behind the present.
    #[inline]
    fn first_ns(&self) -> u64 {
        match self.lowest() {
            None => u64::MAX,
            Some((0, digit)) => self.now_ns - self.now_ns % DIGITS as u64 + digit as u64,
            Some((level, digit)) => {
                let times = self.buckets[level * DIGITS + digit].iter().map(|&(at_ns, _)| at_ns);
                times.min().unwrap_or(u64::MAX)
            }
        }
    }

    /// The present becomes the time of the next event: all of its bucket move to lower ones; one that is alone there is taken.
    #[inline]
    fn advance(&mut self, mut show: impl FnMut(&[(u64, T)])) -> Option<(u64, T)> {
        self.present().clear();
        self.taken = 0;
        let (level, digit) = self.lowest()?;
        self.filled[level] &= !(1 << digit);
        if self.filled[level] == 0 {
            self.levels &= !(1 << level);
        }
        self.now_ns = self.next_ns;
        if level == 0 {
            return None;
        }
        let at = level * DIGITS + digit;
        if self.buckets[at].len() == 1 {
            return self.buckets[at].pop();
        }
        let mut moving = std::mem::take(&mut self.buckets[at]);
        if SHOWN.contains(&moving.len()) {
            show(&moving);
        }
        moving.drain(..).for_each(|(at_ns, event)| self.add(at_ns, event));
        self.buckets[at] = moving; // It keeps its memory.
        None
    }
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn events_come_in_order_of_time_and_then_of_being_added(
            steps in prop::collection::vec(prop_oneof![
                3 => (0u64..3000).prop_map(Some),
                1 => (0u64..1u64 << 50).prop_map(Some),
                4 => Just(None),
            ], 1..300),
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
