//! The packets of a batch on their way through the graph.

use std::collections::VecDeque;

use packet::Packet;

/// Maximum number of packets in a group: with their records they fit the first-level cache.
pub const GROUP_MAX: usize = 32;

/// The packets of a batch: first the passed ones, which have not left yet, then the unprocessed
/// ones.
///
/// They stay in place: a batch that passes completely leaves without a copy.
pub(crate) struct Queue {
    packets: VecDeque<Packet>,
    /// The number of packets at the front that passed.
    passed: usize,
}

impl Queue {
    /// Takes the batch and its memory; [`Queue::leave`] returns the memory.
    pub fn enter(batch: &mut Vec<Packet>) -> Queue {
        Queue { packets: VecDeque::from(std::mem::take(batch)), passed: 0 }
    }

    /// Returns the unprocessed packets.
    #[inline]
    pub fn rest(&mut self) -> &mut [Packet] {
        // The first slice has all of them: the memory was contiguous, and packets leave only at the
        // front.
        &mut self.packets.as_mut_slices().0[self.passed..]
    }

    /// Returns the number of unprocessed packets.
    pub fn rest_len(&self) -> usize {
        self.packets.len() - self.passed
    }

    /// Marks the first `count` unprocessed packets as passed.
    #[inline]
    pub fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    /// Takes the first unprocessed packet; moves the passed packets before it to `out`.
    pub fn next(&mut self, out: &mut Vec<Packet>) -> Option<Packet> {
        out.extend(self.packets.drain(..self.passed));
        self.passed = 0;
        self.packets.pop_front()
    }

    /// Moves the passed packets to `out` and returns the memory to the batch, which is then empty.
    /// No packet may be unprocessed.
    pub fn leave(self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>) {
        debug_assert!(self.rest_len() == 0);
        *batch = Vec::from(self.packets);
        out.append(batch);
    }
}
