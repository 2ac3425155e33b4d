//! Line assembly: in place where a piece holds the whole line, otherwise through the caller's
//! [`LineBuffer`].

use memchr::memchr;

use crate::http::direction::{DirectionState, flag};
use crate::http::token::{find_control, is_blank};
use crate::http::{HttpAnomalies, HttpAnomaly, LineBuffer};

/// A complete line, with its folds (in headers) and its line ending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatheredLine<'a> {
    /// The bytes; at most the [`LineBuffer`]'s capacity.
    pub(crate) raw: &'a [u8],
    /// Anomalies of the line endings, and CR and NUL bytes.
    pub(crate) found: HttpAnomalies,
    /// True if it may contain control characters besides its line endings.
    pub(crate) controls: bool,
    /// True if it spans several lines.
    pub(crate) folded: bool,
    /// True if it was truncated.
    pub(crate) cut: bool,
}

impl GatheredLine<'_> {
    /// An empty line.
    pub(crate) const EMPTY: GatheredLine<'static> =
        GatheredLine { raw: &[], found: HttpAnomalies::NONE, controls: false, folded: false, cut: false };
}

/// The result of looking for the next line of a direction.
pub(crate) enum NextLine<'a> {
    /// The line is at the beginning of the piece, and takes this many of its bytes.
    InPlace(GatheredLine<'a>, usize),
    /// The line is in the [`LineBuffer`], which must be cleared; this many bytes of the piece were
    /// used.
    Kept(usize),
    /// The line is incomplete; the whole piece was used.
    Incomplete,
}

/// Finds the next line in a piece that is not empty. `folds`: a line continues if the next begins
/// with a blank.
// Inlined, here and below, on the path of a header in place: its parts then stay in registers.
#[inline(always)]
pub(crate) fn next_line<'a, L: LineBuffer>(
    half: &mut DirectionState,
    folds: bool,
    piece: &'a [u8],
    line: &mut L,
) -> NextLine<'a> {
    if !line.as_slice().is_empty() || half.has(flag::LINE_CUT | flag::LINE_ENDED) {
        return continue_line(half, folds, piece, line);
    }
    match scan(piece, folds) {
        Scan::Complete(whole) => {
            let used = whole.raw.len();
            match used > line.capacity() {
                false => NextLine::InPlace(whole, used),
                true => NextLine::InPlace(cut(&piece[..line.capacity()]), used),
            }
        }
        Scan::Incomplete { ended } => {
            keep(half, piece, line);
            if ended {
                half.set(flag::LINE_ENDED);
            }
            NextLine::Incomplete
        }
    }
}

/// Returns the buffered line with its anomalies.
pub(crate) fn kept<'a, L: LineBuffer>(half: &DirectionState, line: &'a L) -> GatheredLine<'a> {
    let (found, folded) = lint(line.as_slice());
    GatheredLine { raw: line.as_slice(), found, controls: true, folded, cut: half.has(flag::LINE_CUT) }
}

/// Clears the buffered line.
pub(crate) fn forget<L: LineBuffer>(half: &mut DirectionState, line: &mut L) {
    line.clear();
    half.clear(flag::LINE_CUT | flag::LINE_ENDED);
}

#[inline(never)]
fn continue_line<'a, L: LineBuffer>(
    half: &mut DirectionState,
    folds: bool,
    piece: &'a [u8],
    line: &mut L,
) -> NextLine<'a> {
    let mut used = 0;
    loop {
        let rest = &piece[used..];
        if half.has(flag::LINE_ENDED) {
            match rest.first() {
                None => return NextLine::Incomplete,
                Some(&byte) if is_blank(byte) => half.clear(flag::LINE_ENDED),
                Some(_) => return NextLine::Kept(used),
            }
        }
        let Some(end) = memchr(b'\n', rest) else {
            keep(half, rest, line);
            return NextLine::Incomplete;
        };
        keep(half, &rest[..=end], line);
        used += end + 1;
        if !folds || is_empty_line(line.as_slice()) {
            return NextLine::Kept(used);
        }
        half.set(flag::LINE_ENDED);
    }
}

