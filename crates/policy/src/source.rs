//! The texts of a policy, and positions in them.

mod redact;

use std::borrow::Cow;
use std::ops::Range;

/// Limit on the bytes of a source, the policy or a file that it names. Larger ones are refused, not
/// cut.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;

/// A text of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// A range of bytes in a source, on character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The source.
    pub source: SourceId,
    /// First byte.
    pub start: u32,
    /// End of the range, exclusive.
    pub end: u32,
}

/// The texts of one policy, each with its name in messages.
#[derive(Clone, Debug, Default)]
pub struct SourceMap(Vec<Source>);

#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: String,
    /// Offset of each line.
    lines: Vec<u32>,
}

/// A source larger than [`SOURCE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source has {bytes} bytes, at most {SOURCE_BYTES_MAX} are allowed")]
pub struct SourceTooLarge {
    /// Size of the text.
    pub bytes: usize,
}

impl SourceMap {
    /// Adds a text under a name, normally its file name.
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

    /// Returns the source with that name.
    pub fn find(&self, name: &str) -> Option<SourceId> {
        self.0.iter().position(|s| s.name == name).map(|at| SourceId(at as u32))
    }

    /// Returns the name of a source; empty if it is not in this map.
    pub fn name(&self, id: SourceId) -> &str {
        self.get(id).map_or("", |s| &s.name)
    }

    /// Returns the texts of all files, in the order of reading.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|source| source.text.as_str())
    }

    /// Returns the text of a source; empty if it is not in this map.
    pub fn text(&self, id: SourceId) -> &str {
        self.get(id).map_or("", |s| &s.text)
    }

    /// Returns the text of a span; empty if it is not in this map.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.source).get(span.range()).unwrap_or("")
    }

    /// Returns line and column of a span's start, in characters, both from 1.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let Some(source) = self.get(span.source) else { return (1, 1) };
        let line = source.lines.partition_point(|start| *start <= span.start).max(1);
        let before = source.text.get(source.lines[line - 1] as usize..span.start as usize).unwrap_or("");
        (line, before.chars().count() + 1)
    }

    /// Returns the span of `width` characters at a line and column from 1, cut to that line. `None`
    /// if there is no such line.
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

    /// Returns the bytes of a line (from 1), without its end.
    pub(crate) fn line_range(&self, source: SourceId, line: usize) -> Option<Range<usize>> {
        let source = self.get(source)?;
        let start = *source.lines.get(line.checked_sub(1)?)? as usize;
        let end = source.lines.get(line).map_or(source.text.len(), |next| *next as usize - 1);
        let end = if source.text[start..end].ends_with('\r') { end - 1 } else { end };
        Some(start..end)
    }

    /// Returns a part of a source for messages: of a policy, with its secrets masked.
    pub(crate) fn shown(&self, id: SourceId, window: Range<usize>) -> Cow<'_, str> {
        // Files have a syntax of their own, with other keys.
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
    /// Returns the span from the start of `self` to the end of `other`.
    pub fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.start), ..self }
    }

    /// Returns the first `bytes` bytes of the span.
    pub(crate) fn head(self, bytes: u32) -> Self {
        Self { end: self.end.min(self.start.saturating_add(bytes)), ..self }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
