//! The number of units: starts them ahead, drains idle ones, and stops empty ones (S42, S43).

use telemetry::event;

use crate::message::{Epoch, FlowId, FromDispatcher, FromUnit, UnitId};

use crate::dispatcher::config::{DISPLACED_AFTER_NS, DrainCondition, ScalingRule};
use crate::dispatcher::flow::Flow;
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::relief::Relief;
use crate::dispatcher::units::UnitState;

/// A unit is drained only if the load of the others would then be at most this share of the load
/// that starts a unit: [on average, or of one of them](crate::dispatcher::DrainCondition).
pub const DRAIN_BELOW: f32 = 0.8;

impl Dispatcher {
    /// Handles the timers that have expired: moves the load meter's window, starts a unit ahead or
    /// because fewer than `units_min` run, drains idle ones, moves their flows, balances buckets of
    /// flows, and ends silent flows. Does nothing before
    /// [`next_timeout_ns`](Dispatcher::next_timeout_ns).
    ///
    /// Adds at most four outputs for each of
    /// [`MOVES_PER_BUCKET`](crate::dispatcher::MOVES_PER_BUCKET) flows, three for each unit, and for
    /// each of [`FORGOTTEN_PER_BUCKET`](crate::dispatcher::FORGOTTEN_PER_BUCKET) flows one per
    /// unit that has its state or a replica.
    pub fn handle_timeout(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let now_ns = self.at(now_ns);
        if now_ns < self.next_timeout_ns {
            return;
        }
        if now_ns >= self.meter.ends_ns() {
            self.roll(now_ns);
        }
        self.meter.reckon();
        if let Some(rss) = &mut self.rss {
            self.counters.buckets_moved += rss.balance(now_ns, self.units.active());
        }
        // Units that leave, before the rules look for one too many.
        while let Some(unit) = self.units.first_to_drain() {
            self.drain(now_ns, unit, outputs);
        }
        match self.config.scaling {
            ScalingRule::Demand { .. } => self.follow_demand(now_ns, outputs),
            ScalingRule::Drops(_) => self.relieve(now_ns, outputs),
            ScalingRule::Room => {
                self.start_ahead(outputs);
                self.drain_idle(now_ns, outputs);
            }
        }
        self.hold_minimum(outputs);
        self.evacuate(now_ns, outputs);
        self.level_groups(outputs);
        self.ask_again(now_ns, outputs);
        self.forget(now_ns, outputs);
        let ends_ns = self.meter.ends_ns();
        self.next_timeout_ns =
            if self.has_more_to_do() { ends_ns } else { self.forget_deadline_ns().max(ends_ns) };
    }

    /// Notes that a unit is ready for packets. Does nothing unless it was ordered to start.
    pub fn started(&mut self, now_ns: u64, unit: UnitId) {
        let now_ns = self.at(now_ns);
        if self.units.state(unit) == UnitState::Starting {
            self.activate(unit, now_ns);
            self.deal_unused_buckets();
            self.next_timeout_ns = self.next_timeout_ns.min(now_ns.saturating_add(self.config.bucket_ns));
        }
    }

    /// Handles a message from a unit.
    pub fn handle_message(
        &mut self,
        now_ns: u64,
        from: UnitId,
        message: FromUnit,
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let now_ns = self.at(now_ns);
        match message {
            FromUnit::Expire { flow, epoch, seq } => self.expire(now_ns, from, (flow, epoch, seq), outputs),
            FromUnit::Arrived { flow, epoch } => self.arrived(from, (flow, epoch), outputs),
            FromUnit::Replicated { flow, .. } => self.replicated(flow, outputs),
            FromUnit::Drained => self.drained(from, outputs),
            FromUnit::Lost { flow, epoch } => self.lost(from, (flow, epoch), outputs),
            FromUnit::Refuse { flow, epoch, holder, .. } => {
                self.refused(from, (flow, epoch), holder, outputs);
            }
        }
    }

