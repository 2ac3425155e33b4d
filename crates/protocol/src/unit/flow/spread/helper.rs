//! A unit that has some of a flow's packets for a while, on a state that it got from the anchor.

use crate::message::{Epoch, FlowRecord, Message, Stamp, UnitId, Watermark};

use super::{Flow, Refused, Role, Spread};
use crate::unit::{Dropped, Engine, context::Context, flow::Asked, tenure::Start};

/// An epoch in which this unit is a helper.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Helper {
    /// When the anchor's state was asked for last for want of headers, and how often before.
    asked: Option<(u64, u32)>,
    /// Up to this clock the state was the anchor's, made up for what was missing.
    lapsed: u64,
    /// Once the router sends nothing more.
    parted: Option<Parted>,
}

/// The router sends nothing more.
#[derive(Clone, Copy, Debug, Hash)]
struct Parted {
    /// The clock of the last packet that it sent; none: it sent none.
    last: Option<u64>,
    /// Since when that is known.
    since_ns: u64,
}

impl Helper {
    /// Whether the packet with this clock is one of those that the anchor's state has made up for.
    pub fn has_lapsed(&self, clock: u64) -> bool {
        clock <= self.lapsed
    }
}

impl Flow {
    pub(super) fn helped(&mut self, epoch: Epoch) -> Option<&mut Helper> {
        self.spread_of(epoch, || Role::Helper(Helper::default())).helper_mut()
    }

    /// Whether anything of an epoch before this is here.
    pub fn is_of_before(&self, epoch: Epoch) -> bool {
        self.tenures.front().is_some_and(|first| first.epoch < epoch)
    }

    /// The anchor's state has come. Even if nothing has been heard of that epoch yet: the sender
    /// has it from the router. It is of use if none is here, or if packets wait whose headers are
    /// not here; then what it covers is past.
    pub fn shared<E: Engine>(
        &mut self,
        epoch: Epoch,
        record: &FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let clock = record.watermark.contiguous;
        let is_newer = self.state.is_none_or(|state| {
            let is_wanted = || self.is_stuck(cx) || self.lacking(cx).is_some_and(|stamp| clock < stamp.clock);
            state.epoch < epoch || state.mark.contiguous < clock && is_wanted()
        });
        if self.spread_mut(epoch).is_some_and(|spread| spread.anchor().is_some()) {
            return Err(Refused);
        }
        if !is_newer || self.is_behind(epoch) || self.has_left(epoch) {
            cx.counters.messages_stale += 1;
            return Ok(());
        }
        if !self.restore(&record.bytes, cx) {
            cx.counters.states_unreadable += 1;
            return Ok(());
        }
        let begins = self.state.is_none_or(|state| state.epoch < epoch);
        let helper = self.helped(epoch).ok_or(Refused)?;
        helper.asked = None;
        if !begins {
            helper.lapsed = clock;
        }
        cx.counters.states_taken += 1;
        self.take(epoch, Watermark::up_to(clock), cx);
        self.pump(cx);
        Ok(())
    }

    /// The anchor has no state of this epoch any more: a helper that cannot go on without one gives
    /// the rest up. Any other has asked before it had what it needs.
    pub fn past<E: Engine>(&mut self, epoch: Epoch, from: UnitId, cx: &mut Context<'_, E>) {
        let is_anchor = self.anchor_of(epoch) == Some(from);
        let has_state = self.state.is_some_and(|state| state.epoch >= epoch);
        let is_helper = self.spread_mut(epoch).is_some_and(|spread| spread.helper().is_some());
        if is_anchor && is_helper && (!has_state || self.is_stuck(cx)) {
            self.leave_spread(epoch, cx);
        } else {
            cx.counters.messages_stale += 1;
        }
    }

    /// The router sends nothing of this epoch any more, of which the last packet was the one with
    /// this clock. False if there is nothing to be left: no packet was sent, or it is past.
    pub fn part<E: Engine>(&mut self, epoch: Epoch, last: Option<u64>, cx: &mut Context<'_, E>) -> bool {
        let is_past = self.is_past(epoch) || self.has_left(epoch);
        if !self.is_spread(epoch) && (last.is_none() || is_past || self.admit(epoch).is_err()) {
            self.ended = self.ended.max(Some(epoch)); // Should anything of it come after all, it is late.
            return false;
        }
        let Some(helper) = self.helped(epoch) else { return false };
        helper.parted.get_or_insert(Parted { last, since_ns: cx.now_ns });
        self.pump(cx);
        true
    }

