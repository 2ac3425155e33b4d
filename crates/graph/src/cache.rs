//! The fast path: packets that every function would treat like an earlier one follow a cached rule
//! instead of visiting the functions (B3, B6).
//!
//! A slow-path packet is recorded (`walk`). The recordings of all functions are consolidated into a
//! program, which many flows share, and into the flow's own values, its rule. Packets with the same
//! program form groups, and take its steps together (`StepRun::follow`). Another slow-path packet
//! (a FIN, a fragment, an ICMP error) may change the functions' state of the flow, and ends its
//! rules (B10).

use nf::record::{CacheLines, FlowRecords, RecordHeader, RecordLayout};
use nf::stage::Stage;
use nf::{Connection, EventCondition, Field, PREDICTING_NFS_MAX, PlannedActions, Recording, Verdict};
use packet::memory::OutOfMemory;
use packet::parse::{self, protocol};
use packet::{Direction, Endpoint, NewEnds, OuterHeaders, OuterMatches, Packet, PacketClass, Side};

mod predicting;
mod program;
mod rules;
mod shapes;
mod view;

use program::{Draft, Programs};
pub(crate) use program::{Layer, Path, ProgramId, Step, TakenPath};
pub(crate) use rules::{CHANGING, RuleGuards, RuleKey};
use rules::{CachedRule, EVENTS_MAX, RuleScope, RuleTable, RuleValues};
use shapes::Shapes;
pub use view::{RuleStep, RuleView};

/// The rules of flows, and their programs.
pub(crate) struct FlowCache {
    rules: RuleTable,
    programs: Programs,
    /// The program that is being written.
    draft: Draft,
    /// For each function: its recording of the packet; `None` if it must see every packet.
    recordings: Vec<Option<Recording>>,
    /// For each side: the functions on the path, in order, except those that must see every packet.
    taking_part: [Vec<u16>; 2],
    /// Of these, the functions with predictions that differ between flows.
    asked: [Vec<u16>; 2],
    /// True if a packet is being recorded.
    recording: bool,
    /// True if the recording also holds for later packets.
    repeats: bool,
    /// True if functions add outer headers.
    wraps: bool,
    pub guards: RuleGuards,
    /// A packet with a rule that was checked: none of its events holds.
    reviewed: Option<u64>,
    /// The functions' predictions, and the programs made from them.
    said: PlannedActions,
    shapes: Shapes,
    counters: FastPath,
}

/// Counters of the fast path. Unlike all other counters, they depend on how packets were batched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPath {
    /// Packets that took the fast path: they followed a cached rule.
    pub packets: u64,
    /// Of these, packets with a predicted rule.
    pub predicted: u64,
    /// Of these, packets whose state functions ran in parallel.
    pub beside: u64,
    /// Packets that were recorded on the slow path, to make rules.
    pub recorded: u64,
    /// Of these, packets from which no rule could be made.
    pub failed: u64,
}

/// The state before a packet was recorded.
pub(crate) struct RecordingStart {
    side: Side,
    like: RuleKey,
    ends: (Endpoint, Endpoint),
    covers: OuterMatches,
}

impl FlowCache {
    /// Creates a cache for a table of `capacity` records; `None` unless two functions in a row take
    /// part: for a single one, the slow path is as short as a rule.
    pub fn new(
        stages: &[Box<dyn Stage>],
        layout: &RecordLayout,
        capacity: u32,
        (guards, branches): (RuleGuards, bool),
    ) -> Result<Option<FlowCache>, OutOfMemory> {
        let wraps = |stage: &dyn Stage| stage.descriptor().writes.contains(&Field::Encapsulation);
        // Each packet has its own part of a stream.
        let takes_part = |stage: &dyn Stage| stage.descriptor().consolidates && !stage.descriptor().stream;
        let are_neighbours = |pair: &[Box<dyn Stage>]| pair.iter().all(|stage| takes_part(&**stage));
        let one_behind_other = match branches {
            true => stages.iter().filter(|stage| takes_part(&***stage)).count() > 1,
            false => stages.windows(2).any(are_neighbours),
        };
        if !one_behind_other || stages.len() > PREDICTING_NFS_MAX {
            return Ok(None);
        }
        let wraps = stages.iter().any(|stage| wraps(&**stage));
        let Some(rules) = RuleTable::new(capacity, RuleScope { wraps })? else { return Ok(None) };
        let taking_part: [Vec<u16>; 2] = [Side::Inside, Side::Outside].map(|side| {
            let stages = stages_from(side, stages.len()).filter(|&stage| takes_part(&*stages[stage]));
            stages.map(|stage| stage as u16).collect()
        });
        let is_asked = |stage: &u16| !stages[usize::from(*stage)].predicts_uniformly();
        let asked = taking_part.each_ref().map(|part| part.iter().copied().filter(is_asked).collect());
        Ok(Some(FlowCache {
            rules,
            programs: Programs::default(),
            draft: Draft::new(layout.lines()),
            recordings: stages.iter().map(|stage| takes_part(&**stage).then(Recording::default)).collect(),
            taking_part,
            asked,
            recording: false,
            repeats: true,
            wraps,
            guards,
            reviewed: None,
            said: PlannedActions::default(),
            shapes: Shapes::default(),
            counters: FastPath::default(),
        }))
    }

