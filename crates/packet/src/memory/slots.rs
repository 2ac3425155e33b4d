//! Arrays of equal memory slots with typed fields: the storage of flow records.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{OutOfMemory, Zeroed, prefetch};

/// Bytes of a cache line.
pub const LINE: usize = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// A fixed number of zeroed slots of equal size in whole cache lines. Each begins with an `H`, its
/// head.
///
/// A field is located by one multiplication and checked by two comparisons: alignment was checked
/// when its [`SlotField`] was made. The head exists in every slot.
pub struct SlotArray<H> {
    memory: Zeroed<Line>,
    slots: u32,
    slot_len: usize,
    of: PhantomData<fn() -> H>,
}

/// The position of a `T` in every slot.
pub struct SlotField<T> {
    start: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for SlotField<T> {
    fn clone(&self) -> SlotField<T> {
        *self
    }
}

impl<T> Copy for SlotField<T> {}

impl<T: FromBytes + IntoBytes> SlotField<T> {
    /// Returns the field at this offset. `None` if a `T` would be misaligned.
    pub const fn at(start: usize) -> Option<SlotField<T>> {
        const { assert!(align_of::<T>() <= LINE, "slots are aligned to cache lines only") };
        if !start.is_multiple_of(align_of::<T>()) || start > isize::MAX as usize - size_of::<T>() {
            return None;
        }
        Some(SlotField { start, of: PhantomData })
    }

    /// Returns the field's first byte.
    pub const fn start(self) -> usize {
        self.start
    }

    /// Returns the field's end.
    #[inline(always)]
    const fn end(self) -> usize {
        self.start + size_of::<T>() // No overflow: see `at`.
    }
}

impl<H: FromBytes + IntoBytes> SlotArray<H> {
    /// Returns `slots` slots of at least `slot_len` bytes, and at least the head's size.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(slots: u32, slot_len: usize) -> Result<SlotArray<H>, OutOfMemory> {
        const { assert!(align_of::<H>() <= LINE, "slots are aligned to cache lines only") };
        let lines = slot_len.max(size_of::<H>()).div_ceil(LINE).max(1);
        let memory = Zeroed::new(lines.saturating_mul(slots as usize))?;
        Ok(SlotArray { memory, slots, slot_len: lines * LINE, of: PhantomData })
    }

    /// Returns the number of slots.
    pub fn count(&self) -> u32 {
        self.slots
    }

    /// Returns the bytes of a slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Returns the head of a slot; `None` if there is no such slot.
    #[inline(always)]
    pub fn head(&self, slot: u32) -> Option<&H>
    where
        H: Immutable,
    {
        // SAFETY: the slot lies within the memory (just checked; `new` made it slots * slot_len
        // bytes long), and is as long as an H at least. It begins at a multiple of a line, at least
        // H's alignment (`new`). Any bytes are an H (FromBytes). The memory is borrowed, shared, as
        // long as the H.
        (slot < self.slots).then(|| unsafe { &*self.start_of(slot).cast::<H>() })
    }

    /// Returns the head of a slot for writing.
    #[inline(always)]
    pub fn head_mut(&mut self, slot: u32) -> Option<&mut H> {
        // SAFETY: as in `head`; the memory is borrowed exclusively as long as the H, and H has no
        // padding (IntoBytes).
        (slot < self.slots).then(|| unsafe { &mut *self.start_of_mut(slot).cast::<H>() })
    }

    /// Returns a field of a slot; `None` if the slot or the field is out of range.
    #[inline(always)]
    pub fn get<T: FromBytes + IntoBytes + Immutable>(&self, slot: u32, part: SlotField<T>) -> Option<&T> {
        if slot >= self.slots || part.end() > self.slot_len {
            return None;
        }
        // SAFETY: as in `head`; the part lies within its slot (just checked), and begins at a
        // multiple of T's alignment, which is a line at most (`SlotField::at`).
        Some(unsafe { &*self.start_of(slot).add(part.start).cast::<T>() })
    }

    /// Returns a field of a slot for writing.
    #[inline(always)]
    pub fn get_mut<T: FromBytes + IntoBytes>(&mut self, slot: u32, part: SlotField<T>) -> Option<&mut T> {
        if slot >= self.slots || part.end() > self.slot_len {
            return None;
        }
        // SAFETY: as in `get`; the memory is borrowed exclusively as long as the T, and T has no
        // padding (IntoBytes).
        Some(unsafe { &mut *self.start_of_mut(slot).add(part.start).cast::<T>() })
    }

