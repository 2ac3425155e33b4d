//! One flow at one unit.

use std::hash::{Hash, Hasher};

use proto::{Epoch, FlowId, FlowRecord, Message, Stamp, Targets, UnitId, Watermark};

use crate::{
    Dropped, Engine, OFFER_AFTER_ORDERS, TENURES_MAX,
    context::Context,
    held::{Held, Waiting},
    replicas::is_exact,
    slot::Gone,
    tenure::{Next, Start, Tenure},
    timers::NEVER_NS,
};

/// One flow at one unit: the epochs that the unit is the owner of and has not done with, the state of the first of them if
/// it is here, and the packets that wait.
#[derive(Clone, Debug)]
pub(crate) struct Flow<P> {
    id: FlowId,
    /// In the order of their epochs.
    tenures: Vec<Tenure>,
    /// If there is one, it is that of the first tenure.
    state: Option<State>,
    held: Held<P>,
    /// Where a copy is to go: what the last packet says (S54).
    targets: Targets,
    /// When the last packet was processed, or else the state came.
    seen_ns: u64,
    /// The clock that the last copy covers.
    copied: u64,
    /// When the flow's end was proposed last.
    proposed_ns: Option<u64>,
}

/// The state that is here.
#[derive(Clone, Copy, Debug, Hash)]
struct State {
    epoch: Epoch,
    /// Always whole: packets are processed in order, and what is given up counts as covered (DESIGN 3.4).
    mark: Watermark,
}

/// No more epochs of a flow are remembered.
pub(crate) struct Refused;

impl<P> Flow<P> {
    pub fn new(id: FlowId) -> Flow<P> {
        Flow {
            id,
            tenures: Vec::new(),
            state: None,
            held: Held::default(),
            targets: Targets::NONE,
            seen_ns: 0,
            copied: 0,
            proposed_ns: None,
        }
    }

    /// Whether the unit has nothing to do with the flow any more.
    pub fn is_done(&self) -> bool {
        self.tenures.is_empty()
    }

    /// Whether the state here is this epoch's, or a later one's.
    pub fn is_past(&self, epoch: Epoch) -> bool {
        self.state.is_some_and(|state| epoch <= state.epoch)
    }

    /// Whether the state that is here, or one that is awaited, covers this clock.
    pub fn covers(&self, clock: u64) -> bool {
        self.state.is_some_and(|state| state.mark.covers(clock))
            || self.tenures.iter().any(|tenure| tenure.starts_at_or_behind(clock))
    }

    /// Whose the state is that is here and has not been released, and what it covers.
    pub fn owned(&self) -> Option<(Epoch, Watermark)> {
        let tenure = self.tenures.first()?;
        self.state.filter(|_| tenure.next.is_none()).map(|state| (state.epoch, state.mark))
    }

    /// A packet of an epoch that is this unit's.
    pub fn packet<E: Engine<Packet = P>>(&mut self, stamp: Stamp, packet: P, cx: &mut Context<'_, E>) {
        if self.state.is_none_or(|state| state.epoch != stamp.epoch) {
            if self.is_past(stamp.epoch) {
                return cx.drop(Dropped::Old, stamp, packet);
            }
            if self.learn(stamp.epoch, stamp.handover.into(), cx).is_err() {
                return cx.drop(Dropped::Refused, stamp, packet);
            }
            self.pump(cx);
        }
        let may_come = self.find(stamp.epoch).is_some_and(|tenure| tenure.may_have(stamp.clock));
        if !may_come || self.held.has(stamp.clock) {
            return cx.drop(Dropped::Old, stamp, packet);
        }
        match self.state.filter(|state| state.epoch == stamp.epoch) {
            Some(state) if state.mark.covers(stamp.clock) => cx.drop(Dropped::Old, stamp, packet),
            Some(state) if stamp.clock == state.mark.contiguous + 1 => {
                self.process(stamp, packet, cx);
                self.pump(cx);
            }
            _ => self.hold(stamp, packet, cx),
        }
    }

