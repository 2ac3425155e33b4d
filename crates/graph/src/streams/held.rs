//! Queued bytes of streams, in blocks: a list for each stream, ascending and without overlap.

use std::cmp::Ordering;

use nf::MemoryShortage;
use packet::memory::{OutOfMemory, Zeroed};

use super::HostPolicy;
use super::lists::{BlockLink, Lists, Owner};
use super::span::Span;

/// Bytes of a block: enough for a segment of an Ethernet frame; longer ones take several.
pub const BLOCK_LEN: usize = 1536;

/// Extra blocks for bytes that were delivered, until their group ends. So the number of queued
/// blocks does not depend on how packets are grouped. Enough for a group of the longest packets;
/// untouched memory costs nothing.
const SPARE: usize = crate::GROUP_MAX * (packet::LARGE_ROOM / BLOCK_LEN + 2);

/// Maximum number of lists that give way for one segment.
const GIVE_WAY_MAX: usize = 64;

/// The blocks of all streams of a graph.
pub(super) struct Held {
    blocks: Vec<Block>,
    bytes: Zeroed<u8>,
    free: Vec<u32>,
    /// Number of blocks in lists.
    waiting: usize,
    /// Maximum number of blocks in lists.
    waiting_max: usize,
    /// Number of blocks in lists above which sources have shares.
    plenty: usize,
    lists: Lists,
    /// Number of displaced lists.
    gave_way: u64,
}

/// A block of queued bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    /// The next block of the stream.
    next: BlockLink,
    /// Number of bytes in use.
    pub len: u32,
    /// Their offset in the stream.
    pub offset: u64,
    /// Their segment.
    span: Span,
    /// See [`New::doubt`].
    pub doubt: u8,
    /// See [`New::fin`].
    pub fin: bool,
}

impl Block {
    /// Returns the offset after its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Bytes to queue.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Their segment.
    pub span: Span,
    /// Doubt about the bytes: they count only once the receiver acknowledges them, and give way to
    /// less doubtful ones.
    pub doubt: u8,
    /// True for a FIN, which counts as one byte.
    pub fin: bool,
}

/// The outcome of an insertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Number of bytes added.
    pub added: u32,
    /// True if bytes differed from queued ones at the same offset.
    pub differ: bool,
    /// False without enough blocks: then only the first bytes were added.
    pub whole: bool,
}

impl Held {
    /// Creates room for `memory` bytes, rounded down to whole blocks. A source may hold
    /// `per_source` percent once three quarters are taken.
    pub fn new(memory: usize, per_source: u8, seed: u64) -> Result<Held, OutOfMemory> {
        let waiting_max = (memory / BLOCK_LEN).min(u32::MAX as usize / 2);
        let count = waiting_max + SPARE;
        let share = (waiting_max * usize::from(per_source) / 100).max(1) as u32;
        Ok(Held {
            blocks: vec![Block::default(); count],
            bytes: Zeroed::new(count * BLOCK_LEN)?,
            free: (0..count as u32).rev().collect(),
            waiting: 0,
            waiting_max,
            plenty: if per_source < 100 { waiting_max / 4 * 3 } else { waiting_max },
            lists: Lists::new(waiting_max, share, seed)?,
            gave_way: 0,
        })
    }

    /// Returns the first block of a list.
    #[inline]
    pub fn head(&self, list: u32) -> BlockLink {
        self.lists.first(list)
    }

    /// Opens a list for changes by a packet of this owner, until [`Held::close`]. Returns its first
    /// block.
    pub fn open(&mut self, list: u32, owner: Owner) -> BlockLink {
        self.lists.begin(list, owner, self.waiting);
        self.lists.first(list)
    }

    /// Ends the change of a list with this first block; returns its number.
    pub fn close(&mut self, list: BlockLink) -> u32 {
        self.lists.end(list, self.waiting)
    }

    /// Ensures that there are blocks for new bytes of a list, and `others` more. Returns false if
    /// there are not.
    pub fn prepare(&mut self, list: u32, owner: Owner, new: &New<'_>, others: usize) -> bool {
        let blocks = new.bytes.len().div_ceil(BLOCK_LEN) + others;
        let is_after = self.end(self.lists.first(list)).is_none_or(|end| end <= new.offset);
        // In the worst case, each block of the list is cut in two, and another one follows it.
        let needed = if is_after { blocks } else { blocks + 2 * self.lists.blocks(list) };
        if self.waiting + needed <= self.plenty {
            return true;
        }
        self.lists.begin(list, owner, self.waiting);
        let can = self.make_room(needed);
        let first = self.lists.first(list);
        self.lists.end(first, self.waiting);
        can
    }

