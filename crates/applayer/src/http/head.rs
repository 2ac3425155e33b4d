//! Headers, and the framing that they imply.

use memchr::memchr;

use crate::http::direction::{DirectionState, ExchangeSide, flag};
use crate::http::event::{Framing, HeaderLine};
use crate::http::gather::GatheredLine;
use crate::http::token::{
    has_control, is_blank, is_host, is_token, list, list_has, token_prefix_len, trim, without_line_end,
};
use crate::http::{FieldName, HttpAnomalies, HttpAnomaly, uri};

/// Parses a header line with its line ending and folds (RFC 9112 5).
#[inline(always)]
pub(crate) fn header(whole: GatheredLine<'_>) -> (HeaderLine<'_>, HttpAnomalies) {
    let GatheredLine { raw, mut found, controls, folded, .. } = whole;
    let text = without_line_end(raw);
    let prefix = token_prefix_len(text);
    // Nearly always the colon follows the token; otherwise search for it.
    let colon = if text.get(prefix) == Some(&b':') { Some(prefix) } else { memchr(b':', text) };
    let (name, value) = match colon {
        Some(colon) => (&text[..colon], &text[colon + 1..]),
        None => {
            found.add(HttpAnomaly::HeaderWithoutColon);
            (&text[..0], text)
        }
    };
    let name = match colon {
        Some(colon) if colon != prefix || prefix == 0 => odd_name(name, &mut found),
        _ => name,
    };
    found.add_if(folded, HttpAnomaly::ObsoleteFold);
    found.add_if(controls && has_control(value), HttpAnomaly::IllegalHeaderValue);
    let value = match folded {
        false => trim(value, is_blank),
        true => trim(value, |b| is_blank(b) || matches!(b, b'\r' | b'\n')),
    };
    let field = FieldName::read(name);
    let hidden = match colon {
        Some(_) => field == FieldName::Other && is_like_framing(name),
        None => begins_like_framing(text),
    };
    let hidden = hidden || folded && folds_hide_framing(raw);
    found.add_if(hidden, HttpAnomaly::DisguisedFraming);
    (HeaderLine { raw, name, field, value, folded }, found)
}

/// Returns whether a line is certainly a header.
pub(crate) fn is_header(raw: &[u8]) -> bool {
    let name = token_prefix_len(raw);
    name > 0 && raw.get(name) == Some(&b':')
}

/// Records the effect of a header on its message and the connection.
pub(crate) fn note(
    half: &mut DirectionState,
    side: ExchangeSide,
    header: &HeaderLine<'_>,
    found: &mut HttpAnomalies,
) {
    match header.field {
        FieldName::ContentLength => {
            found.add_if(may_be_unseen(half, side, found), HttpAnomaly::ObfuscatedContentLength);
            note_length(half, header, found);
        }
        FieldName::TransferEncoding => {
            found.add_if(may_be_unseen(half, side, found), HttpAnomaly::ObfuscatedTransferEncoding);
            note_transfer_encoding(half, side, header, found);
        }
        FieldName::Host if side == ExchangeSide::Request => note_host(half, header.value, found),
        FieldName::Connection => {
            if list_has(header.value, b"close") {
                half.set(flag::CLOSE);
            }
            if list_has(header.value, b"keep-alive") {
                half.set(flag::KEEP_ALIVE);
            }
        }
        FieldName::Upgrade => {
            half.set(flag::UPGRADE);
            if list_has(header.value, b"h2c") {
                half.set(flag::H2C);
            }
        }
        FieldName::ContentEncoding => note_content_coding(half, header.value, found),
        FieldName::Expect if side == ExchangeSide::Request => {
            let again = half.has(flag::EXPECTS);
            let plain = header.value.eq_ignore_ascii_case(b"100-continue");
            found.add_if(again || !plain, HttpAnomaly::InvalidExpectation);
            half.set(flag::EXPECTS);
        }
        _ => {}
    }
}