    /// The unit is the owner of this epoch, even if there is no packet.
    pub fn adopt<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        start: Start,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        self.learn(epoch, start, cx)?;
        self.pump(cx);
        Ok(())
    }

    /// The owner of this epoch is another unit, and no packet of the one before comes any more.
    pub fn release<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let now_ns = cx.now_ns;
        self.succession(epoch, owner, last, cx)?.released_ns.get_or_insert(now_ns);
        self.pump(cx);
        Ok(())
    }

    /// The owner of this epoch wants the state.
    pub fn pull<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        self.succession(epoch, owner, last, cx)?.asked = true;
        self.pump(cx);
        Ok(())
    }

    /// Asks once more for every state that is awaited.
    pub fn pull_again<E: Engine<Packet = P>>(&self, cx: &mut Context<'_, E>) {
        let awaited = self.tenures.iter().filter(|tenure| !self.is_past(tenure.epoch));
        for tenure in awaited {
            if let Start::From { previous, last } = tenure.start
                && previous != cx.id()
            {
                self.ask(previous, tenure.epoch, last, cx);
            }
        }
    }

    /// The state that an epoch begins with has come. Even if nothing has been heard of that epoch yet: the sender has it from
    /// the router.
    pub fn state<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        record: &FlowRecord,
        from: UnitId,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let at = self.admit(epoch)?;
        if !self.restore(&record.bytes, cx) {
            cx.counters.states_unreadable += 1;
            return Ok(());
        }
        let mut mark = record.watermark;
        let last = match self.tenures[at].start {
            Start::From { last, .. } => last,
            Start::Unknown | Start::Null => 0,
        };
        cx.counters.given_up += mark.give_up_to(last.max(mark.highest()));
        cx.counters.states_taken += 1;
        self.take(epoch, mark, cx);
        cx.out.to_units.push((from, Message::Taken { flow: self.id, epoch }));
        self.pump(cx);
        Ok(())
    }

    /// A copy has come: it is used if it is just what is awaited (S53), and given back otherwise.
    pub fn replica<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        record: FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Option<FlowRecord> {
        let found = self.tenures.iter().rev().find_map(|tenure| match tenure.start {
            Start::From { previous, last } if tenure.epoch > epoch && is_exact(&record, last) => {
                Some((tenure.epoch, previous)).filter(|_| previous != cx.id() && !self.is_past(tenure.epoch))
            }
            _ => None,
        });
        let Some((epoch, previous)) = found.filter(|_| self.restore(&record.bytes, cx)) else {
            return Some(record);
        };
        cx.counters.overtaken += 1;
        self.take(epoch, record.watermark, cx);
        cx.out.to_units.push((previous, Message::Taken { flow: self.id, epoch }));
        self.pump(cx);
        None
    }

    /// The owner of this epoch has the state. What waits for an earlier one goes there.
    pub fn leave<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        cx: &mut Context<'_, E>,
    ) -> Gone {
        let said =
            self.tenures.iter().find(|tenure| tenure.epoch + 1 == epoch).and_then(|tenure| tenure.next);
        let covered = self.state.map_or(0, |state| state.mark.contiguous);
        let gone = Gone { epoch, owner, last: said.map_or(covered, |next| next.last) };
        self.tenures.retain(|tenure| tenure.epoch >= epoch);
        if self.state.take().is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        while let Some(waiting) = self.held.take_before(epoch) {
            *cx.held -= 1;
            gone.forward(waiting.stamp, waiting.packet, cx);
        }
        gone
    }

    /// The flow is over. Only its owner gives back what it took.
    pub fn end<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        if self.state.is_some() {
            let is_owner = self.owned().is_some();
            cx.engine.forget(cx.now_ns, self.id, is_owner);
        }
        if self.proposed_ns.is_some() {
            cx.counters.expiries_accepted += 1;
        }
        while let Some(waiting) = self.held.take() {
            *cx.held -= 1;
            cx.drop(Dropped::Ended, waiting.stamp, waiting.packet);
        }
    }

    /// When something is to be done without a message or a packet.
    pub fn due_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> u64 {
        let Some((state, tenure)) = self.state.zip(self.tenures.first()) else { return NEVER_NS };
        let gap_ns = self.held.oldest_of(state.epoch).map(|ns| ns.saturating_add(cx.config.order_ns));
        let times = match tenure.next {
            Some(next) if state.mark.covers(next.last) => [self.offer_ns(cx), None, None],
            Some(next) => [gap_ns, next.released_ns.map(|ns| ns.saturating_add(cx.config.order_ns)), None],
            None => [gap_ns, self.copy_ns(cx), self.expiry_ns(cx)],
        };
        times.into_iter().flatten().min().unwrap_or(NEVER_NS)
    }

    /// Does what is due.
    pub fn advance<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        self.pump(cx);
        let is_due = |ns: Option<u64>| ns.is_some_and(|ns| ns <= cx.now_ns);
        if is_due(self.offer_ns(cx)) {
            cx.counters.states_offered += 1;
            self.answer(cx);
        } else if is_due(self.copy_ns(cx)) {
            self.copy_ahead(cx);
        }
        if self.expiry_ns(cx).is_some_and(|ns| ns <= cx.now_ns) {
            self.propose_end(cx);
        }
    }
}

