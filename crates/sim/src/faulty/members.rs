//! Units that join, leave and crash while packets flow, and the flows that are lost with them.

use std::collections::BTreeMap;

use protocol::message::{FlowId, FromDispatcher, FromUnit, UnitId};
use protocol::trace::{FlowPlace, Machine, TimelineEvent};
use runtime::transport::{Mail, Return, Sending, ToUnit, UnitChange, UnitEnd};

use super::plan::{ChangeKind, PlannedChange};
use super::{Event, Faulty};
use crate::random::Random;

/// Units' membership, and the owner of each flow as the dispatcher has named it.
pub(super) struct Members {
    random: Random,
    /// By unit.
    states: Vec<Membership>,
    owners: BTreeMap<FlowId, UnitId>,
    /// Ends of units that crashed, for what they have counted.
    pub dead: Vec<UnitEnd>,
    /// Sequence of the first packet after the first crash.
    first_crash: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Membership {
    Off,
    Active,
    Draining,
    Crashed,
}

impl Members {
    pub fn new(units: usize, seed: u64) -> Members {
        Members {
            random: Random::new(seed, "changes of units"),
            states: vec![Membership::Off; units],
            owners: BTreeMap::new(),
            dead: Vec::new(),
            first_crash: None,
        }
    }

    /// The unit runs.
    pub fn activate(&mut self, unit: UnitId) {
        self.states[unit.index()] = Membership::Active;
    }

    /// The unit is drained. It may have crashed, unknown to the dispatcher: then it stays dead.
    fn drain(&mut self, unit: UnitId) {
        if !self.is_crashed(unit) {
            self.states[unit.index()] = Membership::Draining;
        }
    }

    /// A flow's end has arrived at a unit.
    pub fn ended(&mut self, flow: FlowId, unit: UnitId) {
        if self.owners.get(&flow) == Some(&unit) {
            self.owners.remove(&flow);
        }
    }

    /// Chooses the unit of a change: the named one if it can be, else any that can. A draining unit
    /// may crash, too; one that has handed over all flows has stopped.
    fn choose(&mut self, change: &PlannedChange) -> Option<UnitId> {
        let is_active = |unit: &UnitId| self.states[unit.index()] == Membership::Active;
        let units = || (0..self.states.len() as u16).map(UnitId);
        let may_crash = |unit: &UnitId| {
            let is_draining = self.states[unit.index()] == Membership::Draining;
            is_active(unit) || is_draining && self.owners.values().any(|owner| owner == unit)
        };
        let may = |unit: &UnitId| match change.event {
            ChangeKind::Crash => may_crash(unit) && units().any(|other| other != *unit && is_active(&other)),
            ChangeKind::Leave => is_active(unit) && units().any(|other| other != *unit && is_active(&other)),
            ChangeKind::Join => true,
        };
        let named = change.unit.map(UnitId).filter(|unit| unit.index() < self.states.len() && may(unit));
        let candidates: Vec<UnitId> = units().filter(may).collect();
        named.or_else(|| candidates.get(self.random.below(candidates.len() as u64) as usize).copied())
    }

    /// Removes a unit that crashes; returns its flows.
    fn crash(&mut self, unit: UnitId, next_sequence: u64) -> Vec<FlowId> {
        self.states[unit.index()] = Membership::Crashed;
        self.first_crash.get_or_insert(next_sequence);
        self.owners.extract_if(.., |_, &mut owner| owner == unit).map(|(flow, _)| flow).collect()
    }

    /// Returns the flow that a unit reports as lost: its state was at a unit that has crashed.
    fn lost(&self, message: &FromUnit) -> Option<FlowId> {
        match *message {
            FromUnit::Lost { flow, .. } => Some(flow),
            FromUnit::Refuse { flow, holder, .. } if self.is_crashed(holder) => Some(flow),
            _ => None,
        }
    }

    pub fn is_crashed(&self, unit: UnitId) -> bool {
        self.states[unit.index()] == Membership::Crashed
    }
}

impl Faulty {
    /// The dispatcher has named a flow's owner. If that has crashed, unknown to the dispatcher, the
    /// flow is lost.
    pub(super) fn set_owner(&mut self, flow: FlowId, unit: UnitId) {
        if self.members.is_crashed(unit) {
            self.members.owners.remove(&flow);
            self.outcome.borrow_mut().flows_lost.entry(flow).or_insert(self.next_sequence - 1);
        } else {
            self.members.owners.insert(flow, unit);
        }
    }