/// Records whether a header's name may be one half of a framing header's name that a line ending
/// split; adds an anomaly to `found` when both halves are there.
#[inline(always)]
pub(crate) fn note_name(half: &mut DirectionState, header: &HeaderLine<'_>, found: &mut HttpAnomalies) {
    if half.name_part != 0 || header.name.is_empty() {
        note_name_part(half, header, found);
    }
}

/// Of [`DirectionState::name_part`]: the name is Transfer-Encoding, not Content-Length. The other
/// bits count the matched letters.
const OF_TRANSFER_ENCODING: u8 = 0x80;

#[cold]
fn note_name_part(half: &mut DirectionState, header: &HeaderLine<'_>, found: &mut HttpAnomalies) {
    let begun = std::mem::take(&mut half.name_part);
    let has_colon = !found.has(HttpAnomaly::HeaderWithoutColon);
    let text = if has_colon { header.name } else { header.value };
    let mut letters = letters(text);
    for (known, bit) in [(CONTENT_LENGTH, 0), (TRANSFER_ENCODING, OF_TRANSFER_ENCODING)] {
        let len = usize::from(begun & !OF_TRANSFER_ENCODING);
        if begun != 0 && begun & OF_TRANSFER_ENCODING != bit {
            continue;
        }
        let rest = known.get(len..).unwrap_or_default();
        let mut same = 0;
        let mut own = letters.clone();
        while same < rest.len() && own.next().is_some_and(|letter| letter == rest[same]) {
            same += 1;
        }
        let is_all_of_text = letters.clone().nth(same).is_none();
        if begun != 0 && same == rest.len() && (is_all_of_text || !has_colon) {
            return found.add(HttpAnomaly::DisguisedFraming);
        }
        if !has_colon && is_all_of_text && (1..rest.len()).contains(&same) {
            half.name_part = (len + same) as u8 | bit;
            return;
        }
    }
    // A split name may also begin here.
    if begun != 0 && letters.next().is_some() {
        note_name_part(half, header, found);
    }
}

/// Returns whether some implementations may not see a header that frames a request, because bare LF
/// and CR LF line endings are mixed.
fn may_be_unseen(half: &DirectionState, side: ExchangeSide, found: &HttpAnomalies) -> bool {
    let all = HttpAnomalies::from_bits(half.reported).union(*found);
    side == ExchangeSide::Request && half.has(flag::CR_LF) && all.has(HttpAnomaly::BareLineFeed)
}

fn note_content_coding(half: &mut DirectionState, value: &[u8], found: &mut HttpAnomalies) {
    for coding in list(value) {
        found.add_if(half.has(flag::CODED) || !is_token(coding), HttpAnomaly::OddContentCoding);
        half.set(flag::CODED);
    }
}

/// Returns the framing of the body (RFC 9112 6.3) and the anomalies of the headers together.
pub(crate) fn framing(half: &DirectionState, side: ExchangeSide) -> (Framing, HttpAnomalies) {
    let mut found = HttpAnomalies::NONE;
    let (length, encoding) = (half.has(flag::LENGTH), half.has(flag::TRANSFER_ENCODING));
    if side == ExchangeSide::Response && has_no_body(half) {
        // A 304, or a response to HEAD, may carry the headers that a GET would get (RFC 9110 8.6,
        // RFC 9112 6.1).
        let may_tell = half.status == 304 || half.has(flag::HEAD) && !is_bodiless(half.status);
        found.add_if((length || encoding) && !may_tell, HttpAnomaly::FramingWithoutBody);
        return (Framing::None, found);
    }
    let chunked = encoding && half.has(flag::CHUNKED);
    found.add_if(length && encoding, HttpAnomaly::LengthAndTransferEncoding);
    found.add_if(encoding && half.has(flag::HTTP_10), HttpAnomaly::TransferEncodingInOldVersion);
    found.add_if(encoding && !chunked, HttpAnomaly::ChunkedNotFinal);
    found.add_if(side == ExchangeSide::Request && lacks_host(half), HttpAnomaly::MissingHost);
    let framing = match side {
        _ if chunked => Framing::Chunked,
        ExchangeSide::Response if encoding => Framing::UntilClose,
        _ if length => Framing::Length(half.content_length),
        ExchangeSide::Request => Framing::None,
        ExchangeSide::Response => Framing::UntilClose,
    };
    let empty = matches!(framing, Framing::None | Framing::Length(0));
    found.add_if(empty && half.has(flag::EXPECTS), HttpAnomaly::InvalidExpectation);
    (framing, found)
}

