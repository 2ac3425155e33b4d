//! One flow at one unit.

mod context;
mod ending;
mod epochs;
mod ownerships;
mod packets;
mod recovery;
mod refusal;
mod replication;
mod timeouts;
mod tombstone;
mod transfer;

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, FlowId, FlowRecord, FromUnit, RefuseReason, Stamp, UnitId, Version, Watermark};

use crate::unit::{
    Config, DropCause, Engine,
    ownership::{Ownership, StateSource},
    pending::{PacketSlab, PendingQueue},
};

pub(crate) use context::Context;
pub(crate) use ending::Ending;
pub(crate) use packets::Packets;
pub(crate) use tombstone::Tombstone;

use ownerships::Ownerships;
use recovery::Recovery;
use transfer::{Fetch, Sent};

/// One flow at one unit: the state and the packets that are here, the epochs that the unit owns and
/// has not finished, and the states on their way. It routes each event to the objects that it
/// concerns. Each of them owns the state of one concern.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    packets: Packets,
    pub ownerships: Ownerships,
    fetch: Fetch,
    pub sent: Sent,
    /// The end of the flow, as it is known here.
    pub ending: Ending,
    pub recovery: Recovery,
}

const _: () = assert!(size_of::<Flow>() == 256, "four cache lines");

/// Memory of finished flows, for new ones.
#[derive(Clone, Debug, Default)]
#[allow(clippy::vec_box, reason = "entries have their flows in boxes, and get these as they are")]
pub(crate) struct FlowPool(Vec<Box<Flow>>);

/// Limit on the finished flows that keep their memory.
const SPARE_MAX: usize = 16;

impl FlowPool {
    /// Creates a flow with nothing known but its end.
    pub fn flow(&mut self, id: FlowId, ending: Ending, config: &Config) -> Box<Flow> {
        match self.0.pop() {
            Some(mut flow) => {
                let ownerships = flow.ownerships.take_memory();
                *flow = Flow::new(id, ending, config, ownerships);
                flow
            }
            None => Box::new(Flow::new(id, ending, config, Ownerships::new())),
        }
    }

    /// Takes back the memory of a flow that has no ownerships.
    pub fn take_back(&mut self, flow: Box<Flow>) {
        debug_assert!(flow.ownerships.is_empty(), "the flow is somebody's");
        if self.0.len() < SPARE_MAX {
            self.0.push(flow);
        }
    }
}

/// The state that is here.
#[derive(Clone, Copy, Debug, Hash)]
struct State {
    epoch: Epoch,
    /// Always whole: packets are processed in order, and abandoned ones count as covered (design.md
    /// 3.4).
    mark: Watermark,
}

/// The limit on epochs of a flow is reached.
pub(crate) struct Unacceptable;

impl Flow {
    /// Creates a flow with nothing known but its end. It reuses the memory of `ownerships`, which
    /// has none.
    fn new(id: FlowId, ending: Ending, config: &Config, ownerships: Ownerships) -> Flow {
        Flow {
            packets: Packets::new(id, config),
            ownerships,
            fetch: Fetch::default(),
            sent: Sent::default(),
            ending,
            recovery: Recovery::default(),
        }
    }

    /// Returns the state and the packets that are here.
    #[inline(always)]
    pub fn packets(&self) -> &Packets {
        &self.packets
    }

