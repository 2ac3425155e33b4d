//! Counts of a unit.

use graph::Graph;
use packet::DropReason;
use protocol::unit::Counters;
use runtime::report::Report;

use super::reader::{FrameError, Reader, put, put_sized};

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
