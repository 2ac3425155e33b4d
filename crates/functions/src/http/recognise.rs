//! Whether a direction's first bytes are those of HTTP/1, and of which side: by content, whatever
//! the port.

use applayer::http::{Method, Side};

/// Bytes after which it is decided.
pub const PROBE_MAX: usize = 512;

/// Characters of a method at most, where it is not a known one.
const NAME_MAX: usize = 32;

/// What first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Those of this side of HTTP.
    Http(Side),
    /// A client's of HTTP/2, which is not read.
    Http2,
    /// Not those of HTTP.
    Other,
    /// More bytes are needed to tell.
    Unclear,
}

/// Looks at all bytes of a direction so far, up to [`PROBE_MAX`].
///
/// A server's begin with `HTTP/` (RFC 9112 4). A client's begin with a token, and their first line
/// has a version of HTTP behind it (RFC 9112 3), or they name a known method and a target alone, as
/// in HTTP/0.9. Empty lines before do not count (RFC 9112 2.2).
pub fn look(bytes: &[u8]) -> Look {
    let bytes = &bytes[..bytes.len().min(PROBE_MAX)];
    let start = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(bytes.len());
    let text = &bytes[start..];
    let is_last = bytes.len() >= PROBE_MAX;
    if text.is_empty() {
        return if is_last { Look::Other } else { Look::Unclear };
    }
    let compared = text.len().min(HTTP.len());
    if text[..compared].eq_ignore_ascii_case(&HTTP[..compared]) {
        return match compared == HTTP.len() {
            true => Look::Http(Side::Response),
            false if is_last => Look::Other,
            false => Look::Unclear,
        };
    }
    request(text, is_last)
}

/// Whether a server may begin like this (RFC 9112 4).
pub fn may_be_status_line(bytes: &[u8]) -> bool {
    let len = bytes.len().min(HTTP.len());
    bytes[..len].eq_ignore_ascii_case(&HTTP[..len])
}

/// A byte of a token (RFC 9110 5.6.2).
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const HTTP: &[u8] = b"HTTP/";
/// The first line of HTTP/2 with prior knowledge (RFC 9113 3.4).
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n";

fn request(text: &[u8], is_last: bool) -> Look {
    let name_len = text.iter().position(|&b| !is_token_byte(b)).unwrap_or(text.len());
    let (name, rest) = text.split_at(name_len);
    if name.is_empty() || name.len() > NAME_MAX || rest.first().is_some_and(|b| !is_blank(b)) {
        return Look::Other;
    }
    let line = rest.iter().position(|&b| b == b'\n').map(|end| &rest[..end]);
    if line.is_some() && text.starts_with(HTTP_2) {
        return Look::Http2;
    }
    let is_request = match line {
        Some(line) => names_version(line) || Method::read(name) != Method::Unknown && names_target(line),
        None if is_last => !rest.is_empty() && Method::read(name) != Method::Unknown,
        None => return Look::Unclear,
    };
    if is_request { Look::Http(Side::Request) } else { Look::Other }
}

/// Whether a word of what stands behind a method begins like a version.
fn names_version(line: &[u8]) -> bool {
    line.split(is_blank).any(|word| word.get(..HTTP.len()).is_some_and(|w| w.eq_ignore_ascii_case(HTTP)))
}

/// Whether what stands behind a known method is a target, and no version of another protocol ends
/// it.
fn names_target(line: &[u8]) -> bool {
    let mut words = line.split(|b| is_blank(b) || *b == b'\r').filter(|word| !word.is_empty());
    let Some(target) = words.next() else { return false };
    let is_target = target[0] == b'/' || target.windows(3).any(|part| part == b"://");
    is_target && !words.next_back().is_some_and(is_version)
}

/// Whether a word is like `SIP/2.0`.
fn is_version(word: &[u8]) -> bool {
    let name_len = word.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    name_len > 0 && matches!(word[name_len..], [b'/', major, ..] if major.is_ascii_digit())
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_told_from_other_protocols_by_its_first_line() {
        let request = [
            "GET / HTTP/1.1\r\n",
            "\r\nget\t/ HTTP/1.0\n",
            "M-SEARCH * HTTP/1.1\r\n",
            "GET /\r\n",
            "X / http/1.1\n",
        ];
        for text in request {
            assert_eq!(look(text.as_bytes()), Look::Http(Side::Request), "{text:?}");
        }
        for text in ["HTTP/", "http/1.1 200 OK\r\n", "\r\nHTTP/1.0"] {
            assert_eq!(look(text.as_bytes()), Look::Http(Side::Response), "{text:?}");
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
        ];
        assert_eq!(look(b"PRI * HTTP/2.0\r\n"), Look::Http2);
        for text in other {
            assert_eq!(look(text.as_bytes()), Look::Other, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_clear_is_decided_in_the_end() {
        for text in ["", "\r\n", "G", "GET", "GET /a", "HTTP", "GET / HTTP/1.1\r", "QUIT"] {
            assert_eq!(look(text.as_bytes()), Look::Unclear, "{text:?}");
        }
        let long = |start: &str| [start.as_bytes(), &vec![b'a'; PROBE_MAX]].concat();
        assert_eq!(look(&long("GET /")), Look::Http(Side::Request));
        assert_eq!(look(&long("FOO /")), Look::Other);
        assert_eq!(look(&long("")), Look::Other);
        assert_eq!(look(&[b'\n'; PROBE_MAX]), Look::Other);
    }

    #[test]
    fn nothing_behind_the_last_byte_is_looked_at() {
        let long = [b"GET /", &[b'a'; PROBE_MAX][..], b" SIP/2.0\r\n"].concat();
        assert_eq!(look(&long), look(&long[..PROBE_MAX]));
    }

    /// What is decided stays so, whatever follows, and all of PROBE_MAX bytes are decided.
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
                match (look(&text.as_bytes()[..len]), decided) {
                    (Look::Unclear, None) => {}
                    (now, None) => decided = Some(now),
                    (now, Some(before)) => assert_eq!(now, before, "{text:?} {len}"),
                }
            }
            assert!(decided.is_some());
        }
    }
}
