//! Units that join, leave or are lost without the dispatcher's having asked for it.

use packet::parse::protocol;

use crate::message::{Epoch, FlowId, UnitId};

use crate::dispatcher::flow::Flow;
use crate::dispatcher::lost_flows::{LOST_FLOWS_MAX, LostFlow};
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::units::UnitState;

impl Dispatcher {
    /// Notes lost TCP flows from now on.
    pub fn note_lost_flows(&mut self) {
        self.lost_flows = Some(Vec::new());
    }

    /// Takes the flows that were lost since this was called last.
    pub fn take_lost_flows(&mut self) -> Vec<LostFlow> {
        self.lost_flows.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes a flow that is about to end because its state was lost.
    pub(crate) fn note_lost(&mut self, index: u32) {
        let Some(noted) = &mut self.lost_flows else { return };
        let key = self.flows.key(index);
        if key.protocol != protocol::TCP {
            return;
        }
        if noted.len() >= LOST_FLOWS_MAX {
            self.counters.flows_lost_unnoted += 1;
            return;
        }
        let (alias, is_turned) = self.flows.alias(index);
        noted.push(LostFlow { key, alias, is_turned });
    }

    /// Begins with the units that are ready: of the first `units_min` those that are not are
    /// starting, and others are active as well. Must be called before the first packet.
    pub fn begin_with(&mut self, is_ready: impl Fn(UnitId) -> bool) {
        for unit in self.units.all() {
            match (self.units.state(unit), is_ready(unit)) {
                (UnitState::Active, false) => {
                    self.meter.deactivate(unit);
                    self.units.set_state(unit, UnitState::Starting);
                }
                (UnitState::Off, true) => {
                    self.meter.activate(unit, 0);
                    self.units.set_state(unit, UnitState::Active);
                }
                _ => {}
            }
        }
        self.assigner.set_active(self.units.active());
        self.deal_buckets();
    }

    /// Deals buckets of flows to the active units, one after the other.
    fn deal_buckets(&mut self) {
        if let Some(rss) = self.rss.as_mut().filter(|_| !self.units.active().is_empty()) {
            rss.deal(self.units.active());
        }
    }

    /// Deals buckets of flows again if no flow is at any unit.
    pub(crate) fn deal_unused_buckets(&mut self) {
        if self.flows.count() == 0 {
            self.deal_buckets();
        }
    }

    /// Starts the first unit that is off. Does nothing if none is, or one is starting already.
    pub fn add_unit(&mut self, outputs: &mut Vec<DispatcherOutput>) {
        self.start_one(outputs);
    }

    /// Drains a unit: it gets no new packets, hands its flows over, and stops. If no other one is
    /// active, that begins as soon as one is; until then it works on. Does nothing if it neither
    /// runs nor starts.
    pub fn remove_unit(&mut self, now_ns: u64, unit: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        if self.drain_active(now_ns, unit, false, outputs).is_err()
            && matches!(self.units.state(unit), UnitState::Active | UnitState::Starting)
        {
            self.units.set_leaving(unit, true);
            self.hold_minimum(outputs);
            self.wake(now_ns);
        }
    }

    /// A unit has crashed: its flows end, and it never runs again; a replacement has another
    /// number. Flows whose new owner waits for a state of the lost unit end once that owner
    /// [reports](crate::message::FromUnit::Lost) them. Units are started if fewer than `units_min`
    /// are left.
    pub fn lose_unit(&mut self, now_ns: u64, unit: UnitId, outputs: &mut Vec<DispatcherOutput>) {
        let now_ns = self.at(now_ns);
        match self.units.state(unit) {
            UnitState::Active => {
                self.meter.deactivate(unit);
                self.units.set_state(unit, UnitState::Lost);
                self.pass_suspects_over();
                self.assigner.set_active(self.units.active());
                if let Some(rss) = self.rss.as_mut().filter(|_| !self.units.active().is_empty()) {
                    self.counters.buckets_moved += rss.clear_out(unit, self.units.active());
                }
            }
            UnitState::Starting | UnitState::Draining => self.units.set_state(unit, UnitState::Lost),
            // It was drained, and would not start any more.
            UnitState::Off => return self.retire_unit(unit),
            UnitState::Lost => return,
        }
        self.counters.units_lost += 1;
        for index in 0..self.flows.used() {
            let flow = self.flows.get(index);
            if flow.is_live() && flow.owner() == unit {
                self.counters.flows_lost += 1;
                self.note_lost(index);
                self.end(index, outputs);
            }
        }
        self.hold_minimum(outputs);
        self.wake(now_ns);
    }

    /// Nothing is heard from a unit, or it is heard again. While it is suspect, its flows stay, and
    /// new ones go to others, if there are any.
    pub fn suspect_unit(&mut self, unit: UnitId, is_suspect: bool) {
        if !self.units.has(unit) {
            return;
        }
        self.units.set_suspect(unit, is_suspect);
        self.pass_suspects_over();
        self.assigner.set_active(self.units.active());
        if let Some(rss) = self.rss.as_mut().filter(|_| self.units.is_passed_over(unit)) {
            self.counters.buckets_moved += rss.clear_out(unit, self.units.active());
        }
    }

    /// Hides the loads of suspect units, if others can be chosen.
    pub(crate) fn pass_suspects_over(&mut self) {
        self.meter.reckon();
        for unit in self.units.all() {
            self.meter.set_passed_over(unit, self.units.is_passed_over(unit));
        }
    }

    /// A unit that was drained never runs again; a replacement has another number. Does nothing if
    /// it still runs.
    pub fn retire_unit(&mut self, unit: UnitId) {
        if self.units.state(unit) == UnitState::Off {
            self.units.set_state(unit, UnitState::Lost);
        }
    }

    /// Ends a flow whose owner knows that its state is lost.
    pub(crate) fn lost(
        &mut self,
        from: UnitId,
        (id, epoch): (FlowId, Epoch),
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let is_owner = |flow: &&Flow| flow.owner() == from && flow.epoch == epoch;
        if self.flows.live(id).filter(is_owner).is_some() {
            self.counters.flows_lost += 1;
            self.note_lost(id.index);
            self.end(id.index, outputs);
        }
    }

    /// Returns true if another unit is active, and stays.
    pub(crate) fn has_other_active(&self, unit: UnitId) -> bool {
        self.units.active().iter().any(|&active| active != unit && !self.units.is_leaving(active))
    }

    /// Units have changed: [`Dispatcher::handle_timeout`] has something to do soon.
    pub(crate) fn wake(&mut self, now_ns: u64) {
        self.next_timeout_ns = self.next_timeout_ns.min(now_ns.saturating_add(self.config.bucket_ns));
    }
}
