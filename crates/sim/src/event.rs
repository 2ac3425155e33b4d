//! The queue of what is going to happen.

/// Buckets: one for events at the present moment, and one for each highest bit in which a later time may differ from it.
const BUCKETS: usize = 65;

/// Events in order of time; those of one moment in the order in which they were added.
///
/// A radix heap: time never goes back, so an event lies in the bucket of the highest bit in which its time differs from
/// the present, and only moves to lower ones. That is a handful of appends for each event, whatever the number of events.
/// Events of one moment are always in the same bucket, and buckets keep their order: hence no sequence numbers.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Which buckets have events: bit `i` for bucket `i` + 1.
    filled: u64,
    /// Events of bucket 0 that have been taken already.
    taken: usize,
    /// The time of the event that was taken last.
    now_ns: u64,
    /// The time of the next one; `u64::MAX`: there is none.
    next_ns: u64,
    /// A bucket while its events are moved, to keep its memory.
    moving: Vec<(u64, T)>,
}

impl<T: Copy> EventQueue<T> {
    /// None, at time 0.
    pub fn new() -> EventQueue<T> {
        let buckets = std::array::from_fn(|_| Vec::new());
        EventQueue { buckets, filled: 0, taken: 0, now_ns: 0, next_ns: u64::MAX, moving: Vec::new() }
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

    /// Takes the next event. Its time is the present from then on.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.taken == self.buckets[0].len() {
            self.advance();
        }
        let next = *self.buckets[0].get(self.taken)?;
        self.taken += 1;
        if self.taken == self.buckets[0].len() {
            let first = self.lowest().and_then(|lowest| self.buckets[lowest].iter().map(|&(ns, _)| ns).min());
            self.next_ns = first.unwrap_or(u64::MAX);
        }
        Some(next)
    }

    #[inline]
    fn add(&mut self, at_ns: u64, event: T) {
        let bucket = (u64::BITS - (at_ns ^ self.now_ns).leading_zeros()) as usize;
        self.buckets[bucket].push((at_ns, event));
        // Bit 0 of this is bucket 0, which needs none.
        self.filled |= ((1u128 << bucket) >> 1) as u64;
    }

    /// The lowest bucket that has events, other than bucket 0.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        (self.filled != 0).then(|| self.filled.trailing_zeros() as usize + 1)
    }

    /// The present becomes the time of the next event: all of the lowest bucket move to lower ones.
    fn advance(&mut self) {
        self.buckets[0].clear();
        self.taken = 0;
        let Some(lowest) = self.lowest() else { return };
        self.filled &= self.filled - 1;
        std::mem::swap(&mut self.moving, &mut self.buckets[lowest]);
        self.now_ns = self.next_ns;
        for i in 0..self.moving.len() {
            let (at_ns, event) = self.moving[i];
            self.add(at_ns, event);
        }
        self.moving.clear();
        std::mem::swap(&mut self.moving, &mut self.buckets[lowest]);
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
                        prop_assert_eq!(queue.pop(), first);
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
        assert_eq!(queue.pop(), Some((10, 'a')));
        queue.push(3, 'b');
        assert_eq!((queue.pop(), queue.pop()), (Some((10, 'b')), None));
    }
}
