//! The unit: all its flows.

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, FlowId, FromDispatcher, FromUnit, Stamp, UnitMessage, Watermark};

use crate::unit::{
    Config, Counters, Done, DropCause, Engine, FLOWS_MAX, Outbox, TOMBSTONES_MAX,
    flow::{Context, FlowPool},
    flow_entry::FlowEntry,
    flow_table::FlowTable,
    pending::{PacketSlab, PendingPacket},
    replicas::Replicas,
    timers::Timers,
    tombstones::Tombstones,
};

/// A compute unit: decides when its engine processes each packet, and where the flows' states are.
/// The [module](crate::unit) describes it.
#[derive(Clone, Debug)]
pub struct Unit<E: Engine> {
    config: Config,
    engine: E,
    /// By [`FlowId::index`].
    table: FlowTable,
    tombstones: Tombstones,
    /// Entries of flows for which the unit has something to do.
    here: usize,
    /// Pending packets of all flows.
    slab: PacketSlab<E::Packet>,
    spare: FlowPool,
    replicas: Replicas,
    timers: Timers,
    is_draining: bool,
    counters: Counters,
}

impl<E: Engine> Unit<E> {
    /// Creates a unit without flows.
    pub fn new(config: Config, engine: E) -> Unit<E> {
        Unit {
            config,
            engine,
            table: FlowTable::default(),
            tombstones: Tombstones::default(),
            here: 0,
            slab: PacketSlab::default(),
            spare: FlowPool::default(),
            replicas: Replicas::default(),
            timers: Timers::default(),
            is_draining: false,
            counters: Counters::default(),
        }
    }

    /// Forgets all flows and pending packets after a failure that left them in an unknown state.
    /// The engine, which has forgotten its own part, and the counters stay.
    pub fn reset(&mut self) {
        (self.table, self.tombstones, self.here) = (FlowTable::default(), Tombstones::default(), 0);
        (self.slab, self.spare) = (PacketSlab::default(), FlowPool::default());
        (self.replicas, self.timers) = (Replicas::default(), Timers::default());
    }

