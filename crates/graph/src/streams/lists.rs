//! Lists of blocks, one for each stream with queued bytes: their owners, and the order in which
//! they give way when memory is full.
//!
//! Lists of connections that are not open give way first, the oldest first; then lists of open
//! connections, in the same order, except those that grew since the last check. A displaced list
//! stays, empty, until its stream has passed the lost bytes, so that the stream knows what is
//! missing.

use nf::record::RecordHeader;
use nf::{MemoryShortage, SourceAccounts, source_of};
use packet::Addr;
use packet::memory::OutOfMemory;

/// Number of accounts of sources.
const ACCOUNTS: u64 = 1 << 16;

/// Maximum number of lists checked to find a victim.
const LOOKED_AT_MAX: usize = 32;

/// The owner of the current packet.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The source that began its flow.
    source: Addr,
    /// Its connection is not open.
    is_weak: bool,
}

impl Default for Owner {
    fn default() -> Owner {
        Owner { source: Addr::from_v4_bytes([0; 4]), is_weak: false }
    }
}

impl Owner {
    /// Returns the owner of a flow's packets.
    #[inline]
    pub fn of(header: &RecordHeader) -> Owner {
        let (key, reversed) = (&header.key, header.has(RecordHeader::FLAG_REVERSED));
        Owner { source: key.ends(reversed).0.addr, is_weak: header.connection.gives_way() }
    }
}

/// A block, or none: one more than its number, zero for none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockLink(pub u32);

impl BlockLink {
    pub const fn to(block: u32) -> BlockLink {
        BlockLink(block + 1)
    }

