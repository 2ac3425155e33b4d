//! The state of a flow that is here, and the order of its packets.

use crate::message::{Epoch, FlowId, ReplicaTargets, Stamp, UnitId, Version, Watermark};

use super::{Context, State, Tombstone, replication::Replication};
use crate::trace::{FlowPlace, TimelineEvent};
use crate::unit::{
    Config, DropCause, Engine,
    pending::{PacketSlab, PendingPacket, PendingQueue},
};

/// The state that is here, the progress of packets through it, and the packets pending for it or
/// for earlier packets.
///
/// Fields are in the order of use: nearly every packet needs only the first cache line, and the
/// first packet of a flowlet the second one, too.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Packets {
    /// The state of the first ownership, if it is here.
    state: Option<State>,
    /// Time at which the last packet was processed or, before one was, the state arrived.
    seen_ns: u64,
    /// Silence after the last packet at which a timer fires; see [`Config::silence_ns`].
    silence_ns: u64,
    /// The state is here, nothing is pending, and no other epoch is known. The next packet can then
    /// be processed without a look at anything else, as nearly always.
    is_quiescent: bool,
    id: FlowId,
    replication: Replication,
    pending: PendingQueue,
}

/// Cache lines that are prefetched: for most packets, and for the first of a flowlet.
const LINES: usize = 2;

const _: () = assert!(std::mem::offset_of!(Packets, replication) == 64);
const _: () = assert!(size_of::<Packets>() == LINES * 64);

impl Packets {
    /// Creates those of a flow without state and packets.
    pub fn new(id: FlowId, config: &Config) -> Packets {
        let replication = Replication::new();
        Packets {
            state: None,
            seen_ns: 0,
            silence_ns: config.silence_ns(replication.targets()),
            is_quiescent: false,
            id,
            replication,
            pending: PendingQueue::default(),
        }
    }

    /// Prefetches the fields that most packets need, and those for the first packet of a flowlet.
    #[inline]
    pub fn prefetch(&self) {
        packet::memory::prefetch_all(std::ptr::from_ref(self).cast::<[[u8; 64]; LINES]>());
    }

    /// Covers the next packet, which the caller processes, if that is all there is to do. Returns
    /// the next deadline; `None`, and nothing has changed, if more must be done.
    #[inline]
    pub fn handle_next(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) -> Option<u64> {
        let state = self.state.filter(|_| self.is_quiescent)?;
        let is_next = state.epoch == stamp.epoch && state.mark.contiguous + 1 == stamp.seq;
        if !is_next || stamp.targets.is_some_and(|targets| targets.are_at_once()) {
            return None;
        }
        self.cover(now_ns, stamp, config);
        Some(now_ns.saturating_add(self.silence_ns.max(1)))
    }

    /// Covers the packets up to this seq, which have been processed. Returns their number; `None`
    /// if the state is not here, or more must be done.
    pub fn catch_up(&mut self, seq: u64) -> Option<u64> {
        let state = self.state.as_mut().filter(|_| self.is_quiescent)?;
        let packets = seq.checked_sub(state.mark.contiguous)?;
        state.mark = Watermark::up_to(seq);
        Some(packets)
    }

