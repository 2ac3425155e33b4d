//! Epochs in which several units have a flow's packets in turn, each with the headers of those that
//! the others have.
//!
//! The anchor is the unit whose flow it is in the epochs before and behind; the others are its
//! helpers. Each has a state of its own, and all states are the same at the same clock: what the
//! router has numbered is replayed by who has not got it, lost or not.

mod anchor;
mod helper;

use crate::message::{Epoch, FlowId, Header, History, Stamp, UnitId, Watermark};

use self::anchor::Anchor;
pub(super) use self::anchor::Begun;
use self::helper::Helper;
use super::{Flow, Refused, State};
use crate::unit::{Dropped, Engine, Unreplayable, context::Context, held::Waiting, tenure::Start};

/// An epoch in which other units have packets of the flow, too.
#[derive(Clone, Debug, Hash)]
pub(super) struct Spread {
    pub epoch: Epoch,
    role: Role,
}

#[derive(Clone, Debug, Hash)]
enum Role {
    Anchor(Anchor),
    Helper(Helper),
}

impl Spread {
    fn anchor(&self) -> Option<&Anchor> {
        if let Role::Anchor(anchor) = &self.role { Some(anchor) } else { None }
    }

    fn anchor_mut(&mut self) -> Option<&mut Anchor> {
        if let Role::Anchor(anchor) = &mut self.role { Some(anchor) } else { None }
    }

    fn helper(&self) -> Option<&Helper> {
        if let Role::Helper(helper) = &self.role { Some(helper) } else { None }
    }

    fn helper_mut(&mut self) -> Option<&mut Helper> {
        if let Role::Helper(helper) = &mut self.role { Some(helper) } else { None }
    }

    /// The header with this clock, if the router has told it.
    fn told(&self, clock: u64) -> Option<&Header> {
        self.anchor()?.told(clock)
    }

    /// Whether the headers of all packets behind a clock and before another are here.
    fn bridges(&self, history: &History, covered: u64, clock: u64) -> bool {
        let missing = covered.saturating_add(1)..history.first.min(clock);
        missing.is_empty() || (self.told(missing.start).is_some() && self.told(missing.end - 1).is_some())
    }
}

impl Flow {
    /// Whether other units have packets of this epoch, too.
    #[inline]
    pub(super) fn is_spread(&self, epoch: Epoch) -> bool {
        is_among(&self.spreads, epoch)
    }

    /// Whether the state that is here is one of several, which ends without a trace.
    pub(super) fn is_helping(&self) -> bool {
        self.here().is_some_and(|(_, spread)| spread.helper().is_some())
    }

    fn has_left(&self, epoch: Epoch) -> bool {
        self.ended.is_some_and(|ended| epoch <= ended)
    }

    /// The state that is here, if other units have packets of its epoch, too.
    fn here(&self) -> Option<(State, &Spread)> {
        let state = self.state.filter(|_| !self.spreads.is_empty())?;
        Some((state, self.spreads.iter().find(|spread| spread.epoch == state.epoch)?))
    }

    fn here_mut(&mut self) -> Option<(State, &mut Spread)> {
        let state = self.state.filter(|_| !self.spreads.is_empty())?;
        Some((state, self.spreads.iter_mut().find(|spread| spread.epoch == state.epoch)?))
    }

    fn spread_mut(&mut self, epoch: Epoch) -> Option<&mut Spread> {
        self.spreads.iter_mut().find(|spread| spread.epoch == epoch)
    }

    /// The epoch as it is known; with this role if it is not.
    fn spread_of(&mut self, epoch: Epoch, role: impl FnOnce() -> Role) -> &mut Spread {
        self.is_calm = false;
        let at = match self.spreads.iter().position(|spread| spread.epoch == epoch) {
            Some(at) => at,
            None => {
                self.spreads.push(Spread { epoch, role: role() });
                self.spreads.len() - 1
            }
        };
        &mut self.spreads[at]
    }

