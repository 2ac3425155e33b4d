//! Memory runs short: what becomes of the segment at hand. In line, nothing passes that a host may
//! read and functions do not, unless the operator says so.

use nf::MemoryShortage;
use packet::DropReason;

use super::held::New;
use super::{Half, Reassembler, WhenMemoryFull};

/// Memory of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOf {
    /// Segments that came too early.
    Early,
    /// Unacknowledged segments.
    Sent,
}

/// A memory shortage, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortOf {
    /// The memory that is short.
    pub memory: MemoryOf,
    /// Why.
    pub kind: MemoryShortage,
}

impl ShortOf {
    /// Kinds of it.
    pub const COUNT: usize = 6;

    /// Its number among these.
    pub fn number(self) -> usize {
        self.memory as usize * 3 + self.kind as usize
    }
}

impl Reassembler {
    /// The account of the source that the packet at hand is of.
    pub fn account(&self) -> u32 {
        self.held.lists().account(self.owner)
    }

    /// Returns the memory shortage that the current packet met.
    pub fn shortage(&self) -> Option<ShortOf> {
        self.short
    }

    /// There was no memory for the packet at hand.
    #[cold]
    pub(super) fn run_short(&mut self, memory: MemoryOf, kind: MemoryShortage) {
        self.short = Some(ShortOf { memory, kind });
        self.counters.over_share += u64::from(kind == MemoryShortage::Share);
        match memory {
            MemoryOf::Early => self.counters.gave_up += 1,
            MemoryOf::Sent => self.counters.unrecorded += 1,
        }
    }

    /// Returns true if segments do not pass that there is no memory to keep.
    pub(super) fn refuses_when_full(&self) -> bool {
        self.options.inline && self.options.when_full == WhenMemoryFull::Drop
    }

    /// Notes whether queued segments were evicted.
    #[cold]
    pub(super) fn look_for_loss(&mut self, half: &mut Half) {
        if self.held.lists_mut().is_news(half.held) {
            half.held_bytes = 0;
            if !self.refuses_when_full() {
                // Once its receiver acknowledges it, it is a gap.
                self.run_short(MemoryOf::Early, MemoryShortage::Evicted);
            }
        }
        half.held = self.held.lists_mut().settle(half.held, half.next);
    }

    /// In line, the receiver has what gave way, and would read it after these bytes, which stand at
    /// this offset: whether they do not pass.
    #[cold]
    pub(super) fn misses(&mut self, start: u64, half: &mut Half) -> bool {
        if !self.refuses_when_full() || start >= self.held.lists().lost_until(half.held) {
            return false;
        }
        self.run_short(MemoryOf::Early, MemoryShortage::Evicted);
        self.keep_out(DropReason::StreamMemory);
        true
    }

    /// Returns true if there is room for a segment that came too early, and for its end if it has
    /// one; if not, it does not pass, and its sender sends it again.
    #[cold]
    pub(super) fn can_hold(&mut self, new: &New<'_>, ends: bool, half: &mut Half) -> bool {
        if half.held != 0 {
            self.look_for_loss(half);
        }
        let is_short_stream = new.bytes.len() + usize::from(ends) > self.room(half);
        // A block is cut where a byte is urgent.
        let others = usize::from(ends) + usize::from(half.has(Half::URGENT));
        if !is_short_stream && self.held.prepare(half.held, self.owner, new, others) {
            return true;
        }
        let kind = if is_short_stream { MemoryShortage::Share } else { self.held.shortage() };
        self.run_short(MemoryOf::Early, kind);
        self.keep_out(DropReason::StreamMemory);
        false
    }
}