    /// Makes room for n more blocks: lists give way. Returns true if there is room.
    #[cold]
    fn make_room(&mut self, blocks: usize) -> bool {
        if self.plenty < self.waiting_max && self.lists.left(self.waiting) < blocks {
            self.lists.shortage = MemoryShortage::Share;
            return false;
        }
        for _ in 0..GIVE_WAY_MAX {
            if self.waiting + blocks <= self.waiting_max {
                return true;
            }
            let Some(list) = self.lists.victim() else { break };
            let mut first = self.lists.first(list);
            let until = self.end(first).unwrap_or(0);
            self.release_all(&mut first);
            self.lists.gave_way(list, until);
            self.gave_way += 1;
        }
        self.lists.shortage = MemoryShortage::Memory;
        self.waiting + blocks <= self.waiting_max
    }

    /// Frees a list with its blocks.
    pub fn forget(&mut self, list: u32) {
        if list == 0 {
            return;
        }
        let mut first = self.open(list, Owner::default());
        self.release_all(&mut first);
        let list = self.close(first);
        self.lists.settle(list, u64::MAX);
    }

    /// Number of displaced lists.
    pub fn gave_way(&self) -> u64 {
        self.gave_way
    }

    /// Returns the reason for the last refusal.
    pub fn shortage(&self) -> MemoryShortage {
        self.lists.shortage
    }