    /// Returns the pending packets, in order.
    pub fn pending<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = &'a PendingPacket<P>> {
        self.pending.all(slab)
    }

    /// Returns the state, if it is here.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        self.state
    }

    /// Returns the version of the state, if it is here.
    pub(super) fn version(&self) -> Option<Version> {
        self.state.map(|State { epoch, mark }| Version { epoch, seq: mark.contiguous })
    }

    /// Returns the state, if it is here and of this epoch.
    pub(super) fn state_of(&self, epoch: Epoch) -> Option<State> {
        self.state.filter(|state| state.epoch == epoch)
    }

    /// Returns true if the state here is that of this epoch or a later one.
    pub fn is_past(&self, epoch: Epoch) -> bool {
        self.state.is_some_and(|state| epoch <= state.epoch)
    }

    /// Returns true if the next packet is all there is to do.
    #[inline]
    pub fn is_quiescent(&self) -> bool {
        self.is_quiescent
    }

    /// Notes that there may be more to do than the next packet.
    pub(super) fn disturb(&mut self) {
        self.is_quiescent = false;
    }

    /// Notes, after an event, whether the next packet is all there is to do. Events that add an
    /// epoch or remove the state have [disturbed](Packets::disturb) the flow.
    #[inline]
    pub(super) fn settle(&mut self, is_alone: impl FnOnce() -> bool) {
        if !self.is_quiescent || self.pending.len() > 0 {
            self.is_quiescent = self.state.is_some() && self.pending.len() == 0 && is_alone();
        }
    }

    /// Returns the time of the last packet or, before one, of the state's arrival.
    pub(super) fn seen_ns(&self) -> u64 {
        self.seen_ns
    }

    /// Returns the arrival time of the oldest packet that waits for earlier ones of the state's
    /// epoch.
    pub(super) fn gap_since_ns<P>(&self, slab: &PacketSlab<P>) -> Option<u64> {
        self.pending.oldest_of(self.state?.epoch, slab)
    }

    /// Returns true if targets of replicas lack what the state has.
    pub(super) fn has_news(&self) -> bool {
        self.state.is_some_and(|state| self.replication.has_news(state.mark.contiguous))
    }

    /// Returns the queue for a packet that waits for a state. `None` if a state is here, the packet
    /// is pending, or no more may be.
    pub(super) fn queue<P>(
        &mut self,
        seq: u64,
        config: &Config,
        slab: &PacketSlab<P>,
    ) -> Option<&mut PendingQueue> {
        let is_full = self.pending.len() >= config.pending_per_flow_max;
        let may_wait = self.state.is_none() && !is_full && !self.pending.has(seq, slab);
        may_wait.then_some(&mut self.pending)
    }

    /// Returns true if the packet with this seq is pending.
    pub(super) fn is_pending<P>(&self, seq: u64, slab: &PacketSlab<P>) -> bool {
        self.pending.has(seq, slab)
    }

    /// Begins an epoch with its state.
    pub(super) fn begin<E: Engine>(&mut self, epoch: Epoch, mark: Watermark, cx: &mut Context<'_, E>) {
        self.is_quiescent = false;
        self.state = Some(State { epoch, mark });
        self.seen_ns = cx.now_ns;
        self.replication.begin(mark.contiguous);
        match cx.config.deltas {
            true => cx.replicas.forget_elsewhere(cx.flow.index, cx.copy),
            false => _ = cx.replicas.remove(cx.flow.index, &mut cx.copy),
        }
        self.drop_before(epoch, cx);
        cx.report_arrival(epoch);
    }

    /// Begins the next epoch with the state of the present one. Returns its number.
    pub(super) fn go_on<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> Option<Epoch> {
        let state = self.state.as_mut()?;
        state.epoch += 1;
        let epoch = state.epoch;
        let place = FlowPlace::new(cx.flow, epoch, state.mark.contiguous);
        cx.note(place, TimelineEvent::StateContinued {});
        self.drop_before(epoch, cx);
        cx.report_arrival(epoch);
        Some(epoch)
    }

    /// Takes the state away: it goes elsewhere, or the flow has `ended`.
    pub(super) fn take_state<E: Engine>(&mut self, ended: bool, cx: &mut Context<'_, E>) -> Option<Epoch> {
        self.is_quiescent = false;
        let state = self.state.take()?;
        cx.engine.forget(cx.now_ns, cx.flow, ended);
        let place = FlowPlace::new(cx.flow, state.epoch, state.mark.contiguous);
        let event = if ended { TimelineEvent::StateEnded {} } else { TimelineEvent::StateReleased {} };
        cx.note(place, event);
        Some(state.epoch)
    }

    /// Gives up packets up to this seq. Returns the number of the missing ones.
    pub(super) fn give_up_to(&mut self, seq: u64) -> u64 {
        self.state.as_mut().map_or(0, |state| state.mark.give_up_to(seq))
    }

    /// Gives up the gap before the first pending packet once it has waited for too long; the
    /// packets up to `released` at once: all of the epoch that come have come. Returns false if
    /// there is nothing to give up.
    pub(super) fn give_up_gap<E: Engine>(&mut self, released: Option<u64>, cx: &mut Context<'_, E>) -> bool {
        let Some(state) = &mut self.state else { return false };
        let before_first = self.pending.first_of(state.epoch, cx.slab).map(|first| first - 1);
        let oldest_ns = self.pending.oldest_of(state.epoch, cx.slab);
        let until = match (before_first, released) {
            (Some(before), _) if oldest_ns.is_some_and(|since_ns| cx.has_waited(since_ns)) => before,
            (Some(before), Some(last)) => before.min(last),
            (None, Some(last)) => last,
            (_, None) => return false,
        };
        let packets = state.mark.give_up_to(until);
        cx.give_up(packets, (state.epoch, until));
        true
    }

    /// Processes pending packets that are next.
    pub(super) fn process_pending<E: Engine>(&mut self, may_copy: bool, cx: &mut Context<'_, E>) {
        while let Some(state) = self.state
            && self.pending.first_of(state.epoch, cx.slab).is_some()
            && let Some(waiting) = self.pending.take_up_to(state.mark.contiguous + 1, cx.slab)
        {
            if state.mark.covers(waiting.stamp.seq) {
                cx.drop(DropCause::Stale, waiting.stamp, waiting.packet);
                continue;
            }
            cx.counters.pending_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(waiting.stamp, waiting.packet, may_copy, cx);
        }
    }

    /// Processes the next packet. `may_copy`: the state may be replicated.
    pub(super) fn process<E: Engine>(
        &mut self,
        stamp: Stamp,
        packet: E::Packet,
        may_copy: bool,
        cx: &mut Context<'_, E>,
    ) {
        self.cover(cx.now_ns, &stamp, cx.config);
        cx.counters.processed += 1;
        cx.process(&stamp, packet);
        if stamp.targets.is_some_and(|targets| targets.are_at_once()) && may_copy {
            self.copy_ahead(cx); // The flowlet is about to be cut by its size: no silence will come (S62).
        }
    }

    /// Covers the next packet.
    #[inline]
    fn cover(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) {
        self.state = Some(State { epoch: stamp.epoch, mark: Watermark::up_to(stamp.seq) });
        self.seen_ns = now_ns;
        // Most flowlets have the targets of the one before: comparing is cheaper than copying.
        if let Some(targets) = &stamp.targets
            && targets != self.replication.targets()
        {
            self.replication.set_targets(*targets);
            self.silence_ns = config.silence_ns(targets);
        }
    }

    /// Holds a packet that is not next (S50). At the limit on pending packets, the gap before the
    /// first one is given up; without the state, the packet is dropped, and false is returned.
    pub(super) fn hold<E: Engine>(
        &mut self,
        stamp: Stamp,
        packet: E::Packet,
        may_copy: bool,
        cx: &mut Context<'_, E>,
    ) -> bool {
        while self.pending.len() >= cx.config.pending_per_flow_max
            || cx.slab.packets() >= cx.config.pending_max
        {
            let Some(state) = self.state.as_mut().filter(|state| state.epoch == stamp.epoch) else {
                cx.drop(DropCause::PendingFull, stamp, packet);
                return false;
            };
            let first =
                self.pending.first_of(stamp.epoch, cx.slab).map_or(stamp.seq, |first| first.min(stamp.seq));
            let packets = state.mark.give_up_to(first - 1);
            cx.give_up(packets, (state.epoch, first - 1));
            if first == stamp.seq {
                self.process(stamp, packet, may_copy, cx);
                return true;
            }
            self.process_pending(may_copy, cx);
            if self.state.is_some_and(|state| state.mark.contiguous + 1 == stamp.seq) {
                self.process(stamp, packet, may_copy, cx);
                return true;
            }
        }
        cx.counters.pending += 1;
        self.pending.add(PendingPacket { stamp, packet, since_ns: cx.now_ns }, cx.slab);
        cx.note_packet(&stamp, TimelineEvent::Pending {});
        true
    }

    /// Drops pending packets of earlier epochs: the state covers them.
    pub(super) fn drop_before<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        while let Some(waiting) = self.pending.take_before(epoch, cx.slab) {
            cx.drop(DropCause::Stale, waiting.stamp, waiting.packet);
        }
    }

    /// Drops all pending packets: the flow has ended.
    pub(super) fn drop_all<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.is_quiescent = false;
        while let Some(waiting) = self.pending.take(cx.slab) {
            cx.drop(DropCause::FlowEnded, waiting.stamp, waiting.packet);
        }
    }

    /// Forwards pending packets of earlier epochs to the owner that a tombstone names.
    pub(super) fn forward_before<E: Engine>(
        &mut self,
        epoch: Epoch,
        to: &Tombstone,
        cx: &mut Context<'_, E>,
    ) {
        while let Some(waiting) = self.pending.take_before(epoch, cx.slab) {
            to.forward(waiting.stamp, waiting.packet, cx);
        }
    }

    /// Sends replicas of a recovered state to these units.
    pub(super) fn protect<E: Engine>(
        &mut self,
        targets: ReplicaTargets,
        may_copy: bool,
        cx: &mut Context<'_, E>,
    ) {
        self.replication.set_targets(targets);
        self.silence_ns = cx.config.silence_ns(&targets);
        if may_copy && targets != ReplicaTargets::NONE {
            self.copy_ahead(cx);
        }
    }

    /// Sends replicas of the state, if it is here, to their targets.
    pub(super) fn copy_ahead<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        if let Some(state) = self.state {
            self.replication.copy_ahead(state, cx);
        }
    }

    /// Sends a replica of the state, if it is here, to the unit that is about to be the owner.
    pub fn copy_to<E: Engine>(&mut self, to: UnitId, cx: &mut Context<'_, E>) {
        if let Some(state) = self.state {
            self.replication.copy_to(to, state, cx);
        }
    }

    /// Returns what determines the unit's behaviour, to be hashed.
    pub(super) fn summary(&self) -> impl std::hash::Hash + '_ {
        (self.id, self.state, self.seen_ns, self.pending.len(), self.replication.summary())
    }
}
