//! The parts of a rule: its header, and a handler of each keyword.

pub(crate) mod application;
pub(crate) mod bytes;
mod check;
pub(crate) mod content;
mod draft;
pub(crate) mod flow;
pub(crate) mod header;
pub(crate) mod limit;
pub(crate) mod meta;
pub(crate) mod packet;
pub(crate) mod pcre;
pub(crate) mod split;
pub(crate) mod transform;

use crate::RuleError;
use crate::buffer::Buffer;
use crate::text::{ParseResult, Piece, SyntaxError};

pub(crate) use draft::Draft;

/// The handler of a keyword.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// A function.
    Function(Function),
    /// Selects the buffer for the following keywords.
    Sticky(Buffer),
    /// Selects the buffer of the preceding content.
    Modifier(Buffer),
    /// None.
    None,
}

pub(crate) type Function = fn(&mut Draft<'_>, KeywordUse<'_>) -> ParseResult<()>;

/// A keyword in a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeywordUse<'a> {
    /// The name in the table.
    pub name: &'static str,
    /// The text of the keyword.
    pub word: Piece<'a>,
    /// The trimmed argument; empty if there is none.
    pub value: Piece<'a>,
}

impl<'a> KeywordUse<'a> {
    /// Returns the error that the keyword is repeated.
    pub fn repeated(self) -> SyntaxError {
        self.word.error(RuleError::Repeated { keyword: self.name })
    }

    /// Returns the error that something before the keyword is missing.
    pub fn alone(self, what: &'static str) -> SyntaxError {
        self.word.error(RuleError::NothingBefore { keyword: self.name, what })
    }

    /// Returns the argument without its optional quotes.
    pub fn unquoted(self) -> ParseResult<Piece<'a>> {
        unquote(self.value)
    }
}

/// Removes optional quotes at both ends. Escapes are kept.
pub(crate) fn unquote(piece: Piece<'_>) -> ParseResult<Piece<'_>> {
    let Some(rest) = piece.strip("\"") else { return Ok(piece) };
    match rest.text.strip_suffix('"') {
        Some(inner) if !ends_escaped(inner) => Ok(rest.part(0, inner.len())),
        _ => Err(piece.error(RuleError::Malformed {
            what: "a `\"` without a second one; a `;` within is written `\\;`",
        })),
    }
}

/// Returns whether the next character is escaped.
fn ends_escaped(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()) % 2 == 1
}

/// Resolves the escapes of quoted text: `\;`, `\:`, `\"`, `\\`.
pub(crate) fn unescape(piece: Piece<'_>) -> String {
    let mut plain = String::with_capacity(piece.text.len());
    let mut chars = piece.text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ (';' | ':' | '"' | '\\')) => plain.push(escaped),
                // Pointless, but common: a path, for example.
                Some(other) => plain.extend(['\\', other]),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    plain
}
