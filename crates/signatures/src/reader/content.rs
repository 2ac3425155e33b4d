//! `content` and what says more of it.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::RuleError;
use crate::buffer::Buffer;
use crate::number::Comparison;
use crate::payload::{CONTENT_BYTES_MAX, Content, FastPattern, Match, Operand, Position, REACH_BYTES_MAX};
use crate::reader::{Draft, Given, unquote};
use crate::text::{Piece, Read};

pub(crate) fn content(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    let content = read(given)?;
    draft.push(given, Match::Content(content))
}

/// An older spelling of a content in `http.uri`.
pub(crate) fn uricontent(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    let content = read(given)?;
    draft.push_to(given, Buffer::HttpUri, Match::Content(content))
}

fn read(given: Given<'_>) -> Read<Content> {
    let (negated, value) = given.value.negation();
    if !value.text.starts_with('"') {
        return Err(value.wrong("a text in quotes"));
    }
    let text = unquote(value)?;
    known_bytes(text)?;
    let pattern = bytes(text)?;
    let position = Position::ANYWHERE;
    Ok(Content { pattern, negated, nocase: false, position, ends: false, fast_pattern: None })
}

/// Refuses a text with U+FFFD, which stands for bytes of the file that are not UTF-8: which ones is
/// not known any more.
pub(crate) fn known_bytes(piece: Piece<'_>) -> Read<()> {
    match piece.text.find(char::REPLACEMENT_CHARACTER) {
        None => Ok(()),
        Some(at) => {
            let what =
                "a byte that is not UTF-8 is written as `|FC|` in a content, as `\\xFC` in an expression";
            Err(piece.part_at(at).error(RuleError::Malformed { what }))
        }
    }
}

/// The bytes of a content: text, in which `;`, `:`, `"` and `\` may be escaped by `\`, and `|..|`
/// with hexadecimal bytes.
fn bytes(piece: Piece<'_>) -> Read<Vec<u8>> {
    let mut bytes = Vec::with_capacity(piece.text.len());
    // Within `|..|`: where that began. And half of a byte.
    let (mut hexadecimal, mut half, mut escaped) = (None, None, false);
    for (at, byte) in piece.text.bytes().enumerate() {
        let wrong = |what| Err(piece.part_at(at).error(RuleError::Malformed { what }));
        match (byte, hexadecimal) {
            (b'|', Some(_)) if half.is_some() => return wrong("a byte needs two hexadecimal digits"),
            (b'|', Some(_)) => hexadecimal = None,
            (b' ', Some(_)) => {}
            (_, Some(_)) => {
                let Some(digit) = (byte as char).to_digit(16) else {
                    return wrong("between `|` and `|` stand hexadecimal digits and spaces");
                };
                // A digit is below 16.
                let digit = digit as u8;
                match half.take() {
                    Some(high) => bytes.push(high << 4 | digit),
                    None => half = Some(digit),
                }
            }
            (b';' | b':' | b'"' | b'\\', None) if escaped => {
                bytes.push(byte);
                escaped = false;
            }
            (_, None) if escaped => return wrong("only `;`, `:`, `\"` and `\\` stand behind a `\\`"),
            (b'|', None) => hexadecimal = Some(at),
            (b'\\', None) => escaped = true,
            (b'"', None) => return wrong("a `\"` within is written `\\\"` or `|22|`"),
            (byte, None) => bytes.push(byte),
        }
    }
    if let Some(at) = hexadecimal {
        return Err(piece.part_at(at).error(RuleError::Malformed { what: "a `|` without a second one" }));
    }
    match bytes.len() {
        0 => Err(piece.wrong("at least one byte")),
        1..=CONTENT_BYTES_MAX => Ok(bytes),
        _ => Err(piece.error(RuleError::TooMany { what: "bytes in a content", limit: CONTENT_BYTES_MAX })),
    }
}

pub(crate) fn nocase(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &[])?;
    draft.content(given)?.nocase = true;
    Ok(())
}

pub(crate) fn offset(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &["distance", "within", "startswith"])?;
    let value = operand(draft, given.value, 0..=u16::MAX)?;
    match &mut draft.content(given)?.position {
        Position::Absolute { offset, .. } => *offset = value,
        other => *other = Position::Absolute { offset: value, depth: None },
    }
    Ok(())
}

pub(crate) fn depth(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &["distance", "within", "startswith"])?;
    let value = operand(draft, given.value, 0..=u16::MAX)?;
    let content = draft.content(given)?;
    fits(given, value, content)?;
    match &mut content.position {
        Position::Absolute { depth, .. } => *depth = Some(value),
        other => *other = Position::Absolute { offset: Operand::Value(0), depth: Some(value) },
    }
    Ok(())
}

