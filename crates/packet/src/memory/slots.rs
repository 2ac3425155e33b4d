//! Equal slots of memory, each made of the same parts: what records of flows are kept in.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{OutOfMemory, Zeroed, prefetch};

/// Bytes of a cache line.
pub const LINE: usize = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// A fixed number of slots of equal size, whole cache lines each, all bytes zero at first.
///
/// A part of a slot is found by one multiplication and checked by two comparisons: where it begins was proven fit for its
/// type when its [`Part`] was made.
pub struct Slots {
    memory: Zeroed<Line>,
    slots: u32,
    slot_len: usize,
}

/// Where in every slot a `T` stands.
pub struct Part<T> {
    start: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        *self
    }
}

impl<T> Copy for Part<T> {}

impl<T: FromBytes + IntoBytes> Part<T> {
    /// The part that begins so many bytes into the slot; none if a `T` cannot stand there.
    pub const fn at(start: usize) -> Option<Part<T>> {
        const { assert!(align_of::<T>() <= LINE, "slots are aligned to cache lines only") };
        if !start.is_multiple_of(align_of::<T>()) || start > isize::MAX as usize - size_of::<T>() {
            return None;
        }
        Some(Part { start, of: PhantomData })
    }

    /// The first byte behind it.
    #[inline(always)]
    const fn end(self) -> usize {
        self.start + size_of::<T>() // No overflow: see `at`.
    }
}

impl Slots {
    /// Room for `slots` slots of at least `slot_len` bytes.
    pub fn new(slots: u32, slot_len: usize) -> Result<Slots, OutOfMemory> {
        let lines = slot_len.div_ceil(LINE);
        let memory = Zeroed::new(lines.saturating_mul(slots as usize))?;
        Ok(Slots { memory, slots, slot_len: lines * LINE })
    }

    /// How many slots there are.
    pub fn count(&self) -> u32 {
        self.slots
    }

    /// Bytes of a slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// A part of a slot; none if there is no such slot, or if the slots do not have it.
    #[inline(always)]
    pub fn get<T: FromBytes + IntoBytes + Immutable>(&self, slot: u32, part: Part<T>) -> Option<&T> {
        if slot >= self.slots || part.end() > self.slot_len {
            return None;
        }
        // SAFETY: the part lies within its slot, and the slot within the memory (both just checked; `new` made the memory
        // slots * slot_len bytes long). Slots begin at multiples of a line, and the part at a multiple of T's alignment, which
        // is a line at most (`Part::at`). Any bytes are a T (FromBytes). The memory is borrowed, shared, as long as the T.
        Some(unsafe { &*self.start_of(slot).add(part.start).cast::<T>() })
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn get_mut<T: FromBytes + IntoBytes>(&mut self, slot: u32, part: Part<T>) -> Option<&mut T> {
        if slot >= self.slots || part.end() > self.slot_len {
            return None;
        }
        // SAFETY: as in `get`; the memory is borrowed exclusively as long as the T, and T has no padding (IntoBytes).
        Some(unsafe { &mut *self.start_of_mut(slot).add(part.start).cast::<T>() })
    }

    /// Two parts of a slot, the second behind the first, and all bytes behind that; none as with [`Slots::get`], or if they
    /// do not stand so.
    #[inline(always)]
    pub fn split_mut<A: FromBytes + IntoBytes, B: FromBytes + IntoBytes>(
        &mut self,
        slot: u32,
        first: Part<A>,
        second: Part<B>,
    ) -> Option<(&mut A, &mut B, &mut [u8])> {
        if slot >= self.slots || second.end() > self.slot_len || first.end() > second.start {
            return None;
        }
        let rest_len = self.slot_len - second.end();
        let start = self.start_of_mut(slot);
        // SAFETY: as in `get_mut`, for each of the three; none overlaps another: the first ends before the second begins, and
        // the bytes are from the second's end to the slot's.
        unsafe {
            Some((
                &mut *start.add(first.start).cast::<A>(),
                &mut *start.add(second.start).cast::<B>(),
                std::slice::from_raw_parts_mut(start.add(second.end()), rest_len),
            ))
        }
    }

    /// All bytes of a slot; none if there is no such slot.
    pub fn bytes(&self, slot: u32) -> Option<&[u8]> {
        let lines = self.slot_len / LINE;
        Some(self.memory.get(slot as usize * lines..)?.get(..lines)?.as_bytes())
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let lines = self.slot_len / LINE;
        Some(self.memory.get_mut(slot as usize * lines..)?.get_mut(..lines)?.as_mut_bytes())
    }

    /// Asks for the cache line that is `at` bytes into the slot. Only a hint: slot and place may be any.
    #[inline(always)]
    pub fn prefetch(&self, slot: u32, at: usize) {
        prefetch(self.start_of(slot).wrapping_add(at));
    }

    /// Where the slot begins, if there is such a slot.
    #[inline(always)]
    fn start_of(&self, slot: u32) -> *const u8 {
        self.memory.as_ptr().cast::<u8>().wrapping_add((slot as usize).wrapping_mul(self.slot_len))
    }

    #[inline(always)]
    fn start_of_mut(&mut self, slot: u32) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add((slot as usize).wrapping_mul(self.slot_len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_changed_and_kept_apart() {
        let mut slots = Slots::new(3, 100).unwrap();
        assert_eq!((slots.count(), slots.slot_len()), (3, 128));
        let (a, b) = (Part::<u64>::at(0).unwrap(), Part::<[u16; 4]>::at(10).unwrap());
        let (first, second, rest) = slots.split_mut(1, a, b).unwrap();
        (*first, second[3], rest[109]) = (u64::MAX, 7, 9);
        assert_eq!(rest.len(), 110);
        assert_eq!((slots.get(1, a), slots.get(1, b)), (Some(&u64::MAX), Some(&[0, 0, 0, 7])));
        assert_eq!((slots.get(0, a), slots.get(2, a)), (Some(&0), Some(&0)));
        let bytes = slots.bytes(1).unwrap();
        assert_eq!(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 8 * 255 + 7 + 9);
        assert_eq!(bytes[127], 9);
        *slots.get_mut(1, a).unwrap() = 0;
        slots.bytes_mut(1).unwrap().fill(0);
        assert_eq!(slots.get(1, b), Some(&[0; 4]));
        slots.prefetch(u32::MAX, usize::MAX);
    }

    #[test]
    fn what_does_not_stand_there_is_none() {
        assert!(Part::<u64>::at(4).is_none());
        assert!(Part::<u64>::at(usize::MAX - 7).is_none());
        let mut slots = Slots::new(2, 64).unwrap();
        let (last, behind) = (Part::<u64>::at(56).unwrap(), Part::<u64>::at(64).unwrap());
        assert!(slots.get(1, last).is_some() && slots.get(2, last).is_none());
        assert!(slots.get(0, behind).is_none() && slots.get_mut(0, behind).is_none());
        assert!(slots.get_mut(2, last).is_none() && slots.bytes(2).is_none() && slots.bytes_mut(2).is_none());
        let (low, high) = (Part::<[u8; 8]>::at(0).unwrap(), Part::<[u8; 8]>::at(7).unwrap());
        assert!(slots.split_mut(0, low, high).is_none());
        assert!(slots.split_mut(0, high, low).is_none());
        assert!(slots.split_mut(0, low, behind).is_none());
        assert!(slots.split_mut(2, low, last).is_none());
    }
}
