//! Flows whose slots other flows have.

use std::collections::{BTreeMap, VecDeque};

use crate::message::FlowId;

use crate::unit::slot::Slot;

/// Flows whose slots other flows have: those of which something is still under way, and those that
/// ended here or went away, so that their states are not taken once more. Of the latter only so
/// many are remembered; the oldest are forgotten.
#[derive(Clone, Debug, Hash, Default)]
pub(crate) struct Past {
    slots: BTreeMap<FlowId, Slot>,
    /// In the order in which they came.
    order: VecDeque<FlowId>,
}

impl Past {
    /// What is known of a flow; if nothing is, that it is over.
    pub fn flow(&mut self, id: FlowId) -> &mut Slot {
        self.slots.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            Slot::over(id.generation)
        })
    }

    /// All that are remembered.
    pub fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// Adds a flow that lost its slot. How many others had to be forgotten.
    pub fn add(&mut self, id: FlowId, slot: Slot, max: usize) -> u64 {
        if self.slots.insert(id, slot).is_none() {
            self.order.push_back(id);
        }
        let mut forgotten = 0;
        for _ in 0..self.order.len() {
            let Some(oldest) = self.order.front().copied().filter(|_| self.order.len() > max) else { break };
            self.order.pop_front();
            if self.slots.get(&oldest).is_some_and(Slot::is_here) {
                self.order.push_back(oldest);
            } else {
                forgotten += u64::from(self.slots.remove(&oldest).is_some());
            }
        }
        forgotten
    }

    /// Forgets the flow that came last if nothing is known of it.
    pub fn tidy(&mut self, id: FlowId) {
        if self.order.back() == Some(&id) && self.slots.get(&id).is_some_and(|slot| !slot.is_worth_keeping())
        {
            self.order.pop_back();
            self.slots.remove(&id);
        }
    }
}
