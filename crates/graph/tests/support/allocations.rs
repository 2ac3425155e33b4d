//! Counts allocations while known flows' packets are processed. For a test binary of its own, which
//! says
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: allocations::Counting = allocations::Counting;
//! ```
//!
//! and calls [`of_known_flows`] for each graph. Other crates include this file by its path.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that panics fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use graph::{Graph, Options};
use nf::stage::Stage;
use packet::{PacketPool, Side};

/// The system's allocator, counting per thread.
pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // An ending thread has no counter any more, and no test reads it.
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
        // SAFETY: `at` is the result of `alloc` or `realloc` here, hence of the system's, with this
        // layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`; the caller keeps `realloc`'s contract about `size`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Packets per batch.
const BATCH: usize = 64;

/// Returns how many times this thread allocates while `rounds` rounds of these frames pass the
/// graph, after a few to warm up. The frames (side, bytes from the Ethernet header on) are
/// exchanged again and again, 10 us apart, so that after the first rounds every flow is known.
/// Alerts and reports are thrown away.
pub fn of_known_flows(stages: Vec<Box<dyn Stage>>, frames: &[(Side, Vec<u8>)], rounds: usize) -> u64 {
    let mut graph = Graph::new(stages, Options { flows_max: 4096, ..Options::default() }).unwrap();
    through(&mut graph, frames, rounds)
}

/// The same for a graph that has no flows yet.
pub fn through(graph: &mut Graph, frames: &[(Side, Vec<u8>)], rounds: usize) -> u64 {
    let mut pool = PacketPool::new(2 * BATCH);
    let (mut batch, mut out) = (Vec::with_capacity(BATCH), Vec::with_capacity(2 * BATCH));
    let mut now_ns = 1_700_000_000_000_000_000;
    let mut before = 0;
    for round in 0..4 + rounds {
        if round == 4 {
            before = COUNT.get();
        }
        for frames in frames.chunks(BATCH) {
            for (side, frame) in frames {
                now_ns += 10_000;
                let mut packet = pool.take(frame).expect("buffers come back");
                packet.meta_mut().transit.timestamp_ns = now_ns;
                packet.meta_mut().transit.side = *side;
                packet.meta_mut().transit.ingress = *side as u16;
                batch.push(packet);
            }
            graph.process(&mut batch, &mut out, &mut pool);
            for packet in out.drain(..) {
                pool.give(packet);
            }
            let effects = graph.effects_mut();
            effects.alerts.clear();
            effects.events.clear();
            effects.reports.clear();
        }
    }
    assert!(graph.counters().add_up());
    COUNT.get() - before
}
