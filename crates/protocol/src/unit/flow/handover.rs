//! The destination of a flow's state: the next owner, or its end.

use telemetry::event;

use crate::message::{Epoch, FlowRecord, FromPeer, FromUnit, StateDelta, UnitId, Version};

use super::{Context, Flow, PendingPull};
use crate::unit::{Engine, ownership::StateSource, timers::NEVER_NS};

impl Flow {
    /// Begins this unit's next epoch with the state of the present one.
    pub(super) fn go_on<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = &mut self.state else { return };
        state.epoch += 1;
        let epoch = state.epoch;
        self.forget_before(epoch);
        self.drop_before(epoch, cx);
        self.report_arrival(epoch, cx);
    }

    /// Notifies the dispatcher that the state that an epoch begins with is here, if it asks.
    pub(super) fn report_arrival<E: Engine>(&self, epoch: Epoch, cx: &mut Context<'_, E>) {
        if cx.config.has_groups && epoch > 1 {
            cx.out.to_dispatcher.push(FromUnit::Arrived { flow: self.id, epoch });
        }
    }

    /// Ends the flow here: nobody else gets the state.
    pub(super) fn finish<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.ended = self.state.take().map(|state| state.epoch);
        self.ownerships.clear();
        cx.engine.forget(cx.now_ns, self.id, true);
    }

    /// Sends the state to the next owner, which has not asked for it or not acknowledged it.
    pub(super) fn offer<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        match self.ownerships.front().and_then(|ownership| ownership.next?.answered) {
            None => cx.counters.states_offered += 1,
            Some(_) => cx.counters.states_retransmitted += 1,
        }
        self.answer(cx);
    }

    /// Sends the state to the next owner, and keeps it until it is acknowledged.
    pub(super) fn answer<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(epoch) = self.ownerships.front().map(|ownership| ownership.epoch + 1) else { return };
        let record = match self.sent.as_deref() {
            Some((begins, record)) if *begins == epoch => record.clone(),
            _ => {
                let record = self.record(cx);
                let may_be_lost = cx.config.retransmit_ns < NEVER_NS;
                self.sent = may_be_lost.then(|| Box::new((epoch, record.clone())));
                record
            }
        };
        let Some(ownership) = self.ownerships.front_mut() else { return };
        let Some(next) = &mut ownership.next else { return };
        let times = next.answered.map_or(0, |(_, times)| times.saturating_add(1));
        // Only once: a replica that is gone, or a lost message, must not cost another attempt.
        let base = next.has.take().filter(|_| times == 0);
        (next.asked, next.answered) = (false, Some((cx.now_ns, times)));
        let (flow, owner) = (self.id, next.owner);
        let message = match base.and_then(|base| self.changes_since((owner, base), epoch, &record, cx)) {
            Some(delta) => FromPeer::Changes { flow, epoch, watermark: record.watermark, delta },
            None => FromPeer::State { flow, epoch, record },
        };
        cx.counters.states_sent += 1;
        event::handover_answered(&flow, epoch.into(), &owner);
        cx.counters.state_bytes_sent += message.state_bytes().unwrap_or(0) as u64;
        cx.out.to_units.push((owner, message));
    }

    /// Returns the difference between the state that an epoch begins with and the replica of its
    /// owner, if that is known here, and the difference is smaller.
    fn changes_since<E: Engine>(
        &self,
        (owner, base): (UnitId, Version),
        epoch: Epoch,
        record: &FlowRecord,
        cx: &Context<'_, E>,
    ) -> Option<StateDelta> {
        let (version, old, elsewhere) = cx.replicas.copy(self.id.index, cx.copy)?;
        let begins = Version::beginning(epoch, record.watermark);
        let is_the_same = version == base && elsewhere.contains(owner);
        if is_the_same { StateDelta::of((base, &old.bytes), (begins, &record.bytes)) } else { None }
    }

    /// Proposes the flow's end to the dispatcher (design.md 3.9).
    pub fn propose_end<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        self.proposed_ns = Some(cx.now_ns);
        cx.counters.expiries_proposed += 1;
        let seq = state.mark.highest();
        cx.out.to_dispatcher.push(FromUnit::Expire { flow: self.id, epoch: state.epoch, seq });
    }

    pub(super) fn record<E: Engine>(&self, cx: &mut Context<'_, E>) -> FlowRecord {
        let mut bytes = Vec::new();
        cx.engine.save(self.id, &mut bytes);
        FlowRecord { watermark: self.state.map(|state| state.mark).unwrap_or_default(), bytes }
    }

    /// Returns the epoch, previous owner and last seq before it of the next ownership, if its state
    /// must come from another unit. While the present state's next owner is unknown, it may be that
    /// nobody hands the state on.
    #[inline]
    pub(super) fn awaited<E: Engine>(&self, cx: &Context<'_, E>) -> Option<(Epoch, UnitId, u64)> {
        let first = self.ownerships.front()?;
        let next = match self.state {
            None => first,
            Some(_) if first.next.is_none() => self.ownerships.get(1)?,
            Some(_) => return None,
        };
        match next.start {
            StateSource::From { previous, last } if previous != cx.id() => Some((next.epoch, previous, last)),
            _ => None,
        }
    }

    /// Retransmits the pull.
    pub(super) fn pull_again<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some((epoch, previous, last)) = self.awaited(cx) else { return };
        let times = self.asked.map_or(0, |asked| asked.times.saturating_add(1));
        self.asked = Some(PendingPull { epoch, at_ns: cx.now_ns, times });
        cx.counters.pulls_retransmitted += 1;
        cx.out.to_units.push((previous, self.pull_of(epoch, last, true, cx)));
    }

    /// Pulls once more, at once, if the state of this epoch is awaited: it came as changes to a
    /// replica that is not here.
    pub fn pull_whole<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        if self.awaited(cx).is_some_and(|(awaited, ..)| awaited == epoch) {
            self.pull_again(cx);
        }
    }

    /// Returns this unit's request for the state that an epoch begins with.
    pub(super) fn pull_of<E: Engine>(
        &self,
        epoch: Epoch,
        last: u64,
        again: bool,
        cx: &Context<'_, E>,
    ) -> FromPeer {
        let has = cx.replicas.copy(self.id.index, cx.copy).map(|(version, ..)| version);
        FromPeer::Pull { flow: self.id, epoch, owner: cx.id(), last, again, has }
    }

    /// Returns true if the flow has not ended, as far as known here: otherwise replicas are
    /// worthless.
    pub fn may_be_copied(&self) -> bool {
        !self.is_over() && self.gave_way_ns.is_none()
    }
}