    /// Returns the state and the packets that are here, to be changed.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut Packets {
        &mut self.packets
    }

    /// Returns true if the state of this epoch is awaited from another unit.
    pub fn awaits(&self, epoch: Epoch) -> bool {
        let is_known_lost = |ownership: &Ownership| ownership.start().is_lost();
        !self.packets.is_past(epoch) && self.ownerships.find(epoch).is_some_and(|own| !is_known_lost(own))
    }

    /// Notes that the state of this epoch is lost. Later epochs may have states.
    pub fn lose(&mut self, epoch: Epoch) {
        self.packets.disturb();
        self.ownerships.lose(epoch);
    }

    /// Gives up an epoch with a lost state that has a next owner. Returns it.
    pub fn give_up_lost<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> Option<Epoch> {
        let lost = self.ownerships.take_lost()?;
        lost.answer_lost(cx.flow, cx.out);
        self.packets.drop_before(lost.epoch().saturating_add(1), cx);
        Some(lost.epoch())
    }

    /// Returns true if the state here, or an awaited one, covers this seq.
    pub fn covers(&self, seq: u64) -> bool {
        self.packets.state().is_some_and(|state| state.mark.covers(seq))
            || self.ownerships.start_at_or_behind(seq)
    }

    /// Returns the epoch and coverage of the state, if it is here and not released.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        let is_owner = self.packets.is_quiescent() || self.ownerships.first()?.next().is_none();
        self.packets.state().filter(|_| is_owner).map(|state| (state.epoch, state.mark))
    }

    /// Returns true if the state is here to stay.
    pub fn is_settled(&self) -> bool {
        self.ownerships.len() == 1 && self.owned().is_some() && !self.ending.is_over()
    }

    /// Returns the queue for a packet of an epoch if the state is requested already. `None` if more
    /// must be done, or no more packets may be pending.
    pub fn queue_of<P>(
        &mut self,
        stamp: &Stamp,
        config: &Config,
        slab: &PacketSlab<P>,
    ) -> Option<&mut PendingQueue> {
        if self.ending.is_over() || self.packets.state().is_some() {
            return None;
        }
        let ownership = self.ownerships.find(stamp.epoch)?;
        let is_undecided = matches!(ownership.start(), StateSource::Unknown | StateSource::Lost { .. });
        if is_undecided || !ownership.may_have(stamp.seq) {
            return None;
        }
        self.packets.queue(stamp.seq, config, slab)
    }

    /// Handles a packet of an epoch that is this unit's.
    pub fn handle_packet<E: Engine>(&mut self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        if self.packets.state_of(stamp.epoch).is_none() {
            if self.packets.is_past(stamp.epoch) {
                return cx.drop(DropCause::Stale, stamp, packet);
            }
            if self.learn(stamp.epoch, stamp.handover.into(), cx).is_err() {
                return cx.drop(DropCause::Refused, stamp, packet);
            }
            self.pump(cx);
        }
        let ownership = self.ownerships.find(stamp.epoch);
        let may_come = ownership.is_some_and(|ownership| ownership.may_have(stamp.seq));
        if !may_come || self.packets.is_pending(stamp.seq, cx.slab) {
            return cx.drop(DropCause::Stale, stamp, packet);
        }
        let may_copy = self.ending.may_be_copied();
        match self.packets.state_of(stamp.epoch) {
            Some(state) if state.mark.covers(stamp.seq) => cx.drop(DropCause::Stale, stamp, packet),
            Some(state) if stamp.seq == state.mark.contiguous + 1 => {
                self.packets.process(stamp, packet, may_copy, cx);
                self.pump(cx);
            }
            _ => {
                if self.packets.hold(stamp, packet, may_copy, cx) {
                    self.pump(cx);
                }
            }
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

    /// Notes the owner of this epoch, another unit. No packet of the previous epoch follows; the
    /// state of that epoch begins at `start`.
    pub fn release<E: Engine>(
        &mut self,
        start: StateSource,
        (epoch, owner): (Epoch, UnitId),
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let now_ns = cx.now_ns;
        self.succession(epoch, owner, last, cx)?.release(now_ns);
        let own = epoch - 1; // At least 1: see `succession`.
        if !self.packets.is_past(own) {
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
        next.ask(has);
        // A group's packets arrive before the dispatcher's own release.
        if again && !has_groups || is_own {
            next.release(now_ns);
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
        cx.restore(&record.bytes, self.packets.state().is_some())?;
        let mut mark = record.watermark;
        let last = self.ownerships.find(epoch).and_then(|ownership| ownership.start().last()).unwrap_or(0);
        let until = last.max(mark.highest());
        let packets = mark.give_up_to(until);
        cx.give_up(packets, (epoch, until));
        cx.counters.states_taken += 1;
        self.take(epoch, mark, "message", cx);
        cx.acknowledge(from, epoch);
        self.pump(cx);
        Ok(())
    }

    /// Notes that the owner of this epoch has the state, and keeps the state here until the
    /// dispatcher's release. Returns false if that has come, or will not: the owner has recovered
    /// the state.
    pub fn keep_until_release(&mut self, epoch: Epoch) -> bool {
        let is_state = self.packets.state().is_some_and(|state| state.epoch.checked_add(1) == Some(epoch));
        let next = self.ownerships.before(epoch).and_then(|before| before.next());
        if !is_state || next.is_some_and(|next| next.released_ns().is_some()) {
            return false;
        }
        self.sent.acknowledge(epoch);
        true
    }

    /// Forgets the state, which the owner of this epoch has. Packets that were pending for earlier
    /// epochs are forwarded there.
    pub fn leave<E: Engine>(&mut self, epoch: Epoch, owner: UnitId, cx: &mut Context<'_, E>) -> Tombstone {
        let said = self.ownerships.before(epoch).and_then(|before| before.next());
        let covered = self.packets.state().map_or(0, |state| state.mark.contiguous);
        let last = said.map_or(covered, |next| next.last());
        let gone = Tombstone { epoch, owner, last, refused: None };
        self.sent.forget();
        // This unit may have been taken for the owner of this epoch, too.
        self.ownerships.forget_before(epoch.saturating_add(1));
        self.packets.take_state(false, cx);
        self.packets.forward_before(epoch, &gone, cx);
        self.packets.drop_before(epoch.saturating_add(1), cx);
        if let Some((epoch, last)) = self.ownerships.start_at(owner, cx.id()) {
            cx.pull(owner, epoch, last);
        }
        gone
    }

    /// Uses an arriving replica if it is the awaited state (S53); returns it otherwise.
    pub fn replica<E: Engine>(
        &mut self,
        version: Version,
        record: FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Option<FlowRecord> {
        let found = self.ownerships.beginning_with(version, &record, |&(epoch, previous)| {
            previous != cx.id() && !self.packets.is_past(epoch)
        });
        let is_here = self.packets.state().is_some();
        let Some((epoch, previous)) = found.filter(|_| cx.restore(&record.bytes, is_here).is_ok()) else {
            return Some(record);
        };
        cx.counters.overtaken_by_replica += 1;
        self.take(epoch, record.watermark, "replica", cx);
        cx.keep_taken(version, record, (epoch, previous));
        cx.acknowledge(previous, epoch);
        self.pump(cx);
        None
    }

    /// Proposes the flow's end to the dispatcher (design.md 3.9).
    pub fn propose_end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.packets.state() else { return };
        self.ending.propose(cx.now_ns);
        cx.counters.expiries_proposed += 1;
        let seq = state.mark.highest();
        cx.out.to_dispatcher.push(FromUnit::Expire { flow: cx.flow, epoch: state.epoch, seq });
    }

    /// Ends the flow where its state is: here, if this unit is the last owner and has it. An
    /// awaited state ends when it arrives; a state for another unit ends there.
    pub fn end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        cx.counters.expiries_accepted += u64::from(self.ending.begin(cx.now_ns));
        self.packets.drop_all(cx);
        self.recovery.stop();
        self.ownerships.forget_lost(self.packets.state().map(|state| state.epoch));
        self.pump(cx);
    }

    /// Notes that another flow has the index.
    pub fn give_way<E: Engine>(&mut self, cx: &Context<'_, E>) {
        self.ending.give_way(cx.now_ns);
    }

    /// Recomputes the summary of the flow after an event. Returns its next deadline.
    #[inline]
    pub fn settle<E: Engine>(&mut self, cx: &Context<'_, E>) -> u64 {
        let (ownerships, ending) = (&self.ownerships, &self.ending);
        self.packets.settle(|| ownerships.is_only_one() && !ending.is_over());
        if let Some((epoch, ..)) = self.awaited(cx) {
            self.fetch.begin(epoch, cx.now_ns);
        }
        self.deadlines().next_ns(cx)
    }
}

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.packets.summary(), &self.ownerships, self.fetch).hash(state);
        (self.ending, self.sent.acknowledged(), &self.recovery).hash(state);
    }
}
