//! The parts of a target, as slices of it.

use memchr::{memchr, memchr2, memrchr};

/// A target's form (RFC 9112 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`.
    Origin,
    /// `http://host/path?query`, as proxies get it.
    Absolute,
    /// `*`, of OPTIONS.
    Asterisk,
    /// Anything else; `host:port` of CONNECT among it.
    Other,
}

/// The parts of a target; parts that are not there are `None`, the path may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The form.
    pub form: Form,
    /// Without the colon.
    pub scheme: Option<&'a [u8]>,
    /// User, host and port, without the slashes; [`split_authority`] parts them.
    pub authority: Option<&'a [u8]>,
    /// Up to the question mark or the number sign.
    pub path: &'a [u8],
    /// Without the question mark.
    pub query: Option<&'a [u8]>,
    /// Without the number sign; a client ought not to send it.
    pub fragment: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Host without user and port, and the port if one is named: of a target in absolute form.
    pub fn host(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        self.authority.map(|authority| {
            let (_, host, port) = split_authority(authority);
            (host, port)
        })
    }
}

/// Parts a target (RFC 3986 3). Nothing is decoded.
pub fn split(target: &[u8]) -> Target<'_> {
    let (scheme, authority, rest) = split_start(target);
    let form = match (authority, rest.first()) {
        (Some(_), _) => Form::Absolute,
        (None, Some(b'/')) => Form::Origin,
        _ if target == b"*" => Form::Asterisk,
        _ => Form::Other,
    };
    let (rest, fragment) = cut_at(rest, memchr(b'#', rest));
    let (path, query) = cut_at(rest, memchr(b'?', rest));
    Target { form, scheme, authority, path, query, fragment }
}

/// Parts an authority, or a Host header, into user with password, host (in brackets if it is an
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

/// Scheme, authority, and what follows them.
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
        assert_eq!(all.form, Form::Absolute);
        assert_eq!((all.scheme, all.authority), (Some(&b"http"[..]), Some(&b"u:p@a.example:8080"[..])));
        assert_eq!(all.host(), Some((&b"a.example"[..], Some(&b"8080"[..]))));
        assert_eq!((all.path, all.query, all.fragment), (&b"/b/c"[..], Some(&b"d=e?f"[..]), Some(&b"g"[..])));
        assert_eq!(split(b"/a://b?").form, Form::Origin);
        assert_eq!(split(b"/a?").query, Some(&b""[..]));
        assert_eq!(
            (split(b"*").form, split(b"a:443").form, split(b"").form),
            (Form::Asterisk, Form::Other, Form::Other)
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
