//! Unacknowledged bytes, inline. Retransmissions must be the same, or they are dropped, so that
//! hosts read only bytes that were inspected.

use nf::MemoryShortage;
use packet::DropReason;
use packet::memory::OutOfMemory;

use super::current::Current;
use super::held::{BLOCK_LEN, Held, New};
use super::lists::{BlockLink, Owner};
use super::normalize::Difference;
use super::span::Span;
use super::{Half, HostPolicy, MemoryOf, Segment, StreamOptions, WhenMemoryFull};

/// Memory of unacknowledged bytes of all flows.
pub const SENT_MEMORY: usize = 64 << 20;
/// The same of one direction of one flow: as much as is under way on long fast paths.
pub const SENT_MAX: u32 = 4 << 20;
/// The most blocks of unacknowledged bytes of a stream: a retransmission walks their list.
const SENT_BLOCKS_MAX: usize = SENT_MAX as usize / BLOCK_LEN;

/// The unacknowledged bytes of all streams. Each stream has the number of its own list.
pub(super) struct SentBytes {
    held: Held,
}

impl SentBytes {
    /// Creates lists with memory for them, inline.
    pub fn new(options: &StreamOptions) -> Result<SentBytes, OutOfMemory> {
        let memory = if options.inline { SENT_MEMORY } else { 0 };
        Ok(SentBytes { held: Held::new(memory, options.per_source, options.seed)? })
    }

    /// Returns the number of lists that gave way to others.
    pub fn gave_way(&self) -> u64 {
        self.held.gave_way()
    }

    /// Compares a segment with what its sender has sent before, and remembers it. Returns false if
    /// it must be dropped.
    pub fn compare(&mut self, segment: &Segment<'_>, half: &mut Half, current: &mut Current) -> bool {
        // Without acknowledgements nothing would ever be removed. But most hosts take no bytes of a
        // SYN, and have them retransmitted.
        let is_remembered = half.has(Half::ANSWERED) || segment.has(Segment::SYN);
        if !is_remembered && half.sent == 0 || segment.payload.is_empty() {
            return true;
        }
        let (Some(first), Some(has)) = (half.distance(segment.first()), half.distance(half.has)) else {
            return true;
        };
        // The receiver does not take again what it has.
        let skip = (has - first).max(0) as usize;
        let Some(bytes) = segment.payload.get(skip..).filter(|bytes| !bytes.is_empty()) else { return true };
        let place = half.next as i64 + i64::from(half.taken) + first + skip as i64;
        let Ok(offset) = u64::try_from(place) else { return true };
        let new = New { offset, bytes, span: Span::default(), doubt: 0, fin: false };
        let mut differs = false;
        let lost_until = if half.sent == 0 { 0 } else { self.look_for_loss(half) };
        let head = self.held.head(half.sent);
        if !is_remembered && offset >= lost_until && !self.held.covers(head, offset, offset + 1) {
            return true;
        }
        // A retransmission of recorded bytes needs no room.
        let is_recorded = || self.held.covers(self.held.head(half.sent), offset, offset + bytes.len() as u64);
        let is_full = half.sent_bytes + bytes.len() as u32 > SENT_MAX
            || self.held.lists().blocks(half.sent) >= SENT_BLOCKS_MAX;
        let mut short = if is_full && !is_recorded() {
            Some(MemoryShortage::Share)
        } else {
            (offset < lost_until).then_some(MemoryShortage::Evicted)
        };
        if short.is_none() {
            let (mut list, mut last) =
                (self.held.open(half.sent, current.owner()), BlockLink(half.sent_last));
            let added = match self.held.append(&mut list, &mut last, new) {
                Some(added) => added,
                None => {
                    let inserted = self.held.insert(&mut list, new, HostPolicy::First);
                    last = self.held.last(list);
                    differs = inserted.differ;
                    short = (!inserted.whole).then(|| self.held.shortage());
                    inserted.added
                }
            };
            (half.sent, half.sent_last) = (self.held.close(list), last.0);
            half.sent_bytes += added;
        }
        if differs {
            current.counters.differing += 1;
            let difference = Difference::new(skip, offset, bytes.len());
            // All but the last fragment of a datagram have passed already.
            current.note_difference((!segment.apart).then_some(difference));
            current.keep_out(DropReason::StreamDiffers);
        } else if let Some(kind) = short {
            current.run_short(MemoryOf::Sent, kind);
            if current.options().when_full == WhenMemoryFull::Pass {
                return true;
            }
            current.keep_out(DropReason::StreamMemory);
        }
        short.is_none() && !differs
    }

    /// Returns the offset up to which remembered bytes may have been evicted.
    #[inline]
    fn look_for_loss(&mut self, half: &mut Half) -> u64 {
        if self.held.lists_mut().is_news(half.sent) {
            (half.sent_last, half.sent_bytes) = (0, 0);
        }
        self.held.lists().lost_until(half.sent)
    }

    /// The receiver has everything before this sequence number.
    pub fn forget(&mut self, sequence: u32, half: &mut Half, owner: Owner) {
        let is_more = sequence.wrapping_sub(half.has).cast_signed() > 0;
        let Some(distance) = half.distance(sequence).filter(|_| is_more) else { return };
        half.has = sequence;
        let until = half.next as i64 + i64::from(half.taken) + distance;
        if half.sent == 0 {
            return;
        }
        self.look_for_loss(half);
        let mut list = self.held.open(half.sent, owner);
        while let Some(&block) = self.held.front(list)
            && block.end() as i64 <= until
        {
            let Some((number, _)) = self.held.pop(&mut list) else { break };
            self.held.release(number);
            half.sent_bytes -= block.len;
        }
        if list == BlockLink::default() {
            half.sent_last = 0;
        }
        half.sent = self.held.close(list);
        if half.sent != 0 {
            half.sent = self.held.lists_mut().settle(half.sent, until.max(0) as u64);
        }
    }

    /// Appends up to `len` bytes from this offset to `out`, up to the first unknown one.
    pub fn read(&self, half: &Half, offset: u64, len: usize, out: &mut Vec<u8>) {
        let end = offset + len as u64;
        for block in self.held.list(self.held.head(half.sent)) {
            let at = offset + out.len() as u64;
            let Some(skip) = at.checked_sub(block.offset) else { break };
            if let Some(bytes) = block.bytes.get(skip as usize..) {
                let wanted = (end - at) as usize;
                out.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
            }
        }
    }

    /// Removes all bytes of a stream.
    pub fn release(&mut self, half: &mut Half) {
        self.held.forget(half.sent);
        (half.sent, half.sent_last, half.sent_bytes) = (0, 0, 0);
    }
}