    /// A packet of an epoch in which other units have packets, too; its clock and its history fit
    /// together.
    pub fn spread_packet<E: Engine>(
        &mut self,
        stamp: Stamp,
        history: Box<History>,
        packet: E::Packet,
        cx: &mut Context<'_, E>,
    ) {
        let Start::From { previous, last } = stamp.handover.into() else {
            return cx.drop(Dropped::Refused, stamp, packet); // Somebody has had the flow before.
        };
        if self.state.is_none_or(|state| state.epoch != stamp.epoch) {
            if self.is_past(stamp.epoch) || self.has_left(stamp.epoch) {
                let has_lapsed = self.given_up == Some(stamp.epoch);
                return cx.drop(if has_lapsed { Dropped::Lapsed } else { Dropped::Old }, stamp, packet);
            }
            if self.learn_spread(stamp.epoch, previous, last, cx).is_err() {
                return cx.drop(Dropped::Refused, stamp, packet);
            }
        }
        if let Ok(at) = self.tenures.binary_search_by_key(&stamp.epoch, |tenure| tenure.epoch)
            && self.tenures[at].start == Start::Unknown
        {
            self.tenures[at].start = Start::From { previous, last }; // The state came first.
        }
        if let Some((state, spread)) = self.here()
            && state.epoch == stamp.epoch
            && state.mark.covers(stamp.clock)
        {
            let has_lapsed = spread.helper().is_some_and(|helper| helper.has_lapsed(stamp.clock));
            return cx.drop(if has_lapsed { Dropped::Lapsed } else { Dropped::Old }, stamp, packet);
        }
        let may_come = self.find(stamp.epoch).is_some_and(|tenure| tenure.may_have(stamp.clock));
        if !may_come || self.held.has(stamp.clock, cx.hall) {
            return cx.drop(Dropped::Old, stamp, packet);
        }
        let is_full =
            self.held.len() >= cx.config.held_per_flow_max || cx.hall.packets() >= cx.config.held_max;
        if is_full && !self.is_next(&stamp, &history) {
            return cx.drop(Dropped::Full, stamp, packet);
        }
        self.held.add(Waiting { stamp, packet, since_ns: cx.now_ns, history: Some(history) }, cx.hall);
        self.pump(cx);
    }

    /// Whether the state can be brought to the packet before this one, and no other has to go
    /// before it.
    fn is_next(&self, stamp: &Stamp, history: &History) -> bool {
        self.here().is_some_and(|(state, spread)| {
            state.epoch == stamp.epoch
                && history.previous <= state.mark.contiguous
                && spread.bridges(history, state.mark.contiguous, stamp.clock)
        })
    }

    /// Notes an epoch in which this unit is the anchor, or a helper of `previous`.
    fn learn_spread<E: Engine>(
        &mut self,
        epoch: Epoch,
        previous: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        if previous == cx.id() {
            self.anchored(epoch, last);
            return self.learn(epoch, Start::From { previous, last }, cx);
        }
        let at = self.admit(epoch)?;
        self.tenures[at].start = Start::From { previous, last };
        self.helped(epoch);
        Ok(())
    }

