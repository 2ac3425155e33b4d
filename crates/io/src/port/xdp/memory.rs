//! The memory of frames, which a socket shares with the kernel.
#![allow(unsafe_code)]

use std::io::Result;

use memmap2::MmapMut;

/// Rooms for frames, one after the other, each at a multiple of its length.
pub struct Memory {
    map: MmapMut,
    room: usize,
}

impl Memory {
    /// Allocates this number of rooms of this length, a power of two.
    pub fn new(frames: usize, room: usize) -> Result<Memory> {
        debug_assert!(room.is_power_of_two());
        Ok(Memory { map: MmapMut::map_anon(frames * room)?, room })
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.map.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the bytes of a room.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the offset of the room that contains this offset.
    pub fn room_at(&self, at: u64) -> u64 {
        at & !(self.room as u64 - 1)
    }

    /// Returns a frame; none if it is not within the memory.
    ///
    /// # Safety
    /// The kernel must have handed over the frame's room, which was not returned since.
    pub unsafe fn frame(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(len)?;
        if end > self.map.len() {
            return None;
        }
        // SAFETY: the bytes are in the mapping, and this side's alone, as the caller guarantees.
        Some(unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(at), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_outside_the_memory_are_none() {
        let mut memory = Memory::new(4, 2048).unwrap();
        assert_eq!((memory.len(), memory.room()), (8192, 2048));
        assert_eq!(memory.room_at(2048 + 256), 2048);
        // SAFETY: no kernel shares it.
        unsafe {
            assert_eq!(memory.frame(8192 - 60, 60).unwrap().len(), 60);
            assert!(memory.frame(8192 - 60, 61).is_none());
            assert!(memory.frame(u64::MAX, 2).is_none());
        }
    }
}
