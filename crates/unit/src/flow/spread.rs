//! Epochs in which several units have a flow's packets in turn, each with the headers of those that the others have.
//!
//! The anchor is the unit whose flow it is in the epochs before and behind; the others are its helpers. Each has a state of its own, and
//! all states are the same at the same clock: what the router has numbered is replayed by who has not got it, lost or not.

use std::collections::VecDeque;

use proto::{Epoch, Header, History, Message, Stamp, Targets, UnitId, Watermark};

use super::{Asked, Flow, Refused, State};
use crate::{Dropped, Engine, context::Context, held::Waiting, tenure::Start};

/// An epoch in which other units have packets of the flow, too.
#[derive(Clone, Debug, Hash)]
pub(super) struct Spread {
    pub epoch: Epoch,
    role: Role,
    /// When the anchor's state was asked for last for want of headers, and how often before.
    asked: Option<(u64, u32)>,
    /// Up to this clock the state was the anchor's, made up for what was missing.
    lapsed: u64,
}

#[derive(Clone, Debug, Hash)]
enum Role {
    Anchor {
        /// Helpers that are to get the state that covers this clock and nothing behind it.
        share_with: Vec<(UnitId, u64)>,
        /// What the router has told of packets that the state does not cover, from this clock on.
        first: u64,
        told: VecDeque<Header>,
        /// The last clock of the epoch, once that is known.
        last: Option<u64>,
        /// Helpers that lack headers, and the clocks that the state has to cover for them.
        asking: Vec<(UnitId, u64)>,
    },
    Helper {
        /// The router will send nothing more.
        is_parted: bool,
    },
}

impl Spread {
    fn is_helper(&self) -> bool {
        matches!(self.role, Role::Helper { .. })
    }

    /// The header with this clock, if the router has told it.
    fn told(&self, clock: u64) -> Option<&Header> {
        let Role::Anchor { first, told, .. } = &self.role else { return None };
        told.get(usize::try_from(clock.checked_sub(*first)?).ok()?)
    }

    /// Headers up to this clock are not needed any more.
    fn forget_up_to(&mut self, clock: u64) {
        let Role::Anchor { first, told, .. } = &mut self.role else { return };
        while *first <= clock && told.pop_front().is_some() {
            *first += 1;
        }
    }

    /// How far to replay at once: a helper may be to begin with the state in between.
    fn stop(&self, covered: u64, until: u64) -> u64 {
        let Role::Anchor { share_with, .. } = &self.role else { return until };
        let between =
            share_with.iter().map(|&(_, clock)| clock).filter(|clock| (covered..until).contains(clock));
        between.min().unwrap_or(until)
    }

    fn last(&self) -> Option<u64> {
        match self.role {
            Role::Anchor { last, .. } => last,
            Role::Helper { .. } => None,
        }
    }
}

impl<P> Flow<P> {
    /// Whether other units have packets of this epoch, too.
    #[inline]
    pub(super) fn is_spread(&self, epoch: Epoch) -> bool {
        is_among(&self.spreads, epoch)
    }

    /// Whether the state that is here is one of several, which ends without a trace.
    pub(super) fn is_helping(&self) -> bool {
        self.here().is_some_and(|(_, spread)| spread.is_helper())
    }

