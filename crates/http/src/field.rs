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
        // Lengths part nearly all names from one another: one comparison is left, or two.
        let candidates: &[(Self, &[u8])] = match name.len() {
            2 => &[(Self::Te, b"te")],
            4 => &[(Self::Host, b"host")],
            6 => &[
                (Self::Accept, b"accept"),
                (Self::Cookie, b"cookie"),
                (Self::Expect, b"expect"),
                (Self::Origin, b"origin"),
                (Self::Server, b"server"),
            ],
            7 => &[(Self::Referer, b"referer"), (Self::Upgrade, b"upgrade"), (Self::Trailer, b"trailer")],
            8 => &[(Self::Location, b"location")],
            10 => &[
                (Self::UserAgent, b"user-agent"),
                (Self::Connection, b"connection"),
                (Self::SetCookie, b"set-cookie"),
            ],
            12 => &[(Self::ContentType, b"content-type")],
            13 => &[(Self::Authorization, b"authorization")],
            14 => &[(Self::ContentLength, b"content-length")],
            15 => &[(Self::AcceptEncoding, b"accept-encoding"), (Self::AcceptLanguage, b"accept-language")],
            16 => &[(Self::ContentEncoding, b"content-encoding")],
            17 => &[(Self::TransferEncoding, b"transfer-encoding")],
            _ => return Self::Other,
        };
        candidates
            .iter()
            .find(|(_, known)| name.eq_ignore_ascii_case(known))
            .map_or(Self::Other, |(field, _)| *field)
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