/// Of which epochs the unit is the owner.
impl<P> Flow<P> {
    fn find(&self, epoch: Epoch) -> Option<&Tenure> {
        let at = self.tenures.binary_search_by_key(&epoch, |tenure| tenure.epoch).ok()?;
        self.tenures.get(at)
    }

    /// Where an epoch's tenure is; it is made if there is none.
    fn admit(&mut self, epoch: Epoch) -> Result<usize, Refused> {
        match self.tenures.binary_search_by_key(&epoch, |tenure| tenure.epoch) {
            Ok(at) => Ok(at),
            Err(_) if self.tenures.len() >= TENURES_MAX => Err(Refused),
            Err(at) => {
                self.tenures.insert(at, Tenure::new(epoch));
                Ok(at)
            }
        }
    }

    /// Notes an epoch, and where it starts. Once that is known the state is fetched.
    fn learn<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        start: Start,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        let at = self.admit(epoch)?;
        // The first owner needs not be told.
        let start = if epoch == 1 { Start::Null } else { start };
        let tenure = &mut self.tenures[at];
        if tenure.start == Start::Unknown && start != Start::Unknown {
            tenure.start = start;
            self.begin(epoch, start, cx)?;
        }
        Ok(())
    }

    /// Gets the state that an epoch starts with, or sees to it that it comes (S49, S60).
    fn begin<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        start: Start,
        cx: &mut Context<'_, E>,
    ) -> Result<(), Refused> {
        match start {
            Start::Unknown => {}
            Start::Null => {
                let mark = self.state.map(|state| state.mark).unwrap_or_default();
                if self.restore(&[], cx) {
                    self.take(epoch, mark, cx);
                }
            }
            // Nothing of the epoch before comes behind this on the way here: it is released.
            Start::From { previous, last } if previous == cx.id() => {
                let now_ns = cx.now_ns;
                self.succession(epoch, previous, last, cx)?.released_ns.get_or_insert(now_ns);
            }
            Start::From { previous, last } => {
                let copy = cx.replicas.take_exact(self.id.slot, last);
                if let Some(record) = copy {
                    if self.restore(&record.bytes, cx) {
                        cx.counters.seamless += 1;
                        self.take(epoch, record.watermark, cx);
                        cx.out.to_units.push((previous, Message::Taken { flow: self.id, epoch }));
                        return Ok(());
                    }
                    cx.counters.replicas_refused += 1;
                }
                self.ask(previous, epoch, last, cx);
            }
        }
        Ok(())
    }

    fn ask<E: Engine<Packet = P>>(&self, previous: UnitId, epoch: Epoch, last: u64, cx: &mut Context<'_, E>) {
        cx.counters.pulls_sent += 1;
        cx.out.to_units.push((previous, Message::Pull { flow: self.id, epoch, last }));
    }

    /// Notes who is the owner of an epoch: this unit was that of the one before. It may be this one again.
    fn succession<E: Engine<Packet = P>>(
        &mut self,
        epoch: Epoch,
        owner: UnitId,
        last: u64,
        cx: &mut Context<'_, E>,
    ) -> Result<&mut Next, Refused> {
        if epoch < 2 {
            return Err(Refused);
        }
        if owner == cx.id() {
            let at = self.admit(epoch)?;
            self.tenures[at].start = Start::From { previous: owner, last };
        }
        self.learn(epoch - 1, Start::Unknown, cx)?;
        let at = self.admit(epoch - 1)?;
        Ok(self.tenures[at].next.get_or_insert(Next::new(owner, last)))
    }

    /// The state has come that an epoch starts with. All that was before it is done with.
    fn take<E: Engine<Packet = P>>(&mut self, epoch: Epoch, mark: Watermark, cx: &mut Context<'_, E>) {
        self.tenures.retain(|tenure| tenure.epoch >= epoch);
        self.state = Some(State { epoch, mark });
        self.seen_ns = cx.now_ns;
        self.copied = mark.contiguous;
        self.proposed_ns = None;
        self.drop_before(epoch, cx);
    }

    /// Drops what is held of earlier epochs: the state covers it.
    fn drop_before<E: Engine<Packet = P>>(&mut self, epoch: Epoch, cx: &mut Context<'_, E>) {
        while let Some(waiting) = self.held.take_before(epoch) {
            *cx.held -= 1;
            cx.drop(Dropped::Old, waiting.stamp, waiting.packet);
        }
    }

    /// Gives the engine the state; none at all is that of a new flow. False: it cannot be read, and nothing has changed.
    fn restore<E: Engine<Packet = P>>(&mut self, bytes: &[u8], cx: &mut Context<'_, E>) -> bool {
        if !bytes.is_empty() {
            return cx.engine.restore(cx.now_ns, self.id, bytes).is_ok();
        }
        if self.state.is_some() {
            cx.engine.forget(cx.now_ns, self.id, false);
        }
        true
    }
}

