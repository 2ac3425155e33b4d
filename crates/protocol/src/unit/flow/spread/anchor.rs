//! The unit whose flow it is before and behind an epoch in which others help: it alone is told
//! everything.

use std::collections::VecDeque;

use crate::message::{Epoch, FlowId, FlowRecord, Header, Message, Targets, UnitId, Watermark};

use super::{Flow, Refused, Role, State};
use crate::unit::{BEGUN_MAX, Engine, TOLD_MAX, context::Context};

/// An epoch in which this unit is the anchor.
#[derive(Clone, Debug, Hash)]
pub(super) struct Anchor {
    /// Helpers that are to get the state that covers this clock and nothing behind it.
    share_with: Vec<(UnitId, u64)>,
    /// What the router has told of packets that the state does not cover, from this clock on.
    first: u64,
    told: VecDeque<Header>,
    /// Up to this clock they had to be forgotten.
    forgotten: u64,
    /// Once the router has told everything.
    end: Option<End>,
    /// Helpers that lack headers, and the clocks that the state has to cover for them.
    asking: Vec<(UnitId, u64)>,
}

/// The router has told everything.
#[derive(Clone, Copy, Debug, Hash)]
struct End {
    /// The epoch's last clock, and that of this unit's last packet.
    last: u64,
    own: u64,
    /// When that was.
    told_ns: u64,
}

/// A state that helpers began with.
#[derive(Clone, Debug, Hash)]
pub(in crate::unit::flow) struct Begun {
    epoch: Epoch,
    helpers: Vec<UnitId>,
    /// None: there are [`BEGUN_MAX`] later ones.
    record: Option<FlowRecord>,
    /// When the epoch was over here; none: it is not.
    over_ns: Option<u64>,
}

impl Anchor {
    /// Of an epoch that begins behind this clock.
    fn new(last: u64) -> Anchor {
        let (share_with, asking) = (Vec::new(), Vec::new());
        let (first, told) = (last.saturating_add(1), VecDeque::new());
        Anchor { share_with, first, told, forgotten: 0, end: None, asking }
    }

    /// The header with this clock, if the router has told it.
    pub fn told(&self, clock: u64) -> Option<&Header> {
        self.told.get(usize::try_from(clock.checked_sub(self.first)?).ok()?)
    }

    /// Adds what was told; how many had to be forgotten, as [`TOLD_MAX`] came behind them.
    fn tell(&mut self, headers: Vec<Header>) -> u64 {
        self.told.extend(headers);
        let forgotten = self.told.len().saturating_sub(TOLD_MAX);
        if forgotten > 0 {
            self.told.drain(..forgotten);
            self.first += forgotten as u64;
            self.forgotten = self.first - 1;
        }
        forgotten as u64
    }

    /// Headers up to this clock are not needed any more.
    fn forget_up_to(&mut self, clock: u64) {
        while self.first <= clock && self.told.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// How far to replay at once: a helper may be to begin with the state in between.
    pub fn stop(&self, covered: u64, until: u64) -> u64 {
        let begins = self.share_with.iter().map(|&(_, clock)| clock);
        begins.filter(|clock| (covered..until).contains(clock)).min().unwrap_or(until)
    }

    /// Whether packets that were overtaken are not waited for any more, as the epoch is over.
    pub fn is_closing<E: Engine>(&self, is_over: bool, cx: &Context<'_, E>) -> bool {
        self.end.is_some_and(|end| is_over || cx.is_due(end.told_ns))
    }

    /// When that is so.
    pub fn closes_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        Some(cx.waits_until(self.end?.told_ns))
    }
}

impl Flow {
    pub(super) fn anchored(&mut self, epoch: Epoch, last: u64) -> Option<&mut Anchor> {
        self.begun.retain(|begun| begun.epoch == epoch);
        self.spread_of(epoch, || Role::Anchor(Anchor::new(last))).anchor_mut()
    }

