//! Bodies after heads that only lenient clients accept.

use memchr::{memchr_iter, memmem};

/// Maximum bytes before a late status line.
const BEFORE_STATUS_BYTES: usize = 1024;

/// Returns the end of the first line of only blanks and CR: lenient clients end the head there.
pub fn behind_blank_line(lines: &[u8]) -> Option<usize> {
    let mut ends = memchr_iter(b'\n', lines);
    let mut before = ends.next()?;
    ends.find_map(|end| {
        let line = &lines[std::mem::replace(&mut before, end) + 1..end];
        line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')).then_some(end + 1)
    })
}

/// Returns where head and body begin in a response with a late status line: lenient clients skip
/// the bytes before it.
pub fn late_response(bytes: &[u8]) -> Option<(usize, usize)> {
    let start = memmem::find(&bytes[..bytes.len().min(BEFORE_STATUS_BYTES)], b"HTTP/1.")?;
    Some((start, start + behind_blank_line(&bytes[start..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_blanks_ends_a_head() {
        for (lines, expected) in [
            ("A: b\r\n\r\r\nbody", Some("body")),
            ("A: b\n \t\nbody\n\nbody", Some("body\n\nbody")),
            ("A: b\r\n\r\n", Some("")),
            ("A: b\r\nC: d\r\n e\r\n", None),
            ("\r\nA: b\r\n", None),
            ("", None),
        ] {
            assert_eq!(behind_blank_line(lines.as_bytes()).map(|at| &lines[at..]), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_late_status_line_is_found() {
        for (bytes, expected) in [
            ("x\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", Some(("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "body"))),
            ("\0HTTP/1.0 200 OK\r\n\r\n", Some(("HTTP/1.0 200 OK\r\n\r\n", ""))),
            ("x\r\nHTTP/1.1 200 OK\r\nA: b", None),
            ("body\r\n\r\n", None),
        ] {
            let found = late_response(bytes.as_bytes());
            assert_eq!(found.map(|(head, body)| (&bytes[head..body], &bytes[body..])), expected, "{bytes:?}");
        }
        let late = "x".repeat(BEFORE_STATUS_BYTES) + "HTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(late_response(late.as_bytes()), None);
    }
}
