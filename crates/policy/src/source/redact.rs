//! Lines of a policy as messages show them: without the secrets in them.

use std::borrow::Cow;
use std::ops::Range;

/// Keys of objects whose values are secrets.
const SECRET_KEYS: [&str; 3] = ["key", "secret", "password"];
/// Bytes before what is shown in which the beginning of a secret is looked for.
const LOOK_BACK: usize = 4096;
/// A word or number of fewer characters, such as the key of a GRE tunnel, is no secret.
const BARE_SECRET_MIN: usize = 16;

/// The part of a text in which each character of a secret is a `*`.
pub(super) fn redacted(text: &str, window: Range<usize>) -> Cow<'_, str> {
    let start = text.floor_char_boundary(window.start.saturating_sub(LOOK_BACK));
    let mut shown = Cow::Borrowed(&text[window.clone()]);
    for secret in secrets(&text[start..window.end]) {
        let from = (start + secret.start).max(window.start) - window.start;
        let to = (start + secret.end).saturating_sub(window.start);
        if from < to {
            // As many bytes, so that places in the text stay where they are.
            let stars = |c: char| if c == '\n' { "\n".to_owned() } else { "*".repeat(c.len_utf8()) };
            let hidden: String = shown[from..to].chars().map(stars).collect();
            shown.to_mut().replace_range(from..to, &hidden);
        }
    }
    shown
}

/// Where secrets are: what follows `key:` in quotes, or is long. The text need not be a policy's
/// that can be read.
fn secrets(text: &str) -> impl Iterator<Item = Range<usize>> {
    SECRET_KEYS.iter().flat_map(move |key| {
        text.match_indices(key).filter_map(move |(at, _)| secret_after(text, at, at + key.len()))
    })
}

fn secret_after(text: &str, key_start: usize, key_end: usize) -> Option<Range<usize>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text[..key_start].ends_with(is_name) {
        return None;
    }
    let rest = &text[key_end..];
    let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start().strip_prefix(':')?.trim_start();
    let start = text.len() - rest.len();
    if let Some(inner) = rest.strip_prefix("\"\"\"") {
        let len = inner.find("\"\"\"").unwrap_or(inner.len());
        return Some(start + 3..start + 3 + len);
    }
    if let Some(inner) = rest.strip_prefix('"') {
        let mut escaped = false;
        let ends = |c: char| {
            let is_end = c == '\n' || (c == '"' && !escaped);
            escaped = c == '\\' && !escaped;
            is_end
        };
        let len = inner.find(ends).unwrap_or(inner.len());
        return Some(start + 1..start + 1 + len);
    }
    let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    (len >= BARE_SECRET_MIN).then_some(start..start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> String {
        redacted(text, 0..text.len()).into_owned()
    }

    #[test]
    fn secrets_are_stars_and_nothing_else_is() {
        for (text, shown) in [
            (r#"key: "0a1b" }"#, r#"key: "****" }"#),
            (r#"{ "secret" :"a\"b", x: "y" }"#, r#"{ "secret" :"****", x: "y" }"#),
            ("password:\n  \"\"\"a\nb\"\"\" x", "password:\n  \"\"\"*\n*\"\"\" x"),
            ("key: \"é\"", "key: \"**\""),
            ("key: \"not closed\nspi: 1", "key: \"**********\nspi: 1"),
            ("key: 0123456789abcdef0123,", "key: ********************,"),
            ("key: inner, key: 17, key: file(\"a.key\")", "key: inner, key: 17, key: file(\"a.key\")"),
            ("monkey: \"banana\", keys: \"more\"", "monkey: \"banana\", keys: \"more\""),
        ] {
            assert_eq!(all(text), shown);
        }
    }

    #[test]
    fn a_secret_that_begins_before_what_is_shown_is_hidden() {
        let text = "a: 1, key: \"\"\"aé\nbc\"\"\", d: 2";
        let start = text.find("bc").unwrap();
        assert_eq!(redacted(text, start..text.len()), "**\"\"\", d: 2");
        let end = text.find("bc").unwrap() + 1;
        assert_eq!(redacted(text, 0..end), "a: 1, key: \"\"\"***\n*");
        assert_eq!(redacted(text, 0..4), "a: 1");
    }
}
