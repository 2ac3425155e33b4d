//! Request methods.

/// The kinds of request methods that parsing distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET (RFC 9110 9.3.1).
    Get,
    /// HEAD (RFC 9110 9.3.2): its response has no body.
    Head,
    /// POST (RFC 9110 9.3.3).
    Post,
    /// PUT (RFC 9110 9.3.4).
    Put,
    /// DELETE (RFC 9110 9.3.5).
    Delete,
    /// CONNECT (RFC 9110 9.3.6): a tunnel follows a 2xx response.
    Connect,
    /// OPTIONS (RFC 9110 9.3.7).
    Options,
    /// TRACE (RFC 9110 9.3.8).
    Trace,
    /// PATCH (RFC 5789).
    Patch,
    /// Another method of the IANA registry (RFC 9110 16.1.1), or one in wide use.
    Registered,
    /// Any other method.
    Unknown,
}

impl Method {
    /// Parses a method; names are case-sensitive (RFC 9110 9.1).
    pub fn read(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ if REGISTERED.iter().any(|known| known.as_bytes() == name) => Self::Registered,
            _ => Self::Unknown,
        }
    }
}

/// WebDAV and related methods, versioning, calendars, links, queries; and unregistered ones of
/// UPnP, caches and Windows services.
const REGISTERED: [&str; 41] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "M-SEARCH",
    "NOTIFY",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PURGE",
    "BITS_POST",
    "CCM_POST",
    "RPC_CONNECT",
    "RPC_IN_DATA",
    "RPC_OUT_DATA",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(Method::read(b"GET"), Method::Get);
        assert_eq!(Method::read(b"get"), Method::Unknown);
        assert_eq!(Method::read(b"PROPFIND"), Method::Registered);
        assert_eq!(Method::read(b""), Method::Unknown);
    }
}
