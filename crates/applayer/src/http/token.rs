//! Character classes, and helpers for byte slices.

/// Valid in a token: a method or a header name (RFC 9110 5.6.2).
const TOKEN: u8 = 1;
/// A control character that is invalid in a header value; CR, LF and NUL are handled elsewhere (RFC
/// 9110 5.5).
const CONTROL: u8 = 2;
/// Valid in a host name, an address, brackets or a port (RFC 3986 3.2.2, 3.2.3).
const HOST: u8 = 4;

/// The classes of each byte.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() || is_one_of(b, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
        }
        if (b < b' ' && !is_one_of(b, b"\t\r\n\0")) || b == 0x7f {
            table[byte] |= CONTROL;
        }
        if b.is_ascii_alphanumeric() || is_one_of(b, b"-._~!$&'()*+;=%:[]") {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// Returns the number of leading token bytes.
pub(crate) fn token_prefix_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| CLASSES[usize::from(b)] & TOKEN == 0).unwrap_or(bytes.len())
}

/// Returns whether the bytes are a token (RFC 9110 5.6.2), which is never empty.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && token_prefix_len(bytes) == bytes.len()
}

/// Returns whether each byte is valid in a request target: no control character, no space, ASCII
/// only (RFC 3986 2). It has no branch per byte, so it is vectorised.
pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |bad, &b| bad | (b <= b' ') | (b >= 0x7f))
}

/// Returns whether a value contains an invalid control character other than CR, LF and NUL.
pub(crate) fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().any(|&b| CLASSES[usize::from(b)] & CONTROL != 0)
}

/// Returns the position of the first byte below space, or DEL: the line ending, or an oddity. It
/// reads eight bytes at a time, because most lines are too short for wider steps to pay.
#[inline]
pub(crate) fn find_control(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let hits = controls(u64::from_le_bytes(*word));
        if hits != 0 {
            return Some(number * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let control = tail.iter().position(|b| b.is_ascii_control());
    control.map(|at| words.len() * 8 + at)
}

/// Returns the high bit of each control character. Borrows may set bits above the lowest set one,
/// which is right.
#[inline]
const fn controls(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let unlike_del = word ^ (ONES * 0x7f);
    let del = unlike_del.wrapping_sub(ONES) & !unlike_del;
    (below_space | del) & HIGH
}

/// Returns whether each byte is valid in a host with an optional port.
pub(crate) fn is_host(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| CLASSES[usize::from(b)] & HOST != 0)
}

/// Returns whether the byte is a space or horizontal tab (RFC 9110 5.6.3).
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns whether a lenient implementation takes the byte as a separator in a start line (RFC 9112
/// 3 and 4): blanks, and the control characters VT, FF and CR.
pub(crate) fn is_lenient_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

/// Trims bytes that match `blank` from both ends.
pub(crate) fn trim(bytes: &[u8], blank: impl Fn(u8) -> bool) -> &[u8] {
    let Some(first) = bytes.iter().position(|&b| !blank(b)) else { return &bytes[bytes.len()..] };
    let last = bytes.iter().rposition(|&b| !blank(b)).unwrap_or(first);
    &bytes[first..=last]
}

/// Trims a final LF or CR LF.
pub(crate) fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns the elements of a comma-separated list without surrounding blanks and folds; empty ones
/// too (RFC 9110 5.6.1).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(|element| trim(element, |b| b.is_ascii_whitespace()))
}

/// Returns whether a list contains the element, ignoring case.
pub(crate) fn list_has(value: &[u8], element: &[u8]) -> bool {
    list(value).any(|e| e.eq_ignore_ascii_case(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_grammar() {
        for byte in 0..=255u8 {
            assert_eq!(is_target(&[byte]), byte.is_ascii_graphic(), "{byte}");
            let control = byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | b'\n' | 0);
            assert_eq!(has_control(&[byte]), control, "{byte}");
        }
        assert!(is_token(b"M-SEARCH") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a:"));
        assert!(is_host(b"[::1]:80") && !is_host(b"a b") && !is_host(b"a/b"));
    }

    #[test]
    fn the_first_control_is_found() {
        for byte in 0..=255u8 {
            for at in 0..20 {
                let mut text = [b'a'; 24];
                (text[at], text[22]) = (byte, b'\n');
                let expected = if byte.is_ascii_control() { at } else { 22 };
                assert_eq!(find_control(&text), Some(expected), "{byte} at {at}");
                assert_eq!(find_control(&text[..22]), byte.is_ascii_control().then_some(at));
            }
        }
    }

    #[test]
    fn lists_lose_their_blanks() {
        let elements: Vec<_> = list(b" a ,, b\r\n c").collect();
        assert_eq!(elements, [&b"a"[..], b"", b"b\r\n c"]);
        assert!(list_has(b"gzip, Chunked", b"chunked") && !list_has(b"xchunked", b"chunked"));
    }

    #[test]
    fn trimming_takes_both_ends() {
        assert_eq!(trim(b" \ta b ", is_blank), b"a b");
        assert_eq!(trim(b"  ", is_blank), b"");
        assert_eq!(without_line_end(b"a\r\r\n"), b"a\r");
    }
}
