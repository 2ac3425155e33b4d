//! One flow at one unit.

mod handover;
mod ownerships;
mod packets;
mod refusal;
mod replication;

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use crate::message::{Epoch, FlowId, FlowRecord, FromPeer, RefuseReason, Stamp, Targets, UnitId, Watermark};

use crate::unit::{
    Config, DropCause, Engine,
    context::Context,
    flow_entry::Tombstone,
    ownership::{Ownership, StateSource},
    pending::{PacketSlab, PendingPacket, PendingQueue},
    timers::NEVER_NS,
};

/// One flow at one unit: the epochs that the unit is the owner of and has not done with, the state
/// of the first of them if it is here, and the packets that wait.
///
/// In the order of what is needed most often: nearly every packet needs the first cache line only,
/// and the first one of a flowlet the second as well.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// If there is one, it is that of the first ownership.
    state: Option<State>,
    /// When the last packet was processed, or else the state came.
    seen_ns: u64,
    /// After so much silence behind a packet something is due; as [`Config::silence_ns`] says.
    silence_ns: u64,
    /// The state is here, nothing is pending, and no other epoch is known of: the next packet can be
    /// processed, and there is nothing else to do. So it is nearly always, and then the rest need
    /// not be looked at.
    is_quiescent: bool,
    id: FlowId,
    /// The seq that the last copy covers.
    copied: u64,
    /// Where a copy is to go: what the last packet says (S54).
    targets: Targets,
    /// In the order of their epochs. Few flows ever have more than one at a time.
    ownerships: VecDeque<Ownership>,
    pending: PendingQueue,
    /// When the flow's end was proposed last.
    proposed_ns: Option<u64>,
    /// When the state of the first ownership was asked for last.
    asked: Option<PendingPull>,
    /// Nothing is processed any more since then: it ends once its last owner's state is here.
    over_since_ns: Option<u64>,
    /// Another flow has the index since then.
    gave_way_ns: Option<u64>,
    /// The epoch whose state ended here.
    ended: Option<Epoch>,
}

/// Memory of flows that a unit has nothing to do with any more, for those that it gets: they come
/// and go all the time.
#[derive(Clone, Debug, Default)]
#[allow(clippy::vec_box, reason = "slots have their flows in boxes, and get these as they are")]
pub(crate) struct FlowPool(Vec<Box<Flow>>);

/// Flows of which the memory is kept.
const SPARE_MAX: usize = 16;

impl FlowPool {
    /// A flow that nothing is known of but whether it is over, and whether another has its index.
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

    /// The unit has nothing to do with this flow any more: it has no ownerships.
    pub fn take_back(&mut self, flow: Box<Flow>) {
        debug_assert!(flow.is_done(), "the flow is somebody's");
        if self.0.len() < SPARE_MAX {
            self.0.push(flow);
        }
    }
}

/// Cache lines of a flow that are brought ahead: what most packets need, and what the first one of
/// a flowlet does.
const LINES: usize = 2;

const _: () = assert!(std::mem::offset_of!(Flow, copied) == 64);

/// The state that is here.
#[derive(Clone, Copy, Debug, Hash)]
struct State {
    epoch: Epoch,
    /// Always whole: packets are processed in order, and what is given up counts as covered (DESIGN
    /// 3.4).
    mark: Watermark,
}

/// A state was asked for.
#[derive(Clone, Copy, Debug, Hash)]
struct PendingPull {
    /// Which.
    epoch: Epoch,
    /// When last.
    at_ns: u64,
    /// How often before.
    times: u32,
}

/// No more epochs of a flow are remembered.
pub(crate) struct Unacceptable;

