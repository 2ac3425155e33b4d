//! Rules without a recorded packet: from what functions predict (B5, B6).

use nf::record::{FlowRecords, RecordHeader};
use nf::stage::Stage;
use nf::{Connection, Plan, Verdict};
use packet::{OuterMatch, OuterMatches, Packet, Transit};

use super::program::{Path, ProgramId, TakenPath};
use super::rules::{EVENTS_MAX, RuleKey, RuleValues};
use super::{FlowCache, fits};

impl FlowCache {
    /// Makes a rule for packets like this one, which was not processed yet and leaves the
    /// connection so, from the predictions of all functions. Returns its path and the flow's
    /// timeout; `None` if a function does not predict it.
    #[inline(always)]
    pub(super) fn predict(
        &mut self,
        (stages, records): (&[Box<dyn Stage>], &FlowRecords),
        packet: &Packet,
        (like, connection): (RuleKey, Connection),
        path: &TakenPath<'_>,
    ) -> Option<(Path, u32)> {
        let &Transit { flow: record, direction, .. } = &packet.meta().transit;
        if !records.header(record).has(RecordHeader::FLAG_ACCEPTED) {
            return None;
        }
        self.hear(stages, records, (packet, connection), path, false)?;
        debug_assert!(
            !self
                .said
                .events
                .iter()
                .any(|&(stage, event)| { stages[usize::from(stage)].event_holds(event, record, records) }),
            "what is predicted holds"
        );
        let program = match self.shapes.find(self.said.shape.numbers()?) {
            Some(known) => known?,
            None => self.learn_shape(stages, records, (packet, connection), path)?,
        };
        let ends = self.said.ends.finish();
        if !fits(packet.meta().protocol, ends) {
            return None;
        }
        let wrap = self.said.encap.as_ref();
        let (outer, len_max) = (wrap.map(|(outer, _)| outer), wrap.map_or(u16::MAX, |&(_, len_max)| len_max));
        let keep_ms = self.said.keep_ms;
        let values = RuleValues { ends, keep_ms, outer, len_max, tags: self.said.tags };
        self.rules.set(record, direction, like, (program, values));
        let path = Path::fast(program);
        if path.is_plain_fast() {
            return Some((path, keep_ms));
        }
        if program.has_events() {
            self.rules.note_events(record, direction, self.said.events.iter().copied());
        }
        let path = self.rules.path_at_last((record, direction), like, packet, &self.programs);
        Some((path, if path == Path::SLOW { 0 } else { keep_ms }))
    }

    /// Collects the predictions of all functions for packets like this one that leave the
    /// connection so, and records them if wanted. Returns `None` if a function does not predict it.
    #[inline(always)]
    fn hear(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &FlowRecords,
        (packet, connection): (&Packet, Connection),
        path: &TakenPath<'_>,
        records_it: bool,
    ) -> Option<()> {
        let &Transit { side, direction, flow: record, .. } = &packet.meta().transit;
        let cover = self.cover_of(packet);
        let FlowCache { said, recordings, taking_part, asked, .. } = self;
        said.begin(packet);
        path.edges.iter().for_each(|&edge| said.shape.push_edge(edge));
        if records_it {
            recordings.iter_mut().flatten().for_each(|recording| recording.begin(true));
        }
        let mut packets = Plan {
            side,
            direction,
            origin: records.header(record).origin(),
            connection,
            outer: cover.as_ref(),
            stage: 0,
            said,
            recordings: records_it.then_some(recordings),
        };
        let asked = if records_it { taking_part } else { asked };
        for &stage in &asked[side as usize] {
            if !path.stages.has(stage.into()) {
                continue;
            }
            packets.stage = stage;
            if !stages[usize::from(stage)].predict(record, records, &mut packets) {
                return None;
            }
        }
        Some(())
    }

    /// Returns the outer headers of a packet, if a function could remove them.
    #[inline(always)]
    fn cover_of(&self, packet: &Packet) -> Option<OuterMatch> {
        if self.wraps { OuterMatch::outer_of(packet) } else { None }
    }

    /// Returns the program of the predictions, which are the first ones of their shape.
    #[cold]
    #[inline(never)]
    fn learn_shape(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &FlowRecords,
        come @ (packet, _): (&Packet, Connection),
        path: &TakenPath<'_>,
    ) -> Option<ProgramId> {
        self.hear(stages, records, come, path, true)?;
        let covers = OuterMatches { tags: None, outer: self.cover_of(packet) };
        let program =
            self.write_program(stages, (packet.meta().transit.side, covers), path, Verdict::Forward);
        let program = program.filter(|_| self.said.events.len() <= EVENTS_MAX).map(ProgramId::predicted);
        // Without recordings, as for other flows.
        self.hear(stages, records, come, path, false)?;
        self.shapes.learn(self.said.shape.numbers()?, program);
        program
    }
}
