//! When something is to be done for which flow.

use std::collections::BTreeSet;

use proto::FlowId;

/// When something is to be done for which flow; one entry a flow.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Timers(BTreeSet<(u64, FlowId)>);

/// The time at which nothing is ever due.
pub(crate) const NEVER_NS: u64 = u64::MAX;

impl Timers {
    /// When the first one is due.
    pub fn due_ns(&self) -> u64 {
        self.0.first().map_or(NEVER_NS, |&(due_ns, _)| due_ns)
    }

    /// The flow whose time came first, if it has come.
    pub fn take_due(&mut self, now_ns: u64) -> Option<FlowId> {
        let &(due_ns, flow) = self.0.first()?;
        (due_ns <= now_ns && due_ns != NEVER_NS).then(|| {
            self.0.pop_first();
            flow
        })
    }

    /// Moves a flow's time if something is due earlier. A time that has moved back is looked at again when it comes: packets
    /// that come in order touch no timer.
    #[inline]
    pub fn bring_forward(&mut self, flow: FlowId, armed_ns: &mut u64, due_ns: u64) {
        if due_ns < *armed_ns {
            self.set(flow, armed_ns, due_ns);
        }
    }

    /// Moves a flow's time.
    pub fn set(&mut self, flow: FlowId, armed_ns: &mut u64, due_ns: u64) {
        if *armed_ns != NEVER_NS {
            self.0.remove(&(*armed_ns, flow));
        }
        if due_ns != NEVER_NS {
            self.0.insert((due_ns, flow));
        }
        *armed_ns = due_ns;
    }
}