    /// Whether anything of an epoch before this is here.
    pub fn is_of_before(&self, epoch: Epoch) -> bool {
        self.tenures.front().is_some_and(|first| first.epoch < epoch)
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

    fn anchored(&mut self, epoch: Epoch, last: u64) -> &mut Spread {
        let asking = Vec::new();
        let role = Role::Anchor {
            share_with: Vec::new(),
            first: last + 1,
            told: VecDeque::new(),
            last: None,
            asking,
        };
        self.spread_of(epoch, role)
    }

    fn spread_of(&mut self, epoch: Epoch, role: Role) -> &mut Spread {
        self.is_calm = false;
        let at = match self.spreads.iter().position(|spread| spread.epoch == epoch) {
            Some(at) => at,
            None => {
                self.spreads.push(Spread { epoch, role, asked: None, lapsed: 0 });
                self.spreads.len() - 1
            }
        };
        &mut self.spreads[at]
    }

    /// A packet of an epoch in which other units have packets, too.
    pub fn spread_packet<E: Engine<Packet = P>>(
        &mut self,
        stamp: Stamp,
        history: Box<History>,
        packet: P,
        cx: &mut Context<'_, E>,
    ) {
        let Start::From { previous, last } = stamp.handover.into() else {
            return cx.drop(Dropped::Refused, stamp, packet); // Somebody has had the flow before.
        };
        if self.state.is_none_or(|state| state.epoch != stamp.epoch) {
            if self.is_past(stamp.epoch) || self.has_left(stamp.epoch) {
                return cx.drop(Dropped::Old, stamp, packet);
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
            let reason = if stamp.clock <= spread.lapsed { Dropped::Lapsed } else { Dropped::Old };
            return cx.drop(reason, stamp, packet);
        }
        if self.held.has(stamp.clock) {
            return cx.drop(Dropped::Old, stamp, packet);
        }
        let is_full = self.held.len() >= cx.config.held_per_flow_max || *cx.held >= cx.config.held_max;
        if is_full && !self.is_next(&stamp, &history) {
            return cx.drop(Dropped::Full, stamp, packet);
        }
        *cx.held += 1;
        self.held.add(Waiting { stamp, packet, since_ns: cx.now_ns, history: Some(history) });
        self.pump(cx);
    }

    /// Whether the state can be brought to the packet before this one, and no other has to go before it.
    fn is_next(&self, stamp: &Stamp, history: &History) -> bool {
        self.here().is_some_and(|(state, spread)| {
            state.epoch == stamp.epoch
                && history.previous <= state.mark.contiguous
                && bridges(spread, history, state.mark.contiguous, stamp.clock)
        })
    }

    /// Notes an epoch in which this unit is the anchor, or a helper of `previous`.
    fn learn_spread<E: Engine<Packet = P>>(
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
        self.spread_of(epoch, Role::Helper { is_parted: false });
        let at = self.admit(epoch)?;
        self.tenures[at].start = Start::From { previous, last };
        Ok(())
    }

    /// Behind this clock helpers have packets of the flow, too, in an epoch that begins there, or has begun.
    pub fn spread<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        last: u64,
        helpers: &Targets,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        if let Role::Anchor { share_with, .. } = &mut self.anchored(epoch, last).role {
            share_with.extend(helpers.units().iter().map(|&helper| (helper, last)));
        }
        if !self.tenures.iter().any(|tenure| tenure.epoch == epoch) {
            let (previous, now_ns) = (cx.id(), cx.now_ns);
            self.succession(epoch, previous, last, cx)?.released_ns.get_or_insert(now_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// What packets of an epoch were like; if they are its last ones, the next epoch is this unit's alone.
    pub fn told<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        from: u64,
        headers: Vec<Header>,
        is_last: bool,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let spread = self.spreads.iter_mut().find(|spread| spread.epoch == epoch).ok_or(Refused)?;
        let Role::Anchor { first, told, last, .. } = &mut spread.role else { return Err(Refused) };
        if from != *first + told.len() as u64 {
            return Err(Refused); // The router's messages come in order.
        }
        told.extend(headers);
        let until = *first + told.len() as u64 - 1;
        if is_last {
            *last = Some(until);
            let (owner, now_ns) = (cx.id(), cx.now_ns);
            self.succession(epoch + 1, owner, until, cx)?.released_ns.get_or_insert(now_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// The anchor's state has come. Even if nothing has been heard of that epoch yet: the sender has it from the router. It is of use if
    /// none is here, or if packets wait whose headers are not here; then what it covers is past.
    pub fn shared<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        record: &proto::FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let is_newer = self.state.is_none_or(|state| {
            let clock = record.watermark.contiguous;
            let is_wanted = || self.is_stuck(cx) || self.lacking().is_some_and(|stamp| clock < stamp.clock);
            state.epoch < epoch || state.mark.contiguous < clock && is_wanted()
        });
        if !is_newer || self.is_past(epoch + 1) || self.has_left(epoch) {
            cx.counters.messages_stale += 1;
            return Ok(());
        }
        self.admit(epoch)?;
        let begins = self.state.is_none_or(|state| state.epoch < epoch);
        let spread = self.spread_of(epoch, Role::Helper { is_parted: false });
        spread.asked = None;
        if !begins {
            spread.lapsed = record.watermark.contiguous;
        }
        if !self.restore(&record.bytes, cx) {
            cx.counters.states_unreadable += 1;
            return Ok(());
        }
        cx.counters.states_taken += 1;
        self.take(epoch, Watermark::up_to(record.watermark.contiguous), cx);
        self.pump(cx);
        Ok(())
    }

    /// A helper wants a state that covers this clock; stale if the state here is not one of that epoch.
    pub fn ask_for<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        clock: u64,
        helper: UnitId,
        cx: &mut Context<'_, E>,
    ) {
        if let Some((_, Spread { epoch: of, role: Role::Anchor { asking, .. }, .. })) = self.here_mut()
            && *of == epoch
            && !asking.contains(&(helper, clock))
        {
            asking.retain(|(unit, _)| *unit != helper);
            asking.push((helper, clock));
        } else {
            cx.counters.messages_stale += 1;
        }
        self.pump(cx);
    }

    /// Nothing of this epoch will come any more; from the anchor (`at_once`): no state either. False if this unit is no helper in it.
    pub fn part<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        at_once: bool,
        cx: &mut Context<'_, E>,
    ) -> bool {
        let spread = self.spreads.iter_mut().find(|spread| spread.epoch == epoch);
        let Some(Role::Helper { is_parted }) = spread.map(|spread| &mut spread.role) else {
            self.ended = self.ended.max(Some(epoch)); // Should anything of it come after all, it is late.
            return false;
        };
        if at_once {
            self.leave_spread(epoch, cx);
        } else {
            *is_parted = true;
            self.pump_spread(cx);
        }
        true
    }

    /// Sends the state that is here to helpers that are to begin with it.
    fn share<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        if let Some((state, Spread { role: Role::Anchor { share_with, .. }, .. })) = self.here_mut()
            && !share_with.is_empty()
        {
            let ready: Vec<_> = share_with.extract_if(.., |(_, clock)| state.mark.covers(*clock)).collect();
            ready.into_iter().for_each(|(helper, _)| self.share_to(helper, cx));
        }
    }

    fn share_to<E: Engine<Packet = P>>(&self, helper: UnitId, cx: &mut Context<'_, E>) {
        let Some(State { epoch, .. }) = self.state else { return };
        let record = self.record(cx);
        cx.counters.states_shared += 1;
        cx.counters.state_bytes_shared += record.bytes.len() as u64;
        cx.out.to_units.push((helper, Message::Share { flow: self.id, epoch, record }));
    }

    /// Does all that can be done now in the epoch of the state, if it is spread: processes packets of this unit, and replays those before
    /// them.
    pub(super) fn pump_spread<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        loop {
            self.share(cx);
            let Some((state, spread)) = self.here() else { return };
            let (epoch, mark, last) = (state.epoch, state.mark.contiguous, spread.last());
            let Some((stamp, history)) = self.held.first_history(epoch) else { break };
            if mark < stamp.clock {
                let is_due = last.is_some()
                    || self.held.len() >= cx.config.held_per_flow_max
                    || self
                        .held
                        .oldest_of(epoch)
                        .is_some_and(|ns| ns.saturating_add(cx.config.order_ns) <= cx.now_ns);
                let may_go = history.previous <= mark || is_due;
                if !may_go || !bridges(spread, history, mark, stamp.clock) {
                    break;
                }
            }
            let Some(waiting) = self.held.take_up_to(stamp.clock) else { break };
            *cx.held -= 1;
            if mark >= waiting.stamp.clock {
                cx.drop(Dropped::Lapsed, waiting.stamp, waiting.packet);
                continue;
            }
            let until = waiting.stamp.clock - 1;
            self.replay(waiting.history.as_deref(), until, cx);
            cx.counters.held_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(waiting.stamp, waiting.packet, cx);
        }
        self.close_spread(cx);
    }

    /// What follows once no packet can be processed: the anchor comes to the epoch's end, answers helpers; a helper asks, or forgets.
    fn close_spread<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some((state, spread)) = self.here() else { return };
        let has_held = self.held.first_of(state.epoch).is_some();
        if let Some(last) = spread.last().filter(|_| !has_held) {
            self.replay(None, last, cx);
        }
        let Some((state, spread)) = self.here_mut() else { return };
        spread.forget_up_to(state.mark.contiguous);
        match &mut spread.role {
            Role::Anchor { asking, .. } => {
                let ready: Vec<_> = asking.extract_if(.., |(_, clock)| state.mark.covers(*clock)).collect();
                ready.into_iter().for_each(|(helper, _)| self.share_to(helper, cx));
            }
            Role::Helper { is_parted: true } if !has_held => self.leave_spread(state.epoch, cx),
            Role::Helper { .. } => {
                if self.is_stuck(cx) && self.ask_share_ns(cx).is_none_or(|ns| ns <= cx.now_ns) {
                    self.ask_share(cx);
                }
            }
        }
    }

