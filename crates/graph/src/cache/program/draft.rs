//! Writing a program from what functions recorded.

use nf::record::CacheLines;
use nf::stage::Stage;
use nf::{Cause, Field, HeaderAction, Recording, Verdict};
use packet::{End, Endpoint, OuterHeaders, OuterMatches, Side, Tag, TagKind, TagRoom};

use super::commuting::put_together;
use super::{Batch, Layer, Program, Step, TakenPath};

impl Program {
    /// Packets must have the same outer headers.
    fn must_come_in(&mut self, covers: &OuterMatches) -> Option<()> {
        self.covers.outer = Some(covers.outer.clone()?);
        self.limited = true;
        Some(())
    }

    /// Packets must have the same tags and labels.
    fn must_have_tags(&mut self, covers: &OuterMatches) -> Option<()> {
        self.covers.tags = Some(covers.tags.clone()?);
        self.limited = true;
        Some(())
    }

    /// Leaves out a pushed layer that is popped here.
    fn cancel(&mut self, (at, pushed): (usize, Pushed)) -> Option<()> {
        let step = self.steps.get_mut(at)?;
        let (&mut Step::Encap(by) | &mut Step::PushTag(by, _)) = step else { return None };
        *step = Step::Cancelled(by, pushed.layer());
        self.steps.push(Step::Restored(pushed.layer()));
        Some(())
    }
}

/// A program that is being written, and the values of its flow's packets. Its memory is reused.
pub(crate) struct Draft {
    program: Program,
    /// The endpoints that are written into packets.
    writes: Vec<(End, Endpoint)>,
    /// The layers that are pushed, with their steps.
    pushed: Vec<(usize, Pushed)>,
    /// The first pushed layer that no function has seen.
    unseen: usize,
    /// True if a function that sees every packet may have changed its outer headers or tags.
    resized: bool,
    /// The packet's outer headers and tags on arrival, and true if the headers were removed.
    came_in: (OuterMatches, bool),
    /// The longest packet for this program, in bytes of its IP packet.
    len_max: u16,
    /// The tags that were added: now, and at most.
    tags: (TagRoom, TagRoom),
    /// The timeout set by functions that do not see every packet, in milliseconds.
    keep_ms: u32,
    /// The lines of records that packets touch on the slow path.
    all: CacheLines,
    /// True if state functions that commute are put together.
    puts_together: bool,
}

impl Draft {
    /// Creates an empty draft. `all`: the lines of records that packets touch on the slow path.
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

    /// Begins a program for packets that entered by this side with these outer headers and tags.
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

    /// Writes the steps of packets like the recorded one; `None` if they could differ. `order` has
    /// the functions as the packet visited them, on the edges of `path`; `verdict` is their
    /// decision.
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
                    // Functions that see every packet have seen earlier writes.
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
        // A packet that was dropped by a function that sees every packet did not reach later ones.
        let dropped = matches!(program.steps.last(), Some(Step::Drop(..) | Step::DropAtEnd(_)));
        if dropped != (verdict != Verdict::Forward) || self.is_read(recordings) || self.outers().count() > 1 {
            return None;
        }
        if dropped && !seen_since(program, rewrite_at) {
            // No function sees it any more: it is dropped unchanged (B13).
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

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the ends that were written, in order.
    pub fn writes(&self) -> impl Iterator<Item = (End, Endpoint)> {
        self.writes.iter().copied()
    }

    /// Returns the outer headers that packets get, if any.
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

    /// Returns the tags for which packets must have room.
    pub fn tags(&self) -> TagRoom {
        self.tags.1
    }

    /// Returns the timeout set by functions that do not see every packet, in milliseconds.
    pub fn keep_ms(&self) -> u32 {
        self.keep_ms
    }

    /// Returns true if the function's actions on outer headers and tags hold for all packets of the
    /// program. What it added must be all that can be there other than the tags of packets on
    /// arrival. What it removed or looked up must be what all packets arrive with, or was added
    /// before and not seen by any function since (B14): a state function of its own would have seen
    /// it.
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

    /// Returns true if a state function reads ends that were written: it runs before or after all
    /// writes, not at the place of its function.
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

/// Removes the uppermost layer of a stack.
fn pop(pushed: &mut Vec<(usize, Pushed)>, stack: Option<TagKind>) -> Option<(usize, Pushed)> {
    let at = pushed.iter().rposition(|(_, pushed)| pushed.stack() == stack)?;
    Some(pushed.remove(at))
}

/// Returns true if a function that sees every packet comes after step `at`.
fn seen_since(program: &Program, at: Option<usize>) -> bool {
    at.is_some_and(|at| program.steps[at..].iter().any(|step| matches!(step, Step::Process(_))))
}

/// Returns true if a function may change outer headers or tags.
fn may_resize(stage: &dyn Stage) -> bool {
    stage.descriptor().writes.iter().any(|field| matches!(field, Field::Vlan | Field::Encapsulation))
}

/// Returns true if a function without a recording may write ends, or move them.
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

/// Returns true if a recorded function wrote ends.
fn sets_ends(recording: &Recording) -> bool {
    let sets =
        |action: &HeaderAction| matches!(action, HeaderAction::SetEnd(..) | HeaderAction::SetEmbeddedEnd(..));
    recording.actions.iter().any(sets)
}
