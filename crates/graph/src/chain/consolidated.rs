//! The fast path: packets that are known to be treated as one before them was follow a rule instead
//! of walking through the chain (B3, B6).
//!
//! A packet walks alone and is recorded (`walk`); what all functions recorded is consolidated into
//! a program, which many flows share, and into the flow's own values, its rule. Packets that follow
//! the same program form groups, and go through its steps together (`follow_rules`). Whatever else
//! a flow's packet walks for (a FIN, a fragment, an ICMP error) may change what functions think of
//! the flow, and ends its rules (B10).

use nf::record::{CacheLines, FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{PacketTotals, ReadGroup, Stage};
use nf::{Connection, EventCondition, Field, PREDICTING_NFS_MAX, PlannedActions, Recording, Verdict};
use packet::parse::{self, protocol};
use packet::{Direction, DropReason, Endpoint, NewEnds, OuterMatches, Packet, PacketClass, Side};

use super::cross::Crossing;
use super::{Chain, Run};
use crate::FastPath;
use crate::program::{Course, Draft, Layer, ProgramId, Programs, Step};
use crate::rules::{EVENTS_MAX, Likeness, Rules, Scope, Values};
use crate::shapes::Shapes;

mod predicted;

/// What a chain needs that consolidates.
pub(super) struct Consolidation {
    programs: Programs,
    /// Where programs are written.
    draft: Draft,
    /// By function: what it did to the packet that is recorded; none if it has to see every packet.
    recordings: Vec<Option<Recording>>,
    /// By side: the functions that packets come to which entered there, in order, but for those
    /// that have to see every packet.
    taking_part: [Vec<u16>; 2],
    /// Of these, the ones that have to be asked what they predict of each flow.
    asked: [Vec<u16>; 2],
    /// Whether a packet is being recorded.
    recording: bool,
    /// Whether what happens to it can be told of others.
    repeats: bool,
    /// What rules have room for.
    scope: Scope,
    /// A packet whose flow's events were looked at, and do not hold.
    reviewed: Option<u64>,
    /// What functions predict, and the programs that were made of that.
    said: PlannedActions,
    shapes: Shapes,
}

/// What was before a packet was recorded.
pub(super) struct Begun {
    side: Side,
    like: Likeness,
    ends: (Endpoint, Endpoint),
    covers: OuterMatches,
}

impl Consolidation {
    /// None if no two functions take part one behind the other: of one, the walk is no longer than
    /// what a rule would have in its place.
    pub fn new(stages: &[Box<dyn Stage>], layout: &RecordLayout) -> Option<Consolidation> {
        let wraps = |stage: &dyn Stage| stage.descriptor().writes.contains(&Field::Encapsulation);
        // What streams bring is every packet's own.
        let takes_part = |stage: &dyn Stage| stage.descriptor().consolidates && !stage.descriptor().stream;
        let are_neighbours = |pair: &[Box<dyn Stage>]| pair.iter().all(|stage| takes_part(&**stage));
        if !stages.windows(2).any(are_neighbours) || stages.len() > PREDICTING_NFS_MAX {
            return None;
        }
        let taking_part: [Vec<u16>; 2] = [Side::Inside, Side::Outside].map(|side| {
            let stages = path(side, stages.len()).filter(|&stage| takes_part(&*stages[stage]));
            stages.map(|stage| stage as u16).collect()
        });
        let is_asked = |stage: &u16| !stages[usize::from(*stage)].predicts_uniformly();
        let asked = taking_part.each_ref().map(|part| part.iter().copied().filter(is_asked).collect());
        Some(Consolidation {
            programs: Programs::default(),
            draft: Draft::new(layout.lines()),
            recordings: stages.iter().map(|stage| takes_part(&**stage).then(Recording::default)).collect(),
            taking_part,
            asked,
            recording: false,
            repeats: true,
            scope: Scope { wraps: stages.iter().any(|stage| wraps(&**stage)) },
            reviewed: None,
            said: PlannedActions::default(),
            shapes: Shapes::default(),
        })
    }

    /// State functions that commute are put together in programs from now on.
    pub fn put_together(&mut self) {
        self.draft.put_together();
    }

    /// What its rules have room for.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What is to be done with a packet that has come so far, of a flow in whose rules it is, and
    /// that leaves the connection so; and how long it keeps the flow by that, in milliseconds.
    /// `is_seen`: whether what its flow is by now can be seen; not while one of its packets is yet
    /// to walk.
    #[inline(never)]
    pub fn choose(
        &mut self,
        rules: &mut Rules,
        (stages, records): (&[Box<dyn Stage>], &FlowRecords),
        packet: &Packet,
        (like, connection): (Likeness, Connection),
        is_seen: bool,
        path: &mut FastPath,
    ) -> (Course, u32) {
        let transit = &packet.meta().transit;
        let of = (transit.flow, transit.direction);
        let mut course = rules.course(of, like, packet, &self.programs);
        if course == Course::REVIEW && self.reviewed == Some(transit.sequence) {
            course = rules.reviewed_course(of, packet, &self.programs);
        } else if course == Course::REVIEW && is_seen {
            course = self.look_again(rules, stages, records, packet, like);
        }
        if matches!(course, Course::PREDICT | Course::RECORD)
            && is_seen
            && let Some(predicted) = self.predict(rules, (stages, records), packet, (like, connection))
        {
            path.predicted += 1;
            return predicted;
        }
        match course {
            Course::PREDICT | Course::WALK => (Course::WALK, 0),
            _ => (course, rules.get(of.0, of.1).map_or(0, |rule| rule.keep_ms)),
        }
    }

    /// Looks at a rule from before a command, which was recorded, and which only commands end, for
    /// the packet that is to be reviewed: what it is to do now. Those that packets may end are left
    /// to the time when the packets before are through.
    #[inline(never)]
    fn look_again(
        &self,
        rules: &mut Rules,
        stages: &[Box<dyn Stage>],
        records: &FlowRecords,
        packet: &Packet,
        like: Likeness,
    ) -> Course {
        let transit = &packet.meta().transit;
        let (record, direction) = (transit.flow, transit.direction);
        if rules.is_watched(record, direction) {
            return Course::REVIEW;
        }
        if holds(rules, stages, records, (record, direction)) {
            rules.end(record, direction);
        } else {
            rules.renew(record, direction);
        }
        rules.course_at_last((record, direction), like, packet, &self.programs)
    }

    /// What packets of a course come in; none if it takes every packet.
    #[inline]
    pub fn covers(&self, course: Course) -> Option<&OuterMatches> {
        course
            .program()
            .filter(|program| program.is_limited())
            .and_then(|program| self.programs.covers(program))
    }

    /// The lines of records that packets of a course will touch, of `all`.
    #[inline]
    pub fn lines(&self, course: Course, all: CacheLines) -> CacheLines {
        self.programs.lines(course, all)
    }

    /// The program and the ends of the rule that what is recorded makes; none if it makes none.
    fn make_rule(
        &mut self,
        stages: &[Box<dyn Stage>],
        begun: Begun,
        protocol: u8,
        verdict: Verdict,
    ) -> Option<(ProgramId, NewEnds)> {
        let program = self.write_program(stages, (begun.side, begun.covers), verdict)?;
        let ends = NewEnds::new(begun.ends, self.draft.writes());
        fits(protocol, &ends).then_some((program, ends))
    }

    /// The program that what is recorded makes; none if it makes none.
    fn write_program(
        &mut self,
        stages: &[Box<dyn Stage>],
        (side, covers): (Side, OuterMatches),
        verdict: Verdict,
    ) -> Option<ProgramId> {
        let Consolidation { draft, recordings, programs, .. } = self;
        draft.begin(side, covers);
        draft.write(path(side, stages.len()), stages, recordings, verdict)?;
        programs.number(draft.program())
    }

    /// Sets the rule, with what is recorded beside it; false if there are too many events.
    fn set_rule(
        &self,
        rules: &mut Rules,
        (record, direction): (u32, Direction),
        like: Likeness,
        program: ProgramId,
        ends: NewEnds,
    ) -> bool {
        let few = self.events().count() <= EVENTS_MAX;
        if few {
            let Consolidation { draft, .. } = self;
            let (keep_ms, outer) = (draft.keep_ms(), draft.outer());
            let (len_max, tags) = (draft.len_max(), draft.tags());
            let values = Values { ends: &ends, keep_ms, outer, len_max, tags };
            rules.set(record, direction, like, (program, values));
            rules.note_events(record, direction, self.events());
        }
        few
    }

    /// The events that are recorded, and of which functions.
    fn events(&self) -> impl Iterator<Item = (u16, EventCondition)> {
        let recordings = self.recordings.iter().zip(0..);
        recordings
            .flat_map(|(recording, stage)| Some((&recording.as_ref()?.events, stage)))
            .flat_map(|(events, stage)| events.iter().map(move |&event| (stage, event)))
    }

    /// The steps of a program.
    pub fn steps(&self, program: ProgramId) -> &[Step] {
        self.programs.steps(program)
    }

    /// Where this function's doings are recorded, if they are.
    pub fn recording_of(&mut self, stage: usize) -> Option<&mut Recording> {
        if self.recording { self.recordings.get_mut(stage)?.as_mut() } else { None }
    }
}

/// The functions that packets that entered by a side come to, in order.
fn path(side: Side, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| if side == Side::Inside { step } else { count - 1 - step })
}

