//! Rules without a packet that is recorded: of what functions foresee (B5, B6).

use nf::record::{Header, Records};
use nf::stage::Stage;
use nf::{Connection, Foresight, Verdict};
use packet::{Cover, Covers, EndsDraft, NewEnds, Packet, Transit};

use super::{Consolidation, fits};
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
        let cover = if self.scope.wraps { Cover::outer_of(packet) } else { None };
        let come = (packet, connection, cover.as_ref());
        let (keep_ms, ends) = self.hear(stages, records, come, false)?;
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
            None => self.learn_shape(stages, records, come)?,
        };
        if !fits(packet.meta().protocol, &ends) || self.said.events.len() > EVENTS_MAX {
            return None;
        }
        let wrap = self.said.wraps.first();
        let (outer, len_max) = (wrap.map(|(outer, _)| outer), wrap.map_or(u16::MAX, |&(_, len_max)| len_max));
        let values = Values { ends, keep_ms, outer, len_max, tags: self.said.tags };
        rules.set(record, direction, like, (program, values), self.said.events.iter().copied());
        Some(match Course::follow(program) {
            course if course.is_plain_follow() => course,
            _ => rules.course_at_last((record, direction), like, packet, &self.programs),
        })
    }

    /// Has all functions say what they foresee of packets like this one that leave the connection so, and come in such outer headers, and
    /// record it, too, if so wanted; none if one does not foresee it. Gives how long they keep the flow, and the ends that they get.
    #[inline(always)]
    fn hear(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &Records,
        (packet, connection, cover): (&Packet, Connection, Option<&Cover>),
        records_it: bool,
    ) -> Option<(u32, NewEnds)> {
        let &Transit { side, direction, flow: record, .. } = &packet.meta().transit;
        let Consolidation { said, recordings, taking_part, asked, .. } = self;
        said.begin(side);
        if records_it {
            recordings.iter_mut().flatten().for_each(|recording| recording.begin(true));
        }
        let mut packets = Foresight {
            side,
            direction,
            origin: records.header(record).origin(),
            connection,
            ends: EndsDraft::of(packet),
            cover,
            keep_ms: 0,
            stage: 0,
            said,
            recordings: records_it.then_some(recordings),
        };
        let asked = if records_it { taking_part } else { asked };
        for &stage in &asked[side as usize] {
            packets.stage = stage;
            if !stages[usize::from(stage)].foresee(record, records, &mut packets) {
                return None;
            }
        }
        Some((packets.keep_ms, packets.ends.finish()))
    }

    /// The program of what was foreseen, which is the first of its shape.
    #[cold]
    fn learn_shape(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &Records,
        come @ (packet, _, cover): (&Packet, Connection, Option<&Cover>),
    ) -> Option<ProgramId> {
        self.hear(stages, records, come, true)?;
        let covers = Covers { tags: None, outer: cover.cloned() };
        let program = self.write_program(stages, (packet.meta().transit.side, covers), Verdict::Forward);
        // As it is heard of other flows.
        self.hear(stages, records, come, false)?;
        self.shapes.learn(&self.said.shape, program);
        program
    }
}