fn keep<L: LineBuffer>(half: &mut DirectionState, bytes: &[u8], line: &mut L) {
    if line.push(bytes) < bytes.len() {
        half.set(flag::LINE_CUT);
    }
}

/// Returns a truncated line.
fn cut(raw: &[u8]) -> GatheredLine<'_> {
    let (found, folded) = lint(raw);
    GatheredLine { raw, found, controls: true, folded, cut: true }
}

fn is_empty_line(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n")
}

enum Scan<'a> {
    Complete(GatheredLine<'a>),
    /// `ended`: the piece ends with a line ending, and the next byte decides whether the line
    /// continues.
    Incomplete {
        ended: bool,
    },
}

/// Finds the line ending and anomalies, in one pass that stops at control characters only.
#[inline(always)]
fn scan(piece: &[u8], folds: bool) -> Scan<'_> {
    let (mut found, mut controls, mut folded) = (HttpAnomalies::NONE, false, false);
    let mut from = 0;
    while let Some(at) = find_control(&piece[from..]).map(|at| from + at) {
        let end = match (piece[at], piece.get(at + 1)) {
            (b'\r', Some(b'\n')) => at + 2,
            (b'\r', None) => break,
            (b'\n', _) => {
                found.add(HttpAnomaly::BareLineFeed);
                at + 1
            }
            (byte, _) => {
                found.add_if(byte == 0, HttpAnomaly::NulByte);
                found.add_if(byte == b'\r', HttpAnomaly::BareCarriageReturn);
                (controls, from) = (true, at + 1);
                continue;
            }
        };
        let whole = GatheredLine { raw: &piece[..end], found, controls, folded, cut: false };
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

/// Returns what [`scan`] finds in a line that is complete or truncated: its anomalies, and whether
/// it is folded.
fn lint(line: &[u8]) -> (HttpAnomalies, bool) {
    let (mut found, mut folded) = (HttpAnomalies::NONE, false);
    let mut previous = 0xff;
    for (at, &byte) in line.iter().enumerate() {
        let last = at + 1 == line.len();
        found.add_if(byte == 0, HttpAnomaly::NulByte);
        found.add_if(byte == b'\n' && previous != b'\r', HttpAnomaly::BareLineFeed);
        found.add_if(previous == b'\r' && byte != b'\n', HttpAnomaly::BareCarriageReturn);
        folded |= byte == b'\n' && !last;
        previous = byte;
    }
    (found, folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::FixedLineBuffer;

    fn whole(text: &[u8], folds: bool) -> Option<(usize, HttpAnomalies, bool)> {
        match scan(text, folds) {
            Scan::Complete(whole) => Some((whole.raw.len(), whole.found, whole.folded)),
            Scan::Incomplete { .. } => None,
        }
    }

    #[test]
    fn a_line_ends_where_no_fold_follows() {
        assert_eq!(whole(b"a: b\r\nc", true), Some((6, HttpAnomalies::NONE, false)));
        assert_eq!(whole(b"a: b\r\n c\r\nd", true), Some((10, HttpAnomalies::NONE, true)));
        assert_eq!(whole(b"a: b\r\n c\r\nd", false), Some((6, HttpAnomalies::NONE, false)));
        assert_eq!(whole(b"a: b\r\n", true), None);
        assert_eq!(whole(b"\r\n c", true), Some((2, HttpAnomalies::NONE, false)));
        assert_eq!(whole(b"a\r", false), None);
    }

    #[test]
    fn anomalies_of_a_line_do_not_depend_on_buffering() {
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
    fn truncation_of_a_long_line_does_not_depend_on_segmentation() {
        let text = b"abcdefghij\r\nx";
        let mut line = FixedLineBuffer::<4>::default();
        let mut half = DirectionState::default();
        let NextLine::InPlace(in_place, 12) = next_line(&mut half, false, text, &mut line) else { panic!() };
        assert_eq!((in_place.raw, in_place.cut), (&b"abcd"[..], true));
        assert!(matches!(next_line(&mut half, false, &text[..6], &mut line), NextLine::Incomplete));
        assert!(matches!(next_line(&mut half, false, &text[6..], &mut line), NextLine::Kept(6)));
        assert_eq!((kept(&half, &line).raw, kept(&half, &line).cut), (&b"abcd"[..], true));
    }
}
