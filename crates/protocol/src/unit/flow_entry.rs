//! An index of the dispatcher's table at one unit: its present flow.

use std::ops::Range;

use telemetry::event;

use crate::message::{
    DamagedDelta, Epoch, FlowId, FlowRecord, FromDispatcher, FromPeer, FromUnit, ReplicaTargets, Stamp,
    StateDelta, UnitId, Version, Watermark,
};

use crate::trace::{FlowPlace, TimelineEvent};
use crate::unit::{
    Config, DropCause, Engine,
    flow::{Context, Ending, Flow, Tombstone, Unacceptable},
    ownership::StateSource,
    pending::{PacketSlab, PendingPacket, PendingQueue},
    replicas::{Handle, Kept},
    timers::NEVER_NS,
};

/// Everything that a unit knows of the flow with an index, in one cache line.
#[derive(Clone, Debug, Hash)]
#[repr(align(64))]
pub(crate) struct FlowEntry {
    generation: u32,
    /// The flow of this generation has ended: its state ends where it is, or when it arrives.
    is_over: bool,
    /// Another flow has the index: the dispatcher has ended this one, and the `End` may be on its
    /// way.
    has_given_way: bool,
    /// Epochs with a state that was lost, and not recovered.
    lost: Range<Epoch>,
    /// The last epoch with a state that was here and has left.
    done: Epoch,
    /// The tombstone of the flow's last departure. It stays as long as the flow, so that no late
    /// packet or message can begin the flow again (design.md 3.3).
    gone: Option<Tombstone>,
    flow: Option<Box<Flow>>,
    /// The flow's deadline in the unit's timers.
    pub armed_ns: u64,
    /// The flow's replica.
    pub copy: Handle,
}

const _: () = assert!(size_of::<FlowEntry>() == 64);

impl Default for FlowEntry {
    fn default() -> FlowEntry {
        FlowEntry {
            generation: 0,
            is_over: false,
            has_given_way: false,
            lost: 0..0,
            done: 0,
            gone: None,
            flow: None,
            armed_ns: NEVER_NS,
            copy: 0,
        }
    }
}