    /// The dispatcher sends a message.
    pub(super) fn note_message(&mut self, unit: UnitId, message: &FromDispatcher) {
        match *message {
            FromDispatcher::Release { flow, owner, .. } => self.set_owner(flow, owner),
            FromDispatcher::Adopt { flow, .. } => self.set_owner(flow, unit),
            FromDispatcher::Drain => self.members.drain(unit),
            _ => {} // No owner is named.
        }
    }

    /// Schedules all changes of units, from the first packet on.
    pub(super) fn schedule_changes(&mut self, began_ns: u64) {
        for change in self.plan.units.clone() {
            self.schedule(began_ns.saturating_add(change.at.0), Event::Change(change));
        }
    }

    /// Carries out a change of units, and schedules its repetition.
    pub(super) fn change(&mut self, change: PlannedChange) {
        if self.is_finishing {
            return;
        }
        if let Some(every) = change.every.filter(|every| every.0 > 0) {
            let wait_ns = every.0 / 2 + self.members.random.below(every.0 + 1);
            self.schedule(self.now_ns + wait_ns, Event::Change(change));
        }
        let Some(unit) = self.members.choose(&change) else { return };
        match change.event {
            ChangeKind::Join => {
                self.outcome.borrow_mut().joins += 1;
                self.changes.push_back(UnitChange::Join);
            }
            ChangeKind::Leave => {
                self.outcome.borrow_mut().leaves += 1;
                self.members.drain(unit);
                self.changes.push_back(UnitChange::Leave(unit));
            }
            ChangeKind::Crash => self.crash(unit),
        }
    }

    /// Crashes a unit. Reports and messages that it has sent arrive. Its pending packets are
    /// dropped and counted.
    fn crash(&mut self, unit: UnitId) {
        let Some(mut end) = self.units[unit.index()].take() else { return };
        self.note_fault(Machine::Unit(unit), FlowPlace::NONE, TimelineEvent::Fault { kind: "crash" });
        end.handle(ToUnit::Reset);
        while let Some(sending) = end.poll() {
            if let Sending::Return(report) = sending {
                let (through, buffers) = (report.through, report.buffers);
                self.send_report(Return { unit, through, buffers, ..Return::default() }.into());
            }
        }
        self.members.dead.push(*end);
        let flows = self.members.crash(unit, self.next_sequence);
        let mut outcome = self.outcome.borrow_mut();
        outcome.crashes += 1;
        outcome.flows_lost.extend(flows.into_iter().map(|flow| (flow, self.next_sequence)));
        drop(outcome);
        self.changes.push_back(UnitChange::Crash(unit));
    }

    /// Notes that a unit is ready, and the flows that it reports as lost.
    pub(super) fn note_report(&mut self, report: &Return) {
        if report.is_ready && !self.members.is_crashed(report.unit) {
            self.members.activate(report.unit);
        }
        let Some(first_crash) = self.members.first_crash else { return };
        for flow in report.messages.iter().filter_map(|message| self.members.lost(message)) {
            self.outcome.borrow_mut().flows_lost.entry(flow).or_insert(first_crash);
        }
    }

    /// Something has arrived where a unit has crashed. Packets are lost; peers learn that there is
    /// no state.
    pub(super) fn at_dead_unit(&mut self, unit: UnitId, event: Event) {
        match event {
            Event::ToUnit(_, ToUnit::Packet(_, _, packet)) | Event::Mail(_, Mail::Packet(_, packet)) => {
                self.outcome.borrow_mut().packets_lost += 1;
                self.lose_packet(packet);
            }
            Event::ToUnit(_, ToUnit::Step(_) | ToUnit::Answer) => self.unanswered -= 1,
            Event::Mail(_, Mail::Message(from, message)) => {
                if let Some((to, answer)) = message.answer_for_lost_unit(from) {
                    self.send_mail(unit, to, &answer);
                }
            }
            Event::ToUnit(..) | Event::Report(_) | Event::Change(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_crashed_before_its_drain_stays_dead() {
        let mut members = Members::new(2, 1);
        let units = [UnitId(0), UnitId(1)];
        units.iter().for_each(|&unit| members.activate(unit));
        members.crash(units[0], 0);
        units.iter().for_each(|&unit| members.drain(unit));
        assert_eq!(units.map(|unit| members.is_crashed(unit)), [true, false]);
    }
}