    /// Ends a flow if its owner has seen all of it (design.md 3.9). Packets that the owner of a
    /// flow that is silent for [`DISPLACED_AFTER_NS`] has not seen were lost. An owner that
    /// proposes again has not received the `End`.
    fn expire(
        &mut self,
        now_ns: u64,
        from: UnitId,
        (id, epoch, seq): (FlowId, Epoch, u64),
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let is_all = |flow: &Flow| flow.seq == seq || now_ns - flow.last_seen_ns >= DISPLACED_AFTER_NS;
        match self.flows.live(id) {
            Some(flow) if flow.owner() == from && flow.epoch == epoch && is_all(flow) => {
                self.counters.flows_expired += 1;
                self.end(id.index, outputs);
            }
            None if self.flows.is_over(id) => {
                self.counters.expiries_repeated += 1;
                outputs.push(DispatcherOutput::Send { to: from, message: FromDispatcher::End { flow: id } });
            }
            _ => self.counters.expiries_refused += 1,
        }
    }

    /// Makes the holder of a flow's state the owner, if the present owner cannot take the state.
    fn refused(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        holder: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let is_owner = |flow: &&Flow| flow.owner() == from && flow.epoch == epoch && epoch > 1;
        let Some(last) = self.flows.live(id).filter(is_owner).map(|flow| flow.seq) else { return };
        match self.units.state(holder) {
            UnitState::Active | UnitState::Draining if holder != from => {}
            UnitState::Lost => return self.lost(from, (id, epoch), outputs),
            _ => return,
        }
        if let Some(epoch) = self.hand_over(id.index, holder, outputs) {
            self.counters.states_refused += 1;
            self.flows.add_refuser(id.index, from);
            self.group_refused(id.index, from, holder);
            let message = FromDispatcher::Adopt { flow: id, epoch, previous: from, last };
            outputs.push(DispatcherOutput::Send { to: holder, message });
        }
    }

    /// Stops a draining unit if it owns no flow. If it reports too early, it does not know of all
    /// its flows yet, or answers an earlier drain: it is asked again once it has none.
    fn drained(&mut self, from: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        let is_stale = self.units.take_report(from);
        if self.units.state(from) != UnitState::Draining {
            return;
        }
        if is_stale || self.units.flows(from) > 0 {
            return self.units.set_asked_ns(from, None);
        }
        self.units.set_state(from, UnitState::Off);
        self.counters.units_stopped += 1;
        event::unit_stopped(from.0.into());
        outputs.push(DispatcherOutput::Stop(from));
    }

    /// Starts a unit if more are wanted, or drains the last one if fewer must be kept; one at a
    /// time.
    fn follow_demand(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let Some(follow) = &self.follow else { return };
        let (wanted, kept) = (follow.wanted(), follow.kept());
        let active = self.units.active();
        if wanted > active.len() {
            self.start_one(outputs);
            return;
        }
        let kept = kept.max(self.config.units_min.into());
        if let Some(&last) = active.last().filter(|_| active.len() > kept && self.units.draining() == 0) {
            self.drain(now_ns, last, outputs);
        }
    }

    /// Starts a unit for a flowlet without room (S42, S44), unless another rule applies.
    pub(crate) fn start_for_room(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        if self.config.scaling == ScalingRule::Room {
            self.start_one(outputs);
        }
    }

    /// Starts a unit if all active ones are nearly full (S42).
    fn start_ahead(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        let from_bps = self.config.start_at * self.config.capacity_bps as f32;
        if self.units.active().iter().all(|&unit| self.meter.sustained_bps(unit) > from_bps) {
            self.start_one(outputs);
        }
    }

    /// Starts the first unit that is off, and returns it, unless one is starting or nothing would
    /// reach it.
    pub(crate) fn start_one(&mut self, outputs: &mut Vec<DispatcherOutput>) -> Option<UnitId> {
        if self.units.starting() > 0 { None } else { self.start_next(outputs) }
    }

    /// Starts units until `units_min` of them run or start, whatever the load. Those that leave do
    /// not count, those that an operator wants fewer do.
    pub(crate) fn hold_minimum(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        while self.units.held() < usize::from(self.config.units_min) {
            if self.start_next(outputs).is_none() {
                return;
            }
        }
    }

