//! Memory that another process shares, and may change at any time.
//!
//! Nothing here is a reference into it, except to atomic numbers. All else is copied, in or out,
//! once. So the other process can change only bytes that are not copied yet.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU16;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};

/// Memory of an anonymous file, mapped for the lifetime of this value.
pub struct Region {
    map: MmapRaw,
}

impl Region {
    /// Makes zeroed memory of this length, with its file for the other process. Neither end can
    /// change its length.
    pub fn make(len: usize) -> Result<(Region, OwnedFd)> {
        let file = memfd_create("memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok((Region { map }, file))
    }

    /// Maps the memory of a file that another process has sent.
    ///
    /// # Errors
    /// With the reason: the file is shorter, or could become so. To touch missing memory would end
    /// this process. So only files that are sealed against shrinking are accepted, which only
    /// anonymous ones can be.
    pub fn open(file: OwnedFd, len: u64, len_max: u64) -> Result<Region> {
        let refused = |why| Error::new(ErrorKind::InvalidData, why);
        let seals = fcntl_get_seals(file.as_fd()).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(refused("memory that is not sealed against shrinking (of a client with zero-copy?)"));
        }
        let file = File::from(file);
        if len == 0 || len > len_max {
            return Err(refused("memory of no or too many bytes"));
        }
        if file.metadata()?.len() < len {
            return Err(refused("memory shorter than announced"));
        }
        let len = usize::try_from(len).map_err(|_| refused("memory of too many bytes"))?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Region { map })
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the atomic number at an offset, if it is within the memory, and aligned.
    #[inline]
    pub fn number(&self, at: usize) -> Option<&AtomicU16> {
        let place = self.place::<AtomicU16>(at)?;
        // SAFETY: the place is in the mapping, which lives as long as `self`, and aligned. Every
        // value is valid. The other process must change it as an atomic number, or harms itself:
        // here it is never read otherwise.
        Some(unsafe { &*place })
    }

    /// Reads sixteen bytes once, if they are within the memory, and aligned.
    #[inline]
    pub fn words(&self, at: usize) -> Option<[u64; 2]> {
        let place = self.place::<[u64; 2]>(at)?;
        // SAFETY: the place is in the mapping and aligned; a volatile read takes the current value,
        // and every value is valid.
        Some(unsafe { place.read_volatile() })
    }

    /// Writes sixteen bytes, if they are within the memory, and aligned.
    #[inline]
    pub fn set_words(&self, at: usize, words: [u64; 2]) {
        if let Some(place) = self.place::<[u64; 2]>(at) {
            // SAFETY: the place is in the mapping, which may be written, and aligned.
            unsafe { place.write_volatile(words) }
        }
    }

    /// Copies the current bytes out; returns false if they are not within the memory.
    #[inline]
    #[must_use]
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> bool {
        let Some(place) = self.bytes(at, to.len()) else { return false };
        // SAFETY: the bytes are in the mapping, and `to` is this process's own, so they do not
        // overlap. If the other process writes at the same time, the result is a mixture, which is
        // checked like all input.
        unsafe { std::ptr::copy_nonoverlapping(place.cast_const(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes in; returns false if they do not fit into the memory.
    #[inline]
    #[must_use]
    pub fn copy_in(&self, at: usize, from: &[u8]) -> bool {
        let Some(place) = self.bytes(at, from.len()) else { return false };
        // SAFETY: the bytes are in the mapping, which is writable, and `from` is this process's
        // own, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len()) };
        true
    }

    #[inline]
    fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        let is_there = at.checked_add(len).is_some_and(|end| end <= self.map.len());
        is_there.then(|| self.map.as_mut_ptr().wrapping_add(at))
    }

    #[inline]
    fn place<T>(&self, at: usize) -> Option<*mut T> {
        let place = self.bytes(at, size_of::<T>())?.cast::<T>();
        place.is_aligned().then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn bytes_outside_a_region_are_neither_read_nor_written() {
        let (region, file) = Region::make(4096).unwrap();
        let other = Region::open(file, 4096, 4096).unwrap();
        region.number(4094).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(other.number(4094).unwrap().load(Ordering::Relaxed), 7);
        region.set_words(4080, [1, 2]);
        assert_eq!(other.words(4080), Some([1, 2]));
        let mut bytes = [0; 4];
        assert!(region.copy_in(4092, &[1, 2, 3, 4]) && other.copy_out(4092, &mut bytes));
        assert_eq!(bytes, [1, 2, 3, 4]);
        for at in [4096, usize::MAX - 1, usize::MAX] {
            assert!(region.number(at).is_none() && region.words(at).is_none());
            assert!(!region.copy_in(at, &[0]) && !region.copy_out(at, &mut bytes[..1]));
            region.set_words(at, [0, 0]);
        }
        assert!(!region.copy_out(4093, &mut bytes));
        assert!(region.number(4095).is_none() && region.words(4084).is_none(), "not aligned");
    }

    #[test]
    fn memory_without_a_seal_is_refused() {
        let why = |file: OwnedFd, len| Region::open(file, len, 1 << 20).err().unwrap().to_string();
        let make = |seals| {
            let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, 4096).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        assert!(why(make(SealFlags::GROW), 4096).contains("not sealed"));
        assert!(why(tempfile::tempfile().unwrap().into(), 4096).contains("not sealed"));
        assert!(why(make(SealFlags::SHRINK), 4097).contains("shorter"));
        assert!(why(make(SealFlags::SHRINK), 0).contains("no or too many"));
        assert!(why(make(SealFlags::SHRINK), (1 << 20) + 1).contains("too many"));
        assert!(Region::open(make(SealFlags::SHRINK), 4096, 1 << 20).is_ok());
        // A receiver of this memory cannot change its length.
        let (_region, file) = Region::make(4096).unwrap();
        assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 8192).is_err());
    }
}