/// What happens to packets.
impl<P> Flow<P> {
    /// Does all that can be done now: processes what is next, gives up what has been waited for long enough, and hands the
    /// state over when the epoch is over.
    fn pump<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        loop {
            self.process_held(cx);
            let Some((state, tenure)) = self.state.as_mut().zip(self.tenures.first()) else { return };
            if let Some(next) = tenure.next.filter(|next| state.mark.covers(next.last)) {
                if next.owner == cx.id() {
                    self.go_on(cx);
                    continue;
                }
                if next.asked {
                    self.answer(cx);
                }
                return;
            }
            let is_due = |since: u64| since.saturating_add(cx.config.order_ns) <= cx.now_ns;
            let before_first = self.held.first_of(state.epoch).map(|first| first - 1);
            let released = tenure.next.filter(|next| next.released_ns.is_some_and(is_due));
            let until = match (before_first, released) {
                (Some(before), _) if self.held.oldest_of(state.epoch).is_some_and(is_due) => before,
                (Some(before), Some(next)) => before.min(next.last),
                (None, Some(next)) => next.last,
                (_, None) => return,
            };
            cx.counters.given_up += state.mark.give_up_to(until);
        }
    }

    /// Processes the packets held that are next.
    fn process_held<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        while let Some(state) = self.state
            && self.held.first_of(state.epoch).is_some()
            && let Some(waiting) = self.held.take_up_to(state.mark.contiguous + 1)
        {
            *cx.held -= 1;
            if state.mark.covers(waiting.stamp.clock) {
                cx.drop(Dropped::Old, waiting.stamp, waiting.packet);
                continue;
            }
            cx.counters.held_ns += cx.now_ns.saturating_sub(waiting.since_ns);
            self.process(waiting.stamp, waiting.packet, cx);
        }
    }

    /// Processes the packet that is next.
    fn process<E: Engine<Packet = P>>(&mut self, stamp: Stamp, packet: P, cx: &mut Context<'_, E>) {
        self.state = Some(State { epoch: stamp.epoch, mark: Watermark::up_to(stamp.clock) });
        self.targets = stamp.targets;
        self.seen_ns = cx.now_ns;
        cx.counters.processed += 1;
        cx.engine.process(cx.now_ns, self.id, packet);
    }

    /// Holds a packet that is not next (S50). If no more may be held, what it waits for is given up; a state is not.
    fn hold<E: Engine<Packet = P>>(&mut self, stamp: Stamp, packet: P, cx: &mut Context<'_, E>) {
        while self.held.len() >= cx.config.held_per_flow_max || *cx.held >= cx.config.held_max {
            let Some(state) = self.state.as_mut().filter(|state| state.epoch == stamp.epoch) else {
                return cx.drop(Dropped::Full, stamp, packet);
            };
            let first = self.held.first_of(stamp.epoch).map_or(stamp.clock, |first| first.min(stamp.clock));
            cx.counters.given_up += state.mark.give_up_to(first - 1);
            if first == stamp.clock {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
            self.process_held(cx);
            if self.state.is_some_and(|state| state.mark.contiguous + 1 == stamp.clock) {
                self.process(stamp, packet, cx);
                return self.pump(cx);
            }
        }
        *cx.held += 1;
        cx.counters.held += 1;
        self.held.add(Waiting { stamp, packet, since_ns: cx.now_ns });
        self.pump(cx);
    }
}

