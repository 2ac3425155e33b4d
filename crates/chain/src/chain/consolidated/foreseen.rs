//! Rules without a packet that is recorded: of what functions foresee (B5, B6).

use nf::record::{Header, Records};
use nf::stage::Stage;
use nf::{Connection, Foresight, Verdict};
use packet::{NewEnds, Packet, Side, parse};

use super::{Consolidation, fits, path};
use crate::program::{Course, ProgramId};
use crate::rules::{EVENTS_MAX, Likeness, Rules, Values};

impl Consolidation {
    /// Makes the rule for packets like this one, which has not walked and leaves the connection so, of what all functions foresee: what
    /// it is to do by that; none if they do not foresee it.
    #[inline(never)]
    pub fn foresee(
        &mut self,
        rules: &mut Rules,
        stages: &[Box<dyn Stage>],
        records: &Records,
        packet: &Packet,
        (like, connection): (Likeness, Connection),
    ) -> Option<Course> {
        let (record, direction) = (packet.meta().transit.flow, packet.meta().transit.direction);
        if !records.header(record).has(Header::FLAG_ACCEPTED) {
            return None;
        }
        let keep_ms = self.hear(stages, records, packet, connection, false)?;
        debug_assert!(
            !self
                .said
                .events
                .iter()
                .any(|&(stage, event)| { stages[usize::from(stage)].event_holds(event, record, records) }),
            "what is foreseen holds"
        );
        let program = match self.shapes.find(&self.said.shape) {
            Some(known) => known?,
            None => self.learn_shape(stages, records, packet, connection)?,
        };
        let ends = NewEnds::new(parse::ends(packet), self.said.writes.iter().copied());
        if !fits(packet.meta().protocol, &ends) || self.said.events.len() > EVENTS_MAX {
            return None;
        }
        let wrap = self.said.wraps.first();
        let (outer, len_max) = (wrap.map(|(outer, _)| outer), wrap.map_or(u16::MAX, |&(_, len_max)| len_max));
        let values = Values { ends, keep_ms, outer, len_max };
        rules.set(record, direction, like, (program, values), self.said.events.iter().copied());
        Some(match Course::follow(program) {
            course if course.is_plain_follow() => course,
            _ => rules.course((record, direction), like, packet),
        })
    }

    /// Has all functions say what they foresee, and record it, too, if so wanted; none if one does not foresee it. Gives how long they
    /// keep the flow.
    fn hear(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &Records,
        packet: &Packet,
        connection: Connection,
        records_it: bool,
    ) -> Option<u32> {
        let transit = &packet.meta().transit;
        let (side, direction, record) = (transit.side, transit.direction, transit.flow);
        let origin = records.header(record).origin();
        let (mut ends, mut keep_ms) = (parse::ends(packet), 0);
        self.said.begin(side);
        for number in path(side, stages.len()) {
            let Some(recording) = &mut self.recordings[number] else { continue };
            let recording = if records_it {
                recording.begin(true);
                Some(recording)
            } else {
                None
            };
            let (stage, said) = (number as u16, &mut self.said);
            let mut packets =
                Foresight { side, direction, origin, connection, ends, keep_ms, stage, said, recording };
            if !stages[number].foresee(record, records, &mut packets) {
                return None;
            }
            (ends, keep_ms) = (packets.ends, packets.keep_ms);
        }
        Some(keep_ms)
    }

    /// The program of what was foreseen, which is the first of its shape.
    #[cold]
    fn learn_shape(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &Records,
        packet: &Packet,
        connection: Connection,
    ) -> Option<ProgramId> {
        self.hear(stages, records, packet, connection, true)?;
        let side: Side = packet.meta().transit.side;
        let program = self.write_program(stages, side, Verdict::Forward);
        self.shapes.learn(&self.said.shape, program);
        program
    }
}
