//! Messages and packets that share datagrams are carried without allocation.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use link::{Config, LinkKeys, PeerLink};

/// The system's allocator, counting per thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more, and no reader of one.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator with the arguments as they came, so its
// guarantees are ours.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` was returned by `alloc` or `realloc` here, hence by the system's, with this
        // layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`; the caller keeps `realloc`'s contract about `size`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends in both directions, and carries everything.
fn round(ends: &mut [PeerLink; 2], out: &mut Vec<u8>, now_ns: u64) {
    for index in 0..200u16 {
        let end = &mut ends[usize::from(index % 2)];
        match index % 4 {
            0 | 1 => end.send_message(index % 16, &[7; 64]).unwrap(),
            _ => end.write_message(index % 16, |out| out.extend_from_slice(&[7; 64])).unwrap(),
        }
        ends[usize::from(index % 2)].send_packet(&[7; 90]).unwrap();
    }
    for turn in 0..8 {
        let [a, b] = ends;
        let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
        if from.next_timeout_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            from.handle_timeout(now_ns);
        }
        while let Some(transmit) = from.poll_transmit(now_ns, out) {
            for datagram in out.chunks_mut(transmit.segment) {
                to.handle_datagram(now_ns, datagram).unwrap();
            }
        }
        while to.poll_message().is_some() {}
        while to.poll_packet().is_some() {}
    }
}

#[test]
fn nothing_is_allocated_per_message() {
    let keys = LinkKeys { send: [1; 32], receive: [2; 32] };
    let end = |keys: &LinkKeys| PeerLink::new(Config::default(), keys, 0).unwrap();
    let (mut ends, mut out) = ([end(&keys), end(&keys.reversed())], Vec::new());
    (0..50).for_each(|at| round(&mut ends, &mut out, at * 100_000));
    let before = COUNT.with(Cell::get);
    (50..150).for_each(|at| round(&mut ends, &mut out, at * 100_000));
    assert_eq!(COUNT.with(Cell::get) - before, 0);
    let received = ends.each_ref().map(|end| end.counters().messages_received);
    assert_eq!(received, [15_000, 15_000]);
}
