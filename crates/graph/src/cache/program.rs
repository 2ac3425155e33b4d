//! Programs: the steps of packets on the fast path, without the values, which are
//! each flow's own: few programs serve all flows (B5, B6).

use nf::record::CacheLines;
use nf::stage::Stage;
use nf::{Cause, Field, HeaderAction, Recording, Verdict};
use packet::{DropReason, End, Endpoint, OuterHeaders, OuterMatches, Side, TAG_LEN, Tag, TagKind, TagRoom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::topology::{EdgeId, FilterReads, NfSet};

mod commuting;

use commuting::put_together;

/// Programs of a graph at most; a walk that would need another one is not made a rule.
pub(crate) const PROGRAMS_MAX: usize = 1024;

/// The number of a program, with a bit for those of which rules are looked at before every packet,
/// one for those whose packets form groups of their own, one for those that do not take every
/// packet, and one if it was not recorded, but predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(crate) struct ProgramId(u16);

impl ProgramId {
    const WATCHED: u16 = 1 << 15;
    const APART: u16 = 1 << 14;
    const LIMITED: u16 = 1 << 13;
    const PREDICTED: u16 = 1 << 12;

    /// All that is not its place among programs.
    const FLAGS: u16 = ProgramId::WATCHED | ProgramId::APART | ProgramId::LIMITED | ProgramId::PREDICTED;

    /// Returns true if packets follow it as long as the rule is not touched.
    #[inline(always)]
    pub fn is_unwatched(self) -> bool {
        self.0 & ProgramId::WATCHED == 0
    }

    /// Returns true if packets follow it only if they are in no tunnel, and not too long to be put
    /// into one, or have room for tags, or come in what is taken off.
    #[inline(always)]
    pub fn is_limited(self) -> bool {
        self.0 & ProgramId::LIMITED != 0
    }

    /// The same of flows for which it is not recorded that they follow it, but predicted.
    pub fn predicted(self) -> ProgramId {
        ProgramId(self.0 | ProgramId::PREDICTED)
    }

    /// Returns true if it is predicted that packets follow it: then it is predicted again after
    /// each command.
    #[inline(always)]
    pub fn is_predicted(self) -> bool {
        self.0 & ProgramId::PREDICTED != 0
    }

    /// Returns true if events are kept of rules that name it: all that were recorded, and of what
    /// is predicted, those that packets cause.
    #[inline]
    pub fn has_events(self) -> bool {
        !self.is_predicted() || !self.is_unwatched()
    }

    fn index(self) -> usize {
        usize::from(self.0 & !ProgramId::FLAGS)
    }
}

/// The path of a packet of a known flow: a program, or one of these. Numbers
/// that no program has, for they are compared for every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(crate) struct Path(u16);

impl Path {
    /// It walks through the graph.
    pub const SLOW: Path = Path(u16::MAX);
    /// It walks alone, and is recorded.
    pub const RECORD: Path = Path(u16::MAX - 1);
    /// The rule that there is is looked at first: a command, or every packet, may have ended it.
    pub const REVALIDATE: Path = Path(u16::MAX - 2);
    /// It walks, unless functions predict what they would do to it.
    pub const PREDICT: Path = Path(u16::MAX - 3);

    /// It follows this program.
    #[inline(always)]
    pub const fn fast(program: ProgramId) -> Path {
        Path(program.0)
    }

    /// The program that it follows, if it follows one.
    #[inline(always)]
    pub fn program(self) -> Option<ProgramId> {
        (self.0 < Path::PREDICT.0).then_some(ProgramId(self.0))
    }

    /// Returns true if such packets may be in one group with others that walk or follow programs:
    /// those who see every packet may feel the order of packets, and so do functions' sets and
    /// meters.
    #[inline(always)]
    pub fn mixes(self) -> bool {
        self == Path::SLOW || self.is_alone_to_itself()
    }

    /// Returns true if what such a packet does matters to its own flow only.
    #[inline(always)]
    pub fn is_alone_to_itself(self) -> bool {
        self.0 & (ProgramId::WATCHED | ProgramId::APART) == 0
    }

    /// Returns true if it is that of packets of a program that is not looked at: the next one of it
    /// may be known by that.
    #[inline(always)]
    pub fn is_fast(self) -> bool {
        self.program().is_some_and(ProgramId::is_unwatched)
    }

    /// Returns true if it is that of packets of a program that is not looked at, and takes all of
    /// them.
    #[inline(always)]
    pub fn is_plain_fast(self) -> bool {
        self.0 & (ProgramId::WATCHED | ProgramId::LIMITED) == 0
    }
}

const _: () = assert!(PROGRAMS_MAX < (ProgramId::PREDICTED - 4) as usize, "paths have numbers of their own");

/// Steps in the order in which packets take them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The side that the packets entered by.
    side: Side,
    steps: Vec<Step>,
    /// The lines of flows' records that most packets touch on the way.
    lines: CacheLines,
    /// True if an event may come by any packet.
    watched: bool,
    /// True if the order may be felt in which packets of several flows go through.
    apart: bool,
    /// True if packets are put into a tunnel, for which they may be too long, or get tags, for
    /// which there may be no room, or must come in the same as others.
    limited: bool,
    /// The outer headers and tags that packets must have.
    covers: OuterMatches,
}

