//! One flow at one unit.

mod context;
mod handover;
mod ownerships;
mod packets;
mod refusal;
mod replication;
mod timeouts;
mod tombstone;

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use crate::message::{
    Epoch, FlowId, FlowRecord, FromPeer, RefuseReason, ReplicaTargets, Stamp, UnitId, Version, Watermark,
};

use crate::unit::{
    Config, DropCause, Engine, Outbox,
    ownership::{Ownership, StateSource},
    pending::{PacketSlab, PendingPacket, PendingQueue},
};

pub(crate) use context::Context;
pub(crate) use tombstone::Tombstone;

/// One flow at one unit: the epochs that the unit owns and has not finished, the state of the first
/// of them if it is here, and the pending packets.
///
/// Fields are in the order of use: nearly every packet needs only the first cache line, and the
/// first packet of a flowlet the second one, too.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// The state of the first ownership, if it is here.
    state: Option<State>,
    /// Time at which the last packet was processed or, before one was, the state arrived.
    seen_ns: u64,
    /// Silence after the last packet at which a timer fires; see [`Config::silence_ns`].
    silence_ns: u64,
    /// The state is here, nothing is pending, and no other epoch is known. The next packet can then
    /// be processed without a look at the other fields, as nearly always.
    is_quiescent: bool,
    id: FlowId,
    /// The seq that the targets' last replicas cover.
    copied: u64,
    /// Targets of the next replica, as the last packet has them (S54).
    targets: ReplicaTargets,
    /// In the order of epochs. Few flows ever have more than one at a time.
    ownerships: VecDeque<Ownership>,
    pending: PendingQueue,
    /// The seq that the last replica covers, of all that were sent in this epoch.
    copied_anywhere: u64,
    /// Time of the last proposal to end the flow.
    proposed_ns: Option<u64>,
    /// The last pull of the first ownership's state.
    asked: Option<PendingPull>,
    /// Time since which nothing is processed: the flow ends once its last owner's state is here.
    over_since_ns: Option<u64>,
    /// Time at which another flow took the index.
    gave_way_ns: Option<u64>,
    /// The epoch whose state ended here.
    ended: Option<Epoch>,
    /// The epoch whose owner has the state already, before the dispatcher's release came.
    acknowledged: Option<Epoch>,
    /// The state that was sent last, and the epoch that it begins, if it may have to be sent again:
    /// the engine does not have it any more.
    sent: Option<Box<(Epoch, FlowRecord)>>,
}

/// Memory of finished flows, for new ones.
#[derive(Clone, Debug, Default)]
#[allow(clippy::vec_box, reason = "entries have their flows in boxes, and get these as they are")]
pub(crate) struct FlowPool(Vec<Box<Flow>>);

/// Limit on the flows whose memory is kept.
const SPARE_MAX: usize = 16;

impl FlowPool {
    /// Creates a flow about which nothing is known but whether it has ended, and whether another
    /// has its index.
    pub fn flow(
        &mut self,
        id: FlowId,
        over_since_ns: Option<u64>,
        gave_way_ns: Option<u64>,
        config: &Config,
    ) -> Box<Flow> {
        match self.0.pop() {
            Some(mut flow) => {
                let ownerships = std::mem::take(&mut flow.ownerships);
                *flow = Flow::new(id, over_since_ns, gave_way_ns, config, ownerships);
                flow
            }
            None => {
                let ownerships = VecDeque::with_capacity(1);
                Box::new(Flow::new(id, over_since_ns, gave_way_ns, config, ownerships))
            }
        }
    }

    /// Takes back the memory of a flow that has no ownerships.
    pub fn take_back(&mut self, flow: Box<Flow>) {
        debug_assert!(flow.is_done(), "the flow is somebody's");
        if self.0.len() < SPARE_MAX {
            self.0.push(flow);
        }
    }
}

/// Cache lines of a flow that are prefetched: for most packets, and for the first of a flowlet.
const LINES: usize = 2;

const _: () = assert!(std::mem::offset_of!(Flow, copied) == 64);

/// The state that is here.
#[derive(Clone, Copy, Debug, Hash)]
struct State {
    epoch: Epoch,
    /// Always whole: packets are processed in order, and abandoned ones count as covered (design.md
    /// 3.4).
    mark: Watermark,
}

