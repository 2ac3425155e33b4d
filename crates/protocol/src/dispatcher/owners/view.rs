//! The live flows, to be looked at.

use std::ops::Range;

use nf::AffinityGroup;
use packet::FlowKey;

use super::Owners;
use crate::message::{Epoch, FlowId, UnitId};

/// A flow, as its dispatcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    /// The flow.
    pub flow: FlowId,
    /// The key of its first packet.
    pub key: FlowKey,
    /// Its owner.
    pub owner: UnitId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Number of its packets.
    pub packets: u64,
    /// Arrival time of its last packet.
    pub last_seen_ns: u64,
}

/// The live flows of a dispatcher, to be looked at.
#[derive(Clone, Copy)]
pub struct OwnersView<'a> {
    owners: &'a Owners,
}

impl<'a> OwnersView<'a> {
    pub(crate) fn new(owners: &'a Owners) -> OwnersView<'a> {
        OwnersView { owners }
    }

    /// Returns their number.
    pub fn count(self) -> u32 {
        self.owners.flows.count()
    }

    /// Returns the end of the indexes that were ever used.
    pub fn indexes_used(self) -> u32 {
        self.owners.flows.used()
    }

    /// Returns the flow with this key or alias.
    pub fn find(self, hash: u64, key: &FlowKey) -> Option<FlowId> {
        let flows = &self.owners.flows;
        flows.find(hash, key).map(|found| flows.id(found.index))
    }

    /// Returns the owner of the flow with this key or alias.
    pub fn owner(self, hash: u64, key: &FlowKey) -> Option<UnitId> {
        let flows = &self.owners.flows;
        flows.find(hash, key).map(|found| flows.get(found.index).owner())
    }

    /// Returns the flow with this index.
    pub fn at(self, index: u32) -> Option<FlowId> {
        let flows = &self.owners.flows;
        let id = (index < flows.used()).then(|| flows.id(index))?;
        flows.live(id).map(|_| id)
    }

    /// Returns the affinity group of a flow, if it is in one.
    pub fn group(self, flow: FlowId) -> Option<AffinityGroup> {
        self.owners.group_of(flow.index)
    }

    /// Returns true if a unit has refused the flow's state since the flow last migrated to it.
    pub fn has_refused(self, flow: FlowId, unit: UnitId) -> bool {
        let flows = &self.owners.flows;
        flows.live(flow).is_some() && flows.flowlet(flow.index).refusers().contains(unit)
    }

    /// Returns what is known of a flow; `None` if it has ended.
    pub fn status(self, flow: FlowId) -> Option<FlowStatus> {
        self.owners.flows.live(flow).map(|_| self.status_at(flow.index))
    }

    /// Returns what is known of the flows with these indexes.
    pub fn statuses(self, indexes: Range<u32>) -> impl Iterator<Item = FlowStatus> + 'a {
        let flows = &self.owners.flows;
        let indexes = indexes.start..indexes.end.min(flows.used());
        indexes.filter(move |&index| flows.get(index).is_live()).map(move |index| self.status_at(index))
    }

    fn status_at(self, index: u32) -> FlowStatus {
        let flows = &self.owners.flows;
        let live = flows.get(index);
        FlowStatus {
            flow: flows.id(index),
            key: flows.key(index),
            owner: live.owner(),
            epoch: live.epoch(),
            packets: live.seq(),
            last_seen_ns: live.last_seen_ns(),
        }
    }
}
