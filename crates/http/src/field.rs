//! Header fields that are told apart.

/// A header that the parser itself reads, or that readers of messages ask for most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the header of its name")]
pub enum Field {
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
    /// Any other.
    Other,
}

impl Field {
    /// Reads a name, in any case (RFC 9110 5.1).
    pub fn read(name: &[u8]) -> Self {
        // Length and first letter part the names from one another but for two: one comparison is left.
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
        if name.eq_ignore_ascii_case(known) { field } else { Self::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case() {
        assert_eq!(Field::read(b"hOsT"), Field::Host);
        assert_eq!(Field::read(b"Transfer-Encoding"), Field::TransferEncoding);
        assert_eq!(Field::read(b"Accept-Language"), Field::AcceptLanguage);
        assert_eq!(Field::read(b"X-Host"), Field::Other);
        assert_eq!(Field::read(b""), Field::Other);
    }
}
