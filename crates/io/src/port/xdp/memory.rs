//! The memory that frames are in, which a socket shares with the kernel.
#![allow(unsafe_code)]

use std::io::Result;

use memmap2::MmapMut;

/// Room for a number of frames, one behind the other, each at a multiple of its length.
pub struct Memory {
    map: MmapMut,
    room: usize,
}

impl Memory {
    /// Room for so many frames, of so many bytes each, a power of two.
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

    /// Bytes that a frame has room in.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Where the room begins that this byte is in.
    pub fn room_at(&self, at: u64) -> u64 {
        at & !(self.room as u64 - 1)
    }

    /// A frame; none if it is not in the memory.
    ///
    /// # Safety
    /// The kernel has given the frame's room over, and it was not yet given back.
    pub unsafe fn frame(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(len)?;
        if end > self.map.len() {
            return None;
        }
        // SAFETY: the bytes are in the mapping, and this side's alone, as the caller says.
        Some(unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(at), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_in_the_memory_or_none() {
        let mut memory = Memory::new(4, 2048).unwrap();
        assert_eq!((memory.len(), memory.room()), (8192, 2048));
        assert_eq!(memory.room_at(2048 + 256), 2048);
        // SAFETY: there is no kernel to share it with.
        unsafe {
            assert_eq!(memory.frame(8192 - 60, 60).unwrap().len(), 60);
            assert!(memory.frame(8192 - 60, 61).is_none());
            assert!(memory.frame(u64::MAX, 2).is_none());
        }
    }
}
