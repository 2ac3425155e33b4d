//! A reserve of memory: when the system has no more, the process goes on with the reserve and takes
//! on nothing new, in place of an abort.
//!
//! The reserve is address space that nobody has touched, so it costs no memory. It helps where an
//! allocation fails: with a limit on the address space, or without overcommitment. A control group
//! at its limit kills the process instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::Thread;

/// Bytes of the reserve: what a process needs to go on with the flows that it has, and for tables
/// that are just growing.
pub const RESERVE_BYTES: usize = 128 << 20;

/// The reserve; null while it is in use, or was not taken.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The reserve is in use.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// The thread that is woken then.
static WATCHER: OnceLock<Thread> = OnceLock::new();

/// The system's allocator, with the reserve behind it.
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

/// Has this thread woken when memory becomes short. The first one stays.
pub fn wake_when_short(thread: Thread) {
    let _ = WATCHER.set(thread);
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
    // from there, so that nobody else frees it.
    unsafe { System.dealloc(reserve, layout()) };
    if let Some(watcher) = WATCHER.get() {
        watcher.unpark(); // Without an allocation.
    }
    true
}

// SAFETY: each call is passed on to `System`, with the same arguments, until one succeeds; failed
// calls change nothing.
unsafe impl GlobalAlloc for ReservingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        let memory = unsafe { System.alloc(layout) };
        match memory.is_null() && layout.size() < RESERVE_BYTES && give_way() {
            // SAFETY: as above.
            true => unsafe { System.alloc(layout) },
            false => memory,
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        match memory.is_null() && layout.size() < RESERVE_BYTES && give_way() {
            // SAFETY: as above.
            true => unsafe { System.alloc_zeroed(layout) },
            false => memory,
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`.
        let moved = unsafe { System.realloc(memory, layout, size) };
        match moved.is_null() && size < RESERVE_BYTES && give_way() {
            // SAFETY: as above; a failed call leaves the memory as it was.
            true => unsafe { System.realloc(memory, layout, size) },
            false => moved,
        }
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

    #[test]
    fn failed_allocations_use_the_reserve_once() {
        assert!(!is_short());
        assert!(!give_way(), "there is none yet");
        assert!(take_reserve() && take_reserve());
        wake_when_short(std::thread::current());
        assert!(give_way() && is_short());
        std::thread::park(); // It has been woken.
        assert!(!give_way(), "it is in use");
        assert!(take_reserve() && !is_short());
        // More than there can be is not what a reserve is for.
        assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
        assert!(!is_short());
    }
}
