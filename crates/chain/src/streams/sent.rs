//! In line: what was sent and its receiver has not acknowledged. What is sent again must be the same, or it does not pass: so nobody
//! reads other bytes than were inspected.

use packet::DropReason;

use super::held::{Link, New, Span};
use super::{Half, HostPolicy, Reassembler, Segment, WhenFull};

/// Bytes of memory for it, all flows together.
pub const SENT_MEMORY: usize = 64 << 20;
/// The same of one direction of one flow: as much as is under way on long fast paths.
pub const SENT_MAX: u32 = 4 << 20;

impl Reassembler {
    /// Compares a segment with what its sender has sent before, and remembers it; false if it does not pass.
    pub(super) fn compare(&mut self, segment: &Segment<'_>, half: &mut Half) -> bool {
        // Where nobody is seen to acknowledge, nothing would ever be forgotten.
        if !half.has(Half::ANSWERED) || segment.payload.is_empty() {
            return true;
        }
        let (Some(first), Some(has)) = (half.distance(segment.first()), half.distance(half.has)) else {
            return true;
        };
        // What the receiver has it does not take again.
        let skip = (has - first).max(0) as usize;
        let Some(bytes) = segment.payload.get(skip..).filter(|bytes| !bytes.is_empty()) else { return true };
        let place = half.next as i64 + i64::from(half.taken) + first + skip as i64;
        let Ok(offset) = u64::try_from(place) else { return true };
        let new = New { offset, bytes, span: Span::default(), doubt: 0, fin: false };
        let mut differs = false;
        let mut is_kept = half.sent_bytes + bytes.len() as u32 <= SENT_MAX;
        if is_kept {
            let (mut list, mut last) = (Link(half.sent), Link(half.sent_last));
            let added = match self.sent.append(&mut list, &mut last, new) {
                Some(added) => added,
                None => {
                    let inserted = self.sent.insert(&mut list, new, HostPolicy::First);
                    last = self.sent.last(list);
                    differs = inserted.differ;
                    is_kept = inserted.whole;
                    inserted.added
                }
            };
            (half.sent, half.sent_last) = (list.0, last.0);
            half.sent_bytes += added;
        }
        if differs {
            self.counters.differing += 1;
            self.keep_out(DropReason::StreamDiffers);
        } else if !is_kept {
            self.counters.unrecorded += 1;
            if self.options.when_full == WhenFull::Pass {
                return true;
            }
            self.keep_out(DropReason::StreamMemory);
        }
        is_kept && !differs
    }

    /// The receiver has everything before this number.
    pub(super) fn forget_sent(&mut self, sequence: u32, half: &mut Half) {
        let is_more = sequence.wrapping_sub(half.has).cast_signed() > 0;
        let Some(distance) = half.distance(sequence).filter(|_| is_more) else { return };
        half.has = sequence;
        let until = half.next as i64 + i64::from(half.taken) + distance;
        let mut list = Link(half.sent);
        while let Some(&block) = self.sent.front(list)
            && block.end() as i64 <= until
        {
            let Some((number, _)) = self.sent.pop(&mut list) else { break };
            self.sent.release(number);
            half.sent_bytes -= block.len;
        }
        half.sent = list.0;
        if list == Link::default() {
            half.sent_last = 0;
        }
    }

    /// Forgets all of it.
    pub(super) fn release_sent(&mut self, half: &mut Half) {
        self.sent.release_all(&mut Link(half.sent));
        (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
    }
}
