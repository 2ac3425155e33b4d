//! The packets of a batch on their way through the graph.

use std::collections::VecDeque;

use packet::Packet;

/// Packets of known flows that are processed together at most: what fits the first-level cache with
/// its records.
pub const GROUP_MAX: usize = 32;

/// The packets of a batch that are not through yet, and before them those that passed and wait to
/// leave.
///
/// They stay where they are, so that a batch whose packets all pass is handed on as a whole.
pub(crate) struct Queue {
    packets: VecDeque<Packet>,
    /// The number of packets at the front that passed.
    passed: usize,
}

impl Queue {
    /// All of the batch, whose memory [`Queue::leave`] gives back.
    pub fn enter(batch: &mut Vec<Packet>) -> Queue {
        Queue { packets: VecDeque::from(std::mem::take(batch)), passed: 0 }
    }

    /// The packets that are not through yet.
    #[inline]
    pub fn rest(&mut self) -> &mut [Packet] {
        // One slice is all: packets are only ever taken from the front of what was one run of
        // memory.
        &mut self.packets.as_mut_slices().0[self.passed..]
    }

    /// Returns the number of packets that are not through yet.
    pub fn rest_len(&self) -> usize {
        self.packets.len() - self.passed
    }

    /// The first `count` of the packets that are not through yet passed.
    #[inline]
    pub fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    /// Takes the first packet that is not through yet; those that passed before it leave to `out`.
    pub fn next(&mut self, out: &mut Vec<Packet>) -> Option<Packet> {
        out.extend(self.packets.drain(..self.passed));
        self.passed = 0;
        self.packets.pop_front()
    }

    /// All are through: those that passed leave to `out`, and the batch is empty.
    pub fn leave(self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>) {
        debug_assert!(self.rest_len() == 0);
        *batch = Vec::from(self.packets);
        out.append(batch);
    }
}
