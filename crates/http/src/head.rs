//! Headers, and what they say about a message's framing.

use memchr::memchr;

use crate::event::{Framing, Header};
use crate::exchange::{Half, Side, flag};
use crate::gather::Whole;
use crate::token::{
    has_control, is_blank, is_host, is_token, list, list_has, token_prefix_len, trim, without_line_end,
};
use crate::{Anomalies, Anomaly, Field, uri};

/// Reads a header line with its end and folds (RFC 9112 5).
#[inline(always)]
pub(crate) fn header(whole: Whole<'_>) -> (Header<'_>, Anomalies) {
    let Whole { raw, mut found, controls, folded, .. } = whole;
    let text = without_line_end(raw);
    let prefix = token_prefix_len(text);
    // Nearly always the colon follows the token; otherwise it is searched for.
    let colon = if text.get(prefix) == Some(&b':') { Some(prefix) } else { memchr(b':', text) };
    let (name, value) = match colon {
        Some(colon) => (&text[..colon], &text[colon + 1..]),
        None => {
            found.add(Anomaly::HeaderWithoutColon);
            (&text[..0], text)
        }
    };
    let name = match colon {
        Some(colon) if colon != prefix || prefix == 0 => odd_name(name, &mut found),
        _ => name,
    };
    found.add_if(folded, Anomaly::ObsoleteFold);
    found.add_if(controls && has_control(value), Anomaly::IllegalHeaderValue);
    let value = match folded {
        false => trim(value, is_blank),
        true => trim(value, |b| is_blank(b) || matches!(b, b'\r' | b'\n')),
    };
    let field = Field::read(name);
    let hidden = field == Field::Other && is_like_framing(name) || folded && folds_hide_framing(raw);
    found.add_if(hidden, Anomaly::DisguisedFraming);
    (Header { raw, name, field, value, folded }, found)
}

/// Whether a line is a header without doubt.
pub(crate) fn is_header(raw: &[u8]) -> bool {
    let name = token_prefix_len(raw);
    name > 0 && raw.get(name) == Some(&b':')
}

/// What a header says about how its message, and the connection, goes on; notes it in the state.
pub(crate) fn note(half: &mut Half, side: Side, header: &Header<'_>, found: &mut Anomalies) {
    match header.field {
        Field::ContentLength => note_length(half, header, found),
        Field::TransferEncoding => note_transfer_encoding(half, header, found),
        Field::Host if side == Side::Request => note_host(half, header.value, found),
        Field::Connection => {
            if list_has(header.value, b"close") {
                half.set(flag::CLOSE);
            }
            if list_has(header.value, b"keep-alive") {
                half.set(flag::KEEP_ALIVE);
            }
        }
        Field::Upgrade => half.set(flag::UPGRADE),
        Field::Expect if side == Side::Request => {
            let again = half.has(flag::EXPECTS);
            let plain = header.value.eq_ignore_ascii_case(b"100-continue");
            found.add_if(again || !plain, Anomaly::InvalidExpectation);
            half.set(flag::EXPECTS);
        }
        _ => {}
    }
}

/// How the body's end is found (RFC 9112 6.3), and what is wrong with the headers together.
pub(crate) fn framing(half: &Half, side: Side) -> (Framing, Anomalies) {
    let mut found = Anomalies::NONE;
    let (length, encoding) = (half.has(flag::LENGTH), half.has(flag::TRANSFER_ENCODING));
    if side == Side::Response && has_no_body(half) {
        // A HEAD's response and 304 may tell what a GET's would have been (RFC 9110 8.6, RFC 9112 6.1).
        let may_tell = half.status == 304 || half.has(flag::HEAD) && !is_bodiless(half.status);
        found.add_if((length || encoding) && !may_tell, Anomaly::FramingWithoutBody);
        return (Framing::None, found);
    }
    let chunked = encoding && half.has(flag::CHUNKED);
    found.add_if(length && encoding, Anomaly::LengthAndTransferEncoding);
    found.add_if(encoding && half.has(flag::HTTP_10), Anomaly::TransferEncodingInOldVersion);
    found.add_if(encoding && !chunked, Anomaly::ChunkedNotFinal);
    found.add_if(side == Side::Request && lacks_host(half), Anomaly::MissingHost);
    let framing = match side {
        _ if chunked => Framing::Chunked,
        Side::Response if encoding => Framing::UntilClose,
        _ if length => Framing::Length(half.content_length),
        Side::Request => Framing::None,
        Side::Response => Framing::UntilClose,
    };
    let empty = matches!(framing, Framing::None | Framing::Length(0));
    found.add_if(empty && half.has(flag::EXPECTS), Anomaly::InvalidExpectation);
    (framing, found)
}

