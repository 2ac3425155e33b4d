//! An epoch that this unit is the owner of.

use crate::message::{Epoch, Handover, UnitId};

/// An epoch that this unit is the owner of.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Tenure {
    pub epoch: Epoch,
    pub start: Start,
    /// Once there is one.
    pub next: Option<Next>,
}

/// Where the state is that a tenure begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// Not known yet: only of the tenure's end was heard.
    Unknown,
    /// The flow begins (S49).
    Null,
    /// At the owner before.
    From { previous: UnitId, last: u64 },
}

/// The owner after this unit. Its epoch is the next.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Next {
    pub owner: UnitId,
    /// The last clock of this unit's epoch.
    pub last: u64,
    /// When the router said so: nothing but what was overtaken comes behind that.
    pub released_ns: Option<u64>,
    /// It has asked for the state, and is to get an answer.
    pub asked: bool,
    /// When it was sent the state last, and how often it was before.
    pub answered: Option<(u64, u32)>,
}

impl Tenure {
    /// One of which only the number is known.
    pub fn new(epoch: Epoch) -> Tenure {
        Tenure { epoch, start: Start::Unknown, next: None }
    }

    /// Whether a packet with this clock can be of this epoch.
    pub fn may_have(&self, clock: u64) -> bool {
        !self.starts_at_or_behind(clock) && self.next.is_none_or(|next| clock <= next.last)
    }

    /// Whether the state that it begins with covers this clock.
    pub fn starts_at_or_behind(&self, clock: u64) -> bool {
        matches!(self.start, Start::From { last, .. } if clock <= last)
    }
}

impl Next {
    /// One of which nothing has been heard but who it is.
    pub fn new(owner: UnitId, last: u64) -> Next {
        Next { owner, last, released_ns: None, asked: false, answered: None }
    }
}

impl From<Handover> for Start {
    fn from(handover: Handover) -> Start {
        match handover {
            Handover::None => Start::Null,
            Handover::From { previous, last } => Start::From { previous, last },
        }
    }
}
