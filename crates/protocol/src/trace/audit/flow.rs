//! One flow, as the lines so far show it.

use std::collections::{BTreeMap, BTreeSet};

use packet::FlowKey;

use crate::message::{Epoch, UnitId, Version};

/// An epoch.
pub(super) struct EpochAudit {
    pub owner: UnitId,
    /// The last packet of the epoch before.
    pub last_before: u64,
    /// The unit that began it with a state.
    pub begun_at: Option<UnitId>,
}

/// A state at a unit.
#[derive(Clone, Copy)]
pub(super) struct StateAudit {
    pub epoch: Epoch,
    /// The last packet that it covers.
    pub seq: u64,
}

/// One flow.
pub(super) struct FlowAudit {
    pub epochs: BTreeMap<Epoch, EpochAudit>,
    /// The last packet that was dispatched.
    pub last: u64,
    pub is_over: bool,
    pub group: Option<u16>,
    /// The key that it began with.
    pub key: FlowKey,
    pub alias: Option<FlowKey>,
    /// A unit has reported this alias, and the dispatcher does not know it yet.
    pub due: Option<FlowKey>,
    pub states: BTreeMap<UnitId, StateAudit>,
    /// The unit that processed each packet.
    pub processed: BTreeMap<u64, UnitId>,
    /// Packets with another end.
    done: BTreeSet<u64>,
    /// Replicas to which the last received changes apply, by unit.
    pub bases: BTreeMap<UnitId, Version>,
}

impl FlowAudit {
    pub fn new(owner: UnitId, key: FlowKey) -> FlowAudit {
        let first = EpochAudit { owner, last_before: 0, begun_at: None };
        FlowAudit {
            epochs: BTreeMap::from([(1, first)]),
            last: 0,
            is_over: false,
            group: None,
            key,
            alias: None,
            due: None,
            states: BTreeMap::new(),
            processed: BTreeMap::new(),
            done: BTreeSet::new(),
            bases: BTreeMap::new(),
        }
    }

    /// Returns the present epoch and its owner.
    pub fn present(&self) -> (Epoch, UnitId) {
        self.epochs.last_key_value().map_or((0, UnitId(0)), |(epoch, known)| (*epoch, known.owner))
    }

    /// Notes the end of packets that were not processed.
    pub fn close(&mut self, packets: impl IntoIterator<Item = u64>) {
        self.done.extend(packets);
    }

    /// Returns the first packet of a live flow whose end is not known.
    pub fn first_open(&self) -> Option<u64> {
        let is_open = |seq: &u64| !self.processed.contains_key(seq) && !self.done.contains(seq);
        (1..=self.last).find(is_open).filter(|_| !self.is_over)
    }
}