    /// Replays what the state does not cover up to this clock; the caller has seen to it that all of that is here.
    fn replay<E: Engine<Packet = P>>(
        &mut self,
        history: Option<&History>,
        until: u64,
        cx: &mut Context<'_, E>,
    ) {
        loop {
            let Some((state, spread)) = self.here() else { return };
            let (begin, stop) = (state.mark.contiguous, spread.stop(state.mark.contiguous, until));
            let mut clock = begin;
            while clock < stop
                && let Some(header) =
                    history.and_then(|history| history.get(clock + 1)).or_else(|| spread.told(clock + 1))
            {
                clock += 1;
                cx.counters.replayed += 1;
                cx.engine.replay(cx.now_ns, self.id, clock, header);
            }
            self.state = Some(State { mark: Watermark::up_to(clock), ..state });
            self.share(cx);
            if clock == begin || clock >= until {
                return;
            }
        }
    }

    /// Whether a packet of this helper has waited for long enough, and cannot be processed for want of headers.
    fn is_stuck<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> bool {
        let is_due = |ns: u64| ns.saturating_add(cx.config.order_ns) <= cx.now_ns;
        self.lacking().is_some_and(|stamp| self.held.oldest_of(stamp.epoch).is_some_and(is_due))
    }

    /// The first packet that waits at this helper, if headers of packets before it are missing.
    fn lacking(&self) -> Option<Stamp> {
        let (state, spread) = self.here().filter(|(_, spread)| spread.is_helper())?;
        let (stamp, history) = self.held.first_history(state.epoch)?;
        (!bridges(spread, history, state.mark.contiguous, stamp.clock)).then_some(stamp)
    }

