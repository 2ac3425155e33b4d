//! The epochs of a flow that the unit owns and has not finished.

use std::collections::VecDeque;
use std::ops::Range;

use super::Unacceptable;
use crate::message::{Epoch, FlowId, FlowRecord, UnitId, Version, Watermark};
use crate::unit::{
    OWNERSHIPS_MAX, Outbox,
    ownership::{Ownership, StateSource, Successor},
    replicas::is_exact,
};

/// The epochs that the unit owns and has not finished, in order. Few flows ever have more than one
/// at a time.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Ownerships(VecDeque<Ownership>);

impl Ownerships {
    /// Creates a list without epochs, with room for one.
    pub fn new() -> Ownerships {
        Ownerships(VecDeque::with_capacity(1))
    }

    /// Takes the memory of a list, which has no epochs, for another one.
    pub fn take_memory(&mut self) -> Ownerships {
        Ownerships(std::mem::take(&mut self.0))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the first one: its state is here, or the next to come.
    #[inline]
    pub fn first(&self) -> Option<&Ownership> {
        self.0.front()
    }

    /// Returns the first one, to be changed.
    pub fn first_mut(&mut self) -> Option<&mut Ownership> {
        self.0.front_mut()
    }

    /// Returns the next owner after the first epoch, once known.
    pub fn next_owner(&self) -> Option<Successor> {
        self.first()?.next()
    }

    /// Returns true if there is one, without a next owner.
    pub fn is_only_one(&self) -> bool {
        self.len() == 1 && self.next_owner().is_none()
    }

    /// Returns the ownership of an epoch.
    pub fn find(&self, epoch: Epoch) -> Option<&Ownership> {
        let first = self.0.front()?;
        if first.epoch() == epoch {
            return Some(first); // Few flows ever have more than one.
        }
        let at = self.0.binary_search_by_key(&epoch, Ownership::epoch).ok()?;
        self.0.get(at)
    }

    /// Returns the ownership of the epoch before this one.
    pub fn before(&self, epoch: Epoch) -> Option<&Ownership> {
        self.find(epoch.checked_sub(1)?)
    }

    /// Returns an epoch's ownership, which is created if there is none.
    pub fn admit(&mut self, epoch: Epoch) -> Result<&mut Ownership, Unacceptable> {
        let found = match self.0.front() {
            Some(first) if first.epoch() == epoch => Ok(0),
            _ => self.0.binary_search_by_key(&epoch, Ownership::epoch),
        };
        let at = match found {
            Ok(at) => at,
            Err(_) if self.0.len() >= OWNERSHIPS_MAX => return Err(Unacceptable),
            Err(at) => {
                self.0.insert(at, Ownership::new(epoch));
                at
            }
        };
        self.0.get_mut(at).ok_or(Unacceptable)
    }

    /// Makes an epoch the first one, and forgets the earlier ones: its state is here. That is
    /// allowed even beyond the limit, because the others wait for it.
    pub fn begin_with(&mut self, epoch: Epoch) {
        self.forget_before(epoch);
        if self.first().is_none_or(|first| first.epoch() != epoch) {
            self.0.push_front(Ownership::new(epoch));
        }
    }

    /// Forgets the ownerships of earlier epochs.
    pub fn forget_before(&mut self, epoch: Epoch) {
        while self.0.pop_front_if(|first| first.epoch() < epoch).is_some() {}
    }

    /// Removes the first one if it is that of this epoch.
    pub fn take_first(&mut self, epoch: Epoch) -> Option<Ownership> {
        self.0.pop_front_if(|first| first.epoch() == epoch)
    }

    /// Removes the last one of these epochs.
    pub fn take_last_of(&mut self, epochs: Range<Epoch>) -> Option<Ownership> {
        let place = self.0.iter().rposition(|ownership| epochs.contains(&ownership.epoch()))?;
        self.0.remove(place)
    }

    /// Notes that the state that an epoch begins with is lost.
    pub fn lose(&mut self, epoch: Epoch) {
        if let Some(lost) = self.0.iter_mut().find(|ownership| ownership.epoch() == epoch) {
            lost.set_start(StateSource::Lost { last: lost.start().last().unwrap_or(0) });
        }
    }

    /// Removes the first one with a lost state that has a next owner.
    pub fn take_lost(&mut self) -> Option<Ownership> {
        let is_lost =
            |own: &Ownership| matches!(own.start(), StateSource::Lost { .. }) && own.next().is_some();
        let place = self.0.iter().position(is_lost)?;
        self.0.remove(place)
    }

    /// Removes those with a lost state, except that of this epoch.
    pub fn forget_lost(&mut self, except: Option<Epoch>) {
        self.0.retain(|own| !own.start().is_lost() || Some(own.epoch()) == except);
    }

    /// Returns true if the dispatcher has not decided yet what becomes of an epoch with a lost
    /// state.
    pub fn is_undecided(&self, epoch: Epoch) -> bool {
        self.find(epoch).is_some_and(|own| matches!(own.start(), StateSource::Lost { .. }))
    }

    /// Gives up these epochs: their states will not come. Owners that have requested them are
    /// answered.
    pub fn give_up<P>(&mut self, id: FlowId, epochs: Range<Epoch>, out: &mut Outbox<P>) {
        while let Some(lost) = self.take_last_of(epochs.clone()) {
            lost.answer_lost(id, out);
        }
    }

    /// Notes that the state of the first one is at another unit if its source was an epoch of this
    /// unit, `me`, that has turned out to be the other's. Returns the epoch and the seq to request.
    pub fn start_at(&mut self, owner: UnitId, me: UnitId) -> Option<(Epoch, u64)> {
        let first = self.first_mut()?;
        match first.start() {
            StateSource::From { previous, last } if previous == me => {
                first.set_start(StateSource::From { previous: owner, last });
                Some((first.epoch(), last))
            }
            _ => None,
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns true if a state that one of them begins with covers this seq.
    pub fn start_at_or_behind(&self, seq: u64) -> bool {
        self.0.iter().any(|ownership| ownership.starts_at_or_behind(seq))
    }

    /// Returns the epoch, previous owner and last seq before it of the next ownership, if a unit
    /// other than `me` has its state. While the next owner of a state that is here is unknown, it
    /// may never be handed on.
    #[inline]
    pub fn awaited(&self, is_state_here: bool, me: UnitId) -> Option<(Epoch, UnitId, u64)> {
        let first = self.0.front()?;
        let next = match is_state_here {
            false => first,
            true if first.next().is_none() => self.0.get(1)?,
            true => return None,
        };
        match next.start() {
            StateSource::From { previous, last } if previous != me => Some((next.epoch(), previous, last)),
            _ => None,
        }
    }

    /// Returns the last epoch accepted by `is_candidate` that begins with exactly this replica, and
    /// its previous owner.
    pub fn beginning_with(
        &self,
        version: Version,
        record: &FlowRecord,
        is_candidate: impl Fn(&(Epoch, UnitId)) -> bool,
    ) -> Option<(Epoch, UnitId)> {
        self.0.iter().rev().find_map(|ownership| match ownership.start() {
            StateSource::From { previous, last }
                if ownership.epoch() > version.epoch && is_exact(record, last) =>
            {
                Some((ownership.epoch(), previous)).filter(&is_candidate)
            }
            _ => None,
        })
    }

    /// Returns the next owner if it is another unit than `me` and the state covers all of the first
    /// epoch.
    pub fn ready_successor(&self, mark: Watermark, me: UnitId) -> Option<Successor> {
        self.next_owner().filter(|next| next.owner() != me && mark.covers(next.last()))
    }
}
