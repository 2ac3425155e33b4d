//! Start lines, parsed leniently.

use crate::http::event::{HttpVersion, RequestLine, StatusLine};
use crate::http::token::{is_lenient_blank, is_target, is_token, trim};
use crate::http::{HttpAnomalies, HttpAnomaly, Method};

/// Parses a request line without its line ending (RFC 9112 3). Returns `None` unless it has a
/// version, or a known method and a target. `cut`: the line is truncated, so a version is not
/// required.
pub(crate) fn request_line(raw: &[u8], cut: bool) -> Option<(RequestLine<'_>, HttpAnomalies)> {
    let mut found = HttpAnomalies::NONE;
    let text = trim(raw, is_lenient_blank);
    let name_end = text.iter().position(|&b| is_lenient_blank(b))?;
    let (name, rest) = text.split_at(name_end);
    let (target, protocol) = split_version(rest);
    let blanks = raw.len() - name.len() - target.len() - protocol.len();
    found.add_if(blanks != 1 + usize::from(!protocol.is_empty()), HttpAnomaly::RequestLineBlanks);

    let (version, unknown) = version(protocol);
    let method = Method::read(name);
    if protocol.is_empty() && !cut {
        found.add(HttpAnomaly::MissingVersion);
        if matches!(method, Method::Unknown) || target.is_empty() {
            return None;
        }
    }
    let version = if protocol.is_empty() && cut { HttpVersion::Other } else { version };
    found.add_if(unknown, HttpAnomaly::UnknownVersion);
    found.add_if(method == Method::Unknown, HttpAnomaly::UnknownMethod);
    found.add_if(method == Method::Unknown && !is_token(name), HttpAnomaly::InvalidMethod);
    check_target(target, &mut found);
    Some((RequestLine { raw, name, method, target, protocol, version, number: 0 }, found))
}

/// Returns whether a line found by searching is certainly a request line.
pub(crate) fn is_certain_request(raw: &[u8]) -> bool {
    request_line(raw, false).is_some_and(|(line, _)| {
        matches!(line.version, HttpVersion::Http10 | HttpVersion::Http11)
            && line.method != Method::Unknown
            && !line.target.is_empty()
            && is_target(line.target)
    })
}

/// Parses a status line without its line ending (RFC 9112 4); `None` if it does not begin with
/// `HTTP/`.
pub(crate) fn status_line(raw: &[u8]) -> Option<(StatusLine<'_>, HttpAnomalies)> {
    let mut found = HttpAnomalies::NONE;
    if !begins_with_http(raw) {
        return None;
    }
    let (protocol, rest) = split_word(raw);
    let code_and_reason = trim_start(rest);
    let (code, reason) = split_word(code_and_reason);
    found.add_if(rest.len() - code_and_reason.len() > 1, HttpAnomaly::StatusLineBlanks);
    found.add_if(rest.first().is_some_and(|&b| b != b' '), HttpAnomaly::StatusLineBlanks);
    found.add_if(reason.first().is_some_and(|&b| b != b' '), HttpAnomaly::StatusLineBlanks);

    let (version, unknown) = version(protocol);
    found.add_if(unknown, HttpAnomaly::UnknownVersion);
    let status = status_code(code);
    found.add_if(!(100..600).contains(&status), HttpAnomaly::InvalidStatusCode);
    let reason = trim(reason, is_lenient_blank);
    let interim = (100..200).contains(&status) && status != 101;
    Some((StatusLine { raw, protocol, version, code, status, reason, interim, answers: None }, found))
}

/// Returns whether a line found by searching is certainly a status line.
pub(crate) fn is_certain_status(raw: &[u8]) -> bool {
    status_line(raw).is_some_and(|(line, _)| {
        matches!(line.version, HttpVersion::Http10 | HttpVersion::Http11) && line.status != 0
    })
}

/// The prefix of each status line.
pub(crate) const HTTP: &[u8] = b"HTTP/";

fn begins_with_http(text: &[u8]) -> bool {
    text.get(..HTTP.len()).is_some_and(|start| start.eq_ignore_ascii_case(HTTP))
}

/// Splits the part after the method. The version is the last word if that begins with `HTTP/`,
/// otherwise everything from the last such word on; the target is the part before.
fn split_version(rest: &[u8]) -> (&[u8], &[u8]) {
    let last = rest.iter().rposition(|&b| is_lenient_blank(b)).map_or(0, |blank| blank + 1);
    let version_at = if begins_with_http(&rest[last..]) {
        Some(last)
    } else {
        // Words after the version are rare: only then search the line from its end.
        let starts = (1..rest.len()).rev().filter(|&at| is_lenient_blank(rest[at - 1]));
        starts.into_iter().find(|&at| begins_with_http(&rest[at..]))
    };
    let (target, version) = rest.split_at(version_at.unwrap_or(rest.len()));
    (trim(target, is_lenient_blank), version)
}

fn version(protocol: &[u8]) -> (HttpVersion, bool) {
    match protocol {
        b"HTTP/1.1" => (HttpVersion::Http11, false),
        b"HTTP/1.0" => (HttpVersion::Http10, false),
        b"" => (HttpVersion::Http09, false),
        _ => (HttpVersion::Other, true),
    }
}