impl FlowEntry {
    /// Prefetches the flow.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(flow) = &self.flow {
            flow.packets().prefetch();
        }
    }

    /// Creates the entry of a new flow.
    pub fn new(generation: u32) -> FlowEntry {
        FlowEntry { generation, ..FlowEntry::default() }
    }

    /// Creates the entry of an ended flow that has lost its index to another one. Nothing else is
    /// known of it.
    pub fn over(generation: u32) -> FlowEntry {
        FlowEntry { generation, is_over: true, has_given_way: true, ..FlowEntry::default() }
    }

    /// Returns the flow.
    pub fn id(&self, index: u32) -> FlowId {
        FlowId { index, generation: self.generation }
    }

    /// Returns true if more is known of an ended flow than its end.
    pub fn is_worth_keeping(&self) -> bool {
        self.is_here() || self.done > 0
    }

    /// Returns true if the unit has something to do for the flow.
    pub fn is_here(&self) -> bool {
        self.flow.is_some()
    }

    /// Returns true if nothing of the flow is in progress.
    pub fn is_settled(&self) -> bool {
        self.flow.as_ref().is_none_or(|flow| flow.is_settled())
    }

    /// Returns the tombstone of the flow's last departure.
    pub fn gone(&self) -> Option<Tombstone> {
        self.gone
    }

    /// Returns true if the index is this flow's.
    pub fn is_of(&self, id: FlowId) -> bool {
        self.generation == id.generation
    }

    /// Returns the epoch and coverage of the state, if it is here and not released.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        self.flow.as_ref()?.owned()
    }

    /// Ends the flow. It ends here if its state is here to stay; otherwise the state moves on, or
    /// arrives and then ends. Replicas become worthless.
    pub fn end<E: Engine>(&mut self, index: u32, cx: &mut Context<'_, E>) {
        if !self.is_over {
            cx.replicas.remove(index, &mut cx.copy);
        }
        self.is_over = true;
        if let Some(flow) = &mut self.flow {
            flow.end(cx);
        }
    }

    /// Notes that another flow has the index. This one has ended, but perhaps not here: the message
    /// that announced the other one may have overtaken the `End` and messages before it, so the
    /// state may belong to another unit by now. Replicas become worthless.
    pub fn give_way<E: Engine>(&mut self, index: u32, cx: &mut Context<'_, E>) {
        cx.replicas.remove(index, &mut cx.copy);
        self.has_given_way = true;
        if let Some(flow) = &mut self.flow {
            flow.give_way(cx);
        }
    }

    /// Notes that the state that an epoch begins with was lost with its owner, and notifies the
    /// dispatcher. A state of an earlier epoch that is here, or comes, goes where it has to.
    fn lose<E: Engine>(&mut self, id: FlowId, epoch: Epoch, cx: &mut Context<'_, E>) {
        let Some(flow) = self.flow.as_mut().filter(|flow| flow.awaits(epoch)) else {
            cx.counters.messages_stale += 1; // It answers a pull that has been answered before.
            return;
        };
        if self.is_over {
            flow.ownerships.give_up(id, epoch..Epoch::MAX, cx.out); // Nobody needs it.
            return flow.end(cx); // A state of an earlier epoch may be the last one now.
        }
        if self.lose_epoch(epoch, cx) {
            cx.out.to_dispatcher.push(FromUnit::Lost { flow: id, epoch });
        }
    }

    /// Gives up epochs with a lost state, now that they have a next owner. Epochs between them and
    /// those that were lost before count as lost, too, unless they are not finished.
    fn give_up_lost<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        while let Some(lost) = self.flow.as_mut().and_then(|flow| flow.give_up_lost(cx)) {
            let first = if self.lost.is_empty() { lost } else { self.lost.start.min(lost) };
            self.lost = first..self.lost.end.max(lost.saturating_add(1));
        }
    }

    /// Continues with a recovered state once all units have answered. Without any, the dispatcher
    /// ends the flow.
    fn finish_recovery<E: Engine>(&mut self, id: FlowId, cx: &mut Context<'_, E>) {
        let Some(flow) = &mut self.flow else { return };
        let Some(epoch) = flow.finish_recovery(cx) else { return };
        if self.lose_epoch(epoch, cx) {
            cx.out.to_dispatcher.push(FromUnit::Recovered { flow: id, epoch, lacks: None });
        }
    }

    /// Notes that the state of an epoch is lost. Returns true if the epoch stays: its next owner is
    /// not known.
    fn lose_epoch<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) -> bool {
        let Some(flow) = &mut self.flow else { return false };
        flow.lose(epoch);
        self.give_up_lost(cx);
        self.has_epoch(epoch)
    }

    /// Returns true if an epoch of this unit is not finished.
    fn has_epoch(&self, epoch: Epoch) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.ownerships.find(epoch).is_some())
    }

    /// Returns true if an epoch of this unit began with a state that is lost.
    fn has_lost(&self, epoch: Epoch) -> bool {
        self.lost.contains(&epoch) && !self.has_epoch(epoch)
    }

    /// Returns true if an epoch begins with the state of an epoch of this unit that is lost.
    fn is_lost_before(&self, epoch: Epoch) -> bool {
        epoch > 1 && self.has_lost(epoch - 1)
    }

    /// Returns the newest state here, a replica or that of an epoch before this one.
    fn state_for<E: Engine>(&self, epoch: Epoch, cx: &mut Context<'_, E>) -> Option<(Version, FlowRecord)> {
        let own = self.flow.as_ref().and_then(|flow| flow.own_state(cx));
        let own = own.filter(|(version, _)| version.epoch < epoch);
        own.into_iter().chain(cx.replica()).max_by_key(|(version, _)| *version)
    }

    /// Returns true if the epoch is the present one or finished here.
    fn is_past(&self, epoch: Epoch) -> bool {
        epoch <= self.done || self.flow.as_ref().is_some_and(|flow| flow.packets().is_past(epoch))
    }

    fn flow<E: Engine>(&mut self, id: FlowId, cx: &mut Context<'_, E>) -> &mut Flow {
        let [over_since_ns, gave_way_ns] =
            [self.is_over, self.has_given_way].map(|is_so| is_so.then_some(cx.now_ns));
        self.flow.get_or_insert_with(|| cx.spare.flow(id, Ending::new(over_since_ns, gave_way_ns), cx.config))
    }

    /// Covers the next packet, which the caller processes, if that is all there is to do. Returns
    /// the next deadline; `None`, and nothing has changed, if more must be done.
    #[inline]
    pub fn handle_next_packet(&mut self, now_ns: u64, stamp: &Stamp, config: &Config) -> Option<u64> {
        let flow = self.flow.as_mut().filter(|_| stamp.epoch > self.done)?;
        flow.packets_mut().handle_next(now_ns, stamp, config)
    }

    /// Covers the packets up to this seq. Returns their number; `None` if the state is not here, or
    /// more must be done.
    pub fn catch_up(&mut self, seq: u64) -> Option<u64> {
        self.flow.as_mut()?.packets_mut().catch_up(seq)
    }

    /// Returns the queue for a packet of an epoch if the state is requested already.
    pub fn queue_of<P>(
        &mut self,
        stamp: &Stamp,
        config: &Config,
        slab: &PacketSlab<P>,
    ) -> Option<&mut PendingQueue> {
        self.flow.as_mut().filter(|_| stamp.epoch > self.done)?.queue_of(stamp, config, slab)
    }

    /// Returns the pending packets of the flow, in order.
    pub fn pending<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = &'a PendingPacket<P>> {
        self.flow.iter().flat_map(|flow| flow.packets().pending(slab))
    }

    pub fn handle_packet<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        let is_lost = self.has_lost(stamp.epoch);
        if is_lost || self.flow.as_ref().is_some_and(|flow| flow.ownerships.is_undecided(stamp.epoch)) {
            // The earlier report may be lost.
            cx.out.to_dispatcher.push(FromUnit::Lost { flow: stamp.flow, epoch: stamp.epoch });
        }
        if self.is_over || is_lost {
            return cx.drop(DropCause::FlowEnded, stamp, packet);
        }
        match self.gone.filter(|gone| stamp.epoch <= gone.epoch) {
            None => self.flow(stamp.flow, cx).handle_packet(stamp, packet, cx),
            Some(gone) if gone.refused.is_some() && stamp.epoch == gone.epoch => {
                gone.forward(stamp, packet, cx);
            }
            Some(_) if self.flow.as_ref().is_some_and(|flow| flow.covers(stamp.seq)) => {
                cx.drop(DropCause::Stale, stamp, packet);
            }
            Some(gone) if stamp.epoch < gone.epoch => gone.forward(stamp, packet, cx),
            Some(_) => cx.drop(DropCause::Stale, stamp, packet),
        }
    }

    /// Handles a message from the dispatcher about this flow.
    pub fn handle_dispatcher_message<E: Engine>(
        &mut self,
        id: FlowId,
        message: FromDispatcher,
        cx: &mut Context<'_, E>,
    ) {
        let outcome = match message {
            FromDispatcher::End { .. } => {
                self.end(id.index, cx);
                Ok(())
            }
            FromDispatcher::Adopt { epoch, .. } | FromDispatcher::Recover { epoch, .. }
                if self.is_over || self.is_past(epoch) =>
            {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromDispatcher::Recover { epoch, .. }
                if self.flow.as_ref().is_some_and(|flow| flow.recovery.is_for(epoch)) =>
            {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromDispatcher::Recover { epoch, last, holders, targets, .. } => {
                let outcome = self.flow(id, cx).recover((epoch, last), &holders, &targets, cx);
                self.finish_recovery(id, cx);
                outcome
            }
            FromDispatcher::Release { epoch, .. }
                if self.is_past(epoch)
                    || self.is_lost_before(epoch)
                    || self.is_over && self.flow.is_none() =>
            {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromDispatcher::Release { epoch, owner, last, start, .. } => match self.holder_before(epoch) {
                Some(holder) => {
                    let pull = FromPeer::Pull { flow: id, epoch, owner, last, again: true, has: None };
                    cx.out.to_units.push((holder, pull));
                    Ok(())
                }
                None => {
                    let flow = self.flow(id, cx);
                    let outcome = flow.release(start.into(), (epoch, owner), last, cx);
                    if flow.sent.acknowledged() == Some(epoch) {
                        self.gone = Some(flow.leave(epoch, owner, cx));
                        self.done = epoch;
                    }
                    self.give_up_lost(cx);
                    outcome
                }
            },
            FromDispatcher::Adopt { epoch, .. }
                if self.flow.as_ref().is_some_and(|flow| flow.ownerships.is_undecided(epoch)) =>
            {
                cx.out.to_dispatcher.push(FromUnit::Lost { flow: id, epoch });
                Ok(())
            }
            FromDispatcher::Adopt { epoch, previous, last, .. } => {
                self.flow(id, cx).adopt(epoch, StateSource::From { previous, last }, cx)
            }
            FromDispatcher::Replicate { epoch, to, .. } => {
                let is_owner = |flow: &&mut Box<Flow>| flow.owned().is_some_and(|(own, _)| own == epoch);
                match self.flow.as_mut().filter(is_owner) {
                    Some(flow) if flow.ending.may_be_copied() && to != cx.id() => {
                        flow.packets_mut().copy_to(to, cx);
                    }
                    _ => cx.counters.messages_stale += 1,
                }
                Ok(())
            }
            FromDispatcher::Drain => Err(Unacceptable), // It concerns the unit.
        };
        if outcome.is_err() {
            cx.counters.messages_refused += 1;
        }
    }

    /// Handles a message from another unit about this flow.
    pub fn handle_peer_message<E: Engine>(
        &mut self,
        id: FlowId,
        from: UnitId,
        message: FromPeer,
        cx: &mut Context<'_, E>,
    ) {
        let message = match message {
            FromPeer::Changes { epoch, watermark, delta, .. } if !self.is_past(epoch) => {
                match self.whole(id.index, epoch, (watermark, &delta), cx) {
                    Some(record) => FromPeer::State { flow: id, epoch, record },
                    None => {
                        cx.counters.deltas_without_base += 1;
                        return self.flow.iter_mut().for_each(|flow| flow.pull_whole(epoch, cx));
                    }
                }
            }
            message => message,
        };
        let outcome = match message {
            FromPeer::End { epoch, .. } => {
                self.lose(id, epoch, cx);
                Ok(())
            }
            FromPeer::Replicate { .. } | FromPeer::Delta { .. } | FromPeer::NeedFull { .. }
                if self.is_over =>
            {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromPeer::Replicate { epoch, record, is_reported, .. } => {
                if is_reported {
                    cx.out.to_dispatcher.push(FromUnit::Replicated { flow: id, epoch });
                }
                cx.counters.replica_bytes_received += record.bytes.len() as u64;
                let version = Version { epoch, seq: record.watermark.contiguous };
                match self.wants(version, cx) {
                    true => self.replica(id, version, record, cx),
                    false => cx.counters.replicas_refused += 1,
                }
                Ok(())
            }
            FromPeer::Delta { epoch, watermark, delta, .. } => {
                cx.counters.replica_bytes_received += delta.len() as u64;
                let version = Version { epoch, seq: watermark.contiguous };
                match self.wants(version, cx) {
                    true => self.changes(id, version, (watermark, &delta), from, cx),
                    false => cx.counters.replicas_refused += 1,
                }
                Ok(())
            }
            FromPeer::NeedFull { version, .. } => {
                match &self.flow {
                    Some(flow) => cx.send_whole(version, flow.owned().map(|(epoch, _)| epoch), from),
                    None => cx.counters.messages_stale += 1,
                }
                Ok(())
            }
            FromPeer::State { epoch, record, .. } if self.refused(epoch).is_some() => {
                cx.counters.messages_stale += 1;
                self.refuse(id, epoch, record, from, cx);
                Ok(())
            }
            FromPeer::Changes { epoch, .. } if self.refused(epoch).is_some() => {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            // A lost epoch has been given up: nobody waits for its state any more.
            FromPeer::State { epoch, .. } | FromPeer::Changes { epoch, .. }
                if self.is_past(epoch) || self.has_lost(epoch) =>
            {
                cx.counters.messages_stale += 1;
                cx.out.to_units.push((from, FromPeer::StateAck { flow: id, epoch }));
                Ok(())
            }
            FromPeer::State { epoch, record, .. } if epoch > 1 => {
                if let Err(reason) = self.flow(id, cx).state(epoch, &record, from, cx) {
                    cx.counters.states_refused += 1;
                    let place = FlowPlace::new(id, epoch, record.watermark.contiguous);
                    cx.note(place, TimelineEvent::StateRefused { why: reason, holder: from });
                    event::handover_refused(&id, epoch.into(), &from);
                    let covered = record.watermark.highest();
                    self.gone = Some(self.flow(id, cx).give_back(epoch, covered, from, reason, cx));
                    self.done = self.done.max(epoch);
                    self.refuse(id, epoch, record, from, cx);
                }
                Ok(())
            }
            FromPeer::State { .. } | FromPeer::Changes { .. } => Err(Unacceptable),
            // If the owner has no state of that epoch yet, it will have none: a later one was
            // recovered.
            FromPeer::Pull { epoch, owner, .. } if self.is_past(epoch) || self.is_lost_before(epoch) => {
                cx.counters.messages_stale += 1;
                if owner != cx.id() {
                    cx.out.to_units.push((owner, FromPeer::End { flow: id, epoch }));
                }
                Ok(())
            }
            FromPeer::StateAck { epoch, .. } if self.is_past(epoch) => {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromPeer::Pull { epoch, .. } if self.holder_before(epoch).is_some() => {
                cx.out.to_units.extend(self.holder_before(epoch).map(|holder| (holder, message)));
                Ok(())
            }
            FromPeer::Pull { epoch, owner, .. } if self.is_over && self.flow.is_none() => {
                cx.out.to_units.push((owner, FromPeer::End { flow: id, epoch }));
                Ok(())
            }
            FromPeer::StateAck { .. } if self.is_over && self.flow.is_none() => {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromPeer::Pull { epoch, owner, last, again, has, .. } => {
                let outcome = self.flow(id, cx).pull((epoch, owner), last, (again, has), cx);
                self.give_up_lost(cx);
                outcome
            }
            FromPeer::Seek { epoch, has, .. } => {
                let newer = self.state_for(epoch, cx).filter(|(version, _)| Some(*version) > has);
                cx.out.to_units.push((from, FromPeer::found(id, epoch, newer)));
                Ok(())
            }
            FromPeer::Found { epoch, version, record, .. } => {
                let replica = version.map(|version| (version, record));
                match self.flow.as_mut().is_some_and(|flow| flow.recovery.found(epoch, from, replica)) {
                    true => self.finish_recovery(id, cx),
                    false => cx.counters.messages_stale += 1,
                }
                Ok(())
            }
            FromPeer::Refuse { epoch, .. } if self.is_past(epoch) => {
                cx.counters.messages_stale += 1;
                Ok(())
            }
            FromPeer::Refuse { epoch, record, .. } => {
                let is_back = match &mut self.flow {
                    Some(flow) => flow.take_back(epoch, from, &record, cx),
                    None => Ok(false),
                };
                is_back.map(|is_back| cx.counters.messages_stale += u64::from(!is_back))
            }
            FromPeer::StateAck { epoch, .. }
                if cx.config.has_groups
                    && self.flow.as_mut().is_some_and(|flow| flow.keep_until_release(epoch)) =>
            {
                Ok(())
            }
            FromPeer::StateAck { epoch, .. } => {
                self.gone = Some(self.flow(id, cx).leave(epoch, from, cx));
                self.done = epoch;
                Ok(())
            }
        };
        if outcome.is_err() {
            cx.counters.messages_refused += 1;
        }
    }

    /// Returns the tombstone of an epoch with a state that this unit refused.
    fn refused(&self, epoch: Epoch) -> Option<Tombstone> {
        self.gone.filter(|gone| gone.refused.is_some() && gone.epoch == epoch)
    }

    /// Returns the holder of the state that an epoch begins with, if this unit was to have it, and
    /// refused it or gave it away.
    fn holder_before(&self, epoch: Epoch) -> Option<UnitId> {
        let before = epoch.checked_sub(1)?;
        self.gone.filter(|gone| gone.epoch == before).map(|gone| gone.owner)
    }

    /// Returns a state to its holder, and notifies the dispatcher.
    fn refuse<E: Engine>(
        &self,
        flow: FlowId,
        epoch: Epoch,
        record: FlowRecord,
        holder: UnitId,
        cx: &mut Context<'_, E>,
    ) {
        if let Some(reason) = self.gone.and_then(|gone| gone.refused) {
            cx.out.to_units.push((holder, FromPeer::Refuse { flow, epoch, reason, record }));
            cx.out.to_dispatcher.push(FromUnit::Refuse { flow, epoch, reason, holder });
        }
    }

    /// Returns true if an arriving replica is useful: this unit does not have the state of its
    /// epoch, has not given away a newer one, and the flow still has its index.
    fn wants<E: Engine>(&self, version: Version, cx: &mut Context<'_, E>) -> bool {
        cx.counters.replicas_received += 1;
        !self.has_given_way
            && self.gone.is_none_or(|gone| version.seq >= gone.last)
            && self.flow.as_ref().is_none_or(|flow| !flow.packets().is_past(version.epoch))
    }

    /// Uses or keeps a replica.
    fn replica<E: Engine>(
        &mut self,
        id: FlowId,
        version: Version,
        record: FlowRecord,
        cx: &mut Context<'_, E>,
    ) {
        let left = match &mut self.flow {
            Some(flow) => flow.replica(version, record, cx),
            None => Some(record),
        };
        let Some(record) = left else { return };
        let (at, max_bytes) = ((id.index, &mut cx.copy), cx.config.replica_bytes_max);
        match cx.replicas.keep(at, version, record, ReplicaTargets::NONE, max_bytes) {
            Kept::Yes { evicted } => {
                cx.counters.replicas_evicted += evicted;
                cx.note(FlowPlace::new(id, version.epoch, version.seq), TimelineEvent::ReplicaStored {});
            }
            Kept::No => {
                cx.counters.replicas_refused += 1;
                event::replica_dropped(&id);
            }
        }
    }

    /// Returns the state that an epoch begins with, made from changes to the replica here. `None`
    /// if they are changes to another one.
    fn whole<E: Engine>(
        &self,
        index: u32,
        epoch: Epoch,
        (watermark, delta): (Watermark, &StateDelta),
        cx: &Context<'_, E>,
    ) -> Option<FlowRecord> {
        let (here, old, _) = cx.replicas.copy(index, cx.copy)?;
        let base = delta.base(Version::beginning(epoch, watermark)).ok()?;
        let bytes = if base == here { delta.apply(&old.bytes).ok()? } else { return None };
        let place = FlowPlace::new(cx.flow, epoch, watermark.contiguous);
        cx.note(place, TimelineEvent::ChangesApplied { base: here });
        Some(FlowRecord { watermark, bytes })
    }

    /// Applies a delta to its base, which makes a replica. Without the base, requests the whole
    /// state.
    fn changes<E: Engine>(
        &mut self,
        id: FlowId,
        version: Version,
        (watermark, delta): (Watermark, &StateDelta),
        from: UnitId,
        cx: &mut Context<'_, E>,
    ) {
        let made = match (delta.base(version), cx.replicas.copy(id.index, cx.copy)) {
            (_, Some((here, ..))) if version <= here => {
                cx.counters.replicas_refused += 1;
                return;
            }
            (Err(damaged), _) => Err(damaged),
            (Ok(Version::BEGINNING), _) => delta.apply(&[]),
            (Ok(base), Some((here, old, _))) if base == here => {
                let place = FlowPlace::new(id, version.epoch, version.seq);
                cx.note(place, TimelineEvent::ChangesApplied { base: here });
                delta.apply(&old.bytes)
            }
            _ => {
                cx.counters.deltas_without_base += 1;
                cx.out.to_units.push((from, FromPeer::NeedFull { flow: id, version }));
                return;
            }
        };
        match made {
            Ok(bytes) => self.replica(id, version, FlowRecord { watermark, bytes }, cx),
            Err(DamagedDelta) => cx.counters.replicas_refused += 1,
        }
    }

    /// Proposes the flow's end, if it is owned here.
    pub fn propose_end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        if let Some(flow) = &mut self.flow
            && flow.owned().is_some()
        {
            flow.propose_end(cx);
        }
    }

    /// Handles the timers that have expired.
    pub fn handle_timeout<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        if let Some(flow) = &mut self.flow {
            flow.handle_timeout(cx);
            self.is_over |= flow.ending.is_over(); // It may have given up waiting.
        }
    }

    /// Releases a flow without work left. Returns the deadline if it stays.
    pub fn settle<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> u64 {
        if let Some(flow) = self.flow.take_if(|flow| flow.ownerships.is_empty()) {
            self.done = self.done.max(flow.ending.ended().unwrap_or(0));
            cx.spare.take_back(flow);
        }
        self.flow.as_mut().map_or(NEVER_NS, |flow| flow.settle(cx))
    }
}