/// What happens to the state.
impl<P> Flow<P> {
    /// The next epoch is this unit's, too.
    fn go_on<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = &mut self.state else { return };
        state.epoch += 1;
        let epoch = state.epoch;
        self.tenures.retain(|tenure| tenure.epoch >= epoch);
        self.drop_before(epoch, cx);
    }

    /// Sends the state to the next owner. It is kept until that has it.
    fn answer<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let record = self.record(cx);
        let Some(tenure) = self.tenures.first_mut() else { return };
        let epoch = tenure.epoch + 1;
        let Some(next) = &mut tenure.next else { return };
        (next.asked, next.answered) = (false, true);
        cx.counters.states_sent += 1;
        cx.counters.state_bytes_sent += record.bytes.len() as u64;
        cx.out.to_units.push((next.owner, Message::State { flow: self.id, epoch, record }));
    }

    /// Sends copies of the state to where the flow may go on (S51, S54).
    fn copy_ahead<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        let (flow, epoch, record) = (self.id, state.epoch, self.record(cx));
        let bytes = record.bytes.len() as u64;
        self.copied = state.mark.contiguous;
        if self.targets.is_all() {
            cx.counters.replicas_sent += 1;
            cx.counters.replica_bytes_sent += bytes;
            cx.out.to_all.push(Message::Replica { flow, epoch, record });
            return;
        }
        for &unit in self.targets.units().iter().filter(|&&unit| unit != cx.config.id) {
            cx.counters.replicas_sent += 1;
            cx.counters.replica_bytes_sent += bytes;
            cx.out.to_units.push((unit, Message::Replica { flow, epoch, record: record.clone() }));
        }
    }

    /// Asks the router whether the flow is over (DESIGN 3.9).
    fn propose_end<E: Engine<Packet = P>>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        self.proposed_ns = Some(cx.now_ns);
        cx.counters.expiries_proposed += 1;
        let clock = state.mark.highest();
        cx.out.to_router.push(Message::Expire { flow: self.id, epoch: state.epoch, clock });
    }

    fn record<E: Engine<Packet = P>>(&self, cx: &mut Context<'_, E>) -> FlowRecord {
        let mut bytes = Vec::new();
        cx.engine.save(self.id, &mut bytes);
        FlowRecord { watermark: self.state.map(|state| state.mark).unwrap_or_default(), bytes }
    }

    /// When the state is to be sent to the next owner although it has not asked.
    fn offer_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (state, tenure) = self.state.zip(self.tenures.first())?;
        let next = tenure.next.filter(|next| state.mark.covers(next.last) && !next.answered)?;
        let wait_ns = cx.config.order_ns.saturating_mul(OFFER_AFTER_ORDERS);
        Some(next.released_ns?.saturating_add(wait_ns))
    }

    /// When the state is to be copied ahead: not if it was, and nothing has come since (S51, S52).
    fn copy_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        let (_, mark) = self.owned()?;
        let has_news = mark.contiguous > self.copied && self.targets != Targets::NONE;
        let after_ns = cx.config.replicate_after_ns.filter(|_| has_news)?;
        Some(self.seen_ns.saturating_add(after_ns))
    }

    /// When the flow's end is to be proposed.
    fn expiry_ns<E: Engine<Packet = P>>(&self, cx: &Context<'_, E>) -> Option<u64> {
        self.owned()?;
        let since_ns = self.seen_ns.max(self.proposed_ns.unwrap_or(0));
        Some(since_ns.saturating_add(cx.config.expire_after_ns?))
    }
}

impl<P: Hash> Hash for Flow<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, &self.tenures, self.state, &self.held).hash(state);
        (self.targets.is_all(), self.targets.units()).hash(state);
        (self.seen_ns, self.copied, self.proposed_ns).hash(state);
    }
}
