//! Buffer transforms, compiled.

use crate::{Base64Mode, BufferTransform};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use crate::inspect::base64;
use crate::inspect::expression::Extraction;
use crate::inspect::unsupported::UnsupportedReason;

/// A sequence of compiled transforms.
#[derive(Clone, Debug, Default)]
pub struct Transforms(Vec<Change>);

/// A transform within one buffer.
#[derive(Clone, Debug)]
enum Change {
    DotPrefix,
    StripWhitespace,
    CompressWhitespace,
    ToLowercase,
    ToUppercase,
    ToMd5,
    ToSha1,
    ToSha256,
    UrlDecode,
    HeaderLowercase,
    StripPseudoHeaders,
    Xor { offset: usize, key: Vec<u8> },
    Extract(Extraction),
    FromBase64 { offset: usize, bytes: usize, mode: Base64Mode },
}

impl Transforms {
    /// Compiles transforms. An error names its keyword.
    pub(crate) fn new(transforms: &[BufferTransform]) -> Result<Self, (&'static str, UnsupportedReason)> {
        let change = |one: &BufferTransform| Change::new(one).map_err(|reason| (one.keyword(), reason));
        transforms.iter().map(change).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the contents of `out` by the transformed bytes.
    pub fn apply(&self, bytes: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(bytes);
        self.0.iter().for_each(|change| change.apply(out));
    }
}

impl Change {
    fn new(transform: &BufferTransform) -> Result<Self, UnsupportedReason> {
        Ok(match transform {
            BufferTransform::DotPrefix => Self::DotPrefix,
            BufferTransform::StripWhitespace => Self::StripWhitespace,
            BufferTransform::CompressWhitespace => Self::CompressWhitespace,
            BufferTransform::ToLowercase => Self::ToLowercase,
            BufferTransform::ToUppercase => Self::ToUppercase,
            BufferTransform::ToMd5 => Self::ToMd5,
            BufferTransform::ToSha1 => Self::ToSha1,
            BufferTransform::ToSha256 => Self::ToSha256,
            BufferTransform::UrlDecode => Self::UrlDecode,
            BufferTransform::HeaderLowercase => Self::HeaderLowercase,
            BufferTransform::StripPseudoHeaders => Self::StripPseudoHeaders,
            BufferTransform::Xor { offset, key } => {
                Self::Xor { offset: usize::from(*offset), key: key.clone() }
            }
            BufferTransform::Pcre { pattern } => Self::Extract(Extraction::new(pattern)?),
            BufferTransform::FromBase64 { bytes, offset, mode } => Self::FromBase64 {
                offset: usize::from(*offset),
                bytes: bytes.map_or(usize::MAX, |bytes| bytes as usize),
                mode: *mode,
            },
        })
    }

    fn apply(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::DotPrefix => buffer.insert(0, b'.'),
            Self::StripWhitespace => buffer.retain(|byte| !is_space(*byte)),
            Self::CompressWhitespace => {
                let mut in_space = false;
                buffer.retain_mut(|byte| {
                    let follows = std::mem::replace(&mut in_space, is_space(*byte));
                    if in_space {
                        *byte = b' ';
                    }
                    !(follows && in_space)
                });
            }
            Self::ToLowercase => buffer.make_ascii_lowercase(),
            Self::ToUppercase => buffer.make_ascii_uppercase(),
            Self::ToMd5 => hash::<Md5>(buffer),
            Self::ToSha1 => hash::<Sha1>(buffer),
            Self::ToSha256 => hash::<Sha256>(buffer),
            Self::UrlDecode => url_decode(buffer),
            Self::HeaderLowercase => {
                for line in buffer.split_mut(|byte| *byte == b'\n') {
                    if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                        line[..colon].make_ascii_lowercase();
                    }
                }
            }
            Self::StripPseudoHeaders => {
                let (mut begins_line, mut is_pseudo) = (true, false);
                buffer.retain(|byte| {
                    if begins_line {
                        is_pseudo = *byte == b':';
                    }
                    begins_line = *byte == b'\n';
                    !is_pseudo
                });
            }
            Self::Xor { offset, key } => {
                let changed = buffer.iter_mut().skip(*offset);
                changed.zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
            }
            Self::Extract(expression) => match expression.find(buffer) {
                Some(span) => cut(buffer, span.start, span.len()),
                None => buffer.clear(),
            },
            Self::FromBase64 { offset, bytes, mode } => {
                cut(buffer, *offset, *bytes);
                base64::decode(buffer, *mode);
            }
        }
    }
}

