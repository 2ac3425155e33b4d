//! The passage of a flow's state through the epochs: where each gets it from, and where it goes.

use super::{Context, Flow, Unacceptable};
use crate::message::{Epoch, UnitId, Watermark};
use crate::trace::{FlowPlace, TimelineEvent};
use crate::unit::{
    Engine,
    ownership::{StateSource, Successor},
    timers::NEVER_NS,
};

impl Flow {
    /// Does all that can be done now: processes the next packets, gives up gaps after their
    /// timeout, and hands the state over at the end of the epoch.
    pub(super) fn pump<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        loop {
            self.packets.process_pending(self.ending.may_be_copied(), cx);
            let (is_last, is_over) = (self.ownerships.len() == 1, self.ending.is_over());
            let (Some(_), Some(ownership)) = (self.packets.state(), self.ownerships.first()) else { return };
            let next = ownership.next();
            if is_over {
                match next {
                    // No other unit gets the state.
                    None if is_last => {
                        self.ending.finish(self.packets.take_state(true, cx));
                        return self.ownerships.clear();
                    }
                    None => return,
                    Some(next) => _ = self.packets.give_up_to(next.last()),
                }
            }
            let Some(state) = self.packets.state() else { return };
            if let Some(next) = next.filter(|next| state.mark.covers(next.last())) {
                if next.owner() == cx.id() {
                    if let Some(epoch) = self.packets.go_on(cx) {
                        self.ownerships.forget_before(epoch);
                    }
                    continue;
                }
                let may_leave = !cx.config.has_groups || next.released_ns().is_some();
                if next.is_asking() && may_leave || is_over && next.answered().is_none() {
                    self.answer(cx);
                }
                return;
            }
            let released = next.filter(|next| next.released_ns().is_some_and(|at_ns| cx.has_waited(at_ns)));
            if !self.packets.give_up_gap(released.map(|next| next.last()), cx) {
                return;
            }
        }
    }

    /// Notes an epoch and the place of its state. Once the place is known, the state is fetched.
    pub(super) fn learn<E: Engine>(
        &mut self,
        epoch: Epoch,
        start: StateSource,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        self.packets.disturb();
        let ownership = self.ownerships.admit(epoch)?;
        // Packets of the first epoch name no place.
        let start = if epoch == 1 { StateSource::New } else { start };
        if ownership.start() == StateSource::Unknown && start != StateSource::Unknown {
            ownership.set_start(start);
            self.begin(epoch, start, cx)?;
        }
        Ok(())
    }

    /// Gets the state that an epoch begins with, or requests it (S49, S60).
    fn begin<E: Engine>(
        &mut self,
        epoch: Epoch,
        start: StateSource,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        let here = self.packets.state();
        match start {
            StateSource::Unknown | StateSource::Lost { .. } | StateSource::Replicas { .. } => {}
            StateSource::New => {
                if cx.restore(&[], here.is_some()).is_ok() {
                    self.take(epoch, here.map(|state| state.mark).unwrap_or_default(), "new flow", cx);
                }
            }
            // No packet of the previous epoch follows this one on its way here: it counts as
            // released. This unit may own the previous epoch although packets name another owner,
            // which has refused the state.
            StateSource::From { previous, last }
                if previous == cx.id() || self.ownerships.before(epoch).is_some() =>
            {
                let (now_ns, me) = (cx.now_ns, cx.id());
                self.succession(epoch, me, last, cx)?.release(now_ns);
            }
            StateSource::From { previous, last } => {
                let copy = cx.replicas.take_exact(cx.flow.index, &mut cx.copy, last);
                if let Some((version, record)) = copy {
                    if cx.restore(&record.bytes, here.is_some()).is_ok() {
                        cx.counters.seamless += 1;
                        self.take(epoch, record.watermark, "replica", cx);
                        cx.keep_taken(version, record, (epoch, previous));
                        cx.acknowledge(previous, epoch);
                        return Ok(());
                    }
                    cx.counters.replicas_refused += 1;
                }
                cx.pull(previous, epoch, last);
            }
        }
        Ok(())
    }

    /// Notes the owner of an epoch, which may be this unit again; this unit owned the previous one.
    pub(super) fn succession<E: Engine>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<&mut Successor, Unacceptable> {
        if epoch < 2 {
            return Err(Unacceptable);
        }
        self.packets.disturb();
        if owner == cx.id() {
            self.ownerships.admit(epoch)?.set_start(StateSource::From { previous: owner, last });
        }
        self.learn(epoch - 1, StateSource::Unknown, cx)?;
        Ok(self.ownerships.admit(epoch - 1)?.next_or(Successor::new(owner, last)))
    }

    /// Accepts the state that an epoch begins with. Everything before it is finished. `source`: the
    /// source of the state, for the timeline.
    pub(super) fn take<E: Engine>(
        &mut self,
        epoch: Epoch,
        mark: Watermark,
        source: &'static str,
        cx: &mut Context<'_, E>,
    ) {
        let place = FlowPlace::new(cx.flow, epoch, mark.contiguous);
        cx.note(place, TimelineEvent::StateInstalled { source });
        self.ownerships.begin_with(epoch);
        self.recovery.stop_up_to(epoch);
        self.ending.withdraw();
        self.packets.begin(epoch, mark, cx);
    }

    /// Returns the epoch, previous owner and last seq before it of the next ownership, if another
    /// unit has its state.
    #[inline]
    pub(super) fn awaited<E: Engine>(&self, cx: &Context<'_, E>) -> Option<(Epoch, UnitId, u64)> {
        self.ownerships.awaited(self.packets.state().is_some(), cx.id())
    }

    /// Retransmits the pull.
    pub(super) fn pull_again<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        if let Some((epoch, previous, last)) = self.awaited(cx) {
            self.fetch.repeat(epoch, cx.now_ns);
            cx.pull_again(previous, epoch, last);
        }
    }

    /// Pulls once more, at once, if the state of this epoch is awaited: it came as changes to a
    /// replica that is not here.
    pub fn pull_whole<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        if self.awaited(cx).is_some_and(|(awaited, ..)| awaited == epoch) {
            self.pull_again(cx);
        }
    }

    /// Sends the state to the next owner, and keeps it until it is acknowledged.
    pub(super) fn answer<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(first) = self.ownerships.first_mut() else { return };
        let epoch = first.epoch() + 1;
        let record = match self.sent.state_of(epoch) {
            Some(record) => record.clone(),
            None => {
                let record = cx.record(self.packets.state().map(|state| state.mark).unwrap_or_default());
                self.sent.forget();
                if cx.config.retransmit_ns < NEVER_NS {
                    self.sent.keep(epoch, record.clone());
                }
                record
            }
        };
        let Some(next) = first.next_mut() else { return };
        let (base, owner) = (next.answer(cx.now_ns), next.owner());
        cx.send_state(owner, base, epoch, record);
    }
}
