//! An epoch of a flow that a unit owns.

use crate::message::{Epoch, Handover, UnitId, Version};

/// An epoch of a flow that this unit owns.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Ownership {
    pub epoch: Epoch,
    pub start: StateSource,
    /// The next owner, once known.
    pub next: Option<Successor>,
}

/// The place of the state that an ownership begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StateSource {
    /// Not known yet: only the ownership's end is.
    Unknown,
    /// Nowhere: the flow begins (S49).
    New,
    /// At the previous owner.
    From { previous: UnitId, last: u64 },
}

/// The owner of the next epoch.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Successor {
    pub owner: UnitId,
    /// The last seq of this unit's epoch.
    pub last: u64,
    /// Time of the dispatcher's release: only overtaken packets of this epoch arrive after it.
    pub released_ns: Option<u64>,
    /// It has asked for the state and has no answer yet.
    pub asked: bool,
    /// The version of the replica that it has, as it said.
    pub has: Option<Version>,
    /// Time of the last answer, and the number of earlier ones.
    pub answered: Option<(u64, u32)>,
}

impl Ownership {
    /// Creates one of which only the epoch is known.
    pub fn new(epoch: Epoch) -> Ownership {
        Ownership { epoch, start: StateSource::Unknown, next: None }
    }

    /// Returns true if a packet with this seq can belong to the epoch.
    pub fn may_have(&self, seq: u64) -> bool {
        !self.starts_at_or_behind(seq) && self.next.is_none_or(|next| seq <= next.last)
    }

    /// Returns true if the state that it begins with covers this seq.
    pub fn starts_at_or_behind(&self, seq: u64) -> bool {
        matches!(self.start, StateSource::From { last, .. } if seq <= last)
    }
}

impl Successor {
    /// Creates one of which only the owner and the last seq are known.
    pub fn new(owner: UnitId, last: u64) -> Successor {
        Successor { owner, last, released_ns: None, asked: false, has: None, answered: None }
    }
}

impl From<Handover> for StateSource {
    fn from(handover: Handover) -> StateSource {
        match handover {
            Handover::None => StateSource::New,
            Handover::From { previous, last } => StateSource::From { previous, last },
        }
    }
}
