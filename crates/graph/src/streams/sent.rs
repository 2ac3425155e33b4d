//! In line: what was sent and its receiver has not acknowledged. What is sent again must be the
//! same, or it does not pass: so nobody reads other bytes than were inspected.

use nf::MemoryShortage;
use packet::DropReason;

use super::held::{BLOCK_LEN, New};
use super::lists::BlockLink;
use super::span::Span;
use super::{Half, HostPolicy, MemoryOf, Reassembler, Segment, WhenMemoryFull};

/// Bytes of memory for it, all flows together.
pub const SENT_MEMORY: usize = 64 << 20;
/// The same of one direction of one flow: as much as is under way on long fast paths.
pub const SENT_MAX: u32 = 4 << 20;
/// The most blocks of unacknowledged bytes of a stream: a retransmission walks their list.
const SENT_BLOCKS_MAX: usize = SENT_MAX as usize / BLOCK_LEN;

impl Reassembler {
    /// Compares a segment with what its sender has sent before, and remembers it; false if it does
    /// not pass.
    pub(super) fn compare(&mut self, segment: &Segment<'_>, half: &mut Half) -> bool {
        // Where nobody is seen to acknowledge, nothing would ever be forgotten. But of a SYN, most
        // hosts take no bytes, and ask for them once more.
        let is_remembered = half.has(Half::ANSWERED) || segment.has(Segment::SYN);
        if !is_remembered && half.sent == 0 || segment.payload.is_empty() {
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
        let lost_until = if half.sent == 0 { 0 } else { self.look_for_sent(half) };
        let head = self.sent.head(half.sent);
        if !is_remembered && offset >= lost_until && !self.sent.covers(head, offset, offset + 1) {
            return true;
        }
        // A retransmission of recorded bytes needs no room.
        let is_recorded = || self.sent.covers(self.sent.head(half.sent), offset, offset + bytes.len() as u64);
        let is_full = half.sent_bytes + bytes.len() as u32 > SENT_MAX
            || self.sent.lists().blocks(half.sent) >= SENT_BLOCKS_MAX;
        let mut short = if is_full && !is_recorded() {
            Some(MemoryShortage::Share)
        } else {
            (offset < lost_until).then_some(MemoryShortage::Evicted)
        };
        if short.is_none() {
            let (mut list, mut last) = (self.sent.open(half.sent, self.owner), BlockLink(half.sent_last));
            let added = match self.sent.append(&mut list, &mut last, new) {
                Some(added) => added,
                None => {
                    let inserted = self.sent.insert(&mut list, new, HostPolicy::First);
                    last = self.sent.last(list);
                    differs = inserted.differ;
                    short = (!inserted.whole).then(|| self.sent.shortage());
                    inserted.added
                }
            };
            (half.sent, half.sent_last) = (self.sent.close(list), last.0);
            half.sent_bytes += added;
        }
        if differs {
            self.counters.differing += 1;
            self.note_difference(segment, skip, offset, bytes.len());
            self.keep_out(DropReason::StreamDiffers);
        } else if let Some(kind) = short {
            self.run_short(MemoryOf::Sent, kind);
            if self.options.when_full == WhenMemoryFull::Pass {
                return true;
            }
            self.keep_out(DropReason::StreamMemory);
        }
        short.is_none() && !differs
    }

    /// Returns the offset up to which remembered bytes may have been evicted.
    #[inline]
    fn look_for_sent(&mut self, half: &mut Half) -> u64 {
        if self.sent.lists_mut().is_news(half.sent) {
            (half.sent_last, half.sent_bytes) = (0, 0);
        }
        self.sent.lists().lost_until(half.sent)
    }

    /// The receiver has everything before this number.
    pub(super) fn forget_sent(&mut self, sequence: u32, half: &mut Half) {
        let is_more = sequence.wrapping_sub(half.has).cast_signed() > 0;
        let Some(distance) = half.distance(sequence).filter(|_| is_more) else { return };
        half.has = sequence;
        let until = half.next as i64 + i64::from(half.taken) + distance;
        if half.sent == 0 {
            return;
        }
        self.look_for_sent(half);
        let mut list = self.sent.open(half.sent, self.owner);
        while let Some(&block) = self.sent.front(list)
            && block.end() as i64 <= until
        {
            let Some((number, _)) = self.sent.pop(&mut list) else { break };
            self.sent.release(number);
            half.sent_bytes -= block.len;
        }
        if list == BlockLink::default() {
            half.sent_last = 0;
        }
        half.sent = self.sent.close(list);
        if half.sent != 0 {
            half.sent = self.sent.lists_mut().settle(half.sent, until.max(0) as u64);
        }
    }

    /// Forgets all of it.
    pub(super) fn release_sent(&mut self, half: &mut Half) {
        self.sent.forget(half.sent);
        (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
    }
}
