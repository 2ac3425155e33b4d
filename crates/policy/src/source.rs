//! The texts that a policy is made of, and places in them.

mod redact;

use std::borrow::Cow;
use std::ops::Range;

/// Most bytes in one source, the policy itself or a file that it names. Larger ones are refused,
/// not cut.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;

/// One of the texts of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// A range of bytes in a source, on character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Which source.
    pub source: SourceId,
    /// First byte.
    pub start: u32,
    /// First byte behind the range.
    pub end: u32,
}

/// The texts that belong to one policy, each with the name that messages call it by.
#[derive(Clone, Debug, Default)]
pub struct SourceMap(Vec<Source>);

#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: String,
    /// The offset at which each line begins.
    lines: Vec<u32>,
}

/// A source was not accepted, because it exceeds [`SOURCE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are too many: a source has at most {SOURCE_BYTES_MAX}")]
pub struct SourceTooLarge {
    /// The size of the refused text.
    pub bytes: usize,
}

impl SourceMap {
    /// Adds a text under a name, normally that of its file.
    ///
    /// # Errors
    /// [`SourceTooLarge`].
    pub fn add(&mut self, name: &str, text: String) -> Result<SourceId, SourceTooLarge> {
        if text.len() > SOURCE_BYTES_MAX {
            return Err(SourceTooLarge { bytes: text.len() });
        }
        let newlines = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at as u32 + 1)).collect();
        self.0.push(Source { name: name.to_owned(), text, lines });
        Ok(SourceId(self.0.len() as u32 - 1))
    }

    /// The source with that name, if there is one.
    pub fn find(&self, name: &str) -> Option<SourceId> {
        self.0.iter().position(|s| s.name == name).map(|at| SourceId(at as u32))
    }

    /// The name of a source; empty if it is not one of these.
    pub fn name(&self, id: SourceId) -> &str {
        self.get(id).map_or("", |s| &s.name)
    }

    /// The text of a source; empty if it is not one of these.
    pub fn text(&self, id: SourceId) -> &str {
        self.get(id).map_or("", |s| &s.text)
    }

    /// The text that a span covers; empty if it does not lie in these sources.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.source).get(span.range()).unwrap_or("")
    }

    /// Line and column of a span's start, in characters, both from 1.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let Some(source) = self.get(span.source) else { return (1, 1) };
        let line = source.lines.partition_point(|start| *start <= span.start).max(1);
        let before = source.text.get(source.lines[line - 1] as usize..span.start as usize).unwrap_or("");
        (line, before.chars().count() + 1)
    }

    /// The span of `width` characters at a line and column from 1, cut to that line; `None` if
    /// there is no such line.
    pub fn span_at(&self, source: SourceId, line: u32, column: u32, width: u32) -> Option<Span> {
        let range = self.line_range(source, line as usize)?;
        let text = self.text(source).get(range.clone())?;
        let offset = |chars: u32| {
            let at = text.char_indices().nth(chars as usize).map_or(text.len(), |(at, _)| at);
            (range.start + at) as u32
        };
        let column = column.saturating_sub(1);
        Some(Span { source, start: offset(column), end: offset(column.saturating_add(width)) })
    }

    /// The bytes of a line (from 1), without its end.
    pub(crate) fn line_range(&self, source: SourceId, line: usize) -> Option<Range<usize>> {
        let source = self.get(source)?;
        let start = *source.lines.get(line.checked_sub(1)?)? as usize;
        let end = source.lines.get(line).map_or(source.text.len(), |next| *next as usize - 1);
        let end = if source.text[start..end].ends_with('\r') { end - 1 } else { end };
        Some(start..end)
    }

    /// A part of a source as messages may show it: of a policy, without its secrets.
    pub(crate) fn shown(&self, id: SourceId, window: Range<usize>) -> Cow<'_, str> {
        // Files are the language of somebody else: their keys are not ours.
        let is_policy = id == SourceId(0);
        if is_policy {
            redact::redacted(self.text(id), window)
        } else {
            Cow::Borrowed(&self.text(id)[window])
        }
    }

    fn get(&self, id: SourceId) -> Option<&Source> {
        self.0.get(id.0 as usize)
    }
}

impl Span {
    /// From the start of `self` to the end of `other`.
    pub fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.start), ..self }
    }

    /// The first `bytes` bytes of the span.
    pub(crate) fn head(self, bytes: u32) -> Self {
        Self { end: self.end.min(self.start.saturating_add(bytes)), ..self }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
