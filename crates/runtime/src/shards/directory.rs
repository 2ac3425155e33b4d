//! The directory of workers' aliases: which worker owns a flow key.
//!
//! A hash of the key names the owner, unless the key is an alias that a worker has claimed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use graph::Ledger;
use packet::memory::prefetch;

/// Aliases per line.
const SLOTS: usize = 7;

/// Aliases per line that the directory allows. The spare slots keep most aliases in their own line.
const FILL: usize = 4;

/// Bits of an entry that name the worker; the others are those of the hash. Two keys are mistaken
/// for each other if 56 bits of their keyed hashes are equal.
const WORKER: u64 = 0xff;

/// Limit on workers that an entry can name.
pub(super) const NAMED_MAX: usize = WORKER as usize;

/// The aliases of all workers' flows. Lookups are lock-free, once per received packet. Claims and
/// releases exclude each other.
pub(super) struct Directory {
    lines: Box<[Line]>,
    /// Number of aliases; its lock is held to write.
    count: Mutex<usize>,
    aliases_max: usize,
    workers: usize,
}

/// A cache line: aliases, and the number of aliases that overflowed to a later line.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    /// 0: free.
    aliases: [AtomicU64; SLOTS],
    passed: AtomicU64,
}

impl Directory {
    /// Creates a directory for this many workers, with up to `aliases_max` aliases together.
    pub fn new(workers: usize, aliases_max: usize) -> Directory {
        debug_assert!((1..=NAMED_MAX).contains(&workers));
        let lines = aliases_max.div_ceil(FILL).max(1).next_power_of_two();
        Directory {
            lines: (0..lines).map(|_| Line::default()).collect(),
            count: Mutex::new(0),
            aliases_max,
            workers,
        }
    }

    /// Prefetches the line that a lookup reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.lines[self.line(hash)]);
    }

    /// Returns the worker that owns the flow with a key of this hash, or will if it begins.
    #[inline]
    pub fn owner(&self, hash: u64) -> usize {
        self.alias(hash).unwrap_or_else(|| self.home(hash))
    }

    /// Returns the worker that flows with a key of this hash begin at.
    #[inline]
    pub fn home(&self, hash: u64) -> usize {
        // Not the bits that select entries of the workers' tables.
        (((hash >> 32) * self.workers as u64) >> 32) as usize
    }

    #[inline]
    fn alias(&self, hash: u64) -> Option<usize> {
        let mut at = self.line(hash);
        for _ in 0..self.lines.len() {
            let line = &self.lines[at];
            let entries = line.aliases.iter().map(|alias| alias.load(Ordering::Acquire));
            if let Some(entry) = entries.into_iter().find(|&entry| is_of(entry, hash)) {
                return Some((entry & WORKER) as usize - 1);
            }
            if line.passed.load(Ordering::Acquire) == 0 {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// Assigns packets with a key of this hash to a worker. Returns false if an alias has assigned
    /// them already, or the directory is full.
    fn claim(&self, hash: u64, worker: usize) -> bool {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if *count >= self.aliases_max || self.alias(hash).is_some() {
            return false;
        }
        *count += 1;
        let mut at = self.line(hash);
        // There is a free slot: slots outnumber aliases.
        loop {
            let line = &self.lines[at];
            if let Some(free) = line.aliases.iter().find(|alias| alias.load(Ordering::Relaxed) == 0) {
                free.store(entry(hash, worker), Ordering::Release);
                return true;
            }
            // First, so that no lookup stops here once the alias is in place.
            line.passed.fetch_add(1, Ordering::Release);
            at = self.next(at);
        }
    }

    /// Undoes [`claim`](Directory::claim).
    fn release(&self, hash: u64, worker: usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entry(hash, worker);
        let first = self.line(hash);
        let mut at = first;
        loop {
            let line = &self.lines[at];
            if let Some(slot) = line.aliases.iter().find(|alias| alias.load(Ordering::Relaxed) == entry) {
                slot.store(0, Ordering::Release);
                break;
            }
            if line.passed.load(Ordering::Relaxed) == 0 {
                debug_assert!(false, "a released alias was not claimed");
                return;
            }
            at = self.next(at);
        }
        *count -= 1;
        let mut passed = first;
        while passed != at {
            self.lines[passed].passed.fetch_sub(1, Ordering::Release);
            passed = self.next(passed);
        }
    }

    #[inline]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    #[inline]
    fn next(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }
}

#[inline]
fn entry(hash: u64, worker: usize) -> u64 {
    // The omitted bits are those of the line's number; most follow from the position.
    hash & !WORKER | (worker as u64 + 1)
}

#[inline]
fn is_of(entry: u64, hash: u64) -> bool {
    entry != 0 && (entry ^ hash) & !WORKER == 0
}

/// A worker's aliases in the directory, which its graph claims and releases.
pub(super) struct WorkerAliases {
    pub directory: Arc<Directory>,
    pub worker: usize,
}

impl Ledger for WorkerAliases {
    fn claim(&self, hash: u64) -> bool {
        self.directory.claim(hash, self.worker)
    }

    fn release(&self, hash: u64) {
        self.directory.release(hash, self.worker);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    use packet::split_mix;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flows_begin_evenly_at_all_workers() {
        let directory = Directory::new(3, 16);
        let mut state = 1;
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[directory.home(split_mix(&mut state))] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    proptest! {
        /// The hashes fall onto few lines.
        #[test]
        fn directory_equals_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..40, 0usize..4), 1..300)) {
            let directory = Directory::new(4, 24);
            let mut map = HashMap::new();
            for (claim, number, worker) in steps {
                let hash = (number & 3) | number << 40;
                if claim {
                    let may = map.len() < 24 && !map.contains_key(&hash);
                    prop_assert_eq!(directory.claim(hash, worker), may);
                    if may {
                        map.insert(hash, worker);
                    }
                } else if let Some(worker) = map.remove(&hash) {
                    directory.release(hash, worker);
                }
                for number in 0..40 {
                    let hash = (number & 3) | number << 40;
                    let expected = map.get(&hash).copied().unwrap_or_else(|| directory.home(hash));
                    prop_assert_eq!(directory.owner(hash), expected);
                }
            }
        }
    }

    /// Concurrent writes to the same lines do not hide an alias.
    #[test]
    fn lookups_find_aliases_during_writes() {
        let directory = Arc::new(Directory::new(4, 1024));
        let hash = |number: u64| number << 32 | (number & 1); // All in two lines and those after them.
        for number in (0..64).step_by(2) {
            assert!(directory.claim(hash(number), 3));
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (directory, is_over) = (&directory, &is_over);
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let number = 65 + 2 * (turn % 20) + 40 * writer;
                        assert!(directory.claim(hash(number), writer as usize));
                        directory.release(hash(number), writer as usize);
                    }
                    is_over.store(true, Ordering::Relaxed);
                });
            }
            while !is_over.load(Ordering::Relaxed) {
                for number in (0..64).step_by(2) {
                    assert_eq!(directory.owner(hash(number)), 3);
                }
            }
        });
    }
}