impl Flow {
    /// One that nothing is known of but whether it is over, and whether another has its index; with
    /// memory for its ownerships.
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
            targets: Targets::NONE,
            silence_ns: config.silence_ns(&Targets::NONE),
            seen_ns: 0,
            copied: 0,
            proposed_ns: None,
            asked: None,
            over_since_ns,
            gave_way_ns,
            ended: None,
            is_quiescent: false,
        }
    }

    /// What most packets need of it, and the first one of a flowlet, is on its way to the cache.
    #[inline]
    pub fn prefetch(&self) {
        packet::memory::prefetch_all(std::ptr::from_ref(self).cast::<[[u8; 64]; LINES]>());
    }

    /// Whether the unit has nothing to do with the flow any more.
    pub fn is_done(&self) -> bool {
        self.ownerships.is_empty()
    }

    /// Whether nothing is processed any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over_since_ns.is_some()
    }

    /// The epoch whose state ended here, if it did.
    pub fn ended(&self) -> Option<Epoch> {
        self.ended
    }

    /// Whether no state is here.
    pub fn waits_for_state(&self) -> bool {
        self.state.is_none()
    }

    /// Whether the state here is this epoch's, or a later one's.
    pub fn is_past(&self, epoch: Epoch) -> bool {
        self.state.is_some_and(|state| epoch <= state.epoch)
    }

    /// Whether the state that is here, or one that is awaited, covers this seq.
    pub fn covers(&self, seq: u64) -> bool {
        self.state.is_some_and(|state| state.mark.covers(seq))
            || self.ownerships.iter().any(|ownership| ownership.starts_at_or_behind(seq))
    }

    /// Whose the state is that is here and has not been released, and what it covers.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        let is_owner = self.is_quiescent || self.ownerships.front()?.next.is_none();
        self.state.filter(|_| is_owner).map(|state| (state.epoch, state.mark))
    }

    /// Whether the state is here, and stays.
    pub fn is_settled(&self) -> bool {
        self.ownerships.len() == 1 && self.owned().is_some() && !self.is_over()
    }

    /// The next packet is here, the caller processes it, and there is nothing else to do: from when
    /// on something may be due. None: it is not so, and nothing has changed.
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

    /// The packets up to this seq have been processed, too, and there was nothing else to do: how
    /// many; none if the state is not here, or something is under way.
    pub fn catch_up(&mut self, seq: u64) -> Option<u64> {
        let state = self.state.as_mut().filter(|_| self.is_quiescent)?;
        let packets = seq.checked_sub(state.mark.contiguous)?;
        state.mark = Watermark::up_to(seq);
        Some(packets)
    }

    /// The packets that wait, in order.
    pub fn pending<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = &'a PendingPacket<P>> {
        self.pending.all(slab)
    }

    /// Where a packet waits for a state that is not here, and of whose epoch it is known where it
    /// comes from: it has been seen to that it comes. None: more is to be seen to, or no more may
    /// wait.
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

    /// A packet of an epoch that is this unit's.
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

    /// The unit is the owner of this epoch, even if there is no packet.
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

    /// The owner of this epoch is another unit, and no packet of the one before comes any more.
    pub fn release<E: Engine>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let now_ns = cx.now_ns;
        self.succession(epoch, owner, last, cx)?.released_ns.get_or_insert(now_ns);
        self.pump(cx);
        Ok(())
    }

    /// The owner of this epoch wants the state.
    pub fn pull<E: Engine>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        again: bool,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let now_ns = cx.now_ns;
        let next = self.succession(epoch, owner, last, cx)?;
        next.asked = true;
        if again {
            next.released_ns.get_or_insert(now_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// Takes the state that an epoch begins with, even if nothing else is known of the epoch: the
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

    /// The owner of this epoch has the state. What waits for an earlier one goes there.
    pub fn leave<E: Engine>(&mut self, epoch: Epoch, owner: UnitId, cx: &mut Context<'_, E>) -> Tombstone {
        let said = self
            .ownerships
            .iter()
            .find(|ownership| epoch.checked_sub(1) == Some(ownership.epoch))
            .and_then(|ownership| ownership.next);
        let covered = self.state.map_or(0, |state| state.mark.contiguous);
        let last = said.map_or(covered, |next| next.last);
        let gone = Tombstone { epoch, owner, last, refused: None };
        self.is_quiescent = false;
        self.forget_before(epoch);
        if self.state.take().is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        while let Some(waiting) = self.pending.take_before(epoch, cx.slab) {
            gone.forward(waiting.stamp, waiting.packet, cx);
        }
        gone
    }

    /// The flow is over, and ends where its state is: here, if this unit is the last owner and has
    /// it. If the state is to come, it ends then; if another unit is to have it, it ends there.
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

    /// Another flow has the index.
    pub fn give_way<E: Engine>(&mut self, cx: &Context<'_, E>) {
        self.gave_way_ns.get_or_insert(cx.now_ns);
    }

    /// Sees how things are after something has happened. When something is to be done without a
    /// message or a packet.
    #[inline]
    pub fn settle<E: Engine>(&mut self, cx: &Context<'_, E>) -> u64 {
        // What makes another epoch known, or takes the state away, has said that it is not calm any
        // more.
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

    fn next_timeout_ns<E: Engine>(&self, cx: &Context<'_, E>) -> u64 {
        if self.is_quiescent {
            let times = [self.copy_ns(cx), self.expiry_ns(cx)];
            return times.into_iter().flatten().min().unwrap_or(NEVER_NS);
        }
        let Some((state, ownership)) = self.state.zip(self.ownerships.front()) else {
            let times = [self.ask_again_ns(cx), self.end_given_up_ns(cx)];
            return times.into_iter().flatten().min().unwrap_or(NEVER_NS);
        };
        let gap_ns = self
            .pending
            .oldest_of(state.epoch, cx.slab)
            .map(|ns| ns.saturating_add(cx.config.reorder_timeout_ns));
        let times = match ownership.next {
            Some(next) if state.mark.covers(next.last) => [self.offer_ns(cx), None, None],
            Some(next) => {
                [gap_ns, next.released_ns.map(|ns| ns.saturating_add(cx.config.reorder_timeout_ns)), None]
            }
            None => [gap_ns, self.copy_ns(cx), self.expiry_ns(cx)],
        };
        times.into_iter().flatten().min().unwrap_or(NEVER_NS)
    }

    /// Does what is due.
    pub fn handle_timeout<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.pump(cx);
        let is_due = |ns: Option<u64>| ns.is_some_and(|ns| ns <= cx.now_ns);
        if is_due(self.end_given_up_ns(cx)) {
            cx.counters.ends_given_up += 1;
            self.end(cx);
            self.ownerships.clear();
        } else if is_due(self.ask_again_ns(cx)) {
            self.ask_again(cx);
        } else if is_due(self.offer_ns(cx)) {
            self.offer(cx);
        } else if is_due(self.copy_ns(cx)) {
            self.copy_ahead(cx);
        }
        if self.expiry_ns(cx).is_some_and(|ns| ns <= cx.now_ns) {
            self.propose_end(cx);
        }
    }
}

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, &self.ownerships, self.state, self.pending.len()).hash(state);
        (self.targets.is_all(), self.targets.units()).hash(state);
        (self.seen_ns, self.copied, self.proposed_ns, self.asked, self.over_since_ns).hash(state);
        (self.gave_way_ns, self.ended).hash(state);
    }
}
