//! Flows that lost their index to another flow.

use std::collections::{BTreeMap, VecDeque};

use crate::message::FlowId;

use crate::unit::flow_entry::FlowEntry;

/// Flows that lost their index to another flow: flows in progress, and flows that ended here or
/// left, so that their states are not accepted again. The number of the latter is bounded; the
/// oldest are forgotten.
#[derive(Clone, Debug, Hash, Default)]
pub(crate) struct Tombstones {
    entries: BTreeMap<FlowId, FlowEntry>,
    /// In the order of arrival.
    order: VecDeque<FlowId>,
}

impl Tombstones {
    /// Returns the entry of a flow; by default, that of an ended one.
    pub fn flow(&mut self, id: FlowId) -> &mut FlowEntry {
        self.entries.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            FlowEntry::over(id.generation)
        })
    }

    /// Returns all entries.
    pub fn all(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.values()
    }

    /// Adds a flow that lost its index. Returns the number of entries forgotten for it.
    pub fn add(&mut self, id: FlowId, entry: FlowEntry, max: usize) -> u64 {
        if self.entries.insert(id, entry).is_none() {
            self.order.push_back(id);
        }
        let mut forgotten = 0;
        for _ in 0..self.order.len() {
            let Some(oldest) = self.order.front().copied().filter(|_| self.order.len() > max) else { break };
            self.order.pop_front();
            if self.entries.get(&oldest).is_some_and(FlowEntry::is_here) {
                self.order.push_back(oldest);
            } else {
                forgotten += u64::from(self.entries.remove(&oldest).is_some());
            }
        }
        forgotten
    }

    /// Removes the flow that came last if nothing is known of it.
    pub fn tidy(&mut self, id: FlowId) {
        if self.order.back() == Some(&id)
            && self.entries.get(&id).is_some_and(|entry| !entry.is_worth_keeping())
        {
            self.order.pop_back();
            self.entries.remove(&id);
        }
    }
}