impl Program {
    /// Packets must come in the same outer headers.
    fn must_come_in(&mut self, covers: &OuterMatches) -> Option<()> {
        self.covers.outer = Some(covers.outer.clone()?);
        self.limited = true;
        Some(())
    }

    /// Packets must come with the same tags and labels.
    fn must_have_tags(&mut self, covers: &OuterMatches) -> Option<()> {
        self.covers.tags = Some(covers.tags.clone()?);
        self.limited = true;
        Some(())
    }

    /// Cancels a push that is popped here: neither is done.
    fn cancel(&mut self, (at, pushed): (usize, Pushed)) -> Option<()> {
        let step = self.steps.get_mut(at)?;
        let (&mut Step::Encap(by) | &mut Step::PushTag(by, _)) = step else { return None };
        *step = Step::Cancelled(by, pushed.layer());
        self.steps.push(Step::Restored(pushed.layer()));
        Some(())
    }
}

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This function only counts the packet.
    Pass(usize),
    /// The next n steps run state functions that commute (B18).
    Together(usize),
    /// Of this function, these state functions run.
    Functions(usize, Batch),
    /// This function, which cannot be consolidated or whose doings vary, processes it.
    Process(usize),
    /// The packet gets this DSCP.
    SetDscp(u8),
    /// The packet gets its new ends; `known`: those that it has are those that it came with.
    Rewrite {
        /// True if no function that sees every packet had it before.
        known: bool,
    },
    /// The packet gets its rule's outer headers, by this function.
    Encap(usize),
    /// The packet gets this tag, by this function.
    PushTag(usize, Tag),
    /// It is taken out of the tunnel that it came in, whose headers have n bytes, by
    /// this function.
    Decap(usize, usize),
    /// The outermost tag of this kind that it came with is taken away, by this function.
    PopTag(usize, TagKind),
    /// The packet would get this by this function, but it is taken away again before anybody looks:
    /// the packet only counts as that much longer, until it is `Restored` (B14).
    Cancelled(usize, Layer),
    /// The packet counts as that much shorter again.
    Restored(Layer),
    /// This function, which has counted it, drops it.
    Drop(usize, DropReason),
    /// The packet takes this edge, which counts it.
    Edge(EdgeId),
    /// It is at the end of its path, where it is dropped.
    DropAtEnd(DropReason),
}

/// A layer that one function pushes and another one pops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Outer headers of n bytes.
    Outer(u8),
    /// A VLAN tag or an MPLS label.
    Tag,
}

impl Layer {
    /// Returns its length in bytes.
    pub fn len(self) -> usize {
        match self {
            Layer::Outer(len) => usize::from(len),
            Layer::Tag => TAG_LEN,
        }
    }
}

/// State functions of one function, by their numbers, in order (B18, B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    ids: [u16; BATCH_MAX],
    len: u8,
}

/// State functions of one function and packet at most; a walk with more is not made a rule.
const BATCH_MAX: usize = 4;

