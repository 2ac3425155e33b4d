//! When something is to be done for which flow.

use std::collections::BTreeSet;

/// When something is to be done for which slot; one entry a slot.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Timers(BTreeSet<(u64, u32)>);

/// The time at which nothing is ever due.
pub(crate) const NEVER_NS: u64 = u64::MAX;

impl Timers {
    /// When the first one is due.
    pub fn due_ns(&self) -> u64 {
        self.0.first().map_or(NEVER_NS, |&(due_ns, _)| due_ns)
    }

    /// The slot whose time came first, if it has come.
    pub fn take_due(&mut self, now_ns: u64) -> Option<u32> {
        let &(due_ns, slot) = self.0.first()?;
        (due_ns <= now_ns && due_ns != NEVER_NS).then(|| {
            self.0.pop_first();
            slot
        })
    }

    /// Moves a slot's time.
    pub fn set(&mut self, slot: u32, from_ns: u64, to_ns: u64) {
        if from_ns != NEVER_NS {
            self.0.remove(&(from_ns, slot));
        }
        if to_ns != NEVER_NS {
            self.0.insert((to_ns, slot));
        }
    }
}