/// Records the authority in the request target, if any; Host must equal it (RFC 9112 3.2.2).
pub(crate) fn note_target(half: &mut DirectionState, target: &[u8]) {
    if let Some(authority) = uri::split(target).authority {
        half.set(flag::AUTHORITY);
        half.authority = authority_hash(authority);
    }
}

/// Returns whether a header must not be a trailer (RFC 9110 6.5.1).
pub(crate) fn is_framing(field: FieldName) -> bool {
    matches!(field, FieldName::ContentLength | FieldName::TransferEncoding | FieldName::Host)
}

fn odd_name<'a>(name: &'a [u8], found: &mut HttpAnomalies) -> &'a [u8] {
    let bare = trim(name, is_blank);
    found.add_if(bare.len() != name.len(), HttpAnomaly::BlankBeforeColon);
    found.add_if(bare.is_empty(), HttpAnomaly::EmptyHeaderName);
    found.add_if(!bare.is_empty() && !is_token(bare), HttpAnomaly::IllegalHeaderName);
    bare
}

/// The names of the framing headers, letters only.
const CONTENT_LENGTH: &[u8] = b"contentlength";
const TRANSFER_ENCODING: &[u8] = b"transferencoding";

/// Returns the letters and digits of a name, in lower case.
fn letters(name: &[u8]) -> impl Iterator<Item = u8> + Clone + '_ {
    name.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// Returns whether a name equals that of a framing header except for bytes that are neither letters
/// nor digits: as in CGI (RFC 3875 4.1.18), with a NUL, with a blank.
fn is_like_framing(name: &[u8]) -> bool {
    let mut rest = letters(name).peekable();
    let known = match rest.peek() {
        Some(b'c') => CONTENT_LENGTH,
        Some(b't') => TRANSFER_ENCODING,
        _ => return false,
    };
    name.len() > known.len() && rest.eq(known.iter().copied())
}

/// Returns whether a line without a colon begins with the name of a framing header: some
/// implementations take a blank or the line ending for the colon.
pub(crate) fn begins_like_framing(text: &[u8]) -> bool {
    [CONTENT_LENGTH, TRANSFER_ENCODING]
        .into_iter()
        .any(|known| letters(text).take(known.len()).eq(known.iter().copied()))
}

/// Returns whether the continuation lines of a header are framing headers to an implementation that
/// does not unfold.
fn folds_hide_framing(raw: &[u8]) -> bool {
    raw.split(|&b| b == b'\n').skip(1).any(|line| {
        let Some(colon) = memchr(b':', line) else { return false };
        let name = trim(&line[..colon], is_blank);
        matches!(FieldName::read(name), FieldName::ContentLength | FieldName::TransferEncoding)
            || is_like_framing(name)
    })
}

/// Returns whether a header is written in a way that not all implementations recognise.
fn is_disguised(header: &HeaderLine<'_>, found: &HttpAnomalies) -> bool {
    let colon = memchr(b':', header.raw).unwrap_or(0);
    let tab_first = header.raw[colon..].get(1) == Some(&b'\t');
    header.folded || tab_first || found.has(HttpAnomaly::BlankBeforeColon)
}