/// Whether packets of the protocol can get these ends: ICMP has one identifier for both.
fn fits(protocol: u8, ends: &NewEnds) -> bool {
    !matches!(protocol, protocol::ICMP | protocol::ICMPV6) || ends.writes().count() < 2
}

/// Whether an event holds of the rule for packets of a direction.
fn holds(
    rules: &Rules,
    stages: &[Box<dyn Stage>],
    records: &FlowRecords,
    (record, direction): (u32, Direction),
) -> bool {
    rules
        .events(record, direction)
        .any(|(stage, event)| stages.get(stage).is_none_or(|stage| stage.event_holds(event, record, records)))
}

impl Chain {
    /// The packet, which has joined its flow, is recorded from here on, if that is due; else what
    /// was known of its flow counts no more. What an observer is shown is recorded to the end,
    /// whether a rule can be made of it or not.
    pub(super) fn begin_recording(&mut self, packet: &Packet, is_observed: bool) -> Option<Begun> {
        let meta = packet.meta();
        let (record, direction) = (meta.transit.flow, meta.transit.direction);
        let rules = self.flows.rules.as_ref();
        let is_due = |like| is_observed || rules.is_some_and(|rules| rules.is_due(record, direction, like));
        let Some(like) = self.likeness(packet).filter(|&like| is_due(like)) else {
            self.flows.forget_rules(record);
            return None;
        };
        let consolidation = self.consolidation.as_mut()?;
        self.fast_path.recorded += 1;
        consolidation.recordings.iter_mut().flatten().for_each(|recording| recording.begin(!is_observed));
        (consolidation.recording, consolidation.repeats) = (true, true);
        let covers = OuterMatches::of(packet);
        Some(Begun { side: meta.transit.side, like, ends: parse::ends(packet), covers })
    }

