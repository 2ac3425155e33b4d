//! The search of whole streams, from their beginning or the last gap: which matches windows find,
//! and which they cannot.

use super::buffer::Piece;
use super::header::Place;
use super::http::Buffers;
use super::prepared::Prepared;
use signatures::Buffer;

/// Maximum length of a stream that is searched whole.
const WHOLE_MAX: usize = 32 << 10;

/// The result of the comparison.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    /// Rules that a window and the whole stream matched first at the same piece.
    pub same: usize,
    /// Rules that only the whole stream matched: the parts of the match are too far apart for a
    /// window.
    pub far: usize,
    /// Rules that only one matched, although both should have: with the packet.
    pub wrong: Vec<String>,
}

/// The matches in a stream so far.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Rules that the whole stream matched, and rules that windows matched.
    whole: Vec<usize>,
    windows: Vec<usize>,
}

impl Found {
    /// Records a match in a window.
    pub fn in_window(&mut self, rule: usize) {
        self.windows.push(rule);
    }

    /// Ends a piece: compares the rules that match all bytes so far with the matches in windows.
    pub fn compare(
        &mut self,
        rules: &[Prepared],
        (bytes, start): (&[u8], u64),
        window: &Buffers,
        place: &Place<'_>,
        sum: &mut Whole,
    ) {
        if bytes.len() > WHOLE_MAX {
            return;
        }
        let stream = Buffers::from([(Buffer::Payload, vec![Piece::new(bytes.to_vec(), start)])]);
        let of_streams = rules.iter().enumerate().filter(|(_, rule)| is_compared(rule));
        for (number, rule) in of_streams {
            let of_window = self.windows.contains(&number);
            if self.whole.contains(&number) || !of_window && !rule.holds(place, &stream) {
                continue;
            }
            self.whole.push(number);
            match (rule.holds(place, &stream), of_window) {
                (true, true) => sum.same += 1,
                (true, false) if !rule.holds(place, window) => sum.far += 1,
                (held, _) => {
                    let what = if held { "missed in a window" } else { "not in the stream" };
                    sum.wrong.push(format!("{} on packet {}: {what}", rule.rule.sid, place.packet.sequence));
                }
            }
        }
    }
}

/// Returns whether a match of the rule is permanent.
fn is_compared(rule: &Prepared) -> bool {
    rule.occasions.pieces && rule.is_positive && rule.rule.flowbits.is_empty()
}
