//! The normal form of path and query.

use memchr::memchr_iter;

use super::split;

/// An evasion technique in a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum UriAnomaly {
    /// A percent sign without two hexadecimal digits after it; left as it is.
    InvalidEscape,
    /// `%uXXXX`, which only some servers decode; decoded to its low byte for a Latin or fullwidth
    /// character, otherwise to `?`.
    UnicodeEscape,
    /// The decoded text could be decoded again; it is not.
    DoubleEscape,
    /// An encoded slash or backslash in the path; it separates segments.
    EncodedSeparator,
    /// A backslash in the path; taken as a slash.
    Backslash,
    /// An encoded NUL; kept.
    Nul,
    /// More `..` in the path than segments before them.
    AboveRoot,
    /// An overlong UTF-8 form of an ASCII character, which is invalid; decoded to that character.
    OverlongUtf8,
    /// A fullwidth form of an ASCII character in UTF-8; decoded to that character.
    FullwidthForm,
}

/// A set of [`UriAnomaly`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UriAnomalies(u16);

impl UriAnomalies {
    /// Returns whether the anomaly is in the set.
    pub const fn has(self, oddity: UriAnomaly) -> bool {
        self.0 & 1 << oddity as u16 != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, oddity: UriAnomaly) {
        self.0 |= 1 << oddity as u16;
    }
}

/// A target in its normal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormalisedUri<'a> {
    /// Path, query and fragment, the latter two with their `?` and `#`.
    pub uri: &'a [u8],
    /// Length of the path, in bytes.
    pub path_len: usize,
    /// The anomalies found.
    pub oddities: UriAnomalies,
}

/// The buffer is shorter than the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer has {room} bytes, but the target needs {needed}")]
pub struct UriBufferTooSmall {
    /// Length of the buffer in bytes.
    pub room: usize,
    /// Length of the target in bytes, which its normal form never exceeds.
    pub needed: usize,
}

/// Writes the normal form of a target, as in Suricata's `http.uri` with its default personality
/// (IDS):
///
/// - an absolute form loses its scheme, user, host and port;
/// - path: `%XX` and `%uXXXX` are decoded once, including `%2f` and `%5c`; a backslash becomes a
///   slash; repeated slashes become one; `/./` and `/../` are resolved (RFC 3986 5.2.4), never
///   above the root; case is kept;
/// - query and fragment: `%XX` and `%uXXXX` are decoded once; `+` is kept;
/// - an invalid escape is kept; NUL does not end anything.
///
/// It differs from Suricata in UTF-8. Overlong and fullwidth forms of ASCII characters in the path
/// are decoded. All other non-ASCII bytes are kept, where Suricata replaces characters by similar
/// ones or by `?`.
///
/// # Errors
///
/// [`UriBufferTooSmall`] if `room` is shorter than the target.
pub fn normalise<'r>(target: &[u8], room: &'r mut [u8]) -> Result<NormalisedUri<'r>, UriBufferTooSmall> {
    if room.len() < target.len() {
        return Err(UriBufferTooSmall { room: room.len(), needed: target.len() });
    }
    let parts = split(target);
    let mut oddities = UriAnomalies::default();
    let decoded_len = decode(parts.path, true, room, &mut oddities);
    let path_len = resolve(&mut room[..decoded_len], &mut oddities);
    let mut len = path_len;
    for (mark, part) in [(b'?', parts.query), (b'#', parts.fragment)] {
        let Some(part) = part else { continue };
        room[len] = mark;
        len += 1 + decode(part, false, &mut room[len + 1..], &mut oddities);
    }
    Ok(NormalisedUri { uri: &room[..len], path_len, oddities })
}

/// Writes the decoded form to `out`, which is at least as long as `text`, and returns its length.
fn decode(text: &[u8], is_path: bool, out: &mut [u8], oddities: &mut UriAnomalies) -> usize {
    let (mut from, mut len) = (0, 0);
    while let Some(&byte) = text.get(from) {
        let rest = &text[from..];
        let (decoded, used) = match byte {
            b'%' => unescape(rest, oddities),
            _ => (byte, 1),
        };
        if used > 1 {
            note_escaped(decoded, is_path, oddities);
        }
        out[len] = decoded;
        (from, len) = (from + used, len + 1);
    }
    // Each escape of the text has been decoded: any that is left was hidden in others.
    if memchr_iter(b'%', &out[..len]).any(|at| out[at + 1..len].get(..2).and_then(hexadecimal).is_some()) {
        oddities.add(UriAnomaly::DoubleEscape);
    }
    match is_path {
        true => plain_ascii(&mut out[..len], oddities),
        false => len,
    }
}