    /// What a packet that has joined its flow has in common with others that could be treated
    /// alike; none if none could.
    pub(super) fn likeness(&self, packet: &Packet) -> Option<Likeness> {
        let meta = packet.meta();
        let header = self.flows.records.header(meta.transit.flow);
        let connection = Connection::from_phase(meta.transit.phase);
        let like = Likeness::new(meta, header.key != meta.key, connection);
        let is_ordinary = meta.class == PacketClass::Whole && like.is_ordinary();
        (is_ordinary && !header.has(RecordHeader::FLAG_TURNS)).then_some(like)
    }

    /// Something happened to the packet that need not happen to others: it is recorded no further.
    pub(super) fn stop_recording(&mut self) {
        if let Some(consolidation) = &mut self.consolidation {
            (consolidation.recording, consolidation.repeats) = (false, false);
        }
    }

    /// The packet is through all functions: whether what was recorded holds for others like it.
    pub(super) fn end_recording(&mut self, packet: &Packet) -> bool {
        let Some(consolidation) = &mut self.consolidation else { return false };
        consolidation.recording = false;
        let transit = &packet.meta().transit;
        let header = self.flows.records.header(transit.flow);
        consolidation.repeats && (!self.joining.tags || transit.tags == header.tags)
    }

    /// Makes a rule of what was recorded of a packet that is settled, if its flow lives and the
    /// packet was what its verdict says.
    pub(super) fn conclude(
        &mut self,
        begun: Begun,
        (record, direction): (u32, Direction),
        protocol: u8,
        verdict: Verdict,
        repeats: bool,
    ) {
        let header = self.flows.records.header(record);
        if !header.has(RecordHeader::FLAG_LIVE) || !header.has(RecordHeader::FLAG_ACCEPTED) {
            return;
        }
        let (Some(consolidation), Some(rules)) = (&mut self.consolidation, &mut self.flows.rules) else {
            return;
        };
        let like = begun.like;
        let rule =
            if repeats { consolidation.make_rule(&self.stages, begun, protocol, verdict) } else { None };
        let made = rule.is_some_and(|(program, ends)| {
            consolidation.set_rule(rules, (record, direction), like, program, ends)
        });
        if !made {
            self.fast_path.failed += 1;
            rules.give_up(record, direction, like);
        }
    }

