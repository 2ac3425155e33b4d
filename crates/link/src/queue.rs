//! Queues of byte slices in one reused buffer.

use std::collections::VecDeque;

/// Bytes at the front that are given back only together with the rest.
const SLACK: usize = 65_536;

/// Buffers of owned slices that are kept for later ones, and bytes of each, at most.
const SPARE_MAX: usize = 16;
const SPARE_LEN_MAX: usize = 65_536;

/// A first-in first-out queue of slices, each with a tag. It allocates only to grow.
#[derive(Debug)]
pub(crate) struct SliceQueue<T> {
    bytes: Vec<u8>,
    head: usize,
    entries: VecDeque<SliceEntry<T>>,
    /// The bytes of slices that are not in the common buffer, in order.
    owned: VecDeque<Vec<u8>>,
    taken: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct SliceEntry<T> {
    tag: T,
    len: usize,
    is_owned: bool,
}

impl<T> SliceQueue<T> {
    pub(crate) fn new() -> SliceQueue<T> {
        SliceQueue {
            bytes: Vec::new(),
            head: 0,
            entries: VecDeque::new(),
            owned: VecDeque::new(),
            taken: Vec::new(),
            spare: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of slices.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of queued slices in the common buffer.
    #[inline]
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Returns the first slice's length.
    #[inline]
    pub(crate) fn front_len(&self) -> Option<usize> {
        self.entries.front().map(|entry| entry.len)
    }

    /// Appends a copy of a slice.
    #[inline]
    pub(crate) fn push(&mut self, tag: T, bytes: &[u8]) {
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
        } else if self.head > SLACK && self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.entries.push_back(SliceEntry { tag, len: bytes.len(), is_owned: false });
    }

    /// Returns an empty buffer, for [`SliceQueue::push_owned`].
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends a buffer without a copy.
    pub(crate) fn push_owned(&mut self, tag: T, bytes: Vec<u8>) {
        self.entries.push_back(SliceEntry { tag, len: bytes.len(), is_owned: true });
        self.owned.push_back(bytes);
    }

    /// Takes the first slice. It stays valid until the next call.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(T, &[u8])> {
        let SliceEntry { tag, len, is_owned } = self.entries.pop_front()?;
        if is_owned {
            let mut former = std::mem::replace(&mut self.taken, self.owned.pop_front()?);
            if self.spare.len() < SPARE_MAX && former.capacity() <= SPARE_LEN_MAX {
                former.clear();
                self.spare.push(former);
            }
            return Some((tag, &self.taken));
        }
        let start = self.head;
        self.head += len;
        Some((tag, &self.bytes[start..self.head]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slices_leave_in_order(steps in prop::collection::vec((0u8..5, 0usize..40_000), 0..60)) {
            let mut queue = SliceQueue::new();
            let mut expected = VecDeque::new();
            for (step, len) in steps {
                let bytes = vec![step; len];
                match step {
                    0 | 1 => queue.push(len, &bytes),
                    2 => queue.push_owned(len, bytes.clone()),
                    _ => {
                        let popped = queue.pop().map(|(tag, bytes)| (tag, bytes.to_vec()));
                        prop_assert_eq!(popped, expected.pop_front());
                        continue;
                    }
                }
                expected.push_back((len, bytes));
                prop_assert_eq!(queue.front_len(), expected.front().map(|(len, _)| *len));
            }
        }
    }
}
