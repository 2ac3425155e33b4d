//! The deadlines of a unit's flows.

use std::collections::BTreeSet;

use crate::message::FlowId;

/// The deadlines of flows, one per flow.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Timers {
    entries: BTreeSet<(u64, FlowId)>,
    /// The earliest deadline: read far more often than changed.
    next_timeout_ns: u64,
}

/// The deadline that never comes.
pub(crate) const NEVER_NS: u64 = u64::MAX;

impl Default for Timers {
    fn default() -> Timers {
        Timers { entries: BTreeSet::new(), next_timeout_ns: NEVER_NS }
    }
}

impl Timers {
    /// Returns the earliest deadline.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.next_timeout_ns
    }

    /// Takes out the flow with the earliest deadline, if it has passed.
    pub fn take_expired(&mut self, now_ns: u64) -> Option<FlowId> {
        if self.next_timeout_ns > now_ns || self.next_timeout_ns == NEVER_NS {
            return None;
        }
        let (_, flow) = self.entries.pop_first()?;
        self.note_first();
        Some(flow)
    }

    /// Brings a flow's deadline forward. If a deadline becomes later, the earlier one fires and is
    /// corrected then: so packets in order touch no timer.
    #[inline]
    pub fn bring_forward(&mut self, flow: FlowId, armed_ns: &mut u64, deadline_ns: u64) {
        if deadline_ns < *armed_ns {
            self.set(flow, armed_ns, deadline_ns);
        }
    }

    /// Same; also removes the flow's deadline if it no longer has any.
    pub fn update(&mut self, flow: FlowId, armed_ns: &mut u64, deadline_ns: u64) {
        if deadline_ns < *armed_ns || (deadline_ns == NEVER_NS && *armed_ns != NEVER_NS) {
            self.set(flow, armed_ns, deadline_ns);
        }
    }

    /// Sets a flow's deadline.
    fn set(&mut self, flow: FlowId, armed_ns: &mut u64, deadline_ns: u64) {
        if *armed_ns != NEVER_NS {
            self.entries.remove(&(*armed_ns, flow));
        }
        if deadline_ns != NEVER_NS {
            self.entries.insert((deadline_ns, flow));
        }
        *armed_ns = deadline_ns;
        self.note_first();
    }

    fn note_first(&mut self) {
        self.next_timeout_ns = self.entries.first().map_or(NEVER_NS, |&(deadline_ns, _)| deadline_ns);
    }
}
