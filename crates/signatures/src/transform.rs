//! Buffer transforms.

/// A buffer transform. Transforms follow the buffer's name and are applied in order. Only
/// [`BufferTransform::DotPrefix`] (by one byte) and the hashes (to 32 bytes at most) can lengthen
/// their input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferTransform {
    /// `dotprefix`: prepends a dot.
    DotPrefix,
    /// `strip_whitespace`: removes white space (C's `isspace`).
    StripWhitespace,
    /// `compress_whitespace`: replaces each run of white space by one space.
    CompressWhitespace,
    /// `to_lowercase`: ASCII letters only.
    ToLowercase,
    /// `to_uppercase`: ASCII letters only.
    ToUppercase,
    /// `to_md5`: the 16 bytes of the hash.
    ToMd5,
    /// `to_sha1`: the 20 bytes of the hash.
    ToSha1,
    /// `to_sha256`: the 32 bytes of the hash.
    ToSha256,
    /// `url_decode`: decodes `+` to a space and `%HH` to a byte.
    UrlDecode,
    /// `header_lowercase`: the part of each line before its colon in lower case.
    HeaderLowercase,
    /// `strip_pseudo_headers`: removes lines that begin with a colon.
    StripPseudoHeaders,
    /// `xor`: combines the bytes from `offset` on with the repeated key.
    Xor {
        /// First byte.
        offset: u16,
        /// At least one byte.
        key: Vec<u8>,
    },
    /// `pcrexform`: the match of the expression's first group; empty if it does not match.
    Pcre {
        /// The expression, as in the rule.
        pattern: String,
    },
    /// `from_base64`: Base64 decoding.
    FromBase64 {
        /// Bytes to decode; all by default.
        bytes: Option<u32>,
        /// First byte.
        offset: u16,
        /// Treatment of bytes outside the alphabet.
        mode: Base64Mode,
    },
}

/// Treatment of bytes outside the Base64 alphabet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    /// Decoding ends there.
    #[default]
    Rfc4648,
    /// They are skipped.
    Rfc2045,
    /// Nothing is decoded.
    Strict,
}
