//! Which worker has a flow: its key's hash says so, unless it is an alias, of which the worker that
//! has the flow told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use graph::Ledger;
use packet::memory::prefetch;

/// Aliases of a line.
const SLOTS: usize = 7;

/// Aliases per line that there is room for; the rest keeps it seldom that one stands in another
/// line than its own.
const FILL: usize = 4;

/// Bits of an alias's entry that name its worker; the others are those of the hash. So two keys are
/// taken for one if 56 bits of a keyed hash are the same.
const WORKER: u64 = 0xff;

/// Workers that an entry can name.
pub(super) const NAMED_MAX: usize = WORKER as usize;

/// The aliases of all workers' flows. Every worker looks for every packet that it receives, and
/// waits for nobody; those that begin and end flows with aliases write one after the other.
pub(super) struct Directory {
    lines: Box<[Line]>,
    /// Aliases that there are, and who may write.
    count: Mutex<usize>,
    aliases_max: usize,
    workers: usize,
}

/// A cache line: aliases, and how many passed it by, as it was full, and stand in a later one.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    /// 0: none.
    aliases: [AtomicU64; SLOTS],
    passed: AtomicU64,
}

impl Directory {
    /// For the flows of so many workers, which have up to so many aliases together.
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

    /// Asks for what a look-up needs.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.lines[self.line(hash)]);
    }

    /// The worker that has the flow with a key of this hash, if there is such a flow, and has it if
    /// it begins.
    #[inline]
    pub fn owner(&self, hash: u64) -> usize {
        self.alias(hash).unwrap_or_else(|| self.home(hash))
    }

    /// The worker that flows with a key of this hash begin at.
    #[inline]
    pub fn home(&self, hash: u64) -> usize {
        // By other bits than those by which workers find flows in their tables.
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

    /// Packets with a key of this hash are this worker's; false if they are another flow's by an
    /// alias, or there is no room.
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
            // Before it is there: nobody who looks for it stops here once it is.
            line.passed.fetch_add(1, Ordering::Release);
            at = self.next(at);
        }
    }

    /// They are no longer.
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
                debug_assert!(false, "an alias is given back that is not there");
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
    // The bits that are left out are those of the line's number, of which the place tells most.
    hash & !WORKER | (worker as u64 + 1)
}

#[inline]
fn is_of(entry: u64, hash: u64) -> bool {
    entry != 0 && (entry ^ hash) & !WORKER == 0
}

/// A worker's part of the directory: its graph tells there which aliases its flows have.
pub(super) struct Own {
    pub directory: Arc<Directory>,
    pub worker: usize,
}

impl Ledger for Own {
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
    fn homes_are_even() {
        let directory = Directory::new(3, 16);
        let mut state = 1;
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[directory.home(split_mix(&mut state))] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    proptest! {
        /// Against a map, with hashes that fall onto few lines.
        #[test]
        fn is_like_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..40, 0usize..4), 1..300)) {
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

    /// An alias that is there is found, whatever others write meanwhile in the same lines.
    #[test]
    fn readers_find_what_is_there_while_others_write() {
        let directory = Arc::new(Directory::new(4, 1024));
        let hash = |number: u64| number << 32 | (number & 1); // All in two lines, and in what follows them.
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
