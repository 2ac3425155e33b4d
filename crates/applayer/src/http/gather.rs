//! Lines out of pieces: in place where a piece holds the whole line, else through the caller's
//! [`Line`].

use memchr::memchr;

use crate::http::exchange::{Half, flag};
use crate::http::token::{find_control, is_blank};
use crate::http::{Anomalies, Anomaly, Line};

/// A complete line: with its folds where headers are, and with its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    /// Its bytes; no more than the [`Line`]'s capacity.
    pub(crate) raw: &'a [u8],
    /// What is wrong with its ends, and its bytes CR and NUL.
    pub(crate) found: Anomalies,
    /// Whether it may hold controls apart from its ends.
    pub(crate) controls: bool,
    /// Whether it goes over several lines.
    pub(crate) folded: bool,
    /// Whether it had more bytes.
    pub(crate) cut: bool,
}

impl Whole<'_> {
    /// A line of no bytes.
    pub(crate) const EMPTY: Whole<'static> =
        Whole { raw: &[], found: Anomalies::NONE, controls: false, folded: false, cut: false };
}

/// The next line of a direction.
pub(crate) enum Next<'a> {
    /// The line stands at the beginning of the piece, and takes so many of its bytes.
    InPlace(Whole<'a>, usize),
    /// The line is in the [`Line`] and is to be cleared; so many bytes of the piece were used up.
    Kept(usize),
    /// It is not complete; the piece is used up.
    Incomplete,
}

/// Looks for the next line in a piece that is not empty. `folds`: whether a line goes on where the
/// next begins with a blank.
// Inlined, here and below, on the way of a header in place: its parts then stay in registers.
#[inline(always)]
pub(crate) fn next_line<'a, L: Line>(
    half: &mut Half,
    folds: bool,
    piece: &'a [u8],
    line: &mut L,
) -> Next<'a> {
    if !line.as_slice().is_empty() || half.has(flag::LINE_CUT | flag::LINE_ENDED) {
        return continue_line(half, folds, piece, line);
    }
    match scan(piece, folds) {
        Scan::Complete(whole) => {
            let used = whole.raw.len();
            match used > line.capacity() {
                false => Next::InPlace(whole, used),
                true => Next::InPlace(cut(&piece[..line.capacity()]), used),
            }
        }
        Scan::Incomplete { ended } => {
            keep(half, piece, line);
            if ended {
                half.set(flag::LINE_ENDED);
            }
            Next::Incomplete
        }
    }
}

/// The line that is kept, and what is wrong with it.
pub(crate) fn kept<'a, L: Line>(half: &Half, line: &'a L) -> Whole<'a> {
    let (found, folded) = lint(line.as_slice());
    Whole { raw: line.as_slice(), found, controls: true, folded, cut: half.has(flag::LINE_CUT) }
}

/// Forgets the line that was kept.
pub(crate) fn forget<L: Line>(half: &mut Half, line: &mut L) {
    line.clear();
    half.clear(flag::LINE_CUT | flag::LINE_ENDED);
}

#[inline(never)]
fn continue_line<'a, L: Line>(half: &mut Half, folds: bool, piece: &'a [u8], line: &mut L) -> Next<'a> {
    let mut used = 0;
    loop {
        let rest = &piece[used..];
        if half.has(flag::LINE_ENDED) {
            match rest.first() {
                None => return Next::Incomplete,
                Some(&byte) if is_blank(byte) => half.clear(flag::LINE_ENDED),
                Some(_) => return Next::Kept(used),
            }
        }
        let Some(end) = memchr(b'\n', rest) else {
            keep(half, rest, line);
            return Next::Incomplete;
        };
        keep(half, &rest[..=end], line);
        used += end + 1;
        if !folds || is_empty_line(line.as_slice()) {
            return Next::Kept(used);
        }
        half.set(flag::LINE_ENDED);
    }
}

fn keep<L: Line>(half: &mut Half, bytes: &[u8], line: &mut L) {
    if line.push(bytes) < bytes.len() {
        half.set(flag::LINE_CUT);
    }
}

/// A line of which no more than this is read.
fn cut(raw: &[u8]) -> Whole<'_> {
    let (found, folded) = lint(raw);
    Whole { raw, found, controls: true, folded, cut: true }
}

fn is_empty_line(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n")
}

enum Scan<'a> {
    Complete(Whole<'a>),
    /// `ended`: the piece ends with a line's end, and what follows decides whether the line goes
    /// on.
    Incomplete {
        ended: bool,
    },
}

