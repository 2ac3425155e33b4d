//! A rule's buffers, made ready to be looked at.

use crate::{Buffer, BufferMatches, Match, Rule};

use crate::inspect::scratch::Scratch;
use crate::inspect::search;
use crate::inspect::step::{Step, steps};
use crate::inspect::transform::Transforms;
use crate::inspect::unsupported::{Reason, Unsupported};
use crate::inspect::view::View;

/// What a rule asks of its buffers, made ready to be looked at.
///
/// It may be shared, but threads that share one wait for each other's memory when they run its
/// expressions: give each thread a clone.
#[derive(Clone, Debug)]
pub struct Inspection {
    buffers: Vec<Inspected>,
}

impl Inspection {
    /// Makes a rule ready, with all of [`Rule::buffers`] or not at all.
    ///
    /// # Errors
    /// The first keyword that cannot be carried out.
    pub fn new(rule: &Rule) -> Result<Self, Unsupported> {
        decodes_once(&rule.buffers)?;
        let buffers = rule.buffers.iter().enumerate();
        let ready = buffers.map(|(buffer, matches)| {
            Inspected::new(matches).map_err(|(keyword, reason)| Unsupported { keyword, buffer, reason })
        });
        ready.collect::<Result<_, _>>().map(|buffers| Self { buffers })
    }

    /// The rule's buffers, in the order of [`Rule::buffers`], in which they are to be evaluated.
    pub fn buffers(&self) -> &[Inspected] {
        &self.buffers
    }

    /// The buffer with an index of [`Rule::buffers`].
    ///
    /// # Panics
    /// If there is none.
    pub fn buffer(&self, index: usize) -> &Inspected {
        &self.buffers[index]
    }
}

/// What is asked of one buffer.
#[derive(Clone, Debug)]
pub struct Inspected {
    buffer: Buffer,
    transforms: Transforms,
    steps: Vec<Step>,
    absence: Absence,
}

/// What is said of there being no such buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Fails,
    Holds,
    /// And if there is one, it does not hold.
    Required,
}

impl Inspected {
    fn new(matches: &BufferMatches) -> Result<Self, (&'static str, Reason)> {
        let says = |or_else| matches.matches.contains(&Match::Absent { or_else });
        let absence = match (says(false), says(true)) {
            (true, _) => Absence::Required,
            (false, true) => Absence::Holds,
            (false, false) => Absence::Fails,
        };
        Ok(Self {
            buffer: matches.buffer,
            transforms: Transforms::new(&matches.transforms)?,
            steps: steps(&matches.matches)?,
            absence,
        })
    }

    /// Which buffer it is. [`Buffer::Base64Data`] is evaluated with [`Inspected::holds_decoded`].
    pub fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// What is done to the buffer first.
    pub fn transforms(&self) -> &Transforms {
        &self.transforms
    }

    /// Whether it holds that there is no such buffer.
    pub fn absent(&self) -> bool {
        self.absence != Absence::Fails
    }

    /// Whether the buffer, before its transforms, has all that is asked of it. Variables keep the
    /// values that they get for the rule's other buffers.
    pub fn holds(&self, bytes: &[u8], scratch: &mut Scratch) -> bool {
        self.holds_at(bytes, 0, scratch)
    }

    /// The same for a stream, of which `bytes` begin `start` bytes after its beginning: absolute
    /// positions, the size, and the cursor before the first match count from there. What is before
    /// the bytes is not found, and no number is read from it; to expressions the bytes are all
    /// there is.
    pub fn holds_at(&self, bytes: &[u8], start: u64, scratch: &mut Scratch) -> bool {
        if self.transforms.is_empty() {
            return self.holds_transformed(bytes, start, scratch);
        }
        // Taken out while the scratch is in use; it keeps what memory it has.
        let mut transformed = std::mem::take(&mut scratch.transformed);
        self.transforms.apply(bytes, &mut transformed);
        let holds = self.holds_transformed(&transformed, start, scratch);
        scratch.transformed = transformed;
        holds
    }

    /// The same for what [`Inspected::transforms`] gave already, for rules that share a buffer and
    /// its transforms.
    pub fn holds_transformed(&self, bytes: &[u8], start: u64, scratch: &mut Scratch) -> bool {
        self.absence != Absence::Required && search::holds(&self.steps, View::new(bytes, start), scratch)
    }

    /// Whether what `base64_decode` decoded, in a buffer of the same rule that was evaluated
    /// before, has all that is asked of it.
    pub fn holds_decoded(&self, scratch: &mut Scratch) -> bool {
        let decoded = std::mem::take(&mut scratch.decoded);
        let holds = match decoded.is_empty() {
            true => self.absent(),
            false => self.holds(&decoded, scratch),
        };
        scratch.decoded = decoded;
        holds
    }
}

/// A rule that decodes does so once, and before it looks at what that gives.
fn decodes_once(buffers: &[BufferMatches]) -> Result<(), Unsupported> {
    let decodes =
        |one: &BufferMatches| one.matches.iter().filter(|m| matches!(m, Match::Base64Decode(_))).count();
    let Some(first) = buffers.iter().position(|one| decodes(one) > 0) else { return Ok(()) };
    let late = buffers[..=first].iter().any(|one| one.buffer == Buffer::Base64Data);
    match late || buffers.iter().map(decodes).sum::<usize>() > 1 {
        true => Err(Unsupported { keyword: "base64_decode", buffer: first, reason: Reason::Decodes }),
        false => Ok(()),
    }
}
