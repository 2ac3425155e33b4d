//! A chunk's size (RFC 9112 7.1).

use memchr::memchr;

use crate::token::{is_lenient_blank, trim};
use crate::{Anomalies, Anomaly};

/// The line before a chunk's data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChunkLine<'a> {
    /// Bytes of the chunk's data; 0 is the last chunk.
    pub(crate) size: u64,
    /// From the semicolon on; empty if there is none.
    pub(crate) extension: &'a [u8],
    pub(crate) found: Anomalies,
}

/// The line begins with no number below 2^64.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunk's size is not a hexadecimal number below 2^64")]
pub(crate) struct InvalidChunkSize;

/// Reads the line without its end. A prefix 0x, a sign + and blanks around the number are tolerated.
pub(crate) fn chunk_line(text: &[u8]) -> Result<ChunkLine<'_>, InvalidChunkSize> {
    let (number, extension) = text.split_at(memchr(b';', text).unwrap_or(text.len()));
    let bare = trim(number, is_lenient_blank);
    let bare = bare.strip_prefix(b"+").unwrap_or(bare);
    let digits = bare.strip_prefix(b"0x").or_else(|| bare.strip_prefix(b"0X")).unwrap_or(bare);
    let mut found = Anomalies::NONE;
    found.add_if(digits.len() != number.len(), Anomaly::DecoratedChunkSize);
    Ok(ChunkLine { size: hexadecimal(digits)?, extension, found })
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
        let decorated = Anomalies::NONE.with(Anomaly::DecoratedChunkSize);
        assert_eq!(plain("1aF"), Ok((0x1af, &b""[..], Anomalies::NONE)));
        assert_eq!(plain("0;a=b;c"), Ok((0, &b";a=b;c"[..], Anomalies::NONE)));
        assert_eq!(plain("00000000000000000000a"), Ok((10, &b""[..], Anomalies::NONE)));
        assert_eq!(plain("ffffffffffffffff"), Ok((u64::MAX, &b""[..], Anomalies::NONE)));
        assert_eq!(plain("0x5"), Ok((5, &b""[..], decorated)));
        assert_eq!(plain("+5"), Ok((5, &b""[..], decorated)));
        assert_eq!(plain(" 5 ;x"), Ok((5, &b";x"[..], decorated)));
        for text in ["", ";", "-1", "5 6", "g", "0x", "10000000000000000"] {
            assert_eq!(plain(text), Err(InvalidChunkSize), "{text}");
        }
    }
}
