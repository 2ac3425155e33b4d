//! The units of a cluster from the dispatcher's point of view: their packets in flight, and their
//! reports in the order of their dependencies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packet::{DropReason, Packet};
use protocol::message::UnitId;
use runtime::report::{Figures, Report};
use runtime::transport::Return;

use super::UNIT_IN_FLIGHT_MAX;
use crate::peers::PeerId;
use crate::wire::{FigureChanges, ForwardCounts, PriorReport, ReportContext, UnitFigures};

/// A received report. It takes effect after its predecessors.
pub(super) struct WaitingReport {
    pub report: Box<Return>,
    pub context: ReportContext,
    returned: Returned,
    /// The output of all packets that it counts has arrived.
    is_complete: bool,
}

impl WaitingReport {
    pub fn new(report: Box<Return>, context: ReportContext) -> WaitingReport {
        WaitingReport { report, context, returned: Returned::default(), is_complete: false }
    }
}

/// Packets returned by a unit.
#[derive(Clone, Copy, Default)]
struct Returned {
    packets: u64,
    bytes: u64,
    /// Packets among them that found no buffer.
    without_buffer: u64,
}

impl Returned {
    /// Counts a packet and appends it to `out`; `None` if there was no buffer for it.
    fn take(&mut self, packet: Option<Packet>, out: &mut Vec<Packet>) {
        self.packets += 1;
        match packet {
            Some(packet) => {
                self.bytes += packet.len() as u64;
                out.push(packet);
            }
            None => self.without_buffer += 1,
        }
    }

    fn add(&mut self, more: Returned) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.without_buffer += more.without_buffer;
    }
}

/// A unit at a node.
pub(super) struct RemoteUnit {
    pub peer: PeerId,
    pub node: usize,
    pub is_ready: bool,
    pub is_alive: bool,
    /// The node is silent.
    pub is_suspect: bool,
    /// Packets sent to it, and packets that it reports as finished.
    pub sent: u64,
    pub through: u64,
    /// Largest value of `through` with all output arrived.
    complete: u64,
    /// It owes an answer to a request.
    pub is_behind: bool,
    pub figures: UnitFigures,
    /// Form and values of its functions' figures.
    details: (u64, Vec<u64>),
    /// Its output so far, without output in `waiting`.
    returned: Returned,
    /// Packets exchanged with other units, by its reports.
    forwards: BTreeMap<UnitId, ForwardCounts>,
    /// Packets forwarded to others, by its own count.
    forwarded: u64,
    /// Packets received from other units, and sent to them.
    got: u64,
    gave: u64,
    /// Reports that wait for reports of other units.
    waiting: VecDeque<WaitingReport>,
}

