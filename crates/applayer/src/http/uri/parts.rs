//! The parts of a request target, as slices of it.

use memchr::{memchr, memchr2, memrchr};

/// The form of a request target (RFC 9112 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`.
    Origin,
    /// `http://host/path?query`, as sent to proxies.
    Absolute,
    /// `*`, for OPTIONS.
    Asterisk,
    /// Anything else, including `host:port` of CONNECT.
    Other,
}

/// The parts of a request target. Missing parts are `None`; the path may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// The form.
    pub form: TargetForm,
    /// The scheme, without the colon.
    pub scheme: Option<&'a [u8]>,
    /// User, host and port, without the slashes; [`split_authority`] splits them.
    pub authority: Option<&'a [u8]>,
    /// The path, up to the question mark or number sign.
    pub path: &'a [u8],
    /// The query, without the question mark.
    pub query: Option<&'a [u8]>,
    /// The fragment, without the number sign; clients should not send it.
    pub fragment: Option<&'a [u8]>,
}

impl<'a> RequestTarget<'a> {
    /// Returns host and port of an absolute form.
    pub fn host(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        self.authority.map(|authority| {
            let (_, host, port) = split_authority(authority);
            (host, port)
        })
    }
}

/// Splits a target (RFC 3986 3). Nothing is decoded.
pub fn split(target: &[u8]) -> RequestTarget<'_> {
    let (scheme, authority, rest) = split_start(target);
    let form = match (authority, rest.first()) {
        (Some(_), _) => TargetForm::Absolute,
        (None, Some(b'/')) => TargetForm::Origin,
        _ if target == b"*" => TargetForm::Asterisk,
        _ => TargetForm::Other,
    };
    let (rest, fragment) = cut_at(rest, memchr(b'#', rest));
    let (path, query) = cut_at(rest, memchr(b'?', rest));
    RequestTarget { form, scheme, authority, path, query, fragment }
}

/// Splits an authority, or a Host header, into user with password, host (in brackets if it is an
/// IPv6 address) and port (RFC 3986 3.2).
pub fn split_authority(authority: &[u8]) -> (Option<&[u8]>, &[u8], Option<&[u8]>) {
    let (user, place) = match memrchr(b'@', authority) {
        Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
        None => (None, authority),
    };
    let bracket = memchr(b']', place).unwrap_or(0);
    match memrchr(b':', &place[bracket..]) {
        Some(colon) => (user, &place[..bracket + colon], Some(&place[bracket + colon + 1..])),
        None => (user, place, None),
    }
}

type Start<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, &'a [u8]);

/// Splits a target into scheme, authority, and the rest.
fn split_start(target: &[u8]) -> Start<'_> {
    // Most targets begin with a slash: only others can have a scheme.
    if target.first().is_none_or(|b| !b.is_ascii_alphabetic()) {
        return (None, None, target);
    }
    let scheme_len = target.iter().position(|&b| !is_scheme(b)).unwrap_or(target.len());
    let Some(rest) = target[scheme_len..].strip_prefix(b"://") else { return (None, None, target) };
    let end = memchr2(b'/', b'?', rest).into_iter().chain(memchr(b'#', rest)).min().unwrap_or(rest.len());
    (Some(&target[..scheme_len]), Some(&rest[..end]), &rest[end..])
}

fn is_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

fn cut_at(text: &[u8], at: Option<usize>) -> (&[u8], Option<&[u8]>) {
    match at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_parts() {
        let all = split(b"http://u:p@a.example:8080/b/c?d=e?f#g");
        assert_eq!(all.form, TargetForm::Absolute);
        assert_eq!((all.scheme, all.authority), (Some(&b"http"[..]), Some(&b"u:p@a.example:8080"[..])));
        assert_eq!(all.host(), Some((&b"a.example"[..], Some(&b"8080"[..]))));
        assert_eq!((all.path, all.query, all.fragment), (&b"/b/c"[..], Some(&b"d=e?f"[..]), Some(&b"g"[..])));
        assert_eq!(split(b"/a://b?").form, TargetForm::Origin);
        assert_eq!(split(b"/a?").query, Some(&b""[..]));
        assert_eq!(
            (split(b"*").form, split(b"a:443").form, split(b"").form),
            (TargetForm::Asterisk, TargetForm::Other, TargetForm::Other)
        );
        let bare = split(b"http://a?b");
        assert_eq!((bare.authority, bare.path, bare.query), (Some(&b"a"[..]), &b""[..], Some(&b"b"[..])));
    }

    #[test]
    fn authorities_have_parts() {
        assert_eq!(split_authority(b"[::1]:80"), (None, &b"[::1]"[..], Some(&b"80"[..])));
        assert_eq!(split_authority(b"[::1]"), (None, &b"[::1]"[..], None));
        assert_eq!(split_authority(b"a@b@c:"), (Some(&b"a@b"[..]), &b"c"[..], Some(&b""[..])));
        assert_eq!(split_authority(b""), (None, &b""[..], None));
    }
}