    /// Returns a field of all slots for writing, together with their heads. `None` if the field is
    /// out of range or overlaps the head.
    #[inline]
    pub fn column_mut<T: FromBytes + IntoBytes>(
        &mut self,
        part: SlotField<T>,
    ) -> Option<ColumnMut<'_, H, T>> {
        if part.end() > self.slot_len || part.start < size_of::<H>() {
            return None;
        }
        Some(ColumnMut { slots: self, part })
    }

    /// Returns all bytes of a slot; `None` if there is no such slot.
    pub fn bytes(&self, slot: u32) -> Option<&[u8]> {
        let lines = self.slot_len / LINE;
        Some(self.memory.get(slot as usize * lines..)?.get(..lines)?.as_bytes())
    }

    /// Returns all bytes of a slot for writing.
    pub fn bytes_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let lines = self.slot_len / LINE;
        Some(self.memory.get_mut(slot as usize * lines..)?.get_mut(..lines)?.as_mut_bytes())
    }

    /// Prefetches the cache line at offset `at` of the slot. A hint; any arguments are allowed.
    #[inline(always)]
    pub fn prefetch(&self, slot: u32, at: usize) {
        prefetch(self.start_of(slot).wrapping_add(at));
    }

    /// Returns the start of the slot, if it exists.
    #[inline(always)]
    fn start_of(&self, slot: u32) -> *const u8 {
        self.memory.as_ptr().cast::<u8>().wrapping_add((slot as usize).wrapping_mul(self.slot_len))
    }

    #[inline(always)]
    fn start_of_mut(&mut self, slot: u32) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add((slot as usize).wrapping_mul(self.slot_len))
    }
}

/// A field of all slots, after their heads, as a column of a table. Its checks hold for every slot.
pub struct ColumnMut<'s, H, T> {
    slots: &'s mut SlotArray<H>,
    part: SlotField<T>,
}

impl<H: FromBytes + IntoBytes, T: FromBytes + IntoBytes> ColumnMut<'_, H, T> {
    /// Returns the head of a slot, its field, and all bytes after the field; `None` if there is no
    /// such slot.
    #[inline(always)]
    pub fn at(&mut self, slot: u32) -> Option<(&mut H, &mut T, &mut [u8])> {
        if slot >= self.slots.slots {
            return None;
        }
        let rest_len = self.slots.slot_len - self.part.end();
        let start = self.slots.start_of_mut(slot);
        // SAFETY: as in `head_mut` and `get_mut`: the slot was just checked, and `column_mut`
        // checked that the part lies within every slot, which are borrowed since. None of the three
        // overlaps another: the part begins after the head (`column_mut`), and the bytes are from
        // its end to the slot's.
        unsafe {
            Some((
                &mut *start.cast::<H>(),
                &mut *start.add(self.part.start).cast::<T>(),
                std::slice::from_raw_parts_mut(start.add(self.part.end()), rest_len),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_written_and_separate() {
        let mut slots = SlotArray::<u64>::new(3, 100).unwrap();
        assert_eq!((slots.count(), slots.slot_len()), (3, 128));
        let part = SlotField::<[u16; 4]>::at(10).unwrap();
        let mut column = slots.column_mut(part).unwrap();
        let (first, second, rest) = column.at(1).unwrap();
        (*first, second[3], rest[109]) = (u64::MAX, 7, 9);
        assert_eq!(rest.len(), 110);
        assert!(column.at(3).is_none());
        assert_eq!((slots.head(1), slots.get(1, part)), (Some(&u64::MAX), Some(&[0, 0, 0, 7])));
        assert_eq!((slots.head(0), slots.head(2)), (Some(&0), Some(&0)));
        let bytes = slots.bytes(1).unwrap();
        assert_eq!(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 8 * 255 + 7 + 9);
        assert_eq!(bytes[127], 9);
        *slots.head_mut(1).unwrap() = 0;
        slots.get_mut(1, part).unwrap()[3] = 8;
        assert_eq!((slots.head(1), slots.get(1, part)), (Some(&0), Some(&[0, 0, 0, 8])));
        slots.bytes_mut(1).unwrap().fill(0);
        assert_eq!(slots.get(1, part), Some(&[0; 4]));
        slots.prefetch(u32::MAX, usize::MAX);
    }

    #[test]
    fn absent_slots_and_fields_are_none() {
        assert!(SlotField::<u64>::at(4).is_none());
        assert!(SlotField::<u64>::at(usize::MAX - 7).is_none());
        let mut slots = SlotArray::<u64>::new(2, 64).unwrap();
        let (last, behind) = (SlotField::<u64>::at(56).unwrap(), SlotField::<u64>::at(64).unwrap());
        assert!(slots.get(1, last).is_some() && slots.get(2, last).is_none());
        assert!(slots.head(2).is_none() && slots.head_mut(2).is_none());
        assert!(slots.get(0, behind).is_none() && slots.get_mut(0, behind).is_none());
        assert!(slots.get_mut(2, last).is_none() && slots.bytes(2).is_none() && slots.bytes_mut(2).is_none());
        assert!(slots.column_mut(last).is_some() && slots.column_mut(behind).is_none());
        assert!(
            slots.column_mut(SlotField::<[u8; 8]>::at(7).unwrap()).is_none(),
            "it would overlap the head"
        );
        assert!(slots.column_mut(SlotField::<[u8; 8]>::at(8).unwrap()).is_some());
    }

    #[test]
    fn slot_is_at_least_as_long_as_its_head() {
        assert_eq!(SlotArray::<[u64; 9]>::new(1, 10).unwrap().slot_len(), 128);
        assert_eq!(SlotArray::<()>::new(1, 0).unwrap().slot_len(), 64);
    }
}
