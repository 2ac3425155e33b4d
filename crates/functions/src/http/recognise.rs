//! Detection of HTTP/1 and of its side by the first bytes of a direction, on any port.

use applayer::http::{ExchangeSide, Method};

/// Bytes that always suffice to decide.
pub const PROBE_MAX: usize = 512;

/// The result of the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// This side of HTTP.
    Http(ExchangeSide),
    /// A client of HTTP/2, which is not parsed.
    Http2,
    /// Not HTTP.
    Other,
    /// More bytes are needed.
    Unclear,
}

/// Examines all bytes of a direction so far, up to [`PROBE_MAX`].
///
/// A server begins with `HTTP/` (RFC 9112 4). A client begins with a token in a line with an HTTP
/// version (RFC 9112 3), with any word in a line that ends with one, because servers need not look
/// at the method, or with a known method and just a target, as in HTTP/0.9. Leading empty lines and
/// blanks are ignored (RFC 9112 2.2, 3).
pub fn recognise_start(bytes: &[u8]) -> Recognition {
    let bytes = &bytes[..bytes.len().min(PROBE_MAX)];
    let start = bytes.iter().position(|b| !is_blank(b) && *b != b'\n').unwrap_or(bytes.len());
    let text = &bytes[start..];
    let is_last = bytes.len() >= PROBE_MAX;
    if text.is_empty() {
        return if is_last { Recognition::Other } else { Recognition::Unclear };
    }
    let compared = text.len().min(HTTP.len());
    if text[..compared].eq_ignore_ascii_case(&HTTP[..compared]) {
        return match compared == HTTP.len() {
            true => Recognition::Http(ExchangeSide::Response),
            false if is_last => Recognition::Other,
            false => Recognition::Unclear,
        };
    }
    request(text, is_last)
}

/// Returns whether a server may begin like this (RFC 9112 4).
pub fn may_be_status_line(bytes: &[u8]) -> bool {
    let len = bytes.len().min(HTTP.len());
    bytes[..len].eq_ignore_ascii_case(&HTTP[..len])
}

/// Returns whether the byte is valid in a token (RFC 9110 5.6.2).
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const HTTP: &[u8] = b"HTTP/";
/// The first line of HTTP/2 with prior knowledge (RFC 9113 3.4).
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n";

fn request(text: &[u8], is_last: bool) -> Recognition {
    let name_len = text.iter().position(|&b| is_blank(&b) || b == b'\n').unwrap_or(text.len());
    let (name, rest) = text.split_at(name_len);
    if name.iter().any(u8::is_ascii_control) {
        return Recognition::Other;
    }
    let line = rest.iter().position(|&b| b == b'\n').map(|end| &rest[..end]);
    if line.is_some() && text.starts_with(HTTP_2) {
        return Recognition::Http2;
    }
    let is_request = match line {
        Some(line) if !name.iter().all(|&b| is_token_byte(b)) => ends_with_version(line),
        Some(line) => names_version(line) || Method::read(name) != Method::Unknown && names_target(line),
        None if is_last => !rest.is_empty() && Method::read(name) != Method::Unknown,
        None => return Recognition::Unclear,
    };
    if is_request { Recognition::Http(ExchangeSide::Request) } else { Recognition::Other }
}

/// Returns whether a word after a method begins like a version.
fn names_version(line: &[u8]) -> bool {
    line.split(is_blank).any(is_http_version)
}

/// Returns whether the last word after a method is a version.
fn ends_with_version(line: &[u8]) -> bool {
    line.split(is_blank).rfind(|word| !word.is_empty()).is_some_and(is_http_version)
}

fn is_http_version(word: &[u8]) -> bool {
    word.get(..HTTP.len()).is_some_and(|start| start.eq_ignore_ascii_case(HTTP))
}

/// Returns whether a known method is followed by a target, and not by another protocol's version.
fn names_target(line: &[u8]) -> bool {
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    let Some(target) = words.next() else { return false };
    let is_target = target[0] == b'/' || target.windows(3).any(|part| part == b"://");
    is_target && !words.next_back().is_some_and(is_version)
}