    /// A packet that is settled moved its flow, and stands for no other one: the next one like it
    /// is recorded.
    pub(super) fn expect_like(&mut self, begun: &Begun, (record, direction): (u32, Direction)) {
        if let Some(rules) = &mut self.flows.rules {
            rules.record_next(record, direction, begun.like);
        }
    }

    /// Looks at the rule that a packet would follow: if an event of it holds, it is none any more.
    #[cold]
    pub(super) fn review(&mut self, packet: &Packet) {
        let Some(rules) = &mut self.flows.rules else { return };
        let transit = &packet.meta().transit;
        let (record, direction) = (transit.flow, transit.direction);
        if holds(rules, &self.stages, &self.flows.records, (record, direction)) {
            return rules.end(record, direction);
        }
        rules.renew(record, direction);
        if let Some(consolidation) = &mut self.consolidation {
            consolidation.reviewed = Some(transit.sequence);
        }
    }

    /// A function is about to process a packet that is recorded: what it wants for the flow is told
    /// apart from others' wishes. Gives these, for [`Chain::end_wishes`].
    pub(super) fn begin_wishes(&self, packets: &mut [Packet]) -> Option<u32> {
        let packet =
            packets.first_mut().filter(|_| self.consolidation.as_ref().is_some_and(|c| c.recording))?;
        Some(std::mem::take(&mut packet.meta_mut().transit.keep_ms))
    }

    /// The function at `stage` is done with it.
    pub(super) fn end_wishes(&mut self, stage: usize, packets: &mut [Packet], before_ms: u32) {
        let (Some(consolidation), Some(packet)) = (&mut self.consolidation, packets.first_mut()) else {
            return;
        };
        let keep_ms = &mut packet.meta_mut().transit.keep_ms;
        if let Some(recording) = &mut consolidation.recordings[stage] {
            recording.keep_ms = *keep_ms;
        }
        *keep_ms = before_ms.max(*keep_ms);
    }

    /// Takes the packets of a crossing through the steps of the program that the rules of all their
    /// flows name.
    #[inline(never)]
    pub(super) fn follow_rules(
        &mut self,
        program: ProgramId,
        crossing: &mut Crossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut Run<'_, '_>,
    ) {
        self.fast_path.packets += crossing.load.packets;
        let Some(consolidation) = &mut self.consolidation else { return };
        // They are back in their place before anything could ask for them: programs are made for
        // packets that walk.
        let programs = std::mem::take(&mut consolidation.programs);
        let mut steps = programs.steps(program).iter();
        while let Some(step) = steps.next() {
            if let Step::Together(count) = *step {
                let (functions, behind) = steps.as_slice().split_at(count.min(steps.len()));
                self.run_together(functions, crossing, packets, verdicts);
                steps = behind.iter();
                continue;
            }
            self.take_step(step, crossing, packets, verdicts, run);
        }
        if let Some(consolidation) = &mut self.consolidation {
            consolidation.programs = programs;
        }
    }

    #[inline(always)]
    fn take_step(
        &mut self,
        step: &Step,
        crossing: &mut Crossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut Run<'_, '_>,
    ) {
        let &mut Crossing { side, load, .. } = crossing;
        match *step {
            Step::Pass(stage) => self.stages[stage].pass(load, 0),
            Step::Functions(stage, ref functions) => {
                let started = self.options.cycles.map(|cycles| cycles());
                let (records, effects) = (&mut self.flows.records, &mut self.effects);
                let mut group =
                    ReadGroup { packets, verdicts, side, load, records, places: None, effects, panicked: 0 };
                self.stages[stage].run_functions(&mut group, functions.as_slice());
                let panicked = group.panicked;
                self.count_cycles(stage, started);
                if panicked != 0 {
                    drop_panicked(panicked, crossing, packets, verdicts);
                }
            }
            Step::Process(stage) => self.take_through(stage, crossing, packets, verdicts, run),
            Step::Rewrite { known } => {
                let Some(rules) = &self.flows.rules else { return };
                for (packet, verdict) in packets.iter_mut().zip(verdicts.iter_mut()) {
                    let transit = &packet.meta().transit;
                    let rule = rules.get(transit.flow, transit.direction);
                    if *verdict == Verdict::Forward
                        && let Some(rule) = rule
                        && packet.set_ends(&rule.ends, known).is_err()
                    {
                        *verdict = Verdict::Drop(DropReason::Internal);
                    }
                }
            }
            _ => self.take_rare_step(step, crossing, packets, verdicts),
        }
    }