impl Batch {
    pub fn of(recording: &Recording) -> Option<Batch> {
        let (mut ids, len) = ([0; BATCH_MAX], recording.functions.len());
        for (id, function) in ids.get_mut(..len)?.iter_mut().zip(&recording.functions) {
            *id = function.id;
        }
        Some(Batch { ids, len: len as u8 })
    }

    /// Their numbers.
    #[inline]
    pub fn as_slice(&self) -> &[u16] {
        self.ids.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The programs of a graph.
#[derive(Default)]
pub(crate) struct Programs(Vec<Program>);

impl Programs {
    /// The number of a program, new or known; none if there are too many.
    pub fn number(&mut self, program: &Program) -> Option<ProgramId> {
        let index = match self.0.iter().position(|known| known == program) {
            Some(index) => index,
            None if self.0.len() == PROGRAMS_MAX => return None,
            None => {
                self.0.push(program.clone());
                self.0.len() - 1
            }
        };
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let Program { watched, apart, limited, .. } = *program;
        let flags = [
            flag(watched, ProgramId::WATCHED),
            flag(apart, ProgramId::APART),
            flag(limited, ProgramId::LIMITED),
        ];
        Some(ProgramId(flags.iter().fold(index as u16, |id, flag| id | flag)))
    }

    /// The lines of flows' records that packets of a path touch, those that walk `all`.
    #[inline]
    pub fn lines(&self, path: Path, all: CacheLines) -> CacheLines {
        path.program().and_then(|id| self.0.get(id.index())).map_or(all, |program| program.lines)
    }

    /// Returns the outer headers and tags that packets of a limited program must have.
    #[inline]
    pub fn covers(&self, id: ProgramId) -> Option<&OuterMatches> {
        self.0.get(id.index()).map(|program| &program.covers)
    }

    /// The steps of a program; none if there is no such program.
    #[inline]
    pub fn steps(&self, id: ProgramId) -> &[Step] {
        self.0.get(id.index()).map_or(&[], |program| &program.steps)
    }
}

/// The path of the packet that a program is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenPath<'a> {
    /// The functions.
    pub stages: NfSet,
    /// The edges, in order; none in a graph without branches.
    pub edges: &'a [EdgeId],
    /// The reason for which it was dropped at the end of its path.
    pub drop: Option<DropReason>,
    /// The fields that filters of the graph read and that may differ between packets of a flow.
    pub reads: FilterReads,
}

impl TakenPath<'_> {
    /// The path of all packets of a graph without branches.
    pub const LINE: TakenPath<'static> = TakenPath {
        stages: NfSet::ALL,
        edges: &[],
        drop: None,
        reads: FilterReads { tcp_flags: false, dscp: false, vlan: false, attributes: false },
    };
}

/// A program while it is written, and the values of its flow's packets. Its memory is used again.
pub(crate) struct Draft {
    program: Program,
    /// The endpoints that are written into packets.
    writes: Vec<(End, Endpoint)>,
    /// The layers that are pushed, with their steps.
    pushed: Vec<(usize, Pushed)>,
    /// Those of them that nobody has looked at begin here.
    unseen: usize,
    /// True if a function that sees every packet may have put it into a tunnel, or taken it out of
    /// one, or changed its tags.
    resized: bool,
    /// The packet's outer headers and tags on arrival, and true if it was taken out of its tunnel.
    came_in: (OuterMatches, bool),
    /// The longest packet that is treated so, in bytes of its IP packet.
    len_max: u16,
    /// The tags that it has more than it came with, and at most had.
    tags: (TagRoom, TagRoom),
    /// The timeout set by functions that do not see every packet, in milliseconds.
    keep_ms: u32,
    /// The lines of records that packets touch which walk.
    all: CacheLines,
    /// True if state functions that commute are put together.
    puts_together: bool,
}

impl Draft {
    /// Nothing is written yet. `all`: the lines of records that packets touch which walk.
    pub fn new(all: CacheLines) -> Draft {
        let (program, writes, pushed) = (Program::default(), Vec::new(), Vec::new());
        let (unseen, resized, came_in, tags) = (0, false, Default::default(), Default::default());
        Draft {
            program,
            writes,
            pushed,
            unseen,
            resized,
            came_in,
            len_max: u16::MAX,
            tags,
            keep_ms: 0,
            all,
            puts_together: false,
        }
    }