/// Returns whether a word looks like `SIP/2.0`.
fn is_version(word: &[u8]) -> bool {
    let name_len = word.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    name_len > 0 && matches!(word[name_len..], [b'/', major, ..] if major.is_ascii_digit())
}

/// Returns whether lenient servers read the byte as a space (RFC 9112 3).
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_distinguished_by_its_first_line() {
        let request = [
            "GET / HTTP/1.1\r\n",
            "\r\nget\t/ HTTP/1.0\n",
            "M-SEARCH * HTTP/1.1\r\n",
            "GET /\r\n",
            "X / http/1.1\n",
            " GET / HTTP/1.1\r\n",
            "\t\r\n \x0bGET / HTTP/1.1\r\n",
            "G(T / HTTP/1.1\r\n",
            "G\u{e4}T  /a b HTTP/1.1 \r\n",
            "\"\"\tHTTP/1.0\n",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n",
        ];
        for text in request {
            assert_eq!(
                recognise_start(text.as_bytes()),
                Recognition::Http(ExchangeSide::Request),
                "{text:?}"
            );
        }
        for text in ["HTTP/", "http/1.1 200 OK\r\n", "\r\nHTTP/1.0"] {
            assert_eq!(
                recognise_start(text.as_bytes()),
                Recognition::Http(ExchangeSide::Response),
                "{text:?}"
            );
        }
        let other = [
            "220 mail.example.org ESMTP\r\n",
            "EHLO x\r\n",
            "OPTIONS sip:a@b SIP/2.0\r\n",
            "OPTIONS rtsp://a RTSP/1.0\r\n",
            "GET / RTSP/1.0\r\n",
            "\x16\x03\x01",
            "SSH-2.0-OpenSSH\r\n",
            "\0",
            "USER a\r\n",
            "CONNECT {\"a\":1}\r\n",
            "SUBSCRIBE\n",
            "<13>1 host: \"GET / HTTP/1.1\" 200\n",
            " \x16\x03 HTTP/1.1\n",
            "(HTTP/1.1\n",
        ];
        assert_eq!(recognise_start(b"PRI * HTTP/2.0\r\n"), Recognition::Http2);
        for text in other {
            assert_eq!(recognise_start(text.as_bytes()), Recognition::Other, "{text:?}");
        }
    }

    #[test]
    fn unclear_beginnings_are_finally_decided() {
        for text in ["", "\r\n", "G", "GET", "GET /a", "HTTP", "GET / HTTP/1.1\r", "QUIT"] {
            assert_eq!(recognise_start(text.as_bytes()), Recognition::Unclear, "{text:?}");
        }
        let long = |start: &str| [start.as_bytes(), &vec![b'a'; PROBE_MAX]].concat();
        assert_eq!(recognise_start(&long("GET /")), Recognition::Http(ExchangeSide::Request));
        assert_eq!(recognise_start(&long("FOO /")), Recognition::Other);
        assert_eq!(recognise_start(&long("")), Recognition::Other);
        assert_eq!(recognise_start(&[b'\n'; PROBE_MAX]), Recognition::Other);
    }

    #[test]
    fn nothing_after_the_last_byte_is_inspected() {
        let long = [b"GET /", &[b'a'; PROBE_MAX][..], b" SIP/2.0\r\n"].concat();
        assert_eq!(recognise_start(&long), recognise_start(&long[..PROBE_MAX]));
    }

    /// A decision is final, whatever follows, and PROBE_MAX bytes always decide.
    #[test]
    fn more_bytes_change_no_decision() {
        let texts = [
            "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "EHLO x\r\nGET / HTTP/1.1\r\n",
            "\r\n\r\nPUT / HTTP/1.1\r\n",
        ];
        for text in texts {
            let mut decided = None;
            for len in 0..=text.len() {
                match (recognise_start(&text.as_bytes()[..len]), decided) {
                    (Recognition::Unclear, None) => {}
                    (now, None) => decided = Some(now),
                    (now, Some(before)) => assert_eq!(now, before, "{text:?} {len}"),
                }
            }
            assert!(decided.is_some());
        }
    }
}
