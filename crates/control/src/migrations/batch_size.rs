//! The number of flows that move at a time.

use runtime::operator::{CopiedFlows, FLOWS_MIGRATED_MAX};

/// Least number of flows that move at a time.
const BATCH_MIN: usize = 16;

/// The number with which a migration begins.
const BATCH_FIRST: usize = 64;

/// Times for the copies of a batch, in ns: the next batch is larger below the first, and smaller
/// above the second. In between links and units are as busy as they should be: packets share them.
const FAST_NS: u64 = 5_000_000;
const SLOW_NS: u64 = 20_000_000;

/// The number of flows that move at a time: it doubles as long as their states travel fast, and is
/// halved when they take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchSize(usize);

impl Default for BatchSize {
    fn default() -> BatchSize {
        BatchSize(BATCH_FIRST)
    }
}

impl BatchSize {
    /// Returns the number.
    pub fn get(self) -> usize {
        self.0
    }

    /// Adapts it to the time that the copies of a batch took.
    pub fn adapt(&mut self, copied: &CopiedFlows) {
        if copied.late > 0 || copied.took_ns > SLOW_NS {
            self.0 = (self.0 / 2).max(BATCH_MIN);
        } else if copied.took_ns < FAST_NS {
            self.0 = (self.0 * 2).min(FLOWS_MIGRATED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_while_copies_are_fast_and_shrink_when_they_are_not() {
        let took = |ms: u64, late| CopiedFlows { to: Vec::new(), late, took_ns: ms * 1_000_000 };
        let mut size = BatchSize::default();
        let sizes = |size: &mut BatchSize, copied: CopiedFlows, times| {
            (0..times).for_each(|_| size.adapt(&copied));
            size.get()
        };
        assert_eq!(sizes(&mut size, took(1, 0), 1), 128);
        assert_eq!(sizes(&mut size, took(10, 0), 3), 128);
        assert_eq!(sizes(&mut size, took(30, 0), 1), 64);
        assert_eq!(sizes(&mut size, took(1, 1), 1), 32);
        assert_eq!(sizes(&mut size, took(100, 9), 20), BATCH_MIN);
        assert_eq!(sizes(&mut size, took(0, 0), 20), FLOWS_MIGRATED_MAX);
    }
}