/// Notes the authority that the request's target names, if it has one; Host has to be the same (RFC 9112 3.2.2).
pub(crate) fn note_target(half: &mut Half, target: &[u8]) {
    if let Some(authority) = uri::split(target).authority {
        half.set(flag::AUTHORITY);
        half.authority = authority_hash(authority);
    }
}

/// Whether a trailer is one of the headers that must not come as such (RFC 9110 6.5.1).
pub(crate) fn is_framing(field: Field) -> bool {
    matches!(field, Field::ContentLength | Field::TransferEncoding | Field::Host)
}

fn odd_name<'a>(name: &'a [u8], found: &mut Anomalies) -> &'a [u8] {
    let bare = trim(name, is_blank);
    found.add_if(bare.len() != name.len(), Anomaly::BlankBeforeColon);
    found.add_if(bare.is_empty(), Anomaly::EmptyHeaderName);
    found.add_if(!bare.is_empty() && !is_token(bare), Anomaly::IllegalHeaderName);
    bare
}

/// Whether a name is one of those that frame messages but for bytes that are neither letters nor digits: as CGI has it
/// (RFC 3875 4.1.18), with a NUL, with a blank.
fn is_like_framing(name: &[u8]) -> bool {
    let mut rest = name.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).peekable();
    let known: &[u8] = match rest.peek() {
        Some(b'c') => b"contentlength",
        Some(b't') => b"transferencoding",
        _ => return false,
    };
    name.len() > known.len() && rest.eq(known.iter().copied())
}

/// Whether a header's further lines are headers that frame messages for whoever does not fold.
fn folds_hide_framing(raw: &[u8]) -> bool {
    raw.split(|&b| b == b'\n').skip(1).any(|line| {
        let Some(colon) = memchr(b':', line) else { return false };
        let name = trim(&line[..colon], is_blank);
        matches!(Field::read(name), Field::ContentLength | Field::TransferEncoding) || is_like_framing(name)
    })
}

/// Whether a header is written in a way that not all readers know.
fn is_disguised(header: &Header<'_>, found: &Anomalies) -> bool {
    let colon = memchr(b':', header.raw).unwrap_or(0);
    let tab_first = header.raw[colon..].get(1) == Some(&b'\t');
    header.folded || tab_first || found.has(Anomaly::BlankBeforeColon)
}

fn note_length(half: &mut Half, header: &Header<'_>, found: &mut Anomalies) {
    found.add_if(is_disguised(header, found), Anomaly::ObfuscatedContentLength);
    let mut values = list(header.value).map(number);
    let Some(Some(first)) = values.next() else {
        return found.add(Anomaly::InvalidContentLength);
    };
    for further in values {
        let Some(further) = further else {
            return found.add(Anomaly::InvalidContentLength);
        };
        found.add(Anomaly::ListedContentLength);
        found.add_if(further != first, Anomaly::ConflictingContentLength);
    }
    if !half.has(flag::LENGTH) {
        half.set(flag::LENGTH);
        half.content_length = first;
    } else if half.content_length == first {
        found.add(Anomaly::DuplicateContentLength);
    } else {
        found.add(Anomaly::ConflictingContentLength);
    }
}

/// Digits only, below 2^64 (RFC 9110 8.6).
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn note_transfer_encoding(half: &mut Half, header: &Header<'_>, found: &mut Anomalies) {
    half.set(flag::TRANSFER_ENCODING);
    let odd = |&b: &u8| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b',' | b' '));
    let odd_value = header.value.is_empty() || header.value.iter().any(odd);
    found.add_if(odd_value || is_disguised(header, found), Anomaly::ObfuscatedTransferEncoding);
    for coding in list(header.value).filter(|coding| !coding.is_empty()) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            found.add_if(half.has(flag::CHUNKED), Anomaly::RepeatedChunked);
            half.set(flag::CHUNKED);
            continue;
        }
        // Another coding behind chunked: then it is not the last one (RFC 9112 6.1).
        half.clear(flag::CHUNKED);
        let known: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];
        let is_known = known.iter().any(|known| coding.eq_ignore_ascii_case(known));
        found.add_if(!is_known, Anomaly::UnknownTransferCoding);
    }
}

