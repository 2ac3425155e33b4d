//! Keywords that transform a buffer.

use crate::RuleError;
use crate::pcre::PCRE_BYTES_MAX;
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};
use crate::transform::{Base64Mode, BufferTransform};

/// Maximum bytes of a key.
const KEY_BYTES_MAX: usize = 255;

/// Defines keywords without arguments.
macro_rules! plain {
    ($($keyword:ident $transform:ident;)*) => {$(
        pub(crate) fn $keyword(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
            draft.transform(given, BufferTransform::$transform)
        }
    )*};
}

plain! {
    dotprefix DotPrefix;
    strip_whitespace StripWhitespace;
    compress_whitespace CompressWhitespace;
    to_lowercase ToLowercase;
    to_uppercase ToUppercase;
    to_md5 ToMd5;
    to_sha1 ToSha1;
    to_sha256 ToSha256;
    url_decode UrlDecode;
    header_lowercase HeaderLowercase;
    strip_pseudo_headers StripPseudoHeaders;
}

pub(crate) fn xor(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let mut offset = 0;
    let mut key = None;
    for option in given.unquoted()?.split(',') {
        let option = super::unquote(option)?;
        let words: Vec<_> = option.words().collect();
        match &words[..] {
            [word, number] if word.text == "offset" => offset = number.number(0..=u16::MAX)?,
            [word, ..] if word.text == "extract" => {
                return Err(option.error(RuleError::Unsupported { what: "a key that the buffer gives" }));
            }
            [digits] if key.is_none() => key = Some(hexadecimal(*digits)?),
            _ => return Err(option.wrong("a key of hexadecimal digits, or `offset N`")),
        }
    }
    let key = key.ok_or_else(|| given.value.wrong("a key of hexadecimal digits"))?;
    draft.transform(given, BufferTransform::Xor { offset, key })
}

fn hexadecimal(piece: Piece<'_>) -> ParseResult<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        piece.text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && (2..=2 * KEY_BYTES_MAX).contains(&digits.len()) => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(piece.wrong(format!("1 to {KEY_BYTES_MAX} bytes of two hexadecimal digits each"))),
    }
}

pub(crate) fn pcrexform(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let pattern = given.unquoted()?;
    if pattern.is_empty() || pattern.text.len() > PCRE_BYTES_MAX {
        return Err(pattern.wrong(format!("an expression of 1 to {PCRE_BYTES_MAX} bytes")));
    }
    draft.transform(given, BufferTransform::Pcre { pattern: pattern.text.to_owned() })
}

pub(crate) fn from_base64(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (mut bytes, mut offset, mut mode) = (None, 0, Base64Mode::default());
    let modes =
        [("rfc4648", Base64Mode::Rfc4648), ("rfc2045", Base64Mode::Rfc2045), ("strict", Base64Mode::Strict)];
    for option in given.value.split(',').filter(|option| !option.is_empty()) {
        let words: Vec<_> = option.words().collect();
        match &words[..] {
            [word, value] if word.text == "bytes" => bytes = Some(value.number(1..=65_536)?),
            [word, value] if word.text == "offset" => offset = value.number(0..=u16::MAX)?,
            [word, value] if word.text == "mode" || word.text == "mode:" => mode = value.one_of(&modes)?,
            _ => return Err(option.wrong("`bytes N`, `offset N` or `mode NAME`")),
        }
    }
    draft.transform(given, BufferTransform::FromBase64 { bytes, offset, mode })
}