/// A pull that was sent.
#[derive(Clone, Copy, Debug, Hash)]
struct PendingPull {
    /// The epoch that the state begins.
    epoch: Epoch,
    /// Time of the last transmission.
    at_ns: u64,
    /// Number of earlier transmissions.
    times: u32,
}

/// The limit on epochs of a flow is reached.
pub(crate) struct Unacceptable;

impl Flow {
    /// Creates a flow about which nothing is known but whether it has ended, and whether another
    /// has its index. It reuses the memory of `ownerships`.
    fn new(
        id: FlowId,
        over_since_ns: Option<u64>,
        gave_way_ns: Option<u64>,
        config: &Config,
        ownerships: VecDeque<Ownership>,
    ) -> Flow {
        Flow {
            id,
            ownerships,
            state: None,
            pending: PendingQueue::default(),
            targets: ReplicaTargets::NONE,
            silence_ns: config.silence_ns(&ReplicaTargets::NONE),
            seen_ns: 0,
            copied: 0,
            copied_anywhere: 0,
            proposed_ns: None,
            asked: None,
            over_since_ns,
            gave_way_ns,
            ended: None,
            acknowledged: None,
            sent: None,
            is_quiescent: false,
        }
    }

    /// Prefetches the fields that most packets need, and those for the first packet of a flowlet.
    #[inline]
    pub fn prefetch(&self) {
        packet::memory::prefetch_all(std::ptr::from_ref(self).cast::<[[u8; 64]; LINES]>());
    }

    /// Returns true if the unit has nothing left to do for the flow.
    pub fn is_done(&self) -> bool {
        self.ownerships.is_empty()
    }