fn note_host(half: &mut Half, value: &[u8], found: &mut Anomalies) {
    found.add_if(!is_host(value), Anomaly::InvalidHost);
    if half.has(flag::HOST) {
        return found.add(Anomaly::DuplicateHost);
    }
    half.set(flag::HOST);
    let differs = half.has(flag::AUTHORITY) && half.authority != authority_hash(value);
    found.add_if(differs, Anomaly::HostMismatch);
}

fn lacks_host(half: &Half) -> bool {
    half.has(flag::HTTP_11) && !half.has(flag::HOST)
}

fn has_no_body(half: &Half) -> bool {
    half.has(flag::HEAD) || is_bodiless(half.status) || half.status == 304 || answers_connect(half)
}

/// Statuses whose responses have no body, whatever was asked (RFC 9110 6.4.1).
fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}

/// Whether the response opens a tunnel (RFC 9110 9.3.6).
pub(crate) fn answers_connect(half: &Half) -> bool {
    half.has(flag::CONNECT) && matches!(half.status, 200..=299)
}

/// A hash of an authority without user and without the default port, in lower case. It serves to find differences; whoever wants
/// two authorities to look the same can build them, and gains only that a mismatch is not told.
fn authority_hash(authority: &[u8]) -> u64 {
    let (_, host, port) = uri::split_authority(authority);
    let port = port.filter(|port| !port.is_empty() && *port != b"80").unwrap_or(b"80");
    let bytes = host.iter().chain(b":").chain(port);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Anomaly::*;

    fn whole(raw: &[u8], folded: bool) -> Whole<'_> {
        Whole { raw, found: Anomalies::NONE, controls: true, folded, cut: false }
    }

    #[test]
    fn names_and_values_are_trimmed() {
        let rows: [(&str, &str, &str, &[Anomaly]); 9] = [
            ("Host: a\r\n", "Host", "a", &[]),
            ("Host:a \t\r\n", "Host", "a", &[]),
            ("Host : a\r\n", "Host", "a", &[BlankBeforeColon]),
            ("no colon\r\n", "", "no colon", &[HeaderWithoutColon]),
            (": a\r\n", "", "a", &[EmptyHeaderName]),
            ("a b: c\r\n", "a b", "c", &[IllegalHeaderName]),
            ("a(: c\r\n", "a(", "c", &[IllegalHeaderName]),
            ("a: \x01\n", "a", "\x01", &[IllegalHeaderValue]),
            ("a:\n", "a", "", &[]),
        ];
        for (raw, name, value, anomalies) in rows {
            let (header, found) = header(whole(raw.as_bytes(), false));
            assert_eq!((header.name, header.value), (name.as_bytes(), value.as_bytes()), "{raw}");
            assert_eq!(found.iter().collect::<Vec<_>>(), anomalies, "{raw}");
        }
    }

    #[test]
    fn a_folded_value_has_parts() {
        let (header, found) = header(whole(b"a: b\r\n\t c \n d\r\n", true));
        assert_eq!(header.value, b"b\r\n\t c \n d");
        assert_eq!(header.parts().collect::<Vec<_>>(), [b"b", b"c", b"d"]);
        assert!(found.has(ObsoleteFold));
    }

    #[test]
    fn lengths_are_digits() {
        assert_eq!(number(b"007"), Some(7));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"+1", b"-1", b"1 2", b"0x1", b"18446744073709551616"] {
            assert_eq!(number(text), None);
        }
    }

    #[test]
    fn authorities_are_the_same_in_any_case_and_with_the_default_port() {
        assert_eq!(authority_hash(b"u:p@EXAMPLE.org:80"), authority_hash(b"example.org"));
        assert_ne!(authority_hash(b"example.org:81"), authority_hash(b"example.org"));
        assert_eq!(authority_hash(b"[::1]:80"), authority_hash(b"[::1]"));
    }
}
