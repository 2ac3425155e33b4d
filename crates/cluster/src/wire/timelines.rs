//! Frames about the timelines of flows.

use protocol::message::{FlowId, UnitId};
use protocol::trace::{FlowPlace, FlowTimeline, Machine, TimelineRow};
use protocol::wire::{FrameError, Reader, Wire, put_sized};

use super::put;

/// Least length of a line: time, unit, three flags, no packets that wait, two empty texts.
const ROW_LEN: usize = 8 + 2 + 3 + 1 + 4 + 4;

/// A question for the last lines of a flow's timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineQuestion {
    /// The number of the question.
    pub number: u64,
    /// The flow.
    pub flow: FlowId,
    /// Limit on the lines of the answer.
    pub lines_max: u32,
}

impl TimelineQuestion {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.number);
        self.flow.write(out);
        put!(out, self.lines_max);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<TimelineQuestion, FrameError> {
        Ok(TimelineQuestion { number: from.u64()?, flow: FlowId::read(from)?, lines_max: from.u32()? })
    }
}

/// Appends the lines of units; those of other machines are left out.
pub(super) fn write_rows(out: &mut Vec<u8>, timeline: &FlowTimeline) {
    put!(out, timeline.overwritten);
    let of_unit = |row: &&TimelineRow| matches!(row.role, Machine::Unit(_));
    put!(out, timeline.rows.iter().filter(of_unit).count() as u32);
    for row in &timeline.rows {
        let Machine::Unit(unit) = row.role else { continue };
        put!(out, row.at_ns, unit.0);
        row.place.flow.write(out);
        row.place.epoch.write(out);
        row.place.seq.write(out);
        row.pending.write(out);
        put_sized(out, row.event.as_bytes());
        put_sized(out, row.details.as_bytes());
    }
}

/// Parses the lines of a unit, without their host.
pub(super) fn read_timeline(from: &mut Reader<'_>) -> Result<FlowTimeline, FrameError> {
    let overwritten = from.u64()?;
    let rows = (0..from.count(ROW_LEN)?).map(|_| {
        Ok(TimelineRow {
            at_ns: from.u64()?,
            host: String::new(),
            role: Machine::Unit(UnitId(from.u16()?)),
            place: FlowPlace { flow: Wire::read(from)?, epoch: Wire::read(from)?, seq: Wire::read(from)? },
            pending: Wire::read(from)?,
            event: from.text()?.to_owned(),
            details: from.text()?.to_owned(),
        })
    });
    Ok(FlowTimeline { rows: rows.collect::<Result<_, FrameError>>()?, overwritten })
}
