//! States that a new owner cannot take: the flow stays where it was.
//!
//! ```text
//! X (owner in epoch e)                      Y (owner in epoch e + 1)             dispatcher
//!   | --------------- State e+1 ------------> | cannot take it                     |
//!   | <-------------- Refuse e+1, state ----- | ------------- Refuse e+1 --------> |
//!   | owner in epoch e + 1, too               | forwards packets of e + 1, pulls   |
//!   | <---- packets of e+1 ------------------ | <---------- Release e+2, X ------- |
//!   | <---------------------------------------------------- Adopt e+2, Y --------- |
//! ```

use telemetry::event;

use crate::message::{Epoch, FlowRecord, FromPeer, RefuseReason, UnitId};

use super::{Context, Flow, Tombstone, Unacceptable};
use crate::unit::{
    Engine,
    ownership::{StateSource, Successor},
};

impl Flow {
    /// Gives an epoch back to the holder of its state, forwards the epoch's packets there, and asks
    /// it for the next owner's state. Returns the tombstone.
    pub fn give_back<E: Engine>(
        &mut self,
        epoch: Epoch,
        covered: u64,
        holder: UnitId,
        reason: RefuseReason,
        cx: &mut Context<'_, E>,
    ) -> Tombstone {
        self.is_quiescent = false;
        self.forget_before(epoch);
        if self.state.take().is_some() {
            cx.engine.forget(cx.now_ns, self.id, false); // Of an earlier epoch: the holder is past it.
        }
        self.drop_before(epoch, cx);
        let given_back = self.ownerships.pop_front_if(|first| first.epoch == epoch);
        let last = match given_back.map(|ownership| ownership.start) {
            Some(StateSource::From { last, .. }) => last,
            Some(StateSource::Unknown | StateSource::New) | None => covered,
        };
        let tombstone = Tombstone { epoch, owner: holder, last, refused: Some(reason) };
        while let Some(waiting) = self.pending.take_before(epoch.saturating_add(1), cx.slab) {
            tombstone.forward(waiting.stamp, waiting.packet, cx);
        }
        if let Some(next) = given_back.and_then(|ownership| ownership.next)
            && let Some(epoch) = epoch.checked_add(1)
        {
            let is_released = next.released_ns.is_some();
            let (flow, owner, last, has) = (self.id, next.owner, next.last, next.has);
            let pull = FromPeer::Pull { flow, epoch, owner, last, again: is_released, has };
            cx.out.to_units.push((holder, pull));
        }
        tombstone
    }

    /// Goes on as the owner of an epoch whose owner has refused the state. False if the state is
    /// not here, or went to another unit.
    pub fn take_back<E: Engine>(
        &mut self,
        epoch: Epoch,
        refuser: UnitId,
        record: &FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Result<bool, Unacceptable> {
        let is_own = self.state.is_some_and(|state| state.epoch.checked_add(1) == Some(epoch));
        let next = self.ownerships.front().and_then(|ownership| ownership.next);
        let Some(next) = next.filter(|next| is_own && next.owner == refuser && next.answered.is_some())
        else {
            return Ok(false);
        };
        let at = self.admit(epoch)?;
        let me = cx.id();
        self.ownerships[at].start = StateSource::From { previous: me, last: next.last };
        if let Some(first) = self.ownerships.front_mut() {
            first.next = Some(Successor { released_ns: Some(cx.now_ns), ..Successor::new(me, next.last) });
        }
        cx.counters.states_returned += 1;
        if self.restore(&record.bytes, cx).is_err() {
            cx.counters.states_lost += 1;
            event::state_lost(&self.id);
        }
        if let Some(after) = epoch.checked_add(1)
            && let Some(StateSource::From { previous, last }) =
                self.find(after).map(|ownership| ownership.start)
            && previous == refuser
        {
            self.succession(after, me, last, cx)?.released_ns.get_or_insert(cx.now_ns);
        }
        self.pump(cx);
        Ok(true)
    }
}