    /// State functions that commute are put together in programs from now on.
    pub fn put_together(&mut self) {
        self.puts_together = true;
    }

    /// Puts state functions together if the other draft does.
    pub fn puts_together_as(&mut self, other: &Draft) {
        self.puts_together = other.puts_together;
    }

    /// Begins again, for packets that entered by this side, and came in this, as far as they can be
    /// told to be alike.
    pub fn begin(&mut self, side: Side, covers: OuterMatches) {
        self.came_in = (covers, false);
        self.writes.clear();
        self.pushed.clear();
        (self.unseen, self.resized, self.len_max, self.keep_ms) = (0, false, u16::MAX, 0);
        self.tags = Default::default();
        let mut steps = std::mem::take(&mut self.program.steps);
        steps.clear();
        self.program = Program { side, steps, ..Program::default() };
    }

    /// Writes what packets are to go through that are treated as the one that was recorded; none if
    /// its walk cannot stand for others. `order` has the functions as the packet met
    /// them, on the edges of `path`; `verdict` is what they
    /// decided.
    pub fn write(
        &mut self,
        order: impl Iterator<Item = usize>,
        path: &TakenPath<'_>,
        stages: &[Box<dyn Stage>],
        recordings: &[Option<Recording>],
        verdict: Verdict,
    ) -> Option<()> {
        let mut rewrite_at = None;
        let mut edges = path.edges.iter().map(|&edge| Step::Edge(edge));
        self.program.steps.extend(edges.next());
        if path.reads.vlan {
            self.program.must_have_tags(&self.came_in.0)?;
        }
        for stage in order {
            let recording = recordings.get(stage)?.as_ref();
            if recording.is_some_and(|recording| !recording.repeats()) {
                return None;
            }
            let Some(recording) =
                recording.filter(|recording| !recording.per_packet && self.holds_for_all(recording))
            else {
                if recording.map_or_else(|| may_set_ends(&*stages[stage]), sets_ends) {
                    return None;
                }
                if path.reads.attributes && !stages[stage].descriptor().attributes.is_empty() {
                    return None; // Any packet may set what a filter on its path reads.
                }
                self.program.steps.push(Step::Process(stage));
                (self.program.apart, self.program.lines) = (true, self.all);
                self.unseen = self.pushed.len();
                self.resized |= may_resize(&*stages[stage]);
                self.program.steps.extend(edges.next());
                continue;
            };
            self.keep_ms = self.keep_ms.max(recording.keep_ms);
            let program = &mut self.program;
            program.watched |= recording.events.iter().any(|event| event.cause == Cause::Packet);
            program.steps.push(if recording.functions.is_empty() {
                Step::Pass(stage)
            } else {
                program.apart |= stages[stage].shared().is_order_sensitive();
                program.lines.add(stages[stage].lines());
                self.unseen = self.pushed.len();
                Step::Functions(stage, Batch::of(recording)?)
            });
            for action in &recording.actions {
                match *action {
                    HeaderAction::Forward => {}
                    HeaderAction::FindTag(kind, _) => {
                        if !self.pushed.iter().any(|(_, pushed)| pushed.stack() == Some(kind)) {
                            program.must_have_tags(&self.came_in.0)?;
                        }
                    }
                    // What was written before is in the packets that every one of those functions
                    // saw since.
                    HeaderAction::SetEnd(end, to) if !seen_since(program, rewrite_at) => {
                        self.writes.push((end, to));
                        rewrite_at = Some(program.steps.len());
                    }
                    HeaderAction::SetField(Field::Dscp, value) => {
                        program.steps.push(Step::SetDscp(value as u8))
                    }
                    HeaderAction::Encap { outer, len_max } => {
                        self.pushed.push((program.steps.len(), Pushed::Outer(outer)));
                        program.steps.push(Step::Encap(stage));
                        (program.limited, self.len_max) = (true, self.len_max.min(len_max));
                    }
                    HeaderAction::PushTag(tag) => {
                        self.pushed.push((program.steps.len(), Pushed::Tag(tag)));
                        program.steps.push(Step::PushTag(stage, tag));
                        program.limited = true;
                        let now = self.tags.0.and_for(tag.kind());
                        self.tags = (now, now.or(self.tags.1));
                    }
                    HeaderAction::Decap { len, .. } => match pop(&mut self.pushed, None) {
                        Some(pushed) => program.cancel(pushed)?,
                        None => {
                            self.came_in.1 = true;
                            program.must_come_in(&self.came_in.0)?;
                            program.steps.push(Step::Decap(stage, len));
                        }
                    },
                    HeaderAction::PopTag(tag) => {
                        match pop(&mut self.pushed, Some(tag.kind())) {
                            Some(pushed) => program.cancel(pushed)?,
                            None => {
                                program.must_have_tags(&self.came_in.0)?;
                                program.steps.push(Step::PopTag(stage, tag.kind()));
                            }
                        }
                        self.tags.0 = self.tags.0.without(tag.kind());
                    }
                    HeaderAction::Drop(reason) => program.steps.push(Step::Drop(stage, reason)),
                    _ => return None,
                }
            }
            if matches!(self.program.steps.last(), Some(Step::Drop(..))) {
                break;
            }
            self.program.steps.extend(edges.next());
        }
        if let Some(reason) = path.drop
            && !matches!(self.program.steps.last(), Some(Step::Drop(..)))
        {
            self.program.steps.push(Step::DropAtEnd(reason));
        }
        let program = &self.program;
        // One that a function dropped that sees every packet did not come to those behind.
        let dropped = matches!(program.steps.last(), Some(Step::Drop(..) | Step::DropAtEnd(_)));
        if dropped != (verdict != Verdict::Forward) || self.is_read(recordings) || self.outers().count() > 1 {
            return None;
        }
        if dropped && !seen_since(program, rewrite_at) {
            // Nobody looks at it any more: it is dropped as it came (B13).
            self.writes.clear();
        } else if let Some(at) = rewrite_at {
            let steps = &mut self.program.steps;
            let known = !steps[..at].iter().any(|step| matches!(step, Step::Process(_)));
            steps.insert(at, Step::Rewrite { known });
        }
        if self.puts_together {
            put_together(&mut self.program.steps, recordings);
        }
        Some(())
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The ends that were written, in order.
    pub fn writes(&self) -> impl Iterator<Item = (End, Endpoint)> {
        self.writes.iter().copied()
    }

    /// The outer headers that packets get, if they get some.
    pub fn outer(&self) -> Option<&OuterHeaders> {
        self.outers().next()
    }

    fn outers(&self) -> impl Iterator<Item = &OuterHeaders> {
        self.pushed.iter().filter_map(|(_, pushed)| match pushed {
            Pushed::Outer(outer) => Some(outer),
            Pushed::Tag(_) => None,
        })
    }

    /// The longest packet that is treated so, in bytes of its IP packet.
    pub fn len_max(&self) -> u16 {
        self.len_max
    }

    /// The tags that packets are to have room for.
    pub fn tags(&self) -> TagRoom {
        self.tags.1
    }

    /// Returns the timeout set by functions that do not see every packet, in milliseconds.
    pub fn keep_ms(&self) -> u32 {
        self.keep_ms
    }

    /// Returns true if what a function did to outer headers and tags it would do to all packets
    /// that the program takes. What it put on must be all that can be there, beside tags that
    /// packets came with. What it took away, and the tags that it looked for, must be those that
    /// all of them come in, or have been put on before it, with nobody who saw it since (B14): a
    /// state function of its own would have seen it.
    fn holds_for_all(&self, recording: &Recording) -> bool {
        let mut open = self.pushed[self.unseen..].to_vec();
        let seen = |stack| self.pushed[..self.unseen].iter().any(|(_, pushed)| pushed.stack() == stack);
        let (covers, is_out) = &self.came_in;
        let mut outer = covers.outer.as_ref().filter(|_| !is_out && !self.resized && !seen(None));
        let has_tags = |kind| covers.tags.is_some() && !self.resized && !seen(Some(kind));
        recording.actions.iter().all(|action| match *action {
            HeaderAction::Encap { outer, .. } => {
                open.push((0, Pushed::Outer(outer)));
                !self.resized
            }
            HeaderAction::PushTag(tag) => {
                open.push((0, Pushed::Tag(tag)));
                !self.resized
            }
            HeaderAction::Decap { len, .. } => match pop(&mut open, None) {
                Some((_, of)) => recording.functions.is_empty() && of.layer().len() == len,
                None => outer.take().is_some_and(|outer| outer.len() == len),
            },
            HeaderAction::FindTag(kind, found) => {
                match open.iter().rfind(|(_, pushed)| pushed.stack() == Some(kind)) {
                    Some(&(_, pushed)) => found.map(Pushed::Tag) == Some(pushed),
                    None => has_tags(kind),
                }
            }
            HeaderAction::PopTag(tag) => match pop(&mut open, Some(tag.kind())) {
                Some((_, of)) => recording.functions.is_empty() && of == Pushed::Tag(tag),
                None => has_tags(tag.kind()),
            },
            _ => true,
        })
    }

    /// Returns true if a state function reads what was written: it runs before or behind all
    /// writes, not where its function stood.
    fn is_read(&self, recordings: &[Option<Recording>]) -> bool {
        let written = |field: Field| {
            let end = match field {
                Field::SourceAddress | Field::SourcePort => End::Source,
                Field::DestinationAddress | Field::DestinationPort => End::Destination,
                _ => return false,
            };
            self.writes().any(|(written, _)| written == end)
        };
        let mut functions = recordings.iter().flatten().flat_map(|recording| &recording.functions);
        functions.any(|function| function.reads.iter().any(|&field| written(field)))
    }
}

/// A layer that a function pushed.
#[derive(Clone, Copy, PartialEq)]
enum Pushed {
    Outer(OuterHeaders),
    Tag(Tag),
}

impl Pushed {
    /// Returns the stack that it is on top of: tags, labels, or none for outer headers.
    fn stack(self) -> Option<TagKind> {
        match self {
            Pushed::Outer(_) => None,
            Pushed::Tag(tag) => Some(tag.kind()),
        }
    }

