//! The unit: all its flows.

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, FlowId, Message, Stamp, UnitId, Watermark};

use crate::unit::{
    Config, Counters, Dropped, Engine, Outbox, PAST_MAX, SLOTS_MAX,
    context::Context,
    flow::Spare,
    held::{Hall, Waiting},
    past::Past,
    replicas::Replicas,
    slot::Slot,
    slots::Slots,
    timers::Timers,
};

/// A compute unit: decides when its engine gets which packet, and where the flows' states are. See
/// the crate.
#[derive(Clone, Debug)]
pub struct Unit<E: Engine> {
    config: Config,
    engine: E,
    /// By [`FlowId::slot`].
    slots: Slots,
    past: Past,
    /// Slots whose flows the unit has anything to do with.
    here: usize,
    /// Where packets of all flows wait.
    hall: Hall<E::Packet>,
    spare: Spare,
    replicas: Replicas,
    timers: Timers,
    is_draining: bool,
    counters: Counters,
}

impl<E: Engine> Unit<E> {
    /// One that has no flows.
    pub fn new(config: Config, engine: E) -> Unit<E> {
        Unit {
            config,
            engine,
            slots: Slots::default(),
            past: Past::default(),
            here: 0,
            hall: Hall::default(),
            spare: Spare::default(),
            replicas: Replicas::default(),
            timers: Timers::default(),
            is_draining: false,
            counters: Counters::default(),
        }
    }

    /// Forgets all flows and all packets that wait: nobody knows in which condition they are. The
    /// engine, which has forgotten its own part, and what was counted stay.
    pub fn start_over(&mut self) {
        (self.slots, self.past, self.here) = (Slots::default(), Past::default(), 0);
        (self.hall, self.spare) = (Hall::default(), Spare::default());
        (self.replicas, self.timers) = (Replicas::default(), Timers::default());
    }

