//! Chunk sizes (RFC 9112 7.1).

use memchr::memchr;

use crate::http::token::{is_blank, is_lenient_blank, token_prefix_len, trim};
use crate::http::{HttpAnomalies, HttpAnomaly};

/// A chunk-size line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChunkLine<'a> {
    /// Bytes of chunk data; 0 for the last chunk.
    pub(crate) size: u64,
    /// The extension from the semicolon on; empty if absent.
    pub(crate) extension: &'a [u8],
    pub(crate) found: HttpAnomalies,
}

/// The line does not begin with a number below 2^64.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunk's size is not a hexadecimal number below 2^64")]
pub(crate) struct InvalidChunkSize;

/// Parses the line without its line ending. Accepts a prefix 0x, a sign +, blanks around the number
/// and trailing characters.
pub(crate) fn chunk_line(text: &[u8]) -> Result<ChunkLine<'_>, InvalidChunkSize> {
    let (number, extension) = text.split_at(memchr(b';', text).unwrap_or(text.len()));
    let bare = trim(number, is_lenient_blank);
    let bare = bare.strip_prefix(b"+").unwrap_or(bare);
    let digits = bare.strip_prefix(b"0x").or_else(|| bare.strip_prefix(b"0X")).unwrap_or(bare);
    let len = digits.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
    let (digits, behind) = digits.split_at(len);
    if behind.first().is_some_and(u8::is_ascii_alphanumeric) {
        return Err(InvalidChunkSize);
    }
    let mut found = HttpAnomalies::NONE;
    found.add_if(digits.len() != number.len(), HttpAnomaly::DecoratedChunkSize);
    found.add_if(!is_extension(extension), HttpAnomaly::InvalidChunkExtension);
    Ok(ChunkLine { size: hexadecimal(digits)?, extension, found })
}

/// Returns whether the extension is a list of names, each after a semicolon, optionally with a
/// token or quoted string as value.
fn is_extension(mut rest: &[u8]) -> bool {
    while let Some((b';', behind)) = trim_start(rest).split_first() {
        let name = trim_start(behind);
        let len = token_prefix_len(name);
        if len == 0 {
            return false;
        }
        rest = &name[len..];
        let Some((b'=', behind)) = trim_start(rest).split_first() else { continue };
        let value = trim_start(behind);
        let len = if value.first() == Some(&b'"') { quoted_len(value) } else { token_prefix_len(value) };
        if len == 0 {
            return false;
        }
        rest = &value[len..];
    }
    trim_start(rest).is_empty()
}

/// Returns the length of a quoted string with its quotes (RFC 9110 5.6.4); 0 if it is not
/// terminated.
fn quoted_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    0
}

fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    &text[blanks..]
}

fn hexadecimal(digits: &[u8]) -> Result<u64, InvalidChunkSize> {
    if digits.is_empty() {
        return Err(InvalidChunkSize);
    }
    digits.iter().try_fold(0u64, |size, &byte| {
        let digit = char::from(byte).to_digit(16).ok_or(InvalidChunkSize)?;
        size.checked_mul(16).map(|size| size | u64::from(digit)).ok_or(InvalidChunkSize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_hexadecimal() {
        let plain = |text: &'static str| chunk_line(text.as_bytes()).map(|c| (c.size, c.extension, c.found));
        let decorated = HttpAnomalies::NONE.with(HttpAnomaly::DecoratedChunkSize);
        assert_eq!(plain("1aF"), Ok((0x1af, &b""[..], HttpAnomalies::NONE)));
        assert_eq!(plain("0;a=b;c"), Ok((0, &b";a=b;c"[..], HttpAnomalies::NONE)));
        assert_eq!(plain("00000000000000000000a"), Ok((10, &b""[..], HttpAnomalies::NONE)));
        assert_eq!(plain("ffffffffffffffff"), Ok((u64::MAX, &b""[..], HttpAnomalies::NONE)));
        assert_eq!(plain("0x5"), Ok((5, &b""[..], decorated)));
        assert_eq!(plain("+5"), Ok((5, &b""[..], decorated)));
        assert_eq!(plain(" 5 ;x"), Ok((5, &b";x"[..], decorated)));
        assert_eq!(plain("5 6"), Ok((5, &b""[..], decorated)));
        assert_eq!(plain("5,x"), Ok((5, &b""[..], decorated)));
        for text in ["", ";", "-1", "g", "5x", "an evil word", "0x", "10000000000000000"] {
            assert_eq!(plain(text), Err(InvalidChunkSize), "{text}");
        }
    }

    #[test]
    fn extensions_are_names_and_values() {
        for text in ["", ";a", ";a=b", " ; a = \"b\\\"c\" ;d", ";a=\"\"", ";a;b "] {
            assert!(is_extension(text.as_bytes()), "{text}");
        }
        for text in [";", ";;a", ";a=", ";a=\"b", ";a=\"b\\\"", ";a=\"b\"c", ";a b", ";=b"] {
            assert!(!is_extension(text.as_bytes()), "{text}");
        }
    }
}