    /// First pass over packets to come: prefetches the position of the entry with this index.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        self.table.prefetch(index);
    }

    /// Second pass, worth it for many packets: prefetches the entry.
    #[inline]
    pub fn prefetch_entry(&self, index: u32) {
        self.table.prefetch_entry(index);
    }

    /// Last pass: prefetches the flow.
    #[inline]
    pub fn prefetch_flow(&self, index: u32) {
        if let Some(entry) = self.table.get(index) {
            entry.prefetch();
        }
    }

    /// Handles a packet from the dispatcher, or one that a unit forwarded ([`Outbox::forwarded`]).
    /// Packets that were pending for it are processed after it, in the order of their seqs.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        stamp: Stamp,
        packet: E::Packet,
        out: &mut Outbox<E::Packet>,
    ) {
        if let Err(packet) = self.handle_next_packet(now_ns, &stamp, packet) {
            self.handle_packet_slow(now_ns, stamp, packet, out);
        }
    }

    /// Processes a packet if it is the next of a flow whose state is here, and that is all there is
    /// to do, as nearly always. Returns the next deadline of the flow if it falls silent;
    /// `u64::MAX` if there is none.
    ///
    /// # Errors
    ///
    /// The packet, and nothing has changed, if more must be done: it is one for
    /// [`handle_packet`](Unit::handle_packet).
    #[inline(always)]
    pub fn handle_next_packet(
        &mut self,
        now_ns: u64,
        stamp: &Stamp,
        packet: E::Packet,
    ) -> Result<u64, E::Packet> {
        let id = stamp.flow;
        let Some(entry) = self.table.find_mut(id.index).filter(|entry| entry.is_of(id)) else {
            return Err(packet);
        };
        let Some(deadline_ns) = entry.handle_next_packet(now_ns, stamp, &self.config) else {
            return Err(packet);
        };
        self.counters.processed += 1;
        self.engine.process(now_ns, id, stamp.seq, packet);
        self.timers.bring_forward(id, &mut entry.armed_ns, deadline_ns);
        Ok(deadline_ns)
    }

    /// Covers the packets up to this seq, which were given to the engine directly. Allowed within a
    /// flowlet after a packet [returned](Unit::handle_next_packet) no deadline, if the unit is
    /// notified before anything else happens to the flow. Returns false, and nothing has changed,
    /// if the state is not here.
    pub fn catch_up(&mut self, flow: FlowId, seq: u64) -> bool {
        let entry = self.table.find_mut(flow.index).filter(|entry| entry.is_of(flow));
        let caught_up = entry.and_then(|entry| entry.catch_up(seq));
        self.counters.processed += caught_up.unwrap_or(0);
        caught_up.is_some()
    }

    /// Handles a packet that is not simply the next one of its flow. Most such packets wait for the
    /// state, as earlier ones do.
    #[inline(never)]
    fn handle_packet_slow(
        &mut self,
        now_ns: u64,
        stamp: Stamp,
        packet: E::Packet,
        out: &mut Outbox<E::Packet>,
    ) {
        if self.slab.packets() < self.config.pending_max
            && let Some(entry) = self.table.find_mut(stamp.flow.index).filter(|entry| entry.is_of(stamp.flow))
            && let Some(pending) = entry.queue_of(&stamp, &self.config, &self.slab)
        {
            self.counters.pending += 1;
            return pending.add(PendingPacket { stamp, packet, since_ns: now_ns }, &mut self.slab);
        }
        if stamp.flow.index >= FLOWS_MAX || stamp.seq == 0 || stamp.epoch == 0 {
            self.counters.drop(DropCause::Refused);
            out.dropped.push((DropCause::Refused, stamp, packet));
            return;
        }
        self.at(now_ns, stamp.flow, out, |entry, cx| entry.handle_packet(stamp, packet, cx));
    }

    /// Handles a message from the dispatcher or from another unit.
    pub fn handle_message(&mut self, now_ns: u64, message: UnitMessage, out: &mut Outbox<E::Packet>) {
        if message == UnitMessage::FromDispatcher(FromDispatcher::Drain) {
            return self.drain(out);
        }
        let is_own = matches!(message, UnitMessage::FromPeer(from, _) if from == self.config.id);
        let Some(flow) = message.flow().filter(|flow| !is_own && flow.index < FLOWS_MAX) else {
            self.counters.messages_refused += 1;
            return;
        };
        self.at(now_ns, flow, out, |entry, cx| match message {
            UnitMessage::FromDispatcher(message) => entry.handle_dispatcher_message(flow, message, cx),
            UnitMessage::FromPeer(from, message) => entry.handle_peer_message(flow, from, message, cx),
        });
    }

    /// Handles the timers that have expired: see [`UnitTimer`](crate::timer::UnitTimer).
    pub fn handle_timeout(&mut self, now_ns: u64, out: &mut Outbox<E::Packet>) {
        while let Some(flow) = self.timers.take_expired(now_ns) {
            self.at(now_ns, flow, out, |entry, cx| {
                entry.armed_ns = u64::MAX;
                entry.handle_timeout(cx);
            });
        }
    }

    /// Lets the engine process the packets that it has accepted, and releases their outcomes.
    pub fn flush(&mut self, release: impl FnMut(Done<E::Packet, E::Effects>)) {
        self.engine.flush(release);
    }

    /// Proposes a flow's end to the dispatcher at once, if this unit is the owner: the engine has
    /// nothing of it any more.
    pub fn propose_end(&mut self, now_ns: u64, flow: FlowId, out: &mut Outbox<E::Packet>) {
        if self.table.get(flow.index).is_some_and(|entry| entry.is_of(flow)) {
            self.at(now_ns, flow, out, |entry, cx| entry.propose_end(cx));
        }
    }

    /// Returns the earliest deadline, for [`handle_timeout`](Unit::handle_timeout); `u64::MAX` if
    /// there is none. There may be nothing to do then.
    pub fn next_timeout_ns(&self) -> u64 {
        self.timers.next_timeout_ns()
    }

    /// Returns the epoch in which this unit owns a flow, and the packets that its state covers;
    /// `None` if the state is not here, or the next owner is known.
    pub fn owned(&self, flow: FlowId) -> Option<(Epoch, Watermark)> {
        self.table.get(flow.index).filter(|entry| entry.is_of(flow))?.owned()
    }

    /// Returns the number of flows that the unit owns, will own, or still has the states of.
    pub fn flows(&self) -> usize {
        self.here
    }

    /// Returns true if all states that should be here are here to stay. Looks at all flows.
    pub fn is_settled(&self) -> bool {
        self.table.all().chain(self.tombstones.all()).all(FlowEntry::is_settled)
    }

    /// Returns the number of pending packets.
    pub fn pending(&self) -> usize {
        self.slab.packets()
    }

    /// Returns the bytes of replicas and of base versions of deltas.
    pub fn replica_bytes(&self) -> usize {
        self.replicas.bytes()
    }

    /// Returns the engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the engine, to be changed. The unit's flows must not be removed.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the engine.
    pub fn into_engine(self) -> E {
        self.engine
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reports once when no flow is left, now or later. A report for each request at most lets the
    /// dispatcher distinguish those of a drain from which it has resumed the unit.
    fn drain(&mut self, out: &mut Outbox<E::Packet>) {
        self.is_draining = self.here > 0;
        if !self.is_draining {
            out.to_dispatcher.push(FromUnit::Drained);
        }
    }

    /// Lets `act` change a flow, then updates timers and the unit's count of flows.
    fn at(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut FlowEntry, &mut Context<'_, E>),
    ) {
        match self.table.get_mut(id.index).is_of(id) {
            true => self.act(now_ns, id, out, act),
            false => self.at_another(now_ns, id, out, act),
        }
    }

    /// The same for a flow that does not have the entry of its index.
    #[cold]
    fn at_another(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut FlowEntry, &mut Context<'_, E>),
    ) {
        let before = self.table.get_mut(id.index).id(id.index);
        if id.generation < before.generation {
            self.act(now_ns, id, out, act);
            return self.tombstones.tidy(id);
        }
        self.act(now_ns, before, out, |entry, cx| entry.give_way(before.index, cx));
        let entry = std::mem::replace(self.table.get_mut(id.index), FlowEntry::new(id.generation));
        if entry.is_worth_keeping() {
            self.counters.tombstones_forgotten += self.tombstones.add(before, entry, TOMBSTONES_MAX);
        }
        self.act(now_ns, id, out, act);
    }

    fn act(
        &mut self,
        now_ns: u64,
        id: FlowId,
        out: &mut Outbox<E::Packet>,
        act: impl FnOnce(&mut FlowEntry, &mut Context<'_, E>),
    ) {
        let present = self.table.get_mut(id.index);
        let entry = if present.is_of(id) { present } else { self.tombstones.flow(id) };
        let was_here = entry.is_here();
        let mut cx = Context {
            now_ns,
            flow: id,
            config: &self.config,
            engine: &mut self.engine,
            counters: &mut self.counters,
            replicas: &mut self.replicas,
            copy: entry.copy,
            slab: &mut self.slab,
            spare: &mut self.spare,
            out,
        };
        act(entry, &mut cx);
        entry.copy = cx.copy;
        let deadline_ns = entry.settle(&mut cx).max(now_ns.saturating_add(1));
        self.timers.update(id, &mut entry.armed_ns, deadline_ns);
        match (was_here, entry.is_here()) {
            (false, true) => self.here += 1,
            (true, false) => {
                self.here -= 1;
                if self.is_draining && self.here == 0 {
                    self.is_draining = false;
                    out.to_dispatcher.push(FromUnit::Drained);
                }
            }
            _ => {}
        }
    }
}

/// Covers everything that determines the unit's behaviour; not the counters.
impl<E: Engine + Hash> Hash for Unit<E>
where
    E::Packet: Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        (
            self.config,
            &self.engine,
            &self.table,
            &self.tombstones,
            &self.replicas,
            &self.timers,
            self.is_draining,
        )
            .hash(state);
        let pending =
            self.table.all().chain(self.tombstones.all()).flat_map(|entry| entry.pending(&self.slab));
        pending.for_each(|waiting| waiting.hash(state));
    }
}