/// Finds the line's end and what is wrong with it, in one pass that stops at controls only.
#[inline(always)]
fn scan(piece: &[u8], folds: bool) -> Scan<'_> {
    let (mut found, mut controls, mut folded) = (Anomalies::NONE, false, false);
    let mut from = 0;
    while let Some(at) = find_control(&piece[from..]).map(|at| from + at) {
        let end = match (piece[at], piece.get(at + 1)) {
            (b'\r', Some(b'\n')) => at + 2,
            (b'\r', None) => break,
            (b'\n', _) => {
                found.add(Anomaly::BareLineFeed);
                at + 1
            }
            (byte, _) => {
                found.add_if(byte == 0, Anomaly::NulByte);
                found.add_if(byte == b'\r', Anomaly::BareCarriageReturn);
                (controls, from) = (true, at + 1);
                continue;
            }
        };
        let whole = Whole { raw: &piece[..end], found, controls, folded, cut: false };
        if !folds || is_empty_line(whole.raw) {
            return Scan::Complete(whole);
        }
        match piece.get(end) {
            None => return Scan::Incomplete { ended: true },
            Some(&next) if is_blank(next) => (folded, from) = (true, end),
            Some(_) => return Scan::Complete(whole),
        }
    }
    Scan::Incomplete { ended: false }
}

/// What [`scan`] finds, of a line that is complete already or cut: anomalies, and whether it is
/// folded.
fn lint(line: &[u8]) -> (Anomalies, bool) {
    let (mut found, mut folded) = (Anomalies::NONE, false);
    let mut previous = 0xff;
    for (at, &byte) in line.iter().enumerate() {
        let last = at + 1 == line.len();
        found.add_if(byte == 0, Anomaly::NulByte);
        found.add_if(byte == b'\n' && previous != b'\r', Anomaly::BareLineFeed);
        found.add_if(previous == b'\r' && byte != b'\n', Anomaly::BareCarriageReturn);
        folded |= byte == b'\n' && !last;
        previous = byte;
    }
    (found, folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::FixedLine;

    fn whole(text: &[u8], folds: bool) -> Option<(usize, Anomalies, bool)> {
        match scan(text, folds) {
            Scan::Complete(whole) => Some((whole.raw.len(), whole.found, whole.folded)),
            Scan::Incomplete { .. } => None,
        }
    }

    #[test]
    fn a_line_ends_where_no_fold_follows() {
        assert_eq!(whole(b"a: b\r\nc", true), Some((6, Anomalies::NONE, false)));
        assert_eq!(whole(b"a: b\r\n c\r\nd", true), Some((10, Anomalies::NONE, true)));
        assert_eq!(whole(b"a: b\r\n c\r\nd", false), Some((6, Anomalies::NONE, false)));
        assert_eq!(whole(b"a: b\r\n", true), None);
        assert_eq!(whole(b"\r\n c", true), Some((2, Anomalies::NONE, false)));
        assert_eq!(whole(b"a\r", false), None);
    }

    #[test]
    fn what_is_wrong_is_found_in_place_and_kept_alike() {
        for text in [&b"a\0b\r\n"[..], b"a\rb\r\n", b"a\n", b"a\r\r\n", b"\0\r\0\n", b"a\n b\r\n"] {
            let folds = text.contains(&b' ');
            let mut with_next = text.to_vec();
            with_next.push(b'x');
            let (len, found, folded) = whole(&with_next, folds).unwrap();
            assert_eq!((len, (found, folded)), (text.len(), lint(text)));
            assert!(!found.is_empty());
        }
    }

    #[test]
    fn a_long_line_is_cut_to_the_same_bytes_however_it_came() {
        let text = b"abcdefghij\r\nx";
        let mut line = FixedLine::<4>::default();
        let mut half = Half::default();
        let Next::InPlace(in_place, 12) = next_line(&mut half, false, text, &mut line) else { panic!() };
        assert_eq!((in_place.raw, in_place.cut), (&b"abcd"[..], true));
        assert!(matches!(next_line(&mut half, false, &text[..6], &mut line), Next::Incomplete));
        assert!(matches!(next_line(&mut half, false, &text[6..], &mut line), Next::Kept(6)));
        assert_eq!((kept(&half, &line).raw, kept(&half, &line).cut), (&b"abcd"[..], true));
    }
}
