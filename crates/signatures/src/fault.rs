//! Lines of a file, and the faults in them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::text::SyntaxError;
use crate::{RuleAction, RuleError};

/// Maximum bytes of a rule, including its continuation lines.
pub const RULE_BYTES_MAX: usize = 65_536;

/// A refused part of a file, with its position.
///
/// It is displayed as `emerging-dns.rules:12:34: sid 2012345: depth: found `x`, expected a number
/// from 0 to 65535`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// The line.
    pub place: SourceLine,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The sid of the rule, if it could be read.
    pub sid: Option<u32>,
    /// The action of the rule, if it could be read.
    pub action: Option<RuleAction>,
    /// The keyword with the invalid argument, as written.
    pub keyword: Option<String>,
    /// The error.
    pub error: RuleError,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file name that the caller gave.
    pub file: Arc<str>,
    /// The line from 1; the first one of a rule with several lines.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.place, self.column)?;
        if let Some(sid) = self.sid {
            write!(f, "sid {sid}: ")?;
        }
        // Errors about a keyword include its name.
        if let (Some(keyword), RuleError::Value { .. } | RuleError::NeverMatches { .. }) =
            (&self.keyword, &self.error)
        {
            write!(f, "{keyword}: ")?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for RuleFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The significant lines of a file: neither empty nor comments.
pub(crate) struct Lines<'a> {
    file: Arc<str>,
    rest: &'a str,
    line: u32,
    /// True if a `\` at the end of a line continues it.
    continued: bool,
}

/// A line, with its continuation lines.
pub(crate) struct Line<'a> {
    pub text: Cow<'a, str>,
    file: Arc<str>,
    /// Offset in the text, and number, of each of the file's lines.
    starts: Vec<(usize, u32)>,
}

impl<'a> Lines<'a> {
    /// Reads lines without continuation.
    pub fn plain(file: &str, text: &'a str) -> Self {
        // Skip a byte-order mark.
        Self { file: file.into(), rest: text.trim_start_matches('\u{feff}'), line: 0, continued: false }
    }

    /// Reads lines with continuation by a final `\`.
    pub fn continued(file: &str, text: &'a str) -> Self {
        Self { continued: true, ..Self::plain(file, text) }
    }

    fn physical(&mut self) -> Option<(u32, &'a str)> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line = self.line.saturating_add(1);
        Some((self.line, line.strip_suffix('\r').unwrap_or(line)))
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        loop {
            let (number, first) = self.physical()?;
            if first.trim_start().starts_with('#') || first.trim().is_empty() {
                continue;
            }
            let mut starts = vec![(0, number)];
            let mut text = Cow::Borrowed(first);
            while self.continued
                && let Some(kept) = text.strip_suffix('\\').map(str::len)
            {
                text.to_mut().truncate(kept);
                let Some((number, next)) = self.physical() else { break };
                starts.push((text.len(), number));
                text.to_mut().push_str(next);
            }
            return Some(Line { text, file: self.file.clone(), starts });
        }
    }
}

impl Line<'_> {
    /// Returns the position of the line.
    pub fn place(&self) -> SourceLine {
        SourceLine { file: self.file.clone(), line: self.starts.first().map_or(0, |(_, line)| *line) }
    }

    pub fn fault(&self, wrong: SyntaxError) -> RuleFault {
        let after = self.starts.partition_point(|(start, _)| *start <= wrong.at);
        let (start, line) = self.starts.get(after.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.char_indices().filter(|(at, _)| (start..wrong.at).contains(at));
        let column = before.count();
        RuleFault {
            place: SourceLine { file: self.file.clone(), line },
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
            sid: None,
            action: None,
            keyword: None,
            error: wrong.error,
        }
    }
}
