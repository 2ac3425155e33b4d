//! Counts of a unit.

use graph::Graph;
use packet::DropReason;
use protocol::unit::Counters;
use protocol::wire::{FrameError, Reader, put_sized};
use runtime::report::{FIGURES_MAX, Report};

use super::put;

/// Counts of a unit for its dispatcher's report. The unit's own report has more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFigures {
    /// Counters of the protocol.
    pub counters: Counters,
    /// Packets that left the graph, those that functions made, and those that wait in it.
    pub packets: [u64; 3],
    /// Bytes that left.
    pub bytes_out: u64,
    /// Flows that began, and that are in the table.
    pub flows: [u64; 2],
    /// Packets dropped, by reason.
    pub drops: Vec<(DropReason, u64)>,
}

impl UnitFigures {
    /// Returns those of a unit with this graph.
    pub fn of(counters: Counters, graph: &Graph) -> UnitFigures {
        let of_graph = graph.counters();
        let drops = DropReason::ALL.iter().map(|&reason| (reason, of_graph.drops[reason.index()]));
        UnitFigures {
            counters,
            packets: [of_graph.packets_out, of_graph.packets_generated, of_graph.packets_pending],
            bytes_out: of_graph.bytes_out,
            flows: [of_graph.flows_started, of_graph.flows_live],
            drops: drops.filter(|&(_, count)| count > 0).collect(),
        }
    }

    /// Adds them to the report of a dispatcher.
    pub fn add_to(&self, report: &mut Report) {
        let [packets_out, generated, pending] = self.packets;
        report.packets_out += packets_out;
        report.packets_generated += generated;
        report.packets_pending += pending;
        report.bytes_out += self.bytes_out;
        let [started, live] = self.flows;
        report.flows.started += started;
        report.flows.live += live;
        for (reason, count) in &self.drops {
            *report.drops.entry(reason.name()).or_default() += count;
        }
    }

    /// The unit is lost with its flows: what it dropped and created since then is not known.
    pub fn lose(&mut self) {
        self.packets = [0; 3];
        self.flows[1] = 0;
        self.drops.clear();
    }

    /// The unit is gone, and has returned these packets and bytes: it may have crashed before it
    /// counted them, or before they came.
    pub fn set_returned(&mut self, (packets_out, bytes_out): (u64, u64)) {
        (self.packets[0], self.bytes_out) = (packets_out, bytes_out);
    }

    /// Returns the packets that the unit was given and has finished, or that wait in its graph.
    pub fn finished(&self) -> u64 {
        let [packets_out, generated, pending] = self.packets;
        let dropped: u64 = self.drops.iter().map(|(_, count)| count).sum();
        (packets_out + pending + dropped).saturating_sub(generated)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let numbers = self.counters.numbers();
        put!(out, numbers.len() as u32);
        numbers.iter().for_each(|number| put!(out, number));
        let rest = self.packets.iter().chain([&self.bytes_out]).chain(&self.flows);
        rest.for_each(|number| put!(out, number));
        put!(out, self.drops.len() as u32);
        for (reason, count) in &self.drops {
            put!(out, count);
            put_sized(out, reason.name().as_bytes());
        }
    }

    /// Drops for reasons that are not known here count as internal ones.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<UnitFigures, FrameError> {
        let mut numbers = Counters::default().numbers();
        for at in 0..from.count(8)? {
            let number = from.u64()?;
            if let Some(place) = numbers.get_mut(at) {
                *place = number;
            }
        }
        let mut figures = UnitFigures {
            counters: Counters::of_numbers(numbers),
            packets: [from.u64()?, from.u64()?, from.u64()?],
            bytes_out: from.u64()?,
            flows: [from.u64()?, from.u64()?],
            drops: Vec::new(),
        };
        for _ in 0..from.count(12)? {
            let (count, name) = (from.u64()?, from.text()?);
            let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
            figures.drops.push((reason.copied().unwrap_or(DropReason::Internal), count));
        }
        Ok(figures)
    }
}

/// Limit on the numbers in a frame.
pub const FIGURE_CHANGES_MAX: usize = 2_048;

/// Numbers of a unit's [`Figures`](runtime::report::Figures) that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FigureChanges {
    /// The form of the figures.
    pub form: u64,
    /// Places, in order, and numbers.
    pub changes: Vec<(u32, u64)>,
}

impl FigureChanges {
    /// Places are written as distances, and all numbers with seven bits to a byte (LEB128).
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.form);
        let mut next = 0;
        for &(place, number) in &self.changes {
            put_short(out, u64::from(place - next));
            put_short(out, number);
            next = place + 1;
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<FigureChanges, FrameError> {
        let (form, mut changes, mut next) = (from.u64()?, Vec::new(), 0_u64);
        while !from.is_empty() {
            let place = next.checked_add(read_short(from)?).filter(|&place| place < FIGURES_MAX as u64);
            let place = place.ok_or(FrameError::Invalid("place"))?;
            changes.push((place as u32, read_short(from)?));
            next = place + 1;
        }
        Ok(FigureChanges { form, changes })
    }
}

fn put_short(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_short(from: &mut Reader<'_>) -> Result<u64, FrameError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.u8()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(FrameError::Invalid("number"))
}
