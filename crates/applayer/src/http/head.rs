//! Headers, and what they say about a message's framing.

use memchr::memchr;

use crate::http::event::{Framing, Header};
use crate::http::exchange::{Half, Side, flag};
use crate::http::gather::Whole;
use crate::http::token::{
    has_control, is_blank, is_host, is_token, list, list_has, token_prefix_len, trim, without_line_end,
};
use crate::http::{Anomalies, Anomaly, Field, uri};

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
    let hidden = match colon {
        Some(_) => field == Field::Other && is_like_framing(name),
        None => begins_like_framing(text),
    };
    let hidden = hidden || folded && folds_hide_framing(raw);
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
        Field::ContentLength => {
            found.add_if(may_be_unseen(half, side, found), Anomaly::ObfuscatedContentLength);
            note_length(half, header, found);
        }
        Field::TransferEncoding => {
            found.add_if(may_be_unseen(half, side, found), Anomaly::ObfuscatedTransferEncoding);
            note_transfer_encoding(half, side, header, found);
        }
        Field::Host if side == Side::Request => note_host(half, header.value, found),
        Field::Connection => {
            if list_has(header.value, b"close") {
                half.set(flag::CLOSE);
            }
            if list_has(header.value, b"keep-alive") {
                half.set(flag::KEEP_ALIVE);
            }
        }
        Field::Upgrade => {
            half.set(flag::UPGRADE);
            if list_has(header.value, b"h2c") {
                half.set(flag::H2C);
            }
        }
        Field::ContentEncoding => note_content_coding(half, header.value, found),
        Field::Expect if side == Side::Request => {
            let again = half.has(flag::EXPECTS);
            let plain = header.value.eq_ignore_ascii_case(b"100-continue");
            found.add_if(again || !plain, Anomaly::InvalidExpectation);
            half.set(flag::EXPECTS);
        }
        _ => {}
    }
}

/// Notes whether a header's name may be one half of a framing header's, of which a line's end cut
/// off the other; says so in `found` when both are there.
#[inline(always)]
pub(crate) fn note_name(half: &mut Half, header: &Header<'_>, found: &mut Anomalies) {
    if half.name_part != 0 || header.name.is_empty() {
        note_name_part(half, header, found);
    }
}

/// Of [`Half::name_part`]: the name is Transfer-Encoding, not Content-Length. The other bits count
/// its letters so far.
const OF_TRANSFER_ENCODING: u8 = 0x80;

#[cold]
fn note_name_part(half: &mut Half, header: &Header<'_>, found: &mut Anomalies) {
    let begun = std::mem::take(&mut half.name_part);
    let has_colon = !found.has(Anomaly::HeaderWithoutColon);
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
            return found.add(Anomaly::DisguisedFraming);
        }
        if !has_colon && is_all_of_text && (1..rest.len()).contains(&same) {
            half.name_part = (len + same) as u8 | bit;
            return;
        }
    }
    // A name that is cut may also begin here.
    if begun != 0 && letters.next().is_some() {
        note_name_part(half, header, found);
    }
}

/// Whether some readers may not see a header that frames a request, as lines that end in LF alone
/// stand among those that end in CR LF.
fn may_be_unseen(half: &Half, side: Side, found: &Anomalies) -> bool {
    let all = Anomalies::from_bits(half.told).union(*found);
    side == Side::Request && half.has(flag::CR_LF) && all.has(Anomaly::BareLineFeed)
}

fn note_content_coding(half: &mut Half, value: &[u8], found: &mut Anomalies) {
    for coding in list(value) {
        found.add_if(half.has(flag::CODED) || !is_token(coding), Anomaly::OddContentCoding);
        half.set(flag::CODED);
    }
}

/// How the body's end is found (RFC 9112 6.3), and what is wrong with the headers together.
pub(crate) fn framing(half: &Half, side: Side) -> (Framing, Anomalies) {
    let mut found = Anomalies::NONE;
    let (length, encoding) = (half.has(flag::LENGTH), half.has(flag::TRANSFER_ENCODING));
    if side == Side::Response && has_no_body(half) {
        // A HEAD's response and 304 may tell what a GET's would have been (RFC 9110 8.6, RFC 9112
        // 6.1).
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

/// Notes the authority that the request's target names, if it has one; Host has to be the same (RFC
/// 9112 3.2.2).
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

/// The names that frame messages, of letters alone.
const CONTENT_LENGTH: &[u8] = b"contentlength";
const TRANSFER_ENCODING: &[u8] = b"transferencoding";

/// Letters and digits of a name, in lower case.
fn letters(name: &[u8]) -> impl Iterator<Item = u8> + Clone + '_ {
    name.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// Whether a name is one of those that frame messages but for bytes that are neither letters nor
/// digits: as CGI has it (RFC 3875 4.1.18), with a NUL, with a blank.
fn is_like_framing(name: &[u8]) -> bool {
    let mut rest = letters(name).peekable();
    let known = match rest.peek() {
        Some(b'c') => CONTENT_LENGTH,
        Some(b't') => TRANSFER_ENCODING,
        _ => return false,
    };
    name.len() > known.len() && rest.eq(known.iter().copied())
}

/// Whether a line without colon begins with a name that frames messages: some readers take a blank,
/// or the line's end, for the colon.
pub(crate) fn begins_like_framing(text: &[u8]) -> bool {
    [CONTENT_LENGTH, TRANSFER_ENCODING]
        .into_iter()
        .any(|known| letters(text).take(known.len()).eq(known.iter().copied()))
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

fn note_transfer_encoding(half: &mut Half, side: Side, header: &Header<'_>, found: &mut Anomalies) {
    half.set(flag::TRANSFER_ENCODING);
    let odd = |&b: &u8| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b',' | b' '));
    let odd_value = header.value.is_empty() || header.value.iter().any(odd);
    found.add_if(odd_value || is_disguised(header, found), Anomaly::ObfuscatedTransferEncoding);
    for coding in list(header.value) {
        if coding.is_empty() {
            found.add(Anomaly::ObfuscatedTransferEncoding);
            continue;
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            found.add_if(half.has(flag::CHUNKED), Anomaly::RepeatedChunked);
            half.set(flag::CHUNKED);
            continue;
        }
        // Another coding behind chunked: then it is not the last one (RFC 9112 6.1). Clients take
        // chunks for chunks nevertheless, and so do they where chunked is but a part of a word;
        // what follows shows whether they are.
        if side == Side::Request {
            half.clear(flag::CHUNKED);
        } else {
            found.add_if(half.has(flag::CHUNKED), Anomaly::ChunkedNotFinal);
            if coding.to_ascii_lowercase().windows(7).any(|part| part == b"chunked") {
                half.set(flag::CHUNKED);
            }
        }
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

/// A hash of an authority without user and without the default port, in lower case. It serves to
/// find differences; whoever wants two authorities to look the same can build them, and gains only
/// that a mismatch is not told.
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
