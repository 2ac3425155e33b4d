//! The search for flows that no unit ends: silent for longer than any unit waits, and hence known
//! to none.

use crate::dispatcher::config::Config;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::Units;

/// Limit on the flows forgotten per bucket of the load meter.
pub const FORGOTTEN_PER_BUCKET: u32 = 256;

/// Number of indexes looked at per bucket.
const FLOWS_SWEPT: u32 = 4096;

/// Number of searches within the silence that is allowed.
const ROUNDS: u64 = 4;

/// The search for silent flows.
pub(crate) struct Sweep {
    /// Silence after which a flow ends, in ns; `None` if none ends so.
    silent_ns: Option<u64>,
    /// The next index.
    hand: u32,
    /// Begin of the next search, or of this one.
    deadline_ns: u64,
}

impl Sweep {
    pub fn new(config: &Config) -> Sweep {
        Sweep { silent_ns: config.forget_after_ns, hand: 0, deadline_ns: 0 }
    }

    /// Ends flows that have been silent for too long: nothing of them is in flight (design.md 3.9).
    /// Looks at a part of the table at a time.
    pub fn forget(&mut self, owners: &mut Owners, units: &Units, step: &mut Step<'_>) {
        let Some(silent_ns) = self.silent_ns else {
            return;
        };
        let now_ns = step.now_ns();
        if now_ns < self.deadline_ns {
            return;
        }
        let until = owners.flows().used().min(self.hand.saturating_add(FLOWS_SWEPT));
        let mut left = FORGOTTEN_PER_BUCKET;
        while self.hand < until && left > 0 {
            if owners.flows().is_silent(self.hand, now_ns, silent_ns) {
                step.counters().flows_forgotten += 1;
                owners.end(self.hand, units, step);
                left -= 1;
            }
            self.hand += 1;
        }
        if self.hand >= owners.flows().used() {
            (self.hand, self.deadline_ns) = (0, now_ns.saturating_add(silent_ns / ROUNDS));
        }
    }

    /// Returns the begin of the next search if there is a flow; `u64::MAX` otherwise.
    pub fn deadline_ns(&self, owners: &Owners) -> u64 {
        match self.silent_ns {
            Some(_) if owners.flows().count() > 0 => self.deadline_ns,
            _ => u64::MAX,
        }
    }
}
