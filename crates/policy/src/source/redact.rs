//! Masking of secrets in the lines of a policy that messages show.

use std::borrow::Cow;
use std::ops::Range;

/// Keys of objects with secret values.
const SECRET_KEYS: [&str; 3] = ["key", "secret", "password"];
/// Bytes before the shown part that are searched for the start of a secret.
const LOOK_BACK: usize = 4096;
/// A shorter word or number, such as the key of a GRE tunnel, is not a secret.
const BARE_SECRET_MIN: usize = 16;

/// Returns a part of a text with each character of a secret replaced by `*`.
pub(super) fn redacted(text: &str, window: Range<usize>) -> Cow<'_, str> {
    let start = text.floor_char_boundary(window.start.saturating_sub(LOOK_BACK));
    let mut shown = Cow::Borrowed(&text[window.clone()]);
    for secret in secrets(&text[start..window.end]) {
        let from = (start + secret.start).max(window.start) - window.start;
        let to = (start + secret.end).saturating_sub(window.start);
        if from < to {
            // Same number of bytes, so that positions in the text remain valid.
            let stars = |c: char| if c == '\n' { "\n".to_owned() } else { "*".repeat(c.len_utf8()) };
            let hidden: String = shown[from..to].chars().map(stars).collect();
            shown.to_mut().replace_range(from..to, &hidden);
        }
    }
    shown
}

/// Returns the ranges of secrets: quoted or long values after `key:`. The text need not parse.
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
    fn only_secrets_are_masked() {
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
    fn secret_that_starts_before_the_shown_part_is_masked() {
        let text = "a: 1, key: \"\"\"aé\nbc\"\"\", d: 2";
        let start = text.find("bc").unwrap();
        assert_eq!(redacted(text, start..text.len()), "**\"\"\", d: 2");
        let end = text.find("bc").unwrap() + 1;
        assert_eq!(redacted(text, 0..end), "a: 1, key: \"\"\"***\n*");
        assert_eq!(redacted(text, 0..4), "a: 1");
    }
}
