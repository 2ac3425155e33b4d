//! Bodies as lenient clients read them: the README's section about codings.

use std::io::Read;

/// Maximum bytes of a size line, of letters between a header's name and its coding, and of bytes
/// before a late status line.
const SIZE_LINE: usize = 64;
const LETTERS: usize = 32;
const BEFORE: usize = 1024;

/// Returns the body in another reading, and whether it could be decoded to its end.
pub fn reading(head: &[u8], body: &[u8], is_decoded: bool) -> Option<(Vec<u8>, bool)> {
    let letters: String = head
        .iter()
        .filter(|byte| byte.is_ascii_alphabetic())
        .map(|byte| byte.to_ascii_lowercase() as char)
        .collect();
    let names = |header: &str, coding: &str| {
        letters.match_indices(header).any(|(at, _)| {
            let value = &letters[at + header.len()..];
            value[..value.len().min(LETTERS)].contains(coding)
        })
    };
    let mut data = Vec::new();
    if names("transferencoding", "chunked") {
        let mut rest = body;
        while let Some((size, behind)) = size_line(rest).filter(|(size, _)| *size > 0) {
            data.extend(&behind[..size.min(behind.len())]);
            rest = &behind[size.min(behind.len())..];
        }
    }
    let is_unchunked = !data.is_empty();
    let bytes = if is_unchunked { data } else { body.to_vec() };
    let is_text = bytes.iter().take(4).all(|byte| b"\t\n\r".contains(byte) || (b' '..=b'~').contains(byte));
    if !is_text && (is_unchunked || !is_decoded) {
        let mut out = Vec::new();
        let result = match () {
            () if names("contentencoding", "gzip") => {
                Some(flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut out))
            }
            () if names("contentencoding", "deflate") => {
                Some(flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut out))
            }
            () => None,
        };
        if let Some(result) = result {
            return Some((out, result.is_ok()));
        }
    }
    is_unchunked.then_some((bytes, true))
}

/// Returns the size of a chunk, whatever surrounds it, and the bytes after its line.
fn size_line(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let line = &bytes[start..];
    let digits: String = line.iter().map(|byte| *byte as char).take_while(char::is_ascii_hexdigit).collect();
    let end = line.iter().take(SIZE_LINE).position(|byte| *byte == b'\n')?;
    Some((usize::from_str_radix(&digits, 16).ok()?, &line[end + 1..]))
}

/// Returns the bytes after the first line of blanks that is not the very first line.
pub fn behind_blank_line(lines: &[u8]) -> Option<&[u8]> {
    let mut at = lines.iter().position(|byte| *byte == b'\n')? + 1;
    loop {
        let len = lines[at..].iter().position(|byte| *byte == b'\n')? + 1;
        if lines[at..at + len].iter().all(|byte| b" \t\r\n".contains(byte)) {
            return Some(&lines[at + len..]);
        }
        at += len;
    }
}

/// Returns the head and the body of a response that begins late.
pub fn late_response(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let near = &bytes[..bytes.len().min(BEFORE)];
    let start = near.windows(7).position(|part| part == b"HTTP/1.")?;
    let body = behind_blank_line(&bytes[start..])?;
    Some((&bytes[start..bytes.len() - body.len()], body))
}
