//! When something is to be done for which flow.

use std::collections::BTreeSet;

use crate::message::FlowId;

/// When something is to be done for which flow; one entry a flow.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Timers {
    entries: BTreeSet<(u64, FlowId)>,
    /// The first one's time: it is asked for far more often than it changes.
    next_timeout_ns: u64,
}

/// The time at which nothing is ever due.
pub(crate) const NEVER_NS: u64 = u64::MAX;

impl Default for Timers {
    fn default() -> Timers {
        Timers { entries: BTreeSet::new(), next_timeout_ns: NEVER_NS }
    }
}

impl Timers {
    /// When the first one is due.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.next_timeout_ns
    }

    /// The flow whose time came first, if it has come.
    pub fn take_expired(&mut self, now_ns: u64) -> Option<FlowId> {
        if self.next_timeout_ns > now_ns || self.next_timeout_ns == NEVER_NS {
            return None;
        }
        let (_, flow) = self.entries.pop_first()?;
        self.note_first();
        Some(flow)
    }

    /// Moves a flow's time if something is due earlier. A time that has moved back is looked at
    /// again when it comes: packets that come in order touch no timer.
    #[inline]
    pub fn bring_forward(&mut self, flow: FlowId, armed_ns: &mut u64, deadline_ns: u64) {
        if deadline_ns < *armed_ns {
            self.set(flow, armed_ns, deadline_ns);
        }
    }

    /// The same; and if nothing is due any more, the flow has no time.
    pub fn update(&mut self, flow: FlowId, armed_ns: &mut u64, deadline_ns: u64) {
        if deadline_ns < *armed_ns || (deadline_ns == NEVER_NS && *armed_ns != NEVER_NS) {
            self.set(flow, armed_ns, deadline_ns);
        }
    }

    /// Moves a flow's time.
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
