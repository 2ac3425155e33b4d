//! A rule's buffer tests, compiled.

use crate::{Buffer, BufferMatches, PayloadMatch, Rule};

use crate::inspect::scratch::InspectionScratch;
use crate::inspect::search;
use crate::inspect::step::{Step, steps};
use crate::inspect::transform::Transforms;
use crate::inspect::unsupported::{UnsupportedKeyword, UnsupportedReason};
use crate::inspect::view::BufferView;

/// The compiled buffer tests of a rule.
///
/// It can be shared, but threads that share it contend for the memory of its expressions: give each
/// thread a clone.
#[derive(Clone, Debug)]
pub struct Inspection {
    buffers: Vec<BufferInspection>,
}

impl Inspection {
    /// Compiles all of [`Rule::buffers`].
    ///
    /// # Errors
    /// The first unsupported keyword.
    pub fn new(rule: &Rule) -> Result<Self, UnsupportedKeyword> {
        decodes_once(&rule.buffers)?;
        let buffers = rule.buffers.iter().enumerate();
        let ready = buffers.map(|(buffer, matches)| {
            BufferInspection::new(matches).map_err(|(keyword, reason)| UnsupportedKeyword {
                keyword,
                buffer,
                reason,
            })
        });
        ready.collect::<Result<_, _>>().map(|buffers| Self { buffers })
    }

    /// Returns the buffers in the order of [`Rule::buffers`]; evaluate them in this order.
    pub fn buffers(&self) -> &[BufferInspection] {
        &self.buffers
    }

    /// Returns the buffer with this index of [`Rule::buffers`].
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn buffer(&self, index: usize) -> &BufferInspection {
        &self.buffers[index]
    }
}

/// The compiled tests of one buffer.
#[derive(Clone, Debug)]
pub struct BufferInspection {
    buffer: Buffer,
    transforms: Transforms,
    steps: Vec<Step>,
    absence: Absence,
}

/// The effect of a missing buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Fails,
    Holds,
    /// The buffer must be missing.
    Required,
}

impl BufferInspection {
    fn new(matches: &BufferMatches) -> Result<Self, (&'static str, UnsupportedReason)> {
        let says = |or_else| matches.matches.contains(&PayloadMatch::Absent { or_else });
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

    /// Returns the buffer. [`Buffer::Base64Data`] is evaluated with
    /// [`BufferInspection::holds_decoded`].
    pub fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// Returns the transforms to apply first.
    pub fn transforms(&self) -> &Transforms {
        &self.transforms
    }

    /// Returns whether a missing buffer matches.
    pub fn absent(&self) -> bool {
        self.absence != Absence::Fails
    }

    /// Returns whether the buffer, before its transforms, matches. Variables keep their values for
    /// the rule's other buffers.
    pub fn holds(&self, bytes: &[u8], scratch: &mut InspectionScratch) -> bool {
        self.holds_at(bytes, 0, scratch)
    }

    /// Returns whether a stream matches, given its `bytes` from byte `start` on. Absolute
    /// positions, the size, and the cursor before the first match count from the beginning of the
    /// stream. Earlier bytes are not searched, and numbers are not read from them; expressions see
    /// only `bytes`.
    pub fn holds_at(&self, bytes: &[u8], start: u64, scratch: &mut InspectionScratch) -> bool {
        if self.transforms.is_empty() {
            return self.holds_transformed(bytes, start, scratch);
        }
        // Taken out while the scratch is in use; it keeps its memory.
        let mut transformed = std::mem::take(&mut scratch.transformed);
        self.transforms.apply(bytes, &mut transformed);
        let holds = self.holds_transformed(&transformed, start, scratch);
        scratch.transformed = transformed;
        holds
    }

    /// Returns whether the output of [`BufferInspection::transforms`] matches, for rules that share
    /// a buffer and its transforms.
    pub fn holds_transformed(&self, bytes: &[u8], start: u64, scratch: &mut InspectionScratch) -> bool {
        self.absence != Absence::Required
            && search::holds(&self.steps, BufferView::new(bytes, start), scratch)
    }

    /// Returns whether the output of `base64_decode`, from a buffer of the same rule that was
    /// evaluated before, matches.
    pub fn holds_decoded(&self, scratch: &mut InspectionScratch) -> bool {
        let decoded = std::mem::take(&mut scratch.decoded);
        let holds = match decoded.is_empty() {
            true => self.absent(),
            false => self.holds(&decoded, scratch),
        };
        scratch.decoded = decoded;
        holds
    }
}

/// Checks that a rule decodes at most once, before it inspects the output.
fn decodes_once(buffers: &[BufferMatches]) -> Result<(), UnsupportedKeyword> {
    let decodes = |one: &BufferMatches| {
        one.matches.iter().filter(|m| matches!(m, PayloadMatch::Base64Decode(_))).count()
    };
    let Some(first) = buffers.iter().position(|one| decodes(one) > 0) else { return Ok(()) };
    let late = buffers[..=first].iter().any(|one| one.buffer == Buffer::Base64Data);
    match late || buffers.iter().map(decodes).sum::<usize>() > 1 {
        true => Err(UnsupportedKeyword {
            keyword: "base64_decode",
            buffer: first,
            reason: UnsupportedReason::Decodes,
        }),
        false => Ok(()),
    }
}
