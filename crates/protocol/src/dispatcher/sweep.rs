//! The search for flows that nobody ends: silent for longer than any unit waits, and hence known to
//! none.

use crate::dispatcher::machine::{Dispatcher, DispatcherOutput, SweepPosition};

/// Limit on the flows forgotten per bucket of the load meter.
pub const FORGOTTEN_PER_BUCKET: u32 = 256;

/// Number of indexes looked at per bucket.
const FLOWS_SWEPT: u32 = 4096;

/// Number of searches within the silence that is allowed.
const ROUNDS: u64 = 4;

impl Dispatcher {
    /// Ends flows that have been silent for too long: nothing of them is in flight (design.md 3.9).
    /// Looks at a part of the table at a time.
    pub(crate) fn forget(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let Some(silent_ns) = self.config.forget_after_ns else {
            return;
        };
        if now_ns < self.sweep.deadline_ns {
            return;
        }
        let until = self.flows.used().min(self.sweep.hand.saturating_add(FLOWS_SWEPT));
        let mut left = FORGOTTEN_PER_BUCKET;
        while self.sweep.hand < until && left > 0 {
            if self.flows.is_silent(self.sweep.hand, now_ns, silent_ns) {
                self.counters.flows_forgotten += 1;
                self.end(self.sweep.hand, outputs);
                left -= 1;
            }
            self.sweep.hand += 1;
        }
        if self.sweep.hand >= self.flows.used() {
            self.sweep = SweepPosition { hand: 0, deadline_ns: now_ns.saturating_add(silent_ns / ROUNDS) };
        }
    }

    /// Ends all flows, of which all units know already.
    pub fn end_all(&mut self) {
        let mut known = Vec::new();
        for index in 0..self.flows.used() {
            if self.flows.get(index).is_live() {
                self.end(index, &mut known);
                known.clear();
            }
        }
    }

    /// Returns the begin of the next search if there is a flow; `u64::MAX` otherwise.
    pub(crate) fn forget_deadline_ns(&self) -> u64 {
        match self.config.forget_after_ns {
            Some(_) if self.flows.count() > 0 => self.sweep.deadline_ns,
            _ => u64::MAX,
        }
    }
}
