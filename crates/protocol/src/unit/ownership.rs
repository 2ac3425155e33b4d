//! An epoch that this unit is the owner of.

use crate::message::{Epoch, Handover, UnitId};

/// An epoch that this unit is the owner of.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Ownership {
    pub epoch: Epoch,
    pub start: StateSource,
    /// Once there is one.
    pub next: Option<Successor>,
}

/// Where the state is that a ownership begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StateSource {
    /// Not known yet: only of the ownership's end was heard.
    Unknown,
    /// The flow begins (S49).
    New,
    /// At the owner before.
    From { previous: UnitId, last: u64 },
}

/// The owner after this unit. Its epoch is the next.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Successor {
    pub owner: UnitId,
    /// The last seq of this unit's epoch.
    pub last: u64,
    /// When the dispatcher said so: nothing but what was overtaken comes behind that.
    pub released_ns: Option<u64>,
    /// It has asked for the state, and is to get an answer.
    pub asked: bool,
    /// When it was sent the state last, and how often it was before.
    pub answered: Option<(u64, u32)>,
}

impl Ownership {
    /// One of which only the number is known.
    pub fn new(epoch: Epoch) -> Ownership {
        Ownership { epoch, start: StateSource::Unknown, next: None }
    }

    /// Whether a packet with this seq can be of this epoch.
    pub fn may_have(&self, seq: u64) -> bool {
        !self.starts_at_or_behind(seq) && self.next.is_none_or(|next| seq <= next.last)
    }

    /// Whether the state that it begins with covers this seq.
    pub fn starts_at_or_behind(&self, seq: u64) -> bool {
        matches!(self.start, StateSource::From { last, .. } if seq <= last)
    }
}

impl Successor {
    /// One of which nothing has been heard but who it is.
    pub fn new(owner: UnitId, last: u64) -> Successor {
        Successor { owner, last, released_ns: None, asked: false, answered: None }
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