fn check_target(target: &[u8], found: &mut HttpAnomalies) {
    if is_target(target) && !target.is_empty() {
        return;
    }
    let is_space = |b: &u8| is_lenient_blank(*b);
    found.add_if(target.iter().any(is_space), HttpAnomaly::SpaceInTarget);
    let invalid = target.is_empty() || target.iter().any(|b| !b.is_ascii_graphic() && !is_space(b));
    found.add_if(invalid, HttpAnomaly::InvalidTarget);
}

/// Parses three digits; 0 for anything else.
fn status_code(code: &[u8]) -> u16 {
    match code {
        [a, b, c] if code.iter().all(u8::is_ascii_digit) => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => 0,
    }
}

/// Splits at the first blank.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|&b| is_lenient_blank(b)).unwrap_or(text.len()))
}

fn trim_start(text: &[u8]) -> &[u8] {
    let first = text.iter().position(|&b| !is_lenient_blank(b)).unwrap_or(text.len());
    &text[first..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use HttpAnomaly::*;

    type Words = (String, String, String, Vec<HttpAnomaly>);

    fn request(raw: &str) -> Option<Words> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        request_line(raw.as_bytes(), false)
            .map(|(l, found)| (text(l.name), text(l.target), text(l.protocol), found.iter().collect()))
    }

    #[test]
    fn request_lines_are_parsed_leniently() {
        type Row<'a> = (&'a str, Option<(&'a str, &'a str, &'a str, &'a [HttpAnomaly])>);
        let rows: [Row<'_>; 13] = [
            ("GET / HTTP/1.1", Some(("GET", "/", "HTTP/1.1", &[]))),
            ("GET  /\tHTTP/1.0 ", Some(("GET", "/", "HTTP/1.0", &[RequestLineBlanks]))),
            ("GET /a b HTTP/1.1", Some(("GET", "/a b", "HTTP/1.1", &[SpaceInTarget]))),
            ("GET / HTTP/1.1 x", Some(("GET", "/", "HTTP/1.1 x", &[UnknownVersion]))),
            ("GET / http/1.1", Some(("GET", "/", "http/1.1", &[UnknownVersion]))),
            ("get / HTTP/1.1", Some(("get", "/", "HTTP/1.1", &[UnknownMethod]))),
            ("G@T / HTTP/1.1", Some(("G@T", "/", "HTTP/1.1", &[InvalidMethod, UnknownMethod]))),
            ("GET HTTP/1.1", Some(("GET", "", "HTTP/1.1", &[RequestLineBlanks, InvalidTarget]))),
            ("GET /", Some(("GET", "/", "", &[MissingVersion]))),
            ("GET /\u{e4} HTTP/1.1", Some(("GET", "/\u{e4}", "HTTP/1.1", &[InvalidTarget]))),
            ("GET", None),
            ("hello world", None),
            ("", None),
        ];
        for (raw, expected) in rows {
            let expected = expected.map(|(m, t, p, found)| (m.into(), t.into(), p.into(), found.to_vec()));
            assert_eq!(request(raw), expected, "{raw}");
        }
    }

    #[test]
    fn status_lines_are_parsed_leniently() {
        let rows: [(&str, u16, &str, &[HttpAnomaly]); 7] = [
            ("HTTP/1.1 200 OK", 200, "OK", &[]),
            ("HTTP/1.1 404 Not Found", 404, "Not Found", &[]),
            ("HTTP/1.1 200", 200, "", &[]),
            ("HTTP/1.1  200 OK", 200, "OK", &[StatusLineBlanks]),
            ("HTTP/1.1 2000 OK", 0, "OK", &[InvalidStatusCode]),
            ("HTTP/1.1 099 OK", 99, "OK", &[InvalidStatusCode]),
            ("HTTP/3 200 OK", 200, "OK", &[UnknownVersion]),
        ];
        for (raw, status, reason, anomalies) in rows {
            let (line, found) = status_line(raw.as_bytes()).unwrap();
            assert_eq!((line.status, line.reason), (status, reason.as_bytes()), "{raw}");
            assert_eq!(found.iter().collect::<Vec<_>>(), anomalies, "{raw}");
        }
        assert!(status_line(b"HTT").is_none() && status_line(b"<html>").is_none());
    }

    #[test]
    fn a_truncated_request_line_needs_no_version() {
        let (line, found) = request_line(b"GET /aaaaaaaa", true).unwrap();
        assert_eq!((line.target, line.version), (&b"/aaaaaaaa"[..], HttpVersion::Other));
        assert!(found.is_empty());
    }

    #[test]
    fn only_certain_lines_end_a_search() {
        assert!(is_certain_request(b"GET / HTTP/1.1") && is_certain_status(b"HTTP/1.0 200 OK"));
        for raw in [&b"ET / HTTP/1.1"[..], b"GET / HTTP/2.0", b"GET /", b"GET /\x01 HTTP/1.1"] {
            assert!(!is_certain_request(raw));
        }
        assert!(!is_certain_status(b"HTTP/1.1 abc") && !is_certain_status(b"TTP/1.1 200 OK"));
    }
}