    fn layer(self) -> Layer {
        match self {
            Pushed::Outer(outer) => Layer::Outer(outer.header_len() as u8),
            Pushed::Tag(_) => Layer::Tag,
        }
    }
}

/// Takes the uppermost of a stack away.
fn pop(pushed: &mut Vec<(usize, Pushed)>, stack: Option<TagKind>) -> Option<(usize, Pushed)> {
    let at = pushed.iter().rposition(|(_, pushed)| pushed.stack() == stack)?;
    Some(pushed.remove(at))
}

/// Returns true if a function sees the packets behind step `at`, of those that see every packet.
fn seen_since(program: &Program, at: Option<usize>) -> bool {
    at.is_some_and(|at| program.steps[at..].iter().any(|step| matches!(step, Step::Process(_))))
}

/// Returns true if packets may be in another tunnel, or have other tags, behind a function.
fn may_resize(stage: &dyn Stage) -> bool {
    stage.descriptor().writes.iter().any(|field| matches!(field, Field::Vlan | Field::Encapsulation))
}

/// Returns true if a function of which nothing is recorded may write ends, or move where they
/// stand.
fn may_set_ends(stage: &dyn Stage) -> bool {
    let moves = |field: &Field| {
        matches!(
            field,
            Field::SourceAddress
                | Field::DestinationAddress
                | Field::SourcePort
                | Field::DestinationPort
                | Field::Encapsulation
        )
    };
    stage.descriptor().writes.iter().any(moves)
}

/// Returns true if the function whose recording this is wrote ends.
fn sets_ends(recording: &Recording) -> bool {
    let sets =
        |action: &HeaderAction| matches!(action, HeaderAction::SetEnd(..) | HeaderAction::SetEmbeddedEnd(..));
    recording.actions.iter().any(sets)
}
