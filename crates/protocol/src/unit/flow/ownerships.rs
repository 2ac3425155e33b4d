//! The epochs of a flow that the unit owns, and the state that each begins with.

use telemetry::event;

use crate::message::{Epoch, FromPeer, RefuseReason, UnitId, Watermark};

use super::{Context, Flow, State, Unacceptable};
use crate::unit::{
    DropCause, Engine, OWNERSHIPS_MAX,
    ownership::{Ownership, StateSource, Successor},
};

impl Flow {
    pub(super) fn find(&self, epoch: Epoch) -> Option<&Ownership> {
        let first = self.ownerships.front()?;
        if first.epoch == epoch {
            return Some(first); // Few flows ever have more than one.
        }
        let at = self.ownerships.binary_search_by_key(&epoch, |ownership| ownership.epoch).ok()?;
        self.ownerships.get(at)
    }

    /// Returns the position of an epoch's ownership, which is created if there is none.
    pub(super) fn admit(&mut self, epoch: Epoch) -> Result<usize, Unacceptable> {
        self.is_quiescent = false;
        if self.ownerships.front().is_some_and(|first| first.epoch == epoch) {
            return Ok(0);
        }
        match self.ownerships.binary_search_by_key(&epoch, |ownership| ownership.epoch) {
            Ok(at) => Ok(at),
            Err(_) if self.ownerships.len() >= OWNERSHIPS_MAX => Err(Unacceptable),
            Err(at) => {
                self.ownerships.insert(at, Ownership::new(epoch));
                Ok(at)
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
        let at = self.admit(epoch)?;
        // Packets of the first epoch name no place.
        let start = if epoch == 1 { StateSource::New } else { start };
        let ownership = &mut self.ownerships[at];
        if ownership.start == StateSource::Unknown && start != StateSource::Unknown {
            ownership.start = start;
            self.begin(epoch, start, cx)?;
        }
        Ok(())
    }

    /// Gets the state that an epoch begins with, or requests it (S49, S60).
    pub(super) fn begin<E: Engine>(
        &mut self,
        epoch: Epoch,
        start: StateSource,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Unacceptable> {
        match start {
            StateSource::Unknown => {}
            StateSource::New => {
                let mark = self.state.map(|state| state.mark).unwrap_or_default();
                if self.restore(&[], cx).is_ok() {
                    self.take(epoch, mark, cx);
                }
            }
            // No packet of the previous epoch follows this one on its way here: it counts as
            // released.
            StateSource::From { previous, last } if previous == cx.id() || self.has_before(epoch) => {
                let (now_ns, me) = (cx.now_ns, cx.id());
                self.succession(epoch, me, last, cx)?.released_ns.get_or_insert(now_ns);
            }
            StateSource::From { previous, last } => {
                let copy = cx.replicas.take_exact(self.id.index, &mut cx.copy, last);
                if let Some((version, record)) = copy {
                    if self.restore(&record.bytes, cx).is_ok() {
                        cx.counters.seamless += 1;
                        self.take(epoch, record.watermark, cx);
                        self.keep_taken(version, record, (epoch, previous), cx);
                        cx.out.to_units.push((previous, FromPeer::StateAck { flow: self.id, epoch }));
                        return Ok(());
                    }
                    cx.counters.replicas_refused += 1;
                }
                self.ask(previous, epoch, last, cx);
            }
        }
        Ok(())
    }

    /// Returns true if this unit owns the previous epoch although packets name another owner, which
    /// has refused the state.
    fn has_before(&self, epoch: Epoch) -> bool {
        epoch.checked_sub(1).is_some_and(|before| self.find(before).is_some())
    }

    pub(super) fn ask<E: Engine>(&self, previous: UnitId, epoch: Epoch, last: u64, cx: &mut Context<'_, E>) {
        cx.counters.pulls_sent += 1;
        event::handover_asked(&self.id, epoch.into(), &previous);
        cx.out.to_units.push((previous, self.pull_of(epoch, last, false, cx)));
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
        if owner == cx.id() {
            let at = self.admit(epoch)?;
            self.ownerships[at].start = StateSource::From { previous: owner, last };
        }
        self.learn(epoch - 1, StateSource::Unknown, cx)?;
        let at = self.admit(epoch - 1)?;
        Ok(self.ownerships[at].next.get_or_insert(Successor::new(owner, last)))
    }

    /// Accepts the state that an epoch begins with. Everything before it is finished.
    pub(super) fn take<E: Engine>(&mut self, epoch: Epoch, mark: Watermark, cx: &mut Context<'_, E>) {
        self.forget_before(epoch);
        if self.ownerships.front().is_none_or(|first| first.epoch != epoch) {
            // Even beyond the limit: it is the first one, and the others wait for it.
            self.ownerships.push_front(Ownership::new(epoch));
        }
        self.is_quiescent = false;
        self.state = Some(State { epoch, mark });
        self.seen_ns = cx.now_ns;
        (self.copied, self.copied_anywhere) = (mark.contiguous, 0);
        self.proposed_ns = None;
        match cx.config.deltas {
            true => cx.replicas.forget_elsewhere(self.id.index, cx.copy),
            false => _ = cx.replicas.remove(self.id.index, &mut cx.copy),
        }
        self.drop_before(epoch, cx);
        self.report_arrival(epoch, cx);
    }

    /// Forgets the ownerships of earlier epochs.
    pub(super) fn forget_before(&mut self, epoch: Epoch) {
        while self.ownerships.pop_front_if(|first| first.epoch < epoch).is_some() {}
    }

    /// Drops pending packets of earlier epochs: the state covers them.
    pub(super) fn drop_before<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        while let Some(waiting) = self.pending.take_before(epoch, cx.slab) {
            cx.drop(DropCause::Stale, waiting.stamp, waiting.packet);
        }
    }

    /// Passes the state to the engine; no bytes stand for a new flow.
    ///
    /// # Errors
    ///
    /// The engine's reason if it refuses the state. Nothing has changed.
    pub(super) fn restore<E: Engine>(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_, E>,
    ) -> Result<(), RefuseReason> {
        if !bytes.is_empty() {
            return cx.engine.restore(cx.now_ns, self.id, bytes);
        }
        if self.state.is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        Ok(())
    }
}
