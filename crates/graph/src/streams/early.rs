//! The out-of-order queues of streams: bytes that arrived before a gap was filled, and doubtful
//! ones.

use nf::MemoryShortage;
use packet::DropReason;
use packet::memory::OutOfMemory;

use super::current::Current;
use super::held::{BLOCK_LEN, Block, Held, New};
use super::lists::Owner;
use super::{Half, MemoryOf, StreamOptions, doubt};

/// The most out-of-order blocks of a stream, unless its memory is for more.
const BLOCKS_MAX: usize = 1024;
/// Mean length of out-of-order segments below which their number is the limit, not their bytes.
const SEGMENT_LEN_MEAN: usize = BLOCK_LEN / 4;

/// The out-of-order queues of all streams. Each stream has the number of its own.
pub(super) struct EarlyBytes {
    held: Held,
}

impl EarlyBytes {
    /// Creates queues with memory as the options say.
    pub fn new(options: &StreamOptions) -> Result<EarlyBytes, OutOfMemory> {
        Ok(EarlyBytes { held: Held::new(options.memory, options.per_source, options.seed)? })
    }

    /// Returns the first block of a stream.
    pub fn front(&self, half: &Half) -> Option<&Block> {
        self.held.front(self.held.head(half.held))
    }

    /// Returns the blocks of a stream with their bytes.
    pub fn list(&self, half: &Half) -> impl Iterator<Item = New<'_>> {
        self.held.list(self.held.head(half.held))
    }

    /// Returns the end of a stream's bytes.
    pub fn end(&self, half: &Half) -> Option<u64> {
        self.held.end(self.held.head(half.held))
    }

    /// Returns the offset before which bytes of a stream were evicted; 0 if none were.
    pub fn lost_until(&self, half: &Half) -> u64 {
        self.held.lists().lost_until(half.held)
    }

    /// Trusts bytes of up to this doubt: they are not doubtful any more.
    pub fn trust(&mut self, half: &Half, doubt: u8) {
        self.held.trust(self.held.head(half.held), doubt);
    }

    /// Makes all bytes of a stream at least this doubtful.
    pub fn suspect(&mut self, half: &Half, doubt: u8) {
        self.held.suspect(self.held.head(half.held), doubt);
    }

    /// Adds bytes to a stream's queue. Returns false if there was no room for all of them.
    pub fn insert(&mut self, new: New<'_>, half: &mut Half, current: &mut Current) -> bool {
        if half.held != 0 {
            // The other direction of the same flow may have needed a block.
            self.look_for_loss(half, current);
        }
        if new.bytes.len() > self.room(half, current.options()) {
            self.held.lists_mut().shortage = MemoryShortage::Share;
            return false;
        }
        let mut list = self.held.open(half.held, current.owner());
        let inserted = self.held.insert(&mut list, new, current.options().policy);
        half.held = self.held.close(list);
        half.held_bytes += inserted.added;
        current.counters.bytes_out_of_order += u64::from(inserted.added);
        current.counters.differing += u64::from(inserted.differ);
        inserted.whole
    }

    /// Adds bytes of a stream that moved here. Returns false if there was no room for all of them.
    pub fn restore(&mut self, new: New<'_>, half: &mut Half, current: &Current) -> bool {
        // The last segment may exceed the limit by its own blocks.
        let options = current.options();
        let is_full = half.held_bytes.saturating_add(new.bytes.len() as u32) > options.memory_per_stream
            || self.held.lists().blocks(half.held) >= 2 * blocks_max(options);
        if is_full {
            return false;
        }
        let mut list = self.held.open(half.held, current.owner());
        let inserted = self.held.insert(&mut list, new, super::HostPolicy::First);
        half.held = self.held.close(list);
        half.held_bytes += inserted.added;
        inserted.whole
    }

    /// Notes that bytes of a stream that moved here were evicted up to this offset; `is_news`: its
    /// receiver's state does not account for that yet.
    pub fn lose(&mut self, until: u64, is_news: bool, half: &mut Half) {
        self.held.forget(half.held);
        (half.held, half.held_bytes) = (self.held.lists_mut().lose(until, is_news), 0);
    }

    /// Takes the first block of a stream off its queue. Its bytes stay until it is freed.
    pub fn pop_kept(&mut self, half: &mut Half, owner: Owner) -> Option<(u32, Block)> {
        let mut list = self.held.open(half.held, owner);
        let popped = self.held.pop(&mut list);
        half.held = self.held.close(list);
        let (number, block) = popped?;
        half.held_bytes -= block.len;
        Some((number, block))
    }

    /// Removes the first block of a stream.
    pub fn pop(&mut self, half: &mut Half, owner: Owner) {
        if let Some((number, _)) = self.pop_kept(half, owner) {
            self.held.release(number);
        }
    }

    /// Frees a block that was taken off its queue.
    pub fn free(&mut self, block: u32) {
        self.held.release(block);
    }

    /// Divides the first block of a stream at this offset, if it extends beyond.
    pub fn part_front(&mut self, at: u64, half: &mut Half, owner: Owner) {
        let list = self.held.open(half.held, owner);
        half.held_bytes -= self.held.part_front(list, at);
        half.held = self.held.close(list);
    }

    /// Takes the urgent byte at this offset, which the first block has, out of a stream.
    #[cold]
    pub fn take_out(&mut self, at: u64, half: &mut Half, owner: Owner) {
        let before = self.front(half).map_or(0, |block| block.len);
        let is_empty = self.held.take_out(self.held.head(half.held), at);
        let after = self.front(half).map_or(0, |block| block.len);
        half.held_bytes -= before - after;
        if is_empty {
            self.pop(half, owner);
        }
    }

    /// Gives up the most doubtful bytes of a stream. Returns true if there were any.
    pub fn drop_doubtful(&mut self, half: &mut Half, current: &mut Current) -> bool {
        for doubt in [doubt::IGNORED, doubt::UNLIKELY, doubt::UNSURE] {
            let mut list = self.held.open(half.held, current.owner());
            let bytes = self.held.release_doubtful(&mut list, doubt);
            half.held = self.held.close(list);
            half.held_bytes -= bytes;
            if bytes > 0 {
                current.counters.doubtful_lost += 1;
                return true;
            }
        }
        false
    }

    /// Notes whether bytes of a stream were evicted.
    #[cold]
    pub fn look_for_loss(&mut self, half: &mut Half, current: &mut Current) {
        if self.held.lists_mut().is_news(half.held) {
            half.held_bytes = 0;
            if !current.refuses_when_full() {
                // Once its receiver acknowledges it, it is a gap.
                current.run_short(MemoryOf::Early, MemoryShortage::Evicted);
            }
        }
        half.held = self.held.lists_mut().settle(half.held, half.next);
    }

    /// Returns true if bytes at this offset must be dropped, inline: the receiver has the evicted
    /// bytes before them, which functions did not see.
    #[cold]
    pub fn misses(&self, start: u64, half: &Half, current: &mut Current) -> bool {
        if !current.refuses_when_full() || start >= self.lost_until(half) {
            return false;
        }
        current.run_short(MemoryOf::Early, MemoryShortage::Evicted);
        current.keep_out(DropReason::StreamMemory);
        true
    }

    /// Returns true if there is room for a segment that arrived early, and for its FIN if it has
    /// one. If not, it is dropped, and its sender retransmits it.
    #[cold]
    pub fn can_hold(&mut self, new: &New<'_>, ends: bool, half: &mut Half, current: &mut Current) -> bool {
        if half.held != 0 {
            self.look_for_loss(half, current);
        }
        let is_short_stream = new.bytes.len() + usize::from(ends) > self.room(half, current.options());
        // A block is cut at an urgent byte.
        let others = usize::from(ends) + usize::from(half.has(Half::URGENT));
        if !is_short_stream && self.held.prepare(half.held, current.owner(), new, others) {
            return true;
        }
        let kind = if is_short_stream { MemoryShortage::Share } else { self.shortage() };
        current.run_short(MemoryOf::Early, kind);
        current.keep_out(DropReason::StreamMemory);
        false
    }

    /// Returns how many more out-of-order bytes a stream may hold.
    fn room(&self, half: &Half, options: &StreamOptions) -> usize {
        // Each segment walks the list.
        if self.held.lists().blocks(half.held) >= blocks_max(options) {
            return 0;
        }
        options.memory_per_stream.saturating_sub(half.held_bytes) as usize
    }

    /// Returns the cause of the last shortage.
    pub fn shortage(&self) -> MemoryShortage {
        self.held.shortage()
    }

    /// Removes all bytes of a stream.
    pub fn release(&mut self, half: &mut Half) {
        self.held.forget(half.held);
        (half.held, half.held_bytes) = (0, 0);
    }

    /// Returns the memory of all blocks.
    pub fn memory(&self) -> &[u8] {
        self.held.memory()
    }

    /// Returns the offset of a block's bytes in the memory.
    pub fn place(&self, block: u32) -> usize {
        self.held.place(block)
    }

    /// Returns the bytes of memory in use.
    pub fn memory_used(&self) -> usize {
        self.held.waiting() * BLOCK_LEN
    }

    /// Returns the number of queues that gave way to others.
    pub fn gave_way(&self) -> u64 {
        self.held.gave_way()
    }

    /// Returns the number of accounts of sources.
    pub fn accounts(&self) -> usize {
        self.held.lists().accounts()
    }

    /// Returns the account of an owner's source.
    pub fn account(&self, owner: Owner) -> u32 {
        self.held.lists().account(owner)
    }
}

/// Returns how many out-of-order blocks a stream may hold.
fn blocks_max(options: &StreamOptions) -> usize {
    (options.memory_per_stream as usize / SEGMENT_LEN_MEAN).max(BLOCKS_MAX)
}