    /// Does all that can be done now in the epoch of the state, if it is spread: processes packets
    /// of this unit, and replays those before them. What is over for a helper is left.
    pub(super) fn pump_spread<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        while let Some((stamp, mark)) = self.next_spread(cx) {
            let Some(waiting) = self.held.take_up_to(stamp.clock, cx.hall) else { break };
            if mark >= stamp.clock {
                cx.drop(Dropped::Lapsed, stamp, waiting.packet);
                continue;
            }
            self.replay(waiting.history.as_deref(), stamp.clock - 1, cx);
            cx.counters.held_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(stamp, waiting.packet, cx);
        }
        self.close_anchored(cx);
        self.see_to_help(cx);
    }

    /// The packet to be taken next, and what the state covers; none if none can be.
    fn next_spread<E: Engine>(&mut self, cx: &mut Context<'_, E>) -> Option<(Stamp, u64)> {
        self.skip_forgotten();
        self.share(cx);
        self.refuse_plain(cx);
        let (state, spread) = self.here()?;
        let mark = state.mark.contiguous;
        let (stamp, history) = self.held.first_history(state.epoch, cx.hall)?;
        if mark >= stamp.clock {
            return Some((stamp, mark));
        }
        let has_waited = || {
            spread.anchor().is_some_and(|anchor| anchor.is_closing(self.is_over(), cx))
                || self.held.len() >= cx.config.held_per_flow_max
                || self.held.oldest_of(state.epoch, cx.hall).is_some_and(|since_ns| cx.is_due(since_ns))
        };
        let may_go = history.previous <= mark || has_waited();
        (may_go && spread.bridges(history, mark, stamp.clock)).then_some((stamp, mark))
    }

    /// Drops packets without a history that came before it was known that their epoch is spread.
    fn refuse_plain<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(epoch) = self.here().map(|(state, _)| state.epoch) else { return };
        while let Some(waiting) = self.held.take_plain(epoch, cx.hall) {
            cx.drop(Dropped::Refused, waiting.stamp, waiting.packet);
        }
    }

    /// Replays what the state does not cover up to this clock; the caller has seen to it that all
    /// of that is here.
    fn replay<E: Engine>(&mut self, history: Option<&History>, until: u64, cx: &mut Context<'_, E>) {
        loop {
            let Some((state, spread)) = self.here() else { return };
            let begin = state.mark.contiguous;
            let stop = spread.anchor().map_or(until, |anchor| anchor.stop(begin, until));
            let mut clock = begin;
            while clock < stop
                && let Some(header) =
                    history.and_then(|history| history.get(clock + 1)).or_else(|| spread.told(clock + 1))
            {
                clock += 1;
                cx.replay(self.id, clock, header);
            }
            self.state = Some(State { mark: Watermark::up_to(clock), ..state });
            self.share(cx);
            if clock == begin || clock >= until {
                return;
            }
        }
    }

    /// When something is due for epochs that are spread: in that of the state a packet has waited
    /// for long enough for those before it, or nothing more comes; or a helper is to ask, or to go.
    pub(super) fn spread_due_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        if self.spreads.is_empty() {
            return None;
        }
        let here = self.here();
        let held_ns = here
            .and_then(|(state, _)| self.held.oldest_of(state.epoch, cx.hall))
            .map(|ns| cx.waits_until(ns));
        let closes_ns = here.and_then(|(_, spread)| spread.anchor()?.closes_ns(cx));
        let times = [held_ns, closes_ns, self.asks_ns(cx), self.leaves_ns(cx)];
        times.into_iter().flatten().filter(|&due_ns| due_ns > cx.now_ns).min()
    }

    /// Forgets spread epochs before this one.
    #[inline]
    pub(super) fn forget_spreads_before(&mut self, epoch: Epoch) {
        if !self.spreads.is_empty() {
            self.spreads.retain(|spread| spread.epoch >= epoch);
        }
    }
}

impl<E: Engine> Context<'_, E> {
    /// Until when what waits since then waits for what it may have overtaken.
    pub fn waits_until(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.config.order_ns)
    }

    /// Whether it has waited for long enough.
    pub fn is_due(&self, since_ns: u64) -> bool {
        self.waits_until(since_ns) <= self.now_ns
    }

    fn replay(&mut self, flow: FlowId, clock: u64, header: &Header) {
        match self.engine.replay(self.now_ns, flow, clock, header) {
            Ok(()) => self.counters.replayed += 1,
            Err(Unreplayable) => self.counters.unreplayable += 1,
        }
    }
}

/// Whether one of these is this epoch.
#[inline]
pub(super) fn is_among(spreads: &[Spread], epoch: Epoch) -> bool {
    spreads.iter().any(|spread| spread.epoch == epoch)
}