    /// First pass over packets that will come: what the unit knows of the flow in this slot is on
    /// its way to the cache.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        self.slots.prefetch(slot);
    }

    /// Second pass, if there are so many packets that it pays: so is the slot.
    #[inline]
    pub fn prefetch_slot(&self, slot: u32) {
        self.slots.prefetch_slot(slot);
    }

    /// Last pass: so is the flow itself.
    #[inline]
    pub fn prefetch_flow(&self, slot: u32) {
        if let Some(slot) = self.slots.get(slot) {
            slot.prefetch();
        }
    }

    /// A packet, from the router, or sent on by a unit ([`Outbox::forwarded`]). It may make several
    /// be processed: those that waited for it, too, in the order of their clocks.
    #[inline]
    pub fn packet(&mut self, now_ns: u64, stamp: Stamp, packet: E::Packet, out: &mut Outbox<E::Packet>) {
        if let Err(packet) = self.pass(now_ns, &stamp, packet) {
            self.packet_aside(now_ns, stamp, packet, out);
        }
    }

    /// The same for the next packet of a flow whose state is here, and of which nothing else is
    /// under way, as nearly always: it is processed, and that is all that happens. From when on
    /// something is due if nothing else comes; `u64::MAX`: nothing ever is.
    ///
    /// # Errors
    /// The packet, and nothing has changed, if it is not such a one: it is one for
    /// [`packet`](Unit::packet).
    #[inline(always)]
    pub fn pass(&mut self, now_ns: u64, stamp: &Stamp, packet: E::Packet) -> Result<u64, E::Packet> {
        let id = stamp.flow;
        let Some(slot) = self.slots.find_mut(id.slot).filter(|slot| slot.is_of(id)) else {
            return Err(packet);
        };
        let Some(due_ns) = slot.pass(now_ns, stamp, &self.config) else {
            return Err(packet);
        };
        self.counters.processed += 1;
        self.engine.process(now_ns, id, packet);
        self.timers.bring_forward(id, &mut slot.armed_ns, due_ns);
        Ok(due_ns)
    }

    /// Packets up to this clock, of the same flowlet as one that [passed](Unit::pass) and of which
    /// nothing is ever due, were given to the engine without the unit, which need not even look at
    /// the flow: it only has to hear of them all before anything else happens to the flow. Then
    /// they count. False, and nothing has changed, if its state is not here.
    pub fn catch_up(&mut self, flow: FlowId, clock: u64) -> bool {
        let slot = self.slots.find_mut(flow.slot).filter(|slot| slot.is_of(flow));
        let caught_up = slot.and_then(|slot| slot.catch_up(clock));
        self.counters.processed += caught_up.unwrap_or(0);
        caught_up.is_some()
    }

    /// A packet that is not just the next one of its flow. Most of them wait for its state, as
    /// others do that came before.
    #[inline(never)]
    fn packet_aside(&mut self, now_ns: u64, stamp: Stamp, packet: E::Packet, out: &mut Outbox<E::Packet>) {
        if self.hall.packets() < self.config.held_max
            && let Some(slot) = self.slots.find_mut(stamp.flow.slot).filter(|slot| slot.is_of(stamp.flow))
            && let Some(held) = slot.queue_of(&stamp, &self.config, &self.hall)
        {
            self.counters.held += 1;
            return held.add(Waiting { stamp, packet, since_ns: now_ns }, &mut self.hall);
        }
        if stamp.flow.slot >= SLOTS_MAX || stamp.clock == 0 || stamp.epoch == 0 {
            self.counters.drop(Dropped::Refused);
            out.dropped.push((Dropped::Refused, stamp, packet));
            return;
        }
        self.at(now_ns, stamp.flow, out, |slot, cx| slot.packet(stamp, packet, cx));
    }

    /// A message, from the router (`from`: none) or from a unit.
    pub fn receive(
        &mut self,
        now_ns: u64,
        from: Option<UnitId>,
        message: Message,
        out: &mut Outbox<E::Packet>,
    ) {
        let is_for_us = match (&message, from) {
            (Message::Drain, None) => return self.drain(out),
            (Message::Release { .. } | Message::Adopt { .. } | Message::End { .. }, None) => true,
            (
                Message::Pull { .. }
                | Message::State { .. }
                | Message::Taken { .. }
                | Message::Replica { .. }
                | Message::Changes { .. }
                | Message::Lacking { .. }
                | Message::End { .. },
                Some(from),
            ) => from != self.config.id,
            _ => false,
        };
        let Some(flow) = message.flow().filter(|flow| is_for_us && flow.slot < SLOTS_MAX) else {
            self.counters.messages_refused += 1;
            return;
        };
        self.at(now_ns, flow, out, |slot, cx| slot.receive(flow, from, message, cx));
    }

    /// Does what is due: copies the states of flows that are silent ahead (S51), gives up what did
    /// not come in time, offers states that nobody asked for, asks and answers once more where
    /// nothing came back, and proposes ends.
    pub fn advance(&mut self, now_ns: u64, out: &mut Outbox<E::Packet>) {
        while let Some(flow) = self.timers.take_due(now_ns) {
            self.at(now_ns, flow, out, |slot, cx| {
                slot.armed_ns = u64::MAX;
                slot.advance(cx);
            });
        }
    }

    /// The engine has nothing of the flow any more: its end is proposed to the router at once, if
    /// this unit is its owner.
    pub fn propose_end(&mut self, now_ns: u64, flow: FlowId, out: &mut Outbox<E::Packet>) {
        if self.slots.get(flow.slot).is_some_and(|slot| slot.is_of(flow)) {
            self.at(now_ns, flow, out, |slot, cx| slot.propose_end(cx));
        }
    }

    /// When [`advance`](Unit::advance) has something to do; `u64::MAX`: never. It may turn out to
    /// be nothing.
    pub fn due_ns(&self) -> u64 {
        self.timers.due_ns()
    }

    /// The epoch in which this unit is a flow's owner, and which packets its state covers; none if
    /// the state is not here, or if the unit has heard of the next owner.
    pub fn owned(&self, flow: FlowId) -> Option<(Epoch, Watermark)> {
        self.slots.get(flow.slot).filter(|slot| slot.is_of(flow))?.owned()
    }

    /// How many flows it owns, is to own, or still has the states of.
    pub fn flows(&self) -> usize {
        self.here
    }

    /// Whether nothing is under way: the states of all flows that are here are here, and nobody
    /// else is to get them. It looks at all.
    pub fn is_settled(&self) -> bool {
        self.slots.all().chain(self.past.all()).all(Slot::is_settled)
    }

    /// How many packets wait.
    pub fn held(&self) -> usize {
        self.hall.packets()
    }

    /// How many bytes the copies of states take: of those that others own, and of what others have
    /// of those that are owned here.
    pub fn replica_bytes(&self) -> usize {
        self.replicas.bytes()
    }

    /// What it runs.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// What it runs. Flows that the unit has must not be taken away.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// What it ran.
    pub fn into_engine(self) -> E {
        self.engine
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Says so once no flow is left; now, and each time that it is asked, if there is none.
    fn drain(&mut self, out: &mut Outbox<E::Packet>) {
        if self.here == 0 {
            out.to_router.push(Message::Drained);
        }
        self.is_draining = true;
    }

    /// Lets something happen to a flow, and sees to what follows for the unit.
    fn at(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut Slot, &mut Context<'_, E>),
    ) {
        match self.slots.get_mut(id.slot).is_of(id) {
            true => self.act(now_ns, id, out, act),
            false => self.at_another(now_ns, id, out, act),
        }
    }

    /// The same, if it is not the flow that has the slot.
    #[cold]
    fn at_another(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut Slot, &mut Context<'_, E>),
    ) {
        let before = self.slots.get_mut(id.slot).id(id.slot);
        if id.generation < before.generation {
            self.act(now_ns, id, out, act);
            return self.past.tidy(id);
        }
        self.act(now_ns, before, out, |slot, cx| slot.give_way(before.slot, cx));
        let slot = std::mem::replace(self.slots.get_mut(id.slot), Slot::new(id.generation));
        if slot.is_worth_keeping() {
            self.counters.past_forgotten += self.past.add(before, slot, PAST_MAX);
        }
        self.act(now_ns, id, out, act);
    }

    fn act(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut Slot, &mut Context<'_, E>),
    ) {
        let present = self.slots.get_mut(id.slot);
        let slot = if present.is_of(id) { present } else { self.past.flow(id) };
        let was_here = slot.is_here();
        let mut cx = Context {
            now_ns,
            config: &self.config,
            engine: &mut self.engine,
            counters: &mut self.counters,
            replicas: &mut self.replicas,
            copy: slot.copy,
            hall: &mut self.hall,
            spare: &mut self.spare,
            out,
        };
        act(slot, &mut cx);
        slot.copy = cx.copy;
        let due_ns = slot.settle(&mut cx).max(now_ns.saturating_add(1));
        self.timers.update(id, &mut slot.armed_ns, due_ns);
        match (was_here, slot.is_here()) {
            (false, true) => self.here += 1,
            (true, false) => {
                self.here -= 1;
                if self.is_draining && self.here == 0 {
                    out.to_router.push(Message::Drained);
                }
            }
            _ => {}
        }
    }
}

/// Of all that decides what the unit will do; not of what it has counted.
impl<E: Engine + Hash> Hash for Unit<E>
where
    E::Packet: Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.config, &self.engine, &self.slots, &self.past, &self.replicas, &self.timers, self.is_draining)
            .hash(state);
        let held = self.slots.all().chain(self.past.all()).flat_map(|slot| slot.held(&self.hall));
        held.for_each(|waiting| waiting.hash(state));
    }
}