    /// Starts the first unit that is off, and returns it, unless nothing would reach it.
    fn start_next(&mut self, outputs: &mut Vec<DispatcherOutput>) -> Option<UnitId> {
        let is_fixed = self.rss.as_ref().is_some_and(|rss| !rss.is_balanced());
        if is_fixed && !self.units.active().is_empty() {
            return None;
        }
        let unit = self.units.first_off()?;
        self.units.set_state(unit, UnitState::Starting);
        self.counters.units_started += 1;
        event::unit_started(unit.0.into(), self.units.active().len() as u64);
        outputs.push(DispatcherOutput::Start(unit));
        Some(unit)
    }

    /// Drains the highest unit that has been idle long enough, if the others have room (S43).
    fn drain_idle(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let active = self.units.active();
        if active.len() <= usize::from(self.config.units_min) {
            return;
        }
        let is_idle =
            |unit: &&UnitId| now_ns.saturating_sub(self.meter.last_packet_ns(**unit)) >= self.config.idle_ns;
        let Some(&idle) = active.iter().rev().find(is_idle) else {
            return;
        };
        let is_below = match self.config.drain_when {
            DrainCondition::MeanIsBelow => self.is_one_too_many(),
            DrainCondition::OneIsBelow => active
                .iter()
                .any(|&unit| unit != idle && self.meter.sustained_bps(unit) <= self.drain_below_bps()),
        };
        if is_below {
            self.drain(now_ns, idle, outputs);
        }
    }

    fn drain_below_bps(&self) -> f32 {
        DRAIN_BELOW * self.config.start_at * self.config.capacity_bps as f32
    }

    /// Returns true if one unit less would have room for total load, and that unit may go.
    pub(crate) fn is_one_too_many(&self) -> bool {
        let active = self.units.active();
        let total_bps: f32 = active.iter().map(|&unit| self.meter.sustained_bps(unit)).sum();
        active.len() > usize::from(self.config.units_min)
            && total_bps / (active.len() - 1) as f32 <= self.drain_below_bps()
    }

    /// Drains a unit: it gets no more packets, and its flows move away.
    pub(crate) fn drain(&mut self, now_ns: u64, unit: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        self.units.set_state(unit, UnitState::Draining);
        self.units.set_asked_ns(unit, Some(now_ns));
        self.meter.deactivate(unit);
        self.pass_suspects_over();
        self.assigner.set_active(self.units.active());
        if let Some(rss) = &mut self.rss {
            self.counters.buckets_moved += rss.clear_out(unit, self.units.active());
        }
        self.counters.units_drained += 1;
        event::unit_drained(unit.0.into());
        outputs.push(DispatcherOutput::Send { to: unit, message: FromDispatcher::Drain });
    }

    /// Asks draining units without flows again: their report may have been lost.
    fn ask_again(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        if self.units.draining() == 0 {
            return;
        }
        for unit in self.units.all() {
            let is_empty = self.units.flows(unit) == 0;
            let is_done = self.units.state(unit) == UnitState::Draining && is_empty;
            let is_time = self
                .units
                .asked_ns(unit)
                .is_none_or(|asked_ns| now_ns.saturating_sub(asked_ns) >= self.config.idle_ns);
            if is_done && is_time {
                self.units.set_asked_ns(unit, Some(now_ns));
                outputs.push(DispatcherOutput::Send { to: unit, message: FromDispatcher::Drain });
            }
        }
    }

    pub(crate) fn draining(&self) -> impl Iterator<Item = UnitId> + '_ {
        let all = if self.units.draining() > 0 { Some(self.units.all()) } else { None };
        all.into_iter().flatten().filter(|&unit| self.units.state(unit) == UnitState::Draining)
    }

    /// Returns true if there is work without packets.
    fn has_more_to_do(&self) -> bool {
        self.units.draining() > 0
            || self.relief.as_ref().is_some_and(Relief::is_busy)
            || self.units.active().len() > usize::from(self.config.units_min)
            || self.units.active().iter().any(|&unit| self.meter.sustained_bps(unit) > 0.0)
    }
}
