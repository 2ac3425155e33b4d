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
use crate::trace::{FlowPlace, TimelineEvent};
use crate::unit::{
    Engine,
    ownership::{StateSource, Successor},
};

impl Flow {
    /// Gives an epoch back to the holder of its state, forwards the epoch's packets there, and
    /// pulls the next owner's state from it. Returns the tombstone.
    pub fn give_back<E: Engine>(
        &mut self,
        epoch: Epoch,
        covered: u64,
        holder: UnitId,
        reason: RefuseReason,
        cx: &mut Context<'_, E>,
    ) -> Tombstone {
        self.ownerships.forget_before(epoch);
        self.packets.take_state(false, cx); // Of an earlier epoch: the holder is past it.
        self.packets.drop_before(epoch, cx);
        let given_back = self.ownerships.take_first(epoch);
        let last = given_back.and_then(|ownership| ownership.start().last()).unwrap_or(covered);
        let tombstone = Tombstone { epoch, owner: holder, last, refused: Some(reason) };
        self.packets.forward_before(epoch.saturating_add(1), &tombstone, cx);
        if let Some(next) = given_back.and_then(|ownership| ownership.next())
            && let Some(epoch) = epoch.checked_add(1)
        {
            let again = next.released_ns().is_some();
            let (flow, owner, last, has) = (cx.flow, next.owner(), next.last(), next.has());
            cx.out.to_units.push((holder, FromPeer::Pull { flow, epoch, owner, last, again, has }));
        }
        tombstone
    }

    /// Continues as the owner of an epoch after its owner has refused the state. False if the state
    /// is not here, or went to another unit.
    pub fn take_back<E: Engine>(
        &mut self,
        epoch: Epoch,
        refuser: UnitId,
        record: &FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Result<bool, Unacceptable> {
        let here = self.packets.state();
        let is_own = here.is_some_and(|state| state.epoch.checked_add(1) == Some(epoch));
        let next = self.ownerships.next_owner();
        let Some(next) = next.filter(|next| is_own && next.owner() == refuser && next.answered().is_some())
        else {
            return Ok(false);
        };
        self.packets.disturb();
        let (me, last) = (cx.id(), next.last());
        self.ownerships.admit(epoch)?.set_start(StateSource::From { previous: me, last });
        if let Some(first) = self.ownerships.first_mut() {
            let mut next = Successor::new(me, last);
            next.release(cx.now_ns);
            first.set_next(next);
        }
        cx.counters.states_returned += 1;
        let place = FlowPlace { epoch: Some(epoch), ..FlowPlace::of(cx.flow) };
        cx.note(place, TimelineEvent::StateReturned { from: refuser });
        if cx.restore(&record.bytes, here.is_some()).is_err() {
            cx.counters.states_lost += 1;
            event::state_lost(&cx.flow);
        }
        if let Some(after) = epoch.checked_add(1)
            && let Some(StateSource::From { previous, last }) =
                self.ownerships.find(after).map(|ownership| ownership.start())
            && previous == refuser
        {
            let now_ns = cx.now_ns;
            self.succession(after, me, last, cx)?.release(now_ns);
        }
        self.pump(cx);
        Ok(true)
    }
}