/// Decodes an escape and returns the byte and the escape's length. A lone percent sign is itself.
fn unescape(rest: &[u8], oddities: &mut UriAnomalies) -> (u8, usize) {
    if let Some(byte) = rest.get(1..3).and_then(hexadecimal) {
        return (byte as u8, 3);
    }
    if let Some(b'u' | b'U') = rest.get(1)
        && let Some(unit) = rest.get(2..6).and_then(hexadecimal)
    {
        oddities.add(UriAnomaly::UnicodeEscape);
        let byte = match unit {
            0..=0xff => unit as u8,
            0xff01..=0xff5e => (unit - 0xff01) as u8 + b'!',
            _ => b'?',
        };
        return (byte, 6);
    }
    oddities.add(UriAnomaly::InvalidEscape);
    (b'%', 1)
}

fn note_escaped(decoded: u8, is_path: bool, oddities: &mut UriAnomalies) {
    match decoded {
        0 => oddities.add(UriAnomaly::Nul),
        b'/' | b'\\' if is_path => oddities.add(UriAnomaly::EncodedSeparator),
        _ => {}
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

/// Replaces overlong and fullwidth forms of ASCII characters in place; returns the new length.
fn plain_ascii(text: &mut [u8], oddities: &mut UriAnomalies) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let (mut from, mut len) = (0, 0);
    while from < text.len() {
        let low = |byte: u8| byte & 0x3f;
        let (byte, used) = match text[from..] {
            [first @ 0xc0..=0xc1, second @ 0x80..=0xbf, ..] => {
                oddities.add(UriAnomaly::OverlongUtf8);
                ((first & 1) << 6 | low(second), 2)
            }
            [0xe0, second @ 0x80..=0x81, third @ 0x80..=0xbf, ..] => {
                oddities.add(UriAnomaly::OverlongUtf8);
                ((second & 1) << 6 | low(third), 3)
            }
            // U+FF01..U+FF5E map to 0x21..0x7e.
            [0xef, 0xbc, third @ 0x81..=0xbf, ..] => {
                oddities.add(UriAnomaly::FullwidthForm);
                (low(third) + 0x20, 3)
            }
            [0xef, 0xbd, third @ 0x80..=0x9e, ..] => {
                oddities.add(UriAnomaly::FullwidthForm);
                (low(third) + 0x60, 3)
            }
            [first, ..] => (first, 1),
            [] => break,
        };
        text[len] = byte;
        (from, len) = (from + used, len + 1);
    }
    len
}

/// Turns backslashes into slashes, removes repeated slashes and resolves dot segments, in place;
/// returns the new length.
fn resolve(path: &mut [u8], oddities: &mut UriAnomalies) -> usize {
    for byte in path.iter_mut().filter(|byte| **byte == b'\\') {
        *byte = b'/';
        oddities.add(UriAnomaly::Backslash);
    }
    // Invariant: `len <= from`, and `path[..len]` is the normal form of the part before `from`,
    // without a final slash.
    let (mut from, mut len) = (0, 0);
    // Before the first slash, dot segments are dropped; any other begins the path.
    while len == 0 && path.get(from).is_some_and(|&b| b != b'/') {
        let end = from + path[from..].iter().position(|&b| b == b'/').unwrap_or(path.len() - from);
        let behind = end + path[end..].iter().position(|&b| b != b'/').unwrap_or(path.len() - end);
        if matches!(&path[from..end], b"." | b"..") {
            from = behind;
        } else {
            path.copy_within(from..end, 0);
            (from, len) = (end, end - from);
        }
    }
    while from < path.len() {
        // A slash is here: each segment ends before one.
        let start = from + path[from..].iter().position(|&b| b != b'/').unwrap_or(path.len() - from);
        let end = start + path[start..].iter().position(|&b| b == b'/').unwrap_or(path.len() - start);
        let is_last = end == path.len();
        match &path[start..end] {
            b"." | b".." | b"" => {
                if &path[start..end] == b".." {
                    match path[..len].iter().rposition(|&b| b == b'/') {
                        Some(parent) => len = parent,
                        None if len > 0 => len = 0,
                        None => oddities.add(UriAnomaly::AboveRoot),
                    }
                }
                // The path names a directory: keep the slash if nothing follows.
                if is_last {
                    path[len] = b'/';
                    len += 1;
                }
            }
            _ => {
                path[len] = b'/';
                path.copy_within(start..end, len + 1);
                len += 1 + end - start;
            }
        }
        from = end;
    }
    len
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::UriAnomaly::*;
    use super::*;

    fn normal(target: &[u8]) -> (Vec<u8>, UriAnomalies) {
        let mut room = vec![0xaa; target.len()];
        let normalised = normalise(target, &mut room).unwrap();
        (normalised.uri.to_vec(), normalised.oddities)
    }

    #[test]
    fn paths_and_queries_have_a_normal_form() {
        let rows: [(&str, &str, &[UriAnomaly]); 30] = [
            ("/index.html", "/index.html", &[]),
            ("//index.html", "/index.html", &[]),
            ("/a//b///c/", "/a/b/c/", &[]),
            ("/a/./b/../c", "/a/c", &[]),
            ("/a/b/..", "/a/", &[]),
            ("/a/.", "/a/", &[]),
            ("/..", "/", &[AboveRoot]),
            ("/../../etc/passwd", "/etc/passwd", &[AboveRoot]),
            ("/a/%2e%2E/b", "/b", &[]),
            ("/one\\two\\/%5cthree/%2f//four", "/one/two/three/four", &[Backslash, EncodedSeparator]),
            ("/%41%6a", "/Aj", &[]),
            ("/%u0041%uFF21%u4e2d", "/AA?", &[UnicodeEscape]),
            ("/%zz%4", "/%zz%4", &[InvalidEscape]),
            ("/%", "/%", &[InvalidEscape]),
            ("/%2541", "/%41", &[DoubleEscape]),
            ("/%25%34%31", "/%41", &[DoubleEscape]),
            ("/%00", "/\0", &[Nul]),
            ("/%c0%af%C0%AE", "/", &[OverlongUtf8]),
            ("/%e0%80%af", "/", &[OverlongUtf8]),
            ("/%ef%bc%8f%ef%bd%81", "/a", &[FullwidthForm]),
            ("/\u{e4}", "/\u{e4}", &[]),
            ("/a?b=//%2f..%2F+c#%64", "/a?b=///../+c#d", &[]),
            ("http://u@Host:80/A/../B?c", "/B?c", &[]),
            ("http://host", "", &[]),
            ("*", "*", &[]),
            ("./..//a/b", "a/b", &[]),
            ("a//.\\b/", "a/b/", &[Backslash]),
            ("a/../../b", "/b", &[AboveRoot]),
            ("..", "", &[]),
            ("", "", &[]),
        ];
        for (target, expected, oddities) in rows {
            let (uri, found) = normal(target.as_bytes());
            let mut all = UriAnomalies::default();
            oddities.iter().for_each(|&oddity| all.add(oddity));
            let shown = String::from_utf8_lossy(&uri).into_owned();
            assert_eq!((shown.as_str(), found), (expected, all), "{target}");
        }
    }

    #[test]
    fn a_short_buffer_is_refused() {
        assert_eq!(normalise(b"/ab", &mut [0; 2]), Err(UriBufferTooSmall { room: 2, needed: 3 }));
    }

    /// Resolves dot segments (RFC 3986 5.2.4) with a stack.
    fn resolved(path: &str) -> String {
        let mut stack: Vec<&str> = Vec::new();
        let segments: Vec<_> = path.split('/').skip(1).collect();
        for segment in &segments {
            match *segment {
                "" | "." => {}
                ".." => drop(stack.pop()),
                _ => stack.push(segment),
            }
        }
        let is_directory = matches!(segments.last(), Some(&("" | "." | "..")));
        let slash = if is_directory && !stack.is_empty() { "/" } else { "" };
        format!("/{}{slash}", stack.join("/"))
    }

    proptest! {
        #[test]
        fn dot_segments_are_resolved_as_with_a_stack(path in "(/[a.]{0,3}){1,12}") {
            prop_assert_eq!(normal(path.as_bytes()).0, resolved(&path).into_bytes());
        }

        #[test]
        fn any_target_has_a_normal_form_that_is_no_longer(target in "[%/.\\\\a2eEfFuU5cC0?#:\u{80}-\u{ff}]{0,40}") {
            let (uri, oddities) = normal(target.as_bytes());
            prop_assert!(uri.len() <= target.len());
            // If nothing is left to decode, the normal form is a fixed point.
            let path_only = uri.first() == Some(&b'/') && !uri.contains(&b'?') && !uri.contains(&b'#');
            if path_only && !oddities.has(DoubleEscape) && !oddities.has(UnicodeEscape) && uri.is_ascii()
                && !oddities.has(OverlongUtf8) && !oddities.has(FullwidthForm) && !uri.contains(&b'%') {
                prop_assert_eq!(normal(&uri).0, uri);
            }
        }
    }
}