pub(crate) fn distance(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "startswith"])?;
    let value = operand(draft, given.value, -REACH_BYTES_MAX..=REACH_BYTES_MAX)?;
    match &mut draft.content(given)?.position {
        Position::Relative { distance, .. } => *distance = value,
        other => *other = Position::Relative { distance: value, within: None },
    }
    Ok(())
}

pub(crate) fn within(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "startswith"])?;
    let value = operand(draft, given.value, 0..=REACH_BYTES_MAX)?;
    let content = draft.content(given)?;
    fits(given, value, content)?;
    match &mut content.position {
        Position::Relative { within, .. } => *within = Some(value),
        other => *other = Position::Relative { distance: Operand::Value(0), within: Some(value) },
    }
    Ok(())
}

pub(crate) fn startswith(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "distance", "within"])?;
    let content = draft.content(given)?;
    // A content has at most CONTENT_BYTES_MAX.
    let depth = Some(Operand::Value(content.pattern.len() as u16));
    content.position = Position::Absolute { offset: Operand::Value(0), depth };
    Ok(())
}

pub(crate) fn endswith(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.modify(given, &[])?;
    draft.content(given)?.ends = true;
    Ok(())
}

pub(crate) fn fast_pattern(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    draft.content(given)?;
    draft.once(given)?;
    if draft.content_buffer() == Some(Buffer::Base64Data) {
        return Err(given.word.error(RuleError::Unsupported { what: "`fast_pattern` in `base64_data`" }));
    }
    let content = draft.content(given)?;
    content.fast_pattern = Some(match given.value.text {
        "" => FastPattern::Whole,
        "only" => FastPattern::Only,
        _ => {
            let Some((offset, length)) = given.value.cut(",") else {
                return Err(given.value.wrong("`only`, or `offset,length`"));
            };
            let (offset, length): (u16, u16) =
                (offset.trim().number(0..=u16::MAX)?, length.trim().number(1..=u16::MAX)?);
            if usize::from(offset) + usize::from(length) > content.pattern.len() {
                let bytes = content.pattern.len();
                return Err(given.value.wrong(format!("a part of the content, which has {bytes} bytes")));
            }
            FastPattern::Part { offset, length }
        }
    });
    Ok(())
}

pub(crate) fn bsize(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    if draft.chosen_buffer().is_none() {
        return Err(given.alone("the name of a buffer"));
    }
    let size = Comparison::read(given.value)?;
    draft.push(given, Match::Size(size))
}

/// The size of `http.uri`, or after `raw` of `http.uri.raw`.
pub(crate) fn urilen(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    let (size, buffer) = match given.value.cut(",") {
        Some((size, form)) => {
            let forms = [("norm", Buffer::HttpUri), ("raw", Buffer::HttpUriRaw)];
            (size, form.trim().one_of(&forms)?)
        }
        None => (given.value, Buffer::HttpUri),
    };
    let size = Comparison::read(size)?;
    draft.push_to(given, buffer, Match::Size(size))
}

pub(crate) fn absent(draft: &mut Draft<'_>, given: Given<'_>) -> Read<()> {
    if draft.chosen_buffer().is_none() {
        return Err(given.alone("the name of a buffer"));
    }
    let or_else = !given.value.is_empty() && given.value.one_of(&[("or_else", true)])?;
    draft.push(given, Match::Absent { or_else })
}

/// A number, or the name of a variable.
pub(crate) fn operand<T>(draft: &Draft<'_>, piece: Piece<'_>, range: RangeInclusive<T>) -> Read<Operand<T>>
where
    T: Copy + PartialOrd + Display + TryFrom<i128>,
{
    match piece.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => draft.variable(piece).map(Operand::Variable),
        false => piece.number(range).map(Operand::Value),
    }
}

/// Whether a content fits into so many bytes.
fn fits<T: Copy + Into<i64>>(given: Given<'_>, bytes: Operand<T>, content: &Content) -> Read<()> {
    let Operand::Value(bytes) = bytes else { return Ok(()) };
    let needed = content.pattern.len();
    match usize::try_from(bytes.into()).is_ok_and(|bytes| bytes >= needed) {
        true => Ok(()),
        false => Err(given.value.error(RuleError::NeverMatches {
            why: format!("the content has {needed} bytes, which do not fit into {}", given.value.text),
        })),
    }
}
