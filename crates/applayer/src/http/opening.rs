//! Detection of bodies that begin like a request, across pieces, with one byte of state.

/// No search is in progress, or a match is impossible.
pub(crate) const NONE: u8 = 0;
/// Before the first byte.
pub(crate) const FIRST: u8 = 1;

/// Maximum letters of a method.
const METHOD_MAX: u8 = 20;
/// After the method and its space.
const BEFORE_TARGET: u8 = FIRST + METHOD_MAX + 1;
/// In the target.
const TARGET: u8 = BEFORE_TARGET + 1;
/// After the target's space; each matching byte of the version adds one.
const VERSION: u8 = TARGET + 1;
const VERSION_TEXT: &[u8] = b"HTTP/1.";

/// Matches the next bytes of a body against a request line (RFC 9112 3): method, target and
/// `HTTP/1.`, possibly after empty lines. Returns the number of bytes up to a certain match. Stops
/// as soon as a match is impossible.
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

/// Returns the state after a byte. Accepts any state, including a foreign one.
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
    fn a_body_that_begins_like_a_request_is_found_in_any_segmentation() {
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
    fn foreign_states_do_no_harm() {
        for mut state in 0..=u8::MAX {
            let _ = find(&mut state, b"HTTP/1.HTTP/1.");
        }
    }
}
