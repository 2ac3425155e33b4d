//! The search of whole streams, from their beginning or the last gap on: what windows of them find,
//! and what they cannot.

use super::buffer::Piece;
use super::header::Place;
use super::http::Buffers;
use super::prepared::Prepared;
use signatures::Buffer;

/// The longest stream that is searched whole.
const WHOLE_MAX: usize = 32 << 10;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    /// Rules that a window and the whole stream held for the first time at the same piece's end.
    pub same: usize,
    /// Rules that only the whole stream held: the parts of the match are too far apart for a
    /// window.
    pub far: usize,
    /// Rules of which one held what the other did not, but ought to have: with the packet.
    pub wrong: Vec<String>,
}

/// What was found in a stream until now.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Rules that the stream held, and that windows of it did.
    whole: Vec<usize>,
    windows: Vec<usize>,
}

impl Found {
    /// A window held a rule.
    pub fn in_window(&mut self, rule: usize) {
        self.windows.push(rule);
    }

    /// A piece ends: compares rules that hold in all bytes until here, with what was found in
    /// windows of them.
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

/// Whether what a rule holds in holds it for good.
fn is_compared(rule: &Prepared) -> bool {
    rule.occasions.pieces && rule.is_positive && rule.rule.flowbits.is_empty()
}