    /// Puts state functions that commute together in programs from now on.
    pub fn put_together(&mut self) {
        self.draft.put_together();
    }

    /// Creates an empty cache in place of this one, with its counters; `None` if there is no memory
    /// for it.
    pub fn renewed(
        &self,
        stages: &[Box<dyn Stage>],
        layout: &RecordLayout,
        (capacity, branches): (u32, bool),
    ) -> Option<FlowCache> {
        let mut new = FlowCache::new(stages, layout, capacity, (self.guards, branches)).ok().flatten()?;
        new.counters = self.counters;
        new.draft.puts_together_as(&self.draft);
        Some(new)
    }

    /// Returns the counters.
    pub fn counters(&self) -> FastPath {
        self.counters
    }

    /// Counts packets with state functions that ran in parallel.
    pub fn count_beside(&mut self, packets: u64) {
        self.counters.beside += packets;
    }

    /// Prefetches the rule for packets of a direction.
    #[inline(always)]
    pub fn prefetch(&self, record: u32, direction: Direction) {
        self.rules.prefetch(record, direction);
    }

    /// Forgets the rules of a flow.
    #[inline]
    pub fn forget(&mut self, record: u32) {
        self.rules.forget(record);
    }

    /// An operator gave a command: earlier rules hold only if none of their events does.
    pub fn raise_version(&mut self) {
        self.rules.raise_version();
    }

    /// Returns the rule for packets of a direction, current or not.
    #[inline(always)]
    pub fn rule(&self, record: u32, direction: Direction) -> Option<&CachedRule> {
        self.rules.get(record, direction)
    }

    /// Returns the outer headers that packets of a direction get, if their program adds some.
    #[inline]
    pub fn outer(&self, record: u32, direction: Direction) -> Option<&OuterHeaders> {
        self.rules.outer(record, direction)
    }

    /// See [`RuleTable::plain_path`].
    #[inline(always)]
    pub fn plain_path(&self, of: (u32, Direction), like: RuleKey) -> Option<(Path, u32)> {
        self.rules.plain_path(of, like)
    }

    /// Returns the timeout of the flow after this packet, if it may take this path: that of a
    /// program that does not take every packet.
    #[inline(always)]
    pub fn limited_path(
        &mut self,
        path: Path,
        of: (u32, Direction),
        like: RuleKey,
        packet: &Packet,
    ) -> Option<u32> {
        let program = path.program().filter(|program| program.is_limited())?;
        let covers = self.programs.covers(program)?;
        self.rules.limited_path((path, covers), of, like, packet)
    }

    /// Returns all programs for a group of n packets, until [`FlowCache::take_back`].
    #[inline]
    pub fn lend_programs(&mut self, packets: u64) -> Programs {
        self.counters.packets += packets;
        std::mem::take(&mut self.programs)
    }

    /// Takes the programs back.
    #[inline]
    pub fn take_back(&mut self, programs: Programs) {
        self.programs = programs;
    }

    /// Chooses the path of a packet of a known flow that brings the connection to this, and returns
    /// the flow's timeout after it, in milliseconds. `is_seen`: true if the flow's state is
    /// current, so that none of its packets is still to take the slow path.
    #[inline(never)]
    pub fn choose<'t>(
        &mut self,
        (stages, records): (&[Box<dyn Stage>], &FlowRecords),
        packet: &Packet,
        (like, connection): (RuleKey, Connection),
        (is_seen, expected): (bool, impl FnOnce() -> Option<TakenPath<'t>>),
    ) -> (Path, u32) {
        let transit = &packet.meta().transit;
        let of = (transit.flow, transit.direction);
        let mut path = self.rules.path(of, like, packet, &self.programs);
        if path == Path::REVALIDATE && self.reviewed == Some(transit.sequence) {
            path = self.rules.revalidated_path(of, packet, &self.programs);
        } else if path == Path::REVALIDATE && is_seen {
            path = self.look_again(stages, records, packet, like);
        }
        if matches!(path, Path::PREDICT | Path::RECORD)
            && is_seen
            && let Some(taken) = expected()
            && let Some(predicted) = self.predict((stages, records), packet, (like, connection), &taken)
        {
            self.counters.predicted += 1;
            return predicted;
        }
        match path {
            Path::PREDICT | Path::SLOW => (Path::SLOW, 0),
            _ => (path, self.rules.get(of.0, of.1).map_or(0, |rule| rule.keep_ms)),
        }
    }