/// Keeps up to `count` bytes from an offset on.
fn cut(buffer: &mut Vec<u8>, from: usize, count: usize) {
    buffer.truncate(from.saturating_add(count));
    buffer.drain(..from.min(buffer.len()));
}

/// Checks for C's `isspace`.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn hash<D: Digest>(buffer: &mut Vec<u8>) {
    let hash = D::digest(&buffer[..]);
    buffer.clear();
    buffer.extend_from_slice(&hash);
}

/// Decodes `+` to a space, and `%` with two hexadecimal digits to a byte; any other `%` is kept.
fn url_decode(buffer: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (mut read, mut written) = (0, 0);
    while read < buffer.len() {
        let escaped = match buffer[read..] {
            [b'%', high, low, ..] => digit(high).zip(digit(low)),
            _ => None,
        };
        let (byte, length) = match (escaped, buffer[read]) {
            // Two digits of four bits.
            (Some((high, low)), _) => ((high << 4 | low) as u8, 3),
            (None, b'+') => (b' ', 1),
            (None, byte) => (byte, 1),
        };
        buffer[written] = byte;
        written += 1;
        read += length;
    }
    buffer.truncate(written);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(transforms: &[BufferTransform], bytes: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Transforms::new(transforms).unwrap().apply(bytes, &mut out);
        out
    }

    #[test]
    fn transforms_change_their_input() {
        use BufferTransform::*;
        let extract = |pattern: &str| Pcre { pattern: pattern.to_owned() };
        let base64 = |bytes, offset| FromBase64 { bytes, offset, mode: Base64Mode::Rfc4648 };
        for (transform, from, to) in [
            (DotPrefix, "a.b", ".a.b"),
            (DotPrefix, "", "."),
            (StripWhitespace, " a\t\r\n\x0b\x0cb ", "ab"),
            (CompressWhitespace, " a \r\n b\tc\t\t", " a b c "),
            (ToLowercase, "aBÖ", "abÖ"),
            (ToUppercase, "aBö", "ABö"),
            (UrlDecode, "a+b%41%6f%2G%%31%4", "a bAo%2G%1%4"),
            (HeaderLowercase, "Host: A\r\nX-Y:B:C\r\nNo\r\n:Z: A", "host: A\r\nx-y:B:C\r\nNo\r\n:Z: A"),
            (StripPseudoHeaders, ":method: GET\r\nHost: :a\r\n:b", "Host: :a\r\n"),
            (Xor { offset: 1, key: b"\x20\x00".to_vec() }, "ABCDE", "AbCdE"),
            (Xor { offset: 9, key: b"\x20".to_vec() }, "AB", "AB"),
            (extract("a(b+)"), "xabbc", "bb"),
            (extract("a(b+)"), "xac", ""),
            (extract("a(b)?"), "xac", ""),
            (base64(None, 0), "dGVzdA==", "test"),
            (base64(Some(4), 1), "!dGVzdA==", "tes"),
            (base64(None, 9), "dGVzdA==", ""),
        ] {
            let result = changed(std::slice::from_ref(&transform), from.as_bytes());
            assert_eq!(result, to.as_bytes(), "{transform:?} of {from}");
        }
    }

    /// RFC 1321, A.5; FIPS 180 examples.
    #[test]
    fn hashes_are_those_of_their_standards() {
        for (transform, expected) in [
            (BufferTransform::ToMd5, "900150983cd24fb0d6963f7d28e17f72"),
            (BufferTransform::ToSha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (BufferTransform::ToSha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            let hash = changed(&[transform], b"abc");
            assert_eq!(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        }
    }

    #[test]
    fn transforms_follow_one_another() {
        let both = [BufferTransform::StripWhitespace, BufferTransform::DotPrefix];
        assert_eq!(changed(&both, b"a b"), b".ab");
        assert_eq!(changed(&[], b"a b"), b"a b");
    }

    #[test]
    fn an_expression_must_have_a_group() {
        let transform = BufferTransform::Pcre { pattern: "a(?:b)".to_owned() };
        assert_eq!(Transforms::new(&[transform]).unwrap_err(), ("pcrexform", UnsupportedReason::NoGroup));
    }
}