    /// Returns the lists.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// See [`Held::lists`].
    pub fn lists_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }

    /// Returns the number of blocks in lists.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the memory of the blocks.
    pub fn memory(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the offset of a block's bytes in the memory.
    pub fn place(&self, block: u32) -> usize {
        block as usize * BLOCK_LEN
    }

    /// Returns the first block of a list.
    pub fn front(&self, list: BlockLink) -> Option<&Block> {
        Some(&self.blocks[list.block()? as usize])
    }

    /// Removes the first block of a list. Its bytes stay until [`Held::release`].
    pub fn pop(&mut self, list: &mut BlockLink) -> Option<(u32, Block)> {
        let block = list.block()?;
        let content = self.blocks[block as usize];
        *list = content.next;
        self.waiting -= 1;
        Some((block, content))
    }

    /// Frees a block.
    pub fn release(&mut self, block: u32) {
        self.free.push(block);
    }

    /// Frees all blocks of a list; returns their number of bytes.
    pub fn release_all(&mut self, list: &mut BlockLink) -> u32 {
        let mut bytes = 0;
        while let Some((block, content)) = self.pop(list) {
            bytes += content.len;
            self.release(block);
        }
        bytes
    }

    /// Frees the blocks of a list with at least this doubt; returns their number of bytes.
    pub fn release_doubtful(&mut self, list: &mut BlockLink, doubt: u8) -> u32 {
        let (mut bytes, mut kept, mut last) = (0, BlockLink::default(), None);
        while let Some((block, content)) = self.pop(list) {
            if content.doubt >= doubt {
                bytes += content.len;
                self.release(block);
                continue;
            }
            self.waiting += 1;
            self.blocks[block as usize].next = BlockLink::default();
            match last.replace(block) {
                Some(before) => self.blocks[before as usize].next = BlockLink::to(block),
                None => kept = BlockLink::to(block),
            }
        }
        *list = kept;
        bytes
    }

    /// Cuts the first block in two at this offset, if it is within the block. Without a free block,
    /// discards the second part. Returns the number of discarded bytes.
    pub fn part_front(&mut self, list: BlockLink, at: u64) -> u32 {
        let Some(front) = list.block() else { return 0 };
        let whole = self.blocks[front as usize];
        let lost = whole.end().saturating_sub(at) as u32;
        if lost == 0 || at <= whole.offset || self.cut(list, at).is_some() {
            return 0;
        }
        self.blocks[front as usize].len -= lost;
        lost
    }

    /// Removes the doubt from bytes with at most this doubt.
    pub fn trust(&mut self, list: BlockLink, doubt: u8) {
        self.each(list, |block| block.doubt = if block.doubt <= doubt { 0 } else { block.doubt });
    }

    /// Raises the doubt of all bytes of a list to at least this one.
    pub fn suspect(&mut self, list: BlockLink, doubt: u8) {
        self.each(list, |block| block.doubt = block.doubt.max(doubt));
    }

    fn each(&mut self, list: BlockLink, mut change: impl FnMut(&mut Block)) {
        let mut link = list;
        while let Some(block) = link.block() {
            change(&mut self.blocks[block as usize]);
            link = self.next(link);
        }
    }

    /// Removes the byte at `at`, in the first block, from the stream: later bytes move up by one.
    /// Returns true if the block has no later bytes.
    pub fn take_out(&mut self, list: BlockLink, at: u64) -> bool {
        self.each(list, |block| {
            block.offset -= u64::from(block.offset > at);
            block.span.from -= u64::from(block.span.from > at);
            block.span.until -= u64::from(block.span.until > at && block.span.until < u64::MAX);
        });
        let Some(front) = list.block() else { return false };
        let place = self.place(front);
        let block = &mut self.blocks[front as usize];
        let skip = (at + 1 - block.offset) as usize;
        self.bytes.copy_within(place + skip..place + block.len as usize, place);
        block.len -= skip as u32;
        block.offset = at;
        block.len == 0
    }

    /// Joins a segment with a queued one that it continues, as Linux's queue does. Returns the span
    /// of both.
    fn join(&mut self, list: BlockLink, new: &New<'_>) -> Span {
        // Linux checks the last segment, and the last one that begins before this one.
        let spans =
            || self.list(list).filter(|block| block.doubt == new.doubt && !block.fin).map(|block| block.span);
        let last = spans().max_by_key(|span| span.from);
        let before = spans().filter(|span| span.from <= new.span.from).max_by_key(|span| span.from);
        let follows = |span: &Span| span.until == new.span.from;
        let Some(before) = last.filter(follows).or(before.filter(follows)) else { return new.span };
        let joined = Span { from: before.from, until: new.span.until };
        self.each(list, |block| {
            if block.span == before {
                block.span = joined;
            }
        });
        joined
    }

    /// Returns true if a list has all bytes from `from` to `until`.
    pub fn covers(&self, list: BlockLink, from: u64, until: u64) -> bool {
        let mut at = from;
        for block in self.list(list).take_while(|block| block.offset <= until) {
            if block.offset > at {
                return false;
            }
            at = at.max(block.offset + block.bytes.len() as u64);
        }
        at >= until
    }

    /// Returns the end of a list's bytes.
    pub fn end(&self, list: BlockLink) -> Option<u64> {
        self.list(list).last().map(|block| block.offset + block.bytes.len() as u64)
    }

    /// Returns the blocks of a list with their bytes.
    pub fn list(&self, list: BlockLink) -> impl Iterator<Item = New<'_>> {
        let mut link = list;
        std::iter::from_fn(move || {
            let block = link.block()?;
            let content = self.blocks[block as usize];
            link = content.next;
            let bytes = &self.bytes[self.place(block)..][..content.len as usize];
            let Block { offset, span, doubt, fin, .. } = content;
            Some(New { offset, bytes, span, doubt, fin })
        })
    }

    /// Adds bytes to a list. Where they overlap queued ones, the policy decides which stay.
    pub fn insert(&mut self, list: &mut BlockLink, mut new: New<'_>, policy: HostPolicy) -> Inserted {
        let mut inserted = Inserted::default();
        if policy == HostPolicy::Linux && !new.fin {
            new.span = self.join(*list, &new);
        }
        let mut at = new.offset;
        let end = new.offset + new.bytes.len() as u64;
        // The block that precedes `at`.
        let mut before = BlockLink::default();
        while at < end {
            let part = |until: u64| &new.bytes[(at - new.offset) as usize..(until - new.offset) as usize];
            let link = if before == BlockLink::default() { *list } else { self.next(before) };
            let following = link.block().map(|block| self.blocks[block as usize]);
            match following {
                Some(block) if block.end() <= at => before = link,
                Some(block) if block.offset <= at => {
                    let until = end.min(block.end());
                    inserted.differ |= block.fin != new.fin || self.part(link, at, until) != part(until);
                    let preferred = match new.doubt.cmp(&block.doubt) {
                        Ordering::Less => true,
                        Ordering::Greater => false,
                        Ordering::Equal => policy.prefers_new(new.span, block.span),
                    };
                    if preferred && !self.replace(link, at, New { bytes: part(until), ..new }) {
                        return inserted;
                    }
                    at = until;
                }
                following => {
                    let hole = following.map_or(end, |block| end.min(block.offset));
                    let until = hole.min(at + BLOCK_LEN as u64);
                    let part = New { offset: at, bytes: part(until), ..new };
                    let Some(link) = self.place_behind(list, before, part) else {
                        return inserted;
                    };
                    inserted.added += (until - at) as u32;
                    before = link;
                    at = until;
                }
            }
        }
        inserted.whole = true;
        inserted
    }

    /// Appends bytes to a list. Returns `None` if they are not after its last block, or without
    /// enough blocks.
    pub fn append(&mut self, list: &mut BlockLink, last: &mut BlockLink, new: New<'_>) -> Option<u32> {
        let end = last.block().map_or(0, |block| self.blocks[block as usize].end());
        let blocks = new.bytes.len().div_ceil(BLOCK_LEN);
        if new.offset < end || self.waiting + blocks > self.plenty && !self.make_room(blocks) {
            return None;
        }
        let mut offset = new.offset;
        for bytes in new.bytes.chunks(BLOCK_LEN) {
            *last = self.place_behind(list, *last, New { offset, bytes, ..new })?;
            offset += bytes.len() as u64;
        }
        Some(new.bytes.len() as u32)
    }

    /// Returns the last block of a list.
    pub fn last(&self, list: BlockLink) -> BlockLink {
        let mut last = list;
        while self.next(last) != BlockLink::default() {
            last = self.next(last);
        }
        last
    }

    /// Takes a free block, if one more may be in lists.
    fn take(&mut self) -> Option<u32> {
        if self.waiting >= self.plenty && !self.make_room(1) {
            return None;
        }
        let block = self.free.pop()?;
        self.waiting += 1;
        Some(block)
    }

    fn next(&self, link: BlockLink) -> BlockLink {
        link.block().map_or(BlockLink::default(), |block| self.blocks[block as usize].next)
    }

    /// Returns bytes `from..until` of the stream, all in this block.
    fn part(&self, link: BlockLink, from: u64, until: u64) -> &[u8] {
        let Some(block) = link.block() else { return &[] };
        let start = self.place(block) + (from - self.blocks[block as usize].offset) as usize;
        &self.bytes[start..start + (until - from) as usize]
    }

    /// Overwrites bytes of a block. They become a block of their own, so that the start of each
    /// byte's segment is known; without a free block, they keep the old segment. Returns false, and
    /// overwrites nothing, if the old segment then differs in doubt, or in being a FIN.
    fn replace(&mut self, link: BlockLink, at: u64, new: New<'_>) -> bool {
        let mut link = link;
        let mut own = true;
        if self.front(link).is_some_and(|block| block.offset < at) {
            match self.cut(link, at) {
                Some(right) => link = right,
                None => own = false,
            }
        }
        let end = at + new.bytes.len() as u64;
        if own && self.front(link).is_some_and(|block| block.end() > end) {
            own = self.cut(link, end).is_some();
        }
        let Some(block) = link.block() else { return true };
        let old = self.blocks[block as usize];
        if !own && (old.doubt, old.fin) != (new.doubt, new.fin) {
            return false;
        }
        let start = self.place(block) + (at - self.blocks[block as usize].offset) as usize;
        self.bytes[start..start + new.bytes.len()].copy_from_slice(new.bytes);
        if own {
            let block = &mut self.blocks[block as usize];
            (block.span, block.doubt, block.fin) = (new.span, new.doubt, new.fin);
        }
        true
    }

    /// Cuts a block in two at this offset. Returns the second part; `None` without a free block.
    pub fn cut(&mut self, link: BlockLink, at: u64) -> Option<BlockLink> {
        let left = link.block()?;
        let right = self.take()?;
        let whole = self.blocks[left as usize];
        let keep = (at - whole.offset) as usize;
        let start = self.place(left);
        self.bytes.copy_within(start + keep..start + whole.len as usize, right as usize * BLOCK_LEN);
        self.blocks[right as usize] = Block { offset: at, len: whole.len - keep as u32, ..whole };
        self.blocks[left as usize] = Block { len: keep as u32, next: BlockLink::to(right), ..whole };
        Some(BlockLink::to(right))
    }

    /// Inserts at most a block of bytes after a block of the list, or first.
    fn place_behind(&mut self, list: &mut BlockLink, before: BlockLink, new: New<'_>) -> Option<BlockLink> {
        let block = self.take()?;
        let New { offset, bytes, span, doubt, fin } = new;
        let start = self.place(block);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        let link = BlockLink::to(block);
        let next = match before.block() {
            Some(before) => std::mem::replace(&mut self.blocks[before as usize].next, link),
            None => std::mem::replace(list, link),
        };
        self.blocks[block as usize] = Block { next, len: bytes.len() as u32, offset, span, doubt, fin };
        Some(link)
    }
}