    /// Behind this clock helpers have packets of the flow, too, in an epoch that begins there, or
    /// has begun.
    pub fn spread<E: Engine>(
        &mut self,
        epoch: Epoch,
        last: u64,
        helpers: &Targets,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let anchor = self.anchored(epoch, last).ok_or(Refused)?;
        anchor.share_with.extend(helpers.units().iter().map(|&helper| (helper, last)));
        if !self.tenures.iter().any(|tenure| tenure.epoch == epoch) {
            let (previous, now_ns) = (cx.id(), cx.now_ns);
            self.succession(epoch, previous, last, cx)?.released_ns.get_or_insert(now_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// What packets of an epoch were like. If they are its last ones, `end` is the clock of this
    /// unit's own last one, and the next epoch is this unit's alone.
    pub fn told<E: Engine>(
        &mut self,
        epoch: Epoch,
        from: u64,
        headers: Vec<Header>,
        end: Option<u64>,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let next = epoch.checked_add(1).ok_or(Refused)?;
        let anchor = self.spread_mut(epoch).and_then(|spread| spread.anchor_mut()).ok_or(Refused)?;
        let expected = anchor.first.checked_add(anchor.told.len() as u64);
        let next_clock = from.checked_add(headers.len() as u64).ok_or(Refused)?;
        if expected != Some(from) {
            return Err(Refused); // The router's messages come in order.
        }
        cx.counters.told_forgotten += anchor.tell(headers);
        if let Some(own) = end {
            let last = next_clock - 1; // Clocks begin with 1.
            let (owner, told_ns) = (cx.id(), cx.now_ns);
            anchor.end = Some(End { last, own, told_ns });
            self.succession(next, owner, last, cx)?.released_ns.get_or_insert(told_ns);
        }
        self.pump(cx);
        Ok(())
    }

    /// A helper wants a state that covers this clock. If it says none, that which it was to begin
    /// with did not come: it is sent again, even when the epoch is over, so that nothing is past
    /// that waits for it.
    pub fn ask_for<E: Engine>(
        &mut self,
        epoch: Epoch,
        clock: Option<u64>,
        helper: UnitId,
        cx: &mut Context<'_, E>,
    ) {
        let is_its = |begun: &&Begun| begun.epoch == epoch && begun.helpers.contains(&helper);
        let its = self.begun.iter().find(is_its).filter(|_| clock.is_none());
        if let Some(record) = its.and_then(|begun| begun.record.as_ref()) {
            return cx.share(self.id, helper, epoch, record.clone());
        }
        let will_come = clock.is_none() && its.is_none();
        if self.is_behind(epoch) {
            return cx.out.to_units.push((helper, Message::Past { flow: self.id, epoch }));
        }
        let here = self.here_mut().filter(|(state, _)| state.epoch == epoch);
        match here.and_then(|(_, spread)| spread.anchor_mut()) {
            Some(anchor) if !will_come => {
                anchor.asking.retain(|(unit, _)| *unit != helper);
                anchor.asking.push((helper, clock.unwrap_or(0)));
                self.pump(cx);
            }
            _ => cx.counters.messages_stale += 1,
        }
    }

    /// Sends the state that is here to helpers that are to begin with it, and keeps it for as long
    /// as it may be asked for.
    pub(super) fn share<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some((state, spread)) = self.here_mut() else { return };
        let Some(anchor) = spread.anchor_mut().filter(|anchor| !anchor.share_with.is_empty()) else { return };
        let ready: Vec<_> =
            anchor.share_with.extract_if(.., |(_, clock)| state.mark.covers(*clock)).collect();
        if ready.is_empty() {
            return;
        }
        let (epoch, record) = (state.epoch, self.record(cx));
        let helpers: Vec<UnitId> = ready.into_iter().map(|(helper, _)| helper).collect();
        helpers.iter().for_each(|&helper| cx.share(self.id, helper, epoch, record.clone()));
        self.begun.push(Begun { epoch, helpers, record: Some(record), over_ns: None });
        if let Some(oldest) = self.begun.iter_mut().rev().nth(BEGUN_MAX) {
            oldest.record = None;
            cx.counters.beginnings_forgotten += 1;
        }
    }

    /// The state covers headers that had to be forgotten, without what their packets did: nobody
    /// else can bring it past them.
    pub(super) fn skip_forgotten(&mut self) {
        let Some((state, spread)) = self.here() else { return };
        let Some(anchor) = spread.anchor().filter(|anchor| state.mark.contiguous < anchor.forgotten) else {
            return;
        };
        self.state = Some(State { mark: Watermark::up_to(anchor.forgotten), ..state });
    }

    /// Epochs before this one are over here.
    pub(in crate::unit::flow) fn end_beginnings_before(&mut self, epoch: Epoch, now_ns: u64) {
        for begun in self.begun.iter_mut().filter(|begun| begun.epoch < epoch) {
            begun.over_ns.get_or_insert(now_ns);
        }
    }

    /// Until when is kept what helpers began with, once their epoch is over: for as long as one
    /// waits for it that was told to part.
    pub(in crate::unit::flow) fn begun_until_ns<E: Engine>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let over_ns = self.begun.last()?.over_ns?;
        Some(over_ns.saturating_add(cx.config.patience_ns()))
    }

    /// What follows once no packet can be processed: the state comes to the epoch's end, as soon as
    /// no packet of this unit can be under way; helpers that wait for it are answered.
    pub(super) fn close_anchored<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some((state, anchor)) = self.here().and_then(|(state, spread)| Some((state, spread.anchor()?)))
        else {
            return;
        };
        if let Some(end) = anchor.end
            && self.held.first_of(state.epoch, cx.hall).is_none()
            && (state.mark.covers(end.own) || anchor.is_closing(self.is_over(), cx))
        {
            self.replay(None, end.last, cx);
        }
        let Some((state, spread)) = self.here_mut() else { return };
        let Some(anchor) = spread.anchor_mut() else { return };
        anchor.forget_up_to(state.mark.contiguous);
        let ready: Vec<_> = anchor.asking.extract_if(.., |(_, clock)| state.mark.covers(*clock)).collect();
        for (helper, _) in ready {
            let record = self.record(cx);
            cx.share(self.id, helper, state.epoch, record);
        }
    }
}

impl<E: Engine> Context<'_, E> {
    fn share(&mut self, flow: FlowId, helper: UnitId, epoch: Epoch, record: FlowRecord) {
        self.counters.states_shared += 1;
        self.counters.state_bytes_shared += record.bytes.len() as u64;
        self.out.to_units.push((helper, Message::Share { flow, epoch, record }));
    }
}
