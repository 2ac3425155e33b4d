//! Flows whose entries other flows have.

use std::collections::{BTreeMap, VecDeque};

use crate::message::FlowId;

use crate::unit::flow_entry::FlowEntry;

/// Flows whose entries other flows have: those of which something is still under way, and those that
/// ended here or went away, so that their states are not taken once more. Of the latter only so
/// many are remembered; the oldest are forgotten.
#[derive(Clone, Debug, Hash, Default)]
pub(crate) struct Tombstones {
    entries: BTreeMap<FlowId, FlowEntry>,
    /// In the order in which they came.
    order: VecDeque<FlowId>,
}

impl Tombstones {
    /// What is known of a flow; if nothing is, that it is over.
    pub fn flow(&mut self, id: FlowId) -> &mut FlowEntry {
        self.entries.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            FlowEntry::over(id.generation)
        })
    }

    /// All that are remembered.
    pub fn all(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.values()
    }

    /// Adds a flow that lost its entry. How many others had to be forgotten.
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

    /// Forgets the flow that came last if nothing is known of it.
    pub fn tidy(&mut self, id: FlowId) {
        if self.order.back() == Some(&id)
            && self.entries.get(&id).is_some_and(|entry| !entry.is_worth_keeping())
        {
            self.order.pop_back();
            self.entries.remove(&id);
        }
    }
}