    /// Revalidates a recorded rule from before a command, if only commands end it, and returns the
    /// packet's path. Rules that packets may end are left until earlier packets are through.
    #[inline(never)]
    fn look_again(
        &mut self,
        stages: &[Box<dyn Stage>],
        records: &FlowRecords,
        packet: &Packet,
        like: RuleKey,
    ) -> Path {
        let rules = &mut self.rules;
        let transit = &packet.meta().transit;
        let (record, direction) = (transit.flow, transit.direction);
        if rules.is_watched(record, direction) {
            return Path::REVALIDATE;
        }
        if holds(rules, stages, records, (record, direction)) {
            rules.end(record, direction);
        } else {
            rules.renew(record, direction);
        }
        rules.path_at_last((record, direction), like, packet, &self.programs)
    }

    /// Returns the lines of records that packets on a path will touch, of `all`.
    #[inline]
    pub fn lines(&self, path: Path, all: CacheLines) -> CacheLines {
        self.programs.lines(path, all)
    }

    /// Returns the program and the ends of a recorded rule; `None` if there is none.
    fn make_rule(
        &mut self,
        stages: &[Box<dyn Stage>],
        (begun, path): (RecordingStart, &TakenPath<'_>),
        protocol: u8,
        verdict: Verdict,
    ) -> Option<(ProgramId, NewEnds)> {
        let program = self.write_program(stages, (begun.side, begun.covers), path, verdict)?;
        let ends = NewEnds::new(begun.ends, self.draft.writes());
        fits(protocol, &ends).then_some((program, ends))
    }

    /// Returns the program of the recordings; `None` if there is none.
    fn write_program(
        &mut self,
        stages: &[Box<dyn Stage>],
        (side, covers): (Side, OuterMatches),
        path: &TakenPath<'_>,
        verdict: Verdict,
    ) -> Option<ProgramId> {
        let FlowCache { draft, recordings, programs, .. } = self;
        draft.begin(side, covers);
        let order = stages_from(side, stages.len()).filter(|&stage| path.stages.has(stage));
        draft.write(order, path, stages, recordings, verdict)?;
        programs.number(draft.program())
    }

    /// Sets a rule with the recorded events. Returns false if there are too many.
    fn set_rule(
        &mut self,
        (record, direction): (u32, Direction),
        like: RuleKey,
        program: ProgramId,
        ends: NewEnds,
    ) -> bool {
        let few = events(&self.recordings).count() <= EVENTS_MAX;
        if few {
            let FlowCache { draft, rules, recordings, .. } = self;
            let (keep_ms, outer) = (draft.keep_ms(), draft.outer());
            let (len_max, tags) = (draft.len_max(), draft.tags());
            let values = RuleValues { ends: &ends, keep_ms, outer, len_max, tags };
            rules.set(record, direction, like, (program, values));
            rules.note_events(record, direction, events(recordings));
        }
        few
    }

    /// Returns this function's recording, if a packet is being recorded.
    pub fn recording_of(&mut self, stage: usize) -> Option<&mut Recording> {
        if self.recording { self.recordings.get_mut(stage)?.as_mut() } else { None }
    }

    /// Begins to record the packet, which has joined its flow, if one of its kind must be recorded;
    /// otherwise forgets the flow's rules. A packet under an observer is recorded to the end, even
    /// if no rule can be made of it.
    pub fn begin_recording(
        &mut self,
        header: &RecordHeader,
        packet: &Packet,
        is_observed: bool,
    ) -> Option<RecordingStart> {
        let meta = packet.meta();
        let (record, direction) = (meta.transit.flow, meta.transit.direction);
        let is_due = |like| is_observed || self.rules.is_due(record, direction, like);
        let Some(like) = rule_key(header, packet, self.guards).filter(|&like| is_due(like)) else {
            self.rules.forget(record);
            return None;
        };
        self.counters.recorded += 1;
        self.recordings.iter_mut().flatten().for_each(|recording| recording.begin(!is_observed));
        (self.recording, self.repeats) = (true, true);
        let covers = OuterMatches::of(packet);
        Some(RecordingStart { side: meta.transit.side, like, ends: parse::ends(packet), covers })
    }

    /// Stops recording: something happened to the packet that need not happen to others.
    pub fn stop_recording(&mut self) {
        (self.recording, self.repeats) = (false, false);
    }

    /// Ends the recording of a packet. Returns true if it holds for others like it, unless the
    /// flow's attributes changed.
    pub fn end_recording(&mut self) -> bool {
        self.recording = false;
        self.repeats
    }

    /// Makes a rule from the recording of a settled packet, if its flow lives and its verdict was
    /// carried out.
    pub fn conclude(
        &mut self,
        stages: &[Box<dyn Stage>],
        header: &RecordHeader,
        (begun, path): (RecordingStart, &TakenPath<'_>),
        (record, direction): (u32, Direction),
        (protocol, verdict): (u8, Verdict),
        repeats: bool,
    ) {
        if !header.has(RecordHeader::FLAG_LIVE) || !header.has(RecordHeader::FLAG_ACCEPTED) {
            return;
        }
        let like = begun.like;
        let rule = if repeats { self.make_rule(stages, (begun, path), protocol, verdict) } else { None };
        let made =
            rule.is_some_and(|(program, ends)| self.set_rule((record, direction), like, program, ends));
        if !made {
            self.counters.failed += 1;
            self.rules.give_up(record, direction, like);
        }
    }

    /// A settled packet changed its flow's alias, so its recording holds for no other: the next one
    /// like it is recorded.
    pub fn expect_like(&mut self, begun: &RecordingStart, (record, direction): (u32, Direction)) {
        self.rules.record_next(record, direction, begun.like);
    }

    /// Checks the rule of a packet, and ends it if one of its events holds.
    #[cold]
    pub fn review(&mut self, stages: &[Box<dyn Stage>], records: &FlowRecords, packet: &Packet) {
        let transit = &packet.meta().transit;
        let (record, direction) = (transit.flow, transit.direction);
        if holds(&self.rules, stages, records, (record, direction)) {
            return self.rules.end(record, direction);
        }
        self.rules.renew(record, direction);
        self.reviewed = Some(transit.sequence);
    }

    /// Takes the flow's timeout out of a recorded packet, before a function processes it, so that
    /// this function's timeout is known. Returns it for [`FlowCache::end_wishes`].
    pub fn begin_wishes(&self, packets: &mut [Packet]) -> Option<u32> {
        let packet = packets.first_mut().filter(|_| self.recording)?;
        Some(std::mem::take(&mut packet.meta_mut().transit.keep_ms))
    }

    /// Records the timeout that the function at `stage` set.
    pub fn end_wishes(&mut self, stage: usize, packets: &mut [Packet], before_ms: u32) {
        let Some(packet) = packets.first_mut() else { return };
        let keep_ms = &mut packet.meta_mut().transit.keep_ms;
        if let Some(recording) = &mut self.recordings[stage] {
            recording.keep_ms = *keep_ms;
        }
        *keep_ms = before_ms.max(*keep_ms);
    }
}

/// Returns the functions on the path of packets of a side, in order.
fn stages_from(side: Side, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| if side == Side::Inside { step } else { count - 1 - step })
}

/// Returns true if packets of the protocol can get these ends: ICMP has one identifier for both.
fn fits(protocol: u8, ends: &NewEnds) -> bool {
    !matches!(protocol, protocol::ICMP | protocol::ICMPV6) || ends.writes().count() < 2
}

/// Returns true if an event of the rule for packets of a direction holds.
fn holds(
    rules: &RuleTable,
    stages: &[Box<dyn Stage>],
    records: &FlowRecords,
    (record, direction): (u32, Direction),
) -> bool {
    rules
        .events(record, direction)
        .any(|(stage, event)| stages.get(stage).is_none_or(|stage| stage.event_holds(event, record, records)))
}

/// Returns the recorded events, with their functions.
fn events(recordings: &[Option<Recording>]) -> impl Iterator<Item = (u16, EventCondition)> {
    let recordings = recordings.iter().zip(0..);
    recordings
        .flat_map(|(recording, stage)| Some((&recording.as_ref()?.events, stage)))
        .flat_map(|(events, stage)| events.iter().map(move |&event| (stage, event)))
}

/// Returns the properties of a packet that others treated alike must share; `None` if it is unlike
/// any other. The packet has joined the flow with this header.
fn rule_key(header: &RecordHeader, packet: &Packet, guards: RuleGuards) -> Option<RuleKey> {
    let meta = packet.meta();
    let connection = Connection::from_phase(meta.transit.phase);
    let like = RuleKey::new(meta, header.key != meta.key, connection).guarded(packet, guards);
    let is_ordinary = meta.class == PacketClass::Whole && like.is_ordinary();
    (is_ordinary && !header.has(RecordHeader::FLAG_TURNS)).then_some(like)
}
