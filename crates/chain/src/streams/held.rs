//! Segments that came before their turn: kept in blocks, a list for each stream, ascending and without overlap.

use packet::memory::{OutOfMemory, Zeroed};

use super::HostPolicy;

/// Bytes of a block: a segment of an Ethernet frame fits; longer ones take several.
pub const BLOCK_LEN: usize = 1536;

/// Blocks beside those that may wait, for bytes that were delivered while their group is under way: so how much may wait
/// does not depend on how packets are grouped. Enough for a group of the longest packets; memory that is not touched costs
/// nothing.
const SPARE: usize = crate::GROUP_MAX * (packet::LARGE_ROOM / BLOCK_LEN + 2);

/// Blocks of all streams of a chain.
pub(super) struct Held {
    blocks: Vec<Block>,
    bytes: Zeroed<u8>,
    free: Vec<u32>,
    /// Blocks that are in a list.
    waiting: usize,
    /// How many may be.
    waiting_max: usize,
}

/// Bytes that wait.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    /// The next block of the stream.
    next: Link,
    /// Bytes of it that are in use.
    pub len: u32,
    /// Where in the stream they stand.
    pub offset: u64,
    /// Where in the stream the segment began that they came in.
    origin: u64,
    /// See [`New::doubtful`].
    pub doubtful: bool,
}

impl Block {
    /// The offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// A block, or none: one more than its number, so that zero is none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Link(pub u32);

impl Link {
    const fn to(block: u32) -> Link {
        Link(block + 1)
    }

    pub fn block(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// Bytes that are to wait.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Where their segment began.
    pub origin: u64,
    /// Whether they count only once the receiver acknowledges them, and no others come for their place.
    pub doubtful: bool,
}

/// What came of an insertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// How many more bytes wait now.
    pub added: u32,
    /// Whether bytes differed from those that they overlapped.
    pub differ: bool,
    /// Whether there were blocks enough; else only bytes from the front were added.
    pub whole: bool,
}

impl Held {
    /// Room for `memory` bytes, rounded down to whole blocks.
    pub fn new(memory: usize) -> Result<Held, OutOfMemory> {
        let waiting_max = (memory / BLOCK_LEN).min(u32::MAX as usize / 2);
        let count = waiting_max + SPARE;
        Ok(Held {
            blocks: vec![Block::default(); count],
            bytes: Zeroed::new(count * BLOCK_LEN)?,
            free: (0..count as u32).rev().collect(),
            waiting: 0,
            waiting_max,
        })
    }

    /// How many blocks are in a list.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The memory that blocks stand in.
    pub fn memory(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in the memory a block's bytes begin.
    pub fn place(&self, block: u32) -> usize {
        block as usize * BLOCK_LEN
    }

    /// The block at the front of a list.
    pub fn front(&self, list: Link) -> Option<&Block> {
        Some(&self.blocks[list.block()? as usize])
    }

    /// Takes the block at the front off a list; its bytes stay until it is given back.
    pub fn pop(&mut self, list: &mut Link) -> Option<(u32, Block)> {
        let block = list.block()?;
        let content = self.blocks[block as usize];
        *list = content.next;
        self.waiting -= 1;
        Some((block, content))
    }

    /// Gives a block back.
    pub fn release(&mut self, block: u32) {
        self.free.push(block);
    }

    /// Gives all blocks of a list back; returns how many bytes they held.
    pub fn release_all(&mut self, list: &mut Link) -> u32 {
        let mut bytes = 0;
        while let Some((block, content)) = self.pop(list) {
            bytes += content.len;
            self.release(block);
        }
        bytes
    }

    /// Gives the doubtful blocks of a list back; returns how many bytes they held.
    pub fn release_doubtful(&mut self, list: &mut Link) -> u32 {
        let (mut bytes, mut kept, mut last) = (0, Link::default(), None);
        while let Some((block, content)) = self.pop(list) {
            if content.doubtful {
                bytes += content.len;
                self.release(block);
                continue;
            }
            self.waiting += 1;
            self.blocks[block as usize].next = Link::default();
            match last.replace(block) {
                Some(before) => self.blocks[before as usize].next = Link::to(block),
                None => kept = Link::to(block),
            }
        }
        *list = kept;
        bytes
    }

    /// Parts the block at the front, if it goes on behind this offset within it; what is behind is forgotten if there is no block
    /// for it. Returns how many bytes were.
    pub fn part_front(&mut self, list: Link, at: u64) -> u32 {
        let Some(front) = list.block() else { return 0 };
        let lost = self.blocks[front as usize].end().saturating_sub(at) as u32;
        if lost == 0 || self.cut(list, at).is_some() {
            return 0;
        }
        self.blocks[front as usize].len -= lost;
        lost
    }

    /// Nothing in a list is doubtful any more.
    pub fn trust(&mut self, list: Link) {
        let mut link = list;
        while let Some(block) = link.block() {
            self.blocks[block as usize].doubtful = false;
            link = self.next(link);
        }
    }

    /// Where the bytes of a list end.
    pub fn end(&self, list: Link) -> Option<u64> {
        self.list(list).last().map(|block| block.offset + block.bytes.len() as u64)
    }

    /// The blocks of a list with their bytes.
    pub fn list(&self, list: Link) -> impl Iterator<Item = New<'_>> {
        let mut link = list;
        std::iter::from_fn(move || {
            let block = link.block()?;
            let content = self.blocks[block as usize];
            link = content.next;
            let bytes = &self.bytes[self.place(block)..][..content.len as usize];
            Some(New { offset: content.offset, bytes, origin: content.origin, doubtful: content.doubtful })
        })
    }

