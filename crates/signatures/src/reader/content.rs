//! `content` and its modifiers.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::RuleError;
use crate::buffer::Buffer;
use crate::number::Comparison;
use crate::payload::{
    CONTENT_BYTES_MAX, Content, ContentPosition, FastPattern, Operand, PayloadMatch, REACH_BYTES_MAX,
};
use crate::reader::{Draft, KeywordUse, unquote};
use crate::text::{ParseResult, Piece};

pub(crate) fn content(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let content = read(given)?;
    draft.push(given, PayloadMatch::Content(content))
}

/// Parses an older spelling of a content in `http.uri`.
pub(crate) fn uricontent(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let content = read(given)?;
    draft.push_to(given, Buffer::HttpUri, PayloadMatch::Content(content))
}

/// Parses an older spelling of a content in `tls.cert_subject`.
pub(crate) fn tls_subject(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let content = read(given)?;
    draft.push_to(given, Buffer::TlsCertSubject, PayloadMatch::Content(content))
}

/// Parses an older spelling of a content in `tls.cert_issuer`.
pub(crate) fn tls_issuerdn(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let content = read(given)?;
    draft.push_to(given, Buffer::TlsCertIssuer, PayloadMatch::Content(content))
}

/// Parses an older spelling of a content in `tls.cert_fingerprint`, in any case.
pub(crate) fn tls_fingerprint(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let content = Content { nocase: true, ..read(given)? };
    draft.push_to(given, Buffer::TlsCertFingerprint, PayloadMatch::Content(content))
}

fn read(given: KeywordUse<'_>) -> ParseResult<Content> {
    let (negated, value) = given.value.negation();
    if !value.text.starts_with('"') {
        return Err(value.wrong("a text in quotes"));
    }
    let text = unquote(value)?;
    known_bytes(text)?;
    let pattern = bytes(text)?;
    let position = ContentPosition::ANYWHERE;
    Ok(Content { pattern, negated, nocase: false, position, ends: false, fast_pattern: None })
}

/// Refuses text with U+FFFD, which replaces bytes of the file that are not UTF-8: they are unknown.
pub(crate) fn known_bytes(piece: Piece<'_>) -> ParseResult<()> {
    match piece.text.find(char::REPLACEMENT_CHARACTER) {
        None => Ok(()),
        Some(at) => {
            let what =
                "a byte that is not UTF-8 is written as `|FC|` in a content, as `\\xFC` in an expression";
            Err(piece.part_at(at).error(RuleError::Malformed { what }))
        }
    }
}

/// Parses the bytes of a content: text with `;`, `:`, `"` and `\` escaped by `\`, and `|..|` with
/// hexadecimal bytes.
fn bytes(piece: Piece<'_>) -> ParseResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(piece.text.len());
    // The start of a `|..|`, and half of a byte.
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

pub(crate) fn nocase(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &[])?;
    draft.content(given)?.nocase = true;
    Ok(())
}

pub(crate) fn offset(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &["distance", "within", "startswith"])?;
    let value = operand(draft, given.value, 0..=u16::MAX)?;
    match &mut draft.content(given)?.position {
        ContentPosition::Absolute { offset, .. } => *offset = value,
        other => *other = ContentPosition::Absolute { offset: value, depth: None },
    }
    Ok(())
}

pub(crate) fn depth(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &["distance", "within", "startswith"])?;
    let value = operand(draft, given.value, 0..=u16::MAX)?;
    let content = draft.content(given)?;
    fits(given, value, content)?;
    match &mut content.position {
        ContentPosition::Absolute { depth, .. } => *depth = Some(value),
        other => *other = ContentPosition::Absolute { offset: Operand::Value(0), depth: Some(value) },
    }
    Ok(())
}

pub(crate) fn distance(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "startswith"])?;
    let value = operand(draft, given.value, -REACH_BYTES_MAX..=REACH_BYTES_MAX)?;
    match &mut draft.content(given)?.position {
        ContentPosition::Relative { distance, .. } => *distance = value,
        other => *other = ContentPosition::Relative { distance: value, within: None },
    }
    Ok(())
}

pub(crate) fn within(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "startswith"])?;
    let value = operand(draft, given.value, 0..=REACH_BYTES_MAX)?;
    let content = draft.content(given)?;
    fits(given, value, content)?;
    match &mut content.position {
        ContentPosition::Relative { within, .. } => *within = Some(value),
        other => *other = ContentPosition::Relative { distance: Operand::Value(0), within: Some(value) },
    }
    Ok(())
}

pub(crate) fn startswith(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &["offset", "depth", "distance", "within"])?;
    let content = draft.content(given)?;
    // A content has at most CONTENT_BYTES_MAX.
    let depth = Some(Operand::Value(content.pattern.len() as u16));
    content.position = ContentPosition::Absolute { offset: Operand::Value(0), depth };
    Ok(())
}

pub(crate) fn endswith(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.content(given)?;
    draft.modify(given, &[])?;
    draft.content(given)?.ends = true;
    Ok(())
}

pub(crate) fn fast_pattern(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
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

pub(crate) fn bsize(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if draft.chosen_buffer().is_none() {
        return Err(given.alone("the name of a buffer"));
    }
    let size = Comparison::read(given.value)?;
    draft.push(given, PayloadMatch::Size(size))
}

/// Parses the size of `http.uri`, or after `raw` of `http.uri.raw`.
pub(crate) fn urilen(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (size, buffer) = match given.value.cut(",") {
        Some((size, form)) => {
            let forms = [("norm", Buffer::HttpUri), ("raw", Buffer::HttpUriRaw)];
            (size, form.trim().one_of(&forms)?)
        }
        None => (given.value, Buffer::HttpUri),
    };
    let size = Comparison::read(size)?;
    draft.push_to(given, buffer, PayloadMatch::Size(size))
}

pub(crate) fn absent(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if draft.chosen_buffer().is_none() {
        return Err(given.alone("the name of a buffer"));
    }
    let or_else = !given.value.is_empty() && given.value.one_of(&[("or_else", true)])?;
    draft.push(given, PayloadMatch::Absent { or_else })
}

/// Parses a number, or the name of a variable.
pub(crate) fn operand<T>(
    draft: &Draft<'_>,
    piece: Piece<'_>,
    range: RangeInclusive<T>,
) -> ParseResult<Operand<T>>
where
    T: Copy + PartialOrd + Display + TryFrom<i128>,
{
    match piece.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => draft.variable(piece).map(Operand::Variable),
        false => piece.number(range).map(Operand::Value),
    }
}

/// Checks that a content fits.
fn fits<T: Copy + Into<i64>>(given: KeywordUse<'_>, bytes: Operand<T>, content: &Content) -> ParseResult<()> {
    let Operand::Value(bytes) = bytes else { return Ok(()) };
    let needed = content.pattern.len();
    match usize::try_from(bytes.into()).is_ok_and(|bytes| bytes >= needed) {
        true => Ok(()),
        false => Err(given.value.error(RuleError::NeverMatches {
            why: format!("the content has {needed} bytes, which do not fit into {}", given.value.text),
        })),
    }
}