    pub fn block(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// A stream's list.
#[derive(Clone, Copy, Default)]
struct List {
    first: BlockLink,
    blocks: u32,
    /// The account of its blocks; 0 if the connection is not open.
    account: u32,
    /// The neighbors in its queue: one more than their numbers.
    next: u32,
    previous: u32,
    /// Bytes before this offset were evicted; 0 once the stream has passed it.
    lost_until: u64,
    is_weak: bool,
    /// It grew since the last check.
    is_used: bool,
    /// It gave way, and its stream has not noticed yet.
    is_news: bool,
}

/// The first and the last list of a queue: one more than their numbers.
#[derive(Clone, Copy, Default)]
struct Queue {
    first: u32,
    last: u32,
}

/// All lists.
pub(super) struct Lists {
    all: Vec<List>,
    free: Vec<u32>,
    /// Lists with blocks, of open connections and of others.
    queues: [Queue; 2],
    sources: SourceAccounts,
    /// The list that is being changed: one more than its number.
    open: u32,
    owner: Owner,
    /// Number of blocks in lists before that.
    mark: usize,
    /// The reason for the last refusal of a block.
    pub shortage: MemoryShortage,
}

impl Lists {
    /// Creates lists for n blocks with this share for a source. There are more lists than blocks
    /// only if lists were evicted.
    pub fn new(blocks: usize, share: u32, seed: u64) -> Result<Lists, OutOfMemory> {
        Ok(Lists {
            all: Vec::with_capacity(blocks),
            free: Vec::with_capacity(blocks),
            queues: [Queue::default(); 2],
            sources: SourceAccounts::new(ACCOUNTS, share, seed)?,
            open: 0,
            owner: Owner::default(),
            mark: 0,
            shortage: MemoryShortage::Memory,
        })
    }

    /// Returns the number of accounts of sources.
    pub fn accounts(&self) -> usize {
        self.sources.accounts()
    }

    fn get(&self, list: u32) -> Option<&List> {
        self.all.get(list.checked_sub(1)? as usize)
    }

    fn get_mut(&mut self, list: u32) -> Option<&mut List> {
        self.all.get_mut(list.checked_sub(1)? as usize)
    }

    /// Returns the first block of a list.
    #[inline]
    pub fn first(&self, list: u32) -> BlockLink {
        self.get(list).map_or(BlockLink::default(), |list| list.first)
    }

    /// Returns the number of its blocks.
    pub fn blocks(&self, list: u32) -> usize {
        self.get(list).map_or(0, |list| list.blocks as usize)
    }

    /// Returns the account of an owner's source.
    pub fn account(&self, owner: Owner) -> u32 {
        self.sources.account(source_of(owner.source))
    }

    /// Begins a change of a list; `waiting` blocks are in lists.
    pub fn begin(&mut self, list: u32, owner: Owner, waiting: usize) {
        (self.open, self.owner, self.mark) = (list, owner, waiting);
    }

    /// Ends the change; returns the list's number from now on.
    pub fn end(&mut self, first: BlockLink, waiting: usize) -> u32 {
        let open = std::mem::take(&mut self.open);
        let list = match open {
            0 if first == BlockLink::default() => return 0,
            0 => self.vacant(),
            open => open,
        };
        let (owner, mark) = (self.owner, self.mark);
        let Some(at) = self.get_mut(list) else { return 0 };
        let before = at.blocks;
        at.first = first;
        at.blocks = (before as usize + waiting).saturating_sub(mark) as u32;
        at.is_used |= before > 0 && at.blocks > before;
        let (blocks, was_weak, account) = (at.blocks, at.is_weak, at.account);
        if before == 0 && blocks > 0 {
            let account = if owner.is_weak { 0 } else { self.account(owner) };
            self.enqueue(list, owner.is_weak, account);
            self.count(owner.is_weak, account, 0, blocks);
        } else if blocks == 0 {
            if before > 0 {
                self.dequeue(list);
                self.count(was_weak, account, before, 0);
            }
            return self.settle(list, 0);
        } else if was_weak && !owner.is_weak {
            let account = self.account(owner);
            self.dequeue(list);
            self.enqueue(list, false, account);
            self.count(false, account, 0, blocks);
        } else {
            self.count(was_weak, account, before, blocks);
        }
        list
    }

    fn count(&mut self, is_weak: bool, account: u32, before: u32, after: u32) {
        if is_weak || before == after {
            return;
        }
        match after.checked_sub(before) {
            Some(more) => self.sources.add(account, more),
            None => self.sources.remove(account, before - after),
        }
    }

    /// Returns how many more blocks the list that is being changed may have by its source's share.
    pub fn left(&self, waiting: usize) -> usize {
        // A list that was charged stays so: a forged reset makes its connection weak, too.
        let known = self.get(self.open).filter(|list| list.blocks > 0 && !list.is_weak);
        let account = match known {
            Some(list) => list.account,
            None if self.owner.is_weak => return usize::MAX,
            None => self.account(self.owner),
        };
        (self.sources.left(account) as usize + self.mark).saturating_sub(waiting)
    }

    /// Returns the list that must give way to the list being changed.
    pub fn victim(&mut self) -> Option<u32> {
        let mut candidate = self.candidate()?;
        for _ in 0..LOOKED_AT_MAX {
            let List { is_used, is_weak, account, .. } = *self.get(candidate)?;
            if !is_used || !is_weak && self.sources.is_over(account) {
                return Some(candidate);
            }
            self.dequeue(candidate);
            self.enqueue(candidate, is_weak, account);
            candidate = self.candidate()?;
        }
        Some(candidate)
    }

    /// Returns the first list of the queues, except the list being changed. A connection that is
    /// not open takes nothing from an open one.
    fn candidate(&self) -> Option<u32> {
        let [open, weak] = self.queues;
        let other = |list: u32| match list {
            list if list == self.open => self.get(list).map_or(0, |list| list.next),
            list => list,
        };
        let candidate = match other(weak.first) {
            0 if !self.owner.is_weak => other(open.first),
            list => list,
        };
        (candidate != 0).then_some(candidate)
    }

    /// Notes that a list gave way: its blocks are gone, and its stream will miss the bytes before
    /// this offset.
    pub fn gave_way(&mut self, list: u32, until: u64) {
        self.dequeue(list);
        let Some(at) = self.get_mut(list) else { return };
        let (blocks, is_weak, account) = (std::mem::take(&mut at.blocks), at.is_weak, at.account);
        (at.first, at.lost_until, at.is_news) = (BlockLink::default(), at.lost_until.max(until), true);
        // The blocks were there when the change began.
        self.mark = self.mark.saturating_sub(blocks as usize);
        self.count(is_weak, account, blocks, 0);
    }

    /// Returns true if a list gave way since the last call for it.
    #[inline]
    pub fn is_news(&mut self, list: u32) -> bool {
        self.get_mut(list).is_some_and(|list| std::mem::take(&mut list.is_news))
    }

    /// Returns the offset before which a list's bytes were evicted; 0 if none were.
    #[inline]
    pub fn lost_until(&self, list: u32) -> u64 {
        self.get(list).map_or(0, |list| list.lost_until)
    }

    /// Creates the list of a stream that moves here and misses bytes. `is_news`: the stream has not
    /// noticed yet.
    pub fn lose(&mut self, until: u64, is_news: bool) -> u32 {
        let list = self.vacant();
        if let Some(at) = self.get_mut(list) {
            (at.lost_until, at.is_news) = (until, is_news);
        }
        list
    }

    /// Forgets missing bytes before this offset, which the stream has passed. Returns the list's
    /// number from now on.
    pub fn settle(&mut self, list: u32, until: u64) -> u32 {
        let Some(at) = self.get_mut(list) else { return 0 };
        if at.lost_until <= until {
            at.lost_until = 0;
        }
        if at.blocks > 0 || at.lost_until > 0 {
            return list;
        }
        *at = List::default();
        self.free.push(list);
        0
    }

    fn vacant(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(List::default());
            self.all.len() as u32
        })
    }

    fn enqueue(&mut self, list: u32, is_weak: bool, account: u32) {
        let previous = std::mem::replace(&mut self.queues[usize::from(is_weak)].last, list);
        match self.get_mut(previous) {
            Some(previous) => previous.next = list,
            None => self.queues[usize::from(is_weak)].first = list,
        }
        if let Some(at) = self.get_mut(list) {
            (at.next, at.previous, at.is_weak, at.account, at.is_used) =
                (0, previous, is_weak, account, false);
        }
    }

    fn dequeue(&mut self, list: u32) {
        let Some(&List { next, previous, is_weak, .. }) = self.get(list) else { return };
        match self.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => self.queues[usize::from(is_weak)].first = next,
        }
        match self.get_mut(next) {
            Some(next) => next.previous = previous,
            None => self.queues[usize::from(is_weak)].last = previous,
        }
    }
}
