//! Lines of a file, and what is wrong in them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::RuleError;
use crate::text::Wrong;

/// The most bytes of a rule, its continuation lines together.
pub const RULE_BYTES_MAX: usize = 65_536;

/// Something in a file that was refused, and where.
///
/// It is shown as
/// `emerging-dns.rules:12:34: sid 2012345: depth: found `x`, expected a number from 0 to 65535`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The number of the rule, if it could be read.
    pub sid: Option<u32>,
    /// The keyword whose argument is meant, as written.
    pub keyword: Option<String>,
    /// What is wrong.
    pub error: RuleError,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file's name, as the reader was told.
    pub file: Arc<str>,
    /// The line, from 1; of a rule in several lines the first.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.place, self.column)?;
        if let Some(sid) = self.sid {
            write!(f, "sid {sid}: ")?;
        }
        // Errors about a keyword name it themselves.
        if let (Some(keyword), RuleError::Value { .. } | RuleError::NeverMatches { .. }) =
            (&self.keyword, &self.error)
        {
            write!(f, "{keyword}: ")?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The lines of a file that say something: not empty and no comments.
pub(crate) struct Lines<'a> {
    file: Arc<str>,
    rest: &'a str,
    line: u32,
    /// Whether a `\` at the end of a line makes the next one a part of it.
    continued: bool,
}

/// A line, or several that continue each other.
pub(crate) struct Line<'a> {
    pub text: Cow<'a, str>,
    file: Arc<str>,
    /// Where each of the file's lines begins in the text, and its number.
    starts: Vec<(usize, u32)>,
}

impl<'a> Lines<'a> {
    /// Lines by themselves.
    pub fn plain(file: &str, text: &'a str) -> Self {
        // A mark of the byte order says nothing.
        Self { file: file.into(), rest: text.trim_start_matches('\u{feff}'), line: 0, continued: false }
    }

    /// Lines where a `\` at the end of one makes the next one a part of it.
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
    /// Where the line is.
    pub fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.starts.first().map_or(0, |(_, line)| *line) }
    }

    pub fn fault(&self, wrong: Wrong) -> Fault {
        let after = self.starts.partition_point(|(start, _)| *start <= wrong.at);
        let (start, line) = self.starts.get(after.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.char_indices().filter(|(at, _)| (start..wrong.at).contains(at));
        let column = before.count();
        Fault {
            place: Place { file: self.file.clone(), line },
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
            sid: None,
            keyword: None,
            error: wrong.error,
        }
    }
}
