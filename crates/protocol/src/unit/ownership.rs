//! An epoch of a flow that a unit owns.

use crate::message::{Epoch, FlowId, FromPeer, Handover, UnitId, Version};
use crate::unit::Outbox;

/// An epoch of a flow that this unit owns.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Ownership {
    epoch: Epoch,
    start: StateSource,
    /// The next owner, once known.
    next: Option<Successor>,
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
    /// Lost with the previous owner; the dispatcher decides what becomes of the flow.
    Lost { last: u64 },
    /// Lost with the previous owner; replicas are at other units.
    Replicas { last: u64 },
}

impl StateSource {
    /// Returns the last seq that the state covers; `None` if that is not known, or the flow begins.
    pub fn last(self) -> Option<u64> {
        match self {
            StateSource::Unknown | StateSource::New => None,
            StateSource::From { last, .. } | StateSource::Lost { last } | StateSource::Replicas { last } => {
                Some(last)
            }
        }
    }

    /// Returns true if the state was lost with the previous owner.
    pub fn is_lost(self) -> bool {
        matches!(self, StateSource::Lost { .. } | StateSource::Replicas { .. })
    }
}

/// The owner of the next epoch, and the handover to it.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Successor {
    owner: UnitId,
    /// The last seq of this unit's epoch.
    last: u64,
    /// Time of the dispatcher's release: only overtaken packets of this epoch arrive after it.
    released_ns: Option<u64>,
    /// It has requested the state and has no answer yet.
    asked: bool,
    /// The version of the replica that it has, as it said.
    has: Option<Version>,
    /// Time of the last answer, and the number of earlier ones.
    answered: Option<(u64, u32)>,
}

impl Ownership {
    /// Creates an ownership with only its epoch known.
    pub fn new(epoch: Epoch) -> Ownership {
        Ownership { epoch, start: StateSource::Unknown, next: None }
    }

    /// Returns the epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Answers the next owner if it has requested the state, which is lost.
    pub fn answer_lost<P>(&self, flow: FlowId, out: &mut Outbox<P>) {
        if let Some(next) = self.next.filter(|next| next.is_asking()) {
            let end = FromPeer::End { flow, epoch: self.epoch.saturating_add(1) };
            out.to_units.push((next.owner(), end));
        }
    }

    /// Returns the place of the state that it begins with.
    pub fn start(&self) -> StateSource {
        self.start
    }

    /// Sets the place of the state that it begins with.
    pub fn set_start(&mut self, start: StateSource) {
        self.start = start;
    }

    /// Returns the next owner, once known.
    pub fn next(&self) -> Option<Successor> {
        self.next
    }

    /// Returns the next owner, to be changed.
    pub fn next_mut(&mut self) -> Option<&mut Successor> {
        self.next.as_mut()
    }

    /// Sets the next owner.
    pub fn set_next(&mut self, next: Successor) {
        self.next = Some(next);
    }

    /// Returns the next owner, which is this one if none was known.
    pub fn next_or(&mut self, next: Successor) -> &mut Successor {
        self.next.get_or_insert(next)
    }

    /// Returns true if a packet with this seq can belong to the epoch.
    pub fn may_have(&self, seq: u64) -> bool {
        !self.starts_at_or_behind(seq) && self.next.is_none_or(|next| seq <= next.last)
    }

    /// Returns true if the state that it begins with covers this seq.
    pub fn starts_at_or_behind(&self, seq: u64) -> bool {
        self.start.last().is_some_and(|last| seq <= last)
    }
}

impl Successor {
    /// Creates a successor with only the owner and the last seq known.
    pub fn new(owner: UnitId, last: u64) -> Successor {
        Successor { owner, last, released_ns: None, asked: false, has: None, answered: None }
    }

    /// Returns the unit.
    pub fn owner(&self) -> UnitId {
        self.owner
    }

    /// Returns the last seq before its epoch.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Notes the dispatcher's release, unless it came before.
    pub fn release(&mut self, now_ns: u64) {
        self.released_ns.get_or_insert(now_ns);
    }

    /// Returns the time of the dispatcher's release; `None` if it has not come.
    pub fn released_ns(&self) -> Option<u64> {
        self.released_ns
    }

    /// Notes that the owner requests the state, and has this replica.
    pub fn ask(&mut self, has: Option<Version>) {
        (self.asked, self.has) = (true, has);
    }

    /// Returns true if it has requested the state and has no answer yet.
    pub fn is_asking(&self) -> bool {
        self.asked
    }

    /// Returns the version of the replica that it has, as it said.
    pub fn has(&self) -> Option<Version> {
        self.has
    }

    /// Notes an answer. Returns the version of the owner's replica at the first one only: a replica
    /// that is gone, or a lost message, must not cost another attempt.
    pub fn answer(&mut self, now_ns: u64) -> Option<Version> {
        let times = self.answered.map_or(0, |(_, times)| times.saturating_add(1));
        (self.asked, self.answered) = (false, Some((now_ns, times)));
        self.has.take().filter(|_| times == 0)
    }

    /// Returns the time of the last answer, and the number of earlier ones; `None` before the
    /// first.
    pub fn answered(&self) -> Option<(u64, u32)> {
        self.answered
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
