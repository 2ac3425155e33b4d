//! Where a flow's state goes, and when: to the next owner, ahead of it, or nowhere any more.

use crate::message::{Epoch, FlowRecord, FromPeer, FromUnit, Targets, UnitId};

use super::{Flow, PendingPull};
use crate::unit::{Engine, OFFER_AFTER_TIMEOUTS, context::Context, ownership::StateSource};

impl Flow {
    /// The next epoch is this unit's, too.
    pub(super) fn go_on<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = &mut self.state else { return };
        state.epoch += 1;
        let epoch = state.epoch;
        self.forget_before(epoch);
        self.drop_before(epoch, cx);
    }

    /// Nobody gets the state any more: the flow ends here, and what it took is given back.
    pub(super) fn finish<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        self.ended = self.state.take().map(|state| state.epoch);
        self.ownerships.clear();
        cx.engine.forget(cx.now_ns, self.id, true);
    }

    /// Sends the state to the next owner, which has not asked, or has not said that it came.
    pub(super) fn offer<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        match self.ownerships.front().and_then(|ownership| ownership.next?.answered) {
            None => cx.counters.states_offered += 1,
            Some(_) => cx.counters.states_retransmitted += 1,
        }
        self.answer(cx);
    }

    /// Sends the state to the next owner. It is kept until that has it.
    pub(super) fn answer<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let record = self.record(cx);
        let Some(ownership) = self.ownerships.front_mut() else { return };
        let epoch = ownership.epoch + 1;
        let Some(next) = &mut ownership.next else { return };
        let times = next.answered.map_or(0, |(_, times)| times.saturating_add(1));
        (next.asked, next.answered) = (false, Some((cx.now_ns, times)));
        cx.counters.states_sent += 1;
        cx.counters.state_bytes_sent += record.bytes.len() as u64;
        cx.out.to_units.push((next.owner, FromPeer::State { flow: self.id, epoch, record }));
    }

    /// Asks the dispatcher whether the flow is over (design.md 3.9).
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

    /// The first ownership, if its state is to come from another unit: its epoch, and the owner and
    /// the last seq before it.
    #[inline]
    pub(super) fn awaited<E: Engine>(&self, cx: &Context<'_, E>) -> Option<(Epoch, UnitId, u64)> {
        if self.state.is_some() {
            return None;
        }
        let first = self.ownerships.front()?;
        match first.start {
            StateSource::From { previous, last } if previous != cx.id() => {
                Some((first.epoch, previous, last))
            }
            _ => None,
        }
    }

    /// When the state is to be asked for once more.
    pub(super) fn ask_again_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (epoch, ..) = self.awaited(cx)?;
        let asked = self.asked.filter(|asked| asked.epoch == epoch)?;
        Some(asked.at_ns.saturating_add(cx.config.again_ns(asked.times)))
    }

    /// When a flow that is over, or whose index another has, is forgotten although its state, which
    /// is not here, has not come. Should it come after all, it ends then.
    pub(super) fn end_given_up_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let wait_ns = cx.config.patience_ns();
        let since_ns = self.over_since_ns.or(self.gave_way_ns).filter(|_| self.state.is_none())?;
        Some(since_ns.saturating_add(wait_ns))
    }

    /// Asks for the state once more.
    pub(super) fn ask_again<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some((epoch, previous, last)) = self.awaited(cx) else { return };
        let times = self.asked.map_or(0, |asked| asked.times.saturating_add(1));
        self.asked = Some(PendingPull { epoch, at_ns: cx.now_ns, times });
        cx.counters.pulls_retransmitted += 1;
        cx.out.to_units.push((previous, FromPeer::Pull { flow: self.id, epoch, last, again: true }));
    }

    /// When the state is to be sent to the next owner although it has not asked, or has been sent
    /// it.
    pub(super) fn offer_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (state, ownership) = self.state.zip(self.ownerships.front())?;
        let next = ownership.next.filter(|next| next.owner != cx.id() && state.mark.covers(next.last))?;
        if let Some((at_ns, times)) = next.answered {
            return Some(at_ns.saturating_add(cx.config.again_ns(times)));
        }
        let wait_ns = cx.config.reorder_timeout_ns.saturating_mul(OFFER_AFTER_TIMEOUTS);
        Some(next.released_ns?.saturating_add(wait_ns))
    }

    /// Whether the dispatcher has not ended the flow, as far as is known here: else copies are worth
    /// nothing.
    pub(super) fn may_be_copied(&self) -> bool {
        !self.is_over() && self.gave_way_ns.is_none()
    }

    /// When the state is to be copied ahead: not if it was, and nothing has come since (S51, S52).
    pub(super) fn copy_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (_, mark) = self.owned()?;
        let has_news = mark.contiguous > self.copied && self.targets != Targets::NONE;
        let after_ns = cx.config.replicate_after_ns.filter(|_| has_news && self.may_be_copied())?;
        Some(self.seen_ns.saturating_add(after_ns))
    }

    /// When the flow's end is to be proposed.
    pub(super) fn expiry_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        self.owned().filter(|_| !self.is_over())?;
        let since_ns = self.seen_ns.max(self.proposed_ns.unwrap_or(0));
        Some(since_ns.saturating_add(cx.config.expire_after_ns?))
    }
}
