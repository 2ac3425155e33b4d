//! Splitting of a rule's text into header and options.

use crate::RuleError;
use crate::text::{ParseResult, Piece};

/// Splits into the header and the text between the parentheses.
pub(crate) fn halves(text: Piece<'_>) -> ParseResult<(Piece<'_>, Piece<'_>)> {
    let text = text.trim();
    let Some((header, body)) = text.cut("(") else {
        return Err(text.error(RuleError::Malformed { what: "a rule without options in parentheses" }));
    };
    match body.text.strip_suffix(')') {
        Some(inner) => Ok((header, body.part(0, inner.len()))),
        None => {
            Err(text.from(text.text.len()).error(RuleError::Malformed { what: "a rule has to end in `)`" }))
        }
    }
}

/// Splits into options: keyword and argument, both trimmed. Ends after an error.
///
/// An option ends at an unescaped `;`. Quotes do not matter: within them, too, `;` is written `\;`.
pub(crate) fn options(body: Piece<'_>) -> impl Iterator<Item = ParseResult<(Piece<'_>, Piece<'_>)>> {
    let mut rest = Some(body);
    std::iter::from_fn(move || {
        let text = rest.take()?.trim();
        if text.is_empty() {
            return None;
        }
        let Some(end) = end(text.text) else {
            return Some(Err(text.error(RuleError::Malformed { what: "an option has to end in `;`" })));
        };
        rest = Some(text.from(end + 1));
        let option = text.part(0, end);
        let (word, value) = option.cut(":").unwrap_or((option, option.from(end)));
        Some(Ok((word.trim(), value.trim())))
    })
}

fn end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b';' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}
