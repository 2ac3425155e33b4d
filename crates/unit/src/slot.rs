//! One slot of the router's table at one unit: a flow, and those before it.

use proto::{Epoch, FlowId, FlowRecord, Handover, Message, Stamp, UnitId, Watermark};

use crate::{
    Dropped, Engine,
    context::Context,
    flow::{Flow, Refused},
    replicas::Kept,
    tenure::Start,
    timers::NEVER_NS,
};

/// What a unit knows of the flow that has a slot, whether or not it has anything to do with it now.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Slot<P> {
    generation: u32,
    /// The flow of this generation is over.
    is_over: bool,
    /// The tombstone: where the flow went when it last went away from here. It stays as long as the flow, so that nothing
    /// that comes late can begin it anew (DESIGN 3.3).
    gone: Option<Gone>,
    flow: Option<Box<Flow<P>>>,
    /// When the unit's timers have an entry for it.
    pub armed_ns: u64,
}

/// Where a flow went.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Gone {
    /// The epoch that it went to.
    pub epoch: Epoch,
    /// Whose that is.
    pub owner: UnitId,
    /// The last clock before it.
    pub last: u64,
}

impl Gone {
    /// Sends a packet of an earlier epoch there, as one of that epoch's: each unit on its way sends it to a later one.
    pub fn forward<E: Engine>(&self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        let handover = Handover::From { previous: cx.id(), last: self.last };
        cx.counters.forwarded += 1;
        cx.out.forwarded.push((self.owner, Stamp { epoch: self.epoch, handover, ..stamp }, packet));
    }
}

impl<P> Default for Slot<P> {
    fn default() -> Slot<P> {
        Slot { generation: 0, is_over: false, gone: None, flow: None, armed_ns: NEVER_NS }
    }
}

