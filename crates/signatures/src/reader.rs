//! Parsing of rules.

pub(crate) mod application;
pub(crate) mod bytes;
mod check;
pub(crate) mod content;
mod draft;
pub(crate) mod flow;
mod header;
pub(crate) mod limit;
pub(crate) mod meta;
pub(crate) mod packet;
pub(crate) mod pcre;
mod split;
pub(crate) mod transform;

use crate::buffer::Buffer;
use crate::classification::Classifications;
use crate::keyword::{self, ArgumentKind, Keyword, KeywordStatus};
use crate::text::{ParseResult, Piece, SyntaxError};
use crate::variables::RuleVariables;
use crate::{Rule, RuleError};

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

/// A rule that could not be parsed: the error, and the parts that were read.
pub(crate) struct RejectedRule {
    pub wrong: SyntaxError,
    pub sid: Option<u32>,
    pub keyword: Option<String>,
}

/// Parses a rule.
pub(crate) fn rule(
    text: Piece<'_>,
    variables: &RuleVariables,
    classes: &Classifications,
) -> Result<Rule, RejectedRule> {
    let refused = |wrong| RejectedRule { wrong, sid: sid(text), keyword: None };
    let (header, body) = split::halves(text).map_err(refused)?;
    let header = header::read(header, variables).map_err(refused)?;
    let mut draft = Draft::new(header, classes);
    for option in split::options(body) {
        let (word, value) = option.map_err(refused)?;
        let named = |wrong| RejectedRule { wrong, sid: sid(text), keyword: Some(word.text.to_owned()) };
        let Some(keyword) = keyword::keyword(word.text) else {
            let similar = keyword::similar(word.text);
            return Err(named(
                word.error(RuleError::UnknownKeyword { keyword: word.text.to_owned(), similar }),
            ));
        };
        option_of(&mut draft, keyword, word, value).map_err(named)?;
    }
    draft.finish(text).map_err(refused)
}

fn option_of(
    draft: &mut Draft<'_>,
    keyword: &'static Keyword,
    word: Piece<'_>,
    value: Piece<'_>,
) -> ParseResult<()> {
    let name = keyword.name;
    if let KeywordStatus::Unsupported(reason) = keyword.status {
        return Err(word.error(RuleError::UnsupportedKeyword { keyword: name, reason }));
    }
    match keyword.takes {
        ArgumentKind::Nothing if !value.is_empty() => {
            return Err(value.error(RuleError::UnexpectedArgument { keyword: name }));
        }
        ArgumentKind::Argument if value.is_empty() => {
            return Err(word.error(RuleError::NoArgument { keyword: name }));
        }
        _ => {}
    }
    let given = KeywordUse { name, word, value };
    match keyword.reader {
        Reader::Function(read) => read(draft, given),
        Reader::Sticky(buffer) => draft.choose(buffer, given),
        Reader::Modifier(buffer) => draft.move_content(buffer, given),
        Reader::None => Ok(()),
    }
}

/// Returns the sid of a rule that cannot be parsed, if it can be found.
fn sid(text: Piece<'_>) -> Option<u32> {
    let (_, body) = split::halves(text).ok()?;
    let is_sid = |(word, _): &(Piece<'_>, Piece<'_>)| word.text.eq_ignore_ascii_case("sid");
    let (_, value) = split::options(body).flatten().find(is_sid)?;
    value.number(1..=u32::MAX).ok()
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
