//! Relief of units that drop packets: NFActor's rule for the number of units (A39).

use crate::message::UnitId;

use crate::dispatcher::evacuate::FLOWS_SCANNED_PER_BUCKET;
use crate::dispatcher::load::rate_bps;
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::relief::Shift;
use crate::dispatcher::units::UnitState;

impl Dispatcher {
    /// Counts packets that were dispatched to a unit, and dropped at its input.
    pub fn count_drops(&mut self, now_ns: u64, unit: UnitId, count: u64) {
        let now_ns = self.at(now_ns);
        self.counters.drops += count;
        let Some(relief) = &mut self.relief else { return };
        let Some(drops) = relief.drops.get_mut(unit.index()) else { return };
        *drops += count;
        relief.spare_since_ns = None;
        self.wake(now_ns);
    }

    /// Counts a packet of this length that is dropped instead of being dispatched to its unit. It
    /// is part of demand and of the unit's load.
    pub fn refuse_packet(&mut self, now_ns: u64, unit: UnitId, len: u32) {
        let now_ns = self.at(now_ns);
        if now_ns >= self.meter.ends_ns() {
            self.roll(now_ns);
        }
        self.bytes_refused += u64::from(len);
        self.meter.add(unit, len.into(), now_ns);
        self.count_drops(now_ns, unit, 1);
    }

    /// Relieves an overloaded unit, or drains the one with the least load if it is one too many.
    pub(crate) fn relieve(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let Some(relief) = &mut self.relief else { return };
        if let Some(shift) = relief.shift.take() {
            let next = self.shift_load(now_ns, shift, outputs);
            if let Some(relief) = &mut self.relief {
                relief.shift = next;
                // What was dropped before says nothing about the units as they are now.
                relief.end_period(now_ns);
            }
            return;
        }
        let overloaded = if now_ns < relief.period_ends_ns { None } else { relief.end_period(now_ns) };
        match overloaded.filter(|&unit| self.units.is_active(unit)) {
            Some(unit) => self.begin_relief(unit, outputs),
            None => self.drain_spare(now_ns, outputs),
        }
    }

    /// Starts a unit that takes load from this one; without any, the least loaded one does.
    fn begin_relief(&mut self, from: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        if self.units.starting() > 0 {
            return;
        }
        let Some(to) = self.start_one(outputs).or_else(|| self.half_as_loaded(from)) else { return };
        self.counters.units_relieved += 1;
        if let Some(relief) = &mut self.relief {
            relief.shift = Some(Shift { from, to, left_bps: None, hand: 0 });
        }
    }

    /// Returns the least loaded unit, if it has less than half the load of this one.
    fn half_as_loaded(&self, unit: UnitId) -> Option<UnitId> {
        let load_bps = |unit| self.meter.sustained_bps(unit);
        let others = self.units.active().iter().copied().filter(|&other| other != unit);
        let least = others.min_by(|&a, &b| load_bps(a).total_cmp(&load_bps(b)))?;
        (2.0 * load_bps(least) < load_bps(unit)).then_some(least)
    }

    /// Moves the next flows. Returns what is left.
    fn shift_load(
        &mut self,
        now_ns: u64,
        mut shift: Shift,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> Option<Shift> {
        if !self.units.is_active(shift.from) {
            return None;
        }
        match self.units.state(shift.to) {
            UnitState::Active => {}
            UnitState::Starting => return Some(shift),
            UnitState::Off | UnitState::Draining | UnitState::Lost => return None,
        }
        let [from_bps, to_bps] = [shift.from, shift.to].map(|unit| self.meter.sustained_bps(unit));
        let mut left_bps = shift.left_bps.unwrap_or((from_bps - to_bps) / 2.0);
        let mut moves_left = self.relief.as_ref().map_or(0, |relief| u64::from(relief.rule.step));
        let mut scans_left = FLOWS_SCANNED_PER_BUCKET;
        while left_bps > 0.0 {
            if moves_left == 0 || scans_left == 0 {
                shift.left_bps = Some(left_bps);
                return Some(shift);
            }
            let until = self.flows.used().min(shift.hand.saturating_add(scans_left));
            if shift.hand >= until {
                return None; // All flows that can move have.
            }
            let found = self.flows.first_of(shift.from, shift.hand..until);
            let next = found.map_or(until, |index| index + 1);
            scans_left -= next - shift.hand;
            shift.hand = next;
            let Some(index) = found else { continue };
            let rate_bps = self.mean_rate_bps(now_ns, index);
            let moved = self.relocate(index, shift.to, outputs);
            left_bps -= rate_bps * moved as f32;
            moves_left = moves_left.saturating_sub(moved);
        }
        None
    }

    /// Returns the rate of a flow since its flowlet, or the flow itself, began.
    fn mean_rate_bps(&self, now_ns: u64, index: u32) -> f32 {
        let started_ns = self.flows.flowlet(index).started_ns;
        rate_bps(self.flows.get(index).bytes, now_ns.saturating_sub(started_ns).max(self.config.gap_ns))
    }

    /// Moves a flow, with its affinity group, to a unit that has not refused it. Returns the number
    /// of flows that move.
    pub(crate) fn relocate(&mut self, index: u32, to: UnitId, outputs: &mut Vec<DispatcherOutput>) -> u64 {
        if self.flows.flowlet(index).refusers.contains(to) {
            return 0;
        }
        let before = self.counters.flows_moved;
        match self.groups.as_ref().and_then(|groups| groups.of_flow(index)) {
            Some(group) => self.move_group(group, to, outputs),
            None if self.hand_over_at_rest(index, to, outputs).is_some() => self.counters.flows_moved += 1,
            None => {}
        }
        self.counters.flows_moved - before
    }

    /// Drains the unit with the least load, of equal ones the last, if the others have had room for
    /// total load for long enough.
    fn drain_spare(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let is_spare = self.units.starting() == 0 && self.units.draining() == 0 && self.is_one_too_many();
        let Some(relief) = &mut self.relief else { return };
        let since_ns = is_spare.then(|| relief.spare_since_ns.unwrap_or(now_ns));
        relief.spare_since_ns = since_ns;
        if since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) < self.config.idle_ns) {
            return;
        }
        let load_bps = |unit: UnitId| self.meter.sustained_bps(unit);
        let least =
            self.units.active().iter().rev().copied().min_by(|&a, &b| load_bps(a).total_cmp(&load_bps(b)));
        if let Some(unit) = least {
            relief.spare_since_ns = None;
            self.drain(now_ns, unit, outputs);
        }
    }
}