    /// When the anchor's state is to be asked for once more; none: it was not asked for.
    fn ask_share_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (at_ns, times) = self.here()?.1.asked?;
        Some(at_ns.saturating_add(cx.config.again_ns(times)))
    }

    /// Asks the anchor for a state that makes up for what is missing.
    fn ask_share<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some((state, _)) = self.here() else { return };
        let wanted = self.held.first_history(state.epoch).map(|(_, history)| history.first - 1);
        let anchor = self.find(state.epoch).and_then(|tenure| match tenure.start {
            Start::From { previous, .. } => Some(previous),
            _ => None,
        });
        let (flow, now_ns) = (self.id, cx.now_ns);
        let (Some(last), Some(anchor), Some((_, spread))) = (wanted, anchor, self.here_mut()) else { return };
        spread.asked = Some((now_ns, spread.asked.map_or(0, |(_, times)| times.saturating_add(1))));
        cx.counters.shares_asked += 1;
        cx.out.to_units.push((anchor, Message::Ask { flow, epoch: state.epoch, last }));
    }

    /// When something is due for a spread epoch whose state is here: a packet has waited for long enough for those before it, or the
    /// anchor's state is to be asked for once more.
    pub(super) fn spread_due_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (state, spread) = self.here()?;
        let due_ns = self.held.oldest_of(state.epoch)?.saturating_add(cx.config.order_ns);
        match due_ns > cx.now_ns {
            true => Some(due_ns),
            false if spread.is_helper() => self.ask_share_ns(cx),
            // What is missing is told.
            false => None,
        }
    }

    /// The first tenure's state is to be asked for once more, and is that of a spread epoch: then it is the anchor that shares it.
    pub(super) fn ask_again_for_share<E: Engine<Packet = P>>(
        &mut self,
        (epoch, anchor, last): (Epoch, UnitId, u64),
        cx: &mut Context<'_, E>,
    ) {
        let times = self.asked.map_or(0, |asked| asked.times.saturating_add(1));
        self.asked = Some(Asked { epoch, at_ns: cx.now_ns, times });
        let last = self.held.first_history(epoch).map_or(last, |(_, history)| history.first - 1);
        cx.counters.shares_asked += 1;
        cx.out.to_units.push((anchor, Message::Ask { flow: self.id, epoch, last }));
    }

    /// This helper has done with the epoch: nothing of it is left.
    fn leave_spread<E: Engine<Packet = P>>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        while self.held.first_of(epoch).is_some()
            && let Some(waiting) = self.held.take()
        {
            *cx.held -= 1;
            cx.drop(Dropped::Lapsed, waiting.stamp, waiting.packet);
        }
        if self.state.take_if(|state| state.epoch == epoch).is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        self.tenures.retain(|tenure| tenure.epoch != epoch);
        let spread = self.spreads.extract_if(.., |spread| spread.epoch == epoch).next();
        self.ended = self.ended.max(Some(epoch));
        if let Some(Role::Helper { is_parted: true }) = spread.map(|spread| spread.role) {
            cx.out.to_router.push(Message::Parted { flow: self.id, epoch });
        }
    }

    /// Forgets spread epochs before this one.
    #[inline]
    pub(super) fn forget_spreads_before(&mut self, epoch: Epoch) {
        if !self.spreads.is_empty() {
            self.spreads.retain(|spread| spread.epoch >= epoch);
        }
    }
}

/// Whether one of these is this epoch.
#[inline]
pub(super) fn is_among(spreads: &[Spread], epoch: Epoch) -> bool {
    spreads.iter().any(|spread| spread.epoch == epoch)
}

/// Whether the headers of all packets behind a clock and before another are here.
fn bridges(spread: &Spread, history: &History, covered: u64, clock: u64) -> bool {
    let missing = covered + 1..history.first.min(clock);
    missing.is_empty() || (spread.told(missing.start).is_some() && spread.told(missing.end - 1).is_some())
}
