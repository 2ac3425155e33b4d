//! Bodies that begin like a request: found however they are cut, by one byte of state.

/// Nothing is looked for, or it cannot be found any more.
pub(crate) const NONE: u8 = 0;
/// Before the first byte.
pub(crate) const FIRST: u8 = 1;

/// Most letters of a method.
const METHOD_MAX: u8 = 20;
/// Behind the method and its space.
const BEFORE_TARGET: u8 = FIRST + METHOD_MAX + 1;
/// In the target.
const TARGET: u8 = BEFORE_TARGET + 1;
/// Behind the target's space; each further byte of the version that matches is one more.
const VERSION: u8 = TARGET + 1;
const VERSION_TEXT: &[u8] = b"HTTP/1.";

/// Looks at the next bytes of a body: how many of them there are up to where it is like a request's
/// line (RFC 9112 3) without doubt, method, target and `HTTP/1.`; empty lines may stand before.
/// Looks no further than it may become one.
#[inline]
pub(crate) fn find(state: &mut u8, bytes: &[u8]) -> Option<usize> {
    if *state == NONE {
        return None;
    }
    for (at, &byte) in bytes.iter().enumerate() {
        *state = next(*state, byte);
        if *state == NONE {
            return None;
        }
        if usize::from(*state) == usize::from(VERSION) + VERSION_TEXT.len() {
            *state = NONE;
            return Some(at + 1);
        }
    }
    None
}

/// The state behind a byte. Any state is possible, one of elsewhere too.
fn next(state: u8, byte: u8) -> u8 {
    match state {
        FIRST if matches!(byte, b'\r' | b'\n') => FIRST,
        FIRST..BEFORE_TARGET if byte.is_ascii_uppercase() && state < FIRST + METHOD_MAX => state + 1,
        FIRST..BEFORE_TARGET if byte == b' ' && state > FIRST => BEFORE_TARGET,
        BEFORE_TARGET | TARGET if byte.is_ascii_graphic() => TARGET,
        TARGET if byte == b' ' => VERSION,
        VERSION.. if VERSION_TEXT.get(usize::from(state - VERSION)) == Some(&byte) => state + 1,
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_request_is_found_however_it_is_cut() {
        for (body, expected) in [
            ("GET / HTTP/1.1\r\n", Some(13)),
            ("\r\n\nPROPPATCH http://a/b HTTP/1.0", Some(31)),
            ("GET / HTTP/2.0\r\n", None),
            ("GET  / HTTP/1.1\r\n", None),
            (" GET / HTTP/1.1\r\n", None),
            ("get / HTTP/1.1\r\n", None),
            ("GET /a b HTTP/1.1\r\n", None),
            ("GET /", None),
            ("a=GET / HTTP/1.1", None),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1", None),
        ] {
            let mut state = FIRST;
            assert_eq!(find(&mut state, body.as_bytes()), expected, "{body}");
            let mut state = FIRST;
            let found = body.bytes().position(|byte| find(&mut state, &[byte]).is_some());
            assert_eq!(found.map(|at| at + 1), expected, "{body}");
        }
    }

    #[test]
    fn states_of_elsewhere_are_no_trouble() {
        for mut state in 0..=u8::MAX {
            let _ = find(&mut state, b"HTTP/1.HTTP/1.");
        }
    }
}