impl RemoteUnit {
    fn new(node: usize, peer: PeerId) -> RemoteUnit {
        RemoteUnit {
            peer,
            node,
            is_ready: false,
            is_alive: true,
            is_suspect: false,
            sent: 0,
            through: 0,
            complete: 0,
            is_behind: false,
            figures: UnitFigures::default(),
            details: (0, Vec::new()),
            returned: Returned::default(),
            forwards: BTreeMap::new(),
            forwarded: 0,
            got: 0,
            gave: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the number of packets given to the unit, processed or not.
    fn given(&self) -> u64 {
        (self.sent + self.got).saturating_sub(self.gave)
    }

    /// Returns the number of packets that the unit has not finished. A packet in flight between two
    /// units counts at its receiver.
    fn in_flight(&self) -> u64 {
        (self.sent + self.got).saturating_sub(self.forwarded + self.through)
    }

    /// Returns true if the unit is alive and at its limit of packets in flight.
    pub fn is_full(&self) -> bool {
        self.is_alive && self.in_flight() >= UNIT_IN_FLIGHT_MAX
    }

    /// Marks the unit as lost; `has_flows` if it was not drained before.
    fn mark_lost(&mut self, has_flows: bool) {
        self.is_alive = false;
        self.is_behind = false;
        if has_flows {
            self.figures.mark_lost();
        }
        self.figures.set_returned((self.returned.packets, self.returned.bytes));
    }

    /// Returns true if reports up to this number of packets have taken effect, and their output has
    /// arrived or is lost.
    fn has_reported(&self, through: u64) -> bool {
        self.complete >= through || !self.is_alive && self.waiting.is_empty()
    }
}

/// All units, by number.
#[derive(Default)]
pub(super) struct UnitTable {
    units: Vec<Option<RemoteUnit>>,
    /// Reports that have taken effect, not yet taken.
    reports: VecDeque<Box<Return>>,
    /// A unit has lost state.
    pub has_failed: bool,
    /// Packets that units returned and that found no buffer.
    pub outputs_lost: u64,
    /// Figures of functions by form, for all policies so far, with sums over departed units.
    forms: BTreeMap<u64, (Figures, Vec<u64>)>,
    /// Packets that units returned and that a stall of this process has made stale.
    pub outputs_stalled: u64,
}

impl UnitTable {
    /// Adds a unit.
    pub fn add(&mut self, unit: UnitId, node: usize, peer: PeerId) {
        if self.units.len() <= unit.index() {
            self.units.resize_with(unit.index() + 1, || None);
        }
        self.units[unit.index()] = Some(RemoteUnit::new(node, peer));
    }

    /// Returns one more than the highest unit number.
    pub fn len(&self) -> usize {
        self.units.len()
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

    /// Returns the number of the unit at a node.
    pub fn number_at(&self, peer: PeerId) -> Option<UnitId> {
        let is_it =
            |unit: &Option<RemoteUnit>| unit.as_ref().is_some_and(|unit| unit.peer == peer && unit.is_alive);
        self.units.iter().position(is_it).map(|at| UnitId(at as u16))
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
        self.awaited().map(|(_, packets)| packets).sum()
    }

    /// Returns the units with packets in flight, and the numbers of these.
    pub fn awaited(&self) -> impl Iterator<Item = (UnitId, u64)> + '_ {
        let units = (0..).map(UnitId).zip(&self.units).filter_map(|(id, unit)| Some((id, unit.as_ref()?)));
        let in_flight = units.filter(|(_, unit)| unit.is_alive).map(|(id, unit)| (id, unit.in_flight()));
        in_flight.filter(|(_, packets)| *packets > 0)
    }

    /// Returns true if a unit is suspect.
    pub fn has_suspect(&self) -> bool {
        self.iter().any(|unit| unit.is_alive && unit.is_suspect)
    }

    /// Recomputes the packets that units have exchanged.
    fn recount(&mut self) {
        let mut pairs = BTreeSet::new();
        for (at, unit) in self.units.iter_mut().enumerate() {
            let Some(unit) = unit else { continue };
            (unit.got, unit.gave) = (0, 0);
            let own = UnitId(at as u16);
            pairs.extend(unit.forwards.keys().flat_map(|&other| [(own, other), (other, own)]));
        }
        for (from, to) in pairs {
            let count = self.forwarded(from, to);
            let both = [from, to].map(UnitId::index);
            if let Ok([Some(giver), Some(taker)]) = self.units.get_disjoint_mut(both) {
                giver.gave += count;
                taker.got += count;
            }
        }
    }

    /// Returns the number of packets that one unit has forwarded to another and that reach it. The
    /// receiver's count holds if nothing more can arrive.
    fn forwarded(&self, from: UnitId, to: UnitId) -> u64 {
        let (Some(giver), Some(taker)) = (self.get(from), self.get(to)) else { return 0 };
        let (sent, got) = (giver.forwards.get(&to), taker.forwards.get(&from));
        let (sent, got) = (sent.copied().unwrap_or_default(), got.copied().unwrap_or_default());
        match taker.is_alive {
            true if giver.is_alive && !sent.is_cut && !got.is_cut => sent.sent.max(got.received),
            true => got.received,
            false => sent.sent,
        }
    }

    /// Returns the number of packets lost with units, or between them.
    fn lost(&self) -> u64 {
        // The output of a lost unit is known; its drops are known only if it was drained before.
        let gone = self.iter().filter(|unit| !unit.is_alive);
        let with_units: u64 = gone.map(|unit| unit.given().saturating_sub(unit.figures.finished())).sum();
        let alive = self.iter().filter(|unit| unit.is_alive);
        let between: u64 = alive.map(|unit| unit.forwarded.saturating_sub(unit.gave)).sum();
        with_units + between
    }

    /// Adds the figures of units to the dispatcher's report.
    pub fn add_to(&self, report: &mut Report) {
        self.iter().for_each(|unit| unit.figures.add_to(report));
        for (form, (figures, gone)) in &self.forms {
            let (mut figures, mut sum) = (figures.clone(), gone.clone());
            for (_, numbers) in self.iter().map(|unit| &unit.details).filter(|(of, _)| of == form) {
                figures.add_numbers(&mut sum, numbers, false);
            }
            figures.set(&sum);
            figures.add_to(report);
        }
        let mut drop = |reason: DropReason, count| {
            if count > 0 {
                *report.drops.entry(reason.name()).or_default() += count;
            }
        };
        drop(DropReason::UnitLost, self.lost());
        // Their units count them as sent.
        drop(DropReason::NoBuffer, self.outputs_lost);
        drop(DropReason::ProcessStalled, self.outputs_stalled);
        let dropped = self.outputs_lost + self.outputs_stalled;
        report.packets_out = report.packets_out.saturating_sub(dropped);
    }

    /// Registers a form of figures.
    pub fn know_figures(&mut self, mut figures: Figures) {
        self.forms.entry(figures.form()).or_insert((figures, Vec::new()));
    }

    /// Takes changed figures of a unit's functions.
    pub fn take_figures(&mut self, peer: PeerId, FigureChanges { form, changes }: FigureChanges) {
        let Some(unit) = self.at_mut(peer) else { return };
        let (of, numbers) = &mut unit.details;
        if *of != form {
            (*of, *numbers) = (form, Vec::new());
        }
        for (place, number) in changes {
            let place = place as usize;
            if numbers.len() <= place {
                numbers.resize(place + 1, 0);
            }
            numbers[place] = number;
        }
    }

    /// Marks the unit at a node as lost. Its complete reports still take effect after their
    /// predecessors; other reports stop waiting for it.
    pub fn mark_lost(&mut self, peer: PeerId, has_flows: bool) {
        if let Some(unit) = self.at_mut(peer) {
            unit.mark_lost(has_flows);
            let (form, numbers) = std::mem::take(&mut unit.details);
            if let Some((figures, gone)) = self.forms.get_mut(&form) {
                figures.add_numbers(gone, &numbers, true);
            }
        }
        self.recount();
        while self.release() {}
    }

    /// Takes a report, which takes effect after its predecessors.
    pub fn take_report(&mut self, peer: PeerId, report: WaitingReport) {
        let Some(unit) = self.at_mut(peer) else { return };
        if report.context.is_complete {
            match unit.waiting.back_mut() {
                Some(last) => last.is_complete = true,
                None => unit.complete = unit.through,
            }
        }
        unit.waiting.push_back(report);
        while self.release() {}
    }

    /// Takes an output packet of a unit; `None` if it found no buffer. It leaves after the unit's
    /// earlier reports have taken effect. Ignored if the unit is lost.
    pub fn take_output(&mut self, peer: PeerId, packet: Option<Packet>) {
        let is_it = |unit: &RemoteUnit| unit.peer == peer && unit.is_alive;
        let numbered = self.units.iter_mut().enumerate();
        let found =
            numbered.filter_map(|(at, unit)| Some((at, unit.as_mut()?))).find(|(_, unit)| is_it(unit));
        let Some((at, unit)) = found else { return };
        if let Some(last) = unit.waiting.back_mut() {
            return last.returned.take(packet, &mut last.report.out);
        }
        self.outputs_lost += u64::from(packet.is_none());
        let id = UnitId(at as u16);
        if self.reports.back().is_none_or(|report| report.unit != id) {
            self.reports.push_back(Box::new(Return { unit: id, ..Return::default() }));
        }
        if let Some(report) = self.reports.back_mut() {
            unit.returned.take(packet, &mut report.out);
        }
    }

    /// Takes the next effective report.
    pub fn next_report(&mut self) -> Option<Box<Return>> {
        self.reports.pop_front()
    }

    /// Returns true if no report has taken effect.
    pub fn is_idle(&self) -> bool {
        self.reports.is_empty()
    }

    /// Discards the reports that have taken effect.
    pub fn discard_reports(&mut self) {
        self.reports.clear();
    }

    /// Releases reports that no longer wait for others. Returns true if there were any.
    fn release(&mut self) -> bool {
        let mut has_released = false;
        for at in 0..self.units.len() {
            let has_come =
                |&(unit, through): &PriorReport| self.get(unit).is_none_or(|unit| unit.has_reported(through));
            let next = self.units[at].as_ref().and_then(|unit| unit.waiting.front());
            if !next.is_some_and(|next| next.context.priors.iter().all(has_come)) {
                continue;
            }
            let Some(unit) = &mut self.units[at] else { continue };
            let Some(WaitingReport { report, context, returned, is_complete }) = unit.waiting.pop_front()
            else {
                continue;
            };
            has_released = true;
            unit.through = unit.through.max(report.through);
            if is_complete {
                unit.complete = unit.through;
            }
            let has_forwards = !context.forwards.is_empty();
            unit.forwards.extend(context.forwards);
            unit.forwarded = unit.forwards.values().map(|counts| counts.sent).sum();
            unit.is_ready |= report.is_ready;
            unit.is_behind &= !report.has_answered;
            self.has_failed |= report.has_failed && unit.is_alive;
            unit.returned.add(returned);
            self.outputs_lost += returned.without_buffer;
            if !unit.is_alive {
                unit.figures.set_returned((unit.returned.packets, unit.returned.bytes));
            }
            self.reports.push_back(report);
            if has_forwards {
                self.recount();
            }
        }
        has_released
    }
}