    /// Returns true if nothing is processed any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over_since_ns.is_some()
    }

    /// Returns the epoch whose state ended here.
    pub fn ended(&self) -> Option<Epoch> {
        self.ended
    }

    /// Returns true if the state that this epoch begins with has not come.
    pub fn waits_for(&self, epoch: Epoch) -> bool {
        !self.is_past(epoch) && self.find(epoch).is_some()
    }

    /// Gives up this epoch and all later ones: no state will come for them. Owners that have asked
    /// for it are answered. Returns the last epoch.
    pub fn lose<P>(&mut self, epoch: Epoch, out: &mut Outbox<P>) -> Epoch {
        let last = self.ownerships.back().map_or(epoch, |last| last.epoch);
        while let Some(lost) = self.ownerships.pop_back_if(|ownership| ownership.epoch >= epoch) {
            if let Some(next) = lost.next.filter(|next| next.asked) {
                let end = FromPeer::End { flow: self.id, epoch: lost.epoch.saturating_add(1) };
                out.to_units.push((next.owner, end));
            }
        }
        last
    }

    /// Returns true if the state here is that of this epoch or a later one.
    pub fn is_past(&self, epoch: Epoch) -> bool {
        self.state.is_some_and(|state| epoch <= state.epoch)
    }

    /// Returns true if the state here, or an awaited one, covers this seq.
    pub fn covers(&self, seq: u64) -> bool {
        self.state.is_some_and(|state| state.mark.covers(seq))
            || self.ownerships.iter().any(|ownership| ownership.starts_at_or_behind(seq))
    }

    /// Returns the epoch and coverage of the state, if it is here and not released.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        let is_owner = self.is_quiescent || self.ownerships.front()?.next.is_none();
        self.state.filter(|_| is_owner).map(|state| (state.epoch, state.mark))
    }

    /// Returns true if the state is here to stay.
    pub fn is_settled(&self) -> bool {
        self.ownerships.len() == 1 && self.owned().is_some() && !self.is_over()
    }

    /// Covers the next packet, which the caller processes, if that is all there is to do. Returns
    /// the next deadline; `None`, and nothing has changed, if more must be done.
    #[inline]
    pub fn handle_next_packet(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) -> Option<u64> {
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

    /// Returns the queue for a packet of an epoch whose state is requested already. `None` if more
    /// must be done, or no more packets may be pending.
    pub fn queue_of<P>(
        &mut self,
        stamp: &Stamp,
        config: &Config,
        slab: &PacketSlab<P>,
    ) -> Option<&mut PendingQueue> {
        if self.state.is_some() || self.is_over() || self.pending.len() >= config.pending_per_flow_max {
            return None;
        }
        let ownership = self.find(stamp.epoch).filter(|ownership| ownership.start != StateSource::Unknown)?;
        (ownership.may_have(stamp.seq) && !self.pending.has(stamp.seq, slab)).then_some(&mut self.pending)
    }

    /// Handles a packet of an epoch that is this unit's.
    pub fn handle_packet<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        if self.state.is_none_or(|state| state.epoch != stamp.epoch) {
            if self.is_past(stamp.epoch) {
                return cx.drop(DropCause::Stale, stamp, packet);
            }
            if self.learn(stamp.epoch, stamp.handover.into(), cx).is_err() {
                return cx.drop(DropCause::Refused, stamp, packet);
            }
            self.pump(cx);
        }
        let may_come = self.find(stamp.epoch).is_some_and(|ownership| ownership.may_have(stamp.seq));
        if !may_come || self.pending.has(stamp.seq, cx.slab) {
            return cx.drop(DropCause::Stale, stamp, packet);
        }
        match self.state.filter(|state| state.epoch == stamp.epoch) {
            Some(state) if state.mark.covers(stamp.seq) => cx.drop(DropCause::Stale, stamp, packet),
            Some(state) if stamp.seq == state.mark.contiguous + 1 => {
                self.process(stamp, packet, cx);
                self.pump(cx);
            }
            _ => self.hold(stamp, packet, cx),
        }
    }

    /// Makes the unit the owner of this epoch, even without a packet.
    pub fn adopt<E: Engine>(
        &mut self,
        epoch: Epoch,
        start: StateSource,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        self.learn(epoch, start, cx)?;
        self.pump(cx);
        Ok(())
    }

    /// Notes the owner of this epoch, another unit; no packet of the previous epoch follows, whose
    /// state begins at `start`.
    pub fn release<E: Engine>(
        &mut self,
        start: StateSource,
        (epoch, owner): (Epoch, UnitId),
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let now_ns = cx.now_ns;
        self.succession(epoch, owner, last, cx)?.released_ns.get_or_insert(now_ns);
        let own = epoch - 1; // At least 1: see `succession`.
        if !self.is_past(own) {
            self.learn(own, start, cx)?;
        }
        self.pump(cx);
        Ok(())
    }

    /// Handles the request of this epoch's owner for the state.
    pub fn pull<E: Engine>(
        &mut self,
        (epoch, owner): (Epoch, UnitId),
        last: u64,
        (again, has): (bool, Option<Version>),
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let now_ns = cx.now_ns;
        let has_groups = cx.config.has_groups;
        let is_own = owner == cx.id(); // It comes back from a unit that refused, and not again.
        let next = self.succession(epoch, owner, last, cx)?;
        (next.asked, next.has) = (true, has);
        // A group's packets arrive before the dispatcher's own release.
        if again && !has_groups || is_own {
            next.released_ns.get_or_insert(now_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// Accepts the state that an epoch begins with, even if nothing else is known of the epoch: the
    /// sender knows it from the dispatcher.
    ///
    /// # Errors
    ///
    /// The engine's reason if it refuses the state. Nothing has changed.
    pub fn state<E: Engine>(
        &mut self,
        epoch: Epoch,
        record: &FlowRecord,
        from: UnitId,
        cx: &mut Context<'_, E>,
    ) -> Result<(), RefuseReason> {
        self.restore(&record.bytes, cx)?;
        let mut mark = record.watermark;
        let last = match self.find(epoch).map(|ownership| ownership.start) {
            Some(StateSource::From { last, .. }) => last,
            Some(StateSource::Unknown | StateSource::New) | None => 0,
        };
        cx.counters.given_up += mark.give_up_to(last.max(mark.highest()));
        cx.counters.states_taken += 1;
        self.take(epoch, mark, cx);
        cx.out.to_units.push((from, FromPeer::StateAck { flow: self.id, epoch }));
        self.pump(cx);
        Ok(())
    }

    /// Notes that the owner of this epoch has the state, and keeps the state here until the
    /// dispatcher's release. Returns false if that has come.
    pub fn keep_until_release(&mut self, epoch: Epoch) -> bool {
        let is_state = self.state.is_some_and(|state| state.epoch < epoch);
        let before = epoch.checked_sub(1).and_then(|before| self.find(before));
        let is_released =
            before.and_then(|before| before.next).is_some_and(|next| next.released_ns.is_some());
        if !is_state || is_released {
            return false;
        }
        self.acknowledged = Some(epoch);
        true
    }

    /// Returns true if the owner of this epoch has the state already.
    pub fn is_acknowledged(&self, epoch: Epoch) -> bool {
        self.acknowledged == Some(epoch)
    }

    /// Forgets the state, which the owner of this epoch has. Packets that were pending for earlier
    /// epochs are forwarded there.
    pub fn leave<E: Engine>(&mut self, epoch: Epoch, owner: UnitId, cx: &mut Context<'_, E>) -> Tombstone {
        let said = self
            .ownerships
            .iter()
            .find(|ownership| epoch.checked_sub(1) == Some(ownership.epoch))
            .and_then(|ownership| ownership.next);
        let covered = self.state.map_or(0, |state| state.mark.contiguous);
        let last = said.map_or(covered, |next| next.last);
        let gone = Tombstone { epoch, owner, last, refused: None };
        (self.is_quiescent, self.sent) = (false, None);
        // This unit may have been taken for the owner of this epoch, too.
        self.forget_before(epoch.saturating_add(1));
        if self.state.take().is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        while let Some(waiting) = self.pending.take_before(epoch, cx.slab) {
            gone.forward(waiting.stamp, waiting.packet, cx);
        }
        self.drop_before(epoch.saturating_add(1), cx);
        self.start_at(owner, cx);
        gone
    }

    /// Asks another unit for the next state if it was to come from an epoch of this unit that has
    /// turned out to be the other's.
    fn start_at<E: Engine>(&mut self, owner: UnitId, cx: &mut Context<'_, E>) {
        if let Some(first) = self.ownerships.front_mut()
            && let StateSource::From { previous, last } = first.start
            && previous == cx.id()
        {
            first.start = StateSource::From { previous: owner, last };
            let epoch = first.epoch;
            self.ask(owner, epoch, last, cx);
        }
    }

    /// Ends the flow where its state is: here, if this unit is the last owner and has it. An
    /// awaited state ends when it arrives; one that is for another unit ends there.
    pub fn end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        if self.proposed_ns.take().is_some() {
            cx.counters.expiries_accepted += 1;
        }
        while let Some(waiting) = self.pending.take(cx.slab) {
            cx.drop(DropCause::FlowEnded, waiting.stamp, waiting.packet);
        }
        self.over_since_ns.get_or_insert(cx.now_ns);
        self.is_quiescent = false;
        self.pump(cx);
    }

    /// Notes that another flow has the index.
    pub fn give_way<E: Engine>(&mut self, cx: &Context<'_, E>) {
        self.gave_way_ns.get_or_insert(cx.now_ns);
    }

    /// Recomputes the summary of the flow after an event. Returns its next deadline.
    #[inline]
    pub fn settle<E: Engine>(&mut self, cx: &Context<'_, E>) -> u64 {
        // Events that add an epoch or remove the state have cleared the flag.
        if !self.is_quiescent || self.pending.len() > 0 {
            let is_alone = self.ownerships.len() == 1
                && self.ownerships.front().is_some_and(|first| first.next.is_none());
            self.is_quiescent =
                is_alone && self.state.is_some() && self.pending.len() == 0 && !self.is_over();
        }
        if let Some((epoch, _, _)) = self.awaited(cx)
            && self.asked.is_none_or(|asked| asked.epoch != epoch)
        {
            self.asked = Some(PendingPull { epoch, at_ns: cx.now_ns, times: 0 });
        }
        self.next_timeout_ns(cx)
    }
}

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, &self.ownerships, self.state, self.pending.len()).hash(state);
        (self.targets.is_all(), self.targets.units()).hash(state);
        (self.seen_ns, self.copied, self.copied_anywhere).hash(state);
        (self.proposed_ns, self.asked, self.over_since_ns).hash(state);
        (self.gave_way_ns, self.ended, self.acknowledged).hash(state);
    }
}
