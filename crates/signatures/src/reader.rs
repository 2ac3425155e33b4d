//! From a rule's text to the rule.

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
use crate::keyword::{self, Keyword, Status, Takes};
use crate::text::{Piece, Read, Wrong};
use crate::variables::Variables;
use crate::{Rule, RuleError};

pub(crate) use draft::Draft;

/// How a keyword's argument gets into a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// By a function.
    Function(Function),
    /// It chooses the buffer for what follows.
    Sticky(Buffer),
    /// It chooses the buffer of the content before it.
    Modifier(Buffer),
    /// Not at all.
    None,
}

pub(crate) type Function = fn(&mut Draft<'_>, Given<'_>) -> Read<()>;

/// A keyword as a rule has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'a> {
    /// Its name in the table.
    pub name: &'static str,
    /// Where it stands.
    pub word: Piece<'a>,
    /// Its argument, trimmed; empty if it has none.
    pub value: Piece<'a>,
}

/// A rule that was not read: why, and what could be read of it.
pub(crate) struct Refused {
    pub wrong: Wrong,
    pub sid: Option<u32>,
    pub keyword: Option<String>,
}

/// Reads a rule.
pub(crate) fn rule(
    text: Piece<'_>,
    variables: &Variables,
    classes: &Classifications,
) -> Result<Rule, Refused> {
    let refused = |wrong| Refused { wrong, sid: sid(text), keyword: None };
    let (header, body) = split::halves(text).map_err(refused)?;
    let header = header::read(header, variables).map_err(refused)?;
    let mut draft = Draft::new(header, classes);
    for option in split::options(body) {
        let (word, value) = option.map_err(refused)?;
        let named = |wrong| Refused { wrong, sid: sid(text), keyword: Some(word.text.to_owned()) };
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
) -> Read<()> {
    let name = keyword.name;
    if let Status::Unsupported(reason) = keyword.status {
        return Err(word.error(RuleError::UnsupportedKeyword { keyword: name, reason }));
    }
    match keyword.takes {
        Takes::Nothing if !value.is_empty() => {
            return Err(value.error(RuleError::UnexpectedArgument { keyword: name }));
        }
        Takes::Argument if value.is_empty() => {
            return Err(word.error(RuleError::NoArgument { keyword: name }));
        }
        _ => {}
    }
    let given = Given { name, word, value };
    match keyword.reader {
        Reader::Function(read) => read(draft, given),
        Reader::Sticky(buffer) => draft.choose(buffer, given),
        Reader::Modifier(buffer) => draft.move_content(buffer, given),
        Reader::None => Ok(()),
    }
}

/// The number of a rule that cannot be read, if that can be.
fn sid(text: Piece<'_>) -> Option<u32> {
    let (_, body) = split::halves(text).ok()?;
    let is_sid = |(word, _): &(Piece<'_>, Piece<'_>)| word.text.eq_ignore_ascii_case("sid");
    let (_, value) = split::options(body).flatten().find(is_sid)?;
    value.number(1..=u32::MAX).ok()
}

impl<'a> Given<'a> {
    /// That it stands a second time.
    pub fn repeated(self) -> Wrong {
        self.word.error(RuleError::Repeated { keyword: self.name })
    }

    /// That it lacks something before it.
    pub fn alone(self, what: &'static str) -> Wrong {
        self.word.error(RuleError::NothingBefore { keyword: self.name, what })
    }

    /// The argument without its quotes, if it has some.
    pub fn unquoted(self) -> Read<Piece<'a>> {
        unquote(self.value)
    }
}

/// A text without its quotes, if it has some: then at both ends. What is escaped in it stays so.
pub(crate) fn unquote(piece: Piece<'_>) -> Read<Piece<'_>> {
    let Some(rest) = piece.strip("\"") else { return Ok(piece) };
    match rest.text.strip_suffix('"') {
        Some(inner) if !ends_escaped(inner) => Ok(rest.part(0, inner.len())),
        _ => Err(piece.error(RuleError::Malformed {
            what: "a `\"` without a second one; a `;` within is written `\\;`",
        })),
    }
}

/// Whether what comes next is escaped.
fn ends_escaped(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()) % 2 == 1
}

/// What stands in quotes, without its escapes: `\;`, `\:`, `\"`, `\\`.
pub(crate) fn unescape(piece: Piece<'_>) -> String {
    let mut plain = String::with_capacity(piece.text.len());
    let mut chars = piece.text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ (';' | ':' | '"' | '\\')) => plain.push(escaped),
                // Of no use, and common: a path, say.
                Some(other) => plain.extend(['\\', other]),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    plain
}