    /// What follows once no packet can be processed: the anchor is asked for what is missing, and
    /// what is over is left.
    pub(super) fn see_to_help<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let now_ns = cx.now_ns;
        let is_time = |ns: u64| ns <= now_ns;
        if self.is_stuck(cx) && self.asks_ns(cx).is_none_or(is_time) {
            self.ask_share(cx);
        }
        let is_over = |spread: &Spread| self.leaves_one_ns(spread, cx).is_some_and(is_time);
        let over: Vec<Epoch> =
            self.spreads.iter().filter(|spread| is_over(spread)).map(|s| s.epoch).collect();
        over.into_iter().for_each(|epoch| self.leave_spread(epoch, cx));
    }

    /// Whether a packet of this helper has waited for long enough, and cannot be processed for want
    /// of headers.
    fn is_stuck<E: Engine>(&self, cx: &Context<'_, E>) -> bool {
        self.lacking(cx)
            .and_then(|stamp| self.held.oldest_of(stamp.epoch, cx.hall))
            .is_some_and(|since_ns| cx.is_due(since_ns))
    }

    /// The first packet that waits at this helper, if headers of packets before it are missing.
    fn lacking<E: Engine>(&self, cx: &Context<'_, E>) -> Option<Stamp> {
        let (state, spread) = self.here().filter(|(_, spread)| spread.helper().is_some())?;
        let (stamp, history) = self.held.first_history(state.epoch, cx.hall)?;
        (!spread.bridges(history, state.mark.contiguous, stamp.clock)).then_some(stamp)
    }

    /// When the anchor's state is to be asked for once more for want of headers; none: it was not
    /// asked for.
    pub(super) fn asks_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (at_ns, times) = self.here()?.1.helper()?.asked?;
        Some(at_ns.saturating_add(cx.config.again_ns(times)))
    }

    /// Asks the anchor for a state that makes up for what is missing.
    fn ask_share<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some((state, _)) = self.here() else { return };
        let wanted = self.held.first_history(state.epoch, cx.hall).map(|(_, history)| history.first - 1);
        let (Some(last), Some(anchor)) = (wanted, self.anchor_of(state.epoch)) else { return };
        let now_ns = cx.now_ns;
        if let Some(helper) = self.spread_mut(state.epoch).and_then(Spread::helper_mut) {
            helper.asked = Some((now_ns, helper.asked.map_or(0, |(_, times)| times.saturating_add(1))));
        }
        self.send_ask(state.epoch, anchor, Some(last), cx);
    }

    /// The first tenure's state is to be asked for once more, and is that of a spread epoch: then
    /// it is the anchor that shares it.
    pub(in crate::unit::flow) fn ask_again_for_share<E: Engine>(
        &mut self,
        epoch: Epoch,
        anchor: UnitId,
        cx: &mut Context<'_, E>,
    ) {
        let times = self.asked.map_or(0, |asked| asked.times.saturating_add(1));
        self.asked = Some(Asked { epoch, at_ns: cx.now_ns, times });
        self.send_ask(epoch, anchor, None, cx);
    }

    fn send_ask<E: Engine>(&self, epoch: Epoch, anchor: UnitId, last: Option<u64>, cx: &mut Context<'_, E>) {
        cx.counters.shares_asked += 1;
        cx.out.to_units.push((anchor, Message::Ask { flow: self.id, epoch, last }));
    }

    /// Whose state it is that the epoch begins with, if a packet has said so.
    fn anchor_of(&self, epoch: Epoch) -> Option<UnitId> {
        match self.find(epoch)?.start {
            Start::From { previous, .. } => Some(previous),
            Start::Unknown | Start::Null => None,
        }
    }

    /// When the first of the epochs that are over is to be left.
    pub(super) fn leaves_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        self.spreads.iter().filter_map(|spread| self.leaves_one_ns(spread, cx)).min()
    }

    /// When a helper is to leave an epoch of which nothing more is sent: as soon as the last packet
    /// is done with; if that may have been overtaken, it is waited for; and if packets wait for the
    /// anchor's state, that is, for as long as it is asked for at intervals that grow.
    fn leaves_one_ns<E: Engine>(&self, spread: &Spread, cx: &Context<'_, E>) -> Option<u64> {
        let Parted { last, since_ns } = spread.helper()?.parted?;
        let state = self.state.filter(|state| state.epoch == spread.epoch);
        let has_all = last.is_none_or(|last| state.is_some_and(|state| state.mark.covers(last)));
        Some(if self.held.has_of(spread.epoch, cx.hall) {
            since_ns.saturating_add(cx.config.patience_ns())
        } else if has_all {
            since_ns
        } else {
            cx.waits_until(since_ns)
        })
    }

    /// This helper has done with the epoch: nothing of it is left.
    fn leave_spread<E: Engine>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        while let Some(waiting) = self.held.take_of(epoch, cx.hall) {
            cx.drop(Dropped::Lapsed, waiting.stamp, waiting.packet);
        }
        if self.state.take_if(|state| state.epoch == epoch).is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        self.tenures.retain(|tenure| tenure.epoch != epoch);
        self.ended = self.ended.max(Some(epoch));
        let helper = self.spread_mut(epoch).and_then(Spread::helper_mut);
        match helper.is_some_and(|helper| helper.parted.is_some()) {
            true => cx.out.to_router.push(Message::Parted { flow: self.id, epoch }),
            false => self.given_up = self.given_up.max(Some(epoch)),
        }
        self.spreads.retain(|spread| spread.epoch != epoch);
    }
}
