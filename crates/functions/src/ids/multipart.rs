//! Files in bodies of several parts (RFC 2046 5.1, RFC 7578).

use std::ops::Range;

use memchr::memmem;

/// Number of parts of a body that are looked at.
pub const PARTS_MAX: usize = 256;
/// Maximum characters of a delimiter, without its hyphens (RFC 2046 5.1.1).
const BOUNDARY_MAX: usize = 70;

/// The files in a body.
#[derive(Debug, Default)]
pub struct BodyFiles {
    /// Their places.
    pub places: Vec<Range<usize>>,
    /// True if there are parts beyond [`PARTS_MAX`].
    pub is_cut: bool,
}

/// Returns the files in a body of this type: the contents of parts with a file name in their
/// headers.
pub fn files(content_type: &[u8], body: &[u8]) -> BodyFiles {
    let mut files = BodyFiles::default();
    let Some(boundary) = boundary(content_type) else { return files };
    let delimiter = [b"--", boundary].concat();
    let begins_line = |at: &usize| *at == 0 || body[at - 1] == b'\n';
    let mut places = memmem::find_iter(body, &delimiter).filter(begins_line).peekable();
    let mut parts = 0;
    while let Some(place) = places.next() {
        let start = place + delimiter.len();
        if body[start..].starts_with(b"--") {
            break;
        }
        if parts == PARTS_MAX {
            files.is_cut = true;
            break;
        }
        let end = places.peek().map_or(body.len(), |next| start.max(before_line_end(body, *next)));
        files.places.extend(file(body, start..end));
        parts += 1;
    }
    files
}

/// Returns the value of the parameter `boundary`.
fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let mut parameters = content_type.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    if !parameters.next()?.get(..10)?.eq_ignore_ascii_case(b"multipart/") {
        return None;
    }
    let value = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(9)?;
        name.eq_ignore_ascii_case(b"boundary=").then_some(value)
    })?;
    let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
    Some(quoted.unwrap_or(value)).filter(|value| (1..=BOUNDARY_MAX).contains(&value.len()))
}

/// Returns the content of a part, from the end of its delimiter on, if its headers name a file.
fn file(body: &[u8], part: Range<usize>) -> Option<Range<usize>> {
    let (mut at, mut is_file) = (part.start, false);
    loop {
        let line = &body[at..part.end];
        let len = memchr::memchr(b'\n', line)?;
        let (text, is_first) = (line[..len].trim_ascii(), at == part.start);
        at += len + 1;
        if text.is_empty() && !is_first {
            return is_file.then_some(at..part.end);
        }
        let names_file = |window: &[u8]| window.eq_ignore_ascii_case(b"filename");
        is_file |= text.windows(8).any(names_file);
    }
}

/// Returns the place where the line before this one ends; its line ending belongs to the delimiter.
fn before_line_end(body: &[u8], line: usize) -> usize {
    let before = &body[..line];
    let before = before.strip_suffix(b"\n").unwrap_or(before);
    before.strip_suffix(b"\r").unwrap_or(before).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content_type: &str, body: &str) -> Vec<String> {
        let files = files(content_type.as_bytes(), body.as_bytes());
        files.places.into_iter().map(|place| body[place].to_owned()).collect()
    }

    #[test]
    fn the_contents_of_files_are_found() {
        let form = "multipart/form-data; boundary=ab";
        let two = "preamble\r\n--ab\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nfield\r\n\
                   --ab \r\ncontent-disposition: form-data; FileName=\"a\"\r\nX: y\r\n\r\none\r\n--abc\r\n\
                   --ab\nContent-Disposition: a; filename*=b\n\ntwo\n\n--ab--\r\n--ab\r\nfilename\r\n\r\nno";
        // A line that begins with the delimiter is one (RFC 2046 5.1.1).
        let expected = ["one", "two\n"];
        for kind in [form, "Multipart/Mixed;charset=x ; Boundary=\"ab\"; y"] {
            assert_eq!(found(kind, two), expected, "{kind}");
        }
        for kind in ["", "multipart/form-data", "text/html; boundary=ab", "multipart/mixed; boundary="] {
            assert_eq!(found(kind, two), [""; 0], "{kind}");
        }
        // Truncated, empty and missing parts.
        for (body, expected) in [
            ("--ab\r\nfilename=a\r\n\r\nbegun", &["begun"][..]),
            ("--ab\r\nfilename=a\r\n\r\n\r\n--ab--", &[""]),
            ("--ab\r\nfilename=a\r\n", &[]),
            ("--ab\r\nfilename=a--ab\r\n", &[]),
            ("--ab", &[]),
            ("--ab--ab--ab", &[]),
            ("x--ab\r\nfilename=a\r\n\r\nx", &[]),
            ("", &[]),
        ] {
            assert_eq!(found(form, body), expected, "{body:?}");
        }
        for (more, is_cut) in [("", false), ("--ab--\r\n", false), ("--ab\r\n", true)] {
            let many = "--ab\r\nfilename\r\n\r\nx\r\n".repeat(PARTS_MAX) + more;
            assert_eq!(found(form, &many).len(), PARTS_MAX);
            assert_eq!(files(form.as_bytes(), many.as_bytes()).is_cut, is_cut, "{more}");
        }
    }
}