impl<P> Slot<P> {
    /// The flow that the unit has anything to do with is on its way to the cache.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(flow) = &self.flow {
            flow.prefetch();
        }
    }

    /// Whether the unit has anything to do with the flow now.
    pub fn is_here(&self) -> bool {
        self.flow.is_some()
    }

    /// Whether the slot is this flow's.
    pub fn is_of(&self, id: FlowId) -> bool {
        self.generation == id.generation
    }

    /// Whose the state is that is here and has not been released, and what it covers.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        self.flow.as_ref()?.owned()
    }

    /// Whether the flow has the slot and is not over. A newer one takes the slot: the one before it is over.
    fn enter<E: Engine<Packet = P>>(&mut self, id: FlowId, cx: &mut Context<'_, E>) -> bool {
        if id.generation > self.generation {
            self.clear(id.slot, cx);
            (self.generation, self.is_over) = (id.generation, false);
        }
        self.is_of(id) && !self.is_over
    }

    fn clear<E: Engine<Packet = P>>(&mut self, slot: u32, cx: &mut Context<'_, E>) {
        if let Some(mut flow) = self.flow.take() {
            flow.end(cx);
        }
        cx.replicas.remove(slot);
        self.gone = None;
    }

    /// Whether this epoch is over as far as this unit is concerned, or its own.
    fn is_past(&self, epoch: Epoch) -> bool {
        self.gone.is_some_and(|gone| epoch <= gone.epoch)
            || self.flow.as_ref().is_some_and(|flow| flow.is_past(epoch))
    }

    fn flow(&mut self, id: FlowId) -> &mut Flow<P> {
        self.flow.get_or_insert_with(|| Box::new(Flow::new(id)))
    }

    pub fn packet<E: Engine<Packet = P>>(&mut self, stamp: Stamp, packet: P, cx: &mut Context<'_, E>) {
        if !self.enter(stamp.flow, cx) {
            return cx.drop(Dropped::Ended, stamp, packet);
        }
        match self.gone.filter(|gone| stamp.epoch <= gone.epoch) {
            None => self.flow(stamp.flow).packet(stamp, packet, cx),
            Some(_) if self.flow.as_ref().is_some_and(|flow| flow.covers(stamp.clock)) => {
                cx.drop(Dropped::Old, stamp, packet);
            }
            Some(gone) if stamp.epoch < gone.epoch => gone.forward(stamp, packet, cx),
            Some(_) => cx.drop(Dropped::Old, stamp, packet),
        }
    }

    /// A message about this flow, from the router or from a unit.
    pub fn receive<E: Engine<Packet = P>>(
        &mut self,
        id: FlowId,
        from: Option<UnitId>,
        message: Message,
        cx: &mut Context<'_, E>,
    ) {
        if !self.enter(id, cx) {
            cx.counters.messages_stale += 1;
            return;
        }
        let outcome = match (message, from) {
            (Message::End { .. }, None) => {
                self.clear(id.slot, cx);
                self.is_over = true;
                Ok(())
            }
            (Message::Replica { epoch, record, .. }, Some(_)) => {
                self.replica(id, epoch, record, cx);
                Ok(())
            }
            (Message::State { epoch, .. }, Some(from)) if self.is_past(epoch) => {
                cx.counters.messages_stale += 1;
                cx.out.to_units.push((from, Message::Taken { flow: id, epoch }));
                Ok(())
            }
            (
                Message::Release { epoch, .. }
                | Message::Adopt { epoch, .. }
                | Message::Pull { epoch, .. }
                | Message::Taken { epoch, .. },
                _,
            ) if self.is_past(epoch) => {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            (Message::Release { epoch, owner, last, .. }, None) => {
                self.flow(id).release(epoch, owner, last, cx)
            }
            (Message::Adopt { epoch, previous, last, .. }, None) => {
                self.flow(id).adopt(epoch, Start::From { previous, last }, cx)
            }
            (Message::Pull { epoch, last, .. }, Some(from)) => self.flow(id).pull(epoch, from, last, cx),
            (Message::State { epoch, record, .. }, Some(from)) if epoch > 1 => {
                self.flow(id).state(epoch, &record, from, cx)
            }
            (Message::Taken { epoch, .. }, Some(from)) => {
                self.gone = Some(self.flow(id).leave(epoch, from, cx));
                Ok(())
            }
            _ => Err(Refused),
        };
        if outcome.is_err() {
            cx.counters.messages_refused += 1;
        }
    }

    /// A copy: never in place of the owner's state, and never of what this unit has given away.
    fn replica<E: Engine<Packet = P>>(
        &mut self,
        id: FlowId,
        epoch: Epoch,
        record: FlowRecord,
        cx: &mut Context<'_, E>,
    ) {
        cx.counters.replicas_received += 1;
        cx.counters.replica_bytes_received += record.bytes.len() as u64;
        let is_stale = self.gone.is_some_and(|gone| record.watermark.contiguous < gone.last)
            || self.flow.as_ref().is_some_and(|flow| flow.is_past(epoch));
        if is_stale {
            cx.counters.replicas_refused += 1;
            return;
        }
        let left = match &mut self.flow {
            Some(flow) => flow.replica(epoch, record, cx),
            None => Some(record),
        };
        let Some(record) = left else { return };
        match cx.replicas.keep(id.slot, epoch, record, cx.config.replicas_max_bytes) {
            Kept::Yes { evicted } => cx.counters.replicas_evicted += evicted,
            Kept::No => cx.counters.replicas_refused += 1,
        }
    }

    /// Asks once more for every state that is awaited.
    pub fn pull_again<E: Engine<Packet = P>>(&self, cx: &mut Context<'_, E>) {
        if let Some(flow) = &self.flow {
            flow.pull_again(cx);
        }
    }

    /// Proposes the flow's end, if it is owned here.
    pub fn propose_end<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        if let Some(flow) = &mut self.flow
            && flow.owned().is_some()
        {
            flow.propose_end(cx);
        }
    }

    /// Does what is due.
    pub fn advance<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        if let Some(flow) = &mut self.flow {
            flow.advance(cx);
        }
    }

    /// Lets go of a flow that nothing is to be done for; when something is to be done for one that stays.
    pub fn settle<E: Engine<Packet = P>>(&mut self, cx: &Context<'_, E>) -> u64 {
        if self.flow.as_ref().is_some_and(|flow| flow.is_done()) {
            self.flow = None;
        }
        self.flow.as_mut().map_or(NEVER_NS, |flow| flow.settle(cx))
    }
}
