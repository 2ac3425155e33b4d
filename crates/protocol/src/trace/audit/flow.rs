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
    /// The owner of the epoch before, if it was lost before this one.
    pub lost_owner: Option<UnitId>,
    /// The dispatcher lets the owner recover the state.
    pub recovers: bool,
    /// It began with a recovered state.
    pub is_recovered: bool,
}

impl EpochAudit {
    pub fn new(owner: UnitId, last_before: u64) -> EpochAudit {
        EpochAudit {
            owner,
            last_before,
            begun_at: None,
            lost_owner: None,
            recovers: false,
            is_recovered: false,
        }
    }
}

/// A unit's search for replicas of a lost state.
#[derive(Default)]
pub(super) struct SearchAudit {
    pub epoch: Epoch,
    /// Units that may have one, and those of them that have not answered.
    pub asked: BTreeSet<UnitId>,
    pub unanswered: BTreeSet<UnitId>,
    /// The newest one so far, and its holder.
    pub newest: Option<(Version, UnitId)>,
    /// Packets that the state lacks.
    pub given_up: u64,
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
    /// By the unit that recovers the state.
    pub searches: BTreeMap<UnitId, SearchAudit>,
    /// The last epoch that has ended at a unit, as a later state was recovered elsewhere.
    pub fenced: BTreeMap<UnitId, Epoch>,
}

impl FlowAudit {
    pub fn new(owner: UnitId, key: FlowKey) -> FlowAudit {
        FlowAudit {
            epochs: BTreeMap::from([(1, EpochAudit::new(owner, 0))]),
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
            searches: BTreeMap::new(),
            fenced: BTreeMap::new(),
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
