//! What is done to a buffer before it is looked at.

/// A step from one buffer to another. Steps follow the buffer's name and are carried out in order.
/// None but [`Transform::DotPrefix`] (by one byte) and the hashes (to 32 bytes at most) gives more
/// bytes than it was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transform {
    /// `dotprefix`: a dot before it.
    DotPrefix,
    /// `strip_whitespace`: without white space (C's `isspace`).
    StripWhitespace,
    /// `compress_whitespace`: each run of white space one space.
    CompressWhitespace,
    /// `to_lowercase`: ASCII letters in lower case.
    ToLowercase,
    /// `to_uppercase`: ASCII letters in upper case.
    ToUppercase,
    /// `to_md5`: the 16 bytes of the hash.
    ToMd5,
    /// `to_sha1`: the 20 bytes of the hash.
    ToSha1,
    /// `to_sha256`: the 32 bytes of the hash.
    ToSha256,
    /// `url_decode`: `+` as a space, `%HH` as a byte.
    UrlDecode,
    /// `header_lowercase`: the part of each line before its colon in lower case.
    HeaderLowercase,
    /// `strip_pseudo_headers`: without the lines that begin with a colon.
    StripPseudoHeaders,
    /// `xor`: the bytes from `offset` on combined with the key, over and over; those before as they
    /// are.
    Xor {
        /// Where to begin.
        offset: u16,
        /// At least one byte.
        key: Vec<u8>,
    },
    /// `pcrexform`: what the first group of the expression matches; empty if it does not match.
    Pcre {
        /// The expression, as in the rule.
        pattern: String,
    },
    /// `from_base64`: decoded.
    FromBase64 {
        /// How many bytes to decode; all if the rule does not say.
        bytes: Option<u32>,
        /// Where to begin.
        offset: u16,
        /// What to do with what is not of the alphabet.
        mode: Base64Mode,
    },
}

/// How Base64 is decoded where something else is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    /// Up to there.
    #[default]
    Rfc4648,
    /// Over it.
    Rfc2045,
    /// Not at all.
    Strict,
}