fn note_length(half: &mut DirectionState, header: &HeaderLine<'_>, found: &mut HttpAnomalies) {
    found.add_if(is_disguised(header, found), HttpAnomaly::ObfuscatedContentLength);
    let mut values = list(header.value).map(number);
    let Some(Some(first)) = values.next() else {
        return found.add(HttpAnomaly::InvalidContentLength);
    };
    for further in values {
        let Some(further) = further else {
            return found.add(HttpAnomaly::InvalidContentLength);
        };
        found.add(HttpAnomaly::ListedContentLength);
        found.add_if(further != first, HttpAnomaly::ConflictingContentLength);
    }
    if !half.has(flag::LENGTH) {
        half.set(flag::LENGTH);
        half.content_length = first;
    } else if half.content_length == first {
        found.add(HttpAnomaly::DuplicateContentLength);
    } else {
        found.add(HttpAnomaly::ConflictingContentLength);
    }
}

/// Parses digits only, below 2^64 (RFC 9110 8.6).
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn note_transfer_encoding(
    half: &mut DirectionState,
    side: ExchangeSide,
    header: &HeaderLine<'_>,
    found: &mut HttpAnomalies,
) {
    half.set(flag::TRANSFER_ENCODING);
    let odd = |&b: &u8| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b',' | b' '));
    let odd_value = header.value.is_empty() || header.value.iter().any(odd);
    found.add_if(odd_value || is_disguised(header, found), HttpAnomaly::ObfuscatedTransferEncoding);
    for coding in list(header.value) {
        if coding.is_empty() {
            found.add(HttpAnomaly::ObfuscatedTransferEncoding);
            continue;
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            found.add_if(half.has(flag::CHUNKED), HttpAnomaly::RepeatedChunked);
            half.set(flag::CHUNKED);
            continue;
        }
        // Another coding after chunked: chunked is not the last one (RFC 9112 6.1). Clients decode
        // chunks anyway, even where chunked is only part of a word; the following bytes show
        // whether they are chunks.
        if side == ExchangeSide::Request {
            half.clear(flag::CHUNKED);
        } else {
            found.add_if(half.has(flag::CHUNKED), HttpAnomaly::ChunkedNotFinal);
            if coding.to_ascii_lowercase().windows(7).any(|part| part == b"chunked") {
                half.set(flag::CHUNKED);
            }
        }
        let known: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];
        let is_known = known.iter().any(|known| coding.eq_ignore_ascii_case(known));
        found.add_if(!is_known, HttpAnomaly::UnknownTransferCoding);
    }
}

fn note_host(half: &mut DirectionState, value: &[u8], found: &mut HttpAnomalies) {
    found.add_if(!is_host(value), HttpAnomaly::InvalidHost);
    if half.has(flag::HOST) {
        return found.add(HttpAnomaly::DuplicateHost);
    }
    half.set(flag::HOST);
    let differs = half.has(flag::AUTHORITY) && half.authority != authority_hash(value);
    found.add_if(differs, HttpAnomaly::HostMismatch);
}

fn lacks_host(half: &DirectionState) -> bool {
    half.has(flag::HTTP_11) && !half.has(flag::HOST)
}

fn has_no_body(half: &DirectionState) -> bool {
    half.has(flag::HEAD) || is_bodiless(half.status) || half.status == 304 || answers_connect(half)
}

/// Returns whether a response of this status never has a body (RFC 9110 6.4.1).
fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}

/// Returns whether the response opens a tunnel (RFC 9110 9.3.6).
pub(crate) fn answers_connect(half: &DirectionState) -> bool {
    half.has(flag::CONNECT) && matches!(half.status, 200..=299)
}

/// Hashes an authority without user and default port, in lower case. The hash only serves to find
/// differences: an attacker who builds a collision merely avoids the report of a mismatch.
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
    use HttpAnomaly::*;

    fn whole(raw: &[u8], folded: bool) -> GatheredLine<'_> {
        GatheredLine { raw, found: HttpAnomalies::NONE, controls: true, folded, cut: false }
    }

    #[test]
    fn names_and_values_are_trimmed() {
        let rows: [(&str, &str, &str, &[HttpAnomaly]); 9] = [
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
