//! Rings that a socket shares with the kernel: one side puts entries in, the other takes them.
//!
//! Each side has an index of its entries, modulo 2^32, and publishes it after each batch.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapMut;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A received frame, or one to send: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptor {
    /// Offset in the memory of frames.
    pub at: u64,
    pub len: u32,
    pub options: u32,
}

/// Offsets of the parts of a ring in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub producer: u64,
    pub consumer: u64,
    pub flags: u64,
    pub entries: u64,
}

struct Shared<T> {
    map: MmapMut,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    len: u32,
    of: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Copy> Shared<T> {
    /// Makes a ring of `len` entries, a power of two.
    fn new(map: MmapMut, layout: Layout, len: u32) -> Result<Shared<T>> {
        let fits = |at: u64, bytes: usize, align: usize| {
            let at = usize::try_from(at).ok()?;
            (at.checked_add(bytes)? <= map.len() && at.is_multiple_of(align)).then_some(at)
        };
        let number = |at| fits(at, size_of::<AtomicU32>(), align_of::<AtomicU32>());
        let entries = fits(layout.entries, len as usize * size_of::<T>(), align_of::<T>());
        let places = (number(layout.producer), number(layout.consumer), number(layout.flags), entries);
        let (Some(producer), Some(consumer), Some(flags), Some(entries)) = places else {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the kernel's rings are not laid out as expected",
            ));
        };
        debug_assert!(len.is_power_of_two());
        Ok(Shared { map, producer, consumer, flags, entries, len, of: PhantomData })
    }

    fn number(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that all places lie in the mapping, aligned; both sides use
        // them by atomic operations.
        unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.entries + (number & (self.len - 1)) as usize * size_of::<T>();
        // SAFETY: the number is less than `len`, and `new` has checked that all entries lie in the
        // mapping, aligned.
        unsafe { self.map.as_ptr().add(at).cast::<T>().cast_mut() }
    }

    /// Returns whether the kernel needs a system call to continue.
    fn needs_wakeup(&self) -> bool {
        self.number(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side of a ring that puts entries in.
pub struct Producer<T> {
    shared: Shared<T>,
    next: u32,
    /// Entries known to be taken by the other side.
    taken: u32,
}

impl<T: FromBytes + IntoBytes + Copy> Producer<T> {
    /// Takes the ring of `len` entries, a power of two, in this mapping.
    pub fn new(map: MmapMut, layout: Layout, len: u32) -> Result<Producer<T>> {
        let shared = Shared::new(map, layout, len)?;
        let next = shared.number(shared.producer).load(Ordering::Relaxed);
        let taken = shared.number(shared.consumer).load(Ordering::Acquire);
        Ok(Producer { shared, next, taken })
    }

    /// Puts an entry in, to be published; returns whether there was room.
    pub fn put(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.taken) == self.shared.len {
            self.taken = self.shared.number(self.shared.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.taken) == self.shared.len {
                return false;
            }
        }
        // SAFETY: the entry is in the mapping, and the other side reads it only after it is
        // published.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Publishes the entries.
    pub fn publish(&self) {
        self.shared.number(self.shared.producer).store(self.next, Ordering::Release);
    }

    /// Returns the entries that the other side has not taken yet.
    pub fn waiting(&mut self) -> u32 {
        self.taken = self.shared.number(self.shared.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.taken)
    }

    /// Returns whether the kernel needs a system call to continue.
    pub fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// The side of a ring that takes entries.
pub struct Consumer<T> {
    shared: Shared<T>,
    next: u32,
    /// Entries known to be put in by the other side.
    there: u32,
}

impl<T: FromBytes + IntoBytes + Copy> Consumer<T> {
    /// Takes the ring of `len` entries, a power of two, in this mapping.
    pub fn new(map: MmapMut, layout: Layout, len: u32) -> Result<Consumer<T>> {
        let shared = Shared::new(map, layout, len)?;
        let next = shared.number(shared.consumer).load(Ordering::Relaxed);
        let there = shared.number(shared.producer).load(Ordering::Acquire);
        Ok(Consumer { shared, next, there })
    }

    /// Returns the number of entries to take.
    pub fn refresh(&mut self) -> u32 {
        self.there = self.shared.number(self.shared.producer).load(Ordering::Acquire);
        self.there.wrapping_sub(self.next)
    }

    /// Returns the entry at this distance after the next one, if [`Consumer::refresh`] has seen it.
    pub fn peek(&self, ahead: u32) -> Option<T> {
        let is_there = ahead < self.there.wrapping_sub(self.next);
        // SAFETY: the entry is in the mapping; the other side has put it in, and leaves it until it
        // is returned.
        is_there.then(|| unsafe { self.shared.entry(self.next.wrapping_add(ahead)).read() })
    }

    /// Takes an entry that [`Consumer::refresh`] has seen.
    pub fn take(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the taken entries' room to the other side.
    pub fn release(&self) {
        self.shared.number(self.shared.consumer).store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use memmap2::MmapOptions;
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, entries: 192 };

    /// Makes both sides of a ring of 8 entries, with this initial index.
    fn ring(begin: u32) -> (Producer<u64>, Consumer<u64>) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: the file has no other user.
        let map = || unsafe { MmapOptions::new().map_mut(&file).unwrap() };
        let mut first = map();
        for at in [0, 64] {
            first[at..at + 4].copy_from_slice(&begin.to_ne_bytes());
        }
        (Producer::new(first, LAYOUT, 8).unwrap(), Consumer::new(map(), LAYOUT, 8).unwrap())
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue_also_where_its_numbers_begin_anew(
            begin in prop_oneof![Just(0u32), Just(u32::MAX - 5), any::<u32>()],
            steps in prop::collection::vec((0u8..4, 0u32..12), 0..200),
        ) {
            let (mut producer, mut consumer) = ring(begin);
            // Entries that are put in and not published, published and not taken, taken and not
            // returned.
            let (mut put, mut queue, mut taken) = (VecDeque::new(), VecDeque::new(), 0);
            let mut number = 0;
            for (step, count) in steps {
                match step {
                    0 => for _ in 0..count {
                        let has_room = put.len() + queue.len() + taken < 8;
                        prop_assert_eq!(producer.put(number), has_room);
                        if has_room {
                            put.push_back(number);
                            number += 1;
                        }
                    },
                    1 => {
                        producer.publish();
                        queue.append(&mut put);
                    }
                    2 => {
                        prop_assert_eq!(consumer.refresh() as usize, queue.len());
                        for _ in 0..count {
                            let ahead = consumer.peek(1);
                            prop_assert_eq!(ahead, queue.get(1).copied());
                            let next = queue.pop_front();
                            taken += usize::from(next.is_some());
                            prop_assert_eq!(consumer.take(), next);
                        }
                    }
                    _ => {
                        consumer.release();
                        taken = 0;
                        prop_assert_eq!(producer.waiting() as usize, put.len() + queue.len());
                    }
                }
            }
        }
    }

    #[test]
    fn a_ring_beyond_its_mapping_is_refused() {
        let map = || MmapMut::map_anon(4096).unwrap();
        assert!(Producer::<u64>::new(map(), Layout { entries: 4096 - 56, ..LAYOUT }, 8).is_err());
        assert!(Producer::<u64>::new(map(), Layout { producer: 2, ..LAYOUT }, 8).is_err());
        assert!(Consumer::<Descriptor>::new(map(), Layout { flags: u64::MAX, ..LAYOUT }, 8).is_err());
        assert!(Consumer::<Descriptor>::new(map(), LAYOUT, 8).is_ok());
    }
}