    /// Adds bytes to a list. Where they overlap others, the policy says which stay.
    pub fn insert(&mut self, list: &mut Link, new: New<'_>, policy: HostPolicy) -> Inserted {
        let mut inserted = Inserted::default();
        let mut at = new.offset;
        let end = new.offset + new.bytes.len() as u64;
        // The block behind which `at` stands.
        let mut before = Link::default();
        while at < end {
            let part = |until: u64| &new.bytes[(at - new.offset) as usize..(until - new.offset) as usize];
            let link = if before == Link::default() { *list } else { self.next(before) };
            let following = link.block().map(|block| self.blocks[block as usize]);
            match following {
                Some(block) if block.end() <= at => before = link,
                Some(block) if block.offset <= at => {
                    let until = end.min(block.end());
                    inserted.differ |= self.part(link, at, until) != part(until);
                    let preferred = match (new.doubtful, block.doubtful) {
                        (false, true) => true,
                        (true, false) => false,
                        _ => policy.prefers_new(new.origin, block.origin),
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

    /// A free block, if one more may wait.
    fn take(&mut self) -> Option<u32> {
        if self.waiting == self.waiting_max {
            return None;
        }
        let block = self.free.pop()?;
        self.waiting += 1;
        Some(block)
    }

    fn next(&self, link: Link) -> Link {
        link.block().map_or(Link::default(), |block| self.blocks[block as usize].next)
    }

    /// Bytes `from..until` of the stream, all in this block.
    fn part(&self, link: Link, from: u64, until: u64) -> &[u8] {
        let Some(block) = link.block() else { return &[] };
        let start = self.place(block) + (from - self.blocks[block as usize].offset) as usize;
        &self.bytes[start..start + (until - from) as usize]
    }

    /// Overwrites bytes of a block. They become a block of their own, so that it is known for each byte where its segment
    /// began; if there is no block for that, they keep the old segment's. False if that one is doubtful: then nothing is overwritten.
    fn replace(&mut self, link: Link, at: u64, new: New<'_>) -> bool {
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
        if !own && self.blocks[block as usize].doubtful != new.doubtful {
            return false;
        }
        let start = self.place(block) + (at - self.blocks[block as usize].offset) as usize;
        self.bytes[start..start + new.bytes.len()].copy_from_slice(new.bytes);
        if own {
            let block = &mut self.blocks[block as usize];
            (block.origin, block.doubtful) = (new.origin, new.doubtful);
        }
        true
    }

    /// Cuts a block in two at this offset within it; the right one, or none if there is no block for it.
    pub fn cut(&mut self, link: Link, at: u64) -> Option<Link> {
        let left = link.block()?;
        let right = self.take()?;
        let whole = self.blocks[left as usize];
        let keep = (at - whole.offset) as usize;
        let start = self.place(left);
        self.bytes.copy_within(start + keep..start + whole.len as usize, right as usize * BLOCK_LEN);
        self.blocks[right as usize] = Block { offset: at, len: whole.len - keep as u32, ..whole };
        self.blocks[left as usize] = Block { len: keep as u32, next: Link::to(right), ..whole };
        Some(Link::to(right))
    }

    /// Puts bytes, no more than a block's, behind a block of the list, or first.
    fn place_behind(&mut self, list: &mut Link, before: Link, new: New<'_>) -> Option<Link> {
        let block = self.take()?;
        let New { offset, bytes, origin, doubtful } = new;
        let start = self.place(block);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        let link = Link::to(block);
        let next = match before.block() {
            Some(before) => std::mem::replace(&mut self.blocks[before as usize].next, link),
            None => std::mem::replace(list, link),
        };
        self.blocks[block as usize] = Block { next, len: bytes.len() as u32, offset, origin, doubtful };
        Some(link)
    }
}
