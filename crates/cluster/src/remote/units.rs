//! The units of a cluster, as its dispatcher sees them: their packets in flight, and their reports
//! in the order in which they take effect.

use std::collections::VecDeque;

use packet::Packet;
use protocol::message::UnitId;
use runtime::transport::Return;

use crate::peers::PeerId;
use crate::wire::{PriorReport, UnitFigures};

/// A report on its way.
pub(super) struct PartialReport {
    pub report: Box<Return>,
    /// Reports of other units that must take effect before.
    pub priors: Vec<PriorReport>,
    /// Packets that have not come.
    pub left: usize,
}

/// A unit at a node.
pub(super) struct RemoteUnit {
    pub peer: PeerId,
    pub node: usize,
    pub is_ready: bool,
    pub is_alive: bool,
    /// Packets sent to it, and those that it has finished.
    pub sent: u64,
    pub through: u64,
    /// It has not answered.
    pub is_behind: bool,
    pub figures: UnitFigures,
    /// Packets that it has returned, and their bytes.
    packets_out: u64,
    bytes_out: u64,
    /// A report whose packets have not all come.
    partial: Option<PartialReport>,
    /// Reports that wait for those of other units.
    waiting: VecDeque<PartialReport>,
}

impl RemoteUnit {
    fn new(node: usize, peer: PeerId) -> RemoteUnit {
        RemoteUnit {
            peer,
            node,
            is_ready: false,
            is_alive: true,
            sent: 0,
            through: 0,
            is_behind: false,
            figures: UnitFigures::default(),
            packets_out: 0,
            bytes_out: 0,
            partial: None,
            waiting: VecDeque::new(),
        }
    }

    /// The unit is lost. Its figures count what it has returned, if `has_flows`.
    fn lose(&mut self, has_flows: bool) {
        self.is_alive = false;
        self.is_behind = false;
        self.partial = None;
        self.waiting.clear();
        if has_flows {
            self.figures.lose(self.sent, (self.packets_out, self.bytes_out));
        }
        self.through = self.sent;
    }
}

/// All units, by number.
#[derive(Default)]
pub(super) struct UnitTable {
    units: Vec<Option<RemoteUnit>>,
    /// Reports that have taken effect.
    reports: VecDeque<Box<Return>>,
    /// A unit has lost state.
    pub has_failed: bool,
    /// Packets that units returned, and for which there was no buffer.
    pub outputs_lost: u64,
}

impl UnitTable {
    /// Adds a unit.
    pub fn add(&mut self, unit: UnitId, node: usize, peer: PeerId) {
        if self.units.len() <= unit.index() {
            self.units.resize_with(unit.index() + 1, || None);
        }
        self.units[unit.index()] = Some(RemoteUnit::new(node, peer));
    }

    /// Returns a unit, alive or not.
    pub fn get(&self, unit: UnitId) -> Option<&RemoteUnit> {
        self.units.get(unit.index())?.as_ref()
    }

    /// Returns a unit that is alive.
    pub fn alive_mut(&mut self, unit: UnitId) -> Option<&mut RemoteUnit> {
        self.units.get_mut(unit.index())?.as_mut().filter(|unit| unit.is_alive)
    }

    /// Returns the unit at a node.
    pub fn at_mut(&mut self, peer: PeerId) -> Option<&mut RemoteUnit> {
        self.units.iter_mut().flatten().find(|unit| unit.peer == peer && unit.is_alive)
    }

    /// Returns all units.
    pub fn iter(&self) -> impl Iterator<Item = &RemoteUnit> {
        self.units.iter().flatten()
    }

    /// Returns the units that are alive.
    pub fn alive(&mut self) -> impl Iterator<Item = &mut RemoteUnit> {
        self.units.iter_mut().flatten().filter(|unit| unit.is_alive)
    }

    /// Returns the number of packets in flight.
    pub fn in_flight(&self) -> u64 {
        // A packet that a unit forwarded is finished by another one.
        let sent: u64 = self.iter().map(|unit| unit.sent).sum();
        sent.saturating_sub(self.iter().map(|unit| unit.through).sum())
    }

    /// The unit at a node is lost. Reports that waited for its own take effect.
    pub fn lose(&mut self, peer: PeerId, has_flows: bool) {
        if let Some(unit) = self.at_mut(peer) {
            unit.lose(has_flows);
        }
        while self.release() {}
    }

    /// Takes a report, whose packets follow.
    pub fn take_report(&mut self, peer: PeerId, partial: PartialReport) {
        let Some(unit) = self.at_mut(peer) else { return };
        match partial.left {
            0 => self.finish(peer, partial),
            _ => unit.partial = Some(partial),
        }
    }

    /// Takes a packet of the report before; none if there is no buffer. Returns false if no packet
    /// was expected.
    pub fn take_output(&mut self, peer: PeerId, packet: Option<Packet>) -> bool {
        let Some(unit) = self.units.iter_mut().flatten().find(|unit| unit.peer == peer && unit.is_alive)
        else {
            return true; // Lost meanwhile.
        };
        let Some(mut partial) = unit.partial.take() else { return false };
        match packet {
            Some(packet) => {
                unit.packets_out += 1;
                unit.bytes_out += packet.len() as u64;
                partial.report.out.push(packet);
            }
            None => self.outputs_lost += 1,
        }
        partial.left -= 1;
        match partial.left {
            0 => self.finish(peer, partial),
            _ => unit.partial = Some(partial),
        }
        true
    }

    /// Takes the next report that has taken effect.
    pub fn next_report(&mut self) -> Option<Box<Return>> {
        self.reports.pop_front()
    }

    /// Returns whether no report has taken effect.
    pub fn is_idle(&self) -> bool {
        self.reports.is_empty()
    }

    /// Discards the reports so far.
    pub fn discard_reports(&mut self) {
        self.reports.clear();
    }

    /// All of a report is here. It takes effect once those before it have.
    fn finish(&mut self, peer: PeerId, report: PartialReport) {
        let Some(unit) = self.at_mut(peer) else { return };
        unit.waiting.push_back(report);
        while self.release() {}
    }

    /// Releases reports that wait for no other. Returns true if there were any.
    fn release(&mut self) -> bool {
        let mut has_released = false;
        for at in 0..self.units.len() {
            let has_come = |&(unit, through): &PriorReport| {
                self.get(unit).is_none_or(|unit| !unit.is_alive || unit.through >= through)
            };
            let next = self.units[at].as_ref().and_then(|unit| unit.waiting.front());
            if !next.is_some_and(|next| next.priors.iter().all(has_come)) {
                continue;
            }
            let Some(unit) = &mut self.units[at] else { continue };
            let Some(PartialReport { report, .. }) = unit.waiting.pop_front() else { continue };
            has_released = true;
            unit.through = unit.through.max(report.through);
            unit.is_ready |= report.is_ready;
            unit.is_behind &= !report.has_answered;
            self.has_failed |= report.has_failed;
            self.reports.push_back(report);
        }
        has_released
    }
}
