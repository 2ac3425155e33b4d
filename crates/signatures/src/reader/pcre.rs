//! `pcre`.

use crate::RuleError;
use crate::buffer::Buffer;
use crate::expression::ExpressionFeature;
use crate::payload::PayloadMatch;
use crate::pcre::{PCRE_BYTES_MAX, Pcre, PcreFlags};
use crate::reader::content::known_bytes;
use crate::reader::{Draft, KeywordUse, unquote};
use crate::text::{ParseResult, Piece};

/// Maximum names of groups.
const CAPTURES_MAX: usize = 32;

pub(crate) fn pcre(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (negated, value) = given.value.negation();
    let text = unquote(value)?.trim();
    // A second quote without a first one is taken for one, as by Suricata.
    let text = text.text.strip_suffix('"').map_or(text, |inner| text.part(0, inner.len()));
    let Some(inner) = text.strip("/") else { return Err(text.wrong("an expression between `/` and `/`")) };
    let Some((pattern, letters, names)) = parts(inner) else {
        return Err(text.wrong(format!("a second `/`, and behind it flags of `{}`", all_letters())));
    };
    if pattern.is_empty() || pattern.text.len() > PCRE_BYTES_MAX {
        return Err(pattern.wrong(format!("an expression of 1 to {PCRE_BYTES_MAX} bytes")));
    }

    let mut flags = PcreFlags::default();
    let mut relative = false;
    let mut buffer = None;
    for letter in letters.text.chars() {
        if let Some(flag) = flags.get_mut(letter) {
            *flag = true;
        } else if letter == 'R' {
            relative = true;
        } else if let Some((_, named)) = BUFFERS.iter().find(|(known, _)| *known == letter)
            && buffer.replace(*named).is_some_and(|before| before != *named)
        {
            return Err(letters.wrong("one buffer at most"));
        }
    }
    known_bytes(pattern)?;
    let captures = captures(names)?;
    let expression = Pcre { pattern: pattern.text.to_owned(), negated, relative, flags, captures };
    if expression.check() == Err(ExpressionFeature::Malformed) {
        return Err(pattern.wrong("an expression in which parentheses, brackets and repetitions are whole"));
    }
    let one = PayloadMatch::Pcre(expression);
    match (buffer, draft.chosen_buffer()) {
        (Some(named), Some(chosen)) if named != chosen => {
            let other = "the buffer of the expression's flags";
            Err(letters.error(RuleError::Conflict { one: "the buffer that was named before", other }))
        }
        (Some(named), None) => draft.push_to(given, named, one),
        _ => draft.push(given, one),
    }
}

/// The buffers that flags select, like older keywords after contents.
const BUFFERS: [(char, Buffer); 13] = [
    ('U', Buffer::HttpUri),
    ('I', Buffer::HttpUriRaw),
    ('P', Buffer::HttpRequestBody),
    ('Q', Buffer::HttpResponseBody),
    ('H', Buffer::HttpHeader),
    ('D', Buffer::HttpHeaderRaw),
    ('M', Buffer::HttpMethod),
    ('C', Buffer::HttpCookie),
    ('S', Buffer::HttpStatusCode),
    ('Y', Buffer::HttpStatusMessage),
    ('V', Buffer::HttpUserAgent),
    ('W', Buffer::HttpHost),
    ('Z', Buffer::HttpHostRaw),
];

/// Flags without a meaning here: raw bytes, the only kind, and a limit of Suricata's engine.
const WITHOUT_MEANING: [char; 2] = ['B', 'O'];

fn all_letters() -> String {
    let buffers = BUFFERS.iter().map(|(letter, _)| *letter);
    PcreFlags::LETTERS.into_iter().chain(['R']).chain(buffers).chain(WITHOUT_MEANING).collect()
}

/// Splits into the expression, its flags, and the names after a comma. The expression ends at the
/// first unescaped `/` that is followed by flags, and then the end or a comma and the name of a
/// group.
fn parts(inner: Piece<'_>) -> Option<(Piece<'_>, Piece<'_>, Piece<'_>)> {
    let mut escaped = false;
    for (at, byte) in inner.text.bytes().enumerate() {
        let ends = byte == b'/' && !escaped;
        escaped = byte == b'\\' && !escaped;
        if !ends {
            continue;
        }
        let rest = inner.from(at + 1);
        let is_flag = |c: char| {
            PcreFlags::LETTERS.contains(&c)
                || c == 'R'
                || WITHOUT_MEANING.contains(&c)
                || BUFFERS.iter().any(|(letter, _)| *letter == c)
        };
        let letters = rest.text.len() - rest.text.trim_start_matches(is_flag).len();
        let (letters, names) = (rest.part(0, letters), rest.from(letters).trim());
        if names.is_empty() || names.strip(",").is_some_and(|names| is_capture(names.trim().text)) {
            return Some((inner.part(0, at), letters, names));
        }
    }
    None
}

fn is_capture(text: &str) -> bool {
    ["flow:", "pkt:", "alert:"].iter().any(|scope| text.starts_with(scope))
}

fn captures(names: Piece<'_>) -> ParseResult<Vec<String>> {
    let Some(names) = names.strip(",") else { return Ok(Vec::new()) };
    let mut captures = Vec::new();
    for name in names.split(',') {
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b';');
        if !is_capture(name.text) || !name.text.bytes().all(plain) {
            return Err(name.wrong("`flow:name`, `pkt:name` or `alert:name`"));
        }
        if captures.len() == CAPTURES_MAX {
            return Err(name.error(RuleError::TooMany { what: "names for groups", limit: CAPTURES_MAX }));
        }
        captures.push(name.text.to_owned());
    }
    Ok(captures)
}
