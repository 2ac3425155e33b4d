//! Large zeroed memory, on huge pages if available; slot arrays in it; cache prefetching; a reserve
//! for when there is no more.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use zerocopy::{FromBytes, IntoBytes};

pub mod reserve;
mod slots;

pub use slots::{ColumnMut, LINE, SlotArray, SlotField};

/// A fixed number of zeroed `T`s in lazily mapped memory, on huge pages from 2 MiB on if granted: a
/// table of a million flows would otherwise miss the TLB on every lookup. The first page is there
/// from the beginning: zeroing a huge page takes a millisecond or more, and the first flow at a
/// unit would wait for that of each table.
pub struct Zeroed<T> {
    map: MmapMut,
    len: usize,
    of: PhantomData<T>,
}

/// Memory for a table could not be allocated.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes of memory: {source}")]
pub struct OutOfMemory {
    /// Bytes requested.
    pub bytes: usize,
    /// Error of the system.
    pub source: std::io::Error,
}

const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Limit on the tables that [`Zeroed::prefault`] brings into memory.
pub const PREFAULT_MAX: usize = 256 << 20;

impl<T: FromBytes + IntoBytes> Zeroed<T> {
    /// Maps memory for `len` values, at least one.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(len: usize) -> Result<Zeroed<T>, OutOfMemory> {
        let len = len.max(1);
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to pages only") };
        let map = MmapMut::map_anon(bytes).map_err(|source| OutOfMemory { bytes, source })?;
        if bytes >= HUGE_PAGE {
            // A hint: without huge pages the table works, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let mut memory = Zeroed { map, len, of: PhantomData };
        memory.touch(PAGE);
        Ok(memory)
    }

    /// Touches all pages of tables up to [`PREFAULT_MAX`]. For randomly accessed tables: the first
    /// packets would otherwise wait for page faults.
    pub fn prefault(&mut self) {
        if self.map.len() <= PREFAULT_MAX {
            self.touch(self.map.len());
        }
    }

    /// Touches the pages of the first bytes.
    fn touch(&mut self, bytes: usize) {
        for page in self.map.chunks_mut(PAGE).take(bytes.div_ceil(PAGE)) {
            // Keeps the content. Only a write makes the kernel provide the page.
            let first = std::hint::black_box(page[0]);
            page[0] = first;
        }
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping is page aligned (checked against T's alignment in `new`), holds at
        // least `len * size_of::<T>()` bytes, lives as long as `self`, and any bytes are a valid T
        // (`new` requires FromBytes).
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive, and T has no padding
        // (IntoBytes in `new`).
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

/// Prefetches the cache line at this address into the first-level cache. A hint; any address is
/// allowed.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and does not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches all cache lines of a value.
#[inline(always)]
pub fn prefetch_all<T>(value: *const T) {
    let bytes = value.cast::<u8>();
    (0..size_of::<T>()).step_by(LINE).for_each(|at| prefetch(bytes.wrapping_add(at)));
    if align_of::<T>() < LINE {
        prefetch(bytes.wrapping_add(size_of::<T>().saturating_sub(1)));
    }
}

/// Compares eight words with `wanted`: bits `2 * i` and `2 * i + 1` are set if word `i` is equal.
#[inline(always)]
pub fn equal_mask(words: &[u32; 8], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64; the unaligned loads read the 32 bytes of `words`.
    unsafe {
        use std::arch::x86_64::{
            _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi32, _mm_set1_epi32,
        };
        let wanted = _mm_set1_epi32(wanted.cast_signed());
        let low = _mm_cmpeq_epi32(_mm_loadu_si128(words.as_ptr().cast()), wanted);
        let high = _mm_cmpeq_epi32(_mm_loadu_si128(words.as_ptr().add(4).cast()), wanted);
        _mm_movemask_epi8(_mm_packs_epi32(low, high)).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    words.iter().enumerate().fold(0, |mask, (i, &word)| mask | if word == wanted { 3 << (2 * i) } else { 0 })
}

/// Compares the first `LEN` bytes, at least 16, without a branch or a call.
#[inline(always)]
pub fn equal<const LEN: usize, const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
    const { assert!(LEN >= 16 && LEN <= N, "at least one vector, and no more than there is") };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64; each unaligned load reads 16 bytes that end at or before byte
    // LEN, within its array.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
        let same = |at: usize| -> __m128i {
            _mm_cmpeq_epi8(
                _mm_loadu_si128(a.as_ptr().add(at).cast()),
                _mm_loadu_si128(b.as_ptr().add(at).cast()),
            )
        };
        let last = same(LEN - 16);
        let all = (0..LEN / 16).fold(last, |all, i| _mm_and_si128(all, same(16 * i)));
        _mm_movemask_epi8(all) == 0xffff
    }
    #[cfg(not(target_arch = "x86_64"))]
    (a[..LEN] == b[..LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_compared() {
        let a: [u8; 40] = std::array::from_fn(|i| i as u8);
        assert!(equal::<40, 40>(&a, &a.clone()));
        for i in 0..40 {
            let mut b = a;
            b[i] ^= 0x80;
            assert!(!equal::<40, 40>(&a, &b), "byte {i}");
            assert_eq!(equal::<24, 40>(&a, &b), i >= 24, "byte {i}");
        }
    }

    #[test]
    fn equal_words_are_found() {
        let words = [5, 0, u32::MAX, 5, 1 << 31, 7, 0, 5];
        assert_eq!(equal_mask(&words, 5), 0b11_00_00_00_11_00_00_11);
        assert_eq!(equal_mask(&words, u32::MAX), 0b11_00_00);
        assert_eq!(equal_mask(&words, 1 << 31), 0b11_00_00_00_00);
        assert_eq!(equal_mask(&words, 6), 0);
    }

    /// Returns the number of the table's pages in memory, according to the kernel.
    fn pages_here<T>(memory: &Zeroed<T>) -> usize {
        use std::os::unix::fs::FileExt;
        let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        let first = memory.map.as_ptr().addr() / PAGE;
        let is_here = |page: usize| {
            let mut entry = [0; 8];
            pages.read_exact_at(&mut entry, (page * size_of::<u64>()) as u64).unwrap();
            u64::from_ne_bytes(entry) >> 63 == 1
        };
        (first..first + memory.map.len().div_ceil(PAGE)).filter(|&page| is_here(page)).count()
    }

    #[test]
    fn prefaulted_memory_is_resident() {
        let mut memory = Zeroed::<u64>::new(1 << 20).unwrap();
        memory[0] = 5;
        assert!(pages_here(&memory) < 2048);
        memory.prefault();
        assert_eq!(pages_here(&memory), 2048);
        assert!(memory[0] == 5 && memory[1..].iter().all(|&word| word == 0));
        let mut large = Zeroed::<u8>::new(PREFAULT_MAX + 1).unwrap();
        large.prefault();
        assert!((1..=HUGE_PAGE / PAGE).contains(&pages_here(&large)), "the first one only");
    }

    #[test]
    fn memory_is_zeroed_and_writable() {
        let mut memory = Zeroed::<u64>::new(1 << 19).unwrap();
        assert_eq!(memory.len(), 1 << 19);
        assert!(memory.iter().all(|&word| word == 0));
        memory[12345] = 7;
        assert_eq!(memory[12345], 7);
        prefetch(&memory[12345]);
    }
}
