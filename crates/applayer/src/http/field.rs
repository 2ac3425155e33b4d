//! Names of header fields.

/// A header that the parser itself reads, or that callers ask for most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the header of its name")]
pub enum FieldName {
    Accept,
    AcceptEncoding,
    AcceptLanguage,
    Authorization,
    Connection,
    ContentEncoding,
    ContentLength,
    ContentType,
    Cookie,
    Expect,
    Host,
    Location,
    Origin,
    Referer,
    Server,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    UserAgent,
    /// Any other name.
    Other,
}

impl FieldName {
    /// Parses a name, ignoring case (RFC 9110 5.1).
    pub fn read(name: &[u8]) -> Self {
        // Length and first letter distinguish all names but two: one comparison is left.
        let first = name.first().map_or(0, u8::to_ascii_lowercase);
        let (field, known): (Self, &[u8]) = match (name.len(), first) {
            (2, b't') => (Self::Te, b"te"),
            (4, b'h') => (Self::Host, b"host"),
            (6, b'a') => (Self::Accept, b"accept"),
            (6, b'c') => (Self::Cookie, b"cookie"),
            (6, b'e') => (Self::Expect, b"expect"),
            (6, b'o') => (Self::Origin, b"origin"),
            (6, b's') => (Self::Server, b"server"),
            (7, b'r') => (Self::Referer, b"referer"),
            (7, b't') => (Self::Trailer, b"trailer"),
            (7, b'u') => (Self::Upgrade, b"upgrade"),
            (8, b'l') => (Self::Location, b"location"),
            (10, b'c') => (Self::Connection, b"connection"),
            (10, b's') => (Self::SetCookie, b"set-cookie"),
            (10, b'u') => (Self::UserAgent, b"user-agent"),
            (12, b'c') => (Self::ContentType, b"content-type"),
            (13, b'a') => (Self::Authorization, b"authorization"),
            (14, b'c') => (Self::ContentLength, b"content-length"),
            (15, b'a') if matches!(name[7], b'E' | b'e') => (Self::AcceptEncoding, b"accept-encoding"),
            (15, b'a') => (Self::AcceptLanguage, b"accept-language"),
            (16, b'c') => (Self::ContentEncoding, b"content-encoding"),
            (17, b't') => (Self::TransferEncoding, b"transfer-encoding"),
            _ => return Self::Other,
        };
        if is_same(name, known) { field } else { Self::Other }
    }
}

/// Compares two names of the same length, ignoring case. `known` has lower-case letters and hyphens
/// only. Overlapping words replace single bytes.
fn is_same(name: &[u8], known: &[u8]) -> bool {
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>())
        && let (Some(known_first), Some(known_last)) = (known.first_chunk::<8>(), known.last_chunk::<8>())
    {
        let between = name.len() <= 16 || name[8..9].eq_ignore_ascii_case(&known[8..9]);
        return between && is_same_word(*first, *known_first) && is_same_word(*last, *known_last);
    }
    name.eq_ignore_ascii_case(known)
}

/// Compares words without case: bytes may differ in the case bit where `known` has a letter; bit
/// 0x40 distinguishes letters from hyphens.
fn is_same_word(name: [u8; 8], known: [u8; 8]) -> bool {
    const LETTERS: u64 = u64::MAX / 0xff * 0x40;
    let (name, known) = (u64::from_le_bytes(name), u64::from_le_bytes(known));
    (name ^ known) & !((known & LETTERS) >> 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_any_case_only() {
        for known in [&b"te"[..], b"host", b"location", b"user-agent", b"transfer-encoding"] {
            assert!(is_same(known, known) && is_same(&known.to_ascii_uppercase(), known));
            for at in 0..known.len() {
                for byte in 0..=255u8 {
                    let mut name = known.to_vec();
                    name[at] = byte;
                    assert_eq!(is_same(&name, known), name.eq_ignore_ascii_case(known));
                }
            }
        }
    }

    #[test]
    fn names_are_read_in_any_case() {
        assert_eq!(FieldName::read(b"hOsT"), FieldName::Host);
        assert_eq!(FieldName::read(b"Transfer-Encoding"), FieldName::TransferEncoding);
        assert_eq!(FieldName::read(b"Accept-Language"), FieldName::AcceptLanguage);
        assert_eq!(FieldName::read(b"X-Host"), FieldName::Other);
        assert_eq!(FieldName::read(b""), FieldName::Other);
    }
}
