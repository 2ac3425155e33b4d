//! A reserve of memory: when the system has no more, the process continues with the reserve and
//! accepts no new flows, instead of aborting.
//!
//! The reserve is untouched address space, so it costs no memory. It helps where an allocation
//! fails: with a limit on the address space, or without overcommitment. A control group at its
//! limit kills the process instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Bytes of the reserve: enough to continue with the existing flows, and for tables that are
/// growing.
pub const RESERVE_BYTES: usize = 128 << 20;

/// The reserve; null while it is in use, or was not taken.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The reserve is in use.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// The function that is called then.
static NOTICE: OnceLock<fn()> = OnceLock::new();

/// The system's allocator, with the reserve for failed allocations.
pub struct ReservingAllocator;

const fn layout() -> Layout {
    match Layout::from_size_align(RESERVE_BYTES, 4096) {
        Ok(layout) => layout,
        Err(_) => Layout::new::<u8>(),
    }
}

/// Takes the reserve, or takes it again after it was needed. Returns false if there is no memory
/// for it.
pub fn take_reserve() -> bool {
    if !RESERVE.load(Ordering::Acquire).is_null() {
        return true;
    }
    // SAFETY: the layout has a size above zero.
    let reserve = unsafe { System.alloc(layout()) };
    if reserve.is_null() {
        return false;
    }
    let none = std::ptr::null_mut();
    if RESERVE.compare_exchange(none, reserve, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was first; this one is from `System.alloc` with this layout.
        unsafe { System.dealloc(reserve, layout()) };
    }
    IS_SHORT.store(false, Ordering::Release);
    true
}

/// Returns true if memory is short: nothing new may be taken on.
#[inline]
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

/// Sets the function to call when memory becomes short. The thread with the failed allocation calls
/// it, so it must not allocate. Only the first call has an effect.
pub fn call_when_short(notice: fn()) {
    let _ = NOTICE.set(notice);
}

/// Gives the reserve to the system. Returns false if it was given already.
#[cold]
fn give_way() -> bool {
    let reserve = RESERVE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if reserve.is_null() {
        return false;
    }
    IS_SHORT.store(true, Ordering::Release);
    // SAFETY: `reserve` stored a pointer of `System.alloc` with this layout, and the swap took it
    // from there, so that it is freed once.
    unsafe { System.dealloc(reserve, layout()) };
    if let Some(notice) = NOTICE.get() {
        notice();
    }
    true
}

/// Tries to allocate, and again with the reserve.
#[inline]
fn with_reserve(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = allocate();
    if memory.is_null() && size < RESERVE_BYTES && give_way() { allocate() } else { memory }
}

// SAFETY: each call is passed on to `System`, with the same arguments, until one succeeds; failed
// calls change nothing.
unsafe impl GlobalAlloc for ReservingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        with_reserve(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        with_reserve(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`; a failed call leaves the memory as
        // it was.
        with_reserve(size, || unsafe { System.realloc(memory, layout, size) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System`, which has allocated all memory.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: ReservingAllocator = ReservingAllocator;

    static HAS_CALLED: AtomicBool = AtomicBool::new(false);

    #[test]
    fn failed_allocations_use_the_reserve_once() {
        assert!(!is_short());
        assert!(!give_way(), "there is none yet");
        assert!(take_reserve() && take_reserve());
        call_when_short(|| HAS_CALLED.store(true, Ordering::Relaxed));
        assert!(give_way() && is_short());
        assert!(HAS_CALLED.load(Ordering::Relaxed));
        assert!(!give_way(), "it is in use");
        assert!(take_reserve() && !is_short());
        // More than there can be is not what a reserve is for.
        assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
        assert!(!is_short());
    }
}