    /// Takes one that not many programs have. Apart, so that what it takes costs others nothing.
    #[inline(never)]
    fn take_rare_step(
        &mut self,
        step: &Step,
        crossing: &mut Crossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
    ) {
        let load = crossing.load;
        match *step {
            Step::SetDscp(dscp) => {
                let forwarded =
                    packets.iter_mut().zip(verdicts.iter()).filter(|of| *of.1 == Verdict::Forward);
                forwarded.for_each(|(packet, _)| packet.set_dscp(dscp));
            }
            Step::Wrap(stage) => {
                let Some(rules) = &self.flows.rules else { return };
                let room = |packet: &mut Packet| {
                    let transit = &packet.meta().transit;
                    let outer = rules.outer(transit.flow, transit.direction);
                    outer.and_then(|&outer| packet.encap(&outer).ok()).ok_or(DropReason::NoHeadroom)
                };
                drop_unless(room, &mut *self.stages[stage], crossing, packets, verdicts);
            }
            Step::Tag(stage, tag) => {
                let room = |packet: &mut Packet| packet.push_tag(tag).map_err(|_| DropReason::NoHeadroom);
                drop_unless(room, &mut *self.stages[stage], crossing, packets, verdicts);
            }
            Step::TakeOut(stage, len) => {
                let out = |packet: &mut Packet| packet.decap(len).map_err(|_| DropReason::Internal);
                drop_unless(out, &mut *self.stages[stage], crossing, packets, verdicts);
            }
            Step::Untag(stage, kind) => {
                let off = |packet: &mut Packet| packet.pop_tag(kind).map_err(|_| DropReason::Internal);
                drop_unless(off, &mut *self.stages[stage], crossing, packets, verdicts);
            }
            Step::Cancelled(stage, layer) => {
                let room = |packet: &mut Packet| {
                    if matches!(layer, Layer::Outer(_)) {
                        packet.trim_trailer();
                    }
                    (packet.headroom() >= layer.len()).then_some(()).ok_or(DropReason::NoHeadroom)
                };
                crossing.cancelled_len += layer.len() as u64;
                drop_unless(room, &mut *self.stages[stage], crossing, packets, verdicts);
            }
            Step::Restored(layer) => {
                crossing.cancelled_len -= layer.len() as u64;
                crossing.load.bytes -= load.packets * layer.len() as u64;
            }
            Step::Drop(stage, reason) => {
                let forwarded = verdicts.iter_mut().filter(|verdict| **verdict == Verdict::Forward);
                forwarded.for_each(|verdict| *verdict = Verdict::Drop(reason));
                self.stages[stage].pass(PacketTotals::default(), load.packets);
            }
            // They have been seen to.
            Step::Together(_)
            | Step::Pass(_)
            | Step::Functions(..)
            | Step::Process(_)
            | Step::Rewrite { .. } => {}
        }
    }
}

/// Drops packets at which state functions panicked, a bit for each.
#[cold]
pub(super) fn drop_panicked(
    panicked: u64,
    crossing: &mut Crossing,
    packets: &[Packet],
    verdicts: &mut [Verdict],
) {
    for (number, verdict) in verdicts.iter_mut().enumerate() {
        if *verdict == Verdict::Forward && panicked >> number & 1 != 0 {
            *verdict = Verdict::Drop(DropReason::FunctionPanic);
        }
    }
    crossing.load = PacketTotals::by_side(packets, verdicts)[crossing.side as usize];
    crossing.load.bytes += crossing.load.packets * crossing.cancelled_len;
}

/// Drops packets, as `stage` would, of which this cannot be done: there may be no room for headers.
/// The others go on as they are then.
#[inline]
fn drop_unless<T>(
    done: impl Fn(&mut Packet) -> Result<T, DropReason>,
    stage: &mut dyn Stage,
    crossing: &mut Crossing,
    packets: &mut [Packet],
    verdicts: &mut [Verdict],
) {
    let mut dropped = 0;
    for (packet, verdict) in packets.iter_mut().zip(verdicts.iter_mut()) {
        if *verdict == Verdict::Forward
            && let Err(reason) = done(packet)
        {
            *verdict = Verdict::Drop(reason);
            dropped += 1;
        }
    }
    stage.pass(PacketTotals::default(), dropped);
    crossing.load = PacketTotals::by_side(packets, verdicts)[crossing.side as usize];
    crossing.load.bytes += crossing.load.packets * crossing.cancelled_len;
}
